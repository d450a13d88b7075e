"""The engine job by job against an independent loop, and its two lanes against each other."""

from __future__ import annotations

import numpy as np
import pytest
from engine_harness import policy, reference_starts, run, tasks_trace
from hypothesis import given, settings
from hypothesis import strategies as st

from simkit.engine.simulation import Simulation
from simkit.log import TABLES, columns_of
from simkit.mechanisms import load_builtin, registered
from simkit.model import PlatformSpec, PoolSpec
from simkit.trace.build import chain, single_task

JOBS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 9), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=40
)  # (gap, service, priority, flow): small whole numbers make many ties


def columns(drawn: list[tuple[int, int, int, int]]) -> tuple[list[int], ...]:
    gaps, services, priorities, flows = (list(column) for column in zip(*drawn, strict=True))
    return np.cumsum(gaps).tolist(), services, priorities, flows


@settings(max_examples=150, deadline=None, derandomize=True)
@given(JOBS, st.integers(1, 4))
def test_fifo_equals_the_independent_loop(drawn: list[tuple[int, int, int, int]], servers: int) -> None:
    arrival, service, _, _ = columns(drawn)
    log = run(single_task(arrival, service, pool="w"), {"w": servers})
    assert log.rows.start_ns.tolist() == reference_starts(arrival, service, servers, "fifo")


@settings(max_examples=150, deadline=None, derandomize=True)
@given(JOBS, st.integers(1, 4))
def test_strict_priority_equals_the_independent_loop(drawn: list[tuple[int, int, int, int]], servers: int) -> None:
    arrival, service, priority, _ = columns(drawn)
    log = run(single_task(arrival, service, pool="w", priority=priority), {"w": servers}, "strict_priority")
    assert log.rows.start_ns.tolist() == reference_starts(arrival, service, servers, "priority", priority=priority)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(JOBS, st.integers(1, 4))
def test_weighted_fair_equals_the_independent_loop(drawn: list[tuple[int, int, int, int]], servers: int) -> None:
    arrival, service, _, flow = columns(drawn)
    cost = [max(1, need) for need in service]
    order = {"weighted_fair": {"by": "tenant", "weights": {"0": 4, "1": 2, "2": 1}}}
    trace = single_task(arrival, service, pool="w", tenant=[str(name) for name in flow], estimate_ns=cost)
    log = run(trace, {"w": servers}, order)
    expected = reference_starts(arrival, service, servers, "sfq", flow=flow, weight=[4, 2, 1], cost=cost)
    assert log.rows.start_ns.tolist() == expected


def test_large_random_streams_equal_the_independent_loop() -> None:
    """20,000 jobs at load 0.95 on 3 servers, each discipline, exactly."""
    rng = np.random.default_rng(42)
    size = 20_000
    arrival = np.cumsum(rng.integers(1, 700, size)).tolist()
    service = rng.integers(1, 2000, size).tolist()
    priority, flow = rng.integers(0, 4, size).tolist(), rng.integers(0, 50, size).tolist()
    weight = [flow_number % 5 + 1 for flow_number in range(50)]
    names = [f"t{number}" for number in flow]
    trace = single_task(arrival, service, pool="w", priority=priority, tenant=names)
    weights = {f"t{number}": value for number, value in enumerate(weight)}
    for order, name in (
        ("fifo", "fifo"),
        ("strict_priority", "priority"),
        ({"weighted_fair": {"weights": weights}}, "sfq"),
    ):
        expected = reference_starts(
            arrival, service, 3, name, priority=priority, flow=flow, weight=weight, cost=service
        )
        assert run(trace, {"w": 3}, order).rows.start_ns.tolist() == expected, name


def orders() -> list[str]:
    load_builtin()
    return [name for _, name in registered("order")]


@pytest.mark.parametrize("order", orders())
def test_the_express_lane_gives_the_same_log_as_the_general_path(order: str) -> None:
    """Every column of every table, for single tasks, chains and with a horizon that cuts."""
    rng = np.random.default_rng(7)
    size = 400
    arrival = np.cumsum(rng.integers(0, 8, size))
    names = [f"t{number}" for number in rng.integers(0, 5, size)]
    extra = {"tenant": names, "priority": rng.integers(0, 3, size), "cls": [name[::-1] for name in names]}
    single = single_task(arrival, rng.integers(0, 30, size), pool="a", deadline_ns=rng.integers(1, 400, size), **extra)
    chained = chain(arrival, rng.integers(0, 12, (size, 3)), ["a", "b", "a"], **extra)
    platform = PlatformSpec((PoolSpec("a", 4), PoolSpec("b", 2)))
    for trace in (single, chained):
        for options in ({}, {"horizon_ns": 700}):
            fast, slow = (
                Simulation(platform, policy(order), trace, express_lane=lane, **options).run(strict=True)
                for lane in (True, False)
            )
            assert fast.header["kernel_events"] == slow.header["kernel_events"]
            assert_same_log(fast, slow)


GATED = {
    "bounded queue": {"admission": [{"queue_limit": {"max": 6, "by": "tenant", "verdict": "shed"}}]},
    "deferral": {"admission": [{"queue_limit": {"max": 4, "verdict": "defer", "retry_after": "20ns", "jitter": 0.5}}]},
    "share cap": {"limits": [{"share_cap": {"by": "tenant", "count": 1}}]},
    "bucket": {"limits": [{"token_bucket": {"rate": "1/5ns", "burst": 3, "by": "class", "pools": ["a"]}}]},
    "impossible bucket": {"limits": [{"token_bucket": {"rate": "1/5ns", "burst": 1, "by": "all", "unit": "tokens"}}]},
    "modes": {
        "admission": [{"queue_limit": {"max": 30}}],
        "limits": [{"share_cap": {"by": "tenant", "fraction": 0.5}}],
        "overload": {
            "hysteresis": {
                "signal": "max_utilisation",
                "every": "10ns",
                "modes": {"busy": {"enter": 0.9, "leave": 0.4}, "full": {"enter": 0.99, "leave": 0.6}},
                "do": {"busy": [{"defer": ["0t"]}, {"defer_for": "15ns"}], "full": [{"only": ["0t", "1t", "2t"]}]},
            }
        },
    },
}


@pytest.mark.parametrize("name", GATED)
@pytest.mark.parametrize("order", ["fifo", {"weighted_fair": {"by": "tenant"}}])
def test_gates_and_modes_give_the_same_log_on_both_lanes(name: str, order: object) -> None:
    rng = np.random.default_rng(23)
    size = 500
    arrival = np.cumsum(rng.integers(0, 6, size))
    names = [f"t{number}" for number in rng.integers(0, 4, size)]
    trace = chain(arrival, rng.integers(0, 14, (size, 2)), ["a", "b"], tenant=names, cls=[name[::-1] for name in names])
    platform = PlatformSpec((PoolSpec("a", 3), PoolSpec("b", 2)))
    for options in ({}, {"horizon_ns": 900}):
        chosen = policy(order, **GATED[name])
        fast, slow = (Simulation(platform, chosen, trace, express_lane=lane, **options) for lane in (True, False))
        assert fast._lane is not None
        assert_same_log(fast.run(strict=True), slow.run(strict=True))


def assert_same_log(one: object, other: object) -> None:
    for table in TABLES:
        for name, column in columns_of(getattr(one, table)).items():
            theirs = columns_of(getattr(other, table))[name]
            if name != "group":  # numbered only where something may be held back
                assert np.array_equal(np.asarray(column), np.asarray(theirs)), f"{table}.{name}"
    skipped = {"kernel_events", "versions"}
    assert {k: v for k, v in one.header.items() if k not in skipped} == {
        k: v for k, v in other.header.items() if k not in skipped
    }


def test_a_graph_runs_tasks_when_all_predecessors_are_done() -> None:
    """a 2 s; b, c after a (3 s, 1 s); d after b and c 1 s: d is ready at 5 and ends at 6, whichever lane runs it."""
    trace = tasks_trace(
        {
            "arrival_s": 0,
            "tasks": [
                {"task_id": "a", "pool": "w", "service_s": 2},
                {"task_id": "b", "after": ["a"], "pool": "w", "service_s": 3},
                {"task_id": "c", "after": ["a"], "pool": "w", "service_s": 1},
                {"task_id": "d", "after": ["b", "c"], "pool": "w", "service_s": 1},
            ],
        }
    )
    platform = PlatformSpec((PoolSpec("w", 2),))
    for lane in (True, False):
        log = Simulation(platform, policy(), trace, express_lane=lane).run(strict=True)
        assert (log.rows.ready_ns / 1e9).tolist() == [0, 2, 2, 5]
        assert (log.rows.end_ns / 1e9).tolist() == [2, 5, 3, 6]


@pytest.mark.parametrize(
    ("servers", "order"), [(1, "fifo"), (8, "fifo"), (8, "strict_priority"), (8, {"weighted_fair": {}})]
)
def test_one_heap_entry_per_task_and_no_more(servers: int, order: object) -> None:
    """Operation counts are exact: arrivals are merged from the trace, a completion is one heap entry."""
    size = 2_000
    rng = np.random.default_rng(1)
    trace = single_task(np.cumsum(rng.integers(1, 100, size)), rng.integers(1, 90 * servers, size), pool="w")
    for lane in (True, False):
        platform = PlatformSpec((PoolSpec("w", servers),))
        log = Simulation(platform, policy(order), trace, express_lane=lane).run()
        assert log.header["kernel_events"] == size
