"""Fair orders: every flow (tenant, class) gets its share of service while it has work, measured by cost, not by count."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Literal, Protocol

from simkit.mechanisms.base import Context, Order, ParameterError, mechanism
from simkit.mechanisms.flows import Flows
from simkit.mechanisms.weights import (
    Cost,
    check_weights,
    cost_of,
    largest_cost,
    virtual_lengths,
    weights_of,
    whole_ratios,
)
from simkit.units import Name, Number, PositiveDuration

_COLUMN = {"tenant": "tenant", "class": "cls"}
_SLACK = 64  # outdated entries that are not worth a clean-up


class StartTime:
    """One level of start-time fair queueing over `Flows`: who is next, and what the taken row moves."""

    def __init__(self, lengths: Sequence[int] | None) -> None:
        """`lengths`: virtual length of a unit of cost by flow; None = 1 for all."""
        self.flows = Flows()
        self._lengths = lengths
        self._virtual = 0  # start tag of the row taken last
        self._last_finish = 0

    def push(self, flow: int, row: int, group: int) -> None:
        flows = self.flows
        if not len(flows):
            self._virtual = self._last_finish
        if not flows.waiting(flow):
            flows.start(flow, max(self._virtual, flows.rank.get(flow, 0)))
        flows.push(flow, row, group)

    def take(self, cost: int) -> None:
        """Take out the row that the head of `flows` just named, which costs `cost`."""
        flows = self.flows
        flow = flows.flow
        start = flows.rank[flow]
        if start < self._virtual:
            start = self._virtual
        self._virtual = start
        finish = start + (cost if self._lengths is None else cost * self._lengths[flow])
        if finish > self._last_finish:
            self._last_finish = finish
        flows.take(finish)


class _FairQueue(Protocol):
    """What `WeightedFair` asks of one or two levels: the methods of an order that parks."""

    def push(self, row: int, now_ns: int) -> None: ...
    def head(self, now_ns: int) -> int: ...
    def take(self, now_ns: int) -> int: ...
    def block(self, group: int) -> None: ...
    def unblock(self, group: int) -> None: ...
    def remove(self, row: int) -> None: ...
    def __len__(self) -> int: ...


class OneLevel:
    """Rows on one level of flows."""

    def __init__(self, level: StartTime, flow: list[int], group: list[int], cost: Callable[[int], int]) -> None:
        self._level, self._flow, self._group, self._cost = level, flow, group, cost
        self._flows = level.flows
        self.block, self.unblock = level.flows.block, level.flows.unblock

    def __len__(self) -> int:
        return len(self._flows)

    def push(self, row: int, now_ns: int) -> None:
        self._level.push(self._flow[row], row, self._group[row])

    def head(self, now_ns: int) -> int:
        return self._flows.head()

    def take(self, now_ns: int) -> int:
        row = self._flows.head()
        if row >= 0:
            self._level.take(self._cost(row))
        return row

    def remove(self, row: int) -> None:
        self._flows.remove(self._flow[row], row)


class _TwoLevels:
    """Start-time fair queueing between outer flows (classes), and inside each between its inner flows (tenants), all equal.

    An outer flow is charged for every row that is taken from it, whoever in it owns the row. Ties between outer flows: who got its start
    tag first. Blocking a group costs O(log n) for each outer flow that the group has been seen in.
    """

    def __init__(
        self, lengths: Sequence[int], outer: list[int], inner: list[int], group: list[int], cost: Callable[[int], int]
    ) -> None:
        self._lengths, self._outer, self._inner, self._group, self._cost = lengths, outer, inner, group, cost
        self._levels: dict[int, StartTime] = {}
        self._tag: dict[int, tuple[int, int, int]] = {}  # (start tag, sequence, outer flow)
        self._listed: set[int] = set()  # outer flows on the heap
        self._top: list[tuple[int, int, int]] = []
        self._next = count().__next__
        self._virtual = self._last_finish = self._size = 0
        self._blocked: set[int] = set()
        self._seen_in: dict[int, tuple[int, ...]] = {}  # group -> outer flows

    def __len__(self) -> int:
        return self._size

    def push(self, row: int, now_ns: int) -> None:
        outer, group = self._outer[row], self._group[row]
        level = self._levels.get(outer)
        if level is None:
            level = self._levels[outer] = StartTime(None)
            self._tag[outer] = (0, 0, outer)
        seen_in = self._seen_in.get(group, ())
        if outer not in seen_in:
            self._seen_in[group] = (*seen_in, outer)
            if group in self._blocked:
                level.flows.block(group)
        if not self._size:
            self._virtual = self._last_finish
        if not len(level.flows):
            self._retag(outer, max(self._virtual, self._tag[outer][0]))
        self._size += 1
        level.push(self._inner[row], row, group)
        self._offer(outer)

    def _retag(self, outer: int, start: int) -> None:
        """A new start tag. The one before is outdated on the heap."""
        self._tag[outer] = (start, self._next(), outer)
        self._listed.discard(outer)

    def _offer(self, outer: int) -> None:
        """List an outer flow that has something to give, unless it is listed."""
        if outer not in self._listed and self._levels[outer].flows.head() >= 0:
            self._listed.add(outer)
            heappush(self._top, self._tag[outer])
            if len(self._top) > _SLACK + 2 * len(self._levels):
                self._top[:] = [self._tag[listed] for listed in sorted(self._listed)]
                heapify(self._top)

    def _find(self) -> int:
        """The outer flow that is next; -1 when none has anything to give."""
        while self._top:
            tag = self._top[0]
            outer = tag[2]
            if outer in self._listed and self._tag[outer] is tag:
                if self._levels[outer].flows.head() >= 0:
                    return outer
                self._listed.discard(outer)
            heappop(self._top)
        return -1

    def head(self, now_ns: int) -> int:
        outer = self._find()
        return self._levels[outer].flows.head() if outer >= 0 else -1

    def take(self, now_ns: int) -> int:
        row = self.head(now_ns)
        if row < 0:
            return -1
        tag = heappop(self._top)
        outer, cost = tag[2], self._cost(row)
        self._levels[outer].take(cost)
        start = max(self._virtual, tag[0])
        finish = start + cost * self._lengths[outer]
        self._virtual, self._last_finish = start, max(self._last_finish, finish)
        self._size -= 1
        self._retag(outer, finish)
        self._offer(outer)
        return row

    def block(self, group: int) -> None:
        self._blocked.add(group)
        for outer in self._seen_in.get(group, ()):
            self._levels[outer].flows.block(group)

    def unblock(self, group: int) -> None:
        self._blocked.discard(group)
        for outer in self._seen_in.get(group, ()):
            self._levels[outer].flows.unblock(group)
            self._offer(outer)

    def remove(self, row: int) -> None:
        self._size -= 1
        self._levels[self._outer[row]].flows.remove(self._inner[row], row)


@mechanism("weighted_fair")
@dataclass(eq=False)
class WeightedFair(Order):
    """Start-time fair queueing: serve the flow that is furthest behind its share. A running task is not interrupted.

    Rule: a flow that comes to have work gets the start tag S = max(v, F), F its last finish tag; the flow with the smallest S is served,
    ties first come first served; that moves v to S and the flow to S = F = S + cost / weight. When nothing waits, v jumps to the
    largest F. So what a flow did not use earns it nothing; the same holds while limits hold back all its rows. With one row a flow
    at a time these are the tags of the paper.

    Bound: over every interval in which f and g both have rows that may start, the work *dispatched* to them differs by
    |W_f/w_f - W_g/w_g| <= l_f/w_f + l_g/w_g (l: largest cost), on any number of slots and whatever the speed of service. Of completed work that is
    true for one slot only.

    Parameters: `by`: tenant (default), class, or ``[class, tenant]``: shares between classes by `weights`, and within a class equal
    shares between its tenants (two levels of the same rule; the bound holds on each). `weights` by name (of the class, with two levels),
    `default` (1) for names not listed. `cost`: estimate (estimated slot time, default), count, tokens, usd. What limits drop or clients cancel is not
    charged when the engine says so by `remove`.

    O(log n) per step, whatever the number of flows; with two levels, holding back a group takes a step for each class in it.
    Source: Goyal, Vin and Cheng 1996; on several servers Jin, Chase and Kaur 2004.
    """

    by: Literal["tenant", "class"] | list[Literal["class", "tenant"]] = "tenant"
    weights: Mapping[Name, Number] = field(default_factory=dict)
    default: Number = 1.0
    cost: Cost = "estimate"

    parks = True
    _fixed_tags = True  # without limits a row's tag may be worked out when it comes

    def __post_init__(self) -> None:
        check_weights(self.mechanism_name, self.weights, self.default)
        self._attributes = [self.by] if isinstance(self.by, str) else list(self.by)
        if self._attributes not in (["tenant"], ["class"], ["class", "tenant"]):
            raise ParameterError(
                f"{self.mechanism_name}: by: expected tenant, class or [class, tenant], found {self.by}"
            )

    def bind(self, context: Context) -> None:
        rows = context.rows
        columns: list[list[int]] = [getattr(rows, _COLUMN[attribute]) for attribute in self._attributes]
        lengths = virtual_lengths(weights_of(context, self, self._attributes[0], self.weights, self.default))
        cost = cost_of(rows, self.cost)
        if self._fixed_tags and not context.grouped and len(columns) == 1:
            self._bind_plain(columns[0], lengths, cost)
        elif len(columns) == 1:
            self._bind_queue(OneLevel(self._level(lengths), columns[0], rows.group, cost))
        else:
            self._bind_queue(_TwoLevels(lengths, columns[0], columns[1], rows.group, cost))

    def _level(self, lengths: list[int]) -> StartTime:
        return StartTime(lengths)

    def _bind_queue(self, queue: _FairQueue) -> None:
        self._queue: _FairQueue | list[tuple[int, int, int]] = queue
        self.push, self.head, self.take, self.pop = queue.push, queue.head, queue.take, queue.take  # type: ignore[method-assign]
        self.block, self.unblock, self.remove = queue.block, queue.unblock, queue.remove  # type: ignore[method-assign]

    def _bind_plain(self, flows: list[int], lengths: list[int], cost: Callable[[int], int]) -> None:
        """One heap of rows by start tag, for simulations in which nothing is ever held back: tags are fixed when rows come."""
        heap: list[tuple[int, int, int]] = []
        finish = [0] * len(lengths)
        sequence, add = count().__next__, heappush
        virtual = last_finish = 0

        def push(row: int, now_ns: int) -> None:
            nonlocal virtual, last_finish
            if not heap:
                virtual = last_finish
            flow = flows[row]
            start = finish[flow]
            if virtual > start:
                start = virtual
            add(heap, (start, sequence(), row))
            finish[flow] = start = start + cost(row) * lengths[flow]
            if start > last_finish:
                last_finish = start

        def pop(now_ns: int) -> int:
            nonlocal virtual
            if not heap:
                return -1
            virtual, _, row = heappop(heap)
            return row

        def head(now_ns: int) -> int:
            return heap[0][2] if heap else -1

        self._queue = heap
        self.push, self.pop, self.take, self.head = push, pop, pop, head  # type: ignore[method-assign]

    def __len__(self) -> int:
        return len(self._queue)


class _Circle:
    """Flows in turn, for simulations in which nothing is ever held back: what `Flows` does with ranks that are places in a circle, O(1)."""

    def __init__(self) -> None:
        self._queues: dict[int, deque[int]] = {}
        self._turns: deque[int] = deque()
        self._size = 0
        self.flow = -1
        self.rank: dict[int, int] = {}  # a flow's place, which the circle itself knows

    def __len__(self) -> int:
        return self._size

    def waiting(self, flow: int) -> int:
        queue = self._queues.get(flow)
        return 0 if queue is None else len(queue)

    def start(self, flow: int, rank: int) -> None:
        self._queues[flow] = deque()
        self._turns.append(flow)
        self.rank[flow] = rank

    def pass_by(self, rank: int) -> None:
        self._turns.rotate(-1)

    def push(self, flow: int, row: int, group: int) -> None:
        self._size += 1
        self._queues[flow].append(row)

    def head(self) -> int:
        if not self._turns:
            return -1
        self.flow = self._turns[0]
        return self._queues[self.flow][0]

    def take(self, rank: int) -> None:
        queue = self._queues[self.flow]
        self._size -= 1
        queue.popleft()
        if not queue:
            self._turns.popleft()
            del self._queues[self.flow]


@mechanism("drr")
@dataclass(eq=False)
class DeficitRoundRobin(Order):
    """Deficit round robin: flows take turns; a turn adds a quantum to the flow's deficit and serves tasks while it lasts.

    Rule: flows that have work stand in a circle. When a flow's turn begins its deficit grows by its quantum; its head is served while
    its cost is within the deficit, which pays for it; then the next flow has its turn. A flow that runs empty leaves the circle and forgets its
    deficit. A flow whose waiting rows are all held back by limits is passed over: it keeps its place and its deficit, and gains nothing.

    Bound: over intervals in which f and g both have rows that may start, |W_f/w_f - W_g/w_g| <= Q/w_min + l_f/w_f + l_g/w_g, with Q the `quantum`,
    w_min the smallest weight of any flow and l the largest costs. With ``cost: count`` and equal weights it is plain round robin, which has
    no bound in terms of work.

    Parameters: `by`: tenant (default) or class. `weights`, `default` and `cost` as in weighted_fair: the lightest flow gets `quantum` a turn, the others in
    proportion. `quantum`: a duration of slot time (goes with ``cost: estimate``); default: the largest cost of any task of the pool.

    O(1) turns per task when the quantum covers the largest cost (the default); turns of a round in which nobody can be served are counted at once, so
    a small quantum costs at most O(flows) per task. When limits hold groups back a turn takes O(log n).
    Source: Shreedhar and Varghese 1995.
    """

    by: Literal["tenant", "class"] = "tenant"
    weights: Mapping[Name, Number] = field(default_factory=dict)
    default: Number = 1.0
    cost: Cost = "estimate"
    quantum: PositiveDuration | None = None

    parks = True

    def __post_init__(self) -> None:
        check_weights("drr", self.weights, self.default)
        if self.quantum is not None and self.cost != "estimate":
            raise ParameterError("drr: quantum is a duration of slot time: it goes with cost: estimate")

    def bind(self, context: Context) -> None:
        self._cost = cost_of(context.rows, self.cost)
        self._flow: list[int] = getattr(context.rows, _COLUMN[self.by])
        self._group = context.rows.group
        weights = whole_ratios(weights_of(context, self, self.by, self.weights, self.default))
        quantum = self.quantum or largest_cost(context, self.cost)
        self._scale = min(weights)  # deficits count in 1/scale cost units, so that all is whole
        self._gain = [quantum * weight for weight in weights]
        self._deficit: dict[int, int] = {}  # of flows that have rows
        self._granted: set[int] = set()  # flows whose turn has begun
        self._place = count().__next__
        self._plain = not context.grouped
        self._flows: Flows | _Circle = _Circle() if self._plain else Flows()

    def __len__(self) -> int:
        return len(self._flows)

    def push(self, row: int, now_ns: int) -> None:
        flow = self._flow[row]
        if not self._flows.waiting(flow):
            self._flows.start(flow, self._place())
            self._deficit[flow] = 0
        self._flows.push(flow, row, self._group[row])

    def head(self, now_ns: int) -> int:
        flows, deficit, granted = self._flows, self._deficit, self._granted
        missed: dict[int, int] = {}  # flows whose turn went by in this call: cost of their heads
        while (row := flows.head()) >= 0:
            flow = flows.flow
            if flow not in granted:
                if flow in missed:  # a whole round without service
                    self._skip_rounds(missed)
                    missed = {}
                granted.add(flow)
                deficit[flow] += self._gain[flow]
            cost = self._cost(row) * self._scale
            if cost <= deficit[flow]:
                return row
            granted.discard(flow)
            flows.pass_by(self._place())
            missed[flow] = cost
        return -1

    def _skip_rounds(self, costs: Mapping[int, int]) -> None:
        """Add the gains of the rounds that would pass without service."""
        rounds = min((cost - self._deficit[flow] - 1) // self._gain[flow] for flow, cost in costs.items())
        for flow in costs:
            self._deficit[flow] += rounds * self._gain[flow]

    def take(self, now_ns: int) -> int:
        row = self.head(now_ns)
        if row >= 0:
            flows = self._flows
            flow = flows.flow
            flows.take(flows.rank[flow])
            self._deficit[flow] -= self._cost(row) * self._scale
            self._forget_if_empty(flow)
        return row

    pop = take

    def _forget_if_empty(self, flow: int) -> None:
        if not self._flows.waiting(flow):
            del self._deficit[flow]
            self._granted.discard(flow)

    def block(self, group: int) -> None:
        if isinstance(self._flows, Flows):
            self._flows.block(group)

    def unblock(self, group: int) -> None:
        if isinstance(self._flows, Flows):
            self._flows.unblock(group)

    def remove(self, row: int) -> None:
        if isinstance(self._flows, Flows):
            flow = self._flow[row]
            self._flows.remove(flow, row)
            self._forget_if_empty(flow)
