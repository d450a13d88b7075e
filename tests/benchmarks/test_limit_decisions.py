"""What one decision costs, over 10, 1,000 and 100,000 tenants: it must not grow with them.

Run with ``pytest tests/benchmarks --benchmark-only``; the ordinary suite skips these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from limit_harness import Bench, S, bound

from simkit.mechanisms.admit import DeadlineFeasible, QueueLimit
from simkit.mechanisms.base import Limit
from simkit.mechanisms.bucket import Gcra
from simkit.mechanisms.expire import DropExpired
from simkit.mechanisms.overload import Hysteresis, Level
from simkit.mechanisms.quota import Quota, ShareCap
from simkit.mechanisms.rate import ApiAllowance, TokenBucket
from simkit.mechanisms.reserve import Reserve
from simkit.mechanisms.retry import Backoff

DECISIONS = 1000
SIZES = [10, 1_000, 100_000]


def crowd(size: int, **extra: Any) -> Bench:
    """One row and one run for each of `size` tenants on a pool with room for all."""
    rows = [{"run": n, "tenant": f"t{n}", "verifies": n % 10 == 0, **extra} for n in range(size)]
    runs = [{"first_row": n, "tenant": f"t{n}", "deadline_ns": 100 * S} for n in range(size)]
    api = [("requests", Gcra(10**9, 10**6)), ("tokens", Gcra(10**9, 10**6))]
    return Bench(rows, runs=runs, pools={"gpu": 2 * size, "llm": None}, apis={"llm": api})


LIMITS: dict[str, Callable[[], Limit]] = {
    "share_cap": lambda: ShareCap(fraction=0.25),
    "quota_concurrent": lambda: Quota(concurrent=4),
    "quota_window": lambda: Quota(per=60 * S, tokens=10**9, usd=10**6),
    "token_bucket": lambda: TokenBucket(rate=1e6, burst=10**6),
    "reserve": lambda: Reserve(for_={"verifies": True}, fraction=0.15),
    "reserve_lend": lambda: Reserve(for_={"verifies": True}, fraction=0.15, lend=True),
    "api_allowance": lambda: ApiAllowance(keep=0.2, keep_for={"verifies": True}),
    "drop_expired": DropExpired,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sorted(LIMITS))
def test_hold_start_finish(benchmark: Any, name: str, size: int) -> None:
    bench = crowd(size, calls=[("llm", 1, 10)])
    limit = bound(LIMITS[name](), bench)
    rows = [(n * 7919) % size for n in range(DECISIONS)]

    def decide() -> None:
        now = bench.now_ns
        for row in rows:
            if limit.hold(row, now) is None:
                limit.start(row, now)
                limit.finish(row, now)
        bench.now_ns += S
        bench.woken.clear()

    benchmark(decide)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("by", ["all", "tenant", "pool"])
def test_queue_limit_below_and_at_its_bound(benchmark: Any, by: Any, size: int) -> None:
    bench = crowd(size)
    below, at = bound(QueueLimit(by=by, max=10**6), bench), bound(QueueLimit(by=by, max=0, jitter=0.5), bench)
    bench.used[0] = 2 * size
    runs = [(n * 7919) % size for n in range(DECISIONS)]

    def decide() -> None:
        for run in runs:
            below.decide(run, 0)
            at.decide(run, 0)

    benchmark(decide)


@pytest.mark.parametrize("size", SIZES)
def test_deadline_feasible(benchmark: Any, size: int) -> None:
    bench = crowd(size)
    limit = bound(DeadlineFeasible(), bench)
    runs = [(n * 7919) % size for n in range(DECISIONS)]
    benchmark(lambda: [limit.decide(run, 0) for run in runs])


@pytest.mark.parametrize("places", [1, 10, 100])
def test_overload_sample(benchmark: Any, places: int) -> None:
    bench = Bench([{}], pools={f"p{n}": 10 for n in range(places)})
    governor = bound(Hysteresis(modes={"hot": Level(0.9, 0.7)}), bench)
    benchmark(lambda: [governor.observe(n * S) for n in range(DECISIONS)])


@pytest.mark.parametrize("jitter", ["none", "full", "equal", "decorrelated"])
def test_backoff_delay(benchmark: Any, jitter: Any) -> None:
    retry = bound(Backoff(jitter=jitter, budget=1.0, budget_start=10, budget_most=10**9), Bench([{}]))

    def draw() -> None:
        for row in range(DECISIONS):
            retry.first(row, 0)
            retry.delay_ns(row, 2, "error", 0, 0)

    benchmark(draw)


def test_gcra_wait_and_take(benchmark: Any) -> None:
    def run() -> None:
        gcra = Gcra(7 / 60, 10)
        now = 0
        for _ in range(DECISIONS):
            now += gcra.wait_ns(1, now)
            gcra.take(1, now)

    benchmark(run)
