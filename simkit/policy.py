"""Policies: versioned documents that compose mechanisms.

A mechanism is named by its registered name, or, where the command line allows it, by a class in a Python file beside the document
(``mine.py@Lottery``), or by an entry point of the group ``simkit.mechanisms``. Its parameters are the fields of its dataclass,
checked from their types.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from simkit.documents import Document, DocumentErrors, Loc, Problem, load, nearest, problems_of
from simkit.library import find, is_trusted
from simkit.mechanisms import load_builtin, registered
from simkit.mechanisms.base import Mechanism
from simkit.model import UsageError
from simkit.units import parse_name

_CHAINS = ("admission", "limits")
_SINGLES = ("overload", "retry", "backfill", "coalesce")
_LATER = ("preempt", "route", "autoscale")
_KEYS = ("name", "version", "about", "order", *_CHAINS, *_SINGLES)
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


@dataclass(frozen=True)
class MechanismSpec:
    """A mechanism with its parameters, ready to be built once per simulation (and per pool, for orders)."""

    slot: str
    name: str
    params: Mapping[str, Any]  # as the document writes them, plain data
    cls: type[Any]
    code_digest: str = ""  # of the file it came from, when that is not simkit's

    def build(self) -> Any:
        """A new mechanism object."""
        return adapter(self.cls).validate_python(_field_names(self.cls, self.params))

    def plain(self) -> Any:
        """As canonical document data."""
        return {self.name: dict(self.params)} if self.params else self.name


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

    @property
    def document(self) -> dict[str, Any]:
        """The policy as canonical plain data: defaults left out, whatever the file's layout was."""
        plain: dict[str, Any] = {"name": self.name, "version": self.version}
        if self.about:
            plain["about"] = self.about
        order = self.order.plain()
        if self.order_by_pool:
            order = {
                "pools": {pool: spec.plain() for pool, spec in sorted(self.order_by_pool.items())},
                "default": order,
            }
        plain["order"] = order
        for slot in _CHAINS:
            chain = getattr(self, slot)
            if chain:
                plain[slot] = [spec.plain() for spec in chain]
        for slot in _SINGLES:
            spec = getattr(self, slot)
            if spec is not None:
                plain[slot] = spec.plain()
        return plain

    @property
    def mechanisms(self) -> tuple[MechanismSpec, ...]:
        singles = [getattr(self, slot) for slot in _SINGLES]
        return (
            self.order,
            *self.order_by_pool.values(),
            *self.admission,
            *self.limits,
            *(spec for spec in singles if spec),
        )

    @property
    def digest(self) -> str:
        """blake2b-128 of what the policy does: the canonical document without `about`, and the code it brings."""
        content = {key: value for key, value in self.document.items() if key != "about"}
        code = [spec.code_digest for spec in self.mechanisms]
        text = json.dumps([content, code], sort_keys=True, allow_nan=False)
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


def adapter(cls: type[Any]) -> TypeAdapter[Any]:
    """Pydantic's validator of a mechanism's dataclass: unknown fields refused."""
    if cls not in _ADAPTERS:
        if not dataclasses.is_dataclass(cls):
            raise UsageError(f"mechanism {cls.__name__} must be a dataclass: its fields are its parameters")
        if "__pydantic_config__" not in cls.__dict__:
            cls.__pydantic_config__ = {"extra": "forbid", "arbitrary_types_allowed": True}  # type: ignore[attr-defined]
        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]


def parameters(cls: type[Any]) -> list[str]:
    """The parameter names of a mechanism as documents write them."""
    return [item.name.rstrip("_") for item in dataclasses.fields(cls) if item.init]


def _field_names(cls: type[Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Document keys -> dataclass fields (``for`` -> ``for_``)."""
    names = {item.name for item in dataclasses.fields(cls)}
    return {f"{key}_" if key not in names and f"{key}_" in names else key: value for key, value in params.items()}


def load_policy(
    source: str | Path | Mapping[str, Any] | Policy | type,
    *,
    relative_to: Path | None = None,
    allow_code: bool = False,
) -> Policy:
    """A policy from a library name, a path, plain data, a Policy, or an order's class (as defined in a notebook cell).

    Raises DocumentErrors with every problem of the document, UsageError when there is no such file.
    """
    if isinstance(source, Policy):
        return source
    if isinstance(source, type):
        spec = MechanismSpec("order", getattr(source, "mechanism_name", "") or source.__name__, {}, source)
        if getattr(source, "slot", None) != "order":
            raise UsageError(
                f"{source.__name__} is no order: mark it with @mechanism and give it push, pop and len, or rank"
            )
        adapter(source)
        return Policy(spec.name, spec)
    if isinstance(source, Mapping):
        return policy_from(load(source, name="<policy>"), allow_code=allow_code, folder=relative_to)
    path = find("policies", source, relative_to)
    return policy_from(load(path), allow_code=allow_code, path=path)


def policy_from(
    document: Document, *, at: Loc = (), allow_code: bool = False, path: Path | None = None, folder: Path | None = None
) -> Policy:
    """The policy at `at` of a document (the whole of it, or one written inside a scenario)."""
    reader = _Reader(document, allow_code=allow_code, folder=path.parent if path else folder or document.folder)
    data: Any = document.data
    for step in at:
        data = data[step]
    policy = reader.policy(data, at, path)
    if reader.problems or policy is None:
        raise DocumentErrors(reader.problems)
    return policy


class _Reader:
    """Reads one policy and collects its problems."""

    def __init__(self, document: Document, *, allow_code: bool, folder: Path | None) -> None:
        self._document, self._allow_code, self._folder = document, allow_code, folder
        self.problems: list[Problem] = []
        load_builtin()

    def _complain(self, loc: Loc, message: str, *, at_key: bool = False) -> None:
        self.problems.append(self._document.problem(loc, message, at_key=at_key))

    def policy(self, data: Any, at: Loc, path: Path | None) -> Policy | None:
        if not isinstance(data, Mapping):
            self._complain(at, f"expected a policy (a mapping), found {data!r}")
            return None
        for key in data:
            if key in _LATER:
                self._complain((*at, key), f"{key!r} is not available in this version", at_key=True)
            elif key not in _KEYS:
                hint = nearest(key, _KEYS) or f" (expected one of {', '.join(_KEYS)})"
                self._complain((*at, key), f"unknown key {key!r}{hint}", at_key=True)
        name = self._name(data, at)
        version = data.get("version", 1)
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            self._complain((*at, "version"), f"found {version!r}, expected a whole number of 1 or more")
        about = data.get("about", "")
        if not isinstance(about, str):
            self._complain((*at, "about"), f"found {about!r}, expected text")
        order, by_pool = self._order(data.get("order", "fifo"), (*at, "order"))
        chains = {slot: self._chain(slot, data.get(slot), (*at, slot)) for slot in _CHAINS}
        singles = {slot: self._single(slot, data.get(slot), (*at, slot)) for slot in _SINGLES}
        if self.problems or order is None:
            return None
        return Policy(name, order, version, about, by_pool, chains["admission"], chains["limits"], **singles, path=path)

    def _name(self, data: Mapping[str, Any], at: Loc) -> str:
        if "name" not in data:
            self._complain(at, "the key 'name' is missing")
            return ""
        try:
            return parse_name(data["name"])
        except ValueError as error:
            self._complain((*at, "name"), str(error))
            return ""

    def _order(self, data: Any, loc: Loc) -> tuple[MechanismSpec | None, dict[str, MechanismSpec]]:
        """One order for every pool, or ``{pools: {gpu: edf}, default: fifo}``."""
        if not (isinstance(data, Mapping) and "pools" in data):
            return self._mechanism("order", data, loc), {}
        for key in data:
            if key not in ("pools", "default"):
                self._complain((*loc, key), f"unknown key {key!r} (expected pools and default)", at_key=True)
        by_pool: dict[str, MechanismSpec] = {}
        pools = data["pools"]
        if not isinstance(pools, Mapping):
            self._complain((*loc, "pools"), f"found {pools!r}, expected a mapping of pools to orders")
            pools = {}
        for pool, entry in pools.items():
            spec = self._mechanism("order", entry, (*loc, "pools", pool))
            if spec is not None:
                by_pool[pool] = spec
        return self._mechanism("order", data.get("default", "fifo"), (*loc, "default")), by_pool

    def _chain(self, slot: str, data: Any, loc: Loc) -> tuple[MechanismSpec, ...]:
        if data is None:
            return ()
        if not isinstance(data, Sequence) or isinstance(data, str):
            self._complain(loc, f"found {data!r}, expected a list of {slot} mechanisms")
            return ()
        specs = (self._mechanism(slot, entry, (*loc, number)) for number, entry in enumerate(data))
        return tuple(spec for spec in specs if spec is not None)

    def _single(self, slot: str, data: Any, loc: Loc) -> MechanismSpec | None:
        return None if data is None else self._mechanism(slot, data, loc)

    def _mechanism(self, slot: str, data: Any, loc: Loc) -> MechanismSpec | None:
        if isinstance(data, str):
            name, params, inside = data, {}, loc
        elif isinstance(data, Mapping) and len(data) == 1:
            name = next(iter(data))
            raw = data[name]
            params, inside = ({} if raw is None else raw), (*loc, name)
            if not isinstance(params, Mapping):
                self._complain(inside, f"found {params!r}, expected the parameters of {name!r} as a mapping")
                return None
        else:
            found = f"{len(data)} keys" if isinstance(data, Mapping) else repr(data)
            self._complain(loc, f"found {found}, expected the name of a mechanism or {{name: {{parameters}}}}")
            return None
        cls, code_digest = self._class(slot, name, inside)
        if cls is None:
            return None
        return self._checked(MechanismSpec(slot, name, dict(params), cls, code_digest), inside)

    def _checked(self, spec: MechanismSpec, loc: Loc) -> MechanismSpec | None:
        known = parameters(spec.cls)
        unknown = [key for key in spec.params if key not in known]
        for key in unknown:
            hint = nearest(key, known) or (f" (expected {', '.join(known)})" if known else " (it has none)")
            self._complain((*loc, key), f"{spec.name} has no parameter {key!r}{hint}", at_key=True)
        if unknown:
            return None
        try:
            spec.build()
        except ValidationError as error:
            self.problems.extend(problems_of(self._document, error, loc, spec.cls))
        except UsageError as error:
            self._complain(loc, str(error))
        else:
            return spec
        return None

    def _class(self, slot: str, name: str, loc: Loc) -> tuple[type[Any] | None, str]:
        if "@" in name:
            return self._from_file(slot, name, loc)
        cls = registered(slot).get((slot, name)) or _from_entry_point(slot, name)
        if cls is not None:
            return cls, ""
        elsewhere = [other for other, known in registered() if known == name]
        names = [known for _, known in registered(slot)]
        if elsewhere:
            self._complain(loc, f"{name!r} belongs under {elsewhere[0]!r}, not under {slot!r}")
        else:
            hint = nearest(name, names) or f" (there are {', '.join(names)})"
            self._complain(loc, f"there is no {slot} mechanism {name!r}{hint}")
        return None, ""

    def _from_file(self, slot: str, name: str, loc: Loc) -> tuple[type[Any] | None, str]:
        file_name, _, class_name = name.rpartition("@")
        path = (self._folder or Path()) / file_name
        folder = (self._folder or Path()).resolve()
        if not path.resolve().is_relative_to(folder):
            self._complain(loc, f"{file_name!r} lies outside the folder of the policy")
            return None, ""
        if not path.is_file():
            self._complain(loc, f"there is no file {str(path)!r}")
            return None, ""
        if not (self._allow_code or is_trusted(path)):
            self._complain(loc, f"{name!r} is Python code: run with --allow-code to load it")
            return None, ""
        try:
            cls = getattr(_load_module(path), class_name, None)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything; it is reported as their problem
            self._complain(loc, f"{path} raised {type(error).__name__}: {error}")
            return None, ""
        if not isinstance(cls, type) or getattr(cls, "slot", None) != slot:
            self._complain(loc, f"{path} has no {slot} mechanism {class_name!r} (mark the class with @mechanism)")
            return None, ""
        return cls, hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _load_module(path: Path) -> Any:
    """The module in `path`, loaded once per content under a name of its own (so that its classes can be sent to workers)."""
    content = hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    name = f"simkit_policy_{path.stem}_{content}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _from_entry_point(slot: str, name: str) -> type[Any] | None:
    """A mechanism that an installed package offers under the entry point group ``simkit.mechanisms``."""
    for point in entry_points(group="simkit.mechanisms"):
        if point.name == name:
            point.load()
            return registered(slot).get((slot, name))
    return None


def all_mechanisms() -> dict[tuple[str, str], type[Mechanism]]:
    """Everything that a policy may name: built in, and from entry points."""
    load_builtin()
    for point in entry_points(group="simkit.mechanisms"):
        point.load()
    return registered()


def diff(old: Policy, new: Policy) -> list[str]:
    """What changed from `old` to `new`, a line each: ``- key: value`` and ``+ key: value``."""
    before, after = _flat(old.document), _flat(new.document)
    lines = []
    for key in [*before, *(key for key in after if key not in before)]:
        if before.get(key) != after.get(key):
            if key in before:
                lines.append(f"- {key}: {before[key]}")
            if key in after:
                lines.append(f"+ {key}: {after[key]}")
    return lines


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        return {key: item for name, inner in value.items() for key, item in _flat(inner, f"{prefix}{name}.").items()}
    if isinstance(value, list) and value:
        return {
            key: item for number, inner in enumerate(value) for key, item in _flat(inner, f"{prefix}{number}.").items()
        }
    return {prefix.rstrip("."): value}
