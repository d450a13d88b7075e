"""GCRA and the limits built on it, against hand-made tables and an exact token bucket."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkit.mechanisms.bucket import NEVER, Gcra, exact_rate, wait_all
from simkit.model import NEVER_NS

MS = 1_000_000
S = 1_000_000_000


class FractionBucket:
    """The oracle: a token bucket in exact fractions."""

    def __init__(self, per_s: Fraction, burst: int) -> None:
        self.per_ns, self.burst = per_s / S, burst
        self.tokens, self.at_ns = Fraction(burst), 0

    def refill(self, now_ns: int) -> None:
        self.tokens = min(Fraction(self.burst), self.tokens + self.per_ns * (now_ns - self.at_ns))
        self.at_ns = now_ns

    def take(self, cost: int, now_ns: int) -> bool:
        self.refill(now_ns)
        if cost > self.tokens:
            return False
        self.tokens -= cost
        return True

    def give_back(self, cost: int, now_ns: int) -> None:
        self.refill(now_ns)
        self.tokens = min(Fraction(self.burst), self.tokens + cost)


# The fifteen situations of redis-cell's table: 1 token/s, burst 5. Each row: at ms, cost, allowed, left, full again in ms,
# retry in ms. By hand: left = floor(tokens), full = (5 - tokens) s, retry = cost - tokens in s.
ROWS = [
    (0, 6, False, 5, 0, NEVER),  # more than the burst: never
    (0, 1, True, 4, 1000, 0),
    (0, 1, True, 3, 2000, 0),
    (0, 1, True, 2, 3000, 0),
    (0, 1, True, 1, 4000, 0),
    (0, 1, True, 0, 5000, 0),
    (0, 1, False, 0, 5000, 1000),  # empty: one token takes 1 s
    (3000, 1, True, 2, 3000, 0),  # 3 refilled, 1 taken
    (3100, 1, True, 1, 3900, 0),  # 2.1 - 1 = 1.1 left
    (4000, 1, True, 1, 4000, 0),  # 1.1 + 0.9 - 1 = 1
    (8000, 1, True, 4, 1000, 0),  # 1 + 4 = 5, capped at 5
    (9500, 1, True, 4, 1000, 0),  # 4 + 1.5 capped at 5
    (9500, 0, True, 4, 1000, 0),  # cost 0 only looks
    (9500, 2, True, 2, 3000, 0),
    (9500, 5, False, 2, 3000, 3000),  # 3 short
]


def test_gcra_decides_as_the_fifteen_row_table() -> None:
    gcra = Gcra(1, 5)
    for at_ms, cost, allowed, left, full_ms, retry_ms in ROWS:
        now = at_ms * MS
        wait = gcra.wait_ns(cost, now)
        assert wait == (retry_ms * MS if retry_ms > 0 else retry_ms)
        assert (wait == 0) is allowed
        if allowed:
            gcra.take(cost, now)
        assert (gcra.peek_tokens(now), gcra.full_in_ns(now)) == (left, full_ms * MS)


def test_a_burst_of_15_admits_15_at_once_not_16() -> None:
    # redis-cell's "15 max burst" admits 16; here the word means what it says
    gcra = Gcra(Fraction(30, 60), 15)
    taken = 0
    while gcra.wait_ns(1, 0) == 0:
        gcra.take(1, 0)
        taken += 1
    assert taken == 15


def test_take_refuses_and_changes_nothing_when_the_tokens_are_not_there() -> None:
    gcra = Gcra(1, 2)
    with pytest.raises(ValueError, match="3 tokens are not there: 2 of 2"):
        gcra.take(3, 0)
    assert gcra.peek_tokens(0) == 2


rates = st.builds(Fraction, st.integers(1, 200), st.integers(1, 90))
steps = st.lists(
    st.tuples(st.integers(0, 5 * S), st.integers(0, 8), st.sampled_from(["take", "take", "take", "give_back"])),
    max_size=60,
)


@given(rates, st.integers(1, 9), steps)
def test_gcra_equals_an_exact_token_bucket(rate: Fraction, burst: int, moves: list[tuple[int, int, str]]) -> None:
    gcra, oracle, now = Gcra(rate, burst), FractionBucket(rate, burst), 0
    for gap, cost, what in moves:
        now += gap
        if what == "give_back":
            gcra.give_back(cost, now)
            oracle.give_back(cost, now)
        else:
            allowed = gcra.wait_ns(cost, now) == 0
            assert allowed == oracle.take(cost, now)
            if allowed:
                gcra.take(cost, now)
        oracle.refill(now)
        assert gcra.peek_tokens(now) == floor(oracle.tokens)


@given(rates, st.integers(1, 9), steps)
def test_the_wait_is_exact_to_the_nanosecond(rate: Fraction, burst: int, moves: list[tuple[int, int, str]]) -> None:
    gcra, now = Gcra(rate, burst), 0
    for gap, cost, _ in moves:
        now += gap
        wait = gcra.wait_ns(cost, now)
        assert (wait == NEVER) == (cost > burst)
        if wait > 0:
            assert gcra.wait_ns(cost, now + wait) == 0
            assert gcra.wait_ns(cost, now + wait - 1) > 0
        elif wait == 0:
            gcra.take(cost, now)


@given(rates, st.integers(1, 9), st.lists(st.integers(0, 3 * S), min_size=1, max_size=50))
def test_no_window_admits_more_than_burst_plus_refill(rate: Fraction, burst: int, gaps: list[int]) -> None:
    gcra, now, taken = Gcra(rate, burst), 0, []
    for gap in gaps:
        now += gap
        while gcra.wait_ns(1, now) == 0:  # as greedy as can be
            gcra.take(1, now)
            taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            window = taken[last] - taken[first]
            assert last - first + 1 <= burst + floor(window * rate / S)


def test_the_window_bound_is_met_with_equality() -> None:
    # 7 a minute, burst 3: a full bucket at 0 and every token as soon as it is there. T = 60/7 s is no whole number of ns.
    gcra, now, taken = Gcra(7 / 60, 3), 0, 0
    while now <= 60 * S:
        wait = gcra.wait_ns(1, now)
        if wait == 0:
            gcra.take(1, now)
            taken += 1
        now += max(wait, 0)
    assert taken == 3 + 7  # b + floor(60 s / T)


def test_a_rate_that_is_no_whole_number_of_nanoseconds_never_drifts() -> None:
    # one at a time at 7 a minute after a burst of 2: the k-th is there at ceil(k 60e9 / 7) ns, for every k. (With a burst of
    # 1 the bucket is full, and loses what comes, for the fraction of a nanosecond until the whole one.)
    gcra, now = Gcra(7 / 60, 2), 0
    gcra.take(2, 0)
    for k in range(1, 500):
        now += gcra.wait_ns(1, now)
        gcra.take(1, now)
        assert now == -(-k * 60 * S // 7)


def test_a_bucket_of_100_a_second_admits_120_around_the_window_edge() -> None:
    # case O05: full at start, 100 asked for at 0.9 s and at 1.1 s: 100 + 0.2 s * 100/s
    gcra, admitted = Gcra(100, 100), 0
    for at_ms in (900, 1100):
        for _ in range(100):
            if gcra.wait_ns(1, at_ms * MS) == 0:
                gcra.take(1, at_ms * MS)
                admitted += 1
    assert admitted == 120


def test_reserving_first_admits_one_call_where_checking_first_admits_five() -> None:
    # case O06: a limit of 100 tokens a minute meets calls of 58 + 80 + 3 x 175 tokens at once
    gcra, admitted = Gcra(100 / 60, 100), []
    for cost in (58, 80, 175, 175, 175):
        if gcra.wait_ns(cost, 0) == 0:
            gcra.take(cost, 0)
            admitted.append(cost)
    assert admitted == [58]
    gcra.settle(58, 40, 1 * S)  # the call used 40 only: 18 come back, and 1 s refills 1.67
    assert gcra.peek_tokens(1 * S) == 61  # floor(100 - 58 + 1.67 + 18)


def test_a_bill_above_the_reservation_leaves_a_debt() -> None:
    gcra = Gcra(1, 10)
    gcra.take(10, 0)
    gcra.settle(10, 14, 0)
    assert gcra.peek_tokens(0) == -4
    assert gcra.wait_ns(1, 0) == 5 * S


def test_giving_back_never_fills_above_the_burst() -> None:
    gcra = Gcra(1, 4)
    gcra.take(2, 0)
    gcra.give_back(9, 0)
    assert gcra.peek_tokens(0) == 4


def test_a_cut_takes_savings_away_and_slows_the_refill() -> None:
    # 60 a minute, burst 10, cut to 5 %: 3 a minute = one per 20 s; held 10 -> 0.5, so the first call waits 10 s
    gcra = Gcra(1, 10)
    gcra.scale(0.05, 0)
    assert gcra.wait_ns(1, 0) == 10 * S
    gcra.take(1, 10 * S)
    assert gcra.wait_ns(1, 10 * S) == 20 * S
    assert gcra.wait_ns(10, 10 * S) == 200 * S  # what was possible stays possible
    assert gcra.wait_ns(11, 10 * S) == NEVER
    gcra.scale(1, 30 * S)  # one token refilled by now; the end of a cut gives nothing back
    assert gcra.peek_tokens(30 * S) == 1
    assert gcra.wait_ns(2, 30 * S) == 1 * S


def test_a_cut_keeps_what_is_held_below_it_and_any_debt() -> None:
    gcra = Gcra(1, 10)
    gcra.take(9, 0)
    gcra.scale(0.5, 0)
    assert gcra.peek_tokens(0) == 1
    gcra.charge(3, 0)
    gcra.scale(0.25, 0)
    assert gcra.peek_tokens(0) == -2


def test_an_allowance_of_nothing_never_refills_until_it_ends() -> None:
    gcra = Gcra(1, 10)
    gcra.scale(0, 0)
    assert gcra.wait_ns(1, 0) == NEVER_NS
    assert gcra.peek_tokens(3600 * S) == 0
    gcra.scale(1, 3600 * S)
    assert gcra.wait_ns(1, 3600 * S) == 1 * S


@given(rates, st.integers(1, 9), st.sampled_from([0.05, 0.3, 0.5, 1.0]), steps)
def test_a_cut_loses_less_than_a_nanosecond_of_refill(
    rate: Fraction, burst: int, fraction: float, moves: list[tuple[int, int, str]]
) -> None:
    gcra, now = Gcra(rate, burst), 0
    for gap, cost, _ in moves:
        now += gap
        if gcra.wait_ns(cost, now) == 0:
            gcra.take(cost, now)
    before = gcra._held(now)
    gcra.scale(fraction, now)
    wanted = min(before, exact_rate(fraction) * burst)
    assert 0 <= wanted - gcra._held(now) < rate * exact_rate(fraction) / S


def test_rates_read_back_as_they_were_meant() -> None:
    for numerator, denominator in [
        (100_000, 60),
        (1, 86_400),
        (1, 10),
        (7, 60),
        (5, 2_592_000),
        (3, 1),
        (1_000_003, 7),
    ]:
        assert exact_rate(numerator / denominator) == Fraction(numerator, denominator)
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="rate"):
            exact_rate(wrong)
    with pytest.raises(ValueError, match="burst"):
        Gcra(1, 0)


def test_several_buckets_are_all_or_nothing() -> None:
    requests, tokens = Gcra(1, 2), Gcra(10, 100)
    tokens.take(100, 0)
    assert wait_all([requests, tokens], [1, 50], 0) == 5 * S  # requests would be free at once, tokens after 5 s
    assert wait_all([requests, tokens], [1, 101], 0) == NEVER
    assert requests.peek_tokens(0) == 2
    assert wait_all([], [], 0) == 0
