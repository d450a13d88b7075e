"""The run log of the express lane: start times first, everything else follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simkit.engine.outcome import base_run_columns, complete_header, names_of, task_table
from simkit.log import AttemptTable, RowTable, RunLog, RunTable, empty
from simkit.model import Outcome, TaskState

if TYPE_CHECKING:
    from simkit.engine.express import ExpressLane
    from simkit.engine.world import World

Ints = NDArray[np.int64]


class Outcomes:
    """What does not follow from the start times: refusals, deferrals, drops. Sparse."""

    def __init__(self) -> None:
        self.refused: dict[int, tuple[Outcome, int, str]] = {}  # run -> (state, when, why)
        self.deferrals: dict[int, int] = {}
        self.dropped_rows: dict[int, int] = {}  # row -> when
        self.admitted_ns: list[int] = []  # by run; empty when every arrival is admitted at once

    def refuse(self, run: int, outcome: Outcome, now_ns: int, reason: str) -> None:
        self.refused[run] = (outcome, now_ns, reason)

    def drop(self, run: int, row: int, now_ns: int, reason: str) -> None:
        self.dropped_rows[row] = now_ns
        self.refuse(run, Outcome.SHED, now_ns, reason)


def express_log(world: World, lane: ExpressLane, header: dict[str, Any], stuck: bool) -> RunLog:
    """Collect the log; releases the lane's lists on the way."""
    start = np.frombuffer(lane.start, dtype=np.int64)
    end = np.where(start >= 0, start + world.trace.tasks.service_ns, -1)
    end[end > world.horizon_ns] = -1
    ready = _ready_times(world, lane)
    runs = _run_table(world, lane.outcomes, end)
    arrival = world.trace.runs.arrival_ns
    reached = (runs.finished_ns, end, start, arrival)
    full_header = complete_header(
        world, header, max(int(times.max(initial=0)) for times in reached), "deadlock" if stuck else "ok"
    )
    if stuck:
        full_header["stuck_in"] = [pool.name for pool in world.pools if pool.waiting]
    recorder = world.recorder
    return RunLog(
        header=full_header,
        names={**names_of(world), "mode": tuple(world.modes)},
        reasons=tuple(recorder.reasons),
        runs=runs,
        rows=_row_table(world, lane.outcomes, ready, start, end),
        attempts=empty(AttemptTable),
        holds=recorder.hold_table(),
        events=recorder.event_table(),
        samples=recorder.sample_table(),
        capacity=recorder.capacity_table(),
        tasks=task_table(world.trace),
    )


def _ready_times(world: World, lane: ExpressLane) -> Ints:
    """When each row queued; tasks without predecessors do at the admission of their run."""
    trace = world.trace
    if lane.door is not None:
        return np.frombuffer(lane.ready, dtype=np.int64)
    arrival = trace.runs.arrival_ns
    admitted = np.where(arrival <= world.horizon_ns, arrival, -1)
    if not lane.ready:
        return admitted if trace.task_count == len(trace) else admitted[world.rows.source("run")]
    ready = np.frombuffer(lane.ready, dtype=np.int64).copy()
    roots = np.diff(trace.tasks.after_ptr) == 0
    ready[roots] = admitted[world.rows.source("run")[roots]]
    return ready


def _run_table(world: World, outcomes: Outcomes, end: Ints) -> RunTable:
    trace = world.trace
    size, first = len(trace), trace.runs.first_task[:-1]
    arrived = trace.runs.arrival_ns <= world.horizon_ns
    if trace.task_count == size:
        finished = end.copy()
    else:
        finished = np.maximum.reduceat(end, first)
        finished[np.minimum.reduceat(end, first) < 0] = -1
    outcome = np.where(finished >= 0, Outcome.VERIFIED, Outcome.UNFINISHED).astype(np.int8)
    reason, deferrals = constant(-1, size, np.int32), constant(0, size, np.int32)
    if outcomes.refused:
        reason = reason.copy()
        for run, (state, when, why) in outcomes.refused.items():
            outcome[run], finished[run], reason[run] = state, when, world.recorder.reason(why)
    if outcomes.deferrals:
        deferrals = deferrals.copy()
        for run, count in outcomes.deferrals.items():
            deferrals[run] = count
    admitted = np.array(outcomes.admitted_ns) if outcomes.admitted_ns else np.where(arrived, trace.runs.arrival_ns, -1)
    return RunTable(
        **base_run_columns(trace),
        outcome=outcome,
        admitted_ns=admitted,
        finished_ns=finished,
        submissions=arrived.astype(np.int32),
        deferrals=deferrals,
        downgraded=constant(False, size, np.bool_),
        skipped_tasks=constant(0, size, np.int32),
        rework=constant(0, size, np.int32),
        reason=reason,
    )


def _row_table(world: World, outcomes: Outcomes, ready: Ints, start: Ints, end: Ints) -> RowTable:
    trace, rows, size = world.trace, world.rows, len(start)
    state = np.where(end >= 0, TaskState.DONE, TaskState.PENDING).astype(np.int8)
    for row, when in outcomes.dropped_rows.items():
        state[row], end[row] = TaskState.DROPPED, when
    grouped = np.array(rows.group, dtype=np.int64) if world.mechanisms.limits else constant(0, size, np.int64)
    return RowTable(
        run=rows.source("run"),
        task=np.arange(size, dtype=np.int64),
        submission=constant(0, size, np.int32),
        pool=_of_rows(world, "pool", len(world.platform.places)),
        cls=_of_rows(world, "cls", len(trace.classes)),
        tenant=_of_rows(world, "tenant", len(trace.tenants)),
        group=grouped,
        slots=constant(1, size, np.int64),
        estimate_ns=trace.tasks.estimate_ns,
        cost_usd=trace.tasks.cost_usd,
        state=state,
        ready_ns=ready,
        start_ns=start,
        end_ns=end,
        attempts=(start >= 0).astype(np.int32),
    )


def constant(value: Any, size: int, kind: Any) -> NDArray[Any]:
    """A column of one value that takes no memory per entry (read only)."""
    return np.broadcast_to(np.asarray(value, dtype=kind), (size,))


def _of_rows(world: World, name: str, kinds: int) -> NDArray[Any]:
    if kinds == 1:
        return constant(0, world.rows.size, np.int32)
    column: NDArray[Any] = world.rows.source(name).astype(np.int32)
    return column
