"""The retry layer: delays in their range, Retry-After as a lower bound, budgets that hold, amplification as derived."""

from __future__ import annotations

from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from limit_harness import Bench, S, bound

from simkit.mechanisms.base import ParameterError
from simkit.mechanisms.retry import Backoff, RetryBudget


def backoff(**parameters: Any) -> Backoff:
    made: Backoff = bound(Backoff(**parameters), Bench([{}]))
    return made


def delays(retry: Backoff, attempt: int, count: int = 2000, retry_after_ns: int = 0) -> np.ndarray:
    return np.array([retry.delay_ns(row, attempt, "error", retry_after_ns, 0) for row in range(count)]) / S


def test_without_jitter_the_delay_doubles_up_to_the_cap() -> None:
    retry = backoff(base=S, cap=10 * S, jitter="none", max_attempts=9)
    assert [delays(retry, k, 1)[0] for k in range(1, 9)] == [1, 2, 4, 8, 10, 10, 10, 10]
    assert [delays(backoff(base=S, multiplier=3.0, jitter="none"), k, 1)[0] for k in (1, 2, 3)] == [1, 3, 9]


def test_a_delay_too_large_to_compute_is_the_cap() -> None:
    retry = backoff(base=S, cap=60 * S, jitter="none", max_attempts=10_000)
    assert delays(retry, 5000, 1)[0] == 60


@pytest.mark.parametrize(("attempt", "ceiling"), [(1, 2.0), (2, 4.0), (3, 8.0), (5, 20.0)])
def test_full_and_equal_jitter_stay_in_their_ranges_and_use_them(attempt: int, ceiling: float) -> None:
    # uniform on [0, v] has mean v/2 and standard deviation v/sqrt(12); equal jitter half of both on top of v/2. 2000 draws,
    # four standard errors.
    error = 4 * ceiling / 12**0.5 / 2000**0.5
    full = delays(backoff(base=2 * S, cap=20 * S, jitter="full", max_attempts=6), attempt)
    assert full.min() >= 0
    assert full.max() <= ceiling
    assert abs(full.mean() - ceiling / 2) < error
    equal = delays(backoff(base=2 * S, cap=20 * S, jitter="equal", max_attempts=6), attempt)
    assert equal.min() >= ceiling / 2
    assert equal.max() <= ceiling
    assert abs(equal.mean() - 0.75 * ceiling) < error / 2


def test_decorrelated_jitter_draws_from_base_to_three_times_the_last_delay() -> None:
    retry = backoff(base=S, cap=30 * S, jitter="decorrelated", max_attempts=40)
    for row in range(200):
        previous = S
        for attempt in range(1, 12):
            delay = retry.delay_ns(row, attempt, "error", 0, 0)
            assert delay is not None
            assert S <= delay <= min(30 * S, 3 * previous)
            previous = delay


@given(st.sampled_from(["full", "equal", "decorrelated", "none"]), st.integers(0, 100 * S), st.integers(1, 5))
def test_retry_after_is_a_lower_bound(jitter: Any, retry_after_ns: int, attempt: int) -> None:
    retry = backoff(jitter=jitter, max_attempts=6, base=S, cap=30 * S)
    delay = retry.delay_ns(0, attempt, "throttled", retry_after_ns, 0)
    assert delay is not None
    assert retry_after_ns <= delay <= retry_after_ns + 30 * S


def test_jitter_goes_on_top_of_retry_after_so_that_nobody_comes_back_together() -> None:
    after = delays(backoff(base=2 * S), 1, 500, retry_after_ns=30 * S)
    assert len(set(after)) == 500
    assert (after.min() >= 30, after.max() <= 32) == (True, True)
    assert set(delays(backoff(base=2 * S, jitter="none"), 1, 5, retry_after_ns=30 * S)) == {30}
    assert set(delays(backoff(base=2 * S, jitter="none"), 1, 5, retry_after_ns=S)) == {2}


def test_it_gives_up_at_max_attempts_and_on_errors_it_was_not_told_of() -> None:
    retry = backoff(max_attempts=3, on=["throttled"])
    assert [retry.delay_ns(0, k, "throttled", 0, 0) is None for k in (1, 2, 3)] == [False, False, True]
    assert retry.delay_ns(0, 1, "error", 0, 0) is None
    assert backoff(max_attempts=1).delay_ns(0, 1, "error", 0, 0) is None


def attempts_made(retry: Backoff, requests: int, p: float, seed: int) -> int:
    """Attempts in all when each fails with probability p, independently."""
    rng, made = np.random.default_rng(seed), 0
    for row in range(requests):
        retry.first(row, 0)
        attempt = 1
        while True:
            made += 1
            if rng.random() >= p or retry.delay_ns(row, attempt, "error", 0, 0) is None:
                break
            attempt += 1
    return made


@pytest.mark.parametrize(("p", "expected"), [(0.9, 3.439), (0.5, 1.875)])
def test_amplification_is_the_geometric_sum(p: float, expected: float) -> None:
    # P24, case O07: n = 4 attempts: (1 - p^4) / (1 - p). 20,000 requests: a standard error of at most .3 %; tolerance 2 %
    assert (1 - p**4) / (1 - p) == pytest.approx(expected, abs=5e-4)
    made = attempts_made(backoff(max_attempts=4), 20_000, p, seed=1)
    assert made / 20_000 == pytest.approx(expected, rel=0.02)


def test_an_always_failing_api_is_called_max_attempts_times() -> None:
    assert attempts_made(backoff(max_attempts=4), 1000, 1.0, seed=1) == 4000


@given(st.sampled_from([0.0, 0.1, 0.2, 0.34, 0.6, 1.0]), st.integers(0, 20), st.integers(0, 100), st.integers(1, 300))
def test_a_budget_bounds_the_attempts(ratio: float, start: int, more: int, requests: int) -> None:
    # P24: attempts <= (1 + ratio) requests + reserve, whatever fails. (A ratio cut to whole attempts per retry gives 50 % for 34 %.)
    retry = backoff(max_attempts=10, budget=ratio, budget_start=start, budget_most=start + more)
    made = attempts_made(retry, requests, 1.0, seed=2)
    assert made <= requests + ratio * requests + start + 1e-6


@pytest.mark.parametrize(
    ("ratio", "requests", "retries"), [(0.1, 10, 1), (0.1, 1000, 100), (0.3, 10, 3), (0.34, 100, 34), (0.6, 5, 3)]
)
def test_a_budget_pays_out_exactly_what_was_earned(ratio: float, requests: int, retries: int) -> None:
    budget = RetryBudget(ratio, 0, 10_000)
    for _ in range(requests):
        budget.earn()
    assert sum(budget.spend() for _ in range(10 * requests)) == retries


def test_with_everything_failing_calls_per_request_come_down_to_one_plus_the_budget() -> None:
    # case O07: calls per logical call <= 1.1 + burst / calls, and a budget of 10 % is used to the full
    made = attempts_made(backoff(max_attempts=4, budget=0.1, budget_start=10, budget_most=100), 2000, 1.0, seed=3)
    assert made == 2000 + floor(0.1 * 2000) + 10


def test_savings_of_a_quiet_time_are_capped() -> None:
    budget = RetryBudget(0.1, 0, 5)
    for _ in range(1000):
        budget.earn()
    assert sum(budget.spend() for _ in range(100)) == 5


def test_the_same_seed_draws_the_same_delays() -> None:
    assert delays(backoff(), 2, 20).tolist() == delays(backoff(), 2, 20).tolist()


def test_parameters_that_contradict_each_other_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"base": 2 * S, "cap": S}, "above cap"),
        ({"multiplier": 0.5}, "at least 1"),
        ({"max_attempts": 0}, "at least 1"),
        ({"on": []}, "at least one of"),
        ({"budget_start": 3}, "no effect without budget"),
        ({"budget": 0.1, "budget_start": 200}, "above budget_most"),
    ]
    for parameters, message in cases:
        with pytest.raises(ParameterError, match=message):
            Backoff(**parameters)
