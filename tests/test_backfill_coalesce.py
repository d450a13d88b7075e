"""Backfill keeps its promise, and equal work runs once per key and scope: the mechanisms alone and in the engine."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from engine_harness import jobs, run, starts_s, tasks_trace, waits_s
from hypothesis import given, settings
from hypothesis import strategies as st
from mechanism_harness import FakeContext, bound

from simkit.log import RunLog
from simkit.mechanisms.backfill import Easy, NoBackfill, Skip
from simkit.mechanisms.coalesce import SingleFlight
from simkit.model import NS_PER_S, ApiSpec, Outcome, TaskState

# --- backfill ------------------------------------------------------------------------------------------------


def test_what_each_backfill_lets_pass() -> None:
    assert not NoBackfill().overtakes
    assert Skip().overtakes
    assert not Skip().reserves
    assert Easy().overtakes
    assert Easy().reserves
    assert Skip().may_overtake(0, 5, 0, 0, 0)


@pytest.mark.parametrize(
    ("slots", "now", "shadow", "extra", "allowed"),
    [
        (1, 0, 10, 0, True),  # ends at 10, when the head is to start: in time
        (1, 1, 10, 0, False),  # ends at 11
        (1, 1, 10, 1, True),  # ends at 11 on a slot that the head does not need
        (2, 1, 10, 1, False),  # needs one more than is left over
    ],
)
def test_easy_lets_pass_what_ends_in_time_or_uses_slots_that_are_left_over(
    slots: int, now: int, shadow: int, extra: int, allowed: bool
) -> None:
    easy = bound(Easy(), FakeContext(1, estimate_ns=10))
    assert easy.may_overtake(0, slots, now, shadow, extra) is allowed


def starts(backfill: Any, capacity: int, *rows: tuple[float, float, int]) -> list[float]:
    """Start in s of one-task runs (arrival s, service s, slots) on a pool, first come first served with `backfill`."""
    arrivals, services, need = zip(*rows, strict=True)
    return starts_s(run(jobs(arrivals, services, slots=need), {"w": capacity}, slots={"backfill": backfill}))


@pytest.mark.parametrize(
    ("backfill", "nine_seconds", "twelve_seconds"),
    [
        # 4 slots: 3 busy until 10; a task of 5 s and 4 slots waits from 1 on; behind it one of 9 or 12 s on one slot
        ("none", [0, 10, 15], [0, 10, 15]),
        ("easy", [0, 10, 1], [0, 10, 15]),  # 9 s ends when the wide one may start; 12 s would make it late
        ("skip", [0, 10, 1], [0, 13, 1]),  # whatever fits
    ],
)
def test_backfill_by_hand(backfill: str, nine_seconds: list[float], twelve_seconds: list[float]) -> None:
    assert starts(backfill, 4, (0, 10, 3), (1, 5, 4), (1, 9, 1)) == nine_seconds
    assert starts(backfill, 4, (0, 10, 3), (1, 5, 4), (1, 12, 1)) == twelve_seconds


def test_easy_gives_away_a_left_over_slot_once() -> None:
    """5 slots, 3 busy until 10; the head needs 4, so one slot is left over then. One task of 100 s may have it, a second may not,
    though a slot is free: it starts when the head (5 s from 10 on) has ended."""
    assert starts("easy", 5, (0, 10, 3), (1, 5, 4), (1, 100, 1), (1, 100, 1)) == [0, 10, 1, 15]


def test_easy_looks_at_no_more_tasks_than_depth() -> None:
    """Behind the head: one that must not pass (20 s) and one that may (2 s)."""
    rows = ((0, 10, 3), (1, 5, 4), (1, 20, 1), (1, 2, 1))
    assert starts({"easy": {"depth": 2}}, 4, *rows)[3] == 1
    assert starts({"easy": {"depth": 1}}, 4, *rows)[3] == 15


def test_easy_goes_by_estimates_not_by_true_times() -> None:
    """The 9 s task claims 30 s and may not pass; the running one claims 60 s and ends at 10: the head starts at 10 all the same."""
    trace = jobs([0, 1, 1], [10, 5, 9], slots=[3, 4, 1], estimate_ns=[60 * NS_PER_S, 5 * NS_PER_S, 70 * NS_PER_S])
    assert starts_s(run(trace, {"w": 4}, slots={"backfill": "easy"})) == [0, 10, 15]


loads = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(1, 6)), min_size=1, max_size=14)


def promised(log: RunLog, row: int, capacity: int) -> int:
    """When `row` can start first, ns: from the time at which all who came before it had started, and what ran then (exact ends) without
    those behind it that started at that very moment."""
    start, end, slots = log.rows.start_ns, log.rows.end_ns, log.rows.slots
    at = max(int(log.rows.ready_ns[row]), int(start[:row].max(initial=0)))
    running = [other for other in range(len(start)) if start[other] < at + (other < row) and end[other] > at]
    times = sorted({at, *(int(end[other]) for other in running)})
    return next(
        time
        for time in times
        if capacity - sum(int(slots[other]) for other in running if end[other] > time) >= slots[row]
    )


@settings(max_examples=120, deadline=None)
@given(loads)
def test_a_reservation_is_never_broken_when_estimates_are_exact(load: list[tuple[int, int, int]]) -> None:
    """P19: every task starts by the time that it is promised at the moment it is the head (unless it went earlier, past others)."""
    arrivals, services, need = zip(*sorted(load), strict=True)
    for backfill in ("none", "easy"):
        log = run(jobs(arrivals, services, slots=need), {"w": 6}, slots={"backfill": backfill})
        for row, start in enumerate(log.rows.start_ns.tolist()):
            assert start <= promised(log, row, 6)


def test_running_whatever_fits_breaks_promises() -> None:
    """The control of the test above."""
    log = run(jobs([0, 1, 1], [10, 5, 12], slots=[3, 4, 1]), {"w": 4}, slots={"backfill": "skip"})
    assert promised(log, 1, 4) < log.rows.start_ns[1]


def test_backfill_shortens_waits_and_easy_spares_the_wide() -> None:
    """300 tasks of 1 to 24 slots on 32, load above what strict order can pack: mean wait far below strict order with both, and the widest
    quarter waits less under EASY than when anything that fits may go."""
    draw = np.random.default_rng(5)
    size = 300
    need = draw.integers(1, 25, size)
    services = draw.exponential(10, size)
    arrivals = np.cumsum(draw.exponential(float((need * services).mean()) / 32 / 0.85, size))
    wide = need >= np.quantile(need, 0.75)
    mean, of_wide = {}, {}
    for backfill in ("none", "easy", "skip"):
        waits = waits_s(run(jobs(arrivals, services, slots=need), {"w": 32}, slots={"backfill": backfill}))
        mean[backfill], of_wide[backfill] = waits.mean(), waits[wide].mean()
    assert mean["easy"] < mean["none"] / 2
    assert mean["skip"] < mean["none"] / 2
    assert of_wide["easy"] < of_wide["skip"]


def test_a_task_longer_than_its_estimate_does_not_stop_the_pool() -> None:
    """The running one claimed 1 s and takes 10: its end is overdue, nobody is let past on a guess, and all are served."""
    trace = jobs([0, 2, 2], [10, 5, 1], slots=[3, 4, 1], estimate_ns=[NS_PER_S, 5 * NS_PER_S, NS_PER_S])
    assert starts_s(run(trace, {"w": 4}, slots={"backfill": "easy"})) == [0, 10, 15]


# --- coalesce ------------------------------------------------------------------------------------------------


def flight(scope: Any = "as_marked", **columns: Any) -> SingleFlight:
    return bound(SingleFlight(scope=scope), FakeContext(2, **columns))


def same(flight: SingleFlight) -> bool:
    return flight.key(0) is not None and flight.key(0) == flight.key(1)


@pytest.mark.parametrize(
    ("columns", "as_marked", "tenant"),
    [
        ({"cache_key": 7}, True, True),
        ({"cache_key": [7, 8]}, False, False),
        ({}, False, False),  # no key: never shared
        ({"cache_key": 7, "pool": [0, 1]}, False, False),
        ({"cache_key": 7, "tier": [0, 1]}, False, False),
        ({"cache_key": 7, "tenant": [0, 1]}, False, False),
        ({"cache_key": 7, "tenant": [0, 1], "public": True}, True, False),
        ({"cache_key": 7, "tenant": [0, 1], "public": [True, False]}, False, False),
        (
            {"cache_key": 7, "tenant": 0, "public": [True, False]},
            False,
            True,
        ),  # one is open to all, the other to its tenant
    ],
)
def test_who_shares_with_whom(columns: dict[str, Any], as_marked: bool, tenant: bool) -> None:
    assert same(flight("as_marked", **columns)) is as_marked
    assert same(flight("tenant", **columns)) is tenant


def reads(*rows: tuple[float, str, str], public: bool = True, pool: str = "w", service: float = 10) -> Any:
    """Runs of one task: (arrival s, tenant, cache key)."""
    return tasks_trace(
        *(
            {
                "run_id": f"r{number}", "arrival_s": at, "tenant": tenant, "class": "c",
                "tasks": [{"task_id": "t", "pool": pool, "service_s": service, "cache_key": key, "public": public}],
            }
            for number, (at, tenant, key) in enumerate(rows)
        )
    )  # fmt: skip


SHARING = {"coalesce": "single_flight"}


def states(log: RunLog) -> list[str]:
    return [TaskState(state).name for state in log.rows.state.tolist()]


def test_equal_work_runs_once_while_it_is_queued_or_running_and_again_afterwards() -> None:
    """One slot. r0 runs from 0 to 10; r1 joins at 1 and ends with it; r2 comes at 10, when it is over, and runs again (no cache)."""
    log = run(reads((0, "a", "k"), (1, "b", "k"), (10, "a", "k")), {"w": 1}, slots=SHARING)
    assert states(log) == ["DONE", "COALESCED", "DONE"]
    assert (log.rows.end_ns / NS_PER_S).tolist() == [10, 10, 20]
    assert log.rows.attempts.sum() == 2
    assert (log.runs.outcome == Outcome.VERIFIED).all()


def test_without_sharing_each_runs() -> None:
    log = run(reads((0, "a", "k"), (1, "b", "k")), {"w": 1})
    assert states(log) == ["DONE", "DONE"]


def test_work_that_waits_is_shared_too() -> None:
    """r0 holds the slot until 10; r1 waits; r2 joins it at 2 and both end at 20."""
    log = run(reads((0, "a", "x"), (1, "a", "k"), (2, "a", "k")), {"w": 1}, slots=SHARING)
    assert (log.rows.end_ns / NS_PER_S).tolist() == [10, 20, 20]


def test_tenants_share_only_what_is_marked_public() -> None:
    rows = ((0.0, "a", "k"), (1.0, "b", "k"))
    assert states(run(reads(*rows, public=False), {"w": 2}, slots=SHARING)) == ["DONE", "DONE"]
    strict = {"coalesce": {"single_flight": {"scope": "tenant"}}}
    assert states(run(reads(*rows), {"w": 2}, slots=strict)) == ["DONE", "DONE"]
    assert states(run(reads(*rows), {"w": 2}, slots=SHARING)) == ["DONE", "COALESCED"]


def test_who_shares_work_shares_its_failure() -> None:
    """The API fails every call; the one that joined made none of its own."""
    api = ApiSpec("github", error_p=1.0, error_latency_ns=2 * NS_PER_S)
    log = run(reads((0, "a", "k"), (1, "a", "k"), pool="github"), {}, apis=[api], slots=SHARING)
    assert log.runs.outcome.tolist() == [Outcome.FAILED, Outcome.FAILED]
    assert log.rows.attempts.sum() == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from("ab"), st.sampled_from("kl")), min_size=1, max_size=12))
def test_at_most_one_execution_per_key_and_scope_is_under_way(rows: list[tuple[int, str, str]]) -> None:
    """P32, with tenant scope: executions of one (tenant, key) never overlap from queueing to end, and everybody is served."""
    rows = sorted(rows)
    log = run(reads(*rows, public=False), {"w": 2}, slots=SHARING)  # type: ignore[arg-type]
    assert (log.runs.outcome == Outcome.VERIFIED).all()
    for kind in {row[1:] for row in rows}:
        led = [
            (int(log.rows.ready_ns[row]), int(log.rows.end_ns[row]))
            for row, (_, *its_kind) in enumerate(rows)
            if tuple(its_kind) == kind and log.rows.state[row] == TaskState.DONE
        ]
        assert all(end <= ready for (_, end), (ready, _) in pairwise(led))
