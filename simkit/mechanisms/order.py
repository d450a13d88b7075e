"""Orders by rank, and the queue they stand on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count
from typing import Any

from simkit.mechanisms.base import Context, Order, mechanism
from simkit.model import NS_PER_S, Task
from simkit.units import Rate


class GroupedHeap:
    """A priority queue in which whole groups can be held back.

    Gives out rows by (key, sequence of push), passing over the rows of blocked groups: exactly what a scan of the sorted queue
    that skips blocked rows would give. One heap per group, and a top heap over the heads of the groups whose stale entries are
    dropped when they come up. push, take, block, unblock: amortised O(log rows).
    """

    __slots__ = ("_blocked", "_heaps", "_next", "_size", "_top")

    def __init__(self) -> None:
        self._heaps: dict[int, list[tuple[Any, int, int]]] = {}
        self._top: list[tuple[Any, int, int]] = []  # (key, sequence, group) of group heads, some stale
        self._blocked: set[int] = set()
        self._next = count().__next__
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, key: Any, row: int, group: int) -> None:
        heap = self._heaps.get(group)
        if heap is None:
            heap = self._heaps[group] = []
        sequence = self._next()
        heappush(heap, (key, sequence, row))
        self._size += 1
        if heap[0][1] == sequence and group not in self._blocked:
            heappush(self._top, (key, sequence, group))

    def head(self) -> tuple[Any, int, int] | None:
        """(key, sequence, row) of the next unblocked row, None when there is none."""
        top, heaps, blocked = self._top, self._heaps, self._blocked
        while top:
            _, sequence, group = top[0]
            heap = heaps.get(group)
            if heap and heap[0][1] == sequence and group not in blocked:
                return heap[0]
            heappop(top)
        return None

    def take(self) -> int:
        """Take out the row that `head` names; -1 when there is none."""
        if self.head() is None:
            return -1
        group = heappop(self._top)[2]
        heap = self._heaps[group]
        row = heappop(heap)[2]
        self._size -= 1
        if heap:
            key, sequence, _ = heap[0]
            heappush(self._top, (key, sequence, group))
        else:
            del self._heaps[group]
        return row

    def block(self, group: int) -> None:
        self._blocked.add(group)

    def unblock(self, group: int) -> None:
        if group in self._blocked:
            self._blocked.discard(group)
            heap = self._heaps.get(group)
            if heap:
                key, sequence, _ = heap[0]
                heappush(self._top, (key, sequence, group))


class RankOrder(Order):
    """An order by a key that is fixed when the row becomes ready: smallest first, ties first come first served.

    Authors give `rank` (or, to read columns themselves, `key`). O(log n) per step.
    """

    parks = True

    def rank(self, task: Task, now_s: float) -> Any:
        """The key of a task that became ready now; smaller is served earlier."""
        raise NotImplementedError

    def key(self, row: int, now_ns: int) -> Any:
        """The same from the row number."""
        return self.rank(self._context.task(row), now_ns / NS_PER_S)

    def bind(self, context: Context) -> None:
        self._context = context
        if context.grouped:
            self._heap = GroupedHeap()
            self._group = context.rows.group
            self.block, self.unblock = self._heap.block, self._heap.unblock  # type: ignore[method-assign]
        else:
            self._bind_plain()

    def _bind_plain(self) -> None:
        """One heap, closures over locals: the hot path of large simulations."""
        heap: list[tuple[Any, int, int]] = []
        sequence, key = count().__next__, self.key

        def push(row: int, now_ns: int) -> None:
            heappush(heap, (key(row, now_ns), sequence(), row))

        def pop(now_ns: int) -> int:
            return heappop(heap)[2] if heap else -1

        self._heap = heap  # type: ignore[assignment]
        self.push, self.pop = push, pop  # type: ignore[method-assign]

    def push(self, row: int, now_ns: int) -> None:
        self._heap.push(self.key(row, now_ns), row, self._group[row])

    def head(self, now_ns: int) -> int:
        entry = self._heap.head()
        return -1 if entry is None else entry[2]

    def take(self, now_ns: int) -> int:
        return self._heap.take()

    def pop(self, now_ns: int) -> int:
        return self._heap.take()

    def __len__(self) -> int:
        return len(self._heap)


@mechanism("fifo")
@dataclass(eq=False)
class Fifo(RankOrder):
    """First come, first served: by the time a task became ready, ties by the order in which they did.

    No parameters. O(1) per step. The baseline of the ladder; M/M/c and M/G/1 results hold for it (Erlang 1917, Pollaczek 1930).
    """

    def key(self, row: int, now_ns: int) -> int:
        return now_ns

    def _bind_plain(self) -> None:
        queue: deque[int] = deque()
        append, popleft = queue.append, queue.popleft

        def push(row: int, now_ns: int) -> None:
            append(row)

        def pop(now_ns: int) -> int:
            return popleft() if queue else -1

        self._heap = queue  # type: ignore[assignment]
        self.push, self.pop = push, pop  # type: ignore[method-assign]


@mechanism("lifo")
@dataclass(eq=False)
class Lifo(RankOrder):
    """Last come, first served (not preemptive). O(log n).

    No parameters. Under overload with impatient clients it serves those who still wait; under FIFO everybody is late. Mean wait
    equals FIFO's, its variance is larger (Kingman 1962).
    """

    def bind(self, context: Context) -> None:
        super().bind(context)
        self._pushed = count().__next__

    def _bind_plain(self) -> None:
        stack: list[int] = []
        append, pop_last = stack.append, stack.pop

        def push(row: int, now_ns: int) -> None:
            append(row)

        def pop(now_ns: int) -> int:
            return pop_last() if stack else -1

        self._heap = stack  # type: ignore[assignment]
        self.push, self.pop = push, pop  # type: ignore[method-assign]

    def key(self, row: int, now_ns: int) -> int:
        return -self._pushed()


@mechanism("strict_priority")
@dataclass(eq=False)
class StrictPriority(RankOrder):
    """The most urgent first (larger priority), first come first served within a priority; a running task is not interrupted.

    No parameters. O(log n). Mean waits follow Cobham (1954): W_k = W_0 / ((1 - s_{k-1}) (1 - s_k)). Starves lower priorities
    whenever the higher ones fill the pool.
    """

    def bind(self, context: Context) -> None:
        self._urgency = context.rows.derive(-context.rows.source("priority"))
        super().bind(context)

    def key(self, row: int, now_ns: int) -> int:
        key: int = self._urgency[row]
        return key

    def _bind_plain(self) -> None:
        heap: list[tuple[int, int, int]] = []
        sequence, urgency = count().__next__, self._urgency

        def push(row: int, now_ns: int) -> None:
            heappush(heap, (urgency[row], sequence(), row))

        def pop(now_ns: int) -> int:
            return heappop(heap)[2] if heap else -1

        self._heap = heap  # type: ignore[assignment]
        self.push, self.pop = push, pop  # type: ignore[method-assign]


@mechanism("aging")
@dataclass(eq=False)
class Aging(RankOrder):
    """Priority plus a bonus that grows with waiting: effective = priority + rate x wait, the largest first.

    All tasks gain at the same rate, so their order never changes while they wait, and the rule is the static key
    ``rate x ready - priority`` (whole numbers here: no float ties). The bonus has no cap: a cap would let order change with time and
    starve again what reached it. A task with a gap g to a higher priority is overtaken only by tasks that become ready within
    g / rate after it.

    Parameters: `rate`, priority points per time, e.g. ``1/min``. O(log n).
    """

    rate: Rate = 1 / 60

    def bind(self, context: Context) -> None:
        per_ns = Fraction(self.rate).limit_denominator(10**9) / NS_PER_S
        self._slope, scale = per_ns.numerator, per_ns.denominator
        self._base = context.rows.derive([-int(priority) * scale for priority in context.rows.source("priority")])
        super().bind(context)

    def key(self, row: int, now_ns: int) -> int:
        key: int = self._base[row] + self._slope * now_ns
        return key


@mechanism("sjf")
@dataclass(eq=False)
class ShortestJobFirst(RankOrder):
    """The smallest estimated work first (estimate x slots), not preemptive; goes by estimates, never by true service times.

    No parameters. O(log n). Minimises the mean wait among non-preemptive orders when estimates are right (Cox and Smith 1961);
    long tasks may starve.
    """

    def bind(self, context: Context) -> None:
        rows = context.rows
        self._work = rows.derive(rows.source("estimate_ns") * rows.source("slots"))
        super().bind(context)

    def key(self, row: int, now_ns: int) -> int:
        key: int = self._work[row]
        return key
