"""What a policy is once it is read: its mechanisms with their parameters, what it names, its digest, and how two of them differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simkit.documents import Problem
from simkit.library import is_trusted
from simkit.model import UsageError
from simkit.policy.loading import class_in_file
from simkit.policy.parameters import make, settings

CHAINS = ("admission", "limits")
SINGLES = ("overload", "retry", "backfill", "coalesce")


@dataclass(frozen=True)
class MechanismSpec:
    """A mechanism with its parameters, ready to be built once per simulation (and per pool, for orders).

    It can be sent to another process: a class from a file of its own is loaded there again, from the same bytes.
    """

    slot: str
    name: str
    params: Mapping[str, Any]  # as the document writes them, plain data
    cls: type[Any]
    code_digest: str = ""  # of the code it came from, when that is not simkit's
    file: Path | None = None  # where that code is, when a document names it

    def build(self) -> Any:
        """A new mechanism object."""
        return make(self.cls, self.params)

    def plain(self) -> Any:
        """As canonical document data."""
        return {self.name: dict(self.params)} if self.params else self.name

    @property
    def settings(self) -> Any:
        """What it means, whatever way it was written: parameters in base units, defaults left out."""
        found = settings(self.cls, self.params)
        return {self.name: found} if found else self.name

    def __reduce__(self) -> Any:
        if self.file is None:
            return (MechanismSpec, (self.slot, self.name, dict(self.params), self.cls, self.code_digest))
        return (_from_file, (self.slot, self.name, dict(self.params), self.code_digest, str(self.file)))


def _from_file(slot: str, name: str, params: Mapping[str, Any], digest: str, file: str) -> MechanismSpec:
    """Load a class again, in another process. Raises UsageError when the file is not what it was."""
    cls, found = class_in_file(Path(file), name.rpartition("@")[2])
    if cls is None or found != digest:
        raise UsageError(f"{file} was changed while it was in use")
    return MechanismSpec(slot, name, params, cls, digest, Path(file))


@dataclass(frozen=True, slots=True)
class Reference:
    """Something outside that a policy names: a "pool" (or an API), a "tier", a "class" or a "tenant". `place` says where, as a problem
    without a message."""

    kind: str
    name: str
    place: Problem


@dataclass(frozen=True)
class Policy:
    """A policy document, checked."""

    name: str
    order: MechanismSpec
    version: int = 1
    about: str = ""
    order_by_pool: Mapping[str, MechanismSpec] = field(default_factory=dict)
    admission: tuple[MechanismSpec, ...] = ()
    limits: tuple[MechanismSpec, ...] = ()
    overload: MechanismSpec | None = None
    retry: MechanismSpec | None = None
    backfill: MechanismSpec | None = None
    coalesce: MechanismSpec | None = None
    path: Path | None = None
    references: tuple[Reference, ...] = field(default=(), compare=False, repr=False)

    def _slots(self) -> Iterator[tuple[str, Any]]:
        """The filled slots but `order`: (name, a spec or a tuple of them)."""
        for slot in (*CHAINS, *SINGLES):
            found = getattr(self, slot)
            if found:
                yield slot, found

    def as_data(self, one: str) -> dict[str, Any]:
        """Name, version and slots; `one` is the attribute of a spec that says what it is ("plain" as written, "settings" as meant)."""

        def of(spec: MechanismSpec) -> Any:
            return spec.plain() if one == "plain" else spec.settings

        order = of(self.order)
        if self.order_by_pool:
            order = {"pools": {pool: of(spec) for pool, spec in sorted(self.order_by_pool.items())}, "default": order}
        data: dict[str, Any] = {"name": self.name, "version": self.version, "order": order}
        for slot, found in self._slots():
            data[slot] = [of(spec) for spec in found] if isinstance(found, tuple) else of(found)
        return data

    @property
    def document(self) -> dict[str, Any]:
        """The policy as canonical plain data, whatever the file's layout was; empty slots left out."""
        data = self.as_data("plain")
        head = {"name": data.pop("name"), "version": data.pop("version")}
        return {**head, **({"about": self.about} if self.about else {}), **data}

    @property
    def mechanisms(self) -> tuple[MechanismSpec, ...]:
        """Every mechanism of it, the order first."""
        others = (found if isinstance(found, tuple) else (found,) for _, found in self._slots())
        return (self.order, *self.order_by_pool.values(), *(spec for group in others for spec in group))

    @property
    def digest(self) -> str:
        """blake2b-128 of what the policy does: its name, version and settings in base units, and the code that it brings. The layout of
        the file, the order of keys, other words for the same number, defaults written out, and `about` do not count."""
        content = self.as_data("settings")
        if content.get("backfill") == "none":
            del content["backfill"]  # is what an empty slot means
        text = json.dumps(
            [content, [spec.code_digest for spec in self.mechanisms if spec.code_digest]],
            sort_keys=True,
            allow_nan=False,
        )
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def weights(self) -> dict[str, Any]:
        """The shares that the order promises, for the report: ``{"by", "weights", "default"}``; empty when it promises none."""
        by = self.order.params.get("by", "tenant")
        if self.order.name not in ("weighted_fair", "drr"):
            return {}
        outer = by if isinstance(by, str) else by[0]
        return {
            "by": outer,
            "weights": dict(self.order.params.get("weights", {})),
            "default": self.order.params.get("default", 1),
        }

    @property
    def is_general(self) -> bool:
        """Whether it comes from the library: written for any scenario, so it may name classes that a given one does not have."""
        return self.path is not None and is_trusted(self.path)


def diff(old: Policy, new: Policy) -> list[str]:
    """What changed from `old` to `new`, a line each: ``- key: value`` and ``+ key: value``. Other words for the same are no change."""
    meant_before, meant_after = _flat(old.as_data("settings")), _flat(new.as_data("settings"))
    before, after = _flat(old.document), _flat(new.document)
    lines = []
    for key in [*before, *(key for key in after if key not in before)]:
        if before.get(key) == after.get(key) or (key in meant_before and meant_before[key] == meant_after.get(key)):
            continue
        if key in before:
            lines.append(f"- {key}: {before[key]}")
        if key in after:
            lines.append(f"+ {key}: {after[key]}")
    return lines


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        return {key: item for name, inner in value.items() for key, item in _flat(inner, f"{prefix}{name}.").items()}
    if isinstance(value, list) and value:
        pairs = (_flat(inner, f"{prefix}{number}.") for number, inner in enumerate(value))
        return {key: item for flat in pairs for key, item in flat.items()}
    return {prefix.rstrip("."): value}
