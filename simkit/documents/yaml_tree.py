"""YAML text to plain data with the position of every key and value. Built on ruamel's node tree: YAML is data here, never code.

The core schema of YAML 1.2 holds: ``no`` and ``on`` are text, ``010`` is ten, ``2026-01-01`` is text. What plain data cannot say is a
problem: keys given twice, keys that are no text, tags, NaN and infinity, anchors that contain themselves or multiply beyond measure. All
such problems are collected; only text that is no YAML at all stops the reading.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

Loc = tuple[str | int, ...]
Mark = tuple[int, int]
"""Line and column, both from 1."""

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = frozenset({f"{_TAG}str", f"{_TAG}timestamp", f"{_TAG}value"})
_MOST_COPIES = 100_000  # values that stand in a document by way of aliases
_VERSION = re.compile(r"^%YAML[ \t]+(?!1\.2\b)(\S+)", re.MULTILINE)


class NotYaml(Exception):
    """The text is no YAML. `mark` is where that showed."""

    def __init__(self, mark: Mark, message: str) -> None:
        super().__init__(message)
        self.mark, self.message = mark, message


@dataclass(slots=True)
class Tree:
    """Plain data, where each value and each key stands, and what cannot stand in a document."""

    data: Any = None
    positions: dict[Loc, Mark] = field(default_factory=dict)
    key_positions: dict[Loc, Mark] = field(default_factory=dict)
    problems: list[tuple[Mark, Loc, str]] = field(default_factory=list)


def read_tree(text: str) -> Tree:
    """The tree of one YAML document. Raises NotYaml."""
    version = _VERSION.match(text)
    if version:
        raise NotYaml(
            (1, 1),
            f"found %YAML {version[1]}: documents are read as YAML 1.2, where only true and false are truth values",
        )
    try:
        root = YAML(typ="rt", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise NotYaml((mark.line + 1, mark.column + 1) if mark else (1, 1), said) from None
    except ReaderError as error:
        before = text[: error.position]
        mark_ = (before.count("\n") + 1, error.position - before.rfind("\n"))
        raise NotYaml(mark_, f"the character {_char(error.character)} may not stand in a document") from None
    except (YAMLError, ValueError) as error:
        raise NotYaml((1, 1), str(error)) from None
    except RecursionError:
        raise NotYaml((1, 1), "nested too deeply") from None
    reader = _Reader()
    if root is not None:
        reader.tree.data = reader.value(root, (), ())
    return reader.tree


class _Reader:
    def __init__(self) -> None:
        self.tree = Tree()
        self._seen: set[int] = set()
        self._copies = 0

    def _complain(self, node: Node, loc: Loc, message: str) -> None:
        self.tree.problems.append((_mark(node), loc, message))

    def value(self, node: Node, loc: Loc, above: tuple[int, ...]) -> Any:
        """Plain data of a node; fills the position tables. `above`: ids of the nodes that contain it."""
        self.tree.positions.setdefault(loc, _mark(node))
        if isinstance(node, ScalarNode):
            return self._scalar(node, loc)
        if id(node) in above:
            self._complain(node, loc, "an anchor that contains itself")
            return None
        if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            self._complain(
                node, loc, f"found the tag {_short(node.tag)}, expected plain data: tags have no meaning here"
            )
        if not self._affordable(node, loc):
            return None
        if not isinstance(node, MappingNode):
            return [self.value(item, (*loc, place), (*above, id(node))) for place, item in enumerate(node.value)]
        return self._mapping(node, loc, (*above, id(node)))

    def _affordable(self, node: Node, loc: Loc) -> bool:
        """Count what aliases copy: ten anchors of ten aliases each would make ten thousand million values."""
        if id(node) in self._seen:
            self._copies += len(node.value)
            if self._copies > _MOST_COPIES:
                if self._copies - len(node.value) <= _MOST_COPIES:
                    self._complain(node, loc, f"aliases make more than {_MOST_COPIES} values of this document")
                return False
        self._seen.add(id(node))
        return True

    def _mapping(self, node: MappingNode, loc: Loc, above: tuple[int, ...]) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                merged.append(value_node)
                continue
            key = self._key(key_node, loc)
            if key is None:
                continue
            place = (*loc, key)
            if key in plain:
                line, column = self.tree.key_positions[place]
                self._complain(key_node, place, f"the key {key!r} is given twice (first at {line}:{column})")
                continue
            self.tree.key_positions[place] = _mark(key_node)
            # a value that is left out stands where its key does, and not at whatever follows
            empty = isinstance(value_node, ScalarNode) and not value_node.value and not value_node.style
            self.tree.positions[place] = _mark(key_node if empty else value_node)
            plain[key] = self.value(value_node, place, above)
        for source in merged:
            self._merge(source, plain, loc, above)
        return plain

    def _merge(self, source: Node, plain: dict[str, Any], loc: Loc, above: tuple[int, ...]) -> None:
        """``<<: *base``: keys that are not there yet; of several bases the first counts. They stand where the base has them."""
        for base in source.value if isinstance(source, SequenceNode) else [source]:
            if not isinstance(base, MappingNode):
                self._complain(base, loc, "found something else behind '<<', expected a mapping or a list of mappings")
                continue
            inner = _Reader()
            inner._seen, inner._copies = self._seen, self._copies
            added = inner.value(base, loc, above) or {}
            self._copies = inner._copies
            new = {key: value for key, value in added.items() if key not in plain}
            plain.update(new)
            self.tree.problems.extend(inner.tree.problems)
            for mine, theirs in (
                (self.tree.positions, inner.tree.positions),
                (self.tree.key_positions, inner.tree.key_positions),
            ):
                mine.update({at: mark for at, mark in theirs.items() if len(at) > len(loc) and at[len(loc)] in new})

    def _key(self, node: Node, loc: Loc) -> str | None:
        if not isinstance(node, ScalarNode):
            self._complain(node, loc, "found a list or a mapping as a key, expected text")
            return None
        if node.tag not in _TEXT_TAGS:
            self._complain(node, (*loc, node.value), f"found the key {node.value}, expected text (write it in quotes)")
        return str(node.value)

    def _scalar(self, node: ScalarNode, loc: Loc) -> Any:
        text, tag = str(node.value), node.tag
        if tag in _TEXT_TAGS:
            return text
        if tag == f"{_TAG}null":
            return None
        if tag == f"{_TAG}bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if tag in (f"{_TAG}int", f"{_TAG}float"):
            try:
                number = _number(text, whole=tag == f"{_TAG}int")
            except ValueError:
                self._complain(node, loc, f"found {_short(text)}, expected a number")
                return text
            if isinstance(number, float) and not math.isfinite(number):
                self._complain(node, loc, f"found {number}, expected a finite number")
            return number
        self._complain(node, loc, f"found the tag {_short(tag)}, expected plain data: tags have no meaning here")
        return text


def _number(text: str, *, whole: bool) -> int | float:
    """A YAML 1.2 number. Raises ValueError."""
    digits = text.replace("_", "").lower()
    if not whole:
        return float(digits.replace(".inf", "inf").replace(".nan", "nan"))
    sign, digits = (-1, digits[1:]) if digits.startswith("-") else (1, digits.removeprefix("+"))
    for prefix, base in (("0x", 16), ("0o", 8), ("0b", 2)):
        if digits.startswith(prefix):
            return sign * int(digits[2:], base)
    return sign * int(digits)


def _char(character: object) -> str:
    return ascii(chr(character) if isinstance(character, int) else character)


def _mark(node: Node) -> Mark:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _short(text: object) -> str:
    shown = repr(str(text).removeprefix(_TAG))
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
