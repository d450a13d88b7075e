"""The express lane: the same rules where a task's life is queue, start, end.

It serves simulations of plain pools and one-slot tasks without clients, faults, APIs, retries, defects or budgets; limits, admission and overload
modes may be in force. Then nothing fails or is repeated, and everything else follows from the start times. The general path gives the same
log, more slowly (a test holds the two against each other, column by column); this one exists because the largest simulations are such.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simkit.engine.express_door import ExpressDoor
from simkit.engine.express_log import Outcomes, express_log
from simkit.engine.express_pool import ExpressPool
from simkit.engine.outcome import first_capacities
from simkit.engine.tables import capacity_of
from simkit.mechanisms.base import Limit, Order
from simkit.model import LawViolation

if TYPE_CHECKING:
    from simkit.engine.world import World
    from simkit.log import RunLog
    from simkit.policy import Policy

Step = Callable[[int], None]


def applies(world: World, policy: Policy) -> bool:
    """True when nothing in the platform, the policy or the trace needs the general path."""
    trace = world.trace
    if policy.retry or policy.backfill or policy.coalesce or len(trace) == 0:
        return False
    if world.clients or world.faults or world.platform.budgets or trace.runs.defect_p.any():
        return False
    if any(shape.slots != 1 or shape.others or shape.calls for shape in world.layout.shapes):
        return False
    specs = (policy.order, *policy.order_by_pool.values())
    if any(spec.cls.finished is not Order.finished for spec in specs):
        return False
    if (policy.admission or policy.overload) and _has_envelope(world):
        return False
    return not policy.limits or _is_chain(trace.runs.first_task, trace.tasks.after_ptr, trace.tasks.after)


def _has_envelope(world: World) -> bool:
    """Whether an admission could change what a run does: optional tasks, verifications, tiers."""
    tasks = world.trace.tasks
    return bool(tasks.optional.any() or tasks.verifies.any() or (tasks.tier >= 0).any())


def _is_chain(first_task: NDArray[Any], after_ptr: NDArray[Any], after: NDArray[Any]) -> bool:
    """Every task but a run's first follows exactly the one before it."""
    degree = np.diff(after_ptr)
    expected = np.ones(len(degree), dtype=np.int64)
    expected[first_task[:-1]] = 0
    return bool((degree == expected).all()) and bool((after == np.flatnonzero(expected) - 1).all())


class ExpressLane:
    """One run of the lane: pools, steps and what they write."""

    def __init__(self, world: World) -> None:
        self.world = world
        mechanisms = world.mechanisms
        self.governed = bool(mechanisms.admission or mechanisms.overload)
        """Somebody may look at any pool."""
        size = world.trace.task_count
        self.start = array("q", [-1]) * size
        self.ready = array("q")
        self.outcomes = Outcomes()
        self.door = ExpressDoor(world, self.outcomes) if mechanisms.admission or mechanisms.overload else None
        self._linked = len(world.trace.tasks.after) > 0
        if self._linked or self.door is not None:
            self.ready = array("q", [-1]) * size

    def open_pools(self) -> None:
        """Make the pools, still without orders (mechanisms are bound to pools that are there)."""
        world = self.world
        for number, name in enumerate(world.platform.places):
            capacity = capacity_of(world.layout.place_spec(number))
            world.pools.append(ExpressPool(number, name, capacity))  # type: ignore[arg-type]
        world.recorder.capacity.extend(first_capacities(world))

    def limits_of(self, place: int) -> list[Limit]:
        """The limits that may hold rows in a place (after they were bound)."""
        return [limit for limit in self.world.mechanisms.limits if limit.watches(place)]

    def run(self, header: dict[str, Any]) -> RunLog:
        """Replay the trace; returns the same log as the general path."""
        world = self.world
        pools: list[ExpressPool] = world.pools  # type: ignore[assignment]
        after_done = self._after_done(pools)
        for pool in pools:
            limits = self.limits_of(pool.number)
            if self.governed or limits:
                pool.serve_watched(world, self, after_done, limits)
            else:
                pool.serve_plain(world, self, after_done)
        arrivals = world.trace.runs.arrival_ns.tolist()
        world.clock.drive(
            arrivals, self._arrival_step(pools), world.dirty, self._dispatch_step(pools), world.horizon_ns
        )
        for pool in pools:
            pool.settle()
        world.gates.close_all(min(world.clock.now_ns, world.horizon_ns))
        return express_log(world, self, header, self._is_stuck(pools))

    def _is_stuck(self, pools: list[ExpressPool]) -> bool:
        """Work is left and nothing is due; without limits that is an order that keeps its rows to itself."""
        world = self.world
        left = any(pool.waiting for pool in pools) or (self.door is not None and self.door.deferred > 0)
        stuck = left and len(world.clock.entries) == 1 and not world.clock.arrivals_left
        if stuck and not world.gates.holding and world.clock.now_ns < world.horizon_ns:
            raise LawViolation("work waits in a pool with free slots and nothing is due: an order gives nothing out")
        return stuck

    # --- what follows a task's end: nothing, the next of a chain, or a general graph ---

    def _after_done(self, pools: list[ExpressPool]) -> Step | None:
        if not self._linked:
            return None
        trace = self.world.trace
        if _is_chain(trace.runs.first_task, trace.tasks.after_ptr, trace.tasks.after):
            return self._chain_step(pools)
        return self._graph_step(pools)

    def _chain_step(self, pools: list[ExpressPool]) -> Step:
        world = self.world
        last = np.zeros(world.trace.task_count, dtype=np.uint8)
        last[world.trace.runs.first_task[1:] - 1] = 1
        last_of_run = last.tobytes()
        ready, pool_of, clock = self.ready, world.rows.pool, world.clock
        pushes: list[Step] = []

        def step(row: int) -> None:
            if not last_of_run[row]:
                row += 1
                ready[row] = clock._now
                if not pushes:  # the pools are open by now
                    pushes.extend(pool.push for pool in pools)
                pushes[pool_of[row]](row)

        return step

    def _graph_step(self, pools: list[ExpressPool]) -> Step:
        world, ready = self.world, self.ready
        world.lay_out_graph()
        pending, pointers, follow = world.pending, world.follow_ptr, world.follow
        pool_of, clock = world.rows.pool, world.clock

        def step(row: int) -> None:
            for position in range(pointers[row], pointers[row + 1]):
                follower = follow[position]
                pending[follower] -= 1
                if not pending[follower]:
                    ready[follower] = clock._now
                    pools[pool_of[follower]].push(follower)

        return step

    # --- arrivals and dispatch ---

    def _arrival_step(self, pools: list[ExpressPool]) -> Step:
        """What an arrival does: its run's tasks without predecessors queue, if the door agrees."""
        release = self._release_step(pools)
        if self.door is None:
            return release
        roots, ready, clock = self._roots(), self.ready, self.world.clock
        bounds, rows = roots

        def admit(run: int) -> None:
            for position in range(bounds[run], bounds[run + 1]):
                ready[rows[position]] = clock._now
            release(run)

        return self.door.step(admit)

    def _release_step(self, pools: list[ExpressPool]) -> Step:
        trace = self.world.trace
        if len(pools) == 1 and trace.task_count == len(trace):
            return pools[0].push  # one task a run, one pool: run number = row number
        pool_of = self.world.rows.pool
        if not self._linked and trace.task_count == len(trace):
            return lambda run: pools[pool_of[run]].push(run)
        bounds, rows = self._roots()

        def release(run: int) -> None:
            for position in range(bounds[run], bounds[run + 1]):
                row = rows[position]
                pools[pool_of[row]].push(row)

        return release

    def _roots(self) -> tuple[list[int], list[int]]:
        """(bounds per run, rows): the tasks of each run that wait for nothing."""
        trace = self.world.trace
        roots = np.flatnonzero(np.diff(trace.tasks.after_ptr) == 0)
        return np.searchsorted(roots, trace.runs.first_task).tolist(), roots.tolist()

    def _dispatch_step(self, pools: list[ExpressPool]) -> Callable[[], None]:
        if len(pools) > 1:
            return self.world.dispatch
        dirty, only = self.world.dirty, pools[0]
        dispatch_one = only.dispatch

        def dispatch() -> None:
            dirty.clear()
            only.marked = False
            dispatch_one()
            while dirty:
                dirty.clear()
                only.marked = False
                dispatch_one()

        return dispatch
