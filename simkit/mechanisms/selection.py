"""Which rows, runs and places a mechanism is about: the parameters `for`, `by`, `classes`, `pools` and limits by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simkit.mechanisms.base import Context, Mechanism, ParameterError
from simkit.model import CHEAPEST, Rows, UsageError

Who = Mapping[str, bool | str | list[str]] | list[Mapping[str, bool | str | list[str]]]
"""Chosen rows: ``{class: incident}``, ``{tenant: [a, b]}``, ``{verifies: true}``; several keys of one mapping must all hold, a list of
mappings means any of them: ``[{class: interactive}, {verifies: true}]``."""

By = Literal["tenant", "class", "all"] | list[Literal["tenant", "class"]]
"""What is counted apart: each tenant, each class, each pair of both, or everything together."""

_FLAGS = ("verifies", "optional")
_NAMES = {"class": "cls", "tenant": "tenant"}


def check_who(who: Who) -> None:
    """Raise ParameterError unless `who` chooses something in a way that is understood."""
    for choice in _choices(who):
        for key, value in choice.items():
            if key in _FLAGS:
                if not isinstance(value, bool):
                    raise ParameterError(f"for: {key}: expected true or false, found {value!r}")
            elif key not in _NAMES:
                hint = _nearest(key, [*_NAMES, *_FLAGS])
                raise ParameterError(f"for: unknown key {key!r}{hint} (class, tenant, verifies, optional)")
            elif isinstance(value, bool) or not _as_names(value):
                raise ParameterError(f"for: {key}: expected a name or a list of names, found {value!r}")


def _choices(who: Who) -> list[Mapping[str, bool | str | list[str]]]:
    choices = [who] if isinstance(who, Mapping) else list(who)
    if not choices or not all(choices):
        raise ParameterError("for: nothing is chosen; name a class, a tenant, verifies or optional")
    return choices


def _as_names(value: bool | str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else [] if isinstance(value, bool) else list(value)


def who_attributes(who: Who) -> frozenset[str]:
    """The attributes (as in `Limit.group_by`) by which `who` tells rows apart."""
    return frozenset(key for choice in _choices(who) for key in choice)


def chosen_rows(context: Context, mechanism: Mechanism, who: Who) -> NDArray[np.bool_]:
    """One bool per original row. Names that no row has are warned of."""
    rows = context.rows
    chosen = np.zeros(rows.size, dtype=bool)
    for choice in _choices(who):
        matching = np.ones(rows.size, dtype=bool)
        for key, value in choice.items():
            if key in _FLAGS:
                matching &= rows.source(key).astype(bool) == value
            else:
                codes = codes_of(context, mechanism, key, _as_names(value))
                matching &= np.isin(rows.source(_NAMES[key]), list(codes))
        chosen |= matching
    return chosen


def codes_of(context: Context, mechanism: Mechanism, attribute: str, names: Iterable[str]) -> frozenset[int]:
    """Codes of the names in one of the tables of `Context.names`; unknown ones are warned of (a general policy may name
    classes that this scenario does not have)."""
    table = {name: code for code, name in enumerate(context.names[attribute])}
    codes = set()
    for name in names:
        if name in table:
            codes.add(table[name])
        else:
            mechanism.warn(context, f"there is no {attribute} {name!r} here")
    return frozenset(codes)


def places_of(context: Context, names: Sequence[str]) -> list[int]:
    """Numbers of the pools or APIs named. Raises UsageError with the nearest name for one the platform does not have."""
    table = {name: number for number, name in enumerate(context.names["pool"])}
    for name in names:
        if name not in table:
            raise UsageError(
                f"the policy names pool {name!r}, which the platform does not have{_nearest(name, list(table))}"
            )
    return [table[name] for name in dict.fromkeys(names)]


def known_tier(context: Context, mechanism: Mechanism, name: str) -> bool:
    """Whether the platform has the tier. One without tiers is warned of (nothing to move there); raises UsageError when it has
    others only."""
    known = context.names["tier"]
    if name in known or (name == CHEAPEST and known):
        return True
    if known:
        raise UsageError(
            f"the policy names tier {name!r}, which the platform does not have{_nearest(name, list(known))}"
        )
    mechanism.warn(context, f"there are no tiers here: {name!r} has no effect")
    return False


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def per_code(
    context: Context, mechanism: Mechanism, attribute: str, bound: float | Mapping[str, float]
) -> list[float | None]:
    """One bound per code of `attribute`: the same for all, or by name with an optional ``default``; None = no bound."""
    names = context.names[attribute] if attribute != "all" else ("all",)
    if not isinstance(bound, Mapping):
        return [bound] * len(names)
    for name in bound:
        if name != "default" and name not in names:
            mechanism.warn(context, f"there is no {attribute} {name!r} here")
    return [bound.get(name, bound.get("default")) for name in names]


class Key:
    """The code by which a limit counts a row apart: ``key.column[row]`` in ``range(key.size)``."""

    def __init__(self, context: Context, by: By) -> None:
        self._names = context.names
        self.attributes = key_attributes(by)
        rows = context.rows
        if self.attributes == ("tenant", "class"):
            classes = max(len(context.names["class"]), 1)
            self.size = len(context.names["tenant"]) * classes
            self.column = rows.derive(rows.source("tenant").astype(np.int64) * classes + rows.source("cls"))
        elif self.attributes:
            self.size = len(context.names[self.attributes[0]])
            self.column = getattr(rows, _NAMES[self.attributes[0]])
        else:
            self.size = 1
            self.column = rows.derive(np.zeros(rows.size, dtype=np.int64))

    def name(self, code: int) -> str:
        """``"tenant=a"``, ``"tenant=a,class=batch"`` or ``"all"``: for reasons."""
        if not self.attributes:
            return "all"
        if len(self.attributes) == 1:
            return f"{self.attributes[0]}={self._names[self.attributes[0]][code]}"
        tenant, class_ = divmod(code, max(len(self._names["class"]), 1))
        return f"tenant={self._names['tenant'][tenant]},class={self._names['class'][class_]}"


def key_attributes(by: By) -> tuple[str, ...]:
    """``by`` as attributes, tenant first; empty for "all". Raises ParameterError for an empty list."""
    if by == "all":
        return ()
    named = [by] if isinstance(by, str) else by
    if not named:
        raise ParameterError("by: expected tenant, class, all, or a list of tenant and class")
    return tuple(attribute for attribute in ("tenant", "class") if attribute in named)


def run_codes(submissions: Rows, attribute: str) -> list[int]:
    """The column of a submission's tenant or class codes."""
    column: list[int] = getattr(submissions, _NAMES[attribute])
    return column


def run_places(context: Context) -> list[tuple[int, ...]]:
    """Per submission, the places that its tasks queue for, ascending (a column that grows with the submissions). O(rows), vectorised."""
    pool = context.rows.source("pool")
    bits = np.array([1 << place for place in range(len(context.names["pool"]))], dtype=object)
    if len(bits) <= 62:
        bits = bits.astype(np.int64)
    if not context.submissions.size:
        return []
    masks = np.bitwise_or.reduceat(bits[pool], context.submissions.source("first_row"))
    paths = {
        mask: tuple(place for place in range(len(bits)) if mask >> place & 1) for mask in dict.fromkeys(masks.tolist())
    }
    column: list[tuple[int, ...]] = context.submissions.derive([paths[mask] for mask in masks.tolist()])
    return column
