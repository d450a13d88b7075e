"""Fair orders keep their bounds exactly; the max-min reference they are measured against has tests of its own."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mechanism_harness import FakeContext, bound, drain, push_all, serve

from simkit.mechanisms.base import Order, ParameterError
from simkit.mechanisms.fair import DeficitRoundRobin, WeightedFair
from simkit.mechanisms.order import Fifo
from simkit.mechanisms.pathological import IdleCredit
from simkit.mechanisms.weights import fair_alloc, virtual_lengths, whole_ratios

WEIGHTS = {"t0": 1.0, "t1": 2.0, "t2": 0.5, "t3": 3.0}
UNEVEN = [Fraction(weight) for weight in WEIGHTS.values()]


class Logged:
    """Passes pushes and pops on to an order and keeps them: (row, True) pushed, (row, False) given out."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.events: list[tuple[int, bool]] = []

    def push(self, row: int, now_ns: int) -> None:
        self.events.append((row, True))
        self.order.push(row, now_ns)

    def pop(self, now_ns: int) -> int:
        row = self.order.pop(now_ns)
        if row >= 0:
            self.events.append((row, False))
        return row


def largest_gaps(
    events: Sequence[tuple[int, bool]], flow: Sequence[int], cost: Sequence[int], weights: Mapping[int, Fraction]
) -> dict[tuple[int, int], Fraction]:
    """For each pair of flows, the largest |W_f/w_f - W_g/w_g| of dispatched work over any interval in which both have rows waiting:
    the largest minus the smallest value of the running difference within each stretch."""
    waiting = dict.fromkeys(weights, 0)
    gaps: dict[tuple[int, int], Fraction] = {}
    running: dict[tuple[int, int], tuple[Fraction, Fraction, Fraction]] = {}
    for row, pushed in events:
        if not pushed:
            served = flow[row]
            for pair in combinations(sorted(weights), 2):
                if not (waiting[pair[0]] and waiting[pair[1]]):
                    running.pop(pair, None)
                    continue
                now, low, high = running.get(pair, (Fraction(0),) * 3)
                if served in pair:
                    now += cost[row] / weights[served] * (1 if served == pair[0] else -1)
                low, high = min(low, now), max(high, now)
                running[pair] = (now, low, high)
                gaps[pair] = max(gaps.get(pair, Fraction(0)), high - low)
        waiting[flow[row]] += 1 if pushed else -1
        if not waiting[flow[row]]:
            running = {pair: state for pair, state in running.items() if flow[row] not in pair}
    return gaps


def load(seed: int, *, size: int = 120, flows: int = 4, longest: int = 20) -> tuple[FakeContext, list[int], list[int]]:
    """Rows that come in bursts to a server at load around 1: (context, arrivals, costs). Costs are the estimates."""
    draw = np.random.default_rng(seed)
    estimate = draw.integers(1, longest + 1, size)
    gap = draw.exponential(1.0, size) * longest / 2 * (draw.random(size) < 0.5)
    context = FakeContext(
        size, grouped=False, tenant=draw.integers(0, flows, size), cls=draw.integers(0, 2, size), estimate_ns=estimate
    )
    return context, np.cumsum(gap).astype(int).tolist(), estimate.tolist()


def longest(flow: Sequence[int], cost: Sequence[int]) -> dict[int, int]:
    of_flow: dict[int, int] = {}
    for row, code in enumerate(flow):
        of_flow[code] = max(of_flow.get(code, 0), cost[row])
    return of_flow


# --- start-time fair queueing: P10, P11, P12 ----------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2, 4, 16])
@pytest.mark.parametrize("seed", range(12))
def test_sfq_keeps_its_bound_on_dispatched_work_on_any_number_of_servers(servers: int, seed: int) -> None:
    """|W_f/w_f - W_g/w_g| <= l_f/w_f + l_g/w_g (Goyal, Vin and Cheng 1996), over every interval in which both wait, exactly."""
    context, arrivals, costs = load(seed)
    log = Logged(bound(WeightedFair(weights=WEIGHTS), context))
    services = (
        np.random.default_rng(seed + 99).integers(1, 60, len(costs)).tolist()
    )  # the rate of service is not its business
    serve(log, arrivals, services, servers)  # type: ignore[arg-type]
    flow = context.rows.tenant
    most = longest(flow, costs)
    for (f, g), gap in largest_gaps(log.events, flow, costs, dict(enumerate(UNEVEN))).items():
        assert gap <= most[f] / UNEVEN[f] + most[g] / UNEVEN[g]


def test_the_sfq_bound_is_tight() -> None:
    """Over 200 random loads some pair comes within 10 % of it: the test above could not pass with a much smaller bound."""
    ratios = []
    for seed in range(200):
        context, arrivals, costs = load(seed, size=60)
        log = Logged(bound(WeightedFair(weights=WEIGHTS), context))
        serve(log, arrivals, costs)  # type: ignore[arg-type]
        most = longest(context.rows.tenant, costs)
        for (f, g), gap in largest_gaps(log.events, context.rows.tenant, costs, dict(enumerate(UNEVEN))).items():
            ratios.append(gap / (most[f] / UNEVEN[f] + most[g] / UNEVEN[g]))
    assert Fraction(9, 10) <= max(ratios) <= 1


@pytest.mark.parametrize("seed", range(12))
def test_two_levels_keep_the_bound_between_classes_and_between_tenants_of_a_class(seed: int) -> None:
    context, arrivals, costs = load(seed, size=200)
    classes, tenants = context.rows.cls, context.rows.tenant
    order = WeightedFair(by=["class", "tenant"], weights={"c0": 3.0, "c1": 0.5})
    log = Logged(bound(order, context))
    serve(log, arrivals, costs, 2)  # type: ignore[arg-type]
    weight = {0: Fraction(3), 1: Fraction(1, 2)}
    most = longest(classes, costs)
    for (f, g), gap in largest_gaps(log.events, classes, costs, weight).items():
        assert gap <= most[f] / weight[f] + most[g] / weight[g]
    for code in (0, 1):
        events = [event for event in log.events if classes[event[0]] == code]
        mine = [row for row, pushed in events if pushed]
        largest = max(costs[row] for row in mine)
        for gap in largest_gaps(events, tenants, costs, dict.fromkeys(range(4), Fraction(1))).values():
            assert gap <= 2 * largest


def test_the_share_of_a_class_does_not_grow_with_its_tenants() -> None:
    """c0 has 50 tenants, c1 has one, equal weights, unit costs: of 100 services each class gets 50. By tenant the one of c1
    would get pick 51 and not again before pick 102."""
    tenant = [*range(50)] * 4 + [50] * 200
    cls = [0] * 200 + [1] * 200
    served = {}
    for by in (["class", "tenant"], "tenant"):
        queue = bound(WeightedFair(by=by, cost="count"), FakeContext(400, grouped=False, tenant=tenant, cls=cls))  # type: ignore[arg-type]
        push_all(queue, range(400))
        served[str(by)] = sum(cls[row] for row in drain(queue, limit=100))
    assert served == {"['class', 'tenant']": 50, "tenant": 1}


@pytest.mark.parametrize("weights", [{"t0": 10.0, "t1": 3.0}, {"t0": 0.1, "t1": 0.03}])
def test_long_run_shares_are_the_weights_exactly(weights: dict[str, float]) -> None:
    """Unit costs, both always waiting: every 13 services are 10 of t0 and 3 of t1, without drift over 13,000."""
    size = 26_000
    queue = bound(
        WeightedFair(weights=weights, cost="count"), FakeContext(size, grouped=False, tenant=np.arange(size) % 2)
    )
    push_all(queue, range(size))
    served = np.array(drain(queue, limit=13_000)) % 2
    assert served.sum() == 3000
    assert served[-1300:].sum() == 300


def burst_in_a_row(order: Order, idle: int) -> int:
    """t0 is served `idle` times while t1 has nothing; then both have plenty: the longest run of t1 from its return on."""
    rows = 3 * idle + 20
    tenant = [0] * (2 * idle + 10) + [1] * (idle + 10)
    queue = bound(order, FakeContext(rows, grouped=False, tenant=tenant))
    push_all(queue, range(2 * idle + 10))
    drain(queue, limit=idle)
    push_all(queue, range(2 * idle + 10, rows))
    best = run = 0
    for row in drain(queue, limit=idle + 5):
        run = run + 1 if tenant[row] else 0
        best = max(best, run)
    return best


def test_an_idle_flow_earns_no_credit() -> None:
    """A flow that was away for 1000 services takes at most two in a row when it comes back (S = max(v, F)). Without the max it takes
    every one of its 1000 missed services first."""
    assert burst_in_a_row(WeightedFair(), 1000) <= 2
    assert burst_in_a_row(DeficitRoundRobin(), 1000) <= 2
    assert burst_in_a_row(IdleCredit(), 1000) == 1000


@pytest.mark.parametrize("order", [WeightedFair(), WeightedFair(by=["class", "tenant"]), DeficitRoundRobin()])
def test_a_flow_that_was_held_back_earns_no_credit_either(order: Order) -> None:
    """t1's group is blocked for 1000 services of t0; unblocked, it gets at most two in a row, and they share evenly."""
    tenant = np.arange(3000) % 2
    queue = bound(order, FakeContext(3000, tenant=tenant, group=tenant))
    push_all(queue, range(3000))
    queue.block(1)
    assert {row % 2 for row in drain(queue, limit=1000)} == {0}
    queue.unblock(1)
    after = "".join(str(row % 2) for row in drain(queue, limit=100))
    assert "111" not in after
    assert abs(after.count("1") - 50) <= 1


def test_history_is_forgotten_when_nothing_waits() -> None:
    """t0 has had 100 services, everything is served; then both come at once, t0 first: first come first served, then in turn."""
    queue = bound(WeightedFair(), FakeContext(200, grouped=False, tenant=[0] * 100 + [0, 1] * 50))
    push_all(queue, range(100))
    drain(queue)
    push_all(queue, range(100, 200))
    assert drain(queue, limit=4) == [100, 101, 102, 103]


@pytest.mark.parametrize("backlog", [100, 1000, 4000])
def test_a_small_tenant_does_not_wait_for_the_backlog_of_a_large_one(backlog: int) -> None:
    """P33, by hand: 4 servers, unit services, tenant a has `backlog` tasks at time 0, tenant b 10 just after. FIFO: b starts after a's:
    row k of b at floor((backlog + k) / 4). Fair: a, b in turn from the first pick on, so b's tenth is pick 20 of 20: start 4, always."""
    worst = {}
    for order in (Fifo(), WeightedFair(), DeficitRoundRobin()):
        size = backlog + 10
        queue = bound(order, FakeContext(size, grouped=False, tenant=[0] * backlog + [1] * 10))
        starts = serve(queue, [0] * size, [1] * size, 4)
        worst[order.mechanism_name] = max(at for at, row in starts if row >= backlog)
    assert worst == {"fifo": (backlog + 9) // 4, "weighted_fair": 4, "drr": 4}


# --- limits and fairness -------------------------------------------------------------------------------------


class NaiveFair:
    """weighted_fair by its rule, with a scan over all rows at each step and fractions for tags."""

    def __init__(
        self, flow: Sequence[int], group: Sequence[int], cost: Sequence[int], weights: Sequence[Fraction]
    ) -> None:
        self.flow, self.group, self.cost, self.weights = flow, group, cost, weights
        self.tag = [Fraction(0)] * len(weights)
        self.v = self.last = Fraction(0)
        self.rows: list[int] = []
        self.blocked: set[int] = set()

    def push(self, row: int) -> None:
        flow = self.flow[row]
        if not self.rows:
            self.v = self.last
        if all(self.flow[other] != flow for other in self.rows):
            self.tag[flow] = max(self.v, self.tag[flow])
        self.rows.append(row)

    def pop(self) -> int:
        free = [
            (self.tag[self.flow[row]], at, row)
            for at, row in enumerate(self.rows)
            if self.group[row] not in self.blocked
        ]
        if not free:
            return -1
        tag, _, row = min(free)
        self.v = max(self.v, tag)
        self.tag[self.flow[row]] = self.v + self.cost[row] / self.weights[self.flow[row]]
        self.last = max(self.last, self.tag[self.flow[row]])
        self.rows.remove(row)
        return row


class NaiveLevels:
    """weighted_fair over classes and then tenants by its rule: tags on both levels, scans, fractions. Ties between classes: who got its
    tag first."""

    def __init__(self, context: FakeContext, weights: Sequence[Fraction]) -> None:
        rows = context.rows
        self.cls, self.tenant, self.group, self.cost = rows.cls, rows.tenant, rows.group, rows.estimate_ns
        self.weights = weights
        self.tags = {code: (Fraction(0), 0) for code in range(len(weights))}  # (tag, when given)
        self.v = self.last = Fraction(0)
        self.inner = [
            NaiveFair(rows.tenant, rows.group, rows.estimate_ns, [Fraction(1)] * len(context.names["tenant"]))
            for _ in weights
        ]
        self.blocked: set[int] = set()
        for level in self.inner:
            level.blocked = self.blocked
        self.given = 0

    def retag(self, code: int, tag: Fraction) -> None:
        self.given += 1
        self.tags[code] = (tag, self.given)

    def push(self, row: int) -> None:
        code = self.cls[row]
        if not any(level.rows for level in self.inner):
            self.v = self.last
        if not self.inner[code].rows:
            self.retag(code, max(self.v, self.tags[code][0]))
        self.inner[code].push(row)

    def pop(self) -> int:
        free = [
            (self.tags[code], code)
            for code, level in enumerate(self.inner)
            if any(self.group[row] not in self.blocked for row in level.rows)
        ]
        if not free:
            return -1
        (tag, _), code = min(free)
        row = self.inner[code].pop()
        self.v = max(self.v, tag)
        finish = self.v + self.cost[row] / self.weights[code]
        self.last = max(self.last, finish)
        self.retag(code, finish)
        return row


class NaiveRounds:
    """drr by its rule: a circle of flows, one visit at a time."""

    def __init__(
        self, flow: Sequence[int], group: Sequence[int], cost: Sequence[int], weights: Sequence[Fraction], quantum: int
    ) -> None:
        self.flow, self.group, self.cost = flow, group, cost
        self.gain = [quantum * weight / min(weights) for weight in weights]
        self.deficit = [Fraction(0)] * len(weights)
        self.begun = [False] * len(weights)
        self.circle: list[int] = []
        self.rows: list[int] = []
        self.blocked: set[int] = set()

    def push(self, row: int) -> None:
        self.rows.append(row)
        if self.flow[row] not in self.circle:
            self.circle.append(self.flow[row])

    def first(self, flow: int) -> int:
        free = (row for row in self.rows if self.flow[row] == flow and self.group[row] not in self.blocked)
        return next(free, -1)

    def pop(self) -> int:
        while any(self.group[row] not in self.blocked for row in self.rows):
            flow = next(flow for flow in self.circle if self.first(flow) >= 0)
            if not self.begun[flow]:
                self.begun[flow] = True
                self.deficit[flow] += self.gain[flow]
            row = self.first(flow)
            if self.cost[row] <= self.deficit[flow]:
                self.deficit[flow] -= self.cost[row]
                self.rows.remove(row)
                if all(self.flow[other] != flow for other in self.rows):
                    self.circle.remove(flow)
                    self.deficit[flow], self.begun[flow] = Fraction(0), False
                return row
            self.begun[flow] = False
            self.circle.remove(flow)
            self.circle.append(flow)
        return -1


Naive = NaiveFair | NaiveLevels | NaiveRounds

moves = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["push", "push", "pop"]), st.just(0)),
        st.tuples(st.sampled_from(["block", "unblock"]), st.integers(0, 4)),
    ),
    min_size=40,
    max_size=150,
)


def compare_with_rule(queue: Order, naive: Naive, actions: list[tuple[str, int]], size: int) -> None:
    pushed = 0
    for what, number in actions:
        if what == "push" and pushed < size:
            queue.push(pushed, 0)
            naive.push(pushed)
            pushed += 1
        elif what == "pop":
            queue.head(0)
            assert queue.take(0) == naive.pop()
        elif what == "block":
            queue.block(number)
            naive.blocked.add(number)
        elif what == "unblock":
            queue.unblock(number)
            naive.blocked.discard(number)


def grouped(seed: int, size: int = 80) -> FakeContext:
    """Groups 0 and 1 run over all tenants, 2 to 4 each belong to one of them."""
    draw = np.random.default_rng(seed)
    tenant = draw.integers(0, 4, size)
    group = np.where(draw.random(size) < 0.5, draw.integers(0, 2, size), 2 + np.minimum(tenant, 2))
    group[(tenant == 3) & (group > 1)] = 0
    return FakeContext(
        size, tenant=tenant, group=group, cls=draw.integers(0, 3, size), estimate_ns=draw.integers(1, 9, size)
    )


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), actions=moves)
def test_weighted_fair_equals_its_rule_whatever_is_held_back(seed: int, actions: list[tuple[str, int]]) -> None:
    context = grouped(seed)
    rows = context.rows
    queue = bound(WeightedFair(weights=WEIGHTS), context)
    weights = UNEVEN[: len(context.names["tenant"])]
    compare_with_rule(queue, NaiveFair(rows.tenant, rows.group, rows.estimate_ns, weights), actions, rows.size)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), actions=moves)
def test_two_levels_equal_their_rule_whatever_is_held_back(seed: int, actions: list[tuple[str, int]]) -> None:
    context = grouped(seed)
    weights = [Fraction(2), Fraction(1), Fraction(1, 2)]
    named = {f"c{code}": float(weight) for code, weight in enumerate(weights)}
    queue = bound(WeightedFair(by=["class", "tenant"], weights=named), context)
    compare_with_rule(queue, NaiveLevels(context, weights), actions, context.rows.size)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), actions=moves, quantum=st.sampled_from([1, 3, 8, 30]))
def test_drr_equals_its_rule_whatever_is_held_back(seed: int, actions: list[tuple[str, int]], quantum: int) -> None:
    """Also with quanta below the largest cost, where whole rounds are counted at once."""
    context = grouped(seed)
    rows = context.rows
    queue = bound(DeficitRoundRobin(weights=WEIGHTS, quantum=quantum), context)
    weights = UNEVEN[: len(context.names["tenant"])]
    naive = NaiveRounds(rows.tenant, rows.group, rows.estimate_ns, weights, quantum)
    compare_with_rule(queue, naive, actions, rows.size)


@pytest.mark.parametrize("seed", range(12))
def test_sfq_keeps_its_bound_over_intervals_in_which_both_may_start(seed: int) -> None:
    """Groups are blocked and woken at random: a flow counts as waiting while it has a row that is not held back."""
    context = grouped(seed, 200)
    rows, dice = context.rows, random.Random(seed)
    queue = bound(WeightedFair(weights=WEIGHTS), context)
    blocked: set[int] = set()
    free = dict.fromkeys(range(4), 0)
    events: list[tuple[int, bool]] = []
    fake_flow, fake_cost = list(rows.tenant), list(rows.estimate_ns)

    def count_free() -> None:
        """Log the change in free rows of each flow as pushes and cancellations of rows without cost."""
        for flow in free:
            now = sum(1 for row in waiting if rows.tenant[row] == flow and rows.group[row] not in blocked)
            while free[flow] != now:
                fake_flow.append(flow)
                fake_cost.append(0)
                events.append((len(fake_flow) - 1, free[flow] < now))
                free[flow] += 1 if free[flow] < now else -1

    waiting: list[int] = []
    for step in range(600):
        if step % 3 == 0 and step // 3 < 200:
            queue.push(step // 3, 0)
            waiting.append(step // 3)
        if dice.random() < 0.1:
            group = dice.randrange(5)
            (queue.unblock if group in blocked else queue.block)(group)
            blocked ^= {group}
        count_free()
        if dice.random() < 0.4 and (row := queue.pop(0)) >= 0:
            waiting.remove(row)
            free[rows.tenant[row]] -= 1
            events.append((row, False))
    most = longest(rows.tenant, rows.estimate_ns)
    gaps = largest_gaps(events, fake_flow, fake_cost, dict(enumerate(UNEVEN)))
    assert len(gaps) == 6
    for (f, g), gap in gaps.items():
        assert gap <= most[f] / UNEVEN[f] + most[g] / UNEVEN[g]


@pytest.mark.parametrize(
    ("order", "served"),
    [
        (WeightedFair(), [10, 11, 12, 13]),
        (WeightedFair(by=["class", "tenant"]), [10, 11, 12, 13]),
        (DeficitRoundRobin(), [10, 11, 13, 12]),
    ],
)
def test_what_leaves_the_queue_unserved_is_not_charged(order: Order, served: list[int]) -> None:
    """Ten rows of t0 are removed (cancelled or expired); its next is still the first of all. Charged for, it would come after both of
    t1. Start tags then tie (first come first served); a round goes t0, t1, t0, t1."""
    queue = bound(order, FakeContext(14, tenant=[0] * 11 + [1, 1, 0], group=0))
    push_all(queue, range(14))
    for row in range(10):
        queue.remove(row)
    assert len(queue) == 4
    assert drain(queue) == served


# --- deficit round robin ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("quantum", [None, 5, 60])
def test_drr_keeps_its_bound(seed: int, quantum: int | None) -> None:
    """Q/w_min + l_f/w_f + l_g/w_g: between two visits of f there is one of g, and a deficit lies in [0, l)."""
    context, arrivals, costs = load(seed)
    log = Logged(bound(DeficitRoundRobin(weights=WEIGHTS, quantum=quantum), context))
    serve(log, arrivals, costs, 2)  # type: ignore[arg-type]
    most = longest(context.rows.tenant, costs)
    lightest = min(UNEVEN)
    for (f, g), gap in largest_gaps(log.events, context.rows.tenant, costs, dict(enumerate(UNEVEN))).items():
        assert gap <= (quantum or max(costs)) / lightest + most[f] / UNEVEN[f] + most[g] / UNEVEN[g]


def test_round_robin_by_count_has_no_bound_in_work() -> None:
    """Costs 20 and 1, n services each: it dispatches 20 n against n, so the gap grows as 19 n; drr by cost stays within 3 Max = 60."""
    gaps = {}
    for cost in ("count", "estimate"):
        for rounds in (100, 800):
            size = 42 * rounds
            tenant = np.arange(size) % 2
            costs = np.where(tenant == 0, 20, 1)
            log = Logged(
                bound(DeficitRoundRobin(cost=cost), FakeContext(size, grouped=False, tenant=tenant, estimate_ns=costs))
            )  # type: ignore[arg-type]
            push_all(log, range(size))  # type: ignore[arg-type]
            for _ in range(2 * rounds):
                log.pop(0)
            found = largest_gaps(log.events, tenant.tolist(), costs.tolist(), {0: Fraction(1), 1: Fraction(1)})
            gaps[cost, rounds] = found[0, 1]
    assert gaps["count", 100] >= 19 * 100 - 20
    assert gaps["count", 800] >= 19 * 800 - 20
    assert gaps["estimate", 100] <= 60
    assert gaps["estimate", 800] <= 60


def test_drr_by_hand() -> None:
    """Quantum 10. t0 has costs 4, 4, 4; t1 has 9, 2. Turn of t0: 10, pays 4 and 4, 2 left, 4 does not fit. t1: 10, pays 9, 1 left, 2 does
    not fit. t0: 12, pays 4, empty. t1: 11, pays 2."""
    context = FakeContext(5, grouped=False, tenant=[0, 0, 0, 1, 1], estimate_ns=[4, 4, 4, 9, 2])
    queue = bound(DeficitRoundRobin(quantum=10), context)
    push_all(queue, range(5))
    assert drain(queue) == [0, 1, 3, 2, 4]


def test_a_tiny_quantum_costs_rounds_of_arithmetic_not_of_steps() -> None:
    """1 ns a turn for tasks of 10 minutes would be 6 x 10^11 turns; they are counted at once."""
    context = FakeContext(4, grouped=False, tenant=[0, 1, 0, 1], estimate_ns=600 * 10**9)
    queue = bound(DeficitRoundRobin(quantum=1), context)
    push_all(queue, range(4))
    assert drain(queue) == [0, 1, 2, 3]


def test_the_default_quantum_is_the_largest_cost_of_the_orders_own_pool() -> None:
    """Pool 0 has costs up to 3, pool 1 up to 100: three tasks of cost 1 go in a turn of pool 0, not a hundred."""
    context = FakeContext(
        9,
        grouped=False,
        pool=[0] * 8 + [1],
        tenant=[0] * 5 + [1] * 3 + [0],
        estimate_ns=[1] * 4 + [3] + [1] * 3 + [100],
    )
    queue = bound(DeficitRoundRobin(), context)
    push_all(queue, range(8))
    assert drain(queue, limit=6) == [0, 1, 2, 5, 6, 7]


# --- cost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "column", "values"),
    [("estimate", "estimate_ns", [3, 1]), ("tokens", "tokens", [300, 100]), ("usd", "cost_usd", [0.03, 0.01])],
)
@pytest.mark.parametrize("cls", [WeightedFair, DeficitRoundRobin])
def test_shares_are_of_the_chosen_cost(cls: Any, cost: str, column: str, values: list[float]) -> None:
    """t0's rows cost three times t1's: equal shares of cost are one of t0 to three of t1."""
    tenant = np.arange(800) % 2
    context = FakeContext(800, grouped=False, tenant=tenant, **{column: np.where(tenant == 0, *values)})
    queue = bound(cls(cost=cost), context)
    push_all(queue, range(800))
    assert abs(sum(row % 2 for row in drain(queue, limit=400)) - 300) <= 3


def test_slots_count_as_work() -> None:
    """Two slots for the same time are twice the work: one of t0 to two of t1."""
    tenant = np.arange(600) % 2
    queue = bound(WeightedFair(), FakeContext(600, grouped=False, tenant=tenant, slots=2 - tenant))
    push_all(queue, range(600))
    assert abs(sum(row % 2 for row in drain(queue, limit=300)) - 200) <= 2


def test_work_of_no_cost_still_takes_turns() -> None:
    """A task without tokens is charged one: otherwise it would pass for ever."""
    for order in (WeightedFair(cost="tokens"), DeficitRoundRobin(cost="tokens")):
        queue = bound(order, FakeContext(20, grouped=False, tenant=[0, 1] * 10, tokens=0))
        push_all(queue, range(20))
        assert drain(queue) == list(range(20))


# --- parameters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WeightedFair(weights={"a": 0.0}), "weights: a: found 0.0"),
        (lambda: WeightedFair(default=-1.0), "default"),
        (lambda: WeightedFair(by=["tenant", "class"]), "expected tenant, class or"),
        (lambda: IdleCredit(by=["class", "tenant"]), "expected tenant or class"),
        (lambda: DeficitRoundRobin(quantum=5, cost="count"), "quantum"),
        (lambda: DeficitRoundRobin(weights={"a": float("inf")}), "weights: a"),
    ],
)
def test_impossible_parameters_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()


def test_a_weight_for_a_name_that_is_not_there_is_warned_of() -> None:
    context = FakeContext(2, tenant=[0, 1])
    queue = bound(WeightedFair(weights={"t1": 2.0, "t9": 3.0}), context)
    assert len(queue.warnings) == 1
    assert "'t9'" in queue.warnings[0]


def test_weights_become_whole_numbers_exactly() -> None:
    assert whole_ratios([0.5, 1, 2.5]) == [1, 2, 5]
    assert whole_ratios([0.1, 0.3]) == [1, 3]
    assert virtual_lengths([10, 5, 3, 1]) == [3, 6, 10, 30]
    assert virtual_lengths([1 / 3, 1.0]) == [3, 1]


def test_weights_without_a_small_common_measure_are_rounded_far_below_what_shows() -> None:
    weights = np.random.default_rng(1).random(200).tolist()
    lengths = virtual_lengths(weights)
    products = [Fraction(weight) * length for weight, length in zip(weights, lengths, strict=True)]
    assert max(products) / min(products) - 1 < Fraction(1, 10**11)
    assert max(lengths) < 2**64


# --- max-min ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("demands", "capacity", "shares"),
    [
        ([3, 7, 9, 1], 14, [3, 5, 5, 1]),
        ([1, 9, 7, 3], 21, [1, 9, 7, 3]),
        ([1, 47], 42, [1, 41]),
        ([], 5, []),
        ([4, 4], 0, [0, 0]),
    ],
)
def test_max_min_shares_by_hand(demands: list[int], capacity: int, shares: list[int]) -> None:
    """The first three are the golden vectors of Kubernetes API priority and fairness."""
    assert fair_alloc(demands, capacity) == shares


@settings(max_examples=200, deadline=None)
@given(
    clients=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5)), min_size=1, max_size=8),
    capacity=st.integers(0, 200),
)
def test_max_min_shares_have_the_defining_property(clients: list[tuple[int, int]], capacity: int) -> None:
    """All is given out or everybody has what it asked for; who has less than that has the largest share per weight of all."""
    demands, weights = [need for need, _ in clients], [weight for _, weight in clients]
    shares = fair_alloc(demands, capacity, weights)
    assert sum(shares) == min(capacity, sum(demands))
    level = max((share / weight for share, weight in zip(shares, weights, strict=True)), default=Fraction(0))
    for need, weight, share in zip(demands, weights, shares, strict=True):
        assert 0 <= share <= need
        assert share == need or share / weight == level


@settings(max_examples=60, deadline=None)
@given(
    clients=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3)), min_size=2, max_size=5),
    capacity=st.integers(1, 60),
)
def test_weighted_fair_gives_a_burst_its_max_min_shares(clients: list[tuple[int, int]], capacity: int) -> None:
    """All tasks (of one unit) wait at time 0 and `capacity` are served: each tenant has its max-min share up to the bound
    between it and the lightest, w (1/w + 1/w_min)."""
    tenant = [code for code, (need, _) in enumerate(clients) for _ in range(need)]
    names = [f"t{code}" for code in range(len(clients))]
    weights = {name: float(weight) for name, (_, weight) in zip(names, clients, strict=True)}
    queue = bound(
        WeightedFair(weights=weights, cost="count"),
        FakeContext(len(tenant), grouped=False, tenant=tenant, names={"tenant": names}),
    )
    push_all(queue, range(len(tenant)))
    served = np.bincount([tenant[row] for row in drain(queue, limit=capacity)], minlength=len(clients)).tolist()
    shares = fair_alloc([need for need, _ in clients], capacity, [weight for _, weight in clients])
    lightest = min(weight for _, weight in clients)
    for got, share, (_, weight) in zip(served, shares, clients, strict=True):
        assert abs(got - share) <= 1 + Fraction(weight, lightest)
