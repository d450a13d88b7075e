"""RunLog: all outcome of one simulation, as columns. The only thing that leaves the engine.

Metrics, diagnosis, reports and exports read this and nothing else. Times are integer ns, -1 = did not happen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCHEMA = "simkit.log/1"

Column = NDArray[Any]

EVENT_KINDS = (
    "defer", "reject", "shed", "downgrade", "queue",  # admission (submission; value = retry_after in s, or width)
    "client_timeout", "client_retry", "client_gave_up",  # value = delay in s until the next submission
    "throttled", "api_error", "api_hang",  # one per answered call (row; reason = API name; value = Retry-After in s)
    "sdk_retry", "retry", "gave_up",  # value = delay in s
    "dropped", "coalesced",  # row; coalesced: value = leader row
    "rework", "defect_missed", "verification_skipped",  # submission; value = round
    "mode",  # reason = new mode, value = the signal
    "fault_start", "fault_end",  # reason = "what:target"
    "budget_exhausted", "impossible",  # row
    "warning",  # a mechanism has something to say about its parameters (reason), e.g. that nothing matches them
)  # fmt: skip


@dataclass(slots=True)
class RunTable:
    """One entry per run of the trace."""

    run_id: Sequence[str]
    arrival_ns: Column
    tenant: Column  # codes into RunLog.names
    cls: Column
    priority: Column
    deadline_ns: Column  # absolute; NEVER_NS = none
    workflow: Column
    outcome: Column  # simkit.model.Outcome
    admitted_ns: Column  # of the submission that closed the run, else of the last one
    finished_ns: Column  # when the run reached its terminal state, -1 = unfinished
    submissions: Column  # 1 + client retries
    deferrals: Column
    downgraded: Column  # bool
    skipped_tasks: Column  # optional tasks (or verifications) left out
    rework: Column  # rounds of rework of the submission that closed it
    reason: Column  # code into RunLog.reasons: what ended it when it did not complete, else -1


@dataclass(slots=True)
class RowTable:
    """One entry per row (a task of one submission): its last attempt, or its last wait in the queue.

    A row that left its queue unserved (CANCELLED, DROPPED) has no start; its end is when it left. A row that shares another's work
    (COALESCED) never queues: ready is when it joined, end when the shared work ended. A row that tries again after a delay, or waits for
    rework, is in no queue: its `ready_ns` is then that of its last entry in `AttemptTable`, or -1.
    """

    run: Column
    task: Column  # trace task index
    submission: Column  # submission number within the run, from 0
    pool: Column  # codes into RunLog.names["pool"]
    cls: Column
    tenant: Column
    group: Column
    slots: Column
    estimate_ns: Column
    cost_usd: Column
    state: Column  # simkit.model.TaskState
    ready_ns: Column  # when its last attempt queued (earlier ones are in AttemptTable)
    start_ns: Column  # of the last attempt
    end_ns: Column  # of the last attempt, or when it left its queue unserved
    attempts: Column  # started attempts (0 = never started)


@dataclass(slots=True)
class AttemptTable:
    """Attempts that were not a row's last one: ended badly, or repeated by rework."""

    row: Column
    attempt: Column  # from 1
    ready_ns: Column
    start_ns: Column
    end_ns: Column
    error: Column  # code into RunLog.reasons


@dataclass(slots=True)
class HoldTable:
    """Intervals during which the rows of a group were held back in a pool by a limit (not by want of slots)."""

    pool: Column
    group: Column
    reason: Column  # code into RunLog.reasons
    from_ns: Column
    to_ns: Column


@dataclass(slots=True)
class EventTable:
    """Decisions out of the ordinary, in order of time. Routine ones (submitted, admitted, started, finished) follow from the
    other tables: `simkit.metrics.all_events` lists both."""

    at_ns: Column
    kind: Column  # index into EVENT_KINDS
    run: Column  # -1 = none
    row: Column  # -1 = none
    reason: Column  # code into RunLog.reasons, -1 = none
    value: Column


@dataclass(slots=True)
class SampleTable:
    """What the overload mechanism saw at each tick (empty without one)."""

    at_ns: Column
    signal: Column
    mode: Column  # code into RunLog.names["mode"]


@dataclass(slots=True)
class CapacityTable:
    """Slots of a pool from a time on (one entry per limited pool at 0, more when faults change it); the truth of `utilisation`."""

    at_ns: Column
    pool: Column
    slots: Column


@dataclass(slots=True)
class TaskTable:
    """One entry per task of the trace: what stories tell of it. May be empty: then tasks are told by their number."""

    task_id: Column  # codes into RunLog.names["task_id"]
    verifies: Column  # bool
    optional: Column  # bool


@dataclass(slots=True)
class UseTable:
    """Slots that rows of a group take in other pools than their own while an attempt runs. Empty when every row uses its own pool alone."""

    group: Column
    pool: Column  # codes into RunLog.names["pool"]
    slots: Column


@dataclass(slots=True)
class RunLog:
    """`header` is plain data: schema, scenario, policy, policy_version, policy_digest, scenario_digest, trace_digest, seed, replication,
    versions, horizon_ns (NEVER_NS = none), warmup_ns, ended_ns, status ("ok" | "deadlock" | "interrupted"), weights (the shares that the
    policy's order promises: {"by": "tenant" | "class", "weights": {name: weight}, "default": weight}, {} = none), api_calls /
    logical_calls (by API name), kernel_events, faults [{at_ns, to_ns, target, what, value}], class_limits_s (starvation limit per class)."""

    header: dict[str, Any]
    names: Mapping[str, Sequence[str]]  # "tenant", "class", "pool", "workflow", "mode", "task_id"
    reasons: Sequence[str]
    runs: RunTable
    rows: RowTable
    attempts: AttemptTable
    holds: HoldTable
    events: EventTable
    samples: SampleTable
    capacity: CapacityTable
    tasks: TaskTable = field(default_factory=lambda: empty(TaskTable))
    uses: UseTable = field(default_factory=lambda: empty(UseTable))
    extra: dict[str, Any] = field(default_factory=dict)  # notes of whoever holds the log; in no file and no digest


TABLES: dict[str, type] = {
    "runs": RunTable, "rows": RowTable, "attempts": AttemptTable, "holds": HoldTable, "events": EventTable, "samples": SampleTable,
    "capacity": CapacityTable, "tasks": TaskTable, "uses": UseTable,
}  # fmt: skip


def columns_of(table: Any) -> dict[str, Any]:
    """The columns of one table by name, in declaration order."""
    return {name: getattr(table, name) for name in table.__slots__}


def empty(table: type) -> Any:
    """A table without entries."""
    return table(**{name: np.empty(0, dtype=np.int64) for name in table.__slots__})  # type: ignore[attr-defined]
