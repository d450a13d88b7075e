"""Admission, limits and modes inside the engine, against short independent loops and hand arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from math import ceil
from typing import Any

import numpy as np
import pytest

from simkit.engine.simulation import Simulation
from simkit.log import EVENT_KINDS, RunLog
from simkit.model import ApiSpec, ClientSpec, FaultSpec, LimitSpec, Outcome, PlatformSpec, PoolSpec, RetrySpec
from simkit.policy import load_policy
from simkit.trace.build import from_runs, single_task
from simkit.trace.table import Trace

S = 1_000_000_000


def simulate(
    trace: Trace,
    slots: Mapping[str, int | None],
    policy: Mapping[str, Any],
    *,
    apis: Sequence[ApiSpec] = (),
    clients: Sequence[ClientSpec] = (),
    faults: Sequence[FaultSpec] = (),
) -> RunLog:
    pools = tuple(PoolSpec(name, count) for name, count in slots.items())
    platform = PlatformSpec(pools, tuple(apis))
    simulation = Simulation(platform, load_policy({"name": "p", **policy}), trace, clients=clients, faults=faults)
    return simulation.run(strict=True)


def events(log: RunLog, kind: str) -> int:
    return int((log.events.kind == EVENT_KINDS.index(kind)).sum())


def random_trace(count: int, rate: float, seed: int = 1, **columns: Any) -> Trace:
    """Poisson arrivals, exponential service of mean 1 s."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate, count) * S).astype(np.int64)
    return single_task(arrivals, (rng.exponential(1, count) * S).astype(np.int64), **columns)


def most_at_once(log: RunLog, rows: np.ndarray, slots: int = 1) -> int:
    """The most slots that these rows ever used together (ends come before starts at one instant)."""
    started = rows & (log.rows.start_ns >= 0)
    ends, starts = log.rows.end_ns[started], log.rows.start_ns[started]
    moves = sorted([(int(t), -slots) for t in ends] + [(int(t), slots) for t in starts])
    return int(np.cumsum([move for _, move in moves]).max(initial=0))


@pytest.mark.parametrize(("servers", "room"), [(3, 3), (1, 1), (3, 8)])
def test_queue_limit_loses_exactly_the_runs_that_a_loss_system_loses(servers: int, room: int) -> None:
    # M/M/c/K by hand: an arrival that finds K in the system is lost; ends count before arrivals
    trace = random_trace(3000, rate=servers * 1.1)
    log = simulate(trace, {"pool": servers}, {"admission": [{"queue_limit": {"max": room - servers}}]})
    free, ends, lost = [0] * servers, [], []
    for arrival, service in zip(trace.runs.arrival_ns.tolist(), trace.tasks.service_ns.tolist(), strict=True):
        while ends and ends[0] <= arrival:
            heappop(ends)
        lost.append(len(ends) >= room)
        if not lost[-1]:
            begin = max(heappop(free), arrival)
            heappush(free, begin + service)
            heappush(ends, begin + service)
    assert (log.runs.outcome == Outcome.REJECTED).tolist() == lost
    assert sum(lost) > 100


def test_a_token_bucket_starts_each_row_the_moment_its_token_is_there() -> None:
    # one token each, 1.1 a second, burst 10, first come first served, in exact fractions (the W3 gate)
    trace = random_trace(2000, rate=1.05)
    policy = {"limits": [{"token_bucket": {"by": "all", "rate": "1.1/s", "burst": 10}}]}
    log = simulate(trace, {"pool": None}, policy)
    per_ns, tokens, at, expected = Fraction(11, 10) / S, Fraction(10), 0, []
    for arrival in trace.runs.arrival_ns.tolist():
        start = max(arrival, at)
        held = min(Fraction(10), tokens + per_ns * (start - at))
        if held < 1:
            start += ceil((1 - held) / per_ns)
            held = min(Fraction(10), tokens + per_ns * (start - at))
        tokens, at = held - 1, start
        expected.append(start)
    assert log.rows.start_ns.tolist() == expected
    assert sum(np.array(expected) > trace.runs.arrival_ns) > 100


def test_a_share_cap_holds_every_tenant_and_costs_the_pool_nothing_else() -> None:
    # five tenants at load 1.05 on 8 slots, a quarter each: 2 at once, and the cap is reached
    names = [f"t{n % 5}" for n in range(2000)]
    trace = random_trace(2000, rate=8.4, tenant=names)
    log = simulate(trace, {"pool": 8}, {"limits": [{"share_cap": {"fraction": "25%"}}]})
    assert [most_at_once(log, log.rows.tenant == code) for code in range(5)] == [2] * 5
    assert most_at_once(log, log.rows.tenant >= 0) <= 8
    assert (log.runs.outcome == Outcome.VERIFIED).all()


def test_no_more_starts_in_a_window_than_its_quota_and_held_rows_start_as_it_turns() -> None:
    trace = random_trace(600, rate=12.0)
    log = simulate(trace, {"pool": None}, {"limits": [{"quota": {"per": "10s", "calls": 100}}]})
    per_window = np.bincount(log.rows.start_ns // (10 * S))
    assert per_window.max() == 100
    late = log.rows.start_ns > log.rows.ready_ns
    assert late.any()
    assert (log.rows.start_ns[late] % (10 * S) == 0).all()


def test_a_reserve_is_there_whenever_a_chosen_row_comes_and_others_never_touch_it() -> None:
    # 10 slots, 2 kept; background floods, incidents come 0.2 a second for 1 s: they find a kept slot nearly always
    rng = np.random.default_rng(3)
    kinds = np.where(rng.random(3000) < 0.02, "incident", "background")
    trace = random_trace(3000, rate=10.0, cls=kinds.tolist())
    reserve = {"reserve": {"for": {"class": "incident"}, "slots": 2}}
    log = simulate(trace, {"pool": 10}, {"limits": [reserve]})
    chosen = log.rows.cls == list(log.names["class"]).index("incident")
    assert most_at_once(log, ~chosen) == 8
    assert most_at_once(log, chosen) >= 2
    waits = (log.rows.start_ns - log.rows.ready_ns) / S
    assert waits[chosen].mean() < 0.05 < waits[~chosen].mean()


def test_a_lent_reserve_idles_no_slot() -> None:
    # without incidents waiting, all 10 slots are used; with lend off only 8
    rng = np.random.default_rng(3)
    kinds = np.where(rng.random(2000) < 0.02, "incident", "background").tolist()
    trace = random_trace(2000, rate=10.0, cls=kinds)
    reserve = {"reserve": {"for": {"class": "incident"}, "slots": 2, "lend": True}}
    log = simulate(trace, {"pool": 10}, {"limits": [reserve]})
    background = log.rows.cls == list(log.names["class"]).index("background")
    assert most_at_once(log, background) == 10
    moves = sorted(
        [(int(t), 1, 0) for t in log.rows.ready_ns]
        + [(int(t), -1, 1) for t in log.rows.start_ns]
        + [(int(t), 0, -1) for t in log.rows.end_ns]
    )
    waiting, running = 0, 0
    for (now, queued, started), (later, _, _) in zip(moves, [*moves[1:], (2**62, 0, 0)], strict=True):
        waiting, running = waiting + queued, running + started
        if later > now and waiting:
            assert running == 10  # no slot idles while anybody waits


def llm_trace(count: int) -> Trace:
    """`count` calls of 1 request and 100 tokens, ten a second."""
    tasks = [{"pool": "worker", "service_s": 0.5, "demand": {"llm": 1}, "tokens_in": 60, "tokens_out": 40}]
    return from_runs({"arrival_ns": n * S // 10, "tasks": tasks} for n in range(count))


@pytest.mark.parametrize("unit", ["requests", "tokens"])
def test_knowing_the_allowance_avoids_every_429(unit: str) -> None:
    # 10 calls a second come, 5 a second are allowed, burst 20: without the limit the API refuses, with it nobody is refused
    limit = LimitSpec("requests", 5.0, 20) if unit == "requests" else LimitSpec("tokens", 500.0, 2000)
    apis = [ApiSpec("llm", (limit,))]
    trace = llm_trace(200)
    naive = simulate(trace, {"worker": 50}, {}, apis=apis)
    assert events(naive, "throttled") > 50
    log = simulate(trace, {"worker": 50}, {"limits": ["api_allowance"]}, apis=apis)
    assert events(log, "throttled") == 0
    assert (log.runs.outcome == Outcome.VERIFIED).all()
    # 20 at once and then one every 200 ms: the last of 200 starts when 180 more have been refilled, 36 s after the start
    assert log.rows.start_ns.max() == 36 * S


def test_an_allowance_cut_is_survived_and_its_end_is_noticed() -> None:
    # 5 % of 5/s is one call every 4 s for a minute; then the queue moves at 5/s again
    apis = [ApiSpec("llm", (LimitSpec("requests", 5.0, 5),))]
    cut = FaultSpec(at_ns=0, for_ns=60 * S, target="llm", what="allowance", value=0.05)
    log = simulate(llm_trace(100), {"worker": 200}, {"limits": ["api_allowance"]}, apis=apis, faults=[cut])
    assert events(log, "throttled") == 0
    during = (log.rows.start_ns < 60 * S).sum()
    assert 14 <= during <= 16  # 60 s / 4 s, less the first token's wait
    assert log.rows.start_ns.max() < 60 * S + 20 * S  # about 85 more at 5/s


def retry_storm(limits: list[Any], **client: Any) -> tuple[np.ndarray, RunLog]:
    """Case O08: 70/s on 10 slots of 0.1 s; nothing starts from 60 s to 70 s; clients wait 1 s and try three times at once.

    Returns the times (s) of useful answers.
    """
    count = 70 * 200
    arrivals = (np.arange(count) * S) // 70
    trace = single_task(arrivals, np.full(count, S // 10))
    spec = ClientSpec({}, patience_ns=S, retry=RetrySpec(**{"attempts": 3, **client}))
    fault = FaultSpec(at_ns=60 * S, for_ns=10 * S, target="pool", what="stall")
    log = simulate(trace, {"pool": 10}, {"limits": limits}, clients=[spec], faults=[fault])
    good = log.runs.outcome == Outcome.VERIFIED
    return log.runs.finished_ns[good] / S, log


def test_dropping_expired_work_ends_the_retry_storm_at_once() -> None:
    answers, _ = retry_storm([])
    assert not ((answers > 72) & (answers < 200)).any()  # 70 x 3 attempts > 100/s: never again
    answers, _ = retry_storm(["drop_expired"])
    assert answers[answers > 62].min() <= 71
    per_second = ((answers >= 100) & (answers < 200)).sum() / 100
    assert per_second == pytest.approx(70, rel=0.01)


def test_modes_follow_the_load_and_shape_what_is_admitted() -> None:
    # 30 s of 20/s, then 30 s of 1/s on 10 slots with 1 s services: emergency during the flood, normal after it
    arrivals = np.concatenate([np.arange(600) * S // 20, 30 * S + np.arange(30) * S])
    trace = single_task(arrivals, np.full(630, S), cls=["background", "interactive"] * 315)
    policy = {
        "overload": {
            "hysteresis": {
                "modes": {"severe": {"enter": 0.9, "leave": 0.5}},
                "do": {"severe": [{"only": ["interactive"]}]},
            }
        }
    }
    log = simulate(trace, {"pool": 10}, policy)
    modes = [log.reasons[code] for code in log.events.reason[log.events.kind == EVENT_KINDS.index("mode")]]
    assert modes == ["severe", "normal"]
    background = log.runs.cls == list(log.names["class"]).index("background")
    shed = log.runs.outcome == Outcome.SHED
    assert not shed[~background].any()
    assert 0.9 < shed[background & (log.runs.arrival_ns < 30 * S)].mean() < 1
    assert not shed[-15:].any()


def test_cheapest_means_the_tier_with_the_lowest_price_whatever_its_name() -> None:
    """Three tiers at prices 1, 0.2 and 0.5; a downgrade to "cheapest" serves the task in the pool of the second, at half speed: 2 s become 4 s."""
    from engine_harness import run, tasks_trace

    from simkit.model import TierSpec

    trace = tasks_trace(
        {"arrival_s": 0, "deadline_s": 1, "tasks": [{"pool": "a", "service_s": 2, "tier": "big", "cost_usd": 1.0}]}
    )
    tiers = [TierSpec("big", "a"), TierSpec("tiny", "b", speed=0.5, price=0.2), TierSpec("mid", "c", price=0.5)]
    downgrade = {"admission": [{"deadline_feasible": {"else": "downgrade", "tier": "cheapest"}}]}
    log = run(trace, {"a": 1, "b": 1, "c": 1}, tiers=tiers, slots=downgrade)
    assert log.names["pool"][log.rows.pool[0]] == "b"
    assert log.rows.end_ns[0] == 4_000_000_000
    assert log.rows.cost_usd[0] == 0.2
    assert log.runs.downgraded[0]
