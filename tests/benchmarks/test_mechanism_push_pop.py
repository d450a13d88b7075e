"""What a push and a pop cost, per order, with 10, 1,000 and 100,000 rows waiting: it must hardly grow with them.

Run with ``pytest tests/benchmarks --benchmark-only``; the ordinary suite skips these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mechanism_harness import FakeContext, bound, push_all

from simkit.mechanisms import load_builtin, registered
from simkit.mechanisms.base import Order

load_builtin()

STEPS = 1000
DEPTHS = [10, 1_000, 100_000]
BUILTIN = {name: cls for (_, name), cls in registered("order").items() if cls.__module__.startswith("simkit.")}
PARKING = sorted(name for name, cls in BUILTIN.items() if cls.parks)


def filled(order: Order, depth: int, *, tenants: int = 10, groups: int = 0) -> Order:
    """`order` with `depth` rows of all tenants waiting and `STEPS` more to come; `groups` > 0: on the path of limits."""
    size = depth + STEPS
    draw = np.random.default_rng(7)
    context = FakeContext(
        size,
        grouped=groups > 0,
        tenant=np.arange(size) % tenants,
        cls=np.arange(size) % 3,
        priority=draw.integers(0, 3, size),
        estimate_ns=draw.integers(1, 10**10, size),
        deadline_ns=draw.integers(1, 10**13, size),
        group=np.arange(size) % tenants % max(groups, 1),
    )
    push_all(bound(order, context), range(depth))
    return order


def turn_over(order: Order, depth: int) -> list[int]:
    """`STEPS` pushes, each followed by a pop; rows that were given out come back, so that it can be repeated."""
    push, pop, rows = order.push, order.pop, list(range(depth, depth + STEPS))
    for step in range(STEPS):
        push(rows[step], step)
        rows[step] = pop(step)
    return rows


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_push_and_pop_without_limits(benchmark: Any, name: str, depth: int) -> None:
    def setup() -> tuple[tuple[Order, int], dict[str, Any]]:
        return (filled(BUILTIN[name](), depth), depth), {}

    benchmark.extra_info["steps"] = STEPS
    benchmark.pedantic(turn_over, setup=setup, rounds=5)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", PARKING)
@pytest.mark.parametrize("groups", [1, 10])
def test_push_and_pop_with_limits(benchmark: Any, name: str, depth: int, groups: int) -> None:
    def setup() -> tuple[tuple[Order, int], dict[str, Any]]:
        return (filled(BUILTIN[name](), depth, groups=groups), depth), {}

    benchmark.extra_info["steps"] = STEPS
    benchmark.pedantic(turn_over, setup=setup, rounds=5)


@pytest.mark.parametrize("tenants", [10, 1_000, 10_000])
@pytest.mark.parametrize("by", ["tenant", "class,tenant"])
@pytest.mark.parametrize("groups", [0, 1])
def test_weighted_fair_over_backlogged_tenants(benchmark: Any, by: str, tenants: int, groups: int) -> None:
    def setup() -> tuple[tuple[Order, int], dict[str, Any]]:
        order = BUILTIN["weighted_fair"](by=by.split(",") if "," in by else by)
        return (filled(order, 20_000, tenants=tenants, groups=groups), 20_000), {}

    benchmark.extra_info["steps"] = STEPS
    benchmark.pedantic(turn_over, setup=setup, rounds=5)


@pytest.mark.parametrize("tenants", [10, 10_000])
@pytest.mark.parametrize("name", ["fifo", "strict_priority", "weighted_fair", "drr"])
def test_hold_a_group_that_runs_over_all_tenants(benchmark: Any, name: str, tenants: int) -> None:
    """Block the head's group, serve another, wake the group: the dispatch step of a limit at work."""

    def setup() -> tuple[tuple[Order, list[int]], dict[str, Any]]:
        size = 2 * tenants + STEPS
        tenant, group = np.arange(size) // 2 % tenants, np.arange(size) % 2
        order = bound(BUILTIN[name](), FakeContext(size, tenant=tenant, group=group))
        push_all(order, range(size))
        return (order, group.tolist()), {}

    def dispatch(order: Order, group: list[int]) -> None:
        for now in range(STEPS // 2):
            held = group[order.head(now)]
            order.block(held)
            order.head(now)
            order.take(now)
            order.unblock(held)

    benchmark.extra_info["steps"] = STEPS // 2
    benchmark.pedantic(dispatch, setup=setup, rounds=5)
