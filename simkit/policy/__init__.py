"""Policies: versioned documents that compose mechanisms.

A mechanism is named by its registered name, or, where the command line allows it, by a class in a Python file beside the document
(``mine.py@Lottery``), or by an entry point of the group ``simkit.mechanisms``. Its parameters are the fields of its dataclass,
checked from their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simkit.documents import Document, DocumentErrors, Loc, first_at_each_place, load
from simkit.library import find
from simkit.mechanisms import load_builtin, registered
from simkit.mechanisms.base import Mechanism
from simkit.model import UsageError
from simkit.policy.document import PolicyReader
from simkit.policy.loading import code_digest, load_entry_points
from simkit.policy.parameters import parameter_model, parameters
from simkit.policy.spec import MechanismSpec, Policy, Reference, diff

__all__ = [
    "MechanismSpec", "Policy", "Reference", "all_mechanisms", "diff", "load_policy", "parameter_model", "parameters", "policy_from",
]  # fmt: skip


def load_policy(
    source: str | Path | Mapping[str, Any] | Policy | type,
    *,
    relative_to: Path | None = None,
    allow_code: bool = False,
) -> Policy:
    """A policy from a library name, a path, plain data, a Policy, or an order's class (as defined in a notebook cell).

    `relative_to` is the folder of the document that names it. Raises DocumentErrors with every problem of the document, UsageError when there
    is no such file.
    """
    if isinstance(source, Policy):
        return source
    if isinstance(source, type):
        return _of_class(source)
    if isinstance(source, Mapping):
        return policy_from(load(source, name="<policy>"), allow_code=allow_code, folder=relative_to)
    path = find("policies", source, relative_to)
    return policy_from(load(path), allow_code=allow_code, path=path)


def _of_class(cls: type[Any]) -> Policy:
    name = getattr(cls, "mechanism_name", "") or cls.__name__
    if getattr(cls, "slot", None) != "order":
        raise UsageError(f"{cls.__name__} is no order: mark it with @mechanism and give it push, pop and len, or rank")
    missing = [str(info.alias) for info in parameter_model(cls).model_fields.values() if info.is_required()]
    if missing:
        raise UsageError(
            f"{cls.__name__} needs {', '.join(missing)}: give a policy, {{name: ..., order: {{{name}: {{...}}}}}}"
        )
    return Policy(name, MechanismSpec("order", name, {}, cls, code_digest(cls)))


def policy_from(
    document: Document, *, at: Loc = (), allow_code: bool = False, path: Path | None = None, folder: Path | None = None
) -> Policy:
    """The policy at `at` of a document (the whole of it, or one written inside a scenario). Raises DocumentErrors."""
    reader = PolicyReader(document, allow_code=allow_code, folder=path.parent if path else folder or document.folder)
    policy = reader.policy(at, path)
    problems = first_at_each_place([*(document.problems if not at else ()), *reader.problems])
    if problems or policy is None:
        raise DocumentErrors(problems)
    return policy


def all_mechanisms() -> dict[tuple[str, str], type[Mechanism]]:
    """Everything that a policy may name: built in, and from entry points."""
    load_builtin()
    load_entry_points()
    return registered()
