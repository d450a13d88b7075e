"""YAML documents with positions: load, override, validate, and report every problem of a file in one pass.

A problem reads ``file:line:column: what was found, what was expected [dotted.path], did you mean 'x'?``. YAML 1.2 rules hold (``no`` is
text, ``010`` is ten); keys given twice, anchors that recurse, and NaN or infinity are refused. YAML is data, never code.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from simkit.model import UsageError

_MOST_PROBLEMS = 20
Loc = tuple[str | int, ...]


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
    """Everything that is wrong with a document, in order of position."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.path, problem.line, problem.column))
        super().__init__(str(self))

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:_MOST_PROBLEMS]]
        if len(self.problems) > _MOST_PROBLEMS:
            lines.append(f"and {len(self.problems) - _MOST_PROBLEMS} more")
        return "\n".join(lines)


@dataclass(slots=True)
class Document:
    """Plain data and, for every key and item of it, where it stands."""

    data: Any
    path: str
    positions: dict[Loc, tuple[int, int]] = field(default_factory=dict)  # of values
    key_positions: dict[Loc, tuple[int, int]] = field(default_factory=dict)
    sources: dict[Loc, str] = field(default_factory=dict)  # values that came from --set

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
            table = self.key_positions if at_key and length == len(trail) else self.positions
            if place in table:
                return Problem(self.path, *table[place], message, dotted)
        return Problem(self.path, 1, 1, message, dotted)


def nearest(name: str, known: Iterable[str]) -> str:
    """``", did you mean 'x'?"`` or nothing."""
    near = difflib.get_close_matches(str(name), [str(item) for item in known], n=1, cutoff=0.6)
    return f", did you mean {near[0]!r}?" if near else ""


def load(source: str | Path | Mapping[str, Any], *, name: str | None = None) -> Document:
    """Read a YAML file (a Path), YAML text (a str) or plain data (a mapping). Raises DocumentErrors."""
    if isinstance(source, Mapping):
        return Document(_plain_copy(source), name or "<data>")
    if isinstance(source, Path):
        label = name or str(source)
        try:
            text = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DocumentErrors([Problem(label, 0, 0, f"cannot be read: {error}")]) from error
    else:
        text, label = source, name or "<text>"
    yaml = YAML(typ="rt", pure=True)
    yaml.allow_duplicate_keys = False
    try:
        tree = yaml.load(text)
    except DuplicateKeyError as error:
        mark = error.problem_mark
        raise DocumentErrors([Problem(label, mark.line + 1, mark.column + 1, _duplicate(error))]) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise DocumentErrors([Problem(label, *place, f"not valid YAML: {error.problem or error.context}")]) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise DocumentErrors([Problem(label, 1, 1, f"not valid YAML: {error}")]) from None
    document = Document(None, label)
    problems: list[Problem] = []
    document.data = _walk(tree, (), document, problems, ())
    if not isinstance(document.data, dict):
        found = "nothing" if document.data is None else type(document.data).__name__
        problems.append(Problem(label, 1, 1, f"expected a mapping of keys at the top, found {found}"))
    if problems:
        raise DocumentErrors(problems)
    return document


def _duplicate(error: DuplicateKeyError) -> str:
    text = str(error.problem or "")
    key = text.split('"')[1] if '"' in text else "?"
    return f"the key {key!r} is given twice"


def _plain_copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain_copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_copy(item) for item in value]
    return value


def _walk(node: Any, loc: Loc, document: Document, problems: list[Problem], above: tuple[int, ...]) -> Any:
    """Plain data of a ruamel tree; fills the position tables."""
    if id(node) in above:
        problems.append(document.problem(loc, "an anchor that contains itself"))
        return None
    if isinstance(node, CommentedMap):
        document.positions.setdefault(loc, (node.lc.line + 1, node.lc.col + 1))
        plain: dict[Any, Any] = {}
        for key in node:
            place = (*loc, key)
            row, column = node.lc.key(key) if key in (node.lc.data or {}) else (node.lc.line, node.lc.col)
            document.key_positions[place] = (row + 1, column + 1)
            if key in (node.lc.data or {}):
                row, column = node.lc.value(key)
            document.positions[place] = (row + 1, column + 1)
            if not isinstance(key, str):
                problems.append(
                    document.problem(place, f"found the key {key!r}, expected text (write it in quotes)", at_key=True)
                )
            plain[key] = _walk(node[key], place, document, problems, (*above, id(node)))
        return plain
    if isinstance(node, CommentedSeq):
        document.positions.setdefault(loc, (node.lc.line + 1, node.lc.col + 1))
        items = []
        for number, item in enumerate(node):
            row, column = node.lc.item(number)
            document.positions[(*loc, number)] = (row + 1, column + 1)
            items.append(_walk(item, (*loc, number), document, problems, (*above, id(node))))
        return items
    return _scalar(node, loc, document, problems)


def _scalar(value: Any, loc: Loc, document: Document, problems: list[Problem]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            problems.append(document.problem(loc, f"found {value}, expected a finite number"))
        return float(value)
    if isinstance(value, str):
        return str(value)
    problems.append(
        document.problem(
            loc, f"found {value!r} ({type(value).__name__}), expected text or a number (write it in quotes)"
        )
    )
    return str(value)


def apply_overrides(document: Document, overrides: Sequence[str]) -> None:
    """Put ``a.b.0.c=value`` into the document; the value is read as YAML. A new key is allowed (validation judges it), a step
    through something that is not there is not. Raises DocumentErrors."""
    problems = []
    for text in overrides:
        key, sign, value = text.partition("=")
        if not sign or not key:
            problems.append(Problem(f"--set {text}", 0, 0, "expected key=value, such as platform.pools.gpu.slots=4"))
            continue
        try:
            parsed = load(f"value: {value}", name=f"--set {text}").data["value"]
            loc = _place(document.data, key.split("."), parsed)
        except DocumentErrors as error:
            problems.extend(error.problems)
        except KeyError as error:
            problems.append(Problem(f"--set {text}", 0, 0, str(error.args[0])))
        else:
            document.sources[loc] = text
    if problems:
        raise DocumentErrors(problems)


def _place(data: Any, parts: Sequence[str], value: Any) -> Loc:
    loc: list[str | int] = []
    node = data
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        here = ".".join(str(step) for step in loc) or "the document"
        if isinstance(node, list):
            if not part.isdigit() or int(part) >= len(node):
                raise KeyError(f"{here} has {len(node)} items, numbered from 0: found {part!r}")
            step: str | int = int(part)
        elif isinstance(node, dict):
            step = part
            if not last and part not in node:
                raise KeyError(f"{here} has no key {part!r}{nearest(part, node)}")
        else:
            raise KeyError(f"{here} is {node!r}: there is no {part!r} in it")
        loc.append(step)
        if last:
            node[step] = value
        else:
            node = node[step]
    return tuple(loc)


M = TypeVar("M", bound=BaseModel)


def validate(document: Document, model: type[M], at: Loc = ()) -> M:
    """The document (or the part of it at `at`) as `model`. Raises DocumentErrors with every problem."""
    data = document.data
    for step in at:
        data = data[step]
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise DocumentErrors(problems_of(document, error, at, model)) from None


def problems_of(document: Document, error: ValidationError, at: Loc = (), model: Any = None) -> list[Problem]:
    """Pydantic's errors as problems with positions. Segments of `loc` that the document does not have (union tags) are skipped."""
    problems = []
    seen: set[tuple[Loc, str]] = set()
    for item in error.errors(include_url=False):
        loc, missing = _real_loc(
            document.data, at, item["loc"], keep_last=item["type"] in ("missing", "extra_forbidden")
        )
        message = _message(item, loc, missing, model)
        if (loc, message) not in seen:
            seen.add((loc, message))
            problems.append(document.problem(loc, message, at_key=item["type"] == "extra_forbidden"))
    return problems


def _real_loc(data: Any, at: Loc, loc: Sequence[str | int], *, keep_last: bool) -> tuple[Loc, str]:
    """`loc` without segments that are no keys of the data, and the name of a missing key."""
    node = data
    for step in at:
        node = node[step]
    real: list[str | int] = list(at)
    for position, step in enumerate(loc):
        there = (isinstance(node, dict) and step in node) or (
            isinstance(node, list) and isinstance(step, int) and step < len(node)
        )
        if there:
            node = node[step]
            real.append(step)
        elif keep_last and position == len(loc) - 1:
            return tuple(real), str(step)
    return tuple(real), ""


def _message(item: Mapping[str, Any], loc: Loc, missing: str, model: Any) -> str:
    kind, context = item["type"], item.get("ctx") or {}
    if kind == "missing":
        return f"the key {missing!r} is missing"
    if kind == "extra_forbidden":
        known = known_keys(model, item["loc"][:-1]) if model is not None else []
        hint = nearest(str(loc[-1]), known)
        expected = f" (expected one of {', '.join(known)})" if known and not hint else ""
        return f"unknown key {str(loc[-1])!r}{hint}{expected}"
    found = item.get("input")
    if kind == "value_error":
        return str(context.get("error", item["msg"]))
    if kind == "literal_error":
        options = str(context["expected"]).replace("'", "")
        names = [part.strip() for chunk in options.split(" or ") for part in chunk.split(",")]
        return f"found {_short(found)}, expected one of {', '.join(names)}{nearest(str(found), names)}"
    if kind in (
        "string_type",
        "int_type",
        "float_type",
        "bool_type",
        "list_type",
        "dict_type",
        "model_type",
        "mapping_type",
        "model_attributes_type",
    ):
        expected = {
            "string_type": "text", "int_type": "a whole number", "float_type": "a number", "bool_type": "true or false",
            "list_type": "a list", "dict_type": "a mapping", "model_type": "a mapping", "mapping_type": "a mapping",
            "model_attributes_type": "a mapping",
        }[kind]  # fmt: skip
        return f"found {_short(found)}, expected {expected}"
    return f"{item['msg']} (found {_short(found)})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def known_keys(model: Any, loc: Sequence[str | int]) -> list[str]:
    """The keys that the (nested) model at `loc` accepts, for a hint; empty when that is not clear."""
    from typing import get_args

    candidates: list[Any] = [model]
    for step in loc:
        following: list[Any] = []
        for candidate in candidates:
            fields = getattr(candidate, "model_fields", None)
            if fields is None:
                continue
            for name, info in fields.items():
                if step in (name, info.alias):
                    following.extend(_models_in(info.annotation))
        if following:
            candidates = following
        elif not isinstance(step, int):
            candidates = [inner for candidate in candidates for inner in (candidate, *get_args(candidate))]
    names: dict[str, None] = {}
    for candidate in candidates:
        for name, info in getattr(candidate, "model_fields", {}).items():
            names[info.alias or name] = None
    return list(names)


def _models_in(annotation: Any) -> list[Any]:
    from typing import get_args

    if hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]
