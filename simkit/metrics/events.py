"""Everything that happened in a simulation, in order: what the log recorded, and the routine that follows from its tables.

Order of events within one instant (a zero-length task's end comes right after its start; recorded events keep their order among themselves):

====  ==============================================================================================================
rank  events
====  ==============================================================================================================
0     answers to calls: RATE_LIMIT_PRESSURE (a 429), API_FAILED, API_HUNG, SDK_RETRIES
1     TASK_FINISHED, TASK_FAILED: attempts end
2     what follows: TASK_RETRIES, TASK_GAVE_UP, RUN_REWORKED, DEFECT_MISSED; timers: FAULT_STARTED, FAULT_ENDED, OVERLOAD_MODE_CHANGED,
      CLIENT_TIMED_OUT
3     RUN_CLOSED of a completed run
4     RUN_SUBMITTED (again without delay: 5, right after the decision)
5     the door's answers: RUN_DEFERRED, RUN_REJECTED, RUN_SHED, RUN_DOWNGRADED, RUN_QUEUED, VERIFICATION_SKIPPED; what clients make of a
      bad answer: CLIENT_RETRIES, CLIENT_GAVE_UP
6     RUN_ADMITTED; RUN_CLOSED of a run that was not completed
7     TASK_READY, TASK_COALESCED
8     TASK_CANCELLED, TASK_DROPPED, BUDGET_EXHAUSTED: out of the queue unserved
9     LIMIT_RELEASED: a limit holds a group no longer
10    RUN_STARTED, TASK_STARTED
11    answers to calls of attempts that started at this instant
12    LIMIT_HELD: a limit holds a group from now on
====  ==============================================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simkit.log import EVENT_KINDS, RunLog
from simkit.metrics.frames import task_names, texts
from simkit.metrics.window import Floats, Ints, Window
from simkit.model import COMPLETED, NS_PER_S, Outcome, TaskState

if TYPE_CHECKING:
    import pandas as pd

_RECORDED = {
    "defer": ("RUN_DEFERRED", 5), "reject": ("RUN_REJECTED", 5), "shed": ("RUN_SHED", 5), "downgrade": ("RUN_DOWNGRADED", 5),
    "queue": ("RUN_QUEUED", 5), "verification_skipped": ("VERIFICATION_SKIPPED", 5), "client_timeout": ("CLIENT_TIMED_OUT", 2),
    "client_retry": ("CLIENT_RETRIES", 5), "client_gave_up": ("CLIENT_GAVE_UP", 5), "throttled": ("RATE_LIMIT_PRESSURE", 0),
    "api_error": ("API_FAILED", 0), "api_hang": ("API_HUNG", 0), "sdk_retry": ("SDK_RETRIES", 0), "retry": ("TASK_RETRIES", 2),
    "gave_up": ("TASK_GAVE_UP", 2), "dropped": ("TASK_DROPPED", 8), "coalesced": ("TASK_COALESCED", 7), "rework": ("RUN_REWORKED", 2),
    "defect_missed": ("DEFECT_MISSED", 2), "mode": ("OVERLOAD_MODE_CHANGED", 2), "fault_start": ("FAULT_STARTED", 2),
    "fault_end": ("FAULT_ENDED", 2), "budget_exhausted": ("BUDGET_EXHAUSTED", 8), "impossible": ("TASK_IMPOSSIBLE", 8),
}  # fmt: skip
_ROUTINE = {
    "TASK_FINISHED": 1, "TASK_FAILED": 1, "RUN_CLOSED": 3, "RUN_SUBMITTED": 4, "RUN_ADMITTED": 6, "TASK_READY": 7, "TASK_CANCELLED": 8,
    "LIMIT_RELEASED": 9, "RUN_STARTED": 10, "TASK_STARTED": 10, "LIMIT_HELD": 12,
}  # fmt: skip
_CLOSED_BADLY, _ANSWERED_AT_ONCE = 6, 11
_NAMES = (*_ROUTINE, *(_RECORDED.get(kind, (kind.upper(), 2))[0] for kind in EVENT_KINDS))
_CODE = {name: number for number, name in enumerate(_NAMES)}
_ANSWERS = [EVENT_KINDS.index(kind) for kind in ("throttled", "api_error", "api_hang", "sdk_retry")]


def all_events(log: RunLog) -> pd.DataFrame:
    """One line per event, in order of time and, within an instant, of the table above.

    Columns: at_s, event, run_id, tenant, class, priority, pool (where it happened; of an event of a whole run the pool of its first task), task,
    reason, value (a delay in s, a width, a round, a signal: see `simkit.log.EVENT_KINDS`), queue_depth (tasks that wait in that pool right
    after the event, exact), estimated_wait_s (estimated work that waits there / its slots), policy, policy_version. What does not apply is missing.
    """
    import pandas as pd

    found = _Events(log)
    order = found.order()
    at, kind, run, row, pool, reason, value = (column[order] for column in found.columns())
    depth, wait = _queues_along(log, at, pool, found.column("delta")[order], row)
    runs, known, none = log.runs, run >= 0, pool < 0
    frame = pd.DataFrame(
        {
            "at_s": at / NS_PER_S,
            "event": texts(_NAMES, kind),
            "run_id": np.array([*runs.run_id, None], dtype=object)[run],
            "tenant": texts(log.names["tenant"], np.append(runs.tenant, -1)[run]),
            "class": texts(log.names["class"], np.append(runs.cls, -1)[run]),
            "priority": pd.array(np.append(runs.priority, 0)[run], dtype="Int64"),
            "pool": texts(log.names["pool"], pool),
            "task": np.array([*task_names(log), None], dtype=object)[row],
            "reason": _reasons(log, kind, run, reason),
            "value": value,
            "queue_depth": pd.array(depth, dtype="Int64"),
            "estimated_wait_s": np.where(none, np.nan, wait),
            "policy": log.header.get("policy", ""),
            "policy_version": log.header.get("policy_version", 0),
        }
    )
    frame.loc[~known, "priority"] = pd.NA
    frame.loc[none, "queue_depth"] = pd.NA
    return frame


class _Events:
    """Events as columns, collected kind by kind."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._window = Window(log)
        self._parts: dict[str, list[Any]] = {
            name: [] for name in ("at", "hop", "rank", "turn", "kind", "run", "row", "pool", "reason", "value", "delta")
        }
        self._entry = _first_pools(log)
        self._steps = _Steps(log, self._window)
        self._recorded()
        self._runs()
        self._tasks()
        self._limits()

    def column(self, name: str) -> NDArray[Any]:
        return np.concatenate(self._parts[name])

    def columns(self) -> tuple[NDArray[Any], ...]:
        return tuple(self.column(name) for name in ("at", "kind", "run", "row", "pool", "reason", "value"))

    def order(self) -> Ints:
        """By time, step, rank and turn (the place of a recorded event among its like); then in the order in which they were collected."""
        return np.lexsort((self.column("turn"), self.column("rank"), self.column("hop"), self.column("at")))

    def _add(
        self, kind: Any, at: Any, *, run: Any = -1, row: Any = -1, pool: Any = -1, rank: Any = None, reason: Any = -1, value: Any = np.nan,
        delta: Any = 0, hop: Any = 0, turn: Any = 0.0,
    ) -> None:  # fmt: skip
        if isinstance(kind, str):
            kind, rank = _CODE[kind], _ROUTINE[kind] if rank is None else rank
        given = {
            "at": at, "hop": hop, "rank": rank, "kind": kind, "run": run, "row": row, "pool": pool, "reason": reason, "value": value,
            "delta": delta, "turn": turn,
        }  # fmt: skip
        for name, column in given.items():
            self._parts[name].append(np.broadcast_to(np.asarray(column), (len(at),)))

    def _recorded(self) -> None:
        log, events = self._log, self._log.events
        names = [_RECORDED.get(kind, (kind.upper(), 2)) for kind in EVENT_KINDS]
        kind = np.asarray(events.kind, dtype=np.int64)
        rank = np.array([place for _, place in names])[kind]
        row, run = np.asarray(events.row, dtype=np.int64), np.asarray(events.run, dtype=np.int64)
        pool = np.where(row >= 0, np.append(log.rows.pool, -1)[row], self._entry[run])
        answered, hop = self._steps.beside(row, events.at_ns, np.isin(kind, _ANSWERS))
        rank = np.where(answered, _ANSWERED_AT_ONCE, rank)
        drop = np.isin(kind, [EVENT_KINDS.index(name) for name in ("dropped", "budget_exhausted")]) & (row >= 0)
        self.dropped = row[drop]
        code = np.array([_CODE[name] for name, _ in names])[kind]
        self._add(
            code, events.at_ns, run=run, row=row, pool=pool, rank=rank, reason=events.reason, value=events.value, delta=np.where(drop, -1, 0),
            hop=hop, turn=np.arange(len(kind)),
        )  # fmt: skip

    def _runs(self) -> None:
        log, runs, events = self._log, self._log.runs, self._log.events
        came = np.flatnonzero(runs.submissions > 0)
        self._add("RUN_SUBMITTED", runs.arrival_ns[came], run=came, pool=self._entry[came], value=1)
        again = np.flatnonzero(events.kind == EVENT_KINDS.index("client_retry"))
        if len(again):
            run = events.run[again].astype(np.int64)
            by_run = np.argsort(run, kind="stable")
            number = np.empty(len(run), dtype=np.int64)
            number[by_run] = np.arange(len(run)) - np.searchsorted(run[by_run], run[by_run])
            made = number < runs.submissions[run] - 1
            delay = np.rint(events.value[again] * NS_PER_S).astype(np.int64)
            rank = np.where(
                delay > 0, _ROUTINE["RUN_SUBMITTED"], _RECORDED["client_retry"][1]
            )  # at once: right after the decision
            self._add(
                "RUN_SUBMITTED", (events.at_ns[again] + delay)[made], run=run[made], pool=self._entry[run[made]], value=number[made] + 2,
                rank=rank[made], turn=again[made] + 0.5,
            )  # fmt: skip
        let_in = np.flatnonzero(runs.admitted_ns >= 0)
        self._add("RUN_ADMITTED", runs.admitted_ns[let_in], run=let_in, pool=self._entry[let_in])
        closed = np.flatnonzero(runs.outcome != Outcome.UNFINISHED)
        outcome = runs.outcome[closed]
        well = np.isin(outcome, COMPLETED)
        self._add(
            "RUN_CLOSED", runs.finished_ns[closed], run=closed, pool=self._entry[closed], reason=runs.reason[closed],
            rank=np.where(well, _ROUTINE["RUN_CLOSED"], _CLOSED_BADLY), hop=self._steps.at_end(closed, runs.finished_ns[closed]),
        )  # fmt: skip
        first = np.full(len(runs.outcome), np.iinfo(np.int64).max)
        slots = self._window.slots
        np.minimum.at(first, log.rows.run[slots.row], slots.begin)
        begun = np.flatnonzero(first < np.iinfo(np.int64).max)
        self._add("RUN_STARTED", first[begun], run=begun, pool=self._entry[begun])

    def _tasks(self) -> None:
        log, rows, attempts = self._log, self._log.rows, self._log.attempts
        queues = self._window.queues
        run, pool = np.asarray(rows.run, dtype=np.int64), np.asarray(rows.pool, dtype=np.int64)
        row = queues.row
        self._add(
            "TASK_READY",
            queues.begin,
            run=run[row],
            row=row,
            pool=pool[row],
            delta=1,
            hop=self._steps.before(row, queues.begin),
        )
        went = queues.started
        row, at = row[went], queues.end[went]
        hop = np.where(queues.begin[went] == at, self._steps.before(row, at), 0)
        self._add("TASK_STARTED", at, run=run[row], row=row, pool=pool[row], delta=-1, hop=hop)
        gone = ~went & (rows.state[queues.row] == TaskState.CANCELLED)
        silent = ~went & (rows.state[queues.row] == TaskState.DROPPED) & ~np.isin(queues.row, self.dropped)
        for name, chosen in (("TASK_CANCELLED", gone), ("TASK_DROPPED", silent)):
            row = queues.row[chosen]
            self._add(name, queues.end[chosen], run=run[row], row=row, pool=pool[row], delta=-1, rank=8)
        over = np.flatnonzero((rows.start_ns >= 0) & (rows.end_ns >= 0))
        bad = rows.state[over] == TaskState.FAILED
        row = np.concatenate([over, np.asarray(attempts.row, dtype=np.int64)])
        start = np.concatenate([rows.start_ns[over], attempts.start_ns])
        end = np.concatenate([rows.end_ns[over], attempts.end_ns])
        rework = log.reasons.index("rework") if "rework" in log.reasons else -1
        failed = np.concatenate([bad, np.asarray(attempts.error) != rework])
        error = np.concatenate([np.full(len(over), -1), attempts.error])
        hop = np.where(start == end, self._steps.before(row, end) + 1, 0)
        for name, chosen in (("TASK_FAILED", failed), ("TASK_FINISHED", ~failed)):
            self._add(
                name,
                end[chosen],
                run=run[row[chosen]],
                row=row[chosen],
                pool=pool[row[chosen]],
                reason=error[chosen],
                hop=hop[chosen],
            )

    def _limits(self) -> None:
        holds = self._log.holds
        self._add("LIMIT_HELD", holds.from_ns, pool=holds.pool, reason=holds.reason)
        self._add("LIMIT_RELEASED", holds.to_ns, pool=holds.pool, reason=holds.reason)


class _Steps:
    """Attempts that take no time: what follows from them at the same instant comes after them, in the order of the run's tasks."""

    def __init__(self, log: RunLog, window: Window) -> None:
        slots = window.slots
        self._run = np.asarray(log.rows.run, dtype=np.int64)
        self._starts = (
            {(int(row), int(at)) for row, at in zip(slots.row, slots.begin, strict=True)}
            if len(log.events.row)
            else set()
        )
        instant = np.flatnonzero(slots.end == slots.begin)
        self._row, self._at = slots.row[instant], slots.begin[instant]
        order = np.lexsort((self._row, self._at, self._run[self._row]))
        self._row, self._at = self._row[order], self._at[order]

    def before(self, row: Ints, at: Ints) -> Ints:
        """How many attempts of the run that took no time at that instant belong to tasks before this one."""
        return self._count(self._run[row], at, row)

    def at_end(self, run: Ints, at: Ints) -> Ints:
        """How many attempts of the run took no time at that instant."""
        return self._count(run, at, np.full(len(run), np.iinfo(np.int64).max))

    def beside(self, row: Ints, at: Ints, answers: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Ints]:
        """(answers to an attempt that started at that very instant, steps within the instant) of recorded events."""
        started = np.array(
            [pair in self._starts for pair in zip(row.tolist(), np.asarray(at).tolist(), strict=True)], dtype=np.bool_
        )
        if not len(self._row) or not len(row):
            return started & answers, np.zeros(len(row), dtype=np.int64)
        took_none = {(int(a), int(b)) for a, b in zip(self._row, self._at, strict=True)}
        within = np.array(
            [pair in took_none for pair in zip(row.tolist(), np.asarray(at).tolist(), strict=True)], dtype=np.bool_
        )
        steps = np.where(within, self.before(np.maximum(row, 0), at) + ~answers, 0)
        return started & answers, steps.astype(np.int64)

    def _count(self, run: Ints, at: Ints, row: Ints) -> Ints:
        if not len(self._row):
            return np.zeros(len(run), dtype=np.int64)
        times = np.sort(self._at)
        base, last = len(times) + 1, len(self._run)
        mine = (self._run[self._row] * base + np.searchsorted(times, self._at, side="right")) * (last + 1) + self._row
        place = np.searchsorted(times, at, side="right")
        here = times[np.maximum(place - 1, 0)] == at
        low = (np.asarray(run) * base + place) * (last + 1)
        count = np.searchsorted(mine, low + np.minimum(row, last)) - np.searchsorted(mine, low)
        return np.where(here & (place > 0), count, 0)


def _first_pools(log: RunLog) -> Ints:
    """Per run the pool of its first task; -1 for none, which is also the last entry."""
    pools = np.full(len(log.runs.outcome) + 1, -1, dtype=np.int64)
    pools[log.rows.run[::-1]] = log.rows.pool[::-1]
    return pools


def _queues_along(log: RunLog, at: Ints, pool: Ints, delta: Ints, row: Ints) -> tuple[Ints, Floats]:
    """(tasks that wait in each event's pool after it, s that its slots need for the work that waits there)."""
    depth, wait = np.zeros(len(at), dtype=np.int64), np.zeros(len(at))
    work = delta * np.append(log.rows.estimate_ns * log.rows.slots, 0)[row]
    capacity = log.capacity
    for number in range(len(log.names["pool"])):
        here = np.flatnonzero(pool == number)
        depth[here] = np.cumsum(delta[here])
        queued = np.cumsum(work[here])
        mine = capacity.pool == number
        slots = np.full(len(here), np.inf)
        if mine.any():
            place = np.searchsorted(capacity.at_ns[mine], at[here], side="right") - 1
            slots = np.asarray(capacity.slots[mine], dtype=np.float64)[np.maximum(place, 0)]
        with np.errstate(divide="ignore", invalid="ignore"):
            wait[here] = np.where(queued > 0, queued / slots / NS_PER_S, 0.0)
    return depth, wait


def _reasons(log: RunLog, kind: Ints, run: Ints, reason: Ints) -> NDArray[np.object_]:
    """The reason; of a run's end how it ended, and why if it says so."""
    told = texts(log.reasons, reason)
    closed = np.flatnonzero(kind == _CODE["RUN_CLOSED"])
    outcomes = [state.name.lower() for state in Outcome]
    told[closed] = [
        outcomes[outcome] + (f": {why}" if why is not None else "")
        for outcome, why in zip(log.runs.outcome[run[closed]].tolist(), told[closed], strict=True)
    ]
    return told
