"""A pool: slots served in the order its discipline names. An API that tasks queue for is a pool of its concurrency."""

from __future__ import annotations

from collections import deque
from heapq import nsmallest
from typing import TYPE_CHECKING

from simkit.engine.gates import SLOTS
from simkit.engine.tables import UNLIMITED_SLOTS
from simkit.mechanisms.base import Backfill, Order
from simkit.model import Drop, Hold

if TYPE_CHECKING:
    from simkit.engine.world import Counter, World

_BACKFILL_DEPTH = 100


class Pool:
    """Slots of one capability. `used` may exceed `capacity` only after a fault shrank it."""

    def __init__(self, world: World, number: int, name: str, capacity: int, backfill: Backfill | None) -> None:
        self.number, self.name = number, name
        self.capacity = self.nominal = capacity
        self.unlimited = capacity >= UNLIMITED_SLOTS
        self.used = 0
        self.order: Order
        self.marked = False
        self.stalled = False
        self.slow = 1.0
        self.waiting = 0
        self.queued_work_ns = 0
        self.open_holds: dict[int, tuple[str, int]] = {}
        self._world = world
        self._backfill = backfill
        self._stuck_on: set[Pool] = set()  # pools whose head waits for slots of this one
        self._waits_for_own = False  # groups are parked until slots of this pool free up
        self.waiting_counters: list[Counter] = []
        self.running_counters: list[Counter] = []
        self.tracks_age = False  # somebody may ask for the age of the oldest waiting row
        self._by_age: deque[tuple[int, int]] = deque()
        self._slots, self._estimate_ns = world.rows.slots, world.rows.estimate_ns
        self._queued, self._ready_ns = world.queued, world.ready_ns
        self.tells_finished = False

    def take_order(self, order: Order) -> None:
        """The discipline of this pool (bound already)."""
        self.order = order
        inner = getattr(order, "inner", order)
        self.tells_finished = type(inner).finished is not Order.finished

    # --- queueing ---

    def push(self, row: int, now_ns: int) -> None:
        """`row` queues."""
        self.order.push(row, now_ns)
        self._queued[row] = True
        self._ready_ns[row] = now_ns
        self.waiting += 1
        self.queued_work_ns += self._slots[row] * self._estimate_ns[row]
        if self.tracks_age:
            self._by_age.append((now_ns, row))
            if len(self._by_age) > 64 + 2 * self.waiting:
                self.oldest_wait_ns()  # drops what has left
        for counter in self.waiting_counters:
            counter.add(row, 1)
        if self.capacity > self.used and not self.marked:
            self.marked = True
            self._world.dirty.append(self)

    def forget(self, row: int) -> None:
        """`row` leaves the queue unserved (its order skips it when it comes up)."""
        self._left_queue(row)
        self.order.remove(row)
        self._tell_left(row)

    def _left_queue(self, row: int) -> None:
        self._queued[row] = False
        self.waiting -= 1
        self.queued_work_ns -= self._slots[row] * self._estimate_ns[row]
        for counter in self.waiting_counters:
            counter.add(row, -1)

    def _tell_left(self, row: int) -> None:
        """Limits that count waiting rows hear that `row` went without starting."""
        now_ns = self._world.clock.now_ns
        for left in self._world.attempts_part.leavers:
            left(row, now_ns)

    def oldest_wait_ns(self) -> int:
        """Age of the oldest waiting row. Amortised O(1): rows that left are dropped from the front once."""
        by_age, world = self._by_age, self._world
        while by_age:
            since_ns, row = by_age[0]
            if world.queued[row] and world.ready_ns[row] == since_ns:
                return world.clock.now_ns - since_ns
            by_age.popleft()
        return 0

    # --- starting ---

    def dispatch(self) -> None:
        """Start rows until slots, order or limits say stop."""
        if self.stalled or self.used >= self.capacity:
            return
        world, order = self._world, self.order
        now_ns = world.clock._now
        shapes, shape_of, queued = world.layout.shapes, world.shape, world.queued
        refusal, start = world.gates.refusal, world.attempts_part.start
        while self.used < self.capacity:
            row = order.head(now_ns)
            if row < 0:
                return
            if not queued[row]:
                order.take(now_ns)
                continue
            shape = shapes[shape_of[row]]
            if shape.slots > self.capacity - self.used:
                if not self._pass_by(row, now_ns):
                    return
                continue
            objection = refusal(row, shape, now_ns)
            if objection is None:
                order.take(now_ns)
                self._left_queue(row)
                start(row, self, shape)
            elif not self._refused(row, objection, now_ns):
                return

    def _refused(self, row: int, objection: tuple[int, Hold | Drop], now_ns: int) -> bool:
        """Deal with an objection to the head; False when the pool must wait for other slots."""
        limit, answer = objection
        if isinstance(answer, Drop):
            # A dropped row has had its turn: a fair order charges its flow, as in the papers, where tags are given on arrival.
            self.order.take(now_ns)
            self._left_queue(row)
            self._tell_left(row)
            self._world.lifecycle.drop(row, answer.reason)
            return True
        if limit == SLOTS:
            other = self._world.pools[answer.key]  # type: ignore[call-overload]
            if not (self._backfill and self._backfill.overtakes):
                other._stuck_on.add(self)
                return False
            other._waits_for_own = True
        self._world.gates.park(self, self._world.rows.group[row], limit, answer, now_ns)
        return True

    def _pass_by(self, row: int, now_ns: int) -> bool:
        """The head does not fit: may others pass? True = look at the next head."""
        backfill = self._backfill
        if backfill is None or not backfill.overtakes:
            return False
        if backfill.reserves:
            self._plan(row, backfill, now_ns)
            return False
        self._waits_for_own = True
        hold = Hold(self.number, f"pool:{self.name}")
        self._world.gates.park(self, self._world.rows.group[row], SLOTS, hold, now_ns)
        return True

    def _plan(self, head: int, backfill: Backfill, now_ns: int) -> None:
        """EASY: promise the head its earliest start by the estimates, then let later rows go that do not move it."""
        world, order = self._world, self.order
        shapes, shape_of, group = world.layout.shapes, world.shape, world.rows.group
        shadow_ns, extra = self._reservation(shapes[shape_of[head]].slots, now_ns)
        passed = [group[head]]
        order.block(group[head])
        for _ in range(getattr(backfill, "depth", _BACKFILL_DEPTH)):
            row = order.head(now_ns)
            if row < 0 or self.used >= self.capacity:
                break
            shape = shapes[shape_of[row]]
            if not world.queued[row]:
                order.take(now_ns)
                continue
            fits = shape.slots <= self.capacity - self.used
            if fits and backfill.may_overtake(row, shape.slots, now_ns, shadow_ns, extra):
                objection = world.gates.refusal(row, shape, now_ns)
                if objection is None:
                    if now_ns + world.rows.estimate_ns[row] > shadow_ns:
                        extra -= shape.slots
                    order.take(now_ns)
                    self._left_queue(row)
                    world.attempts_part.start(row, self, shape)
                    continue
                if isinstance(objection[1], Drop) or objection[0] != SLOTS:
                    self._refused(row, objection, now_ns)
                    continue
            passed.append(group[row])
            order.block(group[row])
        for number in passed:
            order.unblock(number)

    def _reservation(self, slots: int, now_ns: int) -> tuple[int, int]:
        """(earliest time at which `slots` are free if estimates hold, slots left over then)."""
        world = self._world
        ends = []
        for row in world.attempts_part.running_in(self.number):
            expected_ns = max(world.start_ns[row] + world.rows.estimate_ns[row], now_ns)
            ends.append((expected_ns, world.rows.slots[row]))
        free = self.capacity - self.used
        for end_ns, freed in nsmallest(len(ends), ends):
            free += freed
            if free >= slots:
                return end_ns, free - slots
        return now_ns, 0

    # --- slots ---

    def take_slots(self, slots: int) -> None:
        self.used += slots

    def free_slots(self, slots: int) -> None:
        """Slots are given back: whoever waits for them is looked at again."""
        self.used -= slots
        if self._stuck_on or self._waits_for_own:
            self.slots_changed()
        elif self.waiting and not self.marked:
            self.marked = True
            self._world.dirty.append(self)

    def slots_changed(self) -> None:
        world = self._world
        if self.waiting:
            world.mark(self)
        if self._stuck_on:
            for pool in sorted(self._stuck_on, key=lambda other: other.number):
                world.mark(pool)
            self._stuck_on.clear()
        if self._waits_for_own:
            self._waits_for_own = False
            world.gates.wake(SLOTS, self.number)
