"""Run logs as tables (pandas): runs, tasks with what they waited for, and everything that happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simkit.log import EVENT_KINDS, RunLog
from simkit.metrics.waits import run_delays, wait_attribution
from simkit.metrics.window import Floats, Ints, Window
from simkit.model import NEVER_NS, NS_PER_S, Outcome, TaskState

if TYPE_CHECKING:
    import pandas as pd

MOST_REASONS = 12
"""Columns of `tasks_frame` for reasons of waiting; the smaller ones share ``wait_s.other``."""


def seconds(ns: Any) -> Floats:
    """ns as s; NaN for what did not happen (-1) or never will."""
    ns = np.asarray(ns)
    return np.where((ns < 0) | (ns >= NEVER_NS), np.nan, ns / NS_PER_S)


def texts(names: Sequence[str], codes: Any) -> NDArray[np.object_]:
    """Names by code; None for -1."""
    table = np.array([*names, None], dtype=object)
    return table[np.asarray(codes, dtype=np.int64)]


def runs_frame(log: RunLog) -> pd.DataFrame:
    """One row per run: who, when (s), outcome, latency of completed runs, what delayed it outside of queues."""
    import pandas as pd

    runs = log.runs
    outcomes = [state.name.lower() for state in Outcome]
    window = Window(log)
    latency = np.where(window.closed_well, (runs.finished_ns - runs.arrival_ns) / NS_PER_S, np.nan)
    delays = {f"{name}_s": ns / NS_PER_S for name, ns in run_delays(log).items()}
    return pd.DataFrame(
        {
            "run_id": np.array(runs.run_id, dtype=object),
            "tenant": texts(log.names["tenant"], runs.tenant),
            "class": texts(log.names["class"], runs.cls),
            "workflow": texts(log.names["workflow"], runs.workflow),
            "priority": runs.priority,
            "arrival_s": seconds(runs.arrival_ns),
            "deadline_s": seconds(runs.deadline_ns),
            "admitted_s": seconds(runs.admitted_ns),
            "finished_s": seconds(runs.finished_ns),
            "outcome": texts(outcomes, runs.outcome),
            "reason": texts(log.reasons, runs.reason),
            "latency_s": latency,
            "in_time": window.closed_well & window.in_time,
            "submissions": runs.submissions,
            "deferrals": runs.deferrals,
            "downgraded": runs.downgraded,
            "skipped_tasks": runs.skipped_tasks,
            "rework": runs.rework,
            **delays,
        }
    )


def tasks_frame(log: RunLog) -> pd.DataFrame:
    """One row per task of every submission: its last attempt's times (s), the wait of all attempts together and what it was for:
    ``wait_s.REASON`` for the MOST_REASONS largest reasons, ``wait_s.other`` for the rest (they add up to ``wait_s``), and ``waited_for``,
    the largest of its reasons."""
    import pandas as pd

    rows = log.rows
    size = len(rows.run)
    attribution = wait_attribution(log)
    states = [state.name.lower() for state in TaskState]
    columns: dict[str, Any] = {
        "run_id": np.array(log.runs.run_id, dtype=object)[rows.run],
        "task_id": _task_names(log),
        "submission": rows.submission,
        "pool": texts(log.names["pool"], rows.pool),
        "tenant": texts(log.names["tenant"], rows.tenant),
        "class": texts(log.names["class"], rows.cls),
        "state": texts(states, rows.state),
        "attempts": rows.attempts,
        "slots": rows.slots,
        "estimate_s": rows.estimate_ns / NS_PER_S,
        "cost_usd": rows.cost_usd * rows.attempts,
        "ready_s": seconds(rows.ready_ns),
        "start_s": seconds(rows.start_ns),
        "end_s": seconds(rows.end_ns),
        "wait_s": attribution.wait_ns / NS_PER_S,
    }
    shown = list(attribution.by_reason())[:MOST_REASONS]
    place = {name: number for number, name in enumerate(attribution.reasons)}
    other = attribution.wait_ns.copy()
    for name in shown:
        mine = attribution.reason == place[name]
        ns = np.zeros(size, dtype=np.int64)
        ns[attribution.row[mine]] = attribution.ns[mine]
        other -= ns
        columns[f"wait_s.{name}"] = ns / NS_PER_S
    if other.any():
        columns["wait_s.other"] = other / NS_PER_S
    largest = np.full(size, -1, dtype=np.int64)
    order = np.lexsort((-attribution.reason, attribution.ns))
    largest[attribution.row[order]] = attribution.reason[order]  # the largest of a row is written last
    columns["waited_for"] = texts(attribution.reasons, largest)
    return pd.DataFrame(columns)


def _task_names(log: RunLog) -> NDArray[np.object_]:
    """The task ids of all rows."""
    if len(log.tasks.task_id):
        return texts(log.names["task_id"], log.tasks.task_id[log.rows.task])
    return _by_position(log)


def _by_position(log: RunLog) -> NDArray[np.object_]:
    """Without the trace's codes: by the place of the task within its run; ``tN`` unless every run has as many tasks as there are names."""
    tasks = int(log.rows.task.max(initial=-1)) + 1
    if not tasks:
        return np.empty(0, dtype=object)
    run_of = np.zeros(tasks, dtype=np.int64)
    run_of[log.rows.task] = log.rows.run
    place = np.arange(tasks) - np.searchsorted(run_of, run_of, side="left")
    names: Sequence[str] = log.names["task_id"]
    per_run = np.bincount(run_of, minlength=len(log.runs.outcome))
    if not (per_run == len(names)).all():
        names = [f"t{number}" for number in range(int(place.max()) + 1)]
    return texts(names, place[log.rows.task])


def all_events(log: RunLog) -> pd.DataFrame:
    """Everything that happened, in order of time: what the log recorded, and what follows from its tables (``submitted, admitted,
    queued, started, ended, completed`` or the run's other end).

    Columns: at_s, event, run_id, tenant, class, priority, pool, task, reason, value, queue_depth (tasks that wait in the pool after this
    instant, exact), estimated_wait_s (estimated work that waits there, in the row's pool, / slots), policy, policy_version.
    """
    import pandas as pd

    at, order, kind, run, row, reason, value = _collected(log)
    arrange = np.lexsort((order, at))
    at, kind, run, row, reason, value = (part[arrange] for part in (at, kind, run, row, reason, value))
    runs, rows = log.runs, log.rows
    has_row = row >= 0
    pool = np.where(has_row, rows.pool[row] if len(rows.pool) else -1, -1)
    depth, wait = _queue_at(log, at, pool)
    policy, version = log.header.get("policy", ""), log.header.get("policy_version", 0)
    ids = np.array([*runs.run_id, None], dtype=object)
    names = _task_names(log)
    frame = pd.DataFrame(
        {
            "at_s": at / NS_PER_S,
            "event": texts(_KINDS, kind),
            "run_id": ids[run],
            "tenant": texts(log.names["tenant"], np.where(run >= 0, runs.tenant[run], -1)),
            "class": texts(log.names["class"], np.where(run >= 0, runs.cls[run], -1)),
            "priority": pd.array(np.where(run >= 0, runs.priority[run], 0), dtype="Int64"),
            "pool": texts(log.names["pool"], pool),
            "task": np.array([*names, None], dtype=object)[np.where(has_row, row, -1)],
            "reason": texts(log.reasons, reason),
            "value": value,
            "queue_depth": pd.array(depth, dtype="Int64"),
            "estimated_wait_s": wait,
            "policy": policy,
            "policy_version": version,
        }
    )
    frame.loc[run < 0, "priority"] = pd.NA
    frame.loc[pool < 0, "queue_depth"] = pd.NA
    return frame


_ROUTINE = ("submitted", "admitted", "queued", "started", "ended", "finished")
_CLOSED = (
    "completed",
    "completed_unverified",
    "completed_falsely",
    "failed",
    "dead_lettered",
    "timed_out",
    "rejected",
    "shed",
)
_KINDS = (*EVENT_KINDS, *_ROUTINE, *_CLOSED)
_RANK = {"ended": 0, "submitted": 2, "admitted": 3, "queued": 4, "started": 5}
"""Order within an instant: what ended, what was recorded (1), then what begins; a run's end comes last (6)."""


def _collected(log: RunLog) -> tuple[Any, ...]:
    """(at, order within the instant, kind, run, row, reason, value) of recorded and routine events."""
    runs, rows, events, attempts = log.runs, log.rows, log.events, log.attempts
    code = {name: number for number, name in enumerate(_KINDS)}
    parts: list[tuple[Any, ...]] = []

    def add(at: Any, kind: Any, run: Any, row: Any, reason: Any = -1, value: Any = np.nan, rank: int = 1) -> None:
        size = len(at)
        full = [np.broadcast_to(np.asarray(part), (size,)) for part in (at, rank, kind, run, row, reason, value)]
        parts.append(tuple(full))

    add(events.at_ns, events.kind, events.run, events.row, events.reason, events.value)
    everybody = np.arange(len(runs.outcome))
    came = everybody[runs.submissions > 0]
    add(runs.arrival_ns[came], code["submitted"], came, -1, rank=_RANK["submitted"])
    let_in = everybody[runs.admitted_ns >= 0]
    add(runs.admitted_ns[let_in], code["admitted"], let_in, -1, rank=_RANK["admitted"])
    window = Window(log)
    queues = window.queues
    add(queues.begin, code["queued"], rows.run[queues.row], queues.row, rank=_RANK["queued"])
    went = queues.started
    add(queues.end[went], code["started"], rows.run[queues.row[went]], queues.row[went], rank=_RANK["started"])
    over = np.flatnonzero((rows.end_ns >= 0) & (rows.start_ns >= 0))
    add(rows.end_ns[over], code["ended"], rows.run[over], over, rank=_RANK["ended"])
    if len(attempts.row):
        row = attempts.row
        add(attempts.end_ns, code["ended"], rows.run[row], row, attempts.error, rank=_RANK["ended"])
    closed = everybody[runs.outcome != Outcome.UNFINISHED]
    kinds = np.array([0, *(code[name] for name in _CLOSED)])[runs.outcome[closed]]
    add(runs.finished_ns[closed], kinds, closed, -1, runs.reason[closed], rank=6)
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _queue_at(log: RunLog, at: Ints, pool: Ints) -> tuple[Ints, Floats]:
    """(tasks waiting in the pool after each instant, estimated s until its slots have worked that off)."""
    depth = np.zeros(len(at), dtype=np.int64)
    wait = np.full(len(at), np.nan)
    queues, rows, capacity = Window(log).queues, log.rows, log.capacity
    for number in range(len(log.names["pool"])):
        here = pool == number
        if not here.any():
            continue
        stays, times = queues.of_pool(number), at[here]
        work = rows.estimate_ns[stays.row] * rows.slots[stays.row]
        came, left = np.argsort(stays.begin, kind="stable"), np.argsort(stays.end, kind="stable")
        entered = np.searchsorted(stays.begin[came], times, side="right")
        gone = np.searchsorted(stays.end[left], times, side="right")
        depth[here] = entered - gone
        queued = np.append(0, np.cumsum(work[came]))[entered] - np.append(0, np.cumsum(work[left]))[gone]
        mine = capacity.pool == number
        slots = np.full(len(times), np.inf)
        if mine.any():
            slots = capacity.slots[mine][np.searchsorted(capacity.at_ns[mine], times, side="right") - 1].astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            wait[here] = np.where(queued > 0, queued / slots / NS_PER_S, 0.0)
    return depth, wait
