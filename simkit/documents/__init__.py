"""Documents with positions: load, override, validate, and report every problem of a file in one pass.

A problem reads ``file:line:column: what was found, what was expected, did you mean 'x'? [dotted.path]``.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from simkit.documents.complaints import Misplaced, choose, complaints, has_step, nearest, short
from simkit.documents.yaml_tree import Loc, Mark, NotYaml, read_tree
from simkit.model import UsageError

__all__ = [
    "Document", "DocumentErrors", "Loc", "Misplaced", "Problem", "Strict", "apply_overrides", "canonical", "check", "choose", "empty_values",
    "first_at_each_place", "load", "nearest", "parsed", "problems_of", "short", "validate",
]  # fmt: skip

MOST_PROBLEMS = 20
"""So many problems are printed; the others are counted."""
_DEEPEST = 100


class Strict(BaseModel):
    """Base of all document models: unknown keys are refused, values are not coerced."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a document. `line` and `column` count from 1; 0 = not in a file."""

    path: str
    line: int
    column: int
    message: str
    dotted: str = ""

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return f"{place}: {self.message}" + (f" [{self.dotted}]" if self.dotted else "")


class DocumentErrors(UsageError):
    """Everything that is wrong with a document, in order of position; once each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        ordered = sorted(problems, key=lambda problem: (problem.path, problem.line, problem.column))
        self.problems: list[Problem] = list(dict.fromkeys(ordered))
        super().__init__(self.problems)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:MOST_PROBLEMS]]
        if len(self.problems) > MOST_PROBLEMS:
            lines.append(f"and {len(self.problems) - MOST_PROBLEMS} more")
        return "\n".join(lines)


@dataclass(slots=True)
class Document:
    """Plain data and, for every key and item of it, where it stands."""

    data: Any
    path: str
    positions: dict[Loc, Mark] = field(default_factory=dict)  # of values
    key_positions: dict[Loc, Mark] = field(default_factory=dict)
    sources: dict[Loc, str] = field(default_factory=dict)  # values that came from --set
    problems: list[Problem] = field(default_factory=list)  # what reading found; `validate` reports it with the rest

    @property
    def folder(self) -> Path | None:
        """Where relative paths in the document start."""
        return Path(self.path).resolve().parent if Path(self.path).is_file() else None

    def problem(self, loc: Sequence[str | int], message: str, *, at_key: bool = False) -> Problem:
        """A problem at `loc`, or at the nearest place above it that the document has."""
        trail = tuple(loc)
        dotted = ".".join(str(part) for part in trail)
        for length in range(len(trail), -1, -1):
            place = trail[:length]
            if place in self.sources:
                return Problem(f"--set {self.sources[place]}", 0, 0, message, dotted)
            key, value = self.key_positions.get(place), self.positions.get(place)
            if key is not None and (at_key or length < len(trail) or (value is not None and value[0] != key[0])):
                return Problem(self.path, *key, message, dotted)  # also for what begins on a line below its key
            if value is not None:
                return Problem(self.path, *value, message, dotted)
        return Problem(self.path, 0, 0, message, dotted)

    def at(self, loc: Sequence[str | int]) -> Any:
        """The data at `loc`; None when there is no such place."""
        node = self.data
        for step in loc:
            if not has_step(node, step):
                return None
            node = node[step]
        return node


# --- reading -----------------------------------------------------------------------------------------------


def load(source: str | Path | Mapping[str, Any], *, name: str | None = None) -> Document:
    """Read a YAML file (a Path), YAML text (a str) or plain data (a mapping).

    Raises DocumentErrors when there is nothing to validate: no file, no YAML, no mapping. What else reading finds (keys given twice, NaN, ...)
    is kept in `problems` and raised by `validate` together with the rest.
    """
    if isinstance(source, Mapping):
        document = Document(None, name or "<data>")
        document.data = _plain(source, (), document)
        return document
    label = name or (str(source) if isinstance(source, Path) else "<text>")
    text = _text_of(source, label) if isinstance(source, Path) else source
    try:
        tree = read_tree(text)
    except NotYaml as error:
        raise DocumentErrors([Problem(label, *error.mark, f"not valid YAML: {error.message}")]) from None
    document = Document(tree.data, label, tree.positions, tree.key_positions)
    document.problems = [
        Problem(label, *mark, message, ".".join(str(step) for step in loc)) for mark, loc, message in tree.problems
    ]
    if not isinstance(tree.data, dict):
        found = "nothing" if tree.data is None else "a list" if isinstance(tree.data, list) else repr(tree.data)
        raise DocumentErrors([Problem(label, 1, 1, f"found {found}, expected a mapping of keys at the top")])
    return document


def _text_of(path: Path, label: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DocumentErrors([Problem(label, 0, 0, f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        mark = (before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        raise DocumentErrors([Problem(label, *mark, "cannot be read: it is not UTF-8 text")]) from error


def _plain(value: Any, loc: Loc, document: Document) -> Any:
    """A copy of data handed over in Python, of dicts, lists and plain scalars only."""
    if len(loc) > _DEEPEST:
        raise DocumentErrors([document.problem(loc[:3], "nested too deeply")])
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                document.problems.append(document.problem((*loc, str(key)), f"found the key {key!r}, expected text"))
        return {str(key): _plain(item, (*loc, str(key)), document) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, (*loc, place), document) for place, item in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            document.problems.append(document.problem(loc, f"found {value}, expected a finite number"))
        return float(value)
    try:
        return operator.index(value)  # int, and numpy's whole numbers
    except TypeError:
        text = f"found {short(value)}, expected plain data (text, numbers, lists, mappings)"
        document.problems.append(document.problem(loc, text))
        return str(value)


# --- overrides ---------------------------------------------------------------------------------------------


def apply_overrides(document: Document, overrides: Sequence[str]) -> None:
    """Put ``a.b.0.c=value`` into the document; the value is read as YAML. A new key is allowed (validation judges it), a step
    through something that is not there is not. Items of lists are chosen by number, or by their `name`; a key with dots in it is found as it is
    written. Raises DocumentErrors."""
    problems = []
    for text in overrides:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            problems.append(Problem(f"--set {text}", 0, 0, "expected key=value, such as platform.pools.gpu.slots=4"))
            continue
        try:
            parsed = load(f"value: {value}" if "\n" not in value else f"value:\n{value}", name="")
            loc = _place(document.data, key.strip().split("."), parsed.data["value"])
        except DocumentErrors as error:
            problems.extend(Problem(f"--set {text}", 0, 0, problem.message) for problem in error.problems)
        except KeyError as error:
            problems.append(Problem(f"--set {text}", 0, 0, str(error.args[0])))
        else:
            problems.extend(Problem(f"--set {text}", 0, 0, problem.message) for problem in parsed.problems)
            for table in (document.positions, document.key_positions, document.sources):
                for place in [place for place in table if place[: len(loc)] == loc]:
                    del table[place]
            dotted = ".".join(str(step) for step in loc)
            document.problems = [one for one in document.problems if not f"{one.dotted}.".startswith(f"{dotted}.")]
            document.sources[loc] = text
    if problems:
        raise DocumentErrors(problems)


def _place(data: Any, parts: list[str], value: Any) -> Loc:
    """Set the value. Raises KeyError, with a sentence, for a step that is not there."""
    loc: list[str | int] = []
    node = data
    while True:
        here = ".".join(str(step) for step in loc) or "the document"
        if isinstance(node, list):
            step: str | int = _item(node, parts[0], here)
            parts = parts[1:]
        elif isinstance(node, dict):
            step, parts = _longest_key(node, parts)
            if parts and step not in node:
                raise KeyError(f"{here} has no key {step!r}{choose(str(step), node)}")
        else:
            raise KeyError(f"{here} is {short(node)}: there is no {parts[0]!r} in it")
        loc.append(step)
        if not parts:
            node[step] = value
            return tuple(loc)
        node = node[step]


def _item(items: list[Any], part: str, here: str) -> int:
    if part.isdecimal() and part.isascii() and int(part) < len(items):
        return int(part)
    names = [item.get("name") if isinstance(item, dict) else item for item in items]
    if part in names:
        return names.index(part)
    known = [name for name in names if isinstance(name, str)]
    raise KeyError(f"{here} has {len(items)} items, numbered from 0, and none called {part!r}{nearest(part, known)}")


def _longest_key(node: Mapping[str, Any], parts: list[str]) -> tuple[str, list[str]]:
    """The longest run of parts that is a key here (keys may have dots), else the first part."""
    for length in range(len(parts), 1, -1):
        if ".".join(parts[:length]) in node:
            return ".".join(parts[:length]), parts[length:]
    return parts[0], parts[1:]


# --- validation --------------------------------------------------------------------------------------------

M = TypeVar("M", bound=BaseModel)


def validate(document: Document, model: type[M], at: Loc = ()) -> M:
    """The document (or the part of it at `at`) as `model`. Raises DocumentErrors with every problem."""
    problems = first_at_each_place([*document.problems, *empty_values(document, at), *check(document, model, at)])
    if problems:
        raise DocumentErrors(problems)
    return model.model_validate(document.at(at))


def check(document: Document, model: type[BaseModel], at: Loc = ()) -> list[Problem]:
    """Every problem of the document (or of the part of it at `at`) as `model`, after those that reading found."""
    problems = list(document.problems)
    try:
        model.model_validate(document.at(at))
    except ValidationError as error:
        problems.extend(problems_of(document, error, at, model))
    return problems


def parsed(model: type[M], data: Any) -> M | None:
    """`data` as `model`, or None: for looking at the sound parts of a document whose problems are reported by `check`."""
    try:
        return model.model_validate(data)
    except ValidationError:
        return None


def empty_values(document: Document, at: Loc = ()) -> list[Problem]:
    """Keys with nothing behind them: nobody can tell whether zero, none or a slip was meant."""
    problems = []
    todo = [(at, document.at(at))]
    while todo:
        loc, value = todo.pop()
        if value is None:
            problems.append(document.problem(loc, "found nothing, expected a value (or no key)"))
        elif isinstance(value, dict):
            todo.extend(((*loc, key), item) for key, item in value.items())
        elif isinstance(value, list):
            todo.extend(((*loc, place), item) for place, item in enumerate(value))
    return problems


def first_at_each_place(problems: Iterable[Problem]) -> list[Problem]:
    """One problem per key: the one that was found first says what is wrong, the others only follow from it."""
    found: dict[Any, Problem] = {}
    for problem in problems:
        found.setdefault((problem.path, problem.line, problem.column, problem.dotted), problem)
    return list(found.values())


def canonical(value: Any) -> Any:
    """Models and frozen dataclasses as JSON data, for digests: in base units, and without what is left at its default, so that a setting that
    a later version adds leaves old digests as they are."""
    if isinstance(value, BaseModel):
        defaults = {
            name: info.get_default(call_default_factory=True) for name, info in type(value).model_fields.items()
        }
        return {name: canonical(found) for name in defaults if (found := getattr(value, name)) != defaults[name]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((item, getattr(value, item.name)) for item in dataclasses.fields(value))
        return {item.name: canonical(found) for item, found in pairs if found != item.default}
    if isinstance(value, Mapping):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(canonical(item) for item in value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def problems_of(document: Document, error: ValidationError, at: Loc = (), model: Any = None) -> list[Problem]:
    """Pydantic's errors as problems with positions and sentences. See `simkit.documents.complaints`."""
    found = complaints(document.data, error, at, model)
    return [document.problem(item.loc, item.message, at_key=item.at_key) for item in found]
