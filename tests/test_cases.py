"""Real complaints as small simulations; every expected number by the arithmetic in its comment."""

from __future__ import annotations

import numpy as np
import pytest
from engine_harness import ends_s, jobs, ns, run, starts_s, tasks_trace, waits_s

from simkit.model import NEVER_NS, NS_PER_S, ApiSpec, ClientSpec, FaultSpec, LimitSpec, Outcome, RetrySpec, TaskState


def bulk_tenant(order: object) -> tuple[np.ndarray, np.ndarray, float]:
    """Tenant A sends 1000 jobs at 0, B one a second from 0.5 on, 60 in all; 10 slots, 1 s each. (A's ends, B's waits, makespan)."""
    arrivals = [0.0] * 1000 + [0.5 + number for number in range(60)]
    names = ["A"] * 1000 + ["B"] * 60
    log = run(jobs(arrivals, [1.0] * 1060, tenant=names), {"w": 10}, order)
    b = np.array(names) == "B"
    return (
        log.rows.end_ns[~b] / NS_PER_S,
        (log.rows.start_ns - log.rows.ready_ns)[b] / NS_PER_S,
        float(log.rows.end_ns.max()) / NS_PER_S,
    )


def test_bulk_load_starves_everyone_under_fifo() -> None:
    """B's first job waits for the 1000 before it: 100 rounds of 10, less 0.5 s. The k-th (from 0) starts in round 100 + k // 10 and
    came at k + 0.5: mean wait = 100 + mean(k // 10) - 0.5 - mean(k) = 100 + 2.5 - 0.5 - 29.5 = 72.5."""
    a_ends, waits, makespan = bulk_tenant("fifo")
    assert waits[0] == 99.5
    assert waits.mean() == 72.5
    assert (a_ends.max(), makespan) == (100, 106)


@pytest.mark.parametrize("order", [{"weighted_fair": {"by": "tenant"}}, {"drr": {"by": "tenant"}}])
def test_a_fair_order_bounds_the_wait_by_one_service(order: object) -> None:
    """A slot frees every whole second, B comes at the half: it waits 0.5 s. 1060 jobs on 10 slots still take 106 s."""
    a_ends, waits, makespan = bulk_tenant(order)
    assert waits.max() == 0.5
    assert (a_ends.max(), makespan) == (106, 106)


@pytest.mark.parametrize("backlog", [10, 100, 1_000, 10_000])
def test_a_small_tenants_wait_does_not_depend_on_a_neighbours_backlog(backlog: int) -> None:
    """4 servers, 1 s services, A's backlog and 10 jobs of B at once at 0: under FIFO B waits until A is through, (backlog + 10) / 4 - 1 rounds at
    most; under a fair order B's 10 jobs alternate with A's: the last starts in round ceil(20 / 4) - 1 = 4 at the latest, whatever the backlog."""
    trace = jobs([0.0] * (backlog + 10), [1.0] * (backlog + 10), tenant=["A"] * backlog + ["B"] * 10)
    last_under_fifo = waits_s(run(trace, {"w": 4}))[-1]
    assert last_under_fifo == (backlog + 9) // 4
    assert waits_s(run(trace, {"w": 4}, {"weighted_fair": {"by": "tenant"}}))[-10:].max() <= 4


def test_priority_only_orders_the_line_it_does_not_stop_what_runs() -> None:
    """4 slots, 8 low jobs of 30 s at 0, one urgent of 10 s at 1: FIFO starts it at 60, strict priority at the next release, 30."""
    trace = jobs([0.0] * 8 + [1.0], [30.0] * 8 + [10.0], priority=[0] * 8 + [1])
    assert starts_s(run(trace, {"w": 4}))[-1] == 60
    log = run(trace, {"w": 4}, "strict_priority")
    assert (starts_s(log)[-1], ends_s(log)[-1], max(ends_s(log))) == (30, 40, 70)


def two_layers(p: float, client: int, platform: int, sdk: int, size: int, seed: int = 1) -> float:
    """Calls per logical call of an API that fails with chance `p`, with attempts per layer."""
    trace = tasks_trace(
        *({"run_id": f"r{n}-{seed}", "arrival_s": n, "tasks": [{"pool": "api", "service_s": 0}]} for n in range(size))
    )
    retry = (
        {"retry": {"backoff": {"base": "1ms", "cap": "1ms", "jitter": "none", "max_attempts": platform}}}
        if platform > 1
        else {}
    )
    clients = [ClientSpec({}, retry=RetrySpec(client), sdk=RetrySpec(sdk))]
    log = run(trace, {}, apis=[ApiSpec("api", error_p=p)], slots=retry, clients=clients)
    return float(log.header["api_calls"]["api"]) / size


def test_retry_layers_multiply_when_everything_fails() -> None:
    """4 client attempts x 3 inside each = 12 calls; 4 x 1 = 4; 3 x 3 x 5 = 45."""
    assert two_layers(1.0, 4, 1, 3, 50) == 12
    assert two_layers(1.0, 4, 1, 1, 50) == 4
    assert two_layers(1.0, 3, 3, 5, 50) == 45


@pytest.mark.parametrize(
    ("p", "client", "sdk", "expected"),
    [(0.9, 4, 3, 7.176), (0.9, 4, 1, 3.439), (0.5, 4, 3, 1.9995), (0.5, 4, 1, 1.875)],
)
def test_calls_per_logical_call_are_a_truncated_geometric_mean(
    p: float, client: int, sdk: int, expected: float
) -> None:
    """E = (1 - p^n) / (1 - p) for n attempts in all (the layers make one sequence); 2 % at 10,000 calls."""
    attempts = client * sdk
    assert (1 - p**attempts) / (1 - p) == pytest.approx(expected, rel=2e-4)
    assert two_layers(p, client, 1, sdk, 10_000) == pytest.approx(expected, rel=0.02)


def storm(
    rate: float,
    *,
    retries: int = 2,
    fault: bool = True,
    reject: float = 0,
    slots: dict | None = None,
    order: str = "fifo",
    budget: float | None = None,
) -> dict[str, float]:
    """10 slots of 0.1 s (100/s), clients that wait 1 s and retry at once, nothing starts from 60 to 70 s; 300 s in all."""
    size = round(rate * 300)
    faults = [FaultSpec(60 * NS_PER_S, 10 * NS_PER_S, "w", "stall")] if fault else []
    if reject:
        faults.append(FaultSpec(100 * NS_PER_S, round(reject * NS_PER_S), "", "reject_all"))
    clients = [ClientSpec({}, patience_ns=NS_PER_S, retry=RetrySpec(1 + retries, budget=budget))]
    trace = jobs([number / rate for number in range(size)], [0.1] * size)
    log = run(trace, {"w": 10}, order, slots=slots, clients=clients, faults=faults, horizon_ns=300 * NS_PER_S)
    good = log.runs.finished_ns[log.runs.outcome == Outcome.VERIFIED] / NS_PER_S
    after = good[good >= 70.5]
    waiting = (log.rows.ready_ns >= 0) & (log.rows.start_ns < 0) & (log.rows.state == TaskState.PENDING)
    return {
        "late_goodput": float(((good >= 200) & (good < 300)).sum()) / 100,
        "goodput_after": float(((good >= 70.5) & (good < 300)).sum()),
        "first_good": float(after.min()) if len(after) else float("inf"),
        "attempts_per_s": float((log.rows.ready_ns >= 200 * NS_PER_S).sum()) / 100,
        "queue_at_end": float(waiting.sum()),
    }


def test_a_blip_becomes_an_outage_that_never_ends() -> None:
    """Every request makes 1 + 2 attempts: 70 x 3 = 210/s against 100/s. From 70 on nothing useful comes back, and (210 - 100) x 230 s
    = 25,300 requests pile up at least."""
    found = storm(70)
    assert found["goodput_after"] == 0
    assert found["attempts_per_s"] == pytest.approx(210, rel=0.01)
    assert found["queue_at_end"] > 25_000


def test_without_the_blip_nothing_is_wrong() -> None:
    found = storm(70, fault=False)
    assert (found["late_goodput"], found["attempts_per_s"]) == (70, 70)


def test_without_retries_the_backlog_drains() -> None:
    """700 wait at 70 and drain at 100 - 70 = 30/s; answers are useful again when the wait is below 1 s: about 20 s later."""
    found = storm(70, retries=0)
    assert 88 <= found["first_good"] <= 94
    assert found["late_goodput"] == 70


@pytest.mark.parametrize(("rate", "heals"), [(25, True), (30, True), (34, False), (40, False)])
def test_it_heals_exactly_when_all_attempts_together_fit(rate: float, heals: bool) -> None:
    """lambda (1 + k) against mu = 100: 25 x 3 = 75 and 30 x 3 = 90 heal, 34 x 3 = 102 and 40 x 3 = 120 do not. (Just below the edge it
    heals too, but later than this run lasts: at 33 the backlog of about 1,000 drains at 1/s.)"""
    assert storm(rate)["late_goodput"] == (rate if heals else 0)


def test_a_long_enough_silence_heals_a_short_one_does_not() -> None:
    """About 5,200 wait at 100 s: they need 52 s of silence."""
    assert storm(70, reject=10)["late_goodput"] == 0
    assert storm(70, reject=60)["late_goodput"] == 70


def test_dropping_what_cannot_finish_in_time_heals_at_once() -> None:
    found = storm(70, slots={"limits": ["drop_expired"]})
    assert found["first_good"] <= 71
    assert found["late_goodput"] == 70


def test_a_retry_budget_heals() -> None:
    """At most 0.1 retries per request: 77/s fit into 100/s."""
    found = storm(70, budget=0.1)
    assert found["first_good"] < 110
    assert found["late_goodput"] == 70


def test_a_bounded_queue_heals() -> None:
    """50 waiting need half a second, less than the patience: what is admitted is served in time."""
    found = storm(70, slots={"admission": [{"queue_limit": {"max": 50}}]})
    assert found["late_goodput"] >= 69


def test_last_come_first_served_with_expiry_heals() -> None:
    assert storm(70, order="lifo", slots={"limits": ["drop_expired"]})["late_goodput"] == 70


def sized(sizes: list[int], limits: list[float], service: float = 20.0) -> object:
    count = len(sizes)
    return jobs([0.0] * count, [service] * count, slots=sizes, estimate_ns=ns(limits))


BACKFILL_A = [1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 4, 3, 2, 2, 2, 3]
BACKFILL_B = [4, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
LIMITS_B = [80.0] * 7 + [70, 65, 60, 55, 50, 45, 40, 35, 30, 25]


@pytest.mark.parametrize(("backfill", "first", "second"), [("none", 160, 160), ("easy", 160, 140), ("skip", 160, 140)])
def test_backfill_needs_seven_waves_or_eight(backfill: str, first: float, second: float) -> None:
    """28 slot-rounds of 20 s on 4 slots fit into 7 rounds = 140 s; submission order a leaves a 3 alone twice: 160 s in every variant."""
    slots = {"backfill": backfill}
    assert max(ends_s(run(sized(BACKFILL_A, [20.0] * 17), {"w": 4}, slots=slots))) == first
    assert max(ends_s(run(sized(BACKFILL_B, LIMITS_B), {"w": 4}, slots=slots))) == second


@pytest.mark.parametrize(("backfill", "start"), [("none", 20), ("easy", 20), ("skip", -1)])
def test_a_wide_job_starves_only_when_anything_that_fits_may_pass(backfill: str, start: float) -> None:
    """A job of 4 slots comes at 1 into a stream of narrow ones every 5 s that last 20 s: with a reservation it starts when the one
    that came before it (at 0) has ended, for nothing behind it may use the slots it is promised: at 20. Without, never before the stream ends."""
    arrivals = sorted([1.0, *np.arange(0, 2000, 5.0).tolist()])
    sizes = [4 if at == 1.0 else 1 for at in arrivals]
    trace = jobs(arrivals, [20.0] * len(arrivals), slots=sizes)
    big = sizes.index(4)
    log = run(trace, {"w": 4}, slots={"backfill": backfill}, horizon_ns=2000 * NS_PER_S)
    assert starts_s(log)[big] == (start if start >= 0 else -1 / NS_PER_S)


def test_checking_tokens_before_the_call_admits_what_fits_and_no_more() -> None:
    """Limit 100 tokens a minute, calls of 58, 80, 175, 175, 175 at once: only the first fits (58; 58 + 80 > 100)."""
    calls = [58, 80, 175, 175, 175]
    trace = tasks_trace(
        *({"arrival_s": 0, "tasks": [{"pool": "api", "service_s": 1, "tokens_in": count}]} for count in calls)
    )
    api = ApiSpec("api", limits=(LimitSpec("tokens", 100 / 60, 100),))
    log = run(trace, {}, apis=[api])
    assert (log.runs.outcome == Outcome.VERIFIED).tolist() == [True, False, False, False, False]


def test_work_that_nothing_can_start_is_called_a_deadlock() -> None:
    log = run(jobs([0, 1, 2], [1, 1, 1]), {"w": 2}, faults=[FaultSpec(0, NEVER_NS, "w", "stall")])
    assert log.header["status"] == "deadlock"
    assert log.header["stuck_in"] == ["w"]


def test_a_slow_verifier_without_backpressure_lets_its_queue_grow() -> None:
    """8 producers of 10 s offer 0.8/s (staggered by 1.25 s), 2 verifiers of 5 s clear 0.4/s; by 600 s about 0.4 x 590 = 236 wait."""
    size = 480
    trace = tasks_trace(
        *(
            {
                "arrival_s": number * 1.25,
                "tasks": [
                    {"task_id": "make", "pool": "make", "service_s": 10},
                    {"task_id": "check", "after": ["make"], "pool": "check", "service_s": 5},
                ],
            }
            for number in range(size)
        )
    )
    log = run(trace, {"make": 8, "check": 2}, horizon_ns=600 * NS_PER_S)
    checks = log.rows.pool == 1
    verified = int((log.rows.end_ns[checks] >= 0).sum())
    waiting = int(((log.rows.ready_ns >= 0) & (log.rows.start_ns < 0))[checks].sum())
    assert abs(verified - 235) <= 3
    assert abs(waiting - 236) <= 3
