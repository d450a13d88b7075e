"""Pools of the express lane: closures over plain lists, in two kinds. The plain one keeps no counts; the watched one keeps what
mechanisms may ask for, and asks the limits before it starts a row."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappush
from typing import TYPE_CHECKING

from simkit.engine.tables import UNLIMITED_SLOTS
from simkit.mechanisms.base import Limit, Order
from simkit.model import Drop

if TYPE_CHECKING:
    from simkit.engine.express import ExpressLane, Step
    from simkit.engine.world import Counter, World


class ExpressPool:
    """One-slot tasks only. Has the attributes of `simkit.engine.pool.Pool` that gates, counters and the view use."""

    __slots__ = (
        "_by_age", "_lane", "_world", "capacity", "dispatch", "marked", "name", "number", "open_holds", "order", "push", "queued_work_ns",
        "running_counters", "settle", "unlimited", "used", "waiting", "waiting_counters",
    )  # fmt: skip

    def __init__(self, number: int, name: str, capacity: int) -> None:
        self.number, self.name, self.capacity = number, name, capacity
        self.order: Order
        self.unlimited = capacity >= UNLIMITED_SLOTS
        self.used = self.waiting = self.queued_work_ns = 0
        self.marked = False
        self.open_holds: dict[int, tuple[str, int]] = {}
        self.waiting_counters: list[Counter] = []
        self.running_counters: list[Counter] = []
        self._by_age: deque[int] = deque()
        self.push: Step
        self.dispatch: Callable[[], None]
        self.settle: Callable[[], None] = _nothing

    def oldest_wait_ns(self) -> int:
        """Age of the oldest waiting row. Amortised O(1): rows that left are dropped from the front once."""
        by_age, lane = self._by_age, self._lane
        while by_age:
            row = by_age[0]
            if lane.start[row] < 0 and row not in lane.outcomes.dropped_rows:
                ready: int = lane.ready[row] if lane.ready else self._world.rows.arrival_ns[row]
                return self._world.clock.now_ns - ready
            by_age.popleft()
        return 0

    def serve_plain(self, world: World, lane: ExpressLane, after_done: Step | None) -> None:
        """Push and dispatch where nothing is held back and nobody looks: the counts are cells of the closures, told by `settle`."""
        start, dirty, clock, service = lane.start, world.dirty, world.clock, world.service_ns
        entries, next_order, mark = clock.entries, clock.next_order, world.dirty.append
        order_push, order_pop = self.order.push, self.order.pop
        free, waiting, marked, pool = self.capacity, 0, False, self

        def push(row: int) -> None:
            nonlocal waiting, marked
            order_push(row, clock._now)
            waiting += 1
            if free and not marked:
                marked = True
                mark(pool)

        def dispatch() -> None:
            nonlocal free, waiting, marked
            marked = False
            now = clock._now
            while free and waiting:
                row = order_pop(now)
                if row < 0:
                    return
                free -= 1
                waiting -= 1
                start[row] = now
                heappush(entries, (now + service[row], next_order(), done, row))

        def done(row: int) -> None:
            nonlocal free, marked
            free += 1
            if waiting and not marked:
                marked = True
                dirty.append(pool)
            if after_done is not None:
                after_done(row)

        def settle() -> None:
            pool.waiting, pool.used = waiting, pool.capacity - free

        self.push, self.dispatch, self.settle = push, dispatch, settle

    def serve_watched(self, world: World, lane: ExpressLane, after_done: Step | None, limits: list[Limit]) -> None:
        """Push and dispatch with counts kept and limits asked."""
        self._world, self._lane = world, lane
        start, dirty, clock, service = lane.start, world.dirty, world.clock, world.service_ns
        entries, next_order, estimate_ns = clock.entries, clock.next_order, world.rows.estimate_ns
        order_push, pool, capacity = self.order.push, self, self.capacity
        head, take = (self.order.head, self.order.take) if limits else (self.order.pop, None)
        aged, waits, runs = self._by_age.append, self.waiting_counters, self.running_counters
        holds = [(limit.hold, id(limit)) for limit in limits]
        starts = [limit.start for limit in limits if type(limit).start is not Limit.start]
        finishes = [limit.finish for limit in limits if type(limit).finish is not Limit.finish]
        refused = self._refused

        def push(row: int) -> None:
            order_push(row, clock._now)
            pool.waiting += 1
            pool.queued_work_ns += estimate_ns[row]
            aged(row)
            for counter in waits:
                counter.add(row, 1)
            if pool.used < capacity and not pool.marked:
                pool.marked = True
                dirty.append(pool)

        def dispatch() -> None:
            now = clock._now
            while pool.used < capacity:
                row = head(now)
                if row < 0:
                    return
                for hold, limit in holds:
                    answer = hold(row, now)
                    if answer is not None:
                        refused(row, limit, answer, now)
                        break
                else:
                    if take is not None:
                        take(now)
                    pool.waiting -= 1
                    pool.queued_work_ns -= estimate_ns[row]
                    for counter in waits:
                        counter.add(row, -1)
                    pool.used += 1
                    for begin in starts:
                        begin(row, now)
                    for counter in runs:
                        counter.add(row, 1)
                    start[row] = now
                    heappush(entries, (now + service[row], next_order(), done, row))

        def done(row: int) -> None:
            pool.used -= 1
            for counter in runs:
                counter.add(row, -1)
            for finish in finishes:
                finish(row, clock._now)
            if pool.waiting and not pool.marked:
                pool.marked = True
                dirty.append(pool)
            if after_done is not None:
                after_done(row)

        self.push, self.dispatch = push, dispatch

    def _refused(self, row: int, limit: int, answer: object, now_ns: int) -> None:
        """A limit holds the head's group back, or drops the head."""
        world = self._world
        if isinstance(answer, Drop):
            self.order.take(now_ns)
            self.waiting -= 1
            self.queued_work_ns -= world.rows.estimate_ns[row]
            for counter in self.waiting_counters:
                counter.add(row, -1)
            for known in world.mechanisms.limits:
                if type(known).left is not Limit.left:
                    known.left(row, now_ns)
            run = world.rows.run[row]
            world.recorder.event(now_ns, "dropped", run, row, answer.reason)
            self._lane.outcomes.drop(run, row, now_ns, answer.reason)
        else:
            world.gates.park(self, world.rows.group[row], limit, answer, now_ns)  # type: ignore[arg-type]


def _nothing() -> None:
    """A watched pool keeps its counts as it goes."""
