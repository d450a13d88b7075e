"""Admission: what each member of the chain lets in, at the bound and on both sides of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from limit_harness import Bench, S, bound

from simkit.mechanisms.admit import DeadlineFeasible, Defer, Only, QueueLimit, Shed
from simkit.mechanisms.base import ParameterError
from simkit.model import UsageError, Verdict


def crowd(count: int, **columns: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """`count` one-row runs, alike."""
    return [{"run": n, **columns} for n in range(count)], [{"first_row": n, **columns} for n in range(count)]


def admitted_at_once(mechanism: QueueLimit, bench: Bench) -> int:
    """How many of the runs, all arriving at this instant, get in: nothing is dispatched between them."""
    inside = 0
    for run in range(bench.submissions.size):
        if mechanism.decide(run, bench.now_ns) is None:
            bench.queue(bench.submissions.first_row[run])
            inside += 1
    return inside


# --- queue_limit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slots", "bound_", "inside"), [(3, 0, 3), (1, 0, 1), (3, 5, 8), (0, 4, 4), (2, 1, 3)])
def test_at_one_instant_exactly_slots_plus_max_get_in(slots: int, bound_: int, inside: int) -> None:
    # c servers and a queue of K - c: the system holds K (M/M/c/K; K = c is Erlang B)
    rows, runs = crowd(20)
    bench = Bench(rows, runs=runs, pools={"pool": slots})
    assert admitted_at_once(bound(QueueLimit(max=bound_), bench), bench) == inside


def test_a_busy_pool_takes_no_more_than_max() -> None:
    rows, runs = crowd(20)
    bench = Bench(rows, runs=runs, pools={"pool": 3})
    bench.used[0] = 3
    assert admitted_at_once(bound(QueueLimit(max=7), bench), bench) == 7


def test_a_bound_by_class_counts_that_class_alone_and_a_name_without_one_is_free() -> None:
    rows = [{"run": n, "class": c} for n, c in enumerate(["batch"] * 5 + ["chat"] * 5 + ["cron"] * 5)]
    runs = [{"first_row": n, "class": row["class"]} for n, row in enumerate(rows)]
    bench = Bench(rows, runs=runs, pools={"pool": 1})
    bench.used[0] = 1
    limit = bound(QueueLimit(by="class", max={"batch": 2, "cron": 1}), bench)
    inside = [run for run in range(15) if limit.decide(run, 0) is None and not bench.queue(run)]
    assert inside == [0, 1, 5, 6, 7, 8, 9, 10]
    assert bound(QueueLimit(by="class", max={"batch": 2, "default": 0}), bench).decide(5, 0) is not None


def test_a_bound_on_the_verifier_holds_the_door_while_producers_are_free() -> None:
    # case O13: a producer may start only while fewer than 10 rows wait for the verifier
    rows = [{"pool": "producer"}, *[{"pool": "verifier"}] * 12]
    bench = Bench(rows, runs=[{"first_row": 0}], pools={"producer": 8, "verifier": 2})
    bench.used[1] = 2
    limit = bound(QueueLimit(max=10, pools=["verifier"]), bench)
    for row in range(1, 10):
        bench.queue(row)
    assert limit.decide(0, 0) is None  # 9 wait
    bench.queue(10)
    assert limit.decide(0, 0).verdict is Verdict.REJECT  # 10 wait


def test_free_slots_of_one_pool_do_not_excuse_the_queue_of_another() -> None:
    rows, runs = [{"pool": "gpu"}] * 6, [{"first_row": 0}]
    bench = Bench(rows, runs=runs, pools={"gpu": 1, "browser": 50})
    bench.used[0] = 1
    limit = bound(QueueLimit(max=5), bench)
    for row in range(5):
        assert limit.decide(0, 0) is None
        bench.queue(row)
    assert limit.decide(0, 0) is not None


def test_by_pool_looks_at_the_pools_on_the_runs_path_only() -> None:
    rows = [{"pool": "gpu"}, {"pool": "verifier"}, {"pool": "gpu"}]
    runs = [{"first_row": 0, "n_rows": 2}, {"first_row": 2}]
    bench = Bench(rows, runs=runs, pools={"gpu": 1, "verifier": 1})
    limit = bound(QueueLimit(by="pool", max={"verifier": 3}), bench)
    bench.used[1], bench.queued[1] = 1, 3
    assert limit.decide(0, 0).reason == "queue_limit:pool=verifier"
    assert limit.decide(1, 0) is None


def test_retry_after_is_jittered_upwards_only_and_differs_between_clients() -> None:
    rows, runs = crowd(300)
    bench = Bench(rows, runs=runs, pools={"pool": 0})
    limit = bound(QueueLimit(max=0, retry_after=30 * S, jitter=0.5), bench)
    waits = np.array([limit.decide(run, 0).retry_after_ns / S for run in range(300)])
    assert waits.min() >= 30
    assert waits.max() <= 45
    assert len(set(waits)) == 300
    assert abs(waits.mean() - 37.5) < 4 * (15 / 12**0.5) / 300**0.5  # uniform on [30, 45]: four standard errors


def test_auto_names_the_time_in_which_the_backlog_drains() -> None:
    # 12 rows of 10 s wait for 4 slots: 120 slot-seconds / 4 = 30 s; with nothing waiting the floor of 1 s
    rows, runs = crowd(12, estimate_ns=10 * S)
    bench = Bench(rows, runs=runs, pools={"pool": 4})
    bench.used[0] = 4
    limit = bound(QueueLimit(max=0, retry_after="auto"), bench)
    assert limit.decide(0, 0).retry_after_ns == 1 * S
    for row in range(12):
        bench.queue(row)
    assert limit.decide(0, 0).retry_after_ns == 30 * S


def test_the_verdict_is_the_one_asked_for() -> None:
    rows, runs = crowd(1)
    bench = Bench(rows, runs=runs, pools={"pool": 0})
    for verdict in ("reject", "shed", "defer"):
        decision = bound(QueueLimit(max=0, verdict=verdict), bench).decide(0, 0)
        assert (decision.verdict, decision.reason) == (Verdict[verdict.upper()], "queue_limit:all=all")


def test_unknown_names_are_warned_of_and_unknown_pools_refused() -> None:
    rows, runs = crowd(1)
    bench = Bench(rows, runs=runs)
    limit = bound(QueueLimit(by="class", max={"bacth": 1}), bench)
    assert list(limit.warnings) == ["there is no class 'bacth' here"]
    assert bench.notes == [("warning", "queue_limit: there is no class 'bacth' here")]
    with pytest.raises(UsageError, match="did you mean 'pool'"):
        bound(QueueLimit(max=1, pools=["poool"]), bench)
    with pytest.raises(ParameterError, match="by name needs"):
        QueueLimit(max={"a": 1})


# --- deadline_feasible -------------------------------------------------------------------------------------


def two_stage(deadline_ns: int) -> Bench:
    """One run: 4 s on gpu, then 1 s on verifier, in an otherwise full platform."""
    rows = [{"pool": "gpu", "estimate_ns": 4 * S}, {"pool": "verifier", "estimate_ns": S}]
    runs = [{"first_row": 0, "n_rows": 2, "deadline_ns": deadline_ns, "critical_path_ns": 5 * S}]
    bench = Bench(rows, runs=runs, pools={"gpu": 2, "verifier": 1, "other": 1}, tiers=["small"])
    bench.work_ns = [6 * S, 2 * S, 100 * S]  # waits: 6/2 + 2/1 = 5 s, what waits elsewhere does not matter
    return bench


@pytest.mark.parametrize(("deadline_s", "lets_in"), [(10, True), (9.999, False)])
def test_a_run_is_let_in_up_to_the_very_deadline_it_can_make(deadline_s: float, lets_in: bool) -> None:
    limit = bound(DeadlineFeasible(), two_stage(round(deadline_s * S)))  # 5 s of waits + 5 s of critical path
    assert (limit.decide(0, 0) is None) is lets_in


def test_slack_and_the_time_of_day_count_against_the_deadline() -> None:
    assert bound(DeadlineFeasible(slack=2 * S), two_stage(12 * S)).decide(0, 0) is None
    assert bound(DeadlineFeasible(slack=2 * S), two_stage(12 * S)).decide(0, 1).verdict is Verdict.REJECT


def test_a_run_without_deadline_passes() -> None:
    assert bound(DeadlineFeasible(slack=S), two_stage(2**62)).decide(0, 0) is None


def test_downgrade_carries_tier_and_width() -> None:
    limit = bound(DeadlineFeasible(else_="downgrade", tier="small", width=0.5), two_stage(S))
    decision = limit.decide(0, 0)
    assert (decision.verdict, decision.tier, decision.width) == (Verdict.DOWNGRADE, "small", 0.5)
    with pytest.raises(UsageError, match="did you mean 'small'"):
        bound(DeadlineFeasible(else_="downgrade", tier="smal"), two_stage(S))


def test_a_run_is_put_off_only_while_it_could_still_make_it_through_empty_queues() -> None:
    limit = bound(DeadlineFeasible(else_="defer", retry_after=3 * S), two_stage(9 * S))
    assert limit.decide(0, 0).verdict is Verdict.DEFER  # 0 + 3 s + 5 s of path <= 9 s
    assert limit.decide(0, 2 * S).verdict is Verdict.REJECT


def test_a_pool_without_slots_never_clears_its_queue() -> None:
    bench = two_stage(1000 * S)
    bench.capacity_of[1] = 0
    assert bound(DeadlineFeasible(), bench).decide(0, 0).verdict is Verdict.REJECT


# --- only, shed, defer -------------------------------------------------------------------------------------


def mixed() -> Bench:
    """Runs: (tenant a, chat), (tenant a, batch), (tenant b, batch)."""
    rows = [{"tenant": "a", "class": "chat"}, {"tenant": "a", "class": "batch"}, {"tenant": "b", "class": "batch"}]
    return Bench(rows, runs=[{"first_row": n, **row} for n, row in enumerate(rows)])


def verdicts(mechanism: Any, bench: Bench) -> list[str]:
    decisions = [mechanism.decide(run, bench.now_ns) for run in range(bench.submissions.size)]
    return ["pass" if decision is None else decision.verdict.name for decision in decisions]


def test_only_turns_away_everybody_else() -> None:
    bench = mixed()
    assert verdicts(bound(Only(classes=["chat"]), bench), bench) == ["pass", "SHED", "SHED"]
    assert verdicts(bound(Only(tenants=["a"], verdict="reject"), bench), bench) == ["pass", "pass", "REJECT"]
    assert verdicts(bound(Only(classes=["batch"], tenants=["b"]), bench), bench) == ["SHED", "SHED", "pass"]


def test_shed_drops_the_chosen() -> None:
    bench = mixed()
    assert verdicts(bound(Shed(classes=["batch"]), bench), bench) == ["pass", "SHED", "SHED"]
    assert verdicts(bound(Shed(classes=["batch"], tenants=["a"]), bench), bench) == ["pass", "SHED", "pass"]


def test_members_with_modes_are_in_force_in_those_modes_only() -> None:
    bench = mixed()
    shed = bound(Shed(classes=["batch"], when_mode=["severe"]), bench)
    assert verdicts(shed, bench) == ["pass", "pass", "pass"]
    bench.mode = "severe"
    assert verdicts(shed, bench) == ["pass", "SHED", "SHED"]


def test_defer_puts_a_submission_off_at_most_max_times() -> None:
    bench = mixed()
    defer = bound(Defer(classes=["batch"], for_=5 * S, max=2), bench)
    assert [verdicts(defer, bench)[1] for _ in range(4)] == ["DEFER", "DEFER", "pass", "pass"]
    fresh = bound(Defer(classes=["batch"], for_=10 * S, max=1, jitter=0.1), bench)
    assert 10 * S <= fresh.decide(1, 0).retry_after_ns <= 11 * S


def test_members_that_choose_nobody_or_never_let_go_are_refused() -> None:
    for cls in (Only, Shed, Defer):
        with pytest.raises(ParameterError, match="name classes or tenants"):
            cls()
    with pytest.raises(ParameterError, match="for ever"):
        Defer(classes=["a"])
    with pytest.raises(ParameterError, match="goes with tier"):
        DeadlineFeasible(else_="downgrade")
    with pytest.raises(ParameterError, match="goes with tier"):
        DeadlineFeasible(tier="small")
    with pytest.raises(ParameterError, match="above 0"):
        DeadlineFeasible(else_="defer", retry_after=0)
