"""What was going on in a pool while a row waited there: free slots beside it, and rows of lower priority that went first.

Everything is counted only while no limit held the row back. A quantity that grows along time (time with free slots, starts of lower
priority) is a curve G(t); between two moments it grew by G(b) - G(a), and the part of that during holds is found by laying the holds out along
G instead of along time, so the bookkeeping of `simkit.metrics.waits.held` serves both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simkit.diagnose.paths import Visits, stays_of
from simkit.log import HoldTable, RunLog, columns_of
from simkit.metrics import Stays, Window
from simkit.metrics.waits import held
from simkit.metrics.window import use_of_pool
from simkit.model import NEVER_NS

Ints = NDArray[np.int64]
Curve = Callable[[Ints], Ints]


@dataclass(frozen=True)
class Beside:
    """Per visit: `fits_ns`, how long all the slots it needed were free; `partly_ns`, how long its own pool had free slots but not all that it
    needed were; `passed`, how many rows started in its pool, and `overtaken`, how many of them had a lower priority and took at least as many
    slots. All while it waited and no limit held it (for the first two: no limit other than the want of slots)."""

    fits_ns: Ints
    partly_ns: Ints
    passed: Ints
    overtaken: Ints


def beside(log: RunLog, window: Window, visits: Visits) -> Beside:
    """Look at every visit that waited."""
    size = len(visits.row)
    found = Beside(*(np.zeros(size, dtype=np.int64) for _ in range(4)))
    waited = np.flatnonzero((visits.left > visits.ready) & ~visits.shared)
    if not len(waited):
        return found
    needs = _needs(log, visits.row[waited])
    kinds, kind = np.unique(needs, axis=0, return_inverse=True)
    free = _FreeSlots(log, window)
    limited = _without_slot_holds(log)
    for number, need in enumerate(kinds.tolist()):
        chosen = waited[kind.reshape(-1) == number]
        stays = stays_of(log, visits, chosen)
        fits, partly = free.curves(need[0], need[1], need[2])
        found.fits_ns[chosen] = _unheld(limited, stays, fits)
        found.partly_ns[chosen] = _unheld(limited, stays, partly)
    _count_starts(log, window, visits, waited, found)
    return found


def _needs(log: RunLog, rows: Ints) -> Ints:
    """(pool, slots, group) of each row; the group is -1 unless its rows take slots elsewhere too."""
    group = log.rows.group[rows]
    elsewhere = np.isin(group, log.uses.group) if len(log.uses.group) else np.zeros(len(rows), dtype=np.bool_)
    return np.column_stack([log.rows.pool[rows], log.rows.slots[rows], np.where(elsewhere, group, -1)]).astype(np.int64)


def _without_slot_holds(log: RunLog) -> RunLog:
    """The log with the holds of limits alone: a group that waits for slots (``pool:NAME``) is held by nobody."""
    holds = log.holds
    by_limit = np.array([not reason.startswith("pool:") for reason in log.reasons], dtype=np.bool_)
    if not len(holds.reason) or by_limit[holds.reason].all():
        return log
    kept = by_limit[holds.reason]
    return replace(log, holds=HoldTable(*(column[kept] for column in columns_of(holds).values())))


def _unheld(log: RunLog, stays: Stays, curve: Curve) -> Ints:
    """Growth of the curve over each stay, less its growth while the stay's group was held."""
    grown = curve(stays.end) - curve(stays.begin)
    holds = log.holds
    if len(holds.from_ns):
        laid_out = HoldTable(holds.pool, holds.group, holds.reason, curve(holds.from_ns), curve(holds.to_ns))
        along = replace(stays, begin=curve(stays.begin), end=curve(stays.end))
        stay, _, amount = held(replace(log, holds=laid_out), along)
        np.subtract.at(grown, stay, amount)
    return grown


class _FreeSlots:
    """Free slots of every pool over time."""

    def __init__(self, log: RunLog, window: Window) -> None:
        self._log, self._window = log, window
        self._steps: dict[int, tuple[Ints, Ints]] = {}

    def steps(self, pool: int) -> tuple[Ints, Ints]:
        """(times, free slots from each time on); a stalled pool has none, an unlimited one more than anybody needs."""
        if pool not in self._steps:
            self._steps[pool] = self._worked_out(pool)
        return self._steps[pool]

    def _worked_out(self, pool: int) -> tuple[Ints, Ints]:
        log, capacity = self._log, self._log.capacity
        mine = capacity.pool == pool
        if not mine.any():
            return np.zeros(1, dtype=np.int64), np.full(1, NEVER_NS)
        begin, end, slots = use_of_pool(log, self._window.slots, pool)
        times = np.concatenate([capacity.at_ns[mine], begin, end])
        change = np.concatenate([np.diff(capacity.slots[mine], prepend=0), -slots, slots])
        stalls = [
            (fault["at_ns"], fault["to_ns"])
            for fault in log.header.get("faults", ())
            if fault["what"] == "stall" and fault["target"] == log.names["pool"][pool]
        ]
        for from_ns, to_ns in stalls:
            times = np.append(times, [from_ns, to_ns])
            change = np.append(change, [-NEVER_NS // 4, NEVER_NS // 4])
        order = np.argsort(times, kind="stable")
        times, free = times[order], np.cumsum(change[order])
        last = np.append(times[1:] != times[:-1], True)
        return times[last], free[last]

    def curves(self, pool: int, slots: int, group: int) -> tuple[Curve, Curve]:
        """(time up to t in which all needs fit, time in which some slot of the own pool but not all needs were free)."""
        needs = {pool: slots}
        if group >= 0:
            uses = self._log.uses
            needs.update(
                {int(p): int(s) for g, p, s in zip(uses.group, uses.pool, uses.slots, strict=True) if g == group}
            )
        steps = {place: self.steps(place) for place in needs}
        times = np.unique(np.concatenate([at for at, _ in steps.values()]))
        all_fit = np.ones(len(times), dtype=np.bool_)
        own = np.zeros(len(times), dtype=np.bool_)
        for place, (at, free) in steps.items():
            now = free[np.maximum(np.searchsorted(at, times, side="right") - 1, 0)]
            all_fit &= now >= needs[place]
            if place == pool:
                own = now >= 1
        return _time_in(times, all_fit), _time_in(times, own & ~all_fit)


def _time_in(times: Ints, on: NDArray[np.bool_]) -> Curve:
    """How long the flag was up before t; it changes at `times` and is down before the first."""
    total = np.concatenate([[0], np.cumsum(np.diff(times) * on[:-1])])

    def up_to(t: Ints) -> Ints:
        place = np.searchsorted(times, t, side="right") - 1
        known = np.maximum(place, 0)
        return np.where(place >= 0, total[known] + on[known] * (np.asarray(t) - times[known]), 0).astype(np.int64)

    return up_to


def _count_starts(log: RunLog, window: Window, visits: Visits, waited: Ints, found: Beside) -> None:
    rows = log.rows
    priority = log.runs.priority[rows.run]
    if len(priority) == 0 or priority.min() == priority.max():
        return
    starts = window.slots
    row = visits.row[waited]
    keys = np.column_stack([rows.pool[row], rows.slots[row], priority[row]])
    kinds, kind = np.unique(keys, axis=0, return_inverse=True)
    for number, (pool, slots, level) in enumerate(kinds.tolist()):
        here = starts.pool == pool
        lower = here & (rows.slots[starts.row] >= slots) & (priority[starts.row] < level)
        if not lower.any():
            continue
        chosen = waited[kind.reshape(-1) == number]
        stays = stays_of(log, visits, chosen)
        found.passed[chosen] = _unheld(log, stays, _starts_before(np.sort(starts.begin[here])))
        found.overtaken[chosen] = _unheld(log, stays, _starts_before(np.sort(starts.begin[lower])))


def _starts_before(times: Ints) -> Curve:
    return lambda t: np.searchsorted(times, t, side="left").astype(np.int64)
