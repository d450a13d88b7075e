"""Queues in which whole groups of rows can be held back: what orders with limits stand on."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

Entry = tuple[Any, int, int]
"""(key, sequence of the push, row): entries compare by key, then first come first served; the row is never compared."""

_NO_GROUP, _SEVERAL = -1, -2
_SLACK = 64  # stale entries that are not worth a clean-up


class GroupedHeap:
    """A priority queue in which whole groups of rows can be held back.

    Gives out rows by (key, sequence of push), passing over the rows of blocked groups: exactly what a scan of the sorted queue
    that skips blocked rows gives. One heap per group with rows in it, and a heap over the heads of the groups, whose outdated entries
    are dropped when they come up or outnumber the groups. As long as all rows are of one group it is one plain heap.
    push, take, block, unblock: O(log rows), amortised. Memory: O(rows).
    """

    __slots__ = ("_blocked", "_heaps", "_next", "_only", "_ready", "_size", "_solo", "_top")

    def __init__(self) -> None:
        self._solo: list[Entry] = []  # the rows, as long as all are of the group `_only`
        self._only = _NO_GROUP
        self._heaps: dict[int, list[Entry]] = {}  # once there are several groups: those with rows
        self._top: list[tuple[Any, int, int]] = []  # (key, sequence, group) of the heads of groups, some outdated
        self._blocked: set[int] = set()
        self._ready = False  # the head of `_top` is known to be right
        self._size = 0  # rows in `_heaps`
        self._next = count().__next__

    def __len__(self) -> int:
        return self._size + len(self._solo)

    def push(self, key: Any, row: int, group: int) -> None:
        """Add `row` (any number; each push is an entry of its own)."""
        if group == self._only:
            heappush(self._solo, (key, self._next(), row))
        elif self._only == _SEVERAL:
            self._push(key, row, group)
        elif not self._solo:
            self._only = group
            self._solo.append((key, self._next(), row))
        else:
            self._spread()
            self._push(key, row, group)

    def _push(self, key: Any, row: int, group: int) -> None:
        entry = (key, self._next(), row)
        self._size += 1
        heap = self._heaps.get(group)
        if heap is None:
            heap = self._heaps[group] = [entry]
        else:
            heappush(heap, entry)
            if heap[0] is not entry:
                return
        if group not in self._blocked:
            self._ready = False
            self._list(group, heap)

    def _spread(self) -> None:
        """A second group appears: from one heap to a heap per group."""
        heap, group = self._solo, self._only
        self._solo, self._only = [], _SEVERAL
        if heap:
            self._heaps[group] = heap
            self._size = len(heap)
            if group not in self._blocked:
                self._top.append((heap[0][0], heap[0][1], group))

    def head(self) -> Entry | None:
        """(key, sequence, row) of the next row of a group that is not blocked, None when there is none."""
        if self._only != _SEVERAL:
            if self._solo and self._only not in self._blocked:
                return self._solo[0]
            return None
        top, heaps = self._top, self._heaps
        if self._ready:
            return heaps[top[0][2]][0]
        while top:
            _, sequence, group = top[0]
            heap = heaps.get(group)
            if heap and heap[0][1] == sequence and group not in self._blocked:
                self._ready = True
                return heap[0]
            heappop(top)
        return None

    def take(self) -> int:
        """Take out the row that `head` names; -1 when there is none."""
        if self._only != _SEVERAL:
            if self._solo and self._only not in self._blocked:
                return heappop(self._solo)[2]
            return -1
        if not self._ready and self.head() is None:
            return -1
        group = heappop(self._top)[2]
        heap = self._heaps[group]
        row = heappop(heap)[2]
        self._size -= 1
        self._ready = False
        if heap:
            self._list(group, heap)
        else:
            del self._heaps[group]
        return row

    def _list(self, group: int, heap: list[Entry]) -> None:
        """Put the head of an open group on `_top`; clean up when most of it is outdated."""
        top = self._top
        if len(top) > _SLACK + 2 * len(self._heaps):
            blocked = self._blocked
            top[:] = [(rows[0][0], rows[0][1], number) for number, rows in self._heaps.items() if number not in blocked]
            heapify(top)
        else:
            heappush(top, (heap[0][0], heap[0][1], group))

    def block(self, group: int) -> None:
        """Pass over the rows of `group`, also those pushed from now on, until `unblock`."""
        self._blocked.add(group)
        self._ready = False

    def unblock(self, group: int) -> None:
        """Undo `block`; no effect on a group that is not blocked."""
        if group in self._blocked:
            self._blocked.discard(group)
            heap = self._heaps.get(group)
            if heap:
                self._ready = False
                self._list(group, heap)


class GroupedFifo:
    """The same for first come, first served, with the sequence given by the caller: entries are (sequence, row, group), in order of
    sequence. O(1) as long as all rows are of one group, O(log groups) otherwise, amortised.

    `blocked` may be a set that several queues share; whoever changes it tells each of them by `closed` and `opened`.
    """

    __slots__ = ("_blocked", "_only", "_queues", "_ready", "_size", "_solo", "_top")

    def __init__(self, blocked: set[int] | None = None) -> None:
        self._solo: deque[tuple[int, int, int]] = deque()  # the rows, as long as all are of the group `_only`
        self._only = _NO_GROUP
        self._queues: dict[int, deque[tuple[int, int, int]]]  # once there are several groups: those with rows
        self._top: list[tuple[int, int]]  # then (sequence, group) of the heads of groups, some outdated
        self._blocked: set[int] = set() if blocked is None else blocked
        self._ready = False  # the head of `_top` is known to be right
        self._size = 0  # rows in `_queues`

    def __len__(self) -> int:
        return self._size + len(self._solo)

    def push(self, sequence: int, row: int, group: int) -> None:
        """Add `row` behind all others: `sequence` is larger than any before."""
        if self._only == _SEVERAL:
            queue = self._queues.get(group)
            self._size += 1
            if queue is not None:
                queue.append((sequence, row, group))
                return
            self._queues[group] = deque(((sequence, row, group),))
            if group not in self._blocked:
                heappush(self._top, (sequence, group))  # never a new head of `_top` unless that was empty
                self._ready = False
        elif group == self._only:
            self._solo.append((sequence, row, group))
        elif not self._solo:
            self._only = group
            self._solo.append((sequence, row, group))
        else:
            self._spread()
            self.push(sequence, row, group)

    def _spread(self) -> None:
        """A second group appears: from one queue to a queue per group."""
        group = self._only
        self._queues, self._top = {group: self._solo}, []
        self._size, self._only = len(self._solo), _SEVERAL
        if group not in self._blocked:
            self._top.append((self._solo[0][0], group))
        self._solo = deque()

    def head(self) -> tuple[int, int, int] | None:
        """(sequence, row, group) of the next row of a group that is not blocked, None when there is none."""
        if self._only != _SEVERAL:
            if self._solo and self._only not in self._blocked:
                return self._solo[0]
            return None
        top, queues = self._top, self._queues
        if self._ready:
            return queues[top[0][1]][0]
        while top:
            sequence, group = top[0]
            queue = queues.get(group)
            if queue and queue[0][0] == sequence and group not in self._blocked:
                self._ready = True
                return queue[0]
            heappop(top)
        return None

    def take(self) -> int:
        """Take out the row that `head` names; -1 when there is none."""
        if self._only != _SEVERAL:
            if self._solo and self._only not in self._blocked:
                return self._solo.popleft()[1]
            return -1
        if not self._ready and self.head() is None:
            return -1
        group = heappop(self._top)[1]
        queue = self._queues[group]
        row = queue.popleft()[1]
        self._size -= 1
        self._ready = False
        if queue:
            self._list(group, queue)
        else:
            del self._queues[group]
        return row

    def _list(self, group: int, queue: deque[tuple[int, int, int]]) -> None:
        """Put the head of an open group on `_top`; clean up when most of it is outdated."""
        top = self._top
        if len(top) > _SLACK + 2 * len(self._queues):
            blocked = self._blocked
            top[:] = [(rows[0][0], number) for number, rows in self._queues.items() if number not in blocked]
            heapify(top)
        else:
            heappush(top, (queue[0][0], group))

    def holds(self, group: int) -> bool:
        """Whether rows of `group` are in here."""
        if self._only == _SEVERAL:
            return group in self._queues
        return group == self._only and bool(self._solo)

    def extract(self, group: int) -> deque[tuple[int, int, int]]:
        """Take out all rows of `group`, blocked or not; in order."""
        if self._only == _SEVERAL:
            self._ready = False
            rows = self._queues.pop(group)
            self._size -= len(rows)
            return rows
        rows, self._solo = self._solo, deque()
        return rows

    def closed(self) -> None:
        """A group was added to the set of blocked ones."""
        self._ready = False

    def opened(self, group: int) -> None:
        """`group` was taken out of the set of blocked ones."""
        if self._only == _SEVERAL:
            queue = self._queues.get(group)
            if queue:
                self._ready = False
                self._list(group, queue)

    def block(self, group: int) -> None:
        """Pass over the rows of `group`, also those pushed from now on, until `unblock`."""
        self._blocked.add(group)
        self._ready = False

    def unblock(self, group: int) -> None:
        """Undo `block`; no effect on a group that is not blocked."""
        if group in self._blocked:
            self._blocked.discard(group)
            self.opened(group)
