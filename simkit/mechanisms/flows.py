"""Rows in flows, flows in the order of a rank that only grows: what fair queueing and round robin stand on."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Protocol

from simkit.mechanisms.queues import GroupedFifo

Mark = tuple[int, int, int]
"""(rank, sequence of the head row, flow or lane): entries of the heaps."""

_SLACK = 64  # outdated entries that are not worth a clean-up


class _Lane(Protocol):
    """Rows that can be held back together: of one group, or of no group that several flows share."""

    number: int
    blocked: bool
    mark: Mark | None  # the entry by which the lane is on the heap of lanes; its order is never above the true head's

    def best(self) -> Mark | None: ...
    def row(self, flow: int) -> int: ...
    def take(self, flow: int) -> None: ...


class _SharedLane:
    """The rows of one group that several flows have rows in: a queue per flow, and a heap of the flows."""

    def __init__(self, number: int, rank: dict[int, int], gone: dict[int, int]) -> None:
        self.number, self.blocked = number, False
        self.mark: Mark | None = None
        self._rank, self._gone = rank, gone
        self._queues: dict[int, deque[tuple[int, int]]] = {}  # flow -> (sequence, row), never empty
        self._heap: list[
            Mark
        ] = []  # one entry per flow; its order is never above the true one: ranks and sequences only grow

    def push(self, flow: int, sequence: int, row: int) -> Mark | None:
        """The new entry when `flow` had nothing here."""
        queue = self._queues.get(flow)
        if queue is not None:
            queue.append((sequence, row))
            return None
        self._queues[flow] = deque(((sequence, row),))
        entry = (self._rank[flow], sequence, flow)
        heappush(self._heap, entry)
        return entry

    def best(self) -> Mark | None:
        """The entry of the flow that comes first, brought up to date."""
        heap, queues, rank, gone = self._heap, self._queues, self._rank, self._gone
        while heap:
            entry = heap[0]
            flow = entry[2]
            queue = queues[flow]
            if gone:
                while queue and _skip(gone, queue[0][1]):
                    queue.popleft()
                if not queue:
                    heappop(heap)
                    del queues[flow]
                    continue
            true = (rank[flow], queue[0][0], flow)
            if true == entry:
                return entry
            heapreplace(heap, true)
        return None

    def row(self, flow: int) -> int:
        return self._queues[flow][0][1]

    def take(self, flow: int) -> None:
        """Take out the head of `flow`, which `best` just named; its rank has grown meanwhile."""
        queue = self._queues[flow]
        queue.popleft()
        if queue:
            heapreplace(self._heap, (self._rank[flow], queue[0][0], flow))
        else:
            heappop(self._heap)
            del self._queues[flow]


class _PrivateLane:
    """The rows of all groups that only one flow has rows in: a queue per flow that knows the groups, and a heap of the flows."""

    number = 0
    blocked = False

    def __init__(self, rank: dict[int, int], gone: dict[int, int], blocked: set[int], owner: dict[int, int]) -> None:
        self.mark: Mark | None = None
        self._rank, self._gone, self._blocked, self._owner = rank, gone, blocked, owner
        self._queues: dict[int, GroupedFifo] = {}
        self._heap: list[Mark] = []
        self._listed: dict[int, Mark] = {}  # flow -> its entry on the heap; others are outdated

    def push(self, flow: int, sequence: int, row: int, group: int) -> Mark | None:
        """The new entry of `flow` if it got one."""
        queue = self._queues.get(flow)
        if queue is None:
            queue = self._queues[flow] = GroupedFifo(self._blocked)
        queue.push(sequence, row, group)
        if flow in self._listed or group in self._blocked:
            return None
        return self.offer(flow)

    def offer(self, flow: int) -> Mark | None:
        """List `flow` by its head, unless it is listed as early or has none. The new entry, if any."""
        head = self._queues[flow].head()
        if head is None:
            return None
        entry = (self._rank[flow], head[0], flow)
        old = self._listed.get(flow)
        if old is not None and old <= entry:
            return None
        self._listed[flow] = entry
        heappush(self._heap, entry)
        if len(self._heap) > _SLACK + 2 * len(self._listed):
            self._heap[:] = self._listed.values()
            heapify(self._heap)
        return entry

    def best(self) -> Mark | None:
        """The entry of the flow that comes first, brought up to date."""
        heap, rank, gone = self._heap, self._rank, self._gone
        while heap:
            entry = heap[0]
            flow = entry[2]
            if self._listed.get(flow) is not entry:
                heappop(heap)
                continue
            queue = self._queues[flow]
            head = queue.head()
            while gone and head is not None and _skip(gone, head[1]):
                self._drop_head(queue, head[2])
                head = queue.head()
            if head is None:
                heappop(heap)
                self._unlist(flow, queue)
                continue
            true = (rank[flow], head[0], flow)
            if true == entry:
                return entry
            self._listed[flow] = true
            heapreplace(heap, true)
        return None

    def _drop_head(self, queue: GroupedFifo, group: int) -> None:
        queue.take()
        if not queue.holds(group):
            del self._owner[group]

    def _unlist(self, flow: int, queue: GroupedFifo) -> None:
        del self._listed[flow]
        if not len(queue):
            del self._queues[flow]

    def row(self, flow: int) -> int:
        head = self._queues[flow].head()
        assert head is not None
        return head[1]

    def take(self, flow: int) -> None:
        """Take out the head of `flow`, which `best` just named."""
        queue = self._queues[flow]
        head = queue.head()
        assert head is not None
        self._drop_head(queue, head[2])
        if not len(queue):
            heappop(self._heap)
            self._unlist(flow, queue)

    def closed(self, flow: int) -> None:
        self._queues[flow].closed()

    def opened(self, flow: int, group: int) -> Mark | None:
        self._queues[flow].opened(group)
        return self.offer(flow)

    def extract(self, flow: int, group: int) -> deque[tuple[int, int, int]]:
        """All rows of a group that another flow comes into."""
        del self._owner[group]
        return self._queues[flow].extract(group)


def _skip(gone: dict[int, int], row: int) -> bool:
    """Whether this entry of `row` was removed."""
    times = gone.get(row)
    if times is None:
        return False
    if times == 1:
        del gone[row]
    else:
        gone[row] = times - 1
    return True


class Flows:
    """Rows of several flows, first come first served within a flow; the flow of the smallest rank is next, among equal ranks the one
    whose head came first. Groups of rows can be held back: the result is that of a scan of all rows by (rank of the flow, sequence) that
    skips blocked ones.

    The discipline that uses it gives a flow its rank before the flow's first row comes (`start`) and raises it as it serves (`take`, `pass_by`);
    while a flow waits, its rank must never sink.

    A group may be spread over all flows (a class, over all tenants) or a flow over many groups; neither makes a step long: rows of a group
    that several flows have rows in are kept by group, the rest by flow. push, take, block, unblock: O(log rows) amortised, times the number of
    shared groups of the flow that is taken from.
    """

    def __init__(self) -> None:
        self.rank: dict[int, int] = {}
        self._waiting: dict[int, int] = {}
        self._size = 0
        self._next = count().__next__
        self._blocked: set[int] = set()
        self._gone: dict[int, int] = {}  # removed rows that still lie in some queue, how often
        self._owner: dict[int, int] = {}  # group -> the one flow that has rows in it
        self._private = _PrivateLane(self.rank, self._gone, self._blocked, self._owner)
        self._shared: dict[int, _SharedLane] = {}  # group -> lane
        self._lanes: list[_Lane] = [self._private]
        self._top: list[Mark] = []  # heap of lanes
        self._row = -1  # the head, when known (-1 = not known), with its flow and lane
        self.flow = -1
        self._lane: _Lane = self._private

    def __len__(self) -> int:
        """Rows, blocked ones included."""
        return self._size

    def waiting(self, flow: int) -> int:
        """Rows of `flow`, blocked ones included."""
        return self._waiting.get(flow, 0)

    def start(self, flow: int, rank: int) -> None:
        """The rank of a flow that has no rows."""
        self.rank[flow] = rank

    def pass_by(self, rank: int) -> None:
        """Give the flow of the head a new rank, not below the one before, without taking from it."""
        self.rank[self.flow] = rank
        self._row = -1

    def push(self, flow: int, row: int, group: int) -> None:
        sequence = self._next()
        self._size += 1
        self._waiting[flow] = self._waiting.get(flow, 0) + 1
        lane = self._shared.get(group)
        if lane is None:
            owner = self._owner.setdefault(group, flow)
            if owner == flow:
                self._list(self._private, self._private.push(flow, sequence, row, group))
                return
            lane = self._share(group, owner)
        self._list(lane, lane.push(flow, sequence, row))

    def _share(self, group: int, owner: int) -> _SharedLane:
        """A second flow comes into `group`: it gets a lane of its own."""
        lane = _SharedLane(len(self._lanes), self.rank, self._gone)
        self._lanes.append(lane)
        self._shared[group] = lane
        lane.blocked = group in self._blocked
        for sequence, row, _ in self._private.extract(owner, group):
            self._list(lane, lane.push(owner, sequence, row))
        self._row = -1
        return lane

    def _list(self, lane: _Lane, entry: Mark | None) -> None:
        """A new entry on the heap of `lane`: list the lane by it unless it is listed as early."""
        if entry is None or lane.blocked:
            return
        mark = (entry[0], entry[1], lane.number)
        if lane.mark is None or mark < lane.mark:
            lane.mark = mark
            heappush(self._top, mark)
            self._row = -1
            if len(self._top) > _SLACK + 2 * len(self._lanes):
                self._top[:] = [other.mark for other in self._lanes if other.mark is not None]
                heapify(self._top)

    def head(self) -> int:
        """The next row that is not held back, -1 when there is none. `flow` is then its flow."""
        row = self._row
        return row if row >= 0 else self._find()

    def _find(self) -> int:
        top, lanes = self._top, self._lanes
        while top:
            mark = top[0]
            lane = lanes[mark[2]]
            if lane.mark is not mark:
                heappop(top)
                continue
            best = lane.best()
            if best is None:
                lane.mark = None
                heappop(top)
            elif best[1] == mark[1] and best[0] == mark[0]:
                self._lane, self.flow = lane, best[2]
                self._row = row = lane.row(best[2])
                return row
            else:
                lane.mark = (best[0], best[1], mark[2])
                heapreplace(top, lane.mark)
        return -1

    def take(self, rank: int) -> None:
        """Take out the row that `head` just named and give its flow a new rank, not below the one before."""
        flow = self.flow
        self._row = -1
        self.rank[flow] = rank
        self._leave(flow)
        self._lane.take(flow)

    def _leave(self, flow: int) -> None:
        self._size -= 1
        left = self._waiting[flow] - 1
        if left:
            self._waiting[flow] = left
        else:
            del self._waiting[flow]

    def remove(self, flow: int, row: int) -> None:
        """`row` of `flow`, which waits, shall never be given out."""
        self._gone[row] = self._gone.get(row, 0) + 1
        self._leave(flow)
        self._row = -1

    def block(self, group: int) -> None:
        """Pass over the rows of `group`, also those pushed from now on, until `unblock`."""
        self._blocked.add(group)
        self._row = -1
        lane = self._shared.get(group)
        if lane is not None:
            lane.blocked, lane.mark = True, None
        elif group in self._owner:
            self._private.closed(self._owner[group])

    def unblock(self, group: int) -> None:
        """Undo `block`; no effect on a group that is not blocked."""
        if group not in self._blocked:
            return
        self._blocked.discard(group)
        lane = self._shared.get(group)
        if lane is not None:
            lane.blocked = False
            self._list(lane, lane.best())
        elif group in self._owner:
            self._list(self._private, self._private.opened(self._owner[group], group))
