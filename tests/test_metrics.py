"""Metrics against hand arithmetic, closed forms, and their own definitions on simulated logs."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from log_builder import LogBuilder

from simkit.engine.simulation import Simulation
from simkit.log import RunLog
from simkit.metrics import (
    Window,
    runs_frame,
    series,
    summarise,
    tasks_frame,
    wait_attribution,
    wait_by_reason,
)
from simkit.model import (
    ApiSpec,
    ClientSpec,
    FaultSpec,
    LimitSpec,
    Outcome,
    PlatformSpec,
    PoolSpec,
    RetrySpec,
    UsageError,
)
from simkit.policy import load_policy
from simkit.trace.build import chain, single_task

NS = 10**9


def add(
    log: LogBuilder, arrival: float, finished: float | None, outcome: Outcome = Outcome.VERIFIED, **options: Any
) -> int:
    """A run named by its number."""
    return log.run(f"r{len(log.entries['runs'])}", arrival, finished, outcome.name.lower(), **options)


def built(log: LogBuilder, horizon: float | None = None, ended: float | None = None, **header: Any) -> RunLog:
    """The log, with some of its header given."""
    log.horizon = horizon
    made = log.build(ended)
    made.header.update(header)
    return made


def simulated(
    load: float,
    *,
    runs: int = 20_000,
    seed: int = 5,
    horizon: int | None = None,
    slots: int = 1,
    policy: object = "fifo",
) -> RunLog:
    """M/M/c at `load` per slot, mean service 1 s."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / (load * slots), runs)) * NS
    trace = single_task(arrival, rng.exponential(1, runs) * NS, tenant=["a" if n % 3 else "b" for n in range(runs)])
    document = {"name": "p", "version": 1, "order": policy}
    options = {} if horizon is None else {"horizon_ns": horizon * NS}
    return Simulation(PlatformSpec((PoolSpec("pool", slots),)), load_policy(document), trace, **options).run()


def impatient() -> RunLog:
    """Two classes on two pools, an API with a tight limit, failures, retries, impatient clients, a fault, a horizon: every table in use."""
    rng = np.random.default_rng(3)
    size = 300
    arrival = np.sort(rng.uniform(0, 100, size)) * NS
    trace = chain(
        arrival, rng.exponential(1, (size, 2)) * NS, ["gpu", "api"], tenant=[f"t{n % 4}" for n in range(size)], cls=["x" if n % 2 else "y" for n in range(size)],
    )  # fmt: skip
    platform = PlatformSpec(
        (PoolSpec("gpu", 3),), (ApiSpec("api", limits=(LimitSpec("requests", 2.0, 4),), concurrency=4, error_p=0.1),)
    )
    clients = [
        ClientSpec(
            {},
            patience_ns=20 * NS,
            retry=RetrySpec(attempts=2, base_ns=NS, cap_ns=NS),
            sdk=RetrySpec(attempts=2, base_ns=NS),
        )
    ]
    document = {
        "name": "p", "version": 1, "order": "fifo", "limits": [{"share_cap": {"by": "tenant", "fraction": "40%"}}],
        "retry": {"backoff": {"max_attempts": 3, "base": "1s"}},
    }  # fmt: skip
    policy = load_policy(document)
    faults = [FaultSpec(30 * NS, 5 * NS, "gpu", "stall")]
    return Simulation(
        platform, policy, trace, clients=clients, faults=faults, horizon_ns=150 * NS, class_limits_ns={"x": 5 * NS}
    ).run(strict=True)


@pytest.fixture(scope="module")
def busy() -> RunLog:
    return impatient()


def four_runs() -> RunLog:
    """One slot. Waits 0, 1, 2, 3 s; each run 2 s of service; arrivals 0, 1, 2, 3."""
    log = LogBuilder({"gpu": 1})
    for number in range(4):
        run = add(log, number, 2 * number + 2, tenant="ab"[number % 2], cls="x" if number < 3 else "y", deadline=7.0)
        log.row(run, number, 2 * number, 2 * number + 2, cost=0.5, estimate=2)
    return built(log)


# --- runs and tasks ---


def test_a_hand_made_queue_gives_the_numbers_worked_out_by_hand():
    found = summarise(four_runs()).metrics
    # latencies 2, 3, 4, 5: mean 3.5, median 3.5; linear p95 at 0.95 x 3 = 2.85 -> 4 + 0.85
    assert found["latency_s.mean"] == 3.5
    assert found["latency_s.p50"] == 3.5
    assert found["latency_s.p95"] == pytest.approx(4.85)
    assert found["latency_s.max"] == 5
    assert found["wait_s.mean"] == 1.5  # (0 + 1 + 2 + 3) / 4
    # ends 2, 4, 6, 8 against the deadline 7: one missed; three verified in time in 8 s
    assert found["deadline_miss_rate"] == 0.25
    assert found["goodput_per_s"] == 3 / 8
    assert found["cost_usd"] == 2.0
    assert found["cost_per_verified_usd"] == 0.5
    assert found["utilisation.gpu"] == 1.0
    # waiting task seconds 0 + 1 + 2 + 3 = 6 in 8 s
    assert found["queue_depth.gpu"] == 6 / 8
    assert found["queued_work_s.gpu"] == 12 / 8  # each waits with 2 s of work
    assert found["queue_depth_max.gpu"] == 2  # at 3 s: the runs of 2 and of 3 s
    assert found["executions"] == 4
    assert found["wasted_work_s"] == 0
    assert found["served_work_s"] == 8


def test_the_oldest_tasks_age_is_a_function_of_time():
    found = summarise(four_runs()).metrics
    # the oldest waits: 1..2 (age 0 to 1), 2..4 (age 0 to 2), 4..6 (age 1 to 3); never older than 3
    assert found["queue_age_s.max"] == 3
    # exceeded during 5 % of 8 s = 0.4 s: only the last interval is above 2.6, for 0.4 s
    assert found["queue_age_s.p95"] == pytest.approx(2.6)


def test_classes_and_tenants_have_their_own_numbers():
    summary = summarise(four_runs())
    assert summary.get("offered", {"class": "x"}) == 3
    assert summary.get("latency_s.mean", {"class": "x"}) == 3  # (2 + 3 + 4) / 3
    assert summary.get("latency_s.max", {"class": "y"}) == 5
    assert summary.get("wait_s.mean", {"tenant": "a"}) == 1  # waits 0 and 2
    assert summary.get("wait_s.p50", {"tenant": "b"}) == 2  # waits 1 and 3
    assert summary.get("utilisation", {"pool": "gpu"}) == 1.0
    assert math.isnan(summary.get("offered", {"tenant": "nobody"}))


def test_grouped_quantiles_are_numpys(busy: RunLog):
    summary = summarise(busy)
    runs = busy.runs
    done = np.isin(runs.outcome, (Outcome.VERIFIED, Outcome.UNVERIFIED, Outcome.FALSE_COMPLETION))
    for code, tenant in enumerate(busy.names["tenant"]):
        mine = done & (runs.tenant == code)
        latency = (runs.finished_ns - runs.arrival_ns)[mine] / NS
        for part, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)):
            assert summary.get(f"latency_s.{part}", {"tenant": tenant}) == pytest.approx(np.quantile(latency, q))
        assert summary.get("latency_s.mean", {"tenant": tenant}) == pytest.approx(latency.mean())


def test_what_is_empty_is_nan_never_zero():
    log = LogBuilder({"gpu": 1})
    add(log, 0, 0, Outcome.REJECTED, admitted=None)
    found = summarise(built(log, horizon=10)).metrics
    assert found["rejected"] == 1
    assert found["admitted"] == 0
    for name in ("latency_s.p95", "wait_s.mean", "deadline_miss_rate", "cost_per_verified_usd", "retry_amplification"):
        assert math.isnan(found[name]), name


def test_terminal_states_partition_the_offered_runs(busy: RunLog):
    found = summarise(busy).metrics
    states = (
        "verified",
        "unverified",
        "false_completions",
        "failed",
        "dead_lettered",
        "timed_out",
        "rejected",
        "shed",
        "unfinished",
    )
    assert sum(found[name] for name in states) == found["offered"] == 300


@pytest.mark.parametrize("table", ["by_class", "by_tenant"])
def test_counts_of_groups_add_up_to_the_whole(busy: RunLog, table: str):
    summary = summarise(busy)
    for name in (
        "offered",
        "verified",
        "timed_out",
        "executions",
        "duplicate_executions",
        "wasted_work_s",
        "served_work_s",
        "starved",
    ):
        parts = math.fsum(group[name] for group in getattr(summary, table).values())
        assert parts == pytest.approx(summary.metrics[name]), name


def test_only_runs_that_arrive_after_the_warm_up_count():
    log = replace(four_runs())
    log.header = {**log.header, "warmup_ns": 2 * NS}
    found = summarise(log).metrics
    assert found["offered"] == 2
    assert found["latency_s.mean"] == 4.5  # runs of 2 s and 3 s: 4 and 5
    assert found["goodput_per_s"] == 1 / 6  # ends 6 (in time) and 8 (late) in 6 s
    assert found["queue_depth.gpu"] == pytest.approx(5 / 6)  # waits within 2..8: 0 + 0 + 2 + 3


def test_rejected_and_unfinished_runs_miss_their_deadlines():
    log = LogBuilder({"gpu": 1})
    add(log, 0, 1, deadline=5)
    add(log, 0, 0, Outcome.REJECTED, deadline=5)
    add(log, 0, None, Outcome.UNFINISHED, deadline=50)
    add(log, 0, 2)
    assert summarise(built(log, horizon=10)).metrics["deadline_miss_rate"] == pytest.approx(2 / 3)


# --- attempts ---


def retried() -> RunLog:
    """One task: waits 1, runs 2 and fails at 3; backoff to 10; waits 4, runs 5 to 19."""
    log = LogBuilder({"gpu": 2})
    run = add(log, 0, 19)
    row = log.row(run, 10, 14, 19, slots=2, cost=0.1)
    log.attempt(row, 0, 1, 3, "error:api")
    log.event(3, "retry", run=run, row=row, reason="error:api", value=7.0)
    return built(log)


def test_a_wait_is_the_sum_over_attempts_without_the_backoff_between_them():
    found = summarise(retried()).metrics
    assert found["wait_s.max"] == 5  # 1 + 4, not the 7 s of backoff
    assert found["executions"] == 2
    assert found["retry_amplification"] == 2
    assert found["wasted_work_s"] == 4  # 2 s on 2 slots
    assert found["served_work_s"] == 14  # (2 + 5) x 2
    assert found["cost_usd"] == pytest.approx(0.2)  # every attempt costs
    assert found["queue_depth.gpu"] == pytest.approx(5 / 19)
    assert wait_by_reason(retried()) == {"backoff": 7.0, "pool:gpu": 5.0}


def test_work_of_an_abandoned_submission_is_wasted_and_counted_as_duplicate():
    log = LogBuilder({"gpu": 1})
    run = add(log, 0, 7, submissions=2)
    log.row(run, 0, 0, 4)
    log.row(run, 3, 4, 7, task=0, submission=1)
    found = summarise(built(log)).metrics
    assert found["wasted_work_s"] == 4
    assert found["duplicate_executions"] == 1
    assert found["retry_amplification"] == 2


def test_a_task_first_run_by_a_later_submission_is_no_duplicate():
    log = LogBuilder({"gpu": 1})
    run = add(log, 0, 7, submissions=2)
    log.row(run)  # turned away at the door
    log.row(run, 3, 4, 7, task=0, submission=1)
    found = summarise(built(log)).metrics
    assert found["duplicate_executions"] == 0
    assert found["retry_amplification"] == 1


def test_api_amplification_is_calls_over_logical_calls():
    log = LogBuilder({"gpu": 1})
    log.row(add(log, 0, 1), 0, 0, 1)
    found = summarise(built(log, api_calls={"x": 10, "y": 2}, logical_calls={"x": 3, "y": 1})).metrics
    assert found["retry_amplification"] == 3
    assert found["api_calls"] == 12


def test_starved_tasks_waited_longer_than_their_class_may_started_or_not():
    log = LogBuilder({"gpu": 1})
    for start in (5, 11, None):  # waits 5, 11 and (to the horizon) 20
        run = add(log, 0, None, Outcome.UNFINISHED)
        log.row(run, 0, start, None)
    other = add(log, 0, None, Outcome.UNFINISHED, cls="patient")
    log.row(other, 0, None, None)
    summary = summarise(built(log, horizon=20, class_limits_s={"c": 10.0}))
    assert summary.metrics["starved"] == 2
    assert summary.get("starved", {"class": "patient"}) == 0


@pytest.mark.parametrize("told", [True, False])
def test_rows_that_left_unserved_wait_until_they_left(told: bool):
    """Whether the log says when they left, or it follows from events."""
    log = LogBuilder({"gpu": 1})
    dropped = add(log, 0, 4, Outcome.SHED)
    row = log.row(dropped, 0, None, 4 if told else None, state="dropped")
    log.event(4, "dropped", run=dropped, row=row, reason="cap")
    failed = add(log, 0, 6, Outcome.FAILED)
    bad = log.row(failed, 0, 1, 6, state="failed")
    log.row(failed, 2, None, 6 if told else None, state="cancelled")
    log.event(6, "gave_up", run=failed, row=bad, reason="error:api")
    shared = add(log, 0, 6)
    log.row(shared, 1, None, 6, state="coalesced")
    # 4 (dropped) + 1 (bad) + 4 (cancelled at 6) + 0 (shared work does not queue)
    assert wait_attribution(built(log, horizon=10)).wait_ns.tolist() == [4 * NS, NS, 4 * NS, 0]


def test_a_row_between_two_attempts_is_in_no_queue():
    log = LogBuilder({"gpu": 1})
    run = add(log, 0, None, Outcome.UNFINISHED)
    row = log.row(run, 0, None, None)  # still shows when its first attempt queued
    log.attempt(row, 0, 1, 3, "error:api")
    found = summarise(built(log, horizon=10)).metrics
    assert found["queue_depth.gpu"] == 0.1  # 1 s of 10, not 1 + 10
    assert found["utilisation.gpu"] == 0.2


# --- the platform ---


def test_slots_lent_to_rows_of_another_pool_are_used():
    log = LogBuilder({"gpu": 1, "browser": 4})
    log.row(add(log, 0, 5), 0, 0, 5, group=1)
    log.row(add(log, 0, 10), 0, 0, 10, pool="browser")
    log.use(1, "browser", 3)
    # 3 x 5 + 1 x 10 of 4 x 10
    assert summarise(built(log)).metrics["utilisation.browser"] == pytest.approx(25 / 40)


def test_utilisation_goes_by_the_slots_there_were():
    log = LogBuilder({"gpu": 2})
    log.capacity(5, "gpu", 1)
    log.row(add(log, 0, 10), 0, 0, 10)
    # 10 slot seconds of 2 x 5 + 1 x 5
    assert summarise(built(log)).metrics["utilisation.gpu"] == pytest.approx(10 / 15)


def test_an_unlimited_pool_has_no_utilisation():
    log = LogBuilder({"anything": None})
    log.row(add(log, 0, 10), 0, 0, 10)
    assert math.isnan(summarise(built(log)).metrics["utilisation.anything"])


def test_time_in_modes_adds_up_to_the_measured_time():
    log = LogBuilder({"gpu": 1})
    log.row(add(log, 0, 10), 0, 0, 10)
    log.event(2, "mode", reason="severe")
    log.sample(2, 1.0, "severe")
    log.event(5, "mode", reason="normal")
    log.sample(5, 1.0, "normal")
    found = summarise(built(log, horizon=10)).metrics
    assert (found["mode_s.normal"], found["mode_s.severe"], found["mode_switches"]) == (7, 3, 2)


def test_jains_index_of_one_served_tenant_of_two_is_one_half():
    log = LogBuilder({"gpu": 1})
    log.row(add(log, 0, 1, tenant="a"), 0, 0, 1)
    log.row(add(log, 0, None, Outcome.UNFINISHED, tenant="b"), 0, None, None)
    assert summarise(built(log, horizon=1)).metrics["jain"] == 0.5  # (1 + 0)^2 / (2 x 1)


def backlog(order: str, **header: object) -> RunLog:
    """Tenants a and b with 6 tasks of 1 s each at 0, one slot; served in the given order."""
    log = LogBuilder({"gpu": 1})
    for at, tenant in enumerate(order):
        log.row(add(log, 0, at + 1, tenant=tenant), 0, at, at + 1)
    return built(log, **header)


def test_share_error_is_zero_for_turns_and_grows_when_one_goes_first():
    # turns: while both wait (11 starts) 6 : 5 against 5.5 : 5.5 due
    assert summarise(backlog("ab" * 6)).metrics["share_error"] == pytest.approx(0.5 / 11)
    # a first: while both wait (the first 6 starts, and b's first is no contest) all goes to a: half is misplaced
    assert summarise(backlog("aaaaaabbbbbb")).metrics["share_error"] == pytest.approx(0.5)


def test_share_error_follows_the_policys_weights():
    weights = {"by": "tenant", "weights": {"a": 2}, "default": 1}
    # 2 : 1 exactly while both wait (9 starts)
    assert summarise(backlog("aabaabaab" + "bbb", weights=weights)).metrics["share_error"] == pytest.approx(
        abs(6 - 16 / 3) / 8
    )  # b's ninth start finds no a: 8 starts count, a got 6 of 16/3 due


def test_fair_queueing_has_a_smaller_share_error_than_fifo():
    found = {
        order: summarise(simulated(3.0, runs=3000, policy=order)).metrics["share_error"]
        for order in ("fifo", "weighted_fair")
    }
    # fifo serves by arrival, 2 : 1, where equal weights are due: |2/3 - 1/2| = 1/6; turns miss by a task or two at a time
    assert found["fifo"] == pytest.approx(1 / 6, abs=0.03)
    assert found["weighted_fair"] < found["fifo"] / 3


def test_share_error_needs_two_flows_that_wait_together():
    assert math.isnan(summarise(backlog("aaa")).metrics["share_error"])


@pytest.mark.parametrize(("load", "expected"), [(0.7, 1.0), (0.9, 1.0), (1.2, 0.0)])
def test_a_single_server_is_stable_below_load_one_and_not_above(load: float, expected: float):
    for seed in range(5):
        assert summarise(simulated(load, seed=seed, runs=10_000)).metrics["stable"] == expected


def test_a_queue_of_abandoned_work_that_grows_is_not_stable():
    """Clients give up after 1 s and their runs close, but the work stays: 2 tasks/s for a server of 1/s."""
    arrival = np.arange(400) * NS / 2
    trace = single_task(arrival, np.full(400, NS))
    policy = load_policy({"name": "p", "version": 1, "order": "fifo"})
    log = Simulation(
        PlatformSpec((PoolSpec("pool", 1),)),
        policy,
        trace,
        clients=[ClientSpec({}, patience_ns=NS)],
        horizon_ns=200 * NS,
    ).run()
    assert summarise(log).metrics["stable"] == 0.0


def recovering(back_at: int | None) -> RunLog:
    """One good run a second for 600 s; none from 100 s (a fault of 10 s) until `back_at`."""
    log = LogBuilder({"gpu": None})
    for second in range(600):
        if second < 100 or (back_at is not None and second >= back_at):
            add(log, second, second + 0.5)
        else:
            add(log, second, second + 0.5, Outcome.FAILED)
    return built(log, horizon=600, faults=[{"at_ns": 100 * NS, "to_ns": 110 * NS, "target": "gpu", "what": "stall"}])


def test_recovery_lasts_from_the_faults_end_until_goodput_is_back():
    # the window is 20 s (20 runs at 1/s): 19 of 20 suffice, so it is back from the first good run at 150.5 s: 40.5 s after 110 s
    assert summarise(recovering(150)).metrics["recovery_s"] == 40.5


def test_recovery_is_nan_when_goodput_never_comes_back_or_nothing_broke():
    assert math.isnan(summarise(recovering(None)).metrics["recovery_s"])
    assert math.isnan(summarise(four_runs()).metrics["recovery_s"])


def test_a_peak_of_what_had_piled_up_is_no_recovery():
    # from 110 s on 30 runs end within 20 s (more than the 20 of before), and then nothing until the last arrival at 599 s
    log = LogBuilder({"gpu": None})
    for second in range(600):
        good = second < 100 or 110 <= second < 130
        add(log, second, second + 0.5, *(() if good else (Outcome.FAILED,)))
    for second in range(100, 110):
        add(log, second, second + 15.0)
    faults = [{"at_ns": 100 * NS, "to_ns": 110 * NS, "target": "gpu", "what": "stall"}]
    assert math.isnan(summarise(built(log, horizon=600, faults=faults)).metrics["recovery_s"])


# --- Little's law, integrals, attribution ---


@pytest.mark.parametrize("make", [lambda: simulated(0.9, runs=3000, slots=3), impatient])
def test_littles_law_holds_exactly_in_whole_ns(make):
    """The area under the queue's length, by walking over its steps, is the sum of the waits."""
    log = make()
    stays = Window(log).queues
    assert wait_attribution(log).wait_ns.sum() == (stays.end - stays.begin).sum()
    at = np.concatenate([stays.begin, stays.end])
    step = np.concatenate([np.ones(len(stays.begin), dtype=np.int64), -np.ones(len(stays.end), dtype=np.int64)])
    order = np.argsort(at, kind="stable")
    depth = np.cumsum(step[order])
    area = int((depth[:-1] * np.diff(at[order])).sum())
    assert area == int((stays.end - stays.begin).sum()) > 0
    found = summarise(log).metrics
    total = math.fsum(found[f"queue_depth.{pool}"] for pool in log.names["pool"])
    assert total * Window(log).span_s == pytest.approx(area / NS, rel=1e-12)


def test_the_mean_wait_of_mm1_is_the_closed_form():
    # rho / (mu - lambda) = 0.7 / 0.3 = 2.333; 60,000 runs, relative error about 5 %
    assert summarise(simulated(0.7, runs=60_000)).metrics["wait_s.mean"] == pytest.approx(0.7 / 0.3, rel=0.1)


def test_a_wait_is_put_down_to_the_limits_that_held_it_and_the_rest_to_the_pool():
    log = LogBuilder({"gpu": 1, "cpu": 1})
    run = add(log, 0, 20)
    log.row(run, 2, 12, 13, group=1)
    log.row(run, 0, 3, 4, pool="cpu", group=1)
    log.row(run, 6, 8, 9, group=2)
    log.hold(0, 4, "share_cap:tenant=a", pool="gpu", group=1)  # 2 of it after ready
    log.hold(5, 6, "quota:x", pool="gpu", group=1)
    log.hold(7, 8.5, "share_cap:tenant=a", pool="gpu", group=1)
    log.hold(11, 15, "share_cap:tenant=a", pool="gpu", group=1)  # 1 of it before the start
    log.hold(8, 9, "quota:x", pool="gpu", group=2)  # after the start
    found = wait_attribution(built(log))
    assert found.of(0) == {"pool:gpu": int(4.5 * NS), "share_cap:tenant=a": int(4.5 * NS), "quota:x": NS}
    assert found.of(1) == {"pool:cpu": 3 * NS}  # the holds are those of another pool
    assert found.of(2) == {"pool:gpu": 2 * NS}
    assert found.by_reason() == {
        "pool:gpu": int(6.5 * NS),
        "share_cap:tenant=a": int(4.5 * NS),
        "pool:cpu": 3 * NS,
        "quota:x": NS,
    }


def test_attributed_parts_add_up_to_every_wait_exactly(busy: RunLog):
    found = wait_attribution(busy)
    assert len(busy.holds.pool) > 0
    sums = np.zeros(len(found.wait_ns), dtype=np.int64)
    np.add.at(sums, found.row, found.ns)
    assert (sums == found.wait_ns).all()
    for row in range(0, len(busy.rows.run), 7):  # and each part is the plain intersection of intervals
        assert found.of(row) == _attributed(busy, row)


def _attributed(log: RunLog, row: int) -> dict[str, int]:
    stays, holds = Window(log).queues, log.holds
    parts: dict[str, int] = {}
    for stay in np.flatnonzero(stays.row == row).tolist():
        begin, end, pool = int(stays.begin[stay]), int(stays.end[stay]), int(stays.pool[stay])
        rest = end - begin
        for hold in np.flatnonzero((holds.pool == pool) & (holds.group == log.rows.group[row])).tolist():
            inside = min(end, int(holds.to_ns[hold])) - max(begin, int(holds.from_ns[hold]))
            if inside > 0:
                name = log.reasons[holds.reason[hold]]
                parts[name] = parts.get(name, 0) + inside
                rest -= inside
        if rest:
            name = f"pool:{log.names['pool'][pool]}"
            parts[name] = parts.get(name, 0) + rest
    return parts


def test_waits_by_class_add_up_to_the_waits_of_all(busy: RunLog):
    overall, by_class = wait_by_reason(busy), wait_by_reason(busy, "class")
    for reason, seconds in overall.items():
        assert math.fsum(part.get(reason, 0.0) for part in by_class.values()) == pytest.approx(seconds)


# --- tables ---


def test_the_run_table_has_a_line_per_run(busy: RunLog):
    frame = runs_frame(busy)
    assert list(frame["run_id"]) == list(busy.runs.run_id)
    assert (frame["outcome"] == "verified").sum() == summarise(busy).metrics["verified"]
    assert frame["latency_s"].notna().sum() == summarise(busy).metrics["completed"]


def test_the_wait_columns_of_the_task_table_add_up(busy: RunLog):
    frame = tasks_frame(busy)
    parts = [name for name in frame.columns if name.startswith("wait_s.")]
    assert np.allclose(frame[parts].sum(axis=1), frame["wait_s"], atol=1e-6)
    waits = frame[frame["wait_s"] > 0]
    assert (waits["waited_for"] == waits[parts].idxmax(axis=1).str.removeprefix("wait_s.")).mean() > 0.999  # ties aside


def test_series_hold_exact_integrals_whatever_the_step(busy: RunLog):
    found = summarise(busy).metrics
    for step in (None, 7.0, 0.5):
        frame = series(busy, step)
        lengths = np.diff([*frame["t_s"], 150.0])
        for pool in busy.names["pool"]:
            for metric in ("queue_depth", "queued_work_s", "utilisation"):
                mean = float(np.dot(frame[f"{metric}.{pool}"], lengths)) / 150.0
                assert mean == pytest.approx(found[f"{metric}.{pool}"], rel=1e-9), (metric, pool)
        assert float(np.dot(frame["completions_per_s"], lengths)) == pytest.approx(found["completed"])
        assert float(np.dot(frame["api_429_per_s"], lengths)) == pytest.approx(found["api_429"])


def test_series_by_hand():
    frame = series(four_runs(), 2.0)
    # waiting: 1..2 one, 2..3 one (r2), 3..4 two (r2, r3), 4..6 one (r3): 1, 3, 2, 0 task seconds per bin of 2 s
    assert frame["queue_depth.gpu"].tolist() == [0.5, 1.5, 1.0, 0.0]
    assert frame["in_system"].tolist() == [1.5, 2.5, 2.0, 1.0]
    assert frame["completions_per_s"].tolist() == [
        0.0,
        0.5,
        0.5,
        1.0,
    ]  # ends at 2, 4, 6 and (with the last bin's end) 8


@pytest.mark.parametrize("step", [0.0, -1.0, math.nan, 1e-9])
def test_series_refuse_a_step_that_makes_no_sense(step: float):
    with pytest.raises(UsageError, match="step"):
        series(four_runs(), step)


def test_a_summary_travels_without_its_log(busy: RunLog):
    summary = summarise(busy)
    copy = pickle.loads(pickle.dumps(summary))
    assert repr(copy.by_tenant) == repr(summary.by_tenant)  # by text: NaN differs from itself
    assert len(pickle.dumps(summary)) < 50_000


def test_an_empty_log_has_a_summary():
    found = summarise(built(LogBuilder({"gpu": 1}), ended=1.0)).metrics
    assert found["offered"] == 0
    assert found["queue_depth.gpu"] == 0
