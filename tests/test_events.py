"""The event list: complete, in the documented order, with queue depths that follow from it line by line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from log_builder import LogBuilder

from simkit.engine.simulation import Simulation
from simkit.log import EVENT_KINDS, RunLog
from simkit.metrics import all_events
from simkit.metrics.events import _NAMES
from simkit.model import (
    NS_PER_S,
    ApiSpec,
    ClientSpec,
    FaultSpec,
    LimitSpec,
    PlatformSpec,
    PoolSpec,
    RetrySpec,
    TaskState,
)
from simkit.policy import load_policy
from simkit.trace.build import chain


def told(log: RunLog, *columns: str) -> list[tuple[Any, ...]]:
    frame = all_events(log)[list(columns)].astype(object)
    return [
        tuple(None if value is pd.NA or value is None or value != value else value for value in line)
        for line in frame.to_numpy()
    ]


def busy_log(policy: dict[str, Any], seed: int = 3) -> RunLog:
    """Chains over a pool and a limited API; failures, retries of three layers, impatient clients, limits, a fault, a horizon; some tasks take no time."""
    rng = np.random.default_rng(seed)
    size = 120
    service = rng.exponential(1, (size, 3)) * NS_PER_S
    service[rng.random((size, 3)) < 0.2] = 0
    arrival = np.sort(np.floor(rng.uniform(0, 60, size))) * NS_PER_S  # several at one instant
    trace = chain(arrival, service, ["gpu", "api", "gpu"], tenant=[f"t{n % 3}" for n in range(size)])
    api = ApiSpec("api", limits=(LimitSpec("requests", 2.0, 4),), concurrency=4, error_p=0.2)
    clients = [
        ClientSpec({}, patience_ns=10 * NS_PER_S, retry=RetrySpec(attempts=2, base_ns=NS_PER_S, cap_ns=NS_PER_S))
    ]
    faults = [FaultSpec(20 * NS_PER_S, 5 * NS_PER_S, "gpu", "capacity", 1)]
    simulation = Simulation(
        PlatformSpec((PoolSpec("gpu", 3),), (api,)), load_policy({"name": "busy", "version": 4, **policy}), trace, clients=clients, faults=faults,
        horizon_ns=70 * NS_PER_S,
    )  # fmt: skip
    return simulation.run()


@pytest.fixture(
    scope="module",
    params=[
        {"order": "fifo", "retry": {"backoff": {"max_attempts": 3, "base": "1s"}}},
        {"order": "lifo", "limits": [{"share_cap": {"by": "tenant", "fraction": "40%"}}, "drop_expired"]},
        {"order": "fifo", "admission": [{"queue_limit": {"max": 5, "retry_after": "2s"}}]},
    ],
)
def busy(request: pytest.FixtureRequest) -> RunLog:
    return busy_log(request.param)


def test_a_runs_life_in_order_with_depths_by_hand() -> None:
    builder = LogBuilder(pools={"gpu": 1, "check": 2}, policy="fifo")
    builder.one("before", 0.0, 0.0, 3.0, pool="gpu", estimate=3.0)
    run = builder.run("r", 1.0, 6.0, tenant="acme", cls="batch", priority=2)
    builder.row(run, 1.0, 3.0, 5.0, pool="gpu", task_id="plan", estimate=2.0)
    builder.row(run, 5.0, 5.0, 6.0, pool="check", task_id="verify")
    log = builder.build()
    # depth after each line: the run's one task waits from 1 to 3; its 2 s of work on one slot
    assert told(log, "at_s", "event", "run_id", "pool", "task", "queue_depth", "estimated_wait_s") == [
        (0.0, "RUN_SUBMITTED", "before", "gpu", None, 0, 0.0),
        (0.0, "RUN_ADMITTED", "before", "gpu", None, 0, 0.0),
        (0.0, "TASK_READY", "before", "gpu", "task", 1, 3.0),
        (0.0, "RUN_STARTED", "before", "gpu", None, 1, 3.0),
        (0.0, "TASK_STARTED", "before", "gpu", "task", 0, 0.0),
        (1.0, "RUN_SUBMITTED", "r", "gpu", None, 0, 0.0),
        (1.0, "RUN_ADMITTED", "r", "gpu", None, 0, 0.0),
        (1.0, "TASK_READY", "r", "gpu", "plan", 1, 2.0),
        (3.0, "TASK_FINISHED", "before", "gpu", "task", 1, 2.0),
        (3.0, "RUN_CLOSED", "before", "gpu", None, 1, 2.0),
        (3.0, "RUN_STARTED", "r", "gpu", None, 1, 2.0),
        (3.0, "TASK_STARTED", "r", "gpu", "plan", 0, 0.0),
        (5.0, "TASK_FINISHED", "r", "gpu", "plan", 0, 0.0),
        (5.0, "TASK_READY", "r", "check", "verify", 1, 0.5),
        (5.0, "TASK_STARTED", "r", "check", "verify", 0, 0.0),
        (6.0, "TASK_FINISHED", "r", "check", "verify", 0, 0.0),
        (6.0, "RUN_CLOSED", "r", "gpu", None, 0, 0.0),
    ]
    line = all_events(log).iloc[7]
    assert (line.tenant, line["class"], line.priority, line.policy, line.policy_version) == (
        "acme",
        "batch",
        2,
        "fifo",
        1,
    )


def test_answers_at_the_door_come_between_submission_and_the_end() -> None:
    builder = LogBuilder()
    run = builder.run("r", 1.0, 4.0, "rejected", reason="queue_limit:all", admitted=None, submissions=2)
    builder.event(1.0, "reject", run=run, reason="queue_limit:all", value=2.0)
    builder.event(1.0, "client_retry", run=run, reason="queue_limit:all", value=3.0)
    builder.event(4.0, "reject", run=run, reason="queue_limit:all")
    found = told(builder.build(), "at_s", "event", "reason", "value")
    assert [line for line in found if line[0] == 4.0] == [
        (4.0, "RUN_SUBMITTED", None, 2.0),
        (4.0, "RUN_REJECTED", "queue_limit:all", 0.0),
        (4.0, "RUN_CLOSED", "rejected: queue_limit:all", None),
    ]


def test_a_client_that_comes_back_at_once_comes_back_after_it_decided_to() -> None:
    builder = LogBuilder()
    run = builder.run("r", 0.0, 2.0, "rejected", reason="queue_limit:all", admitted=None, submissions=2)
    builder.event(2.0, "client_timeout", run=run)
    builder.event(2.0, "client_retry", run=run, reason="client timeout", value=0.0)
    builder.event(2.0, "reject", run=run, reason="queue_limit:all")
    builder.event(2.0, "client_gave_up", run=run, reason="queue_limit:all", value=2)
    assert [event for event, in told(builder.build(), "event")] == [
        "RUN_SUBMITTED", "CLIENT_TIMED_OUT", "CLIENT_RETRIES", "RUN_SUBMITTED", "RUN_REJECTED", "CLIENT_GAVE_UP", "RUN_CLOSED",
    ]  # fmt: skip


def test_an_attempt_that_takes_no_time_ends_after_it_began_and_before_what_follows() -> None:
    builder = LogBuilder(pools={"gpu": 1})
    run = builder.run("r", 2.0, 2.0)
    builder.row(run, 2.0, 2.0, 2.0, task_id="one")
    builder.row(run, 2.0, 2.0, 2.0, task_id="two")
    names = [
        (event, task)
        for event, task in told(builder.build(), "event", "task")
        if event.startswith("TASK") or event == "RUN_CLOSED"
    ]
    assert names == [
        ("TASK_READY", "one"), ("TASK_STARTED", "one"), ("TASK_FINISHED", "one"), ("TASK_READY", "two"), ("TASK_STARTED", "two"),
        ("TASK_FINISHED", "two"), ("RUN_CLOSED", None),
    ]  # fmt: skip


def test_an_answer_at_once_comes_after_the_start_and_a_later_one_before_the_end() -> None:
    builder = LogBuilder(pools={"api": 1})
    run = builder.run("r", 0.0, 5.0)
    row = builder.row(run, 4.0, 4.0, 5.0)
    builder.attempt(row, 0.0, 0.0, 2.0, "error:api")
    builder.event(0.0, "throttled", row=row, reason="api", value=1.0)
    builder.event(2.0, "api_error", row=row, reason="api")
    builder.event(2.0, "retry", row=row, reason="error:api", value=2.0)
    assert [event for event, in told(builder.build(), "event")] == [
        "RUN_SUBMITTED", "RUN_ADMITTED", "TASK_READY", "RUN_STARTED", "TASK_STARTED", "RATE_LIMIT_PRESSURE", "API_FAILED", "TASK_FAILED",
        "TASK_RETRIES", "TASK_READY", "TASK_STARTED", "TASK_FINISHED", "RUN_CLOSED",
    ]  # fmt: skip


def test_limits_and_modes_are_events_too() -> None:
    builder = LogBuilder(pools={"gpu": 1})
    builder.hold(1.0, 2.0, "share_cap:tenant=a", pool="gpu")
    builder.event(1.5, "mode", reason="severe", value=0.95)
    assert told(builder.build(), "at_s", "event", "run_id", "pool", "reason", "queue_depth") == [
        (1.0, "LIMIT_HELD", None, "gpu", "share_cap:tenant=a", 0),
        (1.5, "OVERLOAD_MODE_CHANGED", None, None, "severe", None),
        (2.0, "LIMIT_RELEASED", None, "gpu", "share_cap:tenant=a", 0),
    ]


def test_estimated_waits_go_by_the_slots_there_are_at_the_time() -> None:
    builder = LogBuilder(pools={"gpu": 2, "free": None}, horizon=10.0)
    builder.one("a", 0.0, 0.0, None, pool="gpu", slots=2)
    builder.one("b", 1.0, None, None, pool="gpu", slots=2, estimate=3.0)  # 6 slot seconds
    builder.one("c", 5.0, None, None, pool="gpu", estimate=4.0)  # 10, on one slot by then
    builder.one("d", 6.0, 6.0, None, pool="free", estimate=4.0)
    builder.capacity(4.0, "gpu", 1)
    found = [
        line[1:] for line in told(builder.build(), "event", "run_id", "estimated_wait_s") if line[0] == "TASK_READY"
    ]
    assert found == [("a", 1.0), ("b", 3.0), ("c", 10.0), ("d", 0.0)]


def test_an_empty_log_has_no_events() -> None:
    frame = all_events(LogBuilder().build())
    assert frame.empty
    assert list(frame.columns) == [
        "at_s", "event", "run_id", "tenant", "class", "priority", "pool", "task", "reason", "value", "queue_depth", "estimated_wait_s",
        "policy", "policy_version",
    ]  # fmt: skip


def test_every_recorded_kind_has_a_name_of_its_own() -> None:
    assert len(set(_NAMES)) == len(_NAMES)
    assert all(name == name.upper() for name in _NAMES)


def test_depths_follow_from_the_list_and_end_with_those_that_still_wait(busy: RunLog) -> None:
    frame = all_events(busy)
    for number, pool in enumerate(busy.names["pool"]):
        depth = 0
        for line in frame[frame.pool == pool].itertuples():
            depth += (line.event == "TASK_READY") - (
                line.event in ("TASK_STARTED", "TASK_CANCELLED", "TASK_DROPPED", "BUDGET_EXHAUSTED")
            )
            assert line.queue_depth == depth >= 0
        rows = busy.rows
        waiting = (rows.pool == number) & (rows.state == TaskState.PENDING) & (rows.ready_ns >= 0) & (rows.start_ns < 0)
        attempted = np.full(len(rows.run), -1)
        np.maximum.at(attempted, busy.attempts.row, busy.attempts.ready_ns)
        assert depth == int((waiting & (attempted != rows.ready_ns)).sum())


def test_no_event_comes_before_its_cause(busy: RunLog) -> None:
    frame = all_events(busy).reset_index()
    assert frame.at_s.is_monotonic_increasing
    causes = {"TASK_STARTED": "TASK_READY", "TASK_FINISHED": "TASK_STARTED", "TASK_FAILED": "TASK_STARTED"}
    # per run and task the events alternate: at any line as many causes as effects, or one more
    for _, lines in frame[frame.task.notna()].groupby(["run_id", "task"], sort=False):
        seen = dict.fromkeys(["TASK_READY", "TASK_STARTED", "TASK_FINISHED", "TASK_FAILED"], 0)
        for event in lines.event:
            if event in causes:
                assert seen[causes[event]] > (
                    seen["TASK_FINISHED"] + seen["TASK_FAILED"] if causes[event] == "TASK_STARTED" else seen[event]
                )
            if event in seen:
                seen[event] += 1
    submissions = dict(zip(busy.runs.run_id, busy.runs.submissions.tolist(), strict=True))
    for _, lines in frame[frame.run_id.notna()].groupby("run_id", sort=False):
        assert lines.event.iloc[0] == "RUN_SUBMITTED"
        assert (lines.event == "RUN_CLOSED").sum() <= 1
        first = {event: place for place, event in reversed(list(enumerate(lines.event)))}
        if (
            "RUN_STARTED" in first and submissions[lines.run_id.iloc[0]] == 1
        ):  # of several, the last admission is the one that is told
            assert first["RUN_ADMITTED"] < first["RUN_STARTED"] < first["TASK_STARTED"]


def test_the_list_holds_everything_once(busy: RunLog) -> None:
    counts = all_events(busy).event.value_counts().to_dict()
    assert counts["TASK_STARTED"] == int(busy.rows.attempts.sum())
    assert counts["RUN_CLOSED"] == int((busy.runs.outcome != 0).sum())
    assert counts["RUN_SUBMITTED"] == int(busy.runs.submissions.sum())
    assert counts.get("LIMIT_HELD", 0) == counts.get("LIMIT_RELEASED", 0) == len(busy.holds.pool)
    recorded = np.bincount(busy.events.kind, minlength=len(EVENT_KINDS))
    assert counts.get("RATE_LIMIT_PRESSURE", 0) == recorded[EVENT_KINDS.index("throttled")] > 0
    assert counts.get("CLIENT_RETRIES", 0) == recorded[EVENT_KINDS.index("client_retry")]
    assert counts["FAULT_STARTED"] == counts["FAULT_ENDED"] == 1
