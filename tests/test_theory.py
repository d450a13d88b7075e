"""The engine against queueing theory. Every expected value is a closed form; every tolerance says where it comes from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from engine_harness import jobs, ns, poisson_jobs, run, waits_s

from simkit.metrics import summarise
from simkit.model import NS_PER_S, Outcome
from simkit.trace.build import single_task


def erlang_b(servers: int, load: float) -> float:
    """Blocking of M/M/c/c by the stable recursion (Erlang 1917)."""
    blocking = 1.0
    for count in range(1, servers + 1):
        blocking = load * blocking / (count + load * blocking)
    return blocking


def erlang_c(servers: int, load: float) -> float:
    """Probability of waiting in M/M/c."""
    blocking = erlang_b(servers, load)
    return servers * blocking / (servers - load * (1 - blocking))


def test_the_erlang_formulas_reproduce_tabulated_values() -> None:
    assert erlang_b(10, 5) == pytest.approx(0.018385, abs=5e-7)
    assert erlang_c(10, 8) == pytest.approx(0.409180, abs=5e-7)
    assert erlang_c(2, 1.5) == pytest.approx(0.642857, abs=5e-7)


@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_mm1_mean_wait_within_three_theoretical_standard_errors(load: float) -> None:
    """Wq = rho/(1-rho) services. The asymptotic variance of the mean of n waits is rho(2+5rho-4rho^2+rho^3)/(1-rho)^4 / n."""
    size, seeds, cut = 60_000, 5, 6_000
    means = [float(np.mean(waits_s(run(poisson_jobs(seed, size, load), {"w": 1}))[cut:])) for seed in range(seeds)]
    variance = load * (2 + 5 * load - 4 * load**2 + load**3) / (1 - load) ** 4
    error = math.sqrt(variance / ((size - cut) * seeds))
    assert abs(np.mean(means) - load / (1 - load)) < 3 * error


@pytest.mark.parametrize(("servers", "load", "expected"), [(2, 0.7, 0.96078), (4, 0.7, 0.35721), (8, 0.9, None)])
def test_mmc_mean_wait_is_erlang_c(servers: int, load: float, expected: float | None) -> None:
    """Wq = C(c, a) / (c - a) services; the values for 2 and 4 servers at 0.7 are tabulated. Tolerance: 4 standard errors over the
    seeds, and 6 % at most."""
    offered = servers * load
    theory = erlang_c(servers, offered) / (servers - offered)
    if expected is not None:
        assert theory == pytest.approx(expected, abs=2e-5)
    means = np.array(
        [np.mean(waits_s(run(poisson_jobs(seed, 60_000, offered), {"w": servers}))[6_000:]) for seed in range(8)]
    )
    error = means.std(ddof=1) / math.sqrt(len(means))
    assert abs(means.mean() - theory) < min(4 * error, 0.06 * theory)


@pytest.mark.parametrize(("law", "square"), [("det", 1.0), ("exp", 2.0), ("gamma4", 5.0)])
def test_mg1_mean_wait_is_pollaczek_khinchine(law: str, square: float) -> None:
    """Wq = lambda E[S^2] / (2 (1 - rho)) with E[S] = 1; E[S^2] = 1, 2, 5. Tolerance: 4 standard errors over 10 seeds."""
    load = 0.7
    theory = load * square / (2 * (1 - load))
    means = np.array(
        [np.mean(waits_s(run(poisson_jobs(seed, 40_000, load, law=law), {"w": 1}))[4_000:]) for seed in range(10)]
    )
    error = means.std(ddof=1) / math.sqrt(len(means))
    assert abs(means.mean() - theory) < 4 * error
    assert error < 0.05 * theory


def test_response_times_of_mm1_are_exponential() -> None:
    """FIFO M/M/1 at lambda 0.5, mu 1: response ~ Exp(0.5); p50 1.386, p95 5.991, p99 9.210, mean 2.0. Tolerance: 4 standard errors over 10
    seeds."""
    found = []
    for seed in range(10):
        metrics = summarise(run(poisson_jobs(seed, 40_000, 0.5), {"w": 1})).metrics
        found.append([metrics[f"latency_s.{name}"] for name in ("p50", "p95", "p99", "mean")])
    theory = np.array([math.log(2) * 2, -math.log(0.05) * 2, -math.log(0.01) * 2, 2.0])
    assert theory[:3] == pytest.approx([1.386, 5.991, 9.210], abs=1e-3)
    error = np.std(found, axis=0, ddof=1) / math.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - theory) < 4 * error).all()


def test_a_loss_system_blocks_as_erlang_b_says() -> None:
    """M/M/10/10 at load 5: a queue limit of 0 turns away who finds all servers busy: B(10, 5) = 0.018385. Insensitive to the law, so
    deterministic services give the same. Tolerance: 4 standard errors over seeds."""
    limit = {"admission": [{"queue_limit": {"max": 0}}]}
    for law in ("exp", "det"):
        shares = []
        for seed in range(8):
            log = run(poisson_jobs(seed, 20_000, 5.0, law=law), {"w": 10}, slots=limit)
            shares.append(float(np.mean(log.runs.outcome == Outcome.REJECTED)))
        error = np.std(shares, ddof=1) / math.sqrt(len(shares))
        assert abs(np.mean(shares) - erlang_b(10, 5)) < 4 * error


def test_a_bounded_queue_blocks_as_mmck_says() -> None:
    """M/M/2/5 at load 1.6: p_K of the birth-death chain. Tolerance: 4 standard errors over seeds."""
    servers, room, load = 2, 5, 1.6
    weights = [
        load**k / math.factorial(k) if k <= servers else load**k / (math.factorial(servers) * servers ** (k - servers))
        for k in range(room + 1)
    ]
    theory = weights[-1] / math.fsum(weights)
    limit = {"admission": [{"queue_limit": {"max": room - servers}}]}
    shares = []
    for seed in range(8):
        log = run(poisson_jobs(seed, 20_000, load), {"w": servers}, slots=limit)
        shares.append(float(np.mean(log.runs.outcome == Outcome.REJECTED)))
    error = np.std(shares, ddof=1) / math.sqrt(len(shares))
    assert abs(np.mean(shares) - theory) < 4 * error


def two_classes(seed: int, size: int) -> tuple[object, np.ndarray]:
    """Two Poisson classes of rate 0.4 each, Exp(1) services; priority 1 for class 0, 0 for class 1."""
    rng = np.random.default_rng(seed)
    arrivals = ns(np.cumsum(rng.exponential(1 / 0.8, size)))
    urgent = rng.integers(0, 2, size)
    trace = single_task(
        arrivals, ns(rng.exponential(1, size)), pool="w", priority=urgent, cls=[str(flag) for flag in urgent]
    )
    return trace, urgent


def test_priority_waits_are_cobhams() -> None:
    """W_k = W0 / ((1 - s_{k-1})(1 - s_k)), W0 = sum lambda E[S^2]/2 = 0.8: 1.3333 and 6.6667 (Cobham 1954). 4 standard errors over seeds."""
    means = []
    for seed in range(10):
        trace, urgent = two_classes(seed, 40_000)
        waits = waits_s(run(trace, {"w": 1}, "strict_priority"))
        means.append([waits[urgent == 1].mean(), waits[urgent == 0].mean()])
    error = np.std(means, axis=0, ddof=1) / math.sqrt(len(means))
    assert (np.abs(np.mean(means, axis=0) - [4 / 3, 20 / 3]) < 4 * error).all()


@pytest.mark.parametrize(
    "order",
    [
        "strict_priority",
        {"aging": {"rate": "1/s"}},
        {"weighted_fair": {"by": "class"}},
        {"drr": {"by": "class"}},
        "lifo",
    ],
)
def test_kleinrocks_conservation_law_holds(order: object) -> None:
    """The load-weighted mean wait is the same for every non-preemptive, size-blind, work-conserving order: here 3 % of FIFO's on the same
    200,000 jobs (the law is exact for means; one path of this length scatters by about 1 %)."""
    trace, _ = two_classes(11, 200_000)
    fifo = waits_s(run(trace, {"w": 1})).mean()
    assert waits_s(run(trace, {"w": 1}, order)).mean() == pytest.approx(fifo, rel=0.03)


@pytest.mark.parametrize("order", ["fifo", "lifo", "sjf", "strict_priority", {"weighted_fair": {"by": "class"}}])
def test_littles_law_is_exact_on_every_run(order: object) -> None:
    """Over a run that starts and ends empty the integral of the number in system equals the sum of the times in system, in whole ns."""
    trace, _ = two_classes(3, 5_000)
    log = run(trace, {"w": 1}, order)
    arrived, left = np.sort(log.runs.arrival_ns), np.sort(log.runs.finished_ns)
    instants = np.unique(np.concatenate([arrived, left]))
    inside = np.searchsorted(arrived, instants, side="right") - np.searchsorted(left, instants, side="right")
    integral = int((inside[:-1] * np.diff(instants)).sum())
    assert integral == int((log.runs.finished_ns - log.runs.arrival_ns).sum())
    assert inside[-1] == 0


def test_adding_a_server_never_delays_a_job_under_fifo() -> None:
    trace = poisson_jobs(5, 5_000, 3.6)
    before = run(trace, {"w": 4}).rows.start_ns
    for servers in (5, 6, 8):
        after = run(trace, {"w": servers}).rows.start_ns
        assert (after <= before).all()
        before = after


def test_a_short_run_from_empty_is_far_from_steady_state() -> None:
    """At load 0.9 the first 100 customers of an empty M/M/1 wait 4.6 +- 0.3 services on average, not 9: what a warm-up is for."""
    means = [float(np.mean(waits_s(run(poisson_jobs(seed, 100, 0.9), {"w": 1})))) for seed in range(400)]
    assert np.mean(means) == pytest.approx(4.6, abs=0.4 + 3 * np.std(means) / 20)
    assert np.mean(means) < 6


def test_times_do_not_drift() -> None:
    """A million jobs of 0.1 s back to back end at exactly 100,000 s (0.1 has no finite binary form)."""
    size = 1_000_000
    trace = single_task(np.zeros(size, dtype=np.int64), np.full(size, NS_PER_S // 10), pool="w")
    assert run(trace, {"w": 1}).rows.end_ns[-1] == size // 10 * NS_PER_S


def test_the_first_job_of_an_empty_system_starts_at_once() -> None:
    log = run(jobs([1.5], [2.0]), {"w": 1})
    assert (log.rows.start_ns[0], log.rows.end_ns[0]) == (1_500_000_000, 3_500_000_000)
