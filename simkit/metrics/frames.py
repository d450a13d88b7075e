"""Run logs as tables (pandas): runs, and tasks with what they waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simkit.log import RunLog
from simkit.metrics.waits import run_delays, wait_attribution
from simkit.metrics.window import Floats, Window
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
        "task_id": task_names(log),
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


def task_names(log: RunLog) -> NDArray[np.object_]:
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
