"""Queues with groups, rank orders, and the laws that every registered order obeys."""

from __future__ import annotations

import bisect
import random
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mechanism_harness import FakeContext, bound, drain, push_all, serve

from simkit.mechanisms import RankOrder, fair, flows, load_builtin, order, queues, registered
from simkit.mechanisms.base import Order
from simkit.mechanisms.deadline import EarliestDeadlineFirst
from simkit.mechanisms.flows import Flows
from simkit.mechanisms.order import Aging, Fifo, Lifo, ShortestJobFirst, StrictPriority
from simkit.mechanisms.pathological import LongestFirst, RandomOrder, ReversePriority, StarveTenant
from simkit.mechanisms.queues import GroupedFifo, GroupedHeap
from simkit.model import NEVER_NS, NS_PER_S, Task, UsageError

load_builtin()

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "weighted_fair": [
        {"weights": {"t1": 3.0, "t2": 0.5}},
        {"by": "class", "cost": "count"},
        {"by": ["class", "tenant"], "weights": {"c0": 2.0}},
    ],
    "drr": [{"weights": {"t1": 3.0}}, {"by": "class", "cost": "tokens"}, {"quantum": 2}],
    "starve_tenant": [{"tenant": "t2"}],
}
ORDERS = [
    pytest.param(cls, params, id=f"{name}{number or ''}")
    for (_, name), cls in registered("order").items()
    if cls.__module__.startswith("simkit.")
    for number, params in enumerate([{}, *VARIANTS.get(name, [])])
]
PARKING = [param for param in ORDERS if param.values[0].parks]

SIZE, GROUPS = 24, 4


def crowd(seed: int, *, grouped: bool, size: int = SIZE) -> FakeContext:
    """Rows with few distinct values in every column: ties everywhere."""
    draw = np.random.default_rng(seed)
    return FakeContext(
        size,
        grouped=grouped,
        tenant=draw.integers(0, 4, size),
        cls=draw.integers(0, 3, size),
        priority=draw.integers(-1, 3, size),
        estimate_ns=draw.integers(0, 6, size),
        slots=draw.integers(1, 3, size),
        tokens=draw.integers(0, 4, size),
        deadline_ns=np.where(draw.random(size) < 0.3, NEVER_NS, draw.integers(0, 9, size)),
        group=draw.integers(0, GROUPS, size),
    )


steps = st.lists(
    st.one_of(
        st.just(("push", 0)),
        st.just(("push", 0)),
        st.just(("pop", 0)),
        st.tuples(st.sampled_from(["block", "unblock"]), st.integers(0, GROUPS - 1)),
        st.tuples(st.just("remove"), st.integers(0, SIZE)),
    ),
    min_size=10,
    max_size=80,
)


def takes_out(queue: Order) -> bool:
    """Whether a bound order does something on `remove`; the others leave it to the engine to skip such rows."""
    return "remove" in vars(queue) or type(queue).remove is not Order.remove


def test_fair_orders_take_removed_rows_out() -> None:
    names = {
        cls.mechanism_name
        for cls, _ in (param.values for param in PARKING)
        if takes_out(bound(cls(), crowd(1, grouped=True)))
    }
    assert names == {"weighted_fair", "drr", "idle_credit"}


# --- laws of every registered order ------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "params"), ORDERS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), choices=st.lists(st.booleans(), max_size=60))
def test_what_goes_in_comes_out_exactly_once(cls: Any, params: dict[str, Any], seed: int, choices: list[bool]) -> None:
    queue = bound(cls(**params), crowd(seed, grouped=False))
    pushed, given_out = 0, []
    for push in choices:
        if push and pushed < SIZE:
            queue.push(pushed, pushed)
            pushed += 1
        else:
            row = queue.pop(pushed)
            assert (row == -1) == (pushed == len(given_out))
            given_out += [row] if row >= 0 else []
        assert len(queue) == pushed - len(given_out)
    assert sorted(given_out + drain(queue, pushed)) == list(range(pushed))


@pytest.mark.parametrize(("cls", "params"), PARKING)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), actions=steps)
def test_a_blocked_group_waits_and_everything_else_is_served(
    cls: Any, params: dict[str, Any], seed: int, actions: list[tuple[str, int]]
) -> None:
    """No blocked or removed row is given out, none that may go is withheld, `take` gives what `head` named, nothing is lost."""
    context = crowd(seed, grouped=True)
    queue = bound(cls(**params), context)
    group = context.rows.group
    waiting: list[int] = []
    blocked: set[int] = set()
    removed: set[int] = set()
    pushed = 0
    takes_removals = takes_out(queue)
    for what, number in actions:
        if what == "push" and pushed < SIZE:
            queue.push(pushed, pushed)
            waiting.append(pushed)
            pushed += 1
        elif what == "pop":
            free = [row for row in waiting if group[row] not in blocked]
            row = queue.head(pushed)
            assert queue.head(pushed) == row
            assert (row in free) if free else (row == -1)
            assert queue.take(pushed) == row
            waiting = [other for other in waiting if other != row]
        elif what == "block":
            queue.block(number)
            blocked.add(number)
        elif what == "unblock":
            queue.unblock(number)
            blocked.discard(number)
        elif what == "remove" and number in waiting and takes_removals:
            queue.remove(number)
            waiting.remove(number)
            removed.add(number)
        assert len(queue) == len(waiting)
    for number in range(GROUPS):
        queue.unblock(number)
    assert sorted(drain(queue, pushed)) == waiting
    assert not removed & set(waiting)


@pytest.mark.parametrize(("cls", "params"), PARKING)
@pytest.mark.parametrize("seed", range(8))
def test_the_short_path_without_groups_gives_the_same_order(cls: Any, params: dict[str, Any], seed: int) -> None:
    plain = bound(cls(**params), crowd(seed, grouped=False, size=120))
    grouped = bound(cls(**params), crowd(seed, grouped=True, size=120))
    dice = random.Random(seed)
    pushed = popped = 0
    while popped < 120:
        if pushed < 120 and dice.random() < 0.55:
            plain.push(pushed, pushed)
            grouped.push(pushed, pushed)
            pushed += 1
        else:
            named = plain.head(pushed)
            row = plain.pop(pushed)
            assert row == named == grouped.pop(pushed)
            popped += row >= 0


@pytest.mark.parametrize(("cls", "params"), ORDERS)
def test_the_order_of_names_and_weights_in_documents_changes_nothing(cls: Any, params: dict[str, Any]) -> None:
    turned = {key: dict(reversed(value.items())) if isinstance(value, dict) else value for key, value in params.items()}
    outcomes = []
    for version in (params, turned):
        queue = bound(cls(**version), crowd(5, grouped=False))
        push_all(queue, range(SIZE))
        outcomes.append(drain(queue))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(("cls", "params"), ORDERS)
def test_a_row_that_comes_back_is_served_again(cls: Any, params: dict[str, Any]) -> None:
    """A failed attempt is queued again under the same row number."""
    queue = bound(cls(**params), crowd(1, grouped=False))
    for _ in range(3):
        push_all(queue, (4, 7))
        assert sorted(drain(queue)) == [4, 7]


@pytest.mark.parametrize(("cls", "params"), PARKING)
def test_a_row_that_was_removed_and_pushed_again_is_served_once(cls: Any, params: dict[str, Any]) -> None:
    queue = bound(cls(**params), crowd(1, grouped=True))
    if not takes_out(queue):
        return  # the engine itself skips what was removed
    push_all(queue, (4, 7))
    queue.remove(4)
    queue.push(4, 0)
    queue.remove(4)
    queue.push(4, 0)
    assert len(queue) == 2
    assert sorted(drain(queue)) == [4, 7]


@pytest.mark.parametrize("key", list(registered()), ids=lambda key: f"{key[0]}-{key[1]}")
def test_every_mechanism_states_its_parameters(key: tuple[str, str]) -> None:
    assert "arameters" in (registered()[key].__doc__ or ""), "what can be set, or that nothing can"


# --- queues with groups against a scan ---------------------------------------------------------------------


class Scan:
    """The definition: all rows in order of (key, sequence); the first whose group is not blocked is next."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, int, int, int]] = []
        self.blocked: set[int] = set()
        self.pushed = 0

    def push(self, key: Any, row: int, group: int) -> None:
        bisect.insort(self.rows, (key, self.pushed, row, group))
        self.pushed += 1

    def pop(self) -> int:
        for entry in self.rows:
            if entry[3] not in self.blocked:
                self.rows.remove(entry)
                return entry[2]
        return -1


queue_steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("pop"), st.just(0), st.just(0)),
        st.tuples(st.sampled_from(["block", "unblock"]), st.integers(0, 3), st.just(0)),
    ),
    max_size=120,
)


@settings(max_examples=300, deadline=None)
@given(queue_steps)
def test_a_grouped_heap_equals_a_scan_that_skips_blocked_groups(actions: list[tuple[str, int, int]]) -> None:
    heap, scan = GroupedHeap(), Scan()
    for row, (what, first, second) in enumerate(actions):
        if what == "push":
            heap.push(second, row, first)
            scan.push(second, row, first)
        elif what == "pop":
            head = heap.head()
            expected = scan.pop()
            assert heap.take() == expected == (-1 if head is None else head[2])
        elif what == "block":
            heap.block(first)
            scan.blocked.add(first)
        else:
            heap.unblock(first)
            scan.blocked.discard(first)
        assert len(heap) == len(scan.rows)


@settings(max_examples=300, deadline=None)
@given(queue_steps)
def test_a_grouped_fifo_equals_a_scan_that_skips_blocked_groups(actions: list[tuple[str, int, int]]) -> None:
    fifo, scan = GroupedFifo(), Scan()
    for row, (what, first, _) in enumerate(actions):
        if what == "push":
            fifo.push(row, row, first)
            scan.push(0, row, first)
        elif what == "pop":
            head = fifo.head()
            expected = scan.pop()
            assert fifo.take() == expected == (-1 if head is None else head[1])
        elif what == "block":
            fifo.block(first)
            scan.blocked.add(first)
        else:
            fifo.unblock(first)
            scan.blocked.discard(first)
        assert len(fifo) == len(scan.rows)
        assert fifo.holds(first) == any(entry[3] == first for entry in scan.rows)


class FlowScan:
    """The definition of `Flows`: the unblocked row with the smallest (rank of its flow, sequence)."""

    def __init__(self) -> None:
        self.rank: dict[int, int] = {}
        self.rows: list[tuple[int, int, int, int]] = []  # (sequence, row, flow, group)
        self.blocked: set[int] = set()

    def head(self) -> tuple[int, int]:
        """(row, flow), both -1 when there is none."""
        free = [(self.rank[flow], at, row, flow) for at, row, flow, group in self.rows if group not in self.blocked]
        return min(free)[2:] if free else (-1, -1)

    def take(self, row: int) -> None:
        self.rows = [entry for entry in self.rows if entry[1] != row]


flow_steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 2), st.integers(0, 4)),
        st.tuples(st.just("push"), st.integers(0, 2), st.integers(0, 4)),
        st.tuples(st.sampled_from(["take", "pass"]), st.integers(0, 3), st.just(0)),
        st.tuples(st.sampled_from(["block", "unblock"]), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 120), st.just(0)),
    ),
    max_size=120,
)


@settings(max_examples=500, deadline=None)
@given(flow_steps)
def test_flows_equal_a_scan_by_rank_of_flow_that_skips_blocked_groups(actions: list[tuple[str, int, int]]) -> None:
    """Also when a group begins in one flow and is later shared, and when several groups of a flow are shared."""
    kept, scan = Flows(), FlowScan()
    for row, (what, first, second) in enumerate(actions):
        if what == "push":
            if not kept.waiting(first):
                scan.rank[first] = scan.rank.get(first, 0) + second
                kept.start(first, scan.rank[first])
            kept.push(first, row, second)
            scan.rows.append((row, row, first, second))
        elif what in ("take", "pass"):
            expected, flow = scan.head()
            assert kept.head() == expected
            if expected >= 0:
                assert kept.flow == flow
                scan.rank[flow] += first
                if what == "take":
                    kept.take(scan.rank[flow])
                    scan.take(expected)
                else:
                    kept.pass_by(scan.rank[flow])
        elif what == "block":
            kept.block(first)
            scan.blocked.add(first)
        elif what == "unblock":
            kept.unblock(first)
            scan.blocked.discard(first)
        else:
            for _, other, flow, _ in scan.rows:
                if other == first:
                    kept.remove(flow, other)
            scan.take(first)
        assert len(kept) == len(scan.rows)
        assert [kept.waiting(flow) for flow in range(3)] == [
            sum(1 for entry in scan.rows if entry[2] == flow) for flow in range(3)
        ]
        assert kept.head() == scan.head()[0]


# --- what each rank order means ----------------------------------------------------------------------------


def expected_order(keys: list[Any]) -> list[int]:
    return sorted(range(len(keys)), key=lambda row: (keys[row], row))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(
    ("queue", "key"),
    [
        (Fifo(), lambda rows, row: 0),
        (Lifo(), lambda rows, row: -row),
        (StrictPriority(), lambda rows, row: -rows.priority[row]),
        (ReversePriority(), lambda rows, row: rows.priority[row]),
        (ShortestJobFirst(), lambda rows, row: rows.estimate_ns[row] * rows.slots[row]),
        (LongestFirst(), lambda rows, row: -rows.estimate_ns[row] * rows.slots[row]),
        (EarliestDeadlineFirst(), lambda rows, row: rows.deadline_ns[row]),
        (StarveTenant(), lambda rows, row: rows.tenant[row] == 0),
        (StarveTenant(tenant="t3"), lambda rows, row: rows.tenant[row] == 3),
    ],
    ids=lambda value: value.mechanism_name if isinstance(value, Order) else "",
)
def test_rows_that_wait_together_leave_by_key_then_first_come_first_served(
    queue: Order, key: Any, grouped: bool
) -> None:
    context = crowd(11, grouped=grouped, size=200)
    bound(queue, context)
    push_all(queue, range(200))
    assert drain(queue) == expected_order([key(context.rows, row) for row in range(200)])


def test_a_run_without_a_deadline_comes_last_under_edf() -> None:
    queue = bound(EarliestDeadlineFirst(), FakeContext(3, deadline_ns=[NEVER_NS, 5, NEVER_NS]))
    push_all(queue, range(3))
    assert drain(queue) == [1, 0, 2]


def test_nonpreemptive_edf_is_not_optimal() -> None:
    """J1 (release 0, work 3, deadline 10) and J2 (1, 1, 2): serving J1 first makes J2 end at 4; waiting for J2 would have met both."""
    queue = bound(EarliestDeadlineFirst(), FakeContext(2, deadline_ns=[10, 2]))
    assert serve(queue, [0, 1], [3, 1]) == [(0, 0), (3, 1)]


def test_keys_follow_columns_that_change_after_bind() -> None:
    """Moving a run to another tier changes estimate, slots and cost of its rows."""
    context = FakeContext(2, estimate_ns=[5, 9])
    queues_now = [bound(ShortestJobFirst(), context)]
    context.rows.estimate_ns[1] = 1
    for queue in queues_now:
        push_all(queue, range(2))
        assert drain(queue) == [1, 0]


def test_starve_tenant_warns_of_a_victim_that_is_not_there() -> None:
    context = FakeContext(2)
    queue = bound(StarveTenant(tenant="nobody"), context)
    assert "nobody" in queue.warnings[0]
    assert context.notes[0][0] == "warning"


def test_the_random_order_picks_every_waiting_row_equally_often() -> None:
    """10,000 picks of one out of 4: each expected 2500, standard deviation sqrt(10^4 * 3/16) = 43; five of them allowed."""
    queue = bound(RandomOrder(), FakeContext(4, seed=3))
    picked = np.zeros(4, dtype=int)
    push_all(queue, range(4))
    for _ in range(10_000):
        row = queue.pop(0)
        picked[row] += 1
        queue.push(row, 0)
    assert abs(picked - 2500).max() <= 5 * 43


# --- orders of an author's own ------------------------------------------------------------------------------


@dataclass
class Cheapest(RankOrder):
    def rank(self, task: Task, now_s: float) -> Any:
        return (task.cost_usd, -now_s)


@dataclass
class Broken(RankOrder):
    def rank(self, task: Task, now_s: float) -> Any:
        return float("nan")


@pytest.mark.parametrize("grouped", [False, True])
def test_an_author_gives_a_rank_from_a_task(grouped: bool) -> None:
    context = FakeContext(4, grouped=grouped, cost_usd=[2.0, 1.0, 2.0, 0.5])
    queue = bound(Cheapest(), context)
    for row in range(4):
        queue.push(row, row * NS_PER_S)
    assert drain(queue) == [3, 1, 2, 0]  # of the two at $2 the later one: its rank has the smaller -now


def test_a_rank_that_is_no_number_is_refused_by_name() -> None:
    queue = bound(Broken(), FakeContext(1))
    with pytest.raises(UsageError, match="Broken: the rank of row 0 is nan"):
        queue.push(0, 0)


# --- aging (P9) ---------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 10**12), st.integers(-3, 3)), min_size=1, max_size=12),
    per_minute=st.sampled_from([1, 7, 60]),
    later=st.integers(0, 10**13),
)
def test_the_static_key_orders_as_priority_plus_bonus_at_any_time(
    rows: list[tuple[int, int]], per_minute: int, later: int
) -> None:
    """Effective priority = priority + rate x wait in exact fractions, evaluated at a time of the test's choosing."""
    rows = sorted(rows)
    queue = bound(Aging(rate=per_minute / 60), FakeContext(len(rows), priority=[priority for _, priority in rows]))
    for row, (ready_ns, _) in enumerate(rows):
        queue.push(row, ready_ns)
    now_ns = rows[-1][0] + later
    rate = Fraction(per_minute, 60 * NS_PER_S)
    effective = [-(priority + rate * (now_ns - ready_ns)) for ready_ns, priority in rows]
    assert drain(queue, now_ns) == expected_order(effective)


def test_aging_is_overtaken_only_within_gap_over_rate() -> None:
    """Priority 2 arrives every second for ever (load 1.2); rate 6 a minute and gap 2: only those of the first 20 s may pass."""
    arrivals = [0] + [second * NS_PER_S for second in range(600)]
    priority = [0] + [2] * 600
    service = [12 * NS_PER_S // 10] * 601
    queue = bound(Aging(rate=0.1), FakeContext(601, priority=priority))
    starts = serve(queue, arrivals, service)
    before = [row for _, row in starts[: [row for _, row in starts].index(0)]]
    assert max(arrivals[row] for row in before) < 20 * NS_PER_S
    assert len(before) == 20  # those of seconds 0 … 19; the one of second 20 ties at key 0 and came later


def test_low_priority_starves_under_strict_priority_and_progresses_under_aging() -> None:
    """High priority alone is 1.2 of what one server can do; 100 low tasks come in 1000 s. Strict priority serves none after the first;
    with aging (1 point a minute, gap 1) low tasks are served in their turn among those of the next minute."""
    high = [(second * NS_PER_S, 1) for second in range(1000)]
    low = [(10 * number * NS_PER_S + 1, 0) for number in range(100)]
    rows = sorted(high + low)
    arrivals, priority = [at for at, _ in rows], [level for _, level in rows]
    served = {}
    for queue in (StrictPriority(), Aging(rate=1 / 60)):
        bound(queue, FakeContext(len(rows), priority=priority))
        starts = serve(queue, arrivals, [12 * NS_PER_S // 10] * len(rows))
        served[queue.mechanism_name] = sum(1 for at, row in starts if at <= 1000 * NS_PER_S and priority[row] == 0)
    assert served["strict_priority"] == 0
    assert served["aging"] >= 60


# --- what a step costs: counted, not timed ------------------------------------------------------------------


class Count(int):
    """A whole number that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: object) -> bool:
        Count.compared += 1
        return int.__lt__(self, other)  # type: ignore[operator]

    def __eq__(self, other: object) -> bool:
        Count.compared += 1
        return int.__eq__(self, other)

    def __neg__(self) -> Count:
        return Count(-int(self))

    __hash__ = int.__hash__


def test_a_push_and_pop_of_a_rank_order_compare_a_logarithm_of_the_queue() -> None:
    """65,536 rows wait. A pop sinks and lifts one entry: at most 2 log2 n comparisons of entries, each at most two of keys."""
    context = FakeContext(2**16, priority=0)
    dice = random.Random(1)
    context.rows.priority[:] = [Count(dice.randrange(1000)) for _ in range(2**16)]
    queue = bound(StrictPriority(), context)
    push_all(queue, range(2**16))
    Count.compared = 0
    for row in drain(queue, limit=1000):
        queue.push(row, 0)
    assert Count.compared / 1000 <= 2 * (2 * 16 + 17)


@pytest.fixture
def heap_operations(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Counts the heap operations of all mechanisms from now on."""
    counted = {"heap": 0, "rebuilt": 0}

    def counting(function: Any, kind: str) -> Any:
        def call(*arguments: Any) -> Any:
            counted[kind] += len(arguments[0]) if kind == "rebuilt" else 1
            return function(*arguments)

        return call

    for module in (queues, order, flows, fair):
        for name in ("heappush", "heappop", "heapreplace", "heapify"):
            if hasattr(module, name):
                kind = "rebuilt" if name == "heapify" else "heap"
                monkeypatch.setattr(module, name, counting(getattr(module, name), kind))
    return counted


@pytest.mark.parametrize(
    ("name", "params", "budget"),
    [
        ("fifo", {}, 0), ("strict_priority", {}, 2), ("edf", {}, 2), ("aging", {}, 2), ("weighted_fair", {}, 2),
        ("weighted_fair", {"by": ["class", "tenant"]}, 8), ("drr", {}, 0),
    ],
)  # fmt: skip
def test_heap_operations_per_task_are_few_without_limits(
    heap_operations: dict[str, int], name: str, params: dict[str, Any], budget: int
) -> None:
    """100,000 tasks of 1000 tenants, 1000 waiting: `budget` heap operations for a push and a pop together."""
    size, depth = 100_000, 1000
    context = FakeContext(size, grouped=False, tenant=np.arange(size) % 1000, cls=np.arange(size) % 3)
    queue = bound(registered("order")["order", name](**params), context)
    push_all(queue, range(depth))
    before = heap_operations["heap"]
    for row in range(depth, size):
        queue.push(row, row)
        queue.pop(row)
    assert heap_operations["heap"] - before <= budget * (size - depth)
    assert heap_operations["rebuilt"] == 0


@pytest.mark.parametrize("name", ["fifo", "strict_priority", "weighted_fair", "drr"])
@pytest.mark.parametrize("shared", [True, False], ids=["group-over-all-tenants", "group-per-tenant"])
def test_holding_a_group_back_costs_the_same_for_ten_and_for_ten_thousand_tenants(
    heap_operations: dict[str, int], name: str, shared: bool
) -> None:
    """The dispatch step of a limit at work: the head's group is blocked, another is served, the group is woken. A step per tenant
    or per waiting row would show as 20,000; the budget is what the steps of a few heaps add up to."""
    spent = []
    for tenants in (10, 10_000):
        size = 2 * tenants + 300
        tenant = np.arange(size) // 2 % tenants
        group = np.arange(size) % 2 if shared else tenant
        queue = bound(registered("order")["order", name](), FakeContext(size, tenant=tenant, group=group))
        group_of = group.tolist()
        push_all(queue, range(2 * tenants))
        before = sum(heap_operations.values())
        for row in range(2 * tenants, size):
            held = group_of[queue.head(row)]
            queue.block(held)
            assert group_of[queue.head(row)] != held
            queue.take(row)
            queue.unblock(held)
            queue.push(row, row)
        spent.append((sum(heap_operations.values()) - before) / 300)
    assert max(spent) <= 16


def test_heaps_do_not_collect_outdated_entries() -> None:
    """An old head that is passed by new ones again and again must not be listed again and again."""
    heap = GroupedHeap()
    heap.push(1000, 0, 0)
    heap.push(1001, 1, 1)
    for row in range(2, 5000):
        heap.push(1, row, 0)
        heap.take()
        heap.block(1)
        heap.unblock(1)
    assert len(heap) == 2
    assert len(heap._top) <= 100  # 64 and twice the groups, and one


def test_flows_do_not_collect_outdated_entries() -> None:
    """The same for flows with private groups (two of flow 0), a shared group (2), and flows that come and go."""
    kept = Flows()
    for flow in range(3):
        kept.start(flow, 0)
    for row, (flow, group) in enumerate([(0, 0), (0, 1), (1, 2), (2, 2), (1, 3)]):
        kept.push(flow, row, group)
    for row in range(10, 3000):
        for group in (0, 2, 3):
            kept.block(group)
            kept.head()
            kept.unblock(group)
        kept.head()
        kept.push(kept.flow, row, row % 2)
        kept.take(kept.rank[kept.flow])
    assert len(kept) == 5
    for heap in (kept._top, kept._private._heap, kept._shared[2]._heap):
        assert len(heap) <= 80  # 64 and twice the few that are listed, and one or two
    assert len(kept._owner) <= 5
