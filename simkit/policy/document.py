"""The policy document, read strictly: every problem of it in one pass, each with its position."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simkit.documents import Document, Loc, Problem, choose, empty_values, nearest, problems_of, short
from simkit.library import is_trusted
from simkit.mechanisms import load_builtin, registered
from simkit.model import UsageError
from simkit.policy.loading import class_in_file, class_of_entry_point, code_digest
from simkit.policy.parameters import named_things, parameter_model, parameters
from simkit.policy.spec import CHAINS, SINGLES, MechanismSpec, Policy, Reference
from simkit.units import parse_name

_LATER = ("preempt", "route", "autoscale")
_KEYS = ("name", "version", "about", "order", *CHAINS, *SINGLES)


class PolicyReader:
    """Reads one policy and collects its problems."""

    def __init__(self, document: Document, *, allow_code: bool, folder: Path | None) -> None:
        self._document, self._allow_code, self._folder = document, allow_code, folder
        self.problems: list[Problem] = []
        self._references: list[Reference] = []
        load_builtin()

    def _complain(self, loc: Loc, message: str, *, at_key: bool = False) -> None:
        self.problems.append(self._document.problem(loc, message, at_key=at_key))

    def policy(self, at: Loc, path: Path | None) -> Policy | None:
        """The policy at `at`, or None when anything is wrong with it."""
        data = self._document.at(at)
        if not isinstance(data, Mapping):
            self._complain(at, f"found {short(data)}, expected a policy (a mapping)")
            return None
        for key, value in data.items():
            if key in _LATER:
                self._complain((*at, key), f"{key!r} is not available in this version", at_key=True)
            elif key not in _KEYS:
                self._complain((*at, key), f"unknown key {key!r}{choose(key, _KEYS)}", at_key=True)
            elif value is None:
                self.problems.extend(empty_values(self._document, (*at, key)))
        name = self._name(data, at)
        version = data.get("version", 1)
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            self._complain((*at, "version"), f"found {short(version)}, expected a whole number of 1 or more")
        about = data.get("about", "")
        if not isinstance(about, str):
            self._complain((*at, "about"), f"found {short(about)}, expected text")
        order, by_pool = self._order(data.get("order", "fifo"), (*at, "order"))
        chains = {slot: self._chain(slot, data.get(slot), (*at, slot)) for slot in CHAINS}
        singles = {slot: self._single(slot, data.get(slot), (*at, slot)) for slot in SINGLES}
        if self.problems or order is None:
            return None
        return Policy(
            name, order, version, about.strip(), by_pool, chains["admission"], chains["limits"], **singles, path=path,
            references=tuple(self._references),
        )  # fmt: skip

    def _name(self, data: Mapping[str, Any], at: Loc) -> str:
        if "name" not in data:
            self._complain((*at, "name"), "the key 'name' is missing")
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
                self._complain((*loc, key), f"unknown key {key!r}{choose(key, ('pools', 'default'))}", at_key=True)
        by_pool: dict[str, MechanismSpec] = {}
        pools = data["pools"]
        if not isinstance(pools, Mapping) or not pools:
            self._complain((*loc, "pools"), f"found {short(pools)}, expected a mapping of pools to orders")
            pools = {}
        for pool, entry in pools.items():
            spec = self._mechanism("order", entry, (*loc, "pools", pool))
            self._references.append(
                Reference("pool", pool, self._document.problem((*loc, "pools", pool), "", at_key=True))
            )
            if spec is not None:
                by_pool[pool] = spec
        return self._mechanism("order", data.get("default", "fifo"), (*loc, "default")), by_pool

    def _chain(self, slot: str, data: Any, loc: Loc) -> tuple[MechanismSpec, ...]:
        if data is None:
            return ()
        if not isinstance(data, list):
            self._complain(loc, f"found {short(data)}, expected a list of {slot} mechanisms")
            return ()
        specs = (self._mechanism(slot, entry, (*loc, number)) for number, entry in enumerate(data))
        return tuple(spec for spec in specs if spec is not None)

    def _single(self, slot: str, data: Any, loc: Loc) -> MechanismSpec | None:
        return None if data is None else self._mechanism(slot, data, loc)

    def _mechanism(self, slot: str, data: Any, loc: Loc) -> MechanismSpec | None:
        """``name``, ``{name: }`` or ``{name: {parameters}}``."""
        params: Any = {}
        if isinstance(data, str):
            name, inside = data, loc
        elif isinstance(data, Mapping) and len(data) == 1:
            name = next(iter(data))
            params, inside = data[name] or {}, (*loc, name)
            if not isinstance(params, Mapping):
                self._complain(inside, f"found {short(params)}, expected the parameters of {name!r} as a mapping")
                return None
        else:
            found = f"{len(data)} keys" if isinstance(data, Mapping) else short(data)
            self._complain(loc, f"found {found}, expected the name of a mechanism or {{name: {{parameters}}}}")
            return None
        spec = self._resolved(slot, name, params, inside)
        return None if spec is None else self._checked(spec, inside)

    def _checked(self, spec: MechanismSpec, loc: Loc) -> MechanismSpec | None:
        """`spec`, when its parameters fit."""
        before = len(self.problems)
        for key in spec.params:
            self.problems.extend(empty_values(self._document, (*loc, key)))
        try:
            model, known = parameter_model(spec.cls), parameters(spec.cls)
            for key in [key for key in spec.params if key not in known]:
                hint = choose(key, known) if known else " (it has none)"
                self._complain((*loc, key), f"{spec.name} has no parameter {key!r}{hint}", at_key=True)
            model.model_validate({key: value for key, value in spec.params.items() if key in known})
            if len(self.problems) == before:
                spec.build()
        except ValidationError as error:
            self.problems.extend(problems_of(self._document, error, loc, model))
        except UsageError as error:
            self._complain(self._parameter_at(loc, spec.name, str(error)), str(error))
        except Exception as error:  # noqa: BLE001 - a mechanism of the user's own may raise anything; it is reported as their problem
            self._complain(loc, f"{spec.name} raised {type(error).__name__}: {error}")
        if len(self.problems) > before:
            return None
        if spec.cls.__module__.startswith("simkit."):
            for kind, name, place in named_things(spec.cls, spec.params):
                at_key = self._document.at((*loc, *place)) != name
                self._references.append(
                    Reference(kind, name, self._document.problem((*loc, *place), "", at_key=at_key))
                )
        return spec

    def _parameter_at(self, loc: Loc, name: str, message: str) -> Loc:
        """The place that a mechanism's own complaint is about: ``hysteresis: modes: severe: ...`` begins with the way to it."""
        place, node = loc, self._document.at(loc)
        for step in message.removeprefix(f"{name}: ").split(": "):
            if not (isinstance(node, Mapping) and step in node):
                break
            place, node = (*place, step), node[step]
        return place

    def _resolved(self, slot: str, name: str, params: Mapping[str, Any], loc: Loc) -> MechanismSpec | None:
        """The mechanism that `name` means; `loc` is the name's own place."""
        file: Path | None = None
        try:
            if "@" in name:
                cls, digest, file = self._from_file(slot, name)
            else:
                cls, digest = self._registered(slot, name)
        except UsageError as error:
            self._complain(loc, str(error), at_key=loc[-1] == name)
            return None
        return MechanismSpec(slot, name, dict(params), cls, digest, file)

    def _registered(self, slot: str, name: str) -> tuple[type[Any], str]:
        cls = registered(slot).get((slot, name)) or class_of_entry_point(slot, name)
        if cls is not None:
            return cls, code_digest(cls)
        elsewhere = [other for other, known in registered() if known == name]
        if elsewhere:
            raise UsageError(f"{name!r} belongs under {elsewhere[0]!r}, not under {slot!r}")
        raise UsageError(
            f"there is no {slot} mechanism {name!r}{choose(name, [known for _, known in registered(slot)])}"
        )

    def _from_file(self, slot: str, name: str) -> tuple[type[Any], str, Path]:
        """``mine.py@Lottery``: only from below the document's own folder, and only when that is allowed."""
        file_name, _, class_name = name.rpartition("@")
        folder = (self._folder or Path()).resolve()
        path = folder / file_name
        if not path.resolve().is_relative_to(folder):
            raise UsageError(f"{file_name!r} lies outside the folder of the document")
        if not path.is_file():
            known = sorted(other.name for other in folder.glob("*.py"))
            raise UsageError(f"there is no file {file_name!r} beside the document{nearest(file_name, known)}")
        if not (self._allow_code or is_trusted(path)):
            raise UsageError(f"{name!r} is Python code: run with --allow-code to load it")
        cls, digest = class_in_file(path, class_name)
        if cls is None or getattr(cls, "slot", None) != slot:
            raise UsageError(f"{file_name} has no {slot} mechanism {class_name!r} (mark the class with @mechanism)")
        return cls, digest, path.resolve()
