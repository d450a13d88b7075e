"""Random worlds under random policies: every law on every run. Whatever hypothesis draws, runs are conserved and slots never oversold."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from engine_harness import policy, run
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from simkit.log_io import digest
from simkit.mechanisms import load_builtin, registered
from simkit.model import (
    NS_PER_S,
    ApiSpec,
    BudgetSpec,
    ClientSpec,
    FaultSpec,
    LimitSpec,
    Outcome,
    RetrySpec,
    TierSpec,
)
from simkit.scenario import load_scenario
from simkit.sweep.replicate import replicate
from simkit.trace.build import from_runs

load_builtin()
ORDERS = [name for _, name in registered("order")]

# Each entry is a slot's choices; None leaves the slot out.
ADMISSION: list[Any] = [
    [], [{"queue_limit": {"max": 3}}], [{"queue_limit": {"max": 2, "by": "tenant", "verdict": "shed"}}],
    [{"deadline_feasible": {"else": "reject"}}], [{"deadline_feasible": {"else": "downgrade", "width": 0.5, "tier": "small"}}],
]  # fmt: skip
LIMITS: list[Any] = [
    [], [{"share_cap": {"by": "tenant", "fraction": "40%"}}], [{"reserve": {"for": {"verifies": True}, "fraction": "30%"}}],
    [{"quota": {"by": "tenant", "concurrent": 2}}], [{"token_bucket": {"rate": "2/s", "burst": 2, "by": "class"}}], ["drop_expired"],
    ["api_allowance"], [{"share_cap": {"by": ["tenant", "class"], "fraction": "30%"}}, {"quota": {"by": "class", "per": "5s", "calls": 4}}],
]  # fmt: skip
OVERLOAD: list[Any] = [
    None,
    {"hysteresis": {"signal": "max_utilisation", "every": "500ms", "modes": {"constrained": {"enter": 0.6, "leave": 0.3}, "severe": {"enter": 0.95, "leave": 0.5}},
                    "do": {"constrained": [{"optional_width": 0.5}, {"defer": ["batch"]}], "severe": [{"tier": "small"}]}}},
]  # fmt: skip
RETRIES: list[Any] = [None, {"backoff": {"base": "100ms", "cap": "1s", "jitter": "full", "max_attempts": 3}}]


@st.composite
def tasks(draw: Any) -> list[dict[str, Any]]:
    """A small graph over two pools and an API, optional branches, perhaps a verification at its end."""
    count = draw(st.integers(1, 4))
    drawn = []
    for number in range(count):
        pool = draw(st.sampled_from(["a", "a", "b", "api"]))
        task: dict[str, Any] = {
            "task_id": f"t{number}", "pool": pool, "service_s": draw(st.integers(0, 20)) / 10,
            "after": draw(st.lists(st.sampled_from([f"t{before}" for before in range(number)]), unique=True, max_size=2)) if number else [],
            "estimate_s": draw(st.integers(1, 20)) / 10, "cost_usd": draw(st.sampled_from([0.0, 0.01])),
        }  # fmt: skip
        if pool == "a":
            task["demand"] = draw(st.sampled_from([{}, {"a": 2}, {"b": 1}, {"api": 1}]))
            if not task["demand"] and draw(st.booleans()):
                task["tier"] = "large"
        if draw(st.booleans()):
            task["cache_key"], task["public"] = draw(st.sampled_from(["x", "y"])), draw(st.booleans())
        task["optional"] = draw(st.booleans()) and number > 0
        drawn.append(task)
    if draw(st.booleans()):
        drawn.append({"task_id": "check", "pool": "b", "service_s": 0.5, "after": [f"t{count - 1}"], "verifies": True})
    return drawn


@st.composite
def worlds(draw: Any) -> dict[str, Any]:
    size = draw(st.integers(1, 14))
    arrivals = sorted(draw(st.lists(st.integers(0, 60), min_size=size, max_size=size)))
    runs = [
        {
            "arrival_s": at / 10, "tenant": draw(st.sampled_from(["x", "y", "z"])), "class": draw(st.sampled_from(["live", "batch"])),
            "priority": draw(st.integers(0, 2)), "tasks": draw(tasks()), **draw(st.sampled_from([{}, {"deadline_s": 3.0}])),
        }
        for at in arrivals
    ]  # fmt: skip
    for record in runs:
        record["defect_p"] = draw(st.sampled_from([0.0, 0.5]))
        if any(task.get("verifies") for task in record["tasks"]):
            record.update(detect_p=0.7, max_rework=draw(st.integers(0, 2)))
    faults = [
        FaultSpec(NS_PER_S, 2 * NS_PER_S, *what)
        for what in draw(
            st.lists(
                st.sampled_from(
                    [("a", "capacity", 2), ("b", "stall", None), ("a", "slow", 3.0), ("api", "down", "error"), ("api", "allowance", 0.2), ("", "reject_all", None)]
                ),
                max_size=2, unique_by=lambda what: what[:2],
            )
        )
    ]  # fmt: skip
    retry = RetrySpec(draw(st.integers(1, 3)), base_ns=NS_PER_S // 10, cap_ns=NS_PER_S, jitter="full")
    patience = draw(st.sampled_from([None, 2 * NS_PER_S]))
    clients = (
        []
        if patience is None
        else [ClientSpec({}, patience_ns=patience, retry=retry, obey_retry_after=0.5, sdk=RetrySpec(2))]
    )
    slots = {
        "admission": draw(st.sampled_from(ADMISSION)), "limits": draw(st.sampled_from(LIMITS)), "overload": draw(st.sampled_from(OVERLOAD)),
        "retry": draw(st.sampled_from(RETRIES)), "backfill": draw(st.sampled_from([None, "none", "skip", "easy"])),
        "coalesce": draw(st.sampled_from([None, "single_flight"])),
    }  # fmt: skip
    return {
        "runs": runs, "order": draw(st.sampled_from(ORDERS)), "slots": {key: value for key, value in slots.items() if value}, "faults": faults,
        "clients": clients, "horizon_ns": draw(st.sampled_from([None, 6 * NS_PER_S])), "budget": draw(st.booleans()),
    }  # fmt: skip


def simulate(world: dict[str, Any]) -> Any:
    api = ApiSpec("api", (LimitSpec("requests", 2.0, 3),), concurrency=2, latency_ns=NS_PER_S // 5, error_p=0.2)
    options = {} if world["horizon_ns"] is None else {"horizon_ns": world["horizon_ns"]}
    return run(
        from_runs(world["runs"]), {"a": 3, "b": 2, "spare": 2}, world["order"], apis=[api],
        tiers=[TierSpec("large", "a", 1.0, 1.0, 0.9), TierSpec("small", "spare", 0.5, 0.1, 0.6)],
        budgets=[BudgetSpec("purse", 0.05, 10 * NS_PER_S, {"tenant": ("x",)})] if world["budget"] else [],
        slots=world["slots"], faults=world["faults"], clients=world["clients"], seed=3, **options,
    )  # fmt: skip


@settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),  # a failing world is small enough as drawn, and shrinking takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(worlds())
def test_every_law_holds_in_random_worlds(world: dict[str, Any]) -> None:
    """The run itself checks the laws (strict). Beside them: without a horizon nothing is left over, and the same world gives the same log."""
    log = simulate(world)
    assert len(log.runs.outcome) == len(world["runs"])
    if world["horizon_ns"] is None:
        assert log.header["status"] == "ok", log.header.get("stuck_in")
        assert (log.runs.outcome != Outcome.UNFINISHED).all()
    assert digest(simulate(world)) == digest(log)


SCENARIO: dict[str, Any] = {
    "name": "determinism",
    "seed": 5,
    "replications": 4,
    "platform": {"pools": {"gpu": {"slots": 3}, "verifier": {"slots": 1}}, "apis": {"github": {"limits": [{"requests": "2/s", "burst": 3}], "error_rate": 0.1}}},
    "workflows": {
        "code": {
            "tasks": {
                "plan": {"pool": "gpu", "service": {"lognormal": {"mean": "1s", "cv": 1}}},
                "read": {"pool": "github", "after": ["plan"], "count": 3, "optional": 2, "service": {"exp": {"mean": "300ms"}}, "cache_key": {"pool_of": 3}},
                "verify": {"pool": "verifier", "after": ["read"], "service": "500ms", "verifies": True},
            },
            "defect": 0.2, "detection": 0.9, "max_rework": 1,
        }
    },
    "workload": [
        {"name": "a", "class": "batch", "workflow": "code", "arrivals": {"poisson": {"rate": "1/s"}}, "count": 60},
        {"name": "b", "class": "live", "workflow": "code", "arrivals": {"gamma": {"rate": "0.5/s", "cv": 2}}, "count": 30},
    ],
    "clients": [{"for": {"class": "live"}, "patience": "20s", "retries": {"attempts": 2, "backoff": {"base": "1s", "cap": "5s", "jitter": "full"}}}],
    "policies": [
        {"name": "plain", "order": "fifo"},
        {"name": "rich", "order": {"weighted_fair": {"by": "tenant"}}, "admission": [{"queue_limit": {"max": 20, "retry_after": "1s", "jitter": 0.5}}],
         "retry": {"backoff": {"base": "200ms", "cap": "2s", "jitter": "full", "max_attempts": 3}}, "coalesce": "single_flight"},
    ],
}  # fmt: skip


def fingerprints(kind: str, jobs: int, numbers: range = range(4)) -> list[dict[str, str]]:
    return [item.digests for item in replicate(load_scenario(SCENARIO), numbers, jobs=jobs, kind=kind)]


def test_serial_forked_spawned_and_loky_runs_give_the_same_logs() -> None:
    serial = fingerprints("loky", 1)
    assert len({entry["rich"] for entry in serial}) == 4  # replications differ
    for kind in ("fork", "spawn", "loky"):
        assert fingerprints(kind, 2) == serial, kind


def test_replication_k_alone_is_replication_k_of_n() -> None:
    assert fingerprints("loky", 1, range(2, 3)) == fingerprints("loky", 1)[2:3]


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_hash_seeds_change_nothing(hash_seed: str) -> None:
    code = "import test_engine_laws as t; print(t.fingerprints('loky', 1))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=__file__.rsplit("/", 1)[0],
        env={"PYTHONHASHSEED": hash_seed, "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout.strip() == str(fingerprints("loky", 1))


def test_exported_demand_replays_to_the_same_logs(tmp_path: Any) -> None:
    """A synthetic workload written to a file and replayed from it gives byte-identical logs."""
    from simkit.engine.simulation import simulate as simulate_scenario
    from simkit.trace.jsonl import read_any, write

    scenario = load_scenario(SCENARIO)
    trace = scenario.trace(0)
    write(trace, tmp_path / "t.jsonl.gz")
    again = read_any(tmp_path / "t.jsonl.gz")
    assert again.digest() == trace.digest()
    for chosen in scenario.policies:
        assert digest(simulate_scenario(scenario, chosen, again)) == digest(simulate_scenario(scenario, chosen, trace))


def test_a_custom_order_without_parking_works_under_limits() -> None:
    """Orders that know only push, pop and len are wrapped: a cap of one slot per tenant holds, and everything is served."""
    import random
    from dataclasses import dataclass

    from simkit.mechanisms import mechanism

    @mechanism("any_order_at_all")
    @dataclass(eq=False)
    class AnyOrder:
        seed: int = 1

        def bind(self, context: Any) -> None:
            self.rows: list[int] = []
            self.random = random.Random(self.seed)

        def push(self, row: int, now_ns: int) -> None:
            self.rows.append(row)

        def pop(self, now_ns: int) -> int:
            return self.rows.pop(self.random.randrange(len(self.rows))) if self.rows else -1

        def __len__(self) -> int:
            return len(self.rows)

    runs = [
        {"arrival_s": 0, "tenant": f"t{number % 3}", "tasks": [{"pool": "a", "service_s": 1}]} for number in range(30)
    ]
    log = run(
        from_runs(runs), {"a": 5}, "any_order_at_all", slots={"limits": [{"share_cap": {"by": "tenant", "count": 1}}]}
    )
    assert (log.runs.outcome == Outcome.VERIFIED).all()
    assert log.rows.end_ns.max() == 10 * NS_PER_S  # three at a time, each tenant one
    assert policy("any_order_at_all").order.cls is AnyOrder
