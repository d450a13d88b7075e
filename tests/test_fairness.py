"""Shares against weights: hand arithmetic, a brute-force oracle, and the bound of fair queueing."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from log_builder import LogBuilder, one_pool_log

from simkit.engine.simulation import Simulation
from simkit.log import RunLog
from simkit.metrics import Window, service_gap_s, share_error, summarise
from simkit.model import NS_PER_S, PlatformSpec, PoolSpec, UsageError
from simkit.policy import load_policy
from simkit.trace.build import single_task


def served(order: str, *, weights: dict[str, float] | None = None, length: dict[str, float] | None = None) -> RunLog:
    """One slot, everything there at 0, served one after the other in the given order of tenants."""
    builder = LogBuilder(weights={"by": "tenant", "weights": weights, "default": 1} if weights else {})
    at = 0.0
    for number, tenant in enumerate(order):
        end = at + (length or {}).get(tenant, 1.0)
        builder.one(f"r{number}", 0.0, at, end, tenant=tenant)
        at = end
    return builder.build()


def simulated(
    order: str | dict[str, object], tenants: int, *, slots: int = 2, load: float = 1.5, runs: int = 400, seed: int = 1
) -> RunLog:
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / (load * slots), runs)) * NS_PER_S
    trace = single_task(
        arrival, rng.exponential(1, runs) * NS_PER_S, tenant=[f"t{n}" for n in rng.integers(0, tenants, runs)]
    )
    log = Simulation(PlatformSpec((PoolSpec("pool", slots),)), load_policy({"name": "p", "order": order}), trace).run()
    log.header["weights"] = {"by": "tenant", "weights": {f"t{n}": 1.0 + n % 3 for n in range(tenants)}, "default": 1}
    return log


def brute_force(log: RunLog) -> float:
    """The definition, start by start and flow by flow."""
    weights = log.header["weights"]
    weight = [weights["weights"].get(name, weights["default"]) for name in log.names["tenant"]]
    stays = Window(log).queues
    waits = [
        (int(log.rows.tenant[row]), int(begin), int(end))
        for row, begin, end in zip(stays.row, stays.begin, stays.end, strict=True)
        if end > begin
    ]
    got, due = [0.0] * len(weight), [0.0] * len(weight)
    for row, at, started in zip(stays.row.tolist(), stays.end.tolist(), stays.started.tolist(), strict=True):
        flow = int(log.rows.tenant[row])
        backlogged = sorted({other for other, begin, end in waits if begin <= at <= end})
        if not started or len(backlogged) < 2 or flow not in backlogged:
            continue
        work = int(log.rows.estimate_ns[row]) * int(log.rows.slots[row]) / NS_PER_S
        got[flow] += work
        for other in backlogged:
            due[other] += work * weight[other] / math.fsum(weight[k] for k in backlogged)
    return math.fsum(abs(a - b) for a, b in zip(got, due, strict=True)) / 2 / math.fsum(got)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        # both wait during the first six starts; all six go to a where three are due
        ("aaaaaabbbbbb", 3 / 6),
        # turns: both wait until a's last start at 10 s, 11 starts, 6 : 5 where 5.5 : 5.5 is due
        ("ab" * 6, 0.5 / 11),
    ],
)
def test_share_error_by_hand(order: str, expected: float) -> None:
    assert share_error(served(order)) == pytest.approx(expected)


def test_share_error_counts_work_not_tasks() -> None:
    # a's tasks last 2 s, b's 1 s; equal weights; order abb...: until b's last start 6 s of work each but for the edges
    log = served("abb" * 4, length={"a": 2.0})
    # both wait until a's last start: starts a bb a bb a bb a = 8 s of a, 6 s of b: |8 - 7| of 14
    assert share_error(log) == pytest.approx(1 / 14)


def test_work_dispatched_at_once_or_to_a_flow_alone_is_no_contest() -> None:
    builder = LogBuilder(pools={"pool": 2})
    builder.one("a", 0.0, 0.0, 9.0, tenant="a")
    builder.one("b", 0.0, 0.0, 1.0, tenant="b")  # starts at once beside it
    builder.one("c", 0.5, 1.0, 2.0, tenant="b")  # waits, alone
    assert math.isnan(share_error(builder.build()))


@pytest.mark.parametrize(
    "order", ["fifo", "lifo", {"weighted_fair": {"weights": {"t1": 2, "t2": 3, "t4": 2, "t5": 3}}}]
)
@pytest.mark.parametrize("tenants", [2, 7])
def test_share_error_is_its_definition(order: str | dict[str, object], tenants: int) -> None:
    log = simulated(order, tenants)
    assert share_error(log) == pytest.approx(brute_force(log), rel=1e-9)


def test_ten_thousand_flows_are_all_looked_at() -> None:
    # one slot, one task of 1 s each, all there at 0. By hand: at the j-th start that somebody waited for, the n - 1 - j flows that are
    # left share 1 s of work: a flow is due the sum of 1 / (n - 1 - i) over the starts up to its own, and got 1
    n = 10_000
    start = np.arange(n) * NS_PER_S
    log = one_pool_log(np.zeros(n, dtype=np.int64), start, start + NS_PER_S, tenant=np.arange(n))
    # flow 0 starts at once (it never waits); the last has nobody left to contend with
    contested = n - 2
    due = np.concatenate([[0.0], np.cumsum(1 / (n - 1 - np.arange(contested)))])[1:]
    last = float(due[-1])  # the flow that is left alone at the end was due as much as the one before it
    expected = (float(np.abs(1 - due).sum()) + last) / 2 / contested
    assert share_error(log) == pytest.approx(expected)


def test_only_starts_in_the_measured_window_count() -> None:
    log = served("aaaabbbb")
    assert share_error(log) == pytest.approx(0.5)
    log.header["warmup_ns"] = 4 * NS_PER_S  # from then on b is alone
    assert math.isnan(share_error(log))


@pytest.mark.parametrize(
    ("order", "weights", "expected"),
    [
        # the difference W_a - W_b climbs by 1 s with each start of a while both wait (from 0 until a's last start at 5, left out)
        ("aaaaaabbbbbb", (1.0, 1.0), 5.0),
        ("ababababab", (1.0, 1.0), 1.0),
        ("aabaabaab", (2.0, 1.0), 1.0),  # 1/2, 1, 0, ...
        ("ab", (1.0, 1.0), 0.0),  # a starts at once: they never wait together
    ],
)
def test_service_gap_by_hand(order: str, weights: tuple[float, float], expected: float) -> None:
    assert service_gap_s(served(order), "pool", "a", "b", weights=weights) == pytest.approx(expected)


def test_service_gap_starts_afresh_with_each_common_backlog() -> None:
    builder = LogBuilder()
    for number, (ready, start, tenant) in enumerate(
        [(0, 0, "x"), (0, 1, "a"), (0, 2, "a"), (0, 3, "b"), (10, 10, "x"), (10, 11, "a"), (10, 12, "a"), (10, 13, "b")]
    ):
        builder.one(f"r{number}", ready, start, start + 1, tenant=tenant)
    # per round a and b wait together from 0 (10) to a's last start at 2 (12): one start of a inside; never 2, never 4
    assert service_gap_s(builder.build(), "pool", "a", "b") == 1.0


@pytest.mark.parametrize("slots", [1, 4])
def test_fair_queueing_keeps_its_bound_and_fifo_does_not(slots: int) -> None:
    # Goyal, Vin and Cheng: l_f / w_f + l_g / w_g on dispatched work, whatever the number of slots (property P11)
    weights = {"t0": 1.0, "t1": 2.0, "t2": 4.0}
    worst = {}
    for name in ("fifo", "weighted_fair"):
        order = {"weighted_fair": {"weights": weights}} if name == "weighted_fair" else name
        log = simulated(order, 3, slots=slots, load=2.0, runs=1500)
        largest = [
            float(log.rows.estimate_ns[log.rows.tenant == code].max()) / NS_PER_S / weights[tenant]
            for code, tenant in enumerate(log.names["tenant"])
        ]
        ratios = []
        for a, b in pairwise([0, 1, 2, 0]):
            one, two = log.names["tenant"][a], log.names["tenant"][b]
            gap = service_gap_s(log, "pool", one, two, weights=(weights[one], weights[two]))
            ratios.append(gap / (largest[a] + largest[b]))
        worst[name] = max(ratios)
    assert worst["weighted_fair"] <= 1.0 + 1e-6
    assert worst["fifo"] > 3.0


def test_service_gap_of_an_unknown_flow_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no tenant 'z'; there are a, b"):
        service_gap_s(served("ab"), "pool", "a", "z")
    with pytest.raises(UsageError, match="there is no pool 'gpu'"):
        service_gap_s(served("ab"), "gpu", "a", "b")


def test_jain_counts_shared_work_and_later_submissions_as_served() -> None:
    builder = LogBuilder(horizon=10.0)
    builder.one("a", 0.0, 0.0, 1.0, tenant="a")
    run = builder.run("b", 0.0, 1.0, tenant="b")
    builder.row(run, 0.0, None, 1.0, state="coalesced")
    run = builder.run("c", 0.0, 5.0, tenant="c", submissions=2)
    first = builder.row(run, 0.0, None, 2.0, state="cancelled")
    builder.row(run, 3.0, 4.0, 5.0, submission=1, task=builder.entries["rows"][first]["task"])
    assert summarise(builder.build()).metrics["jain"] == 1.0
    builder.one("d", 0.0, None, None, tenant="d")  # (1 + 1 + 1 + 0)^2 / (4 x 3)
    assert summarise(builder.build()).metrics["jain"] == pytest.approx(9 / 12)
