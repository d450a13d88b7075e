"""Diagnosis: every label on a log written for it and not on its neighbour, exact splits of a run's time, and the story of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from log_builder import LogBuilder

from simkit.diagnose import counts, diagnose, explain, findings, findings_table, label, path_times
from simkit.engine.simulation import Simulation
from simkit.log import RunLog
from simkit.model import (
    NS_PER_S,
    ApiSpec,
    ClientSpec,
    FaultSpec,
    LimitSpec,
    PlatformSpec,
    PoolSpec,
    RetrySpec,
    UsageError,
)  # fmt: skip
from simkit.policy import load_policy
from simkit.trace.build import chain


def labels(log: RunLog) -> dict[str, tuple[str, str]]:
    """run id -> (label, root cause)."""
    table = label(log)
    return {row.run_id: (row.label, row.root_cause) for row in table.itertuples()}


def split(log: RunLog, run: int) -> dict[str, float]:
    """Seconds by part of one run."""
    return {part: ns / NS_PER_S for part, ns in path_times(log, [run]).of(0).items()}


# --- where the time went ------------------------------------------------------------------------------------


def test_time_splits_along_the_chain_of_tasks_that_determined_the_end() -> None:
    builder = LogBuilder(pools={"gpu": 1, "web": 2, "check": 1})
    run = builder.run("r", 0.0, 20.0)
    builder.row(run, 0.0, 1.0, 4.0, pool="gpu", group=1)  # waits 1, runs 3
    builder.row(run, 4.0, 5.0, 6.0, pool="web", group=2)  # done at 6: not what the last one waited for
    builder.row(run, 4.0, 9.0, 12.0, pool="web", group=2)  # waits 5, runs 3, releases the last one
    builder.row(run, 12.0, 18.0, 20.0, pool="check", group=3)  # waits 6, runs 2
    builder.hold(5.0, 7.0, "share_cap:tenant=t", pool="web", group=2)  # 2 s of the 5 s
    builder.hold(0.0, 30.0, "share_cap:tenant=t", pool="web", group=1)  # another group: not ours
    # by hand: 1 + 3 | 5 = 2 + 3, 3 | 6 + 2 = 20
    assert split(builder.build(), run) == {
        "pool:check": 6.0, "pool:web": 3.0, "service:gpu": 3.0, "service:web": 3.0, "service:check": 2.0, "share_cap:tenant=t": 2.0,
        "pool:gpu": 1.0,
    }  # fmt: skip


def test_attempts_backoff_and_the_door_have_their_own_parts() -> None:
    builder = LogBuilder()
    run = builder.run("r", 0.0, 12.0, admitted=3.0, deferrals=1)
    row = builder.row(run, 9.0, 10.0, 12.0)
    builder.attempt(row, 3.0, 4.0, 5.0, "error:api")  # waits 1, runs 1, and 4 s until it queues again
    builder.event(0.0, "defer", run=run, value=3.0)
    assert split(builder.build(), run) == {"backoff": 4.0, "admission": 3.0, "service:pool": 3.0, "pool:pool": 2.0}


def test_an_earlier_submission_is_split_like_the_last_one() -> None:
    builder = LogBuilder()
    run = builder.run("r", 0.0, 14.0, submissions=2, admitted=8.0)
    first = builder.row(
        run, 0.0, 2.0, 7.0, task_id="work"
    )  # its client leaves at 5: 2 s of waiting, 3 of 5 s of running count
    builder.row(run, 8.0, 12.0, 14.0, task=builder.entries["rows"][first]["task"], submission=1)
    builder.event(5.0, "client_timeout", run=run)
    builder.event(5.0, "client_retry", run=run, reason="client timeout", value=3.0)
    # by hand: 0-2 waits, 2-5 runs, 5-8 the client's delay, 8-12 waits, 12-14 runs
    assert split(builder.build(), run) == {"pool:pool": 6.0, "service:pool": 5.0, "client": 3.0}


def test_shared_work_and_rework_are_followed() -> None:
    builder = LogBuilder(pools={"gpu": 1, "check": 1})
    leader = builder.run("leader", 0.0, 5.0)
    led = builder.row(leader, 0.0, 1.0, 5.0, pool="gpu")
    run = builder.run("r", 2.0, 14.0, rework=1)
    shared = builder.row(run, 2.0, None, 5.0, pool="gpu", state="coalesced")
    builder.event(2.0, "coalesced", row=shared, value=led)
    work = builder.row(run, 7.0, 7.0, 10.0, pool="gpu")
    check = builder.row(run, 10.0, 12.0, 14.0, pool="check", verifies=True)
    builder.attempt(work, 5.0, 5.0, 6.0, "rework")
    builder.attempt(check, 6.0, 6.0, 7.0, "rework")  # finds a defect at 7: the work starts again
    builder.event(7.0, "rework", run=run, value=1)
    # by hand: shares 3 | 1 + 1 | 3 | waits 2, runs 2
    assert split(builder.build(), run) == {"service:gpu": 4.0, "service:check": 3.0, "shared": 3.0, "pool:check": 2.0}


@pytest.mark.parametrize(
    ("finished", "expected"),
    [(None, {"pool:pool": 9.0, "service:pool": 1.0}), (6.0, {"pool:pool": 5.0, "service:pool": 1.0})],
)
def test_what_still_waits_at_the_end_counts_up_to_it(finished: float | None, expected: dict[str, float]) -> None:
    builder = LogBuilder(horizon=10.0)
    run = builder.run("r", 0.0, finished, None if finished is None else "timed_out")
    builder.row(run, 0.0, 0.0, 1.0)
    builder.row(run, 1.0, None, None)
    assert split(builder.build(), run) == expected


def test_a_drop_at_once_is_followed_back_to_the_task_before_it() -> None:
    builder = LogBuilder(pools={"gpu": 1, "check": 1})
    run = builder.run("r", 0.0, 10.0, "timed_out", reason="client timeout")
    builder.row(run, 0.0, 1.0, 4.0, pool="gpu")
    builder.row(run, 4.0, None, 4.0, pool="check", state="dropped")
    assert split(builder.build(), run) == {"unanswered": 6.0, "service:gpu": 3.0, "pool:gpu": 1.0}


def test_a_gap_that_the_log_does_not_explain_is_said_to_be_one() -> None:
    builder = LogBuilder()
    run = builder.run("r", 0.0, 10.0)
    builder.row(run, 0.0, 0.0, 2.0)
    builder.row(run, 5.0, 5.0, 9.0)  # nothing ended at 5, and nothing happened from 9 to 10
    assert split(builder.build(), run) == {"service:pool": 6.0, "other": 4.0}


def busy_world(policy: dict[str, Any], seed: int = 3, horizon_s: int = 90) -> RunLog:
    """Chains over a pool and a limited API with failures, patience, two layers of retries, two faults and a horizon."""
    rng = np.random.default_rng(seed)
    size = 150
    arrival = np.sort(rng.uniform(0, 80, size)) * NS_PER_S
    trace = chain(
        arrival, rng.exponential(1, (size, 3)) * NS_PER_S, ["gpu", "api", "gpu"], tenant=[f"t{n % 4}" for n in range(size)],
        cls=["x" if n % 2 else "y" for n in range(size)], deadline_ns=20 * NS_PER_S,
    )  # fmt: skip
    api = ApiSpec(
        "api", limits=(LimitSpec("requests", 2.0, 4),), concurrency=4, error_p=0.1, error_latency_ns=NS_PER_S // 10
    )
    clients = [
        ClientSpec({}, patience_ns=15 * NS_PER_S, retry=RetrySpec(attempts=3, base_ns=NS_PER_S, cap_ns=4 * NS_PER_S))
    ]
    faults = [
        FaultSpec(30 * NS_PER_S, 5 * NS_PER_S, "gpu", "stall"),
        FaultSpec(50 * NS_PER_S, 5 * NS_PER_S, "api", "down", "error"),
    ]
    simulation = Simulation(
        PlatformSpec((PoolSpec("gpu", 4),), (api,)), load_policy({"name": "p", **policy}), trace, clients=clients, faults=faults,
        horizon_ns=horizon_s * NS_PER_S, class_limits_ns={"x": 5 * NS_PER_S},
    )  # fmt: skip
    return simulation.run()


POLICIES: list[dict[str, Any]] = [
    {"order": "fifo"},
    {"order": "weighted_fair", "limits": [{"share_cap": {"by": "tenant", "fraction": "50%"}}]},
    {"order": "lifo", "admission": [{"queue_limit": {"max": 10, "retry_after": "5s", "verdict": "defer"}}]},
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_parts_of_every_simulated_run_add_up_to_its_time_to_the_nanosecond(
    policy: dict[str, Any], seed: int
) -> None:
    log = busy_world(policy, seed)
    arrived = np.flatnonzero(log.runs.submissions > 0)
    times = path_times(log, arrived)
    total = np.zeros(len(arrived), dtype=np.int64)
    np.add.at(total, times.place, times.ns)
    finished = log.runs.finished_ns[arrived]
    # the definition: from arrival to the end of the run, or of the log (its horizon)
    expected = np.where(finished >= 0, finished, log.header["horizon_ns"]) - log.runs.arrival_ns[arrived]
    np.testing.assert_array_equal(total, expected)
    assert (times.ns > 0).all()
    unexplained = times.ns[times.part == list(times.parts).index("other")]
    assert unexplained.sum() == 0  # the engine's log explains every nanosecond


# --- labels of runs -----------------------------------------------------------------------------------------


def late_chain(pool: str = "pool", **options: Any) -> tuple[LogBuilder, int]:
    """One run of one task that waited 8 s in a full pool, ran 1 s, and was due at 5 s."""
    builder = LogBuilder(**options)
    builder.one("before", 0.0, 0.0, 8.0, pool=pool, deadline=9.0)
    return builder, builder.one("late", 0.0, 8.0, 9.0, pool=pool, deadline=5.0)


def test_runs_that_went_well_have_no_label() -> None:
    builder = LogBuilder(class_limits={"c": 5.0})
    builder.one("good", 0.0, 0.0, 8.0, deadline=8.0)
    builder.one("slow", 4.0, 8.0, 100.0)  # waited 4 of 5 s, no deadline
    assert label(builder.build()).empty
    assert counts(label(builder.build())).empty


def test_late_for_want_of_slots_is_a_deadline_miss() -> None:
    builder, _ = late_chain()
    log = builder.build()
    assert labels(log) == {"late": ("DEADLINE_MISS", "pool:pool")}
    row = label(log).iloc[0]
    assert (row.time_s, row.late_by_s, row.waited_s) == (9.0, 4.0, 8.0)
    assert row.components == {"pool:pool": 8.0, "service:pool": 1.0}


def test_service_that_cannot_meet_the_deadline_is_the_root_cause() -> None:
    builder = LogBuilder(pools={"pool": 2})
    builder.one("before", 0.0, 0.0, 6.0, slots=2)
    builder.one("short", 0.0, 6.0, 12.0, deadline=6.0)  # service takes all that was allowed: waiting was to blame
    builder.one("long", 0.0, 6.0, 12.5, deadline=6.0)  # 6.5 s of service: hopeless
    assert labels(builder.build()) == {
        "short": ("DEADLINE_MISS", "pool:pool"),
        "long": ("DEADLINE_MISS", "service:pool"),
    }


def test_an_impatient_client_and_an_expired_task_count_as_deadlines() -> None:
    builder = LogBuilder()
    builder.one("before", 0.0, 0.0, 20.0)
    run = builder.run("gone", 0.0, 5.0, "timed_out", reason="client timeout")
    builder.row(run, 0.0, 20.0, 21.0)
    run = builder.run("expired", 0.0, 20.0, "shed", reason="expired:client")
    row = builder.row(run, 0.0, None, 20.0, state="dropped")
    builder.event(20.0, "dropped", row=row, reason="expired:client")
    assert labels(builder.build()) == {
        "gone": ("DEADLINE_MISS", "pool:pool"),
        "expired": ("DEADLINE_MISS", "pool:pool"),
    }


def test_an_unfinished_run_past_its_deadline_is_late_and_one_before_it_is_not() -> None:
    builder = LogBuilder(horizon=10.0)
    builder.one("before", 0.0, 0.0, None)
    builder.one("late", 0.0, None, None, deadline=9.0)
    builder.one("hopeful", 0.0, None, None, deadline=11.0)
    assert labels(builder.build()) == {"late": ("DEADLINE_MISS", "pool:pool")}


@pytest.mark.parametrize(("waited", "expected"), [(5.0, {}), (5.1, {"r": ("STARVATION", "pool:pool")})])
def test_starvation_begins_beyond_the_limit_of_the_class(waited: float, expected: dict[str, Any]) -> None:
    builder = LogBuilder(class_limits={"c": 5.0})
    builder.one("before", 0.0, 0.0, waited, cls="other")
    builder.one("r", 0.0, waited, waited + 1)
    assert labels(builder.build()) == expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("share_cap:tenant=t", "QUOTA_EXCEEDED"),
        ("quota:concurrent:tenant=t", "QUOTA_EXCEEDED"),
        ("token_bucket:all", "QUOTA_EXCEEDED"),
        ("reserve:gpu", "QUOTA_EXCEEDED"),
        ("api_allowance:github", "RATE_LIMIT_EXHAUSTION"),
        ("api_concurrency:github", "RATE_LIMIT_EXHAUSTION"),
        ("budget:team", "BUDGET_EXHAUSTION"),
    ],
)
def test_the_limit_that_held_a_late_run_longest_names_the_label(reason: str, expected: str) -> None:
    builder, _ = late_chain()
    builder.hold(0.0, 4.1, reason)  # of 8 s: more than the pool's 3.9
    assert labels(builder.build()) == {"late": (expected, reason)}
    builder, _ = late_chain()
    builder.hold(0.0, 3.9, reason)
    assert labels(builder.build()) == {"late": ("DEADLINE_MISS", "pool:pool")}


def test_what_ended_a_run_is_its_root_cause() -> None:
    builder = LogBuilder()
    for name, outcome, reason in (
        ("broke", "failed", "budget:team"), ("full", "rejected", "queue_limit:all"), ("mode", "shed", "mode:severe:only"),
        ("limited", "dead_lettered", "throttled:api"), ("broken", "failed", "error:api"), ("defects", "failed", "rework exhausted"),
    ):  # fmt: skip
        builder.run(name, 1.0, 1.0, outcome, reason=reason)
    builder.event(1.0, "shed", run=2, reason="mode:severe:only")
    assert labels(builder.build()) == {
        "broke": ("BUDGET_EXHAUSTION", "budget:team"),
        "full": ("ADMISSION_OVERLOAD", "queue_limit:all"),
        "mode": ("ADMISSION_OVERLOAD", "mode:severe:only"),
        "limited": ("RATE_LIMIT_EXHAUSTION", "throttled:api"),
        "broken": ("OTHER", "error:api"),
        "defects": ("OTHER", "rework exhausted"),
    }


def test_deferred_too_long_is_admission_overload() -> None:
    builder = LogBuilder()
    run = builder.run("r", 0.0, 12.0, admitted=10.0, deferrals=1, deadline=5.0)
    builder.row(run, 10.0, 11.0, 12.0)
    builder.event(0.0, "defer", run=run, reason="mode:severe:defer", value=10.0)
    assert labels(builder.build()) == {"r": ("ADMISSION_OVERLOAD", "admission")}


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["throttled", "api_error"], "RATE_LIMIT_EXHAUSTION"),
        (["throttled", "api_error", "api_hang"], "RETRY_AMPLIFICATION"),
    ],
)
def test_time_lost_between_tries_is_the_providers_limit_when_half_the_failures_were_429s(
    kinds: list[str], expected: str
) -> None:
    builder = LogBuilder()
    run = builder.run("r", 0.0, 12.0, deadline=5.0)
    row = builder.row(run, 10.0, 11.0, 12.0)
    builder.attempt(row, 0.0, 0.0, 1.0, "error:api")  # 9 s of backoff, 1 s of waiting
    for kind in kinds:
        builder.event(1.0, kind, row=row, reason="api")
    assert labels(builder.build()) == {"r": (expected, "backoff")}


@pytest.mark.parametrize("verifies", [True, False])
def test_waiting_in_front_of_the_verification_is_its_starvation(verifies: bool) -> None:
    builder = LogBuilder(pools={"gpu": 1, "check": 1})
    builder.one("before", 0.0, 0.0, 9.0, pool="check")
    run = builder.run("r", 0.0, 10.0, deadline=5.0)
    builder.row(run, 0.0, 0.0, 1.0, pool="gpu")
    builder.row(run, 1.0, 9.0, 10.0, pool="check", verifies=verifies)
    assert labels(builder.build())["r"] == ("VERIFICATION_STARVATION" if verifies else "DEADLINE_MISS", "pool:check")


def test_skipped_verification_is_its_starvation_and_a_missed_defect_is_not() -> None:
    builder = LogBuilder()
    for name, outcome, event in (
        ("a", "unverified", "verification_skipped"),
        ("b", "false_completion", "verification_skipped"),
        ("c", "false_completion", "defect_missed"),
    ):
        run = builder.one(name, 0.0, 0.0, 1.0, outcome=outcome)
        builder.event(1.0, event, run=run)
    found = {name: what for name, (what, _) in labels(builder.build()).items()}
    assert found == {"a": "VERIFICATION_STARVATION", "b": "VERIFICATION_STARVATION", "c": "OTHER"}


@pytest.mark.parametrize(
    ("busy_slots", "needs", "expected"),
    [
        (4, 2, "DEADLINE_MISS"),  # nothing free
        (3, 2, "RESOURCE_FRAGMENTATION"),  # one free, two needed
        (2, 2, "HEAD_OF_LINE_BLOCKING"),  # two free, two needed, and yet it waited
    ],
)
def test_free_slots_beside_a_waiting_task_tell_fragmentation_from_blocking(
    busy_slots: int, needs: int, expected: str
) -> None:
    builder = LogBuilder(pools={"pool": 4})
    builder.one("before", 0.0, 0.0, 8.0, slots=busy_slots)
    builder.one("r", 0.0, 8.0, 9.0, slots=needs, deadline=5.0)
    assert labels(builder.build()) == {"r": (expected, "pool:pool")}


@pytest.mark.parametrize("held", [3.9, 4.1])
def test_free_slots_do_not_count_while_a_limit_holds_the_row(held: float) -> None:
    builder = LogBuilder(pools={"pool": 4}, class_limits={"c": 1.0})
    builder.one("before", 0.0, 0.0, 8.0, slots=2, cls="other")
    builder.one("r", 0.0, 8.0, 9.0, slots=2)
    builder.hold(0.0, held, "share_cap:all")
    assert labels(builder.build())["r"] == (
        ("HEAD_OF_LINE_BLOCKING", "pool:pool") if held < 4 else ("QUOTA_EXCEEDED", "share_cap:all")
    )


def test_a_stalled_pool_blocks_nobodys_head_of_line() -> None:
    builder = LogBuilder(pools={"pool": 4}, faults=[{"at": 0.0, "to": 8.0, "target": "pool", "what": "stall"}])
    builder.one("r", 0.0, 8.0, 9.0, deadline=5.0)
    assert labels(builder.build()) == {"r": ("DEADLINE_MISS", "pool:pool")}


@pytest.mark.parametrize(("free", "expected"), [(0, "RESOURCE_FRAGMENTATION"), (1, "HEAD_OF_LINE_BLOCKING")])
def test_slots_needed_in_another_pool_count_too(free: int, expected: str) -> None:
    builder = LogBuilder(pools={"gpu": 2, "web": 2})
    builder.one("before", 0.0, 0.0, 8.0, pool="web", slots=2 - free)
    builder.one("r", 0.0, 8.0, 9.0, pool="gpu", group=7, deadline=5.0)
    builder.use(7, "web", 1)  # needs a slot of each: one of gpu was free all the time
    assert labels(builder.build()) == {"r": (expected, "pool:gpu")}


def test_waiting_parked_for_slots_is_no_hold_of_a_limit() -> None:
    builder = LogBuilder(pools={"pool": 4})
    builder.one("before", 0.0, 0.0, 8.0, slots=3)
    builder.one("r", 0.0, 8.0, 9.0, slots=2, group=1, deadline=5.0)
    builder.hold(0.0, 8.0, "pool:pool", group=1)  # backfill passes it by
    assert labels(builder.build()) == {"r": ("RESOURCE_FRAGMENTATION", "pool:pool")}


@pytest.mark.parametrize(
    ("priorities", "expected"),
    [
        ([0, 0, 9], "PRIORITY_INVERSION"),  # two of the three that went first were less urgent
        ([0, 9, 9], "DEADLINE_MISS"),  # one of three: fair shares and aging do that
        ([5, 5, 5], "DEADLINE_MISS"),  # as urgent
    ],
)
def test_tasks_of_lower_priority_that_mostly_go_first_invert_priorities(priorities: list[int], expected: str) -> None:
    builder = LogBuilder(pools={"pool": 1})
    builder.one("first", 0.0, 0.0, 2.0, priority=9)
    for number, priority in enumerate(priorities, start=1):
        builder.one(f"r{number}", 1.0, 2.0 * number, 2.0 * number + 2, priority=priority)
    builder.one(
        "r", 1.0, 8.0, 9.0, priority=5, deadline=5.0
    )  # its own start, at 8, and those at that instant do not count
    builder.one("same", 1.0, 8.0, 8.0, priority=0)
    assert labels(builder.build()) == {"r": (expected, "pool:pool")}


@pytest.mark.parametrize(
    ("held", "slots", "expected"),
    [
        (False, 1, "PRIORITY_INVERSION"),
        (True, 1, "STARVATION"),  # a limit held the row just then
        (False, 2, "RESOURCE_FRAGMENTATION"),  # it needs two slots, the other took the one there was
    ],
)
def test_a_held_row_is_not_overtaken_and_a_smaller_one_does_not_overtake(held: bool, slots: int, expected: str) -> None:
    builder = LogBuilder(pools={"pool": 2}, class_limits={"c": 1.0})
    builder.one("one", 0.0, 0.0, 4.0, slots=2, cls="x", priority=9)
    builder.one("two", 0.0, 4.0, 9.0, cls="x", priority=0)  # takes one slot at 4
    if slots == 1:
        builder.one("three", 4.5, 4.5, 9.0, cls="x", priority=0 if held else 9)
    builder.one("r", 0.0, 9.0, 10.0, slots=slots, group=1, priority=5)
    if held:
        builder.hold(3.9, 4.6, "share_cap:all", group=1)
    elif slots == 1:
        builder.one("four", 5.0, 9.0, 10.0, cls="x", priority=0)
        builder.entries["runs"][2]["priority"] = 0
    assert labels(builder.build())["r"][0] == expected


def test_time_after_a_drop_that_the_client_is_not_told_of_is_no_cause() -> None:
    builder = LogBuilder()
    run = builder.run("r", 0.0, 10.0, "timed_out", reason="client timeout")
    row = builder.row(run, 0.0, None, 3.0, state="dropped")
    builder.event(3.0, "dropped", row=row, reason="expired:client")
    log = builder.build()
    assert split(log, run) == {"unanswered": 7.0, "pool:pool": 3.0}
    assert labels(log)["r"][1] == "pool:pool"
    assert " 3.000 s  task: dropped (expired:client) after 3 s in the queue" in explain(log, "r").splitlines()


def test_counts_add_up_and_put_the_most_frequent_first() -> None:
    builder, _ = late_chain()
    builder.run("a", 1.0, 1.0, "rejected", reason="queue_limit:all")
    builder.run("b", 1.0, 1.0, "rejected", reason="queue_limit:all")
    table = counts(label(builder.build()))
    assert table.to_dict("records") == [
        {"label": "ADMISSION_OVERLOAD", "root_cause": "queue_limit:all", "runs": 2, "waited_s": 0.0},
        {"label": "DEADLINE_MISS", "root_cause": "pool:pool", "runs": 1, "waited_s": 8.0},
    ]


def test_runs_before_the_measured_window_are_not_diagnosed() -> None:
    builder = LogBuilder(warmup=1.0, horizon=20.0)
    builder.run("early", 0.5, 0.5, "rejected", reason="queue_limit:all")
    builder.run("counted", 1.5, 1.5, "rejected", reason="queue_limit:all")
    assert set(labels(builder.build())) == {"counted"}


def test_an_empty_log_has_no_labels() -> None:
    assert label(LogBuilder().build()).empty
    assert findings(LogBuilder().build()) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_every_bad_run_of_a_simulation_gets_exactly_one_label(policy: dict[str, Any]) -> None:
    log = busy_world(policy)
    found = diagnose(log)
    bad = np.flatnonzero((log.runs.outcome != 0) & (log.runs.outcome != 1))
    assert set(bad.tolist()) <= set(found.times.runs.tolist())
    assert len(found.label) == len(found.cause) == len(np.unique(found.times.runs))
    assert all(found.label)
    assert all(found.cause)
    assert int(counts(label(log, found)).runs.sum()) == len(found.label)


# --- the platform as a whole --------------------------------------------------------------------------------


def found_labels(log: RunLog) -> set[str]:
    return {item.label for item in findings(log)}


@pytest.mark.parametrize(("calls", "failed", "expected"), [(16, 2, True), (15, 2, False), (16, 1, False)])
def test_retries_amplify_when_calls_multiply_and_goodput_is_down(calls: int, failed: int, expected: bool) -> None:
    # by hand: 10 runs, 10 logical calls; amplified above 1.5 = 15 calls, and below 90 % verified = 2 failures
    builder = LogBuilder(api_calls={"api": calls}, logical_calls={"api": 10})
    for number in range(10):
        builder.run(
            f"r{number}",
            0.0,
            1.0,
            "failed" if number < failed else "verified",
            reason="error:api" if number < failed else None,
        )
    assert ("RETRY_AMPLIFICATION" in found_labels(builder.build())) is expected


@pytest.mark.parametrize(("gap", "expected"), [(14.0, True), (16.0, False)])
def test_modes_oscillate_when_none_lasts_15_seconds(gap: float, expected: bool) -> None:
    builder = LogBuilder(horizon=200.0)
    for number in range(6):
        builder.event(number * gap, "mode", reason="severe" if number % 2 == 0 else "normal")
    assert ("SCHEDULER_OSCILLATION" in found_labels(builder.build())) is expected


def pipeline(upstream: Callable[[int], bool]) -> RunLog:
    """100 s: gpu finishes a task per second that then queues for one checker that needs 3 s for it; `upstream(k)`: is there a run at k."""
    builder = LogBuilder(pools={"gpu": 1, "check": 1}, horizon=100.0)
    free = 0.0
    for second in range(100):
        if not upstream(second):
            continue
        run = builder.run(f"r{second}", float(second))
        builder.row(run, second, second, second + 0.9, pool="gpu")
        start = max(free, second + 0.9)
        free = start + 3.0
        if free <= 100:
            builder.row(run, second + 0.9, start, free, pool="check")
        else:
            builder.row(run, second + 0.9, start if start < 100 else None, None, pool="check")
    return builder.build()


def test_backpressure_fails_when_upstream_goes_on_and_works_when_it_falls() -> None:
    assert "BACKPRESSURE_FAILURE" in found_labels(pipeline(lambda _: True))
    # the second half starts one run in three seconds: what the checker can do
    assert "BACKPRESSURE_FAILURE" not in found_labels(pipeline(lambda second: second < 50 or second % 3 == 0))
    # never saturated
    assert "BACKPRESSURE_FAILURE" not in found_labels(pipeline(lambda second: second % 4 == 0))


def test_a_label_that_one_run_in_twenty_has_is_a_finding() -> None:
    for failed, expected in ((4, False), (5, True)):
        builder = LogBuilder()
        for number in range(100):
            bad = number < failed
            builder.run(
                f"r{number}", 0.0, 1.0, "rejected" if bad else "verified", reason="queue_limit:all" if bad else None
            )
        assert ("ADMISSION_OVERLOAD" in found_labels(builder.build())) is expected
    table = findings_table(builder.build())
    assert table.to_dict("records") == [
        {"label": "ADMISSION_OVERLOAD", "evidence": "5 of 100 runs", "value": 0.05, "threshold": 0.05}
    ]


# --- the story ----------------------------------------------------------------------------------------------


def test_the_story_of_a_late_run_tells_times_reasons_attempts_and_the_cause() -> None:
    builder = LogBuilder(pools={"gpu": 1, "check": 1})
    run = builder.run(
        "r-7", 1.0, 21.0, tenant="acme", cls="batch", priority=3, deadline=15.0, admitted=2.0, deferrals=1
    )
    plan = builder.row(run, 8.0, 9.0, 10.0, pool="gpu", task_id="plan", group=1)
    builder.attempt(plan, 2.0, 4.0, 5.0, "error:api")
    builder.row(run, 10.0, 20.0, 21.0, pool="check", task_id="verify", verifies=True)
    builder.row(run, state="skipped", task_id="extra")
    builder.event(1.0, "defer", run=run, reason="mode:severe:defer", value=1.0)
    builder.event(5.0, "api_error", row=plan, reason="api")
    builder.event(5.0, "retry", row=plan, reason="error:api", value=3.0)
    builder.hold(2.0, 3.5, "share_cap:tenant=acme", pool="gpu", group=1)
    # the numbers: those above; 20 s in all = 1 door + 1.5 held + 1.5 gpu + 3 running on gpu... each line by hand
    assert explain(builder.build(), "r-7").splitlines() == [
        "Run r-7: verified",
        "tenant acme, class batch, priority 3, workflow w, due at 15.000 s",
        "policy hand version 1, scenario by hand, seed 0, replication 0",
        "",
        " 1.000 s  submitted",
        " 1.000 s  deferred for 1 s (mode:severe:defer)",
        " 2.000 s  admitted",
        " 2.000 s  left out: extra",
        " 2.000 s  plan: ready, queues for gpu",
        " 4.000 s  plan: attempt 1 starts on gpu after waiting 2 s",
        " 5.000 s  plan: error from api",
        " 5.000 s  plan: attempt 1 ends after 1 s (error:api)",
        " 5.000 s  plan: will be tried again in 3 s (error:api)",
        " 8.000 s  plan: ready, queues for gpu",
        " 9.000 s  plan: attempt 2 starts on gpu after waiting 1 s (all its waits: pool:gpu 1.5 s, share_cap:tenant=acme 1.5 s)",
        "10.000 s  plan: done after 1 s",
        "10.000 s  verify: ready, queues for check",
        "20.000 s  verify: starts on check after waiting 10 s (pool:check 10 s)",
        "21.000 s  verify: done after 1 s",
        "21.000 s  verified",
        "",
        "Where its 20 s went:",
        "   50.0%       10 s  waiting for slots of check",
        "   15.0%        3 s  between attempts",
        "   10.0%        2 s  running on gpu",
        "    7.5%      1.5 s  waiting for slots of gpu",
        "    7.5%      1.5 s  share_cap:tenant=acme",
        "    5.0%        1 s  at the door (deferred)",
        "    5.0%        1 s  running on check",
        "Root cause: waiting for slots of check. Label: VERIFICATION_STARVATION. It was 6 s past its deadline when it ended.",
    ]


def test_the_story_of_a_refused_run_tells_why() -> None:
    builder = LogBuilder()
    run = builder.run("r", 1.0, 4.0, "rejected", reason="queue_limit:all", admitted=None, submissions=2)
    builder.event(1.0, "reject", run=run, reason="queue_limit:all", value=2.0)
    builder.event(1.0, "client_retry", run=run, reason="queue_limit:all", value=3.0)
    builder.event(4.0, "reject", run=run, reason="queue_limit:all")
    builder.event(4.0, "client_gave_up", run=run, reason="queue_limit:all", value=2)
    story = explain(builder.build(), "r").splitlines()
    assert story[4:] == [
        "1.000 s  submitted",
        "1.000 s  rejected (queue_limit:all), told to come back after 2 s",
        "1.000 s  its client will try again in 3 s (queue_limit:all)",
        "4.000 s  submitted again (submission 2)",
        "4.000 s  rejected (queue_limit:all)",
        "4.000 s  its client gave up after 2 submissions (queue_limit:all)",
        "4.000 s  rejected (queue_limit:all)",
        "",
        "Where its 3 s went:",
        "  100.0%        3 s  the client's delays between submissions",
        "Root cause: queue_limit:all. Label: ADMISSION_OVERLOAD.",
    ]


def test_the_story_of_a_run_that_went_well_ends_with_where_its_time_went() -> None:
    builder = LogBuilder(horizon=30.0)
    builder.one("good", 0.0, 1.0, 4.0)
    builder.one("open", 0.0, 4.0, None)
    builder.run("later", 40.0, submissions=0, admitted=None)
    log = builder.build()
    assert explain(log, "good").splitlines()[-3:] == [
        "Where its 4 s went:",
        "   75.0%        3 s  running on pool",
        "   25.0%        1 s  waiting for slots of pool",
    ]
    assert "30.000 s  task: still runs when the log ends" in explain(log, "open")
    assert explain(log, "later").splitlines()[-1] == "It did not arrive before the log ends."


def test_an_unknown_run_is_refused_with_the_nearest_one() -> None:
    builder = LogBuilder()
    for name in ("run-12", "run-13", "job-1"):
        builder.run(name, 0.0, 1.0)
    with pytest.raises(UsageError, match=r"there is no run 'run-14', did you mean 'run-1[23]'"):
        explain(builder.build(), "run-14")
    with pytest.raises(UsageError, match="the log has no runs"):
        explain(LogBuilder().build(), "r")
    for number in range(10_001):
        builder.run(f"x{number}", 0.0, 1.0)
    with pytest.raises(UsageError, match="did you mean 'x1000'"):
        explain(builder.build(), "x1000-0")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_simulated_run_has_a_story(policy: dict[str, Any]) -> None:
    log = busy_world(policy)
    for number in range(0, len(log.runs.run_id), 10):
        story = explain(log, log.runs.run_id[number])
        assert story.startswith(f"Run {log.runs.run_id[number]}: ")
        times = [float(line.split(" s  ")[0]) for line in story.split("\n\n")[1].splitlines()]
        assert times == sorted(times)
