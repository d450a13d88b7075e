"""Pydantic's errors as sentences about a document: where it is wrong, what was found, what was expected, and the nearest valid name."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from simkit.documents.yaml_tree import Loc

_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_KINDS = {
    "string_type": "text", "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number",
    "bool_type": "true or false", "list_type": "a list", "tuple_type": "a list", "dict_type": "a mapping", "mapping_type": "a mapping",
    "model_type": "a mapping", "model_attributes_type": "a mapping", "dataclass_type": "a mapping",
    "finite_number": "a finite number",
}  # fmt: skip
_FOUND = re.compile(r"found (?P<found>.*?)(?P<unit> without a unit)?, expected (?P<expected>.*)", re.DOTALL)


class Misplaced(ValueError):
    """For model validators: what is wrong stands at `loc`, counted from the model's own place.

    ``raise Misplaced(("tasks", "verify", "after", 0), "there is no task 'serch'")``
    """

    def __init__(self, loc: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.loc = tuple(loc)


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that is wrong. `at_key`: with the key itself, not with what stands behind it."""

    loc: Loc
    message: str
    at_key: bool = False


def nearest(name: str, known: Iterable[str]) -> str:
    """``", did you mean 'x'?"`` or nothing."""
    near = difflib.get_close_matches(str(name), [str(item) for item in known], n=1, cutoff=0.6)
    return f", did you mean {near[0]!r}?" if near else ""


def choose(name: str, known: Iterable[str]) -> str:
    """`nearest`, or, when nothing is near, the names that there are."""
    names = list(known)
    if len(names) > 12:
        names = [*names[:12], "..."]
    return nearest(name, known) or f" (there are: {', '.join(names)})" if names else " (there are none)"


def short(value: Any) -> str:
    """`value` for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def has_step(node: Any, step: str | int) -> bool:
    """Whether plain data has this key or item."""
    if isinstance(node, dict):
        return step in node
    return isinstance(node, list) and isinstance(step, int) and 0 <= step < len(node)


def complaints(data: Any, error: ValidationError, at: Loc = (), model: Any = None) -> list[Complaint]:
    """Every error of a validation of the part of `data` at `at` against `model`, alternatives of a union put together."""
    found = [_complaint(data, at, item, model) for item in error.errors(include_url=False)]
    return list(_together(data, found))


def _complaint(data: Any, at: Loc, item: Mapping[str, Any], model: Any) -> Complaint:
    kind, steps = item["type"], list(item["loc"])
    if steps and steps[-1] == "[key]":
        loc = _real_loc(data, at, steps[:-1])
        return Complaint(loc, _sentence(item), at_key=True)
    if kind in _MISSING:
        loc = _real_loc(data, at, steps[:-1])
        return Complaint((*loc, steps[-1]), f"the key {steps[-1]!r} is missing", at_key=True)
    loc = _real_loc(data, at, steps)
    if kind in _UNKNOWN:
        known = known_keys(model, steps[:-1])
        hint = choose(str(steps[-1]), known) if known else ""
        return Complaint(loc, f"unknown key {str(steps[-1])!r}{hint}", at_key=True)
    cause = (item.get("ctx") or {}).get("error")
    if isinstance(cause, Misplaced):
        return Complaint((*loc, *cause.loc), str(cause))
    return Complaint(loc, _sentence(item))


def _real_loc(data: Any, at: Loc, steps: Sequence[str | int]) -> Loc:
    """`at` and the steps that the data has; pydantic's tags of union members are left out."""
    node, real = data, list(at)
    for step in at:
        node = node[step]
    for step in steps:
        if has_step(node, step):
            node = node[step]
            real.append(step)
    return tuple(real)


def _sentence(item: Mapping[str, Any]) -> str:
    kind, context, found = item["type"], item.get("ctx") or {}, item.get("input")
    if kind == "value_error":
        return str(context.get("error", item["msg"]))
    if kind == "literal_error":
        names = re.findall(r"'([^']*)'", str(context["expected"]))
        return f"found {short(found)}, expected {_or(names)}{nearest(str(found), names)}"
    if kind in _KINDS:
        return f"found {short(found)}, expected {_KINDS[kind]}"
    return f"found {short(found)}: {item['msg'][:1].lower()}{item['msg'][1:]}"


def _or(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _together(data: Any, found: Sequence[Complaint]) -> Iterator[Complaint]:
    """Each member of a union complains: keep those of the member that was meant, and join the others to one sentence."""
    by_loc: dict[Loc, list[Complaint]] = {}
    for complaint in found:
        by_loc.setdefault(complaint.loc, []).append(complaint)
    for loc, group in by_loc.items():
        value = _at(data, loc)
        inside = any(len(other) > len(loc) and other[: len(loc)] == loc for other in by_loc)
        if isinstance(value, dict | list) and inside:
            # a member that takes such a thing says more exactly what is wrong in it
            group = [complaint for complaint in group if not complaint.message.startswith(f"found {short(value)}")]
        yield from _joined(group)


def _at(data: Any, loc: Loc) -> Any:
    for step in loc:
        if not has_step(data, step):
            return None
        data = data[step]
    return data


def _joined(group: Sequence[Complaint]) -> list[Complaint]:
    """``found 5, expected text`` and ``found 5, expected a list`` become one."""
    if len(group) < 2:
        return list(group)
    matches = [_FOUND.fullmatch(complaint.message) for complaint in group]
    if any(match is None for match in matches):
        return list(dict.fromkeys(group))
    units = next((match["unit"] for match in matches if match and match["unit"]), "")
    expected = dict.fromkeys(match["expected"] for match in matches if match)
    hints = [part for text in expected for part in re.findall(r", did you mean '[^']*'\?", text)]
    plain = [re.sub(r", did you mean '[^']*'\?", "", text) for text in expected]
    first = matches[0]
    assert first is not None
    return [
        Complaint(
            group[0].loc,
            f"found {first['found']}{units}, expected {', or '.join(plain)}{hints[0] if hints else ''}",
            group[0].at_key,
        )
    ]


# --- the keys that there are -------------------------------------------------------------------------------


def known_keys(model: Any, steps: Sequence[str | int]) -> list[str]:
    """The keys that the model accepts at the place to which pydantic's `steps` lead."""
    candidates = list(_members(model))
    for step in steps:
        inner = [member for candidate in candidates for member in _inside(candidate, step)]
        if inner:
            candidates = inner
        elif isinstance(step, str):  # the tag of a union's member
            candidates = [one for one in candidates if getattr(one, "__name__", None) == step] or candidates
    return list(dict.fromkeys(key for candidate in candidates for key in _fields(candidate)))


def _members(annotation: Any) -> Iterator[Any]:
    """The members of a union (also inside Annotated), or the annotation itself."""
    if hasattr(annotation, "__metadata__"):
        yield from _members(annotation.__origin__)
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def _inside(annotation: Any, step: str | int) -> Iterator[Any]:
    """The types that may stand under `step` of a value of type `annotation`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    fields = _fields(annotation)
    if fields:
        if step in fields:
            yield from _members(fields[str(step)])
    elif isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2:
        if isinstance(step, str):
            yield from _members(arguments[1])
    elif isinstance(origin, type) and arguments and isinstance(step, int):
        yield from _members(arguments[0])


def _fields(annotation: Any) -> dict[str, Any]:
    """Document key -> type, of a model or a dataclass; empty for other types."""
    if hasattr(annotation, "model_fields"):
        return {info.alias or name: info.annotation for name, info in annotation.model_fields.items()}
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        hints = get_type_hints(annotation, include_extras=True)
        return {item.name.rstrip("_"): hints[item.name] for item in dataclasses.fields(annotation) if item.init}
    return {}
