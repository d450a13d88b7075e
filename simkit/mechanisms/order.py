"""Orders by rank: `RankOrder`, and fifo, lifo, strict_priority, aging, sjf."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any

from simkit.mechanisms.base import Context, Order, mechanism
from simkit.mechanisms.bucket import exact_rate
from simkit.mechanisms.queues import Entry, GroupedFifo, GroupedHeap
from simkit.model import NS_PER_S, Task, UsageError
from simkit.units import Rate


class RankOrder(Order):
    """An order by a key that is fixed when the row becomes ready: smallest first, ties first come first served.

    Authors give `rank`, from a `Task`; or `key`, to read the columns themselves (whole numbers make ties exact). O(log n) per step.
    Without limits push and pop are closures over one heap; otherwise a `GroupedHeap` parks what is held back.
    """

    parks = True
    _queue: Any

    def rank(self, task: Task, now_s: float) -> Any:
        """The key of a task that becomes ready now; smaller is served earlier."""
        raise NotImplementedError

    def key(self, row: int, now_ns: int) -> Any:
        """The same from the row number."""
        rank = self.rank(self._context.task(row), now_ns / NS_PER_S)
        if rank != rank:  # NaN: a heap would lose its order without a word
            raise UsageError(f"order {self.mechanism_name or type(self).__name__}: the rank of row {row} is {rank!r}")
        return rank

    def bind(self, context: Context) -> None:
        self._context = context
        if context.grouped:
            self._queue = GroupedHeap()
            self._group = context.rows.group
        else:
            self._bind_plain()

    def _bind_plain(self) -> None:
        """One heap, closures over locals: the hot path of large simulations."""
        heap: list[Entry] = []
        sequence, key = count().__next__, self.key

        def push(row: int, now_ns: int) -> None:
            heappush(heap, (key(row, now_ns), sequence(), row))

        self._serve_from(heap, push)

    def _serve_from(self, heap: list[Entry], push: Any) -> None:
        """Install `push` and the way out of a plain heap."""

        def pop(now_ns: int) -> int:
            return heappop(heap)[2] if heap else -1

        def head(now_ns: int) -> int:
            return heap[0][2] if heap else -1

        self._queue = heap
        self.push, self.pop, self.take, self.head = push, pop, pop, head  # type: ignore[method-assign]

    def push(self, row: int, now_ns: int) -> None:
        self._queue.push(self.key(row, now_ns), row, self._group[row])

    def head(self, now_ns: int) -> int:
        entry = self._queue.head()
        return -1 if entry is None else entry[2]

    def take(self, now_ns: int) -> int:
        row: int = self._queue.take()
        return row

    pop = take

    def __len__(self) -> int:
        return len(self._queue)

    def block(self, group: int) -> None:
        self._queue.block(group)

    def unblock(self, group: int) -> None:
        self._queue.unblock(group)


@mechanism("fifo")
@dataclass(eq=False)
class Fifo(RankOrder):
    """First come, first served: by the time at which a task became ready, ties by the order in which they did.

    No parameters. O(1) per step (O(log groups) when limits hold groups back). The baseline of the ladder; M/M/c and M/G/1 results
    hold for it (Erlang 1917; Pollaczek 1930, Khinchine 1932). Starts are in order; on several slots ends need not be.
    """

    def bind(self, context: Context) -> None:
        super().bind(context)
        if context.grouped:
            self._queue, self._count = GroupedFifo(), count().__next__

    def push(self, row: int, now_ns: int) -> None:
        self._queue.push(self._count(), row, self._group[row])

    def head(self, now_ns: int) -> int:
        entry = self._queue.head()
        return -1 if entry is None else entry[1]

    def _bind_plain(self) -> None:
        queue: deque[int] = deque()
        append, popleft = queue.append, queue.popleft

        def push(row: int, now_ns: int) -> None:
            append(row)

        def pop(now_ns: int) -> int:
            return popleft() if queue else -1

        def head(now_ns: int) -> int:
            return queue[0] if queue else -1

        self._queue = queue
        self.push, self.pop, self.take, self.head = push, pop, pop, head  # type: ignore[method-assign]


@mechanism("lifo")
@dataclass(eq=False)
class Lifo(RankOrder):
    """Last come, first served; a running task is not interrupted.

    No parameters. O(1) per step (amortised O(log n) when limits hold groups back). Under overload with impatient clients it serves those who still
    wait, where first come first served is late for everybody. The mean wait equals FIFO's, the variance is larger (Kingman 1962).
    """

    def bind(self, context: Context) -> None:
        self._count = count().__next__
        super().bind(context)

    def key(self, row: int, now_ns: int) -> int:
        return -self._count()

    def _bind_plain(self) -> None:
        stack: list[int] = []
        append, pop_last = stack.append, stack.pop

        def push(row: int, now_ns: int) -> None:
            append(row)

        def pop(now_ns: int) -> int:
            return pop_last() if stack else -1

        def head(now_ns: int) -> int:
            return stack[-1] if stack else -1

        self._queue = stack
        self.push, self.pop, self.take, self.head = push, pop, pop, head  # type: ignore[method-assign]


@mechanism("strict_priority")
@dataclass(eq=False)
class StrictPriority(RankOrder):
    """The most urgent first (larger priority), first come first served within a priority; a running task is not interrupted.

    No parameters. O(log n). Mean waits follow Cobham (1954): W_k = W_0 / ((1 - s_{k-1}) (1 - s_k)) with s_k the load of the priorities down
    to k. Starves lower priorities for as long as higher ones fill the pool; there is no bound on the wait.
    """

    def bind(self, context: Context) -> None:
        self._priority = context.rows.priority
        super().bind(context)

    def key(self, row: int, now_ns: int) -> int:
        key: int = -self._priority[row]
        return key

    def _bind_plain(self) -> None:
        heap: list[Entry] = []
        sequence, priority, add = count().__next__, self._priority, heappush

        def push(row: int, now_ns: int) -> None:
            add(heap, (-priority[row], sequence(), row))

        self._serve_from(heap, push)


@mechanism("aging")
@dataclass(eq=False)
class Aging(RankOrder):
    """Priority plus a bonus that grows with waiting: effective = priority + rate x wait, the largest first.

    All tasks gain at the same rate, so the order of two waiting tasks never changes, and the rule is the static key
    ``rate x ready - priority``, smallest first (whole numbers here, so ties are ties). The bonus has no cap on purpose: with one, order changes
    with time (no static key), and among those that reached it the old starvation returns.

    Bound: a task with gap g to a higher priority is overtaken only by tasks that became ready less than g / rate after it.

    Parameters: `rate`, priority points per time, e.g. ``1/min`` (default). O(log n). Source: linear aging; Kleinrock's time-dependent priorities
    (1964) with one common slope.
    """

    rate: Rate = 1 / 60

    def bind(self, context: Context) -> None:
        per_ns = exact_rate(self.rate) / NS_PER_S
        self._slope, self._scale = per_ns.numerator, per_ns.denominator
        self._priority = context.rows.priority
        super().bind(context)

    def key(self, row: int, now_ns: int) -> int:
        key: int = self._slope * now_ns - self._scale * self._priority[row]
        return key


@mechanism("sjf")
@dataclass(eq=False)
class ShortestJobFirst(RankOrder):
    """The smallest estimated work first (estimate x slots); a running task is not interrupted. It goes by estimates, never by true times.

    No parameters. O(log n). On one slot with right estimates no order that does not interrupt has a smaller mean wait (Smith 1956 for a given
    set; Phipps 1956 for a queue). Long tasks may starve; wrong estimates cost what they promise.
    """

    def bind(self, context: Context) -> None:
        self._estimate_ns, self._slots = context.rows.estimate_ns, context.rows.slots
        super().bind(context)

    def key(self, row: int, now_ns: int) -> int:
        key: int = self._estimate_ns[row] * self._slots[row]
        return key
