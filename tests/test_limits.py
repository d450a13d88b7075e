"""Limits: what may start, what waits and for what, what can never start; grants never pass the capacity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limit_harness import Bench, S, bound

from simkit.mechanisms.base import Limit, ParameterError
from simkit.mechanisms.bucket import Gcra
from simkit.mechanisms.expire import DropExpired
from simkit.mechanisms.quota import Quota, ShareCap
from simkit.mechanisms.rate import ApiAllowance, TokenBucket
from simkit.mechanisms.reserve import Reserve
from simkit.mechanisms.shares import apportion, part_down, part_up
from simkit.model import NEVER_NS, Drop, Hold, UsageError


def start_all(limit: Limit, bench: Bench, rows: list[int] | range) -> list[int]:
    """Start, in order, every row that the limit allows and the free slots hold; the rows started."""
    started = []
    for row in rows:
        fits = all(slots <= bench.free(place) for place, slots in bench.demands[bench.rows.demand[row]])
        if fits and bench.ask(limit, row) is None:
            bench.start(limit, row)
            started.append(row)
    return started


def tenants(*names: str, **columns: Any) -> list[dict[str, Any]]:
    return [{"run": n, "tenant": name, **columns} for n, name in enumerate(names)]


# --- shares of a whole (P31) -------------------------------------------------------------------------------


def test_largest_remainder_golden() -> None:
    # quotas of 10 by 5:3:1 are 5.56, 3.33, 1.11; of 26: 14.44, 8.67, 2.89; of 100: 55.56, 33.33, 11.11
    assert [apportion(n, [5, 3, 1]) for n in (10, 26, 100)] == [[6, 3, 1], [14, 9, 3], [56, 33, 11]]


def test_shares_add_up_for_every_size() -> None:
    # rounding each share by max(1, floor(n w / 9)) misses the total for 175 of these 200 sizes
    assert sum(sum(max(1, n * weight // 9) for weight in (5, 3, 1)) != n for n in range(1, 201)) == 175
    for n in range(1, 201):
        shares = apportion(n, [5, 3, 1])
        assert sum(shares) == n
        assert all(abs(share - n * weight / 9) < 1 for share, weight in zip(shares, [5, 3, 1], strict=True))


@given(st.integers(0, 60), st.lists(st.sampled_from([0, 0.1, 1, 2.5, 7, 40]), min_size=1, max_size=8))
def test_at_least_one_each_while_there_are_enough(total: int, weights: list[float]) -> None:
    if not any(weights):
        with pytest.raises(ValueError, match="one above 0"):
            apportion(total, weights)
        return
    shares = apportion(total, weights, at_least_one=True)
    assert sum(shares) == total
    positive = [share for share, weight in zip(shares, weights, strict=True) if weight]
    assert sum(positive) == total
    if len(positive) <= total:
        assert min(positive) >= 1


def test_parts_are_rounded_as_the_percentage_was_meant() -> None:
    assert (0.29 * 100, part_down(0.29, 100)) == (28.999999999999996, 29)
    assert (0.07 * 100, part_up(0.07, 100)) == (7.000000000000001, 7)
    assert (part_down(0.25, 7), part_up(0.15, 4), part_up(0.0, 9)) == (1, 1, 0)


# --- share_cap ---------------------------------------------------------------------------------------------


def test_a_tenant_gets_its_share_and_no_more() -> None:
    bench = Bench(tenants(*"aaaab"), pools={"gpu": 8})
    limit = bound(ShareCap(fraction=0.25), bench)
    assert start_all(limit, bench, range(5)) == [0, 1, 4]
    assert bench.ask(limit, 2) == Hold((0, 0), "share_cap:tenant=a")
    assert bench.finish(limit, 0) == [(0, 0)]  # a's key alone is woken
    assert bench.ask(limit, 2) is None


def test_the_cap_is_at_least_one_slot_and_rounds_down() -> None:
    for slots, cap in [(1, 1), (3, 1), (7, 1), (8, 2), (11, 2)]:
        bench = Bench(tenants(*"aaaaaaaaaaaa"), pools={"gpu": slots})
        assert len(start_all(bound(ShareCap(fraction=0.25), bench), bench, range(12))) == cap


def test_a_cap_follows_the_capacity_down_and_up_again() -> None:
    bench = Bench(tenants(*"aaaaaa"), pools={"gpu": 8})
    limit = bound(ShareCap(fraction=0.5), bench)
    assert start_all(limit, bench, range(4)) == [0, 1, 2, 3]
    bench.capacity_of[0] = 4  # cap 2, four in use: nothing is taken away, nothing new starts
    for row, allowed in [(0, False), (1, False), (2, True)]:
        bench.finish(limit, row)
        assert (bench.ask(limit, 4) is None) is allowed
    bench.capacity_of[0] = 8
    assert start_all(limit, bench, [4, 5]) == [4, 5]


def test_a_cap_by_tenant_and_class_counts_each_pair_apart() -> None:
    rows = [{"tenant": t, "class": c} for t, c in [("a", "x"), ("a", "x"), ("a", "y"), ("b", "x")]]
    bench = Bench(rows, pools={"gpu": 4})
    limit = bound(ShareCap(by=["class", "tenant"], count=1), bench)
    assert start_all(limit, bench, range(4)) == [0, 2, 3]
    assert bench.ask(limit, 1).reason == "share_cap:tenant=a,class=x"
    assert limit.group_by == {"tenant", "class"}


def test_counts_by_name_leave_unnamed_ones_free_unless_there_is_a_default() -> None:
    bench = Bench(tenants(*"aabb"), pools={"gpu": 8})
    assert start_all(bound(ShareCap(count={"a": 1}), bench), bench, range(4)) == [0, 2, 3]
    bench = Bench(tenants(*"aabb"), pools={"gpu": 8})
    assert start_all(bound(ShareCap(count={"b": 2, "default": 1}), bench), bench, range(4)) == [0, 2, 3]


def test_weights_divide_the_pool_without_remainder() -> None:
    # 10 slots by 5:3:1 = 6, 3, 1 (largest remainder)
    rows = [{"class": c} for c in ["x"] * 10 + ["y"] * 10 + ["z"] * 10]
    bench = Bench(rows, pools={"gpu": 10})
    limit = bound(ShareCap(by="class", weights={"x": 5, "y": 3, "z": 1}), bench)
    started = start_all(limit, bench, range(30))
    assert [sum(row // 10 == k for row in started) for k in range(3)] == [6, 3, 1]


def test_only_the_named_pools_are_capped_and_every_need_of_a_row_counts() -> None:
    rows = tenants(*"aa", pool="cpu", needs={"gpu": 1})
    bench = Bench(rows, pools={"gpu": 4, "cpu": 8, "free": None})
    limit = bound(ShareCap(fraction=0.25, pools=["gpu"]), bench)
    assert start_all(limit, bench, range(2)) == [0]
    assert bench.ask(limit, 1).key == (0, 0)
    bench = Bench(tenants(*"aaaa", pool="free"), pools={"gpu": 4, "free": None})
    assert len(start_all(bound(ShareCap(fraction=0.25), bench), bench, range(4))) == 4  # no share of no limit


def test_a_row_wider_than_its_cap_is_impossible_but_waits_out_a_fault() -> None:
    bench = Bench([*tenants("a", needs={"gpu": 3}), *tenants("a", needs={"gpu": 2})], pools={"gpu": 8})
    limit = bound(ShareCap(fraction=0.25), bench)
    assert bench.ask(limit, 0) == Drop("impossible:share_cap:tenant=a")
    assert bench.ask(limit, 1) is None
    bench.capacity_of[0] = 4
    assert isinstance(bench.ask(limit, 1), Hold)


# --- quota -------------------------------------------------------------------------------------------------


def test_at_most_so_many_attempts_at_a_time() -> None:
    bench = Bench(tenants(*"aaab"), pools={"gpu": 8})
    limit = bound(Quota(concurrent=2), bench)
    assert start_all(limit, bench, range(4)) == [0, 1, 3]
    assert bench.ask(limit, 2) == Hold(0, "quota:concurrent:tenant=a")
    assert bench.finish(limit, 3) == []  # b was not at its limit
    assert bench.finish(limit, 0) == [0]
    assert bench.ask(limit, 2) is None


def test_a_fixed_window_lets_twice_its_amount_through_at_its_edge() -> None:
    # P21, case O05: 100 per second, 100 rows at 0.9 s and at 1.1 s: 200 in 0.2 s
    bench = Bench(tenants(*["a"] * 250), pools={"gpu": None})
    limit = bound(Quota(per=S, calls=100), bench)
    bench.now_ns = 9 * S // 10
    assert len(start_all(limit, bench, range(125))) == 100
    assert bench.ask(limit, 124).until_ns == S
    bench.now_ns = 11 * S // 10
    assert len(start_all(limit, bench, range(125, 250))) == 100


@given(st.lists(st.integers(0, 5 * S // 4), min_size=1, max_size=40), st.integers(1, 5))
def test_a_fixed_window_never_lets_more_than_twice_its_amount_through_in_one_length(
    gaps: list[int], amount: int
) -> None:
    bench = Bench(tenants(*["a"] * len(gaps)), pools={"gpu": None})
    limit, times = bound(Quota(per=S, calls=amount), bench), []
    for row, gap in enumerate(gaps):
        bench.now_ns += gap
        times += [bench.now_ns] * len(start_all(limit, bench, [row]))
    assert all(sum(start <= t <= start + S for t in times) <= 2 * amount for start in times)
    for window in {t // S for t in times}:
        assert sum(t // S == window for t in times) <= amount


def test_tokens_are_charged_before_they_are_spent() -> None:
    # case O06: a limit of 100 tokens a minute meets calls of 58 + 80 + 3 x 175 at once: the first only, 175 never fits
    bench = Bench([{"tokens": n} for n in (58, 80, 175, 42, 100)], pools={"gpu": None})
    limit = bound(Quota(by="all", per=60 * S, tokens=100), bench)
    assert start_all(limit, bench, [0]) == [0]
    assert bench.ask(limit, 1) == Hold(0, "quota:tokens:all", 60 * S)
    assert bench.ask(limit, 2) == Drop("impossible:quota:tokens:all")
    assert start_all(limit, bench, [3]) == [3]  # 58 + 42 = 100 fits exactly
    bench.now_ns = 60 * S
    assert start_all(limit, bench, [4]) == [4]


def test_a_run_is_counted_once_however_many_tasks_it_has() -> None:
    rows = [{"run": 0}, {"run": 0}, {"run": 1}, {"run": 0}]
    bench = Bench(rows, pools={"gpu": None})
    limit = bound(Quota(per=60 * S, runs=1), bench)
    assert start_all(limit, bench, range(4)) == [0, 1, 3]
    bench.now_ns = 60 * S
    assert start_all(limit, bench, [2]) == [2]


def test_money_adds_up_exactly() -> None:
    # ten times $0.1 is one dollar, although the floats add up to 0.9999999999999999
    bench = Bench([{"cost_usd": 0.1}] * 11, pools={"gpu": None})
    limit = bound(Quota(per=60 * S, usd=1.0), bench)
    assert start_all(limit, bench, range(11)) == list(range(10))


def test_slot_seconds_are_booked_by_estimate_and_trued_up() -> None:
    # 20 slot-seconds a minute: 2 slots x 10 s are booked, 2 x 4 s were used, so 12 are left
    rows = [{"needs": {"gpu": 2}, "estimate_ns": 10 * S}, {"estimate_ns": 12 * S}, {"estimate_ns": 13 * S}]
    bench = Bench(rows, pools={"gpu": 4})
    limit = bound(Quota(per=60 * S, slot_seconds=20), bench)
    bench.start(limit, 0)
    assert isinstance(bench.ask(limit, 1), Hold)
    bench.now_ns = 4 * S
    assert bench.finish(limit, 0) == [0]
    assert isinstance(bench.ask(limit, 2), Hold)
    assert bench.ask(limit, 1) is None


def test_work_that_ends_in_another_window_is_not_trued_up() -> None:
    bench = Bench([{"estimate_ns": 10 * S}, {"estimate_ns": 20 * S}], pools={"gpu": 4})
    limit = bound(Quota(per=60 * S, slot_seconds=20), bench)
    bench.now_ns = 58 * S
    bench.start(limit, 0)
    bench.now_ns = 62 * S
    assert bench.finish(limit, 0) == []
    assert bench.ask(limit, 1) is None  # the new window is whole


def test_a_quota_on_named_pools_leaves_others_alone() -> None:
    bench = Bench([{"pool": "gpu"}, {"pool": "gpu"}, {"pool": "cpu"}], pools={"gpu": 4, "cpu": 4})
    limit = bound(Quota(concurrent=1, pools=["gpu"]), bench)
    assert start_all(limit, bench, range(3)) == [0, 2]
    bench.finish(limit, 2)
    assert isinstance(bench.ask(limit, 1), Hold)


# --- token_bucket ------------------------------------------------------------------------------------------


def test_a_token_bucket_holds_until_the_very_nanosecond_of_the_next_token() -> None:
    bench = Bench(tenants(*"aaaab"), pools={"gpu": None})
    limit = bound(TokenBucket(rate=2.0, burst=3), bench)
    assert start_all(limit, bench, range(5)) == [0, 1, 2, 4]
    assert bench.ask(limit, 3) == Hold(0, "token_bucket:tenant=a", S // 2)
    bench.now_ns = S // 2
    assert bench.ask(limit, 3) is None


def test_buckets_of_tokens_and_of_money() -> None:
    bench = Bench([{"tokens": n} for n in (60, 50, 101)], pools={"gpu": None})
    limit = bound(TokenBucket(rate=1.0, burst=100, unit="tokens", by="all"), bench)
    bench.start(limit, 0)
    assert bench.ask(limit, 1).until_ns == 10 * S  # 40 held, 50 wanted, 1 a second
    assert bench.ask(limit, 2) == Drop("impossible:token_bucket:all")
    bench = Bench([{"cost_usd": 0.3}] * 2, pools={"gpu": None})
    limit = bound(TokenBucket(rate=0.01, burst=0.5, unit="usd"), bench)
    bench.start(limit, 0)
    assert bench.ask(limit, 1).until_ns == 10 * S  # 0.2 held, 0.3 wanted, a cent a second
    with pytest.raises(ParameterError, match="whole number of calls"):
        TokenBucket(rate=1.0, burst=1.5)
    with pytest.raises(ParameterError, match="above 0"):
        TokenBucket(rate=1.0, burst=0)


# --- reserve -----------------------------------------------------------------------------------------------

VERIFIES = {"verifies": True}


def test_others_leave_the_unused_reserve_free() -> None:
    rows = [{}] * 4 + [{"verifies": True}] * 2
    bench = Bench(rows, pools={"gpu": 4})
    limit = bound(Reserve(for_=VERIFIES, slots=1), bench)
    assert start_all(limit, bench, range(4)) == [0, 1, 2]
    assert bench.ask(limit, 3) == Hold(0, "reserve:gpu")
    assert limit.group_by == {"verifies"}
    bench.start(limit, 4)  # the reserve is in use: the pool is full
    assert bench.finish(limit, 0) == [0]
    assert bench.ask(limit, 3) is None  # free 1, unused reserve 0
    bench.start(limit, 3)
    assert bench.finish(limit, 4) == []  # goes back into the reserve: nobody is woken
    assert isinstance(bench.ask(limit, 0), Hold)


def test_chosen_rows_may_use_more_than_the_reserve() -> None:
    rows = [{"verifies": True}] * 4 + [{}]
    bench = Bench(rows, pools={"gpu": 4})
    limit = bound(Reserve(for_=VERIFIES, slots=1), bench)
    assert start_all(limit, bench, range(4)) == [0, 1, 2, 3]
    assert bench.finish(limit, 0) == [0]  # this slot is above the reserve: others may have it
    assert bench.ask(limit, 4) is None


@pytest.mark.parametrize(
    ("slots", "fraction", "kept"), [(4, 0.15, 1), (20, 0.15, 3), (21, 0.15, 4), (1, 0.15, 0), (2, 0.9, 1), (3, 1.0, 3)]
)
def test_a_fraction_rounds_up_and_leaves_the_others_a_slot(slots: int, fraction: float, kept: int) -> None:
    # ceil, at least 1, at most capacity - 1 below 100 %
    bench = Bench([{}] * 25 + [{"verifies": True}], pools={"gpu": slots})
    limit = bound(Reserve(for_=VERIFIES, fraction=fraction), bench)
    assert len(start_all(limit, bench, range(25))) == slots - kept


def test_without_a_pool_it_reserves_wherever_chosen_rows_and_others_meet() -> None:
    rows = [
        {"pool": "gpu"}, {"pool": "gpu"}, {"pool": "gpu", "verifies": True},
        {"pool": "verifier", "verifies": True}, {"pool": "verifier", "verifies": True},
        {"pool": "browser"}, {"pool": "browser"}, {"pool": "free"}, {"pool": "free", "verifies": True},
    ]  # fmt: skip
    bench = Bench(rows, pools={"gpu": 2, "verifier": 2, "browser": 2, "free": None})
    limit = bound(Reserve(for_=VERIFIES, fraction=0.15), bench)
    assert start_all(limit, bench, range(9)) == [0, 2, 3, 4, 5, 6, 7, 8]  # only gpu keeps a slot
    assert not limit.warnings


def test_a_reserve_that_reserves_nothing_says_so() -> None:
    bench = Bench([{}, {}], pools={"gpu": 2})
    limit = bound(Reserve(for_={"class": "incident"}, fraction=0.15), bench)
    assert list(limit.warnings) == [
        "there is no class 'incident' here",
        "no place is shared by chosen rows and others: the reserve has no effect",
    ]
    assert start_all(limit, bench, range(2)) == [0, 1]
    rows = [{"pool": "gpu"}, {"pool": "gpu", "verifies": True}, {"pool": "cpu"}]
    bench = Bench(rows, pools={"gpu": 1, "cpu": 2})
    limit = bound(Reserve(for_=VERIFIES, fraction=0.5, pools=["gpu", "cpu"]), bench)
    assert limit.warnings[0] == "nothing is reserved in 'gpu': it has too few slots"
    assert limit.warnings[1] == "nothing is reserved in 'cpu': no chosen row needs it"


def test_idle_reserve_is_lent_and_comes_back_as_slots_end() -> None:
    rows = [{}] * 5 + [{"verifies": True}] * 2
    bench = Bench(rows, pools={"gpu": 4})
    limit = bound(Reserve(for_=VERIFIES, slots=2, lend=True), bench)
    assert start_all(limit, bench, range(4)) == [0, 1, 2, 3]  # no chosen row waits: all is lent
    bench.queue(5)
    assert bench.finish(limit, 0) == [0]
    assert isinstance(bench.ask(limit, 4), Hold)  # the slot is for row 5
    bench.queue(5, -1)
    bench.start(limit, 5)
    bench.finish(limit, 1)
    assert bench.ask(limit, 4) is None  # nobody waits for the second reserved slot
    bench.queue(6)
    assert isinstance(bench.ask(limit, 4), Hold)
    bench.woken.clear()
    bench.queue(6, -1)
    limit.left(6, 0)  # cancelled: what was kept for it is free
    assert bench.woken == [0]
    assert bench.ask(limit, 4) is None


def test_a_row_that_no_reserve_ever_lets_through_is_impossible() -> None:
    rows = [{"needs": {"gpu": 4}}, {"needs": {"gpu": 3}}, {"verifies": True}]
    bench = Bench(rows, pools={"gpu": 4})
    limit = bound(Reserve(for_=VERIFIES, slots=1), bench)
    assert bench.ask(limit, 0) == Drop("impossible:reserve:gpu")
    assert bench.ask(limit, 1) is None


def test_the_chosen_are_by_class_tenant_or_flag_with_and_within_or_between() -> None:
    rows = [
        {"tenant": "a", "class": "chat"}, {"tenant": "b", "class": "chat"}, {"tenant": "a", "class": "batch"},
        {"tenant": "b", "class": "batch", "verifies": True},
    ]  # fmt: skip

    def unheld(who: Any) -> list[int]:
        bench = Bench(rows, pools={"gpu": 2})
        limit = bound(Reserve(for_=who, slots=2), bench)
        return [row for row in range(4) if bench.ask(limit, row) is None]

    assert unheld({"class": "chat"}) == [0, 1]
    assert unheld({"class": ["chat", "batch"], "tenant": "a"}) == [0, 2]
    assert unheld([{"class": "chat", "tenant": "b"}, {"verifies": True}]) == [1, 3]
    assert unheld({"verifies": False}) == [0, 1, 2]


# --- api_allowance -----------------------------------------------------------------------------------------


def api_bench(rows: list[dict[str, Any]], *limits: tuple[str, Gcra], slots: int | None = None) -> Bench:
    """Rows of pool "w" that call API "llm"."""
    needs = [{"pool": "w", "needs": {"w": 1, "llm": 1}, **row} for row in rows]
    return Bench(needs, pools={"w": 50, "llm": slots}, apis={"llm": limits})


def test_a_call_waits_until_the_provider_would_accept_it() -> None:
    bench = api_bench([{"calls": [("llm", 1, 0)]}] * 4, ("requests", Gcra(0.5, 2)))
    limit = bound(ApiAllowance(), bench)
    assert start_all(limit, bench, range(4)) == [0, 1]
    assert bench.ask(limit, 2) == Hold(1, "api_allowance:llm", 2 * S)
    bench.now_ns = 2 * S
    assert start_all(limit, bench, [2, 3]) == [2]


def test_the_longest_wait_over_all_limits_counts() -> None:
    rows = [{"calls": [("llm", 1, 90)]}, {"calls": [("llm", 1, 30)]}, {"calls": [("llm", 1, 101)]}]
    bench = api_bench(rows, ("requests", Gcra(1, 1)), ("tokens", Gcra(2, 100)))
    limit = bound(ApiAllowance(), bench)
    bench.start(limit, 0)
    assert bench.ask(limit, 1).until_ns == 10 * S  # a request is there in 1 s, 20 more tokens in 10 s
    assert bench.ask(limit, 2) == Drop("impossible:api_allowance:llm")
    assert bench.finish(limit, 0) == [1]  # reserved tokens may have come back


def test_the_last_part_of_the_allowance_is_kept_for_the_chosen() -> None:
    # burst 10, 20 % kept: others stop when 2 are left
    rows = [{"class": "batch", "calls": [("llm", 1, 0)]}] * 12 + [{"class": "chat", "calls": [("llm", 1, 0)]}] * 3
    bench = api_bench(rows, ("requests", Gcra(1, 10)))
    limit = bound(ApiAllowance(keep=0.2, keep_for={"class": "chat"}), bench)
    assert start_all(limit, bench, range(12)) == list(range(8))
    assert bench.ask(limit, 9).until_ns == S
    assert start_all(limit, bench, [12, 13, 14]) == [12, 13]
    assert bench.ask(limit, 9).until_ns == 3 * S  # 1 + 2 kept must be there
    assert limit.group_by == {"class"}


def test_a_call_that_needs_a_full_allowance_still_gets_it() -> None:
    rows = [{"calls": [("llm", 1, 95)]}, {"class": "chat", "calls": [("llm", 1, 1)]}]
    bench = api_bench(rows, ("tokens", Gcra(1, 100)))
    assert bench.ask(bound(ApiAllowance(keep=0.2, keep_for={"class": "chat"}), bench), 0) is None


def test_an_api_at_its_concurrency_is_not_called() -> None:
    bench = api_bench([{"calls": [("llm", 1, 0)]}] * 3, slots=2)
    limit = bound(ApiAllowance(), bench)
    bench.start(limit, 0)
    bench.start(limit, 1)
    assert bench.ask(limit, 2) == Hold(1, "api_concurrency:llm")
    assert bench.finish(limit, 0) == [1]
    assert bench.ask(limit, 2) is None


def test_only_the_named_apis_are_watched_and_a_cut_is_noticed() -> None:
    rows = [{"calls": [("llm", 1, 0)]}] * 2
    bench = api_bench(rows, ("requests", Gcra(1, 1)))
    bench.start(bound(ApiAllowance(apis=["w"]), bench), 0)
    unwatched, watched = bound(ApiAllowance(apis=["w"]), bench), bound(ApiAllowance(apis=["llm"]), bench)
    assert bench.ask(unwatched, 1) is None
    assert bench.ask(watched, 1).until_ns == S
    bench.apis["llm"][0][1].scale(0, 0)
    assert bench.ask(watched, 1).until_ns == NEVER_NS  # until the engine wakes it: the fault ends
    with pytest.raises(UsageError, match="did you mean 'llm'"):
        bound(ApiAllowance(apis=["lmm"]), bench)


# --- drop_expired ------------------------------------------------------------------------------------------


def test_work_is_dropped_when_it_cannot_end_before_its_client_leaves() -> None:
    rows = [{"estimate_ns": 4 * S, "client_deadline_ns": 10 * S, "deadline_ns": 8 * S}, {}]
    bench = Bench(rows)

    def dropped(limit: DropExpired, now_ns: int) -> str | None:
        bench.now_ns = now_ns
        answer = bench.ask(bound(limit, bench), 0)
        return answer.reason if answer is not None else None

    assert dropped(DropExpired(), 6 * S) is None  # done at 10 s, the very moment
    assert dropped(DropExpired(), 6 * S + 1) == "expired:client"
    assert dropped(DropExpired(margin=1), 6 * S) == "expired:client"
    assert dropped(DropExpired(by="deadline"), 4 * S) is None
    assert dropped(DropExpired(by="deadline"), 4 * S + 1) == "expired:deadline"
    assert dropped(DropExpired(by="both"), 4 * S + 1) == "expired:deadline"
    assert dropped(DropExpired(by="both"), 7 * S) == "expired:client"
    assert bench.ask(bound(DropExpired(), bench), 1) is None  # nobody's deadline


# --- all limits: grants, waking, purity ----------------------------------------------------------------------

LIMITS = {
    "share_cap": lambda: ShareCap(fraction=0.3),
    "weights": lambda: ShareCap(by="class", weights={"x": 2, "y": 1}),
    "concurrent": lambda: Quota(concurrent=2),
    "reserve": lambda: Reserve(for_=VERIFIES, slots=2),
    "lend": lambda: Reserve(for_=VERIFIES, slots=2, lend=True),
    "fraction": lambda: Reserve(for_={"class": "x"}, fraction=0.4),
}


@settings(max_examples=60)
@given(st.sampled_from(sorted(LIMITS)), st.integers(0, 2**32 - 1))
def test_grants_stay_within_capacity_and_every_held_row_is_woken_when_it_may_start(name: str, seed: int) -> None:
    """P17, and no lost wake-ups: rows are parked under the key they were held by and looked at again only when it is woken, as
    the engine does; whatever is still parked must still be held (or not fit). The capacity changes under way."""
    rng = np.random.default_rng(seed)
    rows = [
        {"tenant": "ab"[rng.integers(2)], "class": "xy"[rng.integers(2)], "verifies": bool(rng.random() < 0.3),
         "needs": {"gpu": int(rng.integers(1, 3))}}
        for _ in range(40)
    ]  # fmt: skip
    rows += [{"tenant": "a", "class": c, "verifies": v} for c in "xy" for v in (True, False)]
    bench = Bench(rows, pools={"gpu": 8})
    limit = bound(LIMITS[name](), bench)
    ready, parked, running = list(range(len(rows))), {}, []
    for row in ready:
        bench.queue(row)

    def wake() -> None:
        for key in bench.woken:
            ready.extend(parked.pop(key, ()))
        bench.woken.clear()

    for _ in range(120):
        for row in list(ready):
            answer = bench.ask(limit, row)
            if isinstance(answer, Hold):
                ready.remove(row)
                parked.setdefault(answer.key, []).append(row)
            elif isinstance(answer, Drop):
                ready.remove(row)
                bench.queue(row, -1)
                limit.left(row, 0)
                wake()
            elif bench.free(0) >= bench.rows.slots[row]:
                ready.remove(row)
                bench.queue(row, -1)
                free = bench.free(0)
                bench.start(limit, row)
                assert bench.rows.slots[row] <= free
                running.append(row)
                wake()
        for row in [row for held in parked.values() for row in held]:
            assert isinstance(bench.ask(limit, row), Hold | Drop) or bench.rows.slots[row] > bench.free(0)
        if running and rng.random() < 0.8:
            bench.finish(limit, running.pop(int(rng.integers(len(running)))))
            wake()
        elif rng.random() < 0.5:
            bench.capacity_of[0] = int(rng.integers(3, 9))
            bench.woken.extend(parked)
            wake()


def test_parameters_that_contradict_each_other_are_refused() -> None:
    cases: list[tuple[Any, str]] = [
        (ShareCap, "exactly one"),
        (lambda: ShareCap(fraction=0.5, count=1), "exactly one"),
        (lambda: ShareCap(by="all", count=1), "tenant, class"),
        (lambda: ShareCap(by=["tenant", "class"], weights={"a": 1}), "bounds by name"),
        (lambda: ShareCap(weights={"a": 0}), "one above 0"),
        (lambda: ShareCap(by=[], count=1), "expected tenant"),
        (Quota, "exactly one"),
        (lambda: Quota(concurrent=1, per=S), "exactly one"),
        (lambda: Quota(per=S), "goes with"),
        (lambda: Quota(concurrent=1, calls=3), "goes with"),
        (lambda: Quota(per=S, slot_seconds=-1), ">= 0"),
        (lambda: Reserve(for_=VERIFIES), "exactly one"),
        (lambda: Reserve(for_=VERIFIES, slots=1, pool="a", api="b"), "at most one"),
        (lambda: Reserve(for_=VERIFIES, slots=0), "no effect"),
        (lambda: Reserve(for_={}, slots=1), "nothing is chosen"),
        (lambda: Reserve(for_={"clas": "a"}, slots=1), "did you mean 'class'"),
        (lambda: Reserve(for_={"verifies": "yes"}, slots=1), "true or false"),
        (lambda: Reserve(for_={"class": True}, slots=1), "a name or a list"),
        (lambda: ApiAllowance(keep=0.1), "go together"),
    ]
    for make, message in cases:
        with pytest.raises(ParameterError, match=message):
            make()
