"""The express lane: the same rules when nothing can refuse, fail, change or be given up.

Plain pools, one slot a task, no limits, admission, overload, retries, clients, faults, APIs, defects or budgets: then a task's
life is queue, start, end, and everything else follows from the start times. The general path gives the same log, more
slowly (a test holds the two against each other); this one exists because such simulations are the largest ones.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simkit.engine.outcome import base_run_columns, complete_header, first_capacities, names_of
from simkit.engine.tables import capacity_of
from simkit.engine.world import World
from simkit.log import AttemptTable, EventTable, HoldTable, RowTable, RunLog, RunTable, SampleTable, empty
from simkit.mechanisms.base import Order
from simkit.model import LawViolation, Outcome, TaskState
from simkit.policy import Policy

Step = Callable[[int], None]


def applies(world: World, policy: Policy) -> bool:
    """True when nothing in the platform, the policy or the trace needs the general path."""
    if policy.admission or policy.limits or policy.overload or policy.retry or policy.backfill or policy.coalesce:
        return False
    if world.clients or world.faults or world.platform.budgets or len(world.trace) == 0:
        return False
    if any(shape.slots != 1 or shape.others or shape.calls for shape in world.layout.shapes):
        return False
    specs = (policy.order, *policy.order_by_pool.values())
    if any(spec.cls.finished is not Order.finished for spec in specs if hasattr(spec.cls, "finished")):
        return False
    return not world.trace.runs.defect_p.any()


class _Lane:
    """The moving parts of one run; each step is a closure over plain lists."""

    def __init__(self, world: World, orders: list[Order]) -> None:
        self.world = world
        size = world.trace.task_count
        self.start = [-1] * size
        self.ready: list[int] = []
        self.dirty: list[Callable[[], None]] = []
        self.pushes: list[Step] = []
        self.dispatches: list[Callable[[], None]] = []
        self.waiting = [0] * len(orders)
        self.pool_of = world.rows.pool if len(orders) > 1 else None
        after_done = self._after_done()
        for number, order in enumerate(orders):
            self._open_pool(number, order, after_done)

    def _after_done(self) -> Step | None:
        """What follows a task's end: nothing, the next of a chain, or a general graph."""
        trace = self.world.trace
        if len(trace.tasks.after) == 0:
            return None
        self.ready = [-1] * trace.task_count
        if _is_chain(trace.runs.first_task, trace.tasks.after_ptr, trace.tasks.after):
            return self._chain_step()
        return self._graph_step()

    def _chain_step(self) -> Step:
        first = self.world.trace.runs.first_task
        last_of_run = np.zeros(self.world.trace.task_count, dtype=np.bool_)
        last_of_run[first[1:] - 1] = True
        is_last, ready, pushes, pool_of = last_of_run.tolist(), self.ready, self.pushes, self.pool_of
        clock = self.world.clock

        def step(row: int) -> None:
            if not is_last[row]:
                row += 1
                ready[row] = clock._now  # type: ignore[assignment]
                pushes[pool_of[row] if pool_of else 0](row)

        return step

    def _graph_step(self) -> Step:
        world, ready, pushes, pool_of = self.world, self.ready, self.pushes, self.pool_of
        world.lay_out_graph()
        pending, pointers, follow = world.pending, world.follow_ptr, world.follow
        clock = world.clock

        def step(row: int) -> None:
            for position in range(pointers[row], pointers[row + 1]):
                follower = follow[position]
                pending[follower] -= 1
                if not pending[follower]:
                    ready[follower] = clock._now  # type: ignore[assignment]
                    pushes[pool_of[follower] if pool_of else 0](follower)

        return step

    def _open_pool(self, number: int, order: Order, after_done: Step | None) -> None:
        world, start, dirty, waiting = self.world, self.start, self.dirty, self.waiting
        clock, service = world.clock, world.service_ns
        entries, next_order = clock.entries, clock.next_order
        order_push, order_pop = order.push, order.pop
        free = capacity_of(world.layout.place_spec(number))
        marked = False

        def push(row: int) -> None:
            nonlocal marked
            order_push(row, clock._now)  # type: ignore[arg-type]
            waiting[number] += 1
            if free and not marked:
                marked = True
                dirty.append(dispatch)

        def dispatch() -> None:
            nonlocal free, marked
            marked = False
            now: int = clock._now  # type: ignore[assignment]
            while free:
                row = order_pop(now)
                if row < 0:
                    return
                free -= 1
                waiting[number] -= 1
                start[row] = now
                heappush(entries, (now + service[row], next_order(), done, row))

        def done(row: int) -> None:
            nonlocal free, marked
            free += 1
            if waiting[number] and not marked:
                marked = True
                dirty.append(dispatch)
            if after_done is not None:
                after_done(row)

        self.pushes.append(push)
        self.dispatches.append(dispatch)

    def arrival_step(self) -> Step:
        """What an arrival does: its run's tasks without predecessors queue."""
        pushes, pool_of = self.pushes, self.pool_of
        runs, pointers = self.world.trace.runs, self.world.trace.tasks.after_ptr
        roots = np.flatnonzero(np.diff(pointers) == 0)
        first = runs.first_task
        per_run = np.diff(np.searchsorted(roots, first))
        if (per_run == 1).all() and len(pushes) == 1 and len(roots) == self.world.trace.task_count:
            return pushes[0]  # one task a run, one pool: run number = row number
        bounds, root_rows = np.searchsorted(roots, first).tolist(), roots.tolist()

        def arrive(run: int) -> None:
            for position in range(bounds[run], bounds[run + 1]):
                row = root_rows[position]
                pushes[pool_of[row] if pool_of else 0](row)

        return arrive

    def dispatch_step(self) -> Callable[[], None]:
        dirty = self.dirty
        if len(self.pushes) == 1:
            dispatch_one = self.dispatches[0]

            def only() -> None:
                dirty.clear()
                dispatch_one()

            return only
        place = {dispatch: number for number, dispatch in enumerate(self.dispatches)}

        def every() -> None:
            while dirty:
                if len(dirty) > 1:
                    dirty.sort(key=place.__getitem__)
                batch = dirty[:]
                dirty.clear()
                for dispatch in batch:
                    dispatch()

        return every


def run(world: World, orders: list[Order], header: dict[str, Any]) -> RunLog:
    """Replay the trace; returns the same log as the general path."""
    lane = _Lane(world, orders)
    arrivals = world.trace.runs.arrival_ns.tolist()
    world.clock.drive(arrivals, lane.arrival_step(), lane.dirty, lane.dispatch_step(), world.horizon_ns)
    if world.clock.now_ns < world.horizon_ns and any(lane.waiting) and len(world.clock.entries) == 1:
        raise LawViolation("work waits in a pool with free slots and nothing is due: an order gives nothing out")
    return _log(world, lane, header)


def _is_chain(first_task: NDArray[Any], after_ptr: NDArray[Any], after: NDArray[Any]) -> bool:
    """Every task but a run's first follows exactly the one before it."""
    degree = np.diff(after_ptr)
    expected = np.ones(len(degree), dtype=np.int64)
    expected[first_task[:-1]] = 0
    return bool((degree == expected).all()) and bool((after == np.flatnonzero(expected) - 1).all())


def _log(world: World, lane: _Lane, header: dict[str, Any]) -> RunLog:
    trace, horizon_ns = world.trace, world.horizon_ns
    runs, tasks, rows = trace.runs, trace.tasks, world.rows
    run_of_row = rows.source("run")
    start = np.array(lane.start, dtype=np.int64)
    end = np.where(start >= 0, start + tasks.service_ns, -1)
    end[end > horizon_ns] = -1
    arrived = runs.arrival_ns <= horizon_ns
    ready = np.array(lane.ready, dtype=np.int64) if lane.ready else np.full(len(start), -1, dtype=np.int64)
    roots = np.diff(tasks.after_ptr) == 0
    ready[roots] = np.where(arrived, runs.arrival_ns, -1)[run_of_row[roots]]
    done = end >= 0
    first = runs.first_task[:-1]
    complete = np.logical_and.reduceat(done, first)
    finished = np.where(complete, np.maximum.reduceat(end, first), -1)
    size = len(trace)
    nothing = np.zeros(size, dtype=np.int32)
    recorder_capacity = first_capacities(world)
    world.recorder.capacity.extend(recorder_capacity)
    ended = max(
        int(finished.max(initial=0)), int(end.max(initial=0)), int(start.max(initial=0)), int(runs.arrival_ns[-1])
    )
    return RunLog(
        header=complete_header(world, header, ended, "ok"),
        names=names_of(world),
        reasons=(),
        runs=RunTable(
            **base_run_columns(trace),
            outcome=np.where(complete, Outcome.VERIFIED, Outcome.UNFINISHED).astype(np.int8),
            admitted_ns=np.where(arrived, runs.arrival_ns, -1),
            finished_ns=finished,
            submissions=arrived.astype(np.int32),
            deferrals=nothing,
            downgraded=np.zeros(size, dtype=np.bool_),
            skipped_tasks=nothing,
            rework=nothing,
            reason=np.full(size, -1, dtype=np.int32),
        ),
        rows=RowTable(
            run=run_of_row,
            task=np.arange(len(start), dtype=np.int64),
            submission=np.zeros(len(start), dtype=np.int32),
            pool=rows.source("pool").astype(np.int32),
            cls=rows.source("cls").astype(np.int32),
            tenant=rows.source("tenant").astype(np.int32),
            group=np.zeros(len(start), dtype=np.int64),
            slots=rows.source("slots"),
            estimate_ns=tasks.estimate_ns,
            cost_usd=tasks.cost_usd,
            state=np.where(done, TaskState.DONE, TaskState.PENDING).astype(np.int8),
            ready_ns=ready,
            start_ns=start,
            end_ns=end,
            attempts=(start >= 0).astype(np.int32),
        ),
        attempts=empty(AttemptTable),
        holds=empty(HoldTable),
        events=empty(EventTable),
        samples=empty(SampleTable),
        capacity=world.recorder.capacity_table(),
    )
