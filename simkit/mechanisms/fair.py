"""Fair orders: every flow (tenant, class) gets its share of service while it has work, measured by cost, not by count."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simkit.mechanisms.base import Context, Order, ParameterError, mechanism
from simkit.mechanisms.order import GroupedHeap
from simkit.mechanisms.selection import By, key_attributes
from simkit.model import NS_PER_S, UsageError
from simkit.units import Name, Number, PositiveDuration

Cost = Literal["work", "count", "tokens", "usd"]

_COLUMN = {"tenant": "tenant", "class": "cls"}
_SCALE = 1 << 20
"""Virtual time is counted in 2^-20 cost units: weights up to millions stay exact enough and ties stay ties."""


def cost_column(context: Context, cost: Cost) -> NDArray[np.int64]:
    """What serving a row is charged, per original row, as whole numbers >= 1: ns of estimated slot time, 1, tokens, or 1e-9 dollars."""
    rows = context.rows
    if cost == "work":
        column = rows.source("estimate_ns") * rows.source("slots")
    elif cost == "count":
        column = np.ones(rows.size, dtype=np.int64)
    elif cost == "tokens":
        column = np.asarray(rows.source("tokens"), dtype=np.int64)
    else:
        column = np.round(rows.source("cost_usd") * 1e9).astype(np.int64)
    return np.maximum(column, 1)


def _weights(context: Context, attribute: str, weights: Mapping[str, float], default: float) -> list[float]:
    """One weight per code of the attribute."""
    return [float(weights.get(name, default)) for name in context.names[attribute]]


def _check_weights(name: str, weights: Mapping[str, float], default: float) -> None:
    for key, weight in (*weights.items(), ("default", default)):
        if not weight > 0:
            raise ParameterError(f"{name}: weights: {key}: found {weight}, a weight must be above 0")


@dataclass(eq=False)
class _Flow:
    """One flow of one level: its finish tag and what waits in it."""

    weight: int  # scaled reciprocal: cost x this = virtual length
    finish: int = 0


@mechanism("weighted_fair")
@dataclass(eq=False)
class WeightedFair(Order):
    """Start-time fair queueing: serve the flow that is furthest behind its share.

    Rule (Goyal, Vin and Cheng 1996): a task of flow f with cost l that becomes ready gets the start tag S = max(v, F_f) and
    F_f = S + l / w_f; the smallest S is served (ties first come first served); v is the start tag of the task taken last, and when
    nothing waits it jumps to the largest finish tag given to a served task. A flow that was idle gets no credit for it.

    Over every interval in which f and g both wait, the work *dispatched* differs by |W_f/w_f - W_g/w_g| <= l_f/w_f + l_g/w_g, on any
    number of slots and whatever the service rate does.

    Parameters: `by`: tenant (default), class, or ``[class, tenant]``: shares between classes by `weights`, and within a class equal
    shares between its tenants (two levels of the same rule). `weights` by name (of the class, with two levels), `default` (1) for names
    not listed. `cost`: work (estimated slot time, default), count, tokens, usd. O(log n) per step, whatever the number of flows.
    """

    by: By = "tenant"
    weights: Mapping[Name, Number] = field(default_factory=dict)
    default: Number = 1.0
    cost: Cost = "work"

    parks = True

    def __post_init__(self) -> None:
        _check_weights("weighted_fair", self.weights, self.default)
        if self.by == "all" or (list(key_attributes(self.by)) == ["tenant", "class"] and self.by[0] == "tenant"):
            raise ParameterError("weighted_fair: by: expected tenant, class or [class, tenant]")

    def bind(self, context: Context) -> None:
        attributes = key_attributes(self.by)
        outer = context.rows.source(_COLUMN[attributes[0]]).astype(np.int64)
        weights = _weights(context, attributes[0], self.weights, self.default)
        self._cost = context.rows.derive(cost_column(context, self.cost))
        self._group = context.rows.group
        if len(attributes) == 1:
            self._queue: _TaggedQueue | _TwoLevels = _TaggedQueue(context.rows.derive(outer), weights)
        else:
            inner = context.rows.source(_COLUMN[attributes[1]]).astype(np.int64)
            self._queue = _TwoLevels(context.rows.derive(outer), weights, context.rows.derive(inner))
        if not context.grouped and isinstance(self._queue, _TaggedQueue):
            self.push, self.pop = self._queue.plain(self._cost)  # type: ignore[method-assign]

    def push(self, row: int, now_ns: int) -> None:
        self._queue.push(row, self._cost[row], self._group[row])

    def head(self, now_ns: int) -> int:
        return self._queue.head()

    def take(self, now_ns: int) -> int:
        return self._queue.take()

    def pop(self, now_ns: int) -> int:
        return self._queue.take()

    def block(self, group: int) -> None:
        self._queue.block(group)

    def unblock(self, group: int) -> None:
        self._queue.unblock(group)

    def __len__(self) -> int:
        return len(self._queue)


def _reciprocals(weights: list[float]) -> list[int]:
    """Virtual length of one cost unit per weight, in units of 2^-20 (at least 1)."""
    return [max(1, round(_SCALE / Fraction(weight).limit_denominator(10**6))) for weight in weights]


class _TaggedQueue:
    """One level of start-time fair queueing over rows."""

    def __init__(self, flow: list[int], weights: list[float]) -> None:
        self._flow = flow
        self._per_cost = _reciprocals(weights)
        self._finish = [0] * len(weights)
        self._heap = GroupedHeap()
        self._plain_heap: list[tuple[int, int, int]] = []
        self._length: dict[int, int] = {}  # virtual length of each waiting row
        self._v = 0
        self._last_finish = 0

    def __len__(self) -> int:
        return len(self._heap) + len(self._plain_heap)

    def push(self, row: int, cost: int, group: int) -> None:
        if not len(self._heap):
            self._v = max(self._v, self._last_finish)
        flow = self._flow[row]
        start = max(self._v, self._finish[flow])
        length = cost * self._per_cost[flow]
        self._finish[flow] = start + length
        self._length[row] = length
        self._heap.push(start, row, group)

    def head(self) -> int:
        entry = self._heap.head()
        return -1 if entry is None else entry[2]

    def take(self) -> int:
        entry = self._heap.head()
        if entry is None:
            return -1
        row = self._heap.take()
        self._v = max(self._v, entry[0])
        self._last_finish = max(self._last_finish, entry[0] + self._length.pop(row))
        return row

    def block(self, group: int) -> None:
        self._heap.block(group)

    def unblock(self, group: int) -> None:
        self._heap.unblock(group)

    def plain(self, costs: list[int]) -> tuple[Callable[[int, int], None], Callable[[int], int]]:
        """(push, pop) over one plain heap, for simulations in which nothing is ever held back."""
        heap, flows, per_cost, finish = self._plain_heap, self._flow, self._per_cost, self._finish
        sequence = count().__next__
        v = last_finish = 0

        def push(row: int, now_ns: int) -> None:
            nonlocal v
            if not heap and last_finish > v:
                v = last_finish
            flow = flows[row]
            start = finish[flow]
            if v > start:
                start = v
            finish[flow] = start + costs[row] * per_cost[flow]
            heappush(heap, (start, sequence(), row))

        def pop(now_ns: int) -> int:
            nonlocal v, last_finish
            if not heap:
                return -1
            start, _, row = heappop(heap)
            if start > v:
                v = start
            end = start + costs[row] * per_cost[flows[row]]
            if end > last_finish:
                last_finish = end
            return row

        return push, pop


class _TwoLevels:
    """Start-time fair queueing between outer flows, and inside each between its inner flows.

    The outer level charges an outer flow when one of its rows is taken: S = max(v, F) for a flow that had nothing to give,
    F = S + cost / weight; so the next row's cost counts against the flow whichever inner flow it came from.
    """

    def __init__(self, outer: list[int], weights: list[float], inner: list[int]) -> None:
        self._outer = outer
        self._per_cost = _reciprocals(weights)
        equal = [1.0] * (max(inner, default=0) + 1)
        self._inside = [_TaggedQueue(inner, equal) for _ in weights]
        self._start = [0] * len(weights)
        self._waiting = [False] * len(weights)
        self._top: list[tuple[int, int, int]] = []  # (start tag, sequence, outer flow)
        self._stamp = [-1] * len(weights)
        self._next = count().__next__
        self._v = 0
        self._costs: dict[int, int] = {}
        self._flows_of_group: dict[int, set[int]] = {}
        self._last_finish = 0
        self._busy = 0

    def __len__(self) -> int:
        return len(self._costs)

    def push(self, row: int, cost: int, group: int) -> None:
        flow = self._outer[row]
        if not self._costs:
            self._v = max(self._v, self._last_finish)
        self._costs[row] = cost
        self._flows_of_group.setdefault(group, set()).add(flow)
        self._inside[flow].push(row, cost, group)
        self._offer(flow)

    def _offer(self, flow: int) -> None:
        """Put `flow` on the top heap unless it is there; its start tag never lies behind v."""
        if self._stamp[flow] < 0 and self._inside[flow].head() >= 0:
            self._start[flow] = max(self._v, self._start[flow])
            self._stamp[flow] = self._next()
            heappush(self._top, (self._start[flow], self._stamp[flow], flow))

    def head(self) -> int:
        while self._top:
            flow = self._top[0][2]
            row = self._inside[flow].head()
            if row >= 0:
                return row
            heappop(self._top)  # everything in it is held back
            self._stamp[flow] = -1
        return -1

    def take(self) -> int:
        if self.head() < 0:
            return -1
        start, _, flow = heappop(self._top)
        row = self._inside[flow].take()
        self._v = max(self._v, start)
        finish = start + self._costs.pop(row) * self._per_cost[flow]
        self._start[flow] = finish
        self._last_finish = max(self._last_finish, finish)
        self._stamp[flow] = -1
        self._offer(flow)
        return row

    def block(self, group: int) -> None:
        for flow in sorted(self._flows_of_group.get(group, ())):
            self._inside[flow].block(group)

    def unblock(self, group: int) -> None:
        for flow in sorted(self._flows_of_group.get(group, ())):
            self._inside[flow].unblock(group)
            self._offer(flow)


@mechanism("drr")
@dataclass(eq=False)
class DeficitRoundRobin(Order):
    """Deficit round robin: flows take turns; a turn adds a quantum to the flow's deficit and serves tasks while it lasts.

    Rule (Shreedhar and Varghese 1995): flows that have work stand in a circle. When a flow's turn begins its deficit grows by
    quantum x weight; its head is served while its cost is within the deficit, which pays for it. A flow that runs empty leaves the circle and forgets its
    deficit. A flow whose waiting work is all held back is passed over without gaining or losing any.

    Over intervals in which both wait: |W_f/w_f - W_g/w_g| <= quantum + l_f/w_f + l_g/w_g. O(1) per task when the quantum covers the largest
    cost (the default), plus O(log n) for the queue inside a flow.

    Parameters: `by` tenant | class. `weights`, `default`, `cost` as in weighted_fair. `quantum`: for ``cost: work`` a duration of slot time;
    default: the largest cost of any task.
    """

    by: Literal["tenant", "class"] = "tenant"
    weights: Mapping[Name, Number] = field(default_factory=dict)
    default: Number = 1.0
    cost: Cost = "work"
    quantum: PositiveDuration | None = None

    parks = True

    def __post_init__(self) -> None:
        _check_weights("drr", self.weights, self.default)
        if self.quantum is not None and self.cost != "work":
            raise ParameterError("drr: quantum is a duration: it goes with cost: work")

    def bind(self, context: Context) -> None:
        costs = cost_column(context, self.cost)
        self._cost = context.rows.derive(costs)
        self._group = context.rows.group
        self._flow = getattr(context.rows, _COLUMN[self.by])
        weights = _weights(context, self.by, self.weights, self.default)
        quantum = int(costs.max(initial=1)) if self.quantum is None else self.quantum
        lightest = min(weights)
        if quantum * lightest > NS_PER_S * 10**9:
            raise UsageError(f"drr: a quantum of {quantum} is larger than any simulation")
        self._gain = [
            max(1, round(quantum * weight / lightest)) if self.quantum is None else max(1, round(quantum * weight))
            for weight in weights
        ]
        self._deficit = [0] * len(weights)
        self._queues = [GroupedHeap() for _ in weights]
        self._circle: OrderedDict[int, None] = OrderedDict()
        self._turn = -1  # the flow whose turn it is
        self._flows_of_group: dict[int, set[int]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, row: int, now_ns: int) -> None:
        flow, group = self._flow[row], self._group[row]
        self._flows_of_group.setdefault(group, set()).add(flow)
        self._queues[flow].push(now_ns, row, group)
        self._size += 1
        if flow not in self._circle:
            self._circle[flow] = None

    def head(self, now_ns: int) -> int:
        circle = self._circle
        while circle:
            flow = next(iter(circle))
            entry = self._queues[flow].head()
            if entry is None:
                del circle[flow]
                if not len(self._queues[flow]):
                    self._deficit[flow] = 0
                if self._turn == flow:
                    self._turn = -1
                continue
            if self._turn != flow:
                self._turn = flow
                self._deficit[flow] += self._gain[flow]
            row: int = entry[2]
            if self._cost[row] <= self._deficit[flow]:
                return row
            circle.move_to_end(flow)
            self._turn = -1
        return -1

    def take(self, now_ns: int) -> int:
        row = self.head(now_ns)
        if row < 0:
            return -1
        flow = self._flow[row]
        self._queues[flow].take()
        self._deficit[flow] -= self._cost[row]
        self._size -= 1
        if not len(self._queues[flow]):
            del self._circle[flow]
            self._deficit[flow] = 0
            self._turn = -1
        return row

    pop = take

    def block(self, group: int) -> None:
        for flow in sorted(self._flows_of_group.get(group, ())):
            self._queues[flow].block(group)

    def unblock(self, group: int) -> None:
        for flow in sorted(self._flows_of_group.get(group, ())):
            self._queues[flow].unblock(group)
            if flow not in self._circle and self._queues[flow].head() is not None:
                self._circle[flow] = None
