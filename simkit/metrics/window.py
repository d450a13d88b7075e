"""A run log with what many metrics need worked out once: the measured window, and the stays of rows in queues and on slots."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simkit.log import EVENT_KINDS, RunLog
from simkit.model import NEVER_NS, NS_PER_S, Outcome, TaskState

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_DEATHS = [EVENT_KINDS.index(kind) for kind in ("gave_up", "dropped", "budget_exhausted")]
_DROPS = [EVENT_KINDS.index(kind) for kind in ("dropped", "budget_exhausted")]
_COALESCED = EVENT_KINDS.index("coalesced")


@dataclass(frozen=True, slots=True)
class Stays:
    """Intervals [begin, end) in ns, one entry per attempt, with the row and the pool of each. In a queue: ready to start (or to when the row
    left unserved); on slots: start to end. What was still going on when the log ended, ends with it. `started`: not left unserved.
    `whole`: rows in order, one stay each, all started."""

    row: Ints
    pool: Ints
    begin: Ints
    end: Ints
    started: Flags
    whole: bool = False

    def of_pool(self, pool: int) -> Stays:
        """Those in one pool."""
        here = self.pool == pool
        return (
            self
            if here.all()
            else Stays(self.row[here], self.pool[here], self.begin[here], self.end[here], self.started[here])
        )


class Window:
    """The measured time goes from the warm-up to the horizon, or to the end of the log without one; `offered` runs arrived in it."""

    def __init__(self, log: RunLog) -> None:
        self.log = log
        header = log.header
        self.begin = int(header["warmup_ns"])
        horizon = int(header["horizon_ns"])
        self.end = horizon if horizon < NEVER_NS else int(header["ended_ns"])
        self.span_ns = max(self.end - self.begin, 1)
        self.span_s = self.span_ns / NS_PER_S
        runs = log.runs
        self.offered: Flags = (runs.arrival_ns >= self.begin) & (runs.arrival_ns <= horizon)
        self.everything = bool(self.offered.all())
        outcome = runs.outcome
        closed_well = (outcome >= Outcome.VERIFIED) & (outcome <= Outcome.FALSE_COMPLETION)
        self.closed_well: Flags = closed_well
        self.completed: Flags = closed_well if self.everything else closed_well & self.offered
        self.in_time: Flags = runs.finished_ns <= runs.deadline_ns
        self.good: Flags = (outcome == Outcome.VERIFIED) & self.in_time & self.offered

    @cached_property
    def rows_counted(self) -> Flags | None:
        """Rows of offered runs; None = all."""
        return None if self.everything else self.offered[self.log.rows.run]

    @cached_property
    def queues(self) -> Stays:
        """Every stay in a queue."""
        return queue_stays(self.log, self.end)

    @cached_property
    def slots(self) -> Stays:
        """Every stay on slots."""
        return slot_stays(self.log, self.end)

    @cached_property
    def wait_ns(self) -> Ints:
        """Per row: time in queues, all attempts together, started or not (backoff between attempts is not in it)."""
        return per_row(self.queues, len(self.log.rows.run))

    def seconds_inside(self, begin: Ints, end: Ints, weight: Any = 1) -> float:
        """Sum over intervals of weight x the part inside the window, in s."""
        inside = np.minimum(end, self.end)
        inside = inside - np.maximum(begin, self.begin)
        np.maximum(inside, 0, out=inside)
        if isinstance(weight, int):
            return float(inside.sum()) * weight / NS_PER_S  # whole ns: exact to 292 years of waiting
        return (
            float(np.sum(inside * np.asarray(weight, dtype=np.float64))) / NS_PER_S
        )  # not np.dot: its order of summation varies


def per_row(stays: Stays, rows: int) -> Ints:
    """Total length of the stays of each row, in ns (exact)."""
    lengths = stays.end - stays.begin
    if stays.whole:
        return lengths
    total = np.zeros(rows, dtype=np.int64)
    np.add.at(total, stays.row, lengths)
    return total


def queue_stays(log: RunLog, end_ns: int) -> Stays:
    """Every stay in a queue, from the log alone.

    A row that left unserved did so at its end; where the log does not say it, when a limit dropped it or its submission failed (another of
    its rows gave up or was dropped). Rows that shared another row's work did not queue.
    """
    rows, attempts = log.rows, log.attempts
    start = rows.start_ns
    if not len(attempts.row) and len(start) and int(start.min()) >= 0:
        return Stays(np.arange(len(start)), rows.pool, rows.ready_ns, start, _all(len(start)), whole=True)
    served = np.flatnonzero((start >= 0) & (rows.ready_ns >= 0))
    unserved = np.flatnonzero((start < 0) & (rows.ready_ns >= 0))
    unserved, left = _unserved(log, unserved, end_ns)
    row = np.concatenate([served, unserved, attempts.row]).astype(np.int64)
    return Stays(
        row,
        rows.pool[row],
        np.concatenate([rows.ready_ns[served], rows.ready_ns[unserved], attempts.ready_ns]),
        np.concatenate([start[served], left, attempts.start_ns]),
        np.concatenate([_all(len(served)), ~_all(len(left)), _all(len(attempts.row))]),
    )


def _all(size: int) -> Flags:
    return np.ones(size, dtype=np.bool_)


def _unserved(log: RunLog, rows: Ints, end_ns: int) -> tuple[Ints, Ints]:
    """(rows, when they left) of those of `rows`, ready but never started, that did queue."""
    if not len(rows):
        return rows, rows
    table, events = log.rows, log.events
    state = table.state[rows]
    queued = np.isin(state, (TaskState.PENDING, TaskState.DROPPED, TaskState.CANCELLED))
    shared = events.kind == _COALESCED
    if shared.any():
        followed = np.full(len(table.run), -1, dtype=np.int64)
        followed[events.row[shared]] = events.at_ns[shared]  # the last one counts: entries are in order of time
        queued &= followed[rows] != table.ready_ns[rows]
    if len(log.attempts.row):  # between two attempts a row is in no queue: it still shows the last one's ready
        ready_before = np.full(len(table.run), -1, dtype=np.int64)
        ready_before[log.attempts.row] = log.attempts.ready_ns
        queued &= ready_before[rows] != table.ready_ns[rows]
    rows, state = rows[queued], state[queued]
    left = np.full(len(rows), max(end_ns, 0), dtype=np.int64)
    gone = state != TaskState.PENDING
    told = table.end_ns[rows]
    left[gone] = told[gone]
    unsaid = gone & (told < 0)
    if unsaid.any():
        left[unsaid] = _inferred(log, rows[unsaid], state[unsaid], end_ns)
    return rows, np.maximum(left, table.ready_ns[rows])


def _inferred(log: RunLog, rows: Ints, state: Ints, end_ns: int) -> Ints:
    """When rows left unserved whose log does not say it: at their own drop, or at the end of their submission."""
    events = log.events
    dropped = np.isin(events.kind, _DROPS) & (events.row >= 0)
    when = np.full(len(log.rows.run), -1, dtype=np.int64)
    when[events.row[dropped]] = events.at_ns[dropped]
    return np.where((state == TaskState.DROPPED) & (when[rows] >= 0), when[rows], _deaths(log, rows, end_ns))


def _deaths(log: RunLog, rows: Ints, end_ns: int) -> Ints:
    """When the submission of each row failed: its first fatal event, else (it shared the failed work of others) the end of its run."""
    table, events = log.rows, log.events
    several = int(table.submission.max(initial=0)) + 1
    number = table.run[rows].astype(np.int64) * several + table.submission[rows]
    fatal = np.flatnonzero(np.isin(events.kind, _DEATHS) & (events.row >= 0))
    culprit = events.row[fatal]
    dead, first = np.unique(
        table.run[culprit].astype(np.int64) * several + table.submission[culprit], return_index=True
    )
    finished = log.runs.finished_ns[table.run[rows]]
    fallback = np.where(finished >= table.ready_ns[rows], finished, max(end_ns, 0))
    if not len(dead):
        return fallback
    place = np.minimum(np.searchsorted(dead, number), len(dead) - 1)
    return np.where(dead[place] == number, events.at_ns[fatal][first[place]], fallback)


def use_of_pool(log: RunLog, busy: Stays, pool: int) -> tuple[Ints, Ints, Ints]:
    """(begin, end, slots) of everything that takes slots of `pool`: its own rows, and rows of other pools that take slots here as well."""
    mine = busy.of_pool(pool)
    begin, end, slots = mine.begin, mine.end, log.rows.slots[mine.row]
    lent = log.uses.pool == pool
    if lent.any():
        per_group = np.zeros(int(log.rows.group.max(initial=0)) + 1, dtype=np.int64)
        np.add.at(per_group, log.uses.group[lent], log.uses.slots[lent])
        taken = per_group[log.rows.group[busy.row]]
        also = taken > 0
        begin = np.concatenate([begin, busy.begin[also]])
        end = np.concatenate([end, busy.end[also]])
        slots = np.concatenate([slots, taken[also]])
    return begin, end, slots


def slot_stays(log: RunLog, end_ns: int) -> Stays:
    """Every stay on slots: attempts, the running ones until the log's end."""
    rows, attempts = log.rows, log.attempts
    if not len(attempts.row) and len(rows.start_ns) and int(rows.start_ns.min()) >= 0 and int(rows.end_ns.min()) >= 0:
        return Stays(np.arange(len(rows.run)), rows.pool, rows.start_ns, rows.end_ns, _all(len(rows.run)), whole=True)
    last = np.flatnonzero(rows.start_ns >= 0)
    row = np.concatenate([last, attempts.row]).astype(np.int64)
    end = rows.end_ns[last]
    return Stays(
        row,
        rows.pool[row],
        np.concatenate([rows.start_ns[last], attempts.start_ns]),
        np.concatenate([np.where(end >= 0, end, max(end_ns, 0)), attempts.end_ns]),
        _all(len(row)),
    )
