"""From the engine's columns to the run log."""

from __future__ import annotations

import platform as machine
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simkit.engine.tables import UNLIMITED_SLOTS, absolute_deadlines, capacity_of
from simkit.engine.world import World
from simkit.log import SCHEMA, RowTable, RunLog, RunTable, TaskTable, UseTable
from simkit.model import NEVER_NS, FaultSpec, Outcome
from simkit.trace.table import Trace


def versions() -> dict[str, str]:
    """What a result depends on besides its inputs."""
    import simpy

    from simkit import __version__

    return {
        "simkit": __version__,
        "python": machine.python_version(),
        "numpy": np.__version__,
        "simpy": simpy.__version__,
    }


def run_log(world: World, header: dict[str, Any]) -> RunLog:
    """Collect everything that happened. The general path; the express lane fills the same tables."""
    trace, recorder = world.trace, world.recorder
    waiting = [pool.name for pool in world.pools if pool.waiting]
    rows = _row_table(world)
    runs = _run_table(world)
    events = recorder.event_table()
    ended = max(
        int(runs.finished_ns.max(initial=0)),
        int(rows.end_ns.max(initial=0)),
        int(rows.start_ns.max(initial=0)),
        int(trace.runs.arrival_ns.max(initial=0)),
    )
    stuck = _is_stuck(world)
    full_header = complete_header(world, header, ended, "deadlock" if stuck else "ok")
    if stuck:
        full_header["stuck_in"] = waiting
    return RunLog(
        header=full_header,
        names={**names_of(world), "mode": tuple(world.modes)},
        reasons=tuple(recorder.reasons),
        runs=runs,
        rows=rows,
        attempts=recorder.attempt_table(),
        holds=recorder.hold_table(),
        events=events,
        samples=recorder.sample_table(),
        capacity=recorder.capacity_table(),
        tasks=task_table(trace),
        uses=_use_table(world),
    )


def task_table(trace: Trace) -> TaskTable:
    """Names and flags of the trace's tasks, for those who tell stories."""
    return TaskTable(trace.tasks.task_id, trace.tasks.verifies, trace.tasks.optional)


def _use_table(world: World) -> UseTable:
    """What each group takes in other pools: slots of pools, and one place of an API that is called beside one."""
    seen: dict[int, tuple[tuple[int, int], ...]] = {}
    if any(len(demand) > 1 for demand in world.layout.demands):
        for group, shape in zip(world.rows.group, world.shape, strict=True):
            if group not in seen:
                seen[group] = world.layout.demands[shape][1:]
    uses = [(group, place, slots) for group, others in seen.items() for place, slots in others]
    groups, places, slots = zip(*uses, strict=True) if uses else ((), (), ())
    return UseTable(np.array(groups, dtype=np.int64), np.array(places, dtype=np.int32), np.array(slots, dtype=np.int64))


def _is_stuck(world: World) -> bool:
    """Work is left, nothing is due any more, and it was not the horizon that ended it."""
    nothing_due = len(world.clock.entries) == 1 and not world.clock.arrivals_left
    waiting = any(pool.waiting for pool in world.pools)
    return nothing_due and (waiting or world.open_runs > 0)


def complete_header(world: World, header: dict[str, Any], ended_ns: int, status: str) -> dict[str, Any]:
    horizon_ns = world.horizon_ns
    limits = header.pop("class_limits_ns")
    return {
        "schema": SCHEMA,
        **header,
        "trace_digest": world.trace.digest(),
        "trace_source": world.trace.source,
        "versions": versions(),
        "ended_ns": ended_ns if horizon_ns >= NEVER_NS else min(ended_ns, horizon_ns),
        "status": status,
        "class_limits_s": {name: limit / 1e9 for name, limit in limits.items() if limit is not None},
        "api_calls": {api.spec.name: api.calls for api in world.apis},
        "logical_calls": {api.spec.name: api.logical_calls for api in world.apis},
        "kernel_events": world.clock.events_done,
        "faults": [_fault(fault) for fault in world.faults],
        "weights": header.get("weights", {}),
    }


def _fault(fault: FaultSpec) -> dict[str, Any]:
    to_ns = min(NEVER_NS, fault.at_ns + fault.for_ns)
    return {"at_ns": fault.at_ns, "to_ns": to_ns, "target": fault.target, "what": fault.what, "value": fault.value}


def names_of(world: World) -> dict[str, Sequence[str]]:
    trace = world.trace
    return {
        "tenant": tuple(trace.tenants),
        "class": tuple(trace.classes),
        "pool": world.platform.places,
        "workflow": tuple(trace.workflows),
        "task_id": tuple(trace.task_ids),
        "mode": ("normal",),
    }


def first_capacities(world: World) -> list[tuple[int, int, int]]:
    """(0, pool, slots) for every limited place."""
    entries = []
    for number in range(len(world.platform.places)):
        slots = capacity_of(world.layout.place_spec(number))
        if slots < UNLIMITED_SLOTS:
            entries.append((0, number, slots))
    return entries


def base_run_columns(trace: Trace) -> dict[str, Any]:
    """The columns of `RunTable` that repeat the trace."""
    runs = trace.runs
    return {
        "run_id": runs.run_id,
        "arrival_ns": runs.arrival_ns,
        "tenant": runs.tenant,
        "cls": runs.cls,
        "priority": runs.priority,
        "deadline_ns": absolute_deadlines(trace),
        "workflow": runs.workflow,
    }


def _run_table(world: World) -> RunTable:
    arrived = world.trace.runs.arrival_ns <= world.horizon_ns
    outcome = np.array(world.outcome, dtype=np.int8)
    assert not (outcome[~arrived] != Outcome.UNFINISHED).any()
    return RunTable(
        **base_run_columns(world.trace),
        outcome=outcome,
        admitted_ns=_times(world.admitted_ns),
        finished_ns=_times(world.finished_ns),
        submissions=np.array(world.submissions_made, dtype=np.int32),
        deferrals=np.array(world.deferrals, dtype=np.int32),
        downgraded=np.array(world.downgraded, dtype=np.bool_),
        skipped_tasks=np.array(world.skipped_tasks, dtype=np.int32),
        rework=np.array(world.rework, dtype=np.int32),
        reason=np.array(world.end_reason, dtype=np.int32),
    )


def _row_table(world: World) -> RowTable:
    rows = world.rows
    attempt_of_submission = _attempt_numbers(world)
    return RowTable(
        run=np.array(rows.run, dtype=np.int64),
        task=np.array(rows.task, dtype=np.int64),
        submission=attempt_of_submission[np.array(rows.instance, dtype=np.int64)],
        pool=np.array(rows.pool, dtype=np.int32),
        cls=np.array(rows.cls, dtype=np.int32),
        tenant=np.array(rows.tenant, dtype=np.int32),
        group=np.array(rows.group, dtype=np.int64),
        slots=np.array(rows.slots, dtype=np.int64),
        estimate_ns=_times(rows.estimate_ns),
        cost_usd=np.array(rows.cost_usd, dtype=np.float64),
        state=np.array(world.state, dtype=np.int8),
        ready_ns=_times(world.ready_ns),
        start_ns=_times(world.start_ns),
        end_ns=_times(world.end_ns),
        attempts=np.array(world.attempts, dtype=np.int32),
    )


def _attempt_numbers(world: World) -> NDArray[np.int32]:
    """Per submission: its number within the run (0 = first)."""
    run = world.submissions.run
    seen: dict[int, int] = {}
    numbers = np.zeros(len(run), dtype=np.int32)
    for number in range(len(world.trace), len(run)):
        seen[run[number]] = numbers[number] = seen.get(run[number], 0) + 1
    return numbers


def _times(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)
