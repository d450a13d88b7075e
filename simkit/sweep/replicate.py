"""The replications of a comparison: each replays one trace under every policy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from simkit.engine.simulation import simulate
from simkit.log import RunLog
from simkit.log_io import digest
from simkit.metrics import Summary, summarise
from simkit.model import Deadlock
from simkit.scenario import Scenario
from simkit.sweep.executors import Failed, run_all

Progress = Callable[[int, int], None]


@dataclass
class Replication:
    """One replication: a summary, the log's digest and its status per policy, and the logs themselves when asked for."""

    number: int
    summaries: dict[str, Summary] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    trace_digest: str = ""
    stuck: dict[str, str] = field(default_factory=dict)  # policy -> what waits for ever
    logs: dict[str, RunLog] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Work:
    """What a worker needs besides the number of the replication."""

    scenario: Scenario
    seed: int
    strict: bool
    keep_logs_of: int

    def __call__(self, number: int) -> Replication:
        scenario = self.scenario
        trace = scenario.trace(number, self.seed)
        result = Replication(number, trace_digest=trace.digest())
        for policy in scenario.policies:
            log = simulate(scenario, policy, trace, seed=self.seed, replication=number, strict=self.strict)
            log.header["weights"] = policy.weights
            summary = summarise(log)
            summary.by_tenant  # noqa: B018 - worked out here, in parallel, and not from a log that stays behind
            result.summaries[policy.name] = summary
            result.digests[policy.name] = digest(log)
            result.versions = log.header["versions"]
            if log.header["status"] == "deadlock":
                result.stuck[policy.name] = ", ".join(log.header.get("stuck_in", ())) or "the door"
            if number < self.keep_logs_of:
                result.logs[policy.name] = log
        return result


def default_jobs() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def replicate(
    scenario: Scenario,
    numbers: Sequence[int],
    *,
    seed: int | None = None,
    jobs: int | None = None,
    kind: str = "loky",
    strict: bool = False,
    keep_logs_of: int = 0,
    progress: Progress | None = None,
    finished: list[Replication] | None = None,
) -> list[Replication]:
    """Replications `numbers` of `scenario`, in order of number whatever the order in which they finish.

    `finished` receives each one as it comes, so that an interrupt (KeyboardInterrupt) leaves what was done. `keep_logs_of`: of the
    first so many replications the logs are kept. Raises Deadlock naming pool and policy when a simulation got stuck, RuntimeError when workers died on a
    replication every time.
    """
    work = _Work(scenario, scenario.seed if seed is None else seed, strict, keep_logs_of)
    done = finished if finished is not None else []
    lost: list[Failed] = []
    for count, (_, result) in enumerate(run_all(work, list(numbers), jobs=jobs or default_jobs(), kind=kind), start=1):
        if isinstance(result, Failed):
            lost.append(result)
        else:
            done.append(result)
        if progress is not None:
            progress(count, len(numbers))
    done.sort(key=lambda replication: replication.number)
    if lost:
        named = ", ".join(str(item.key) for item in sorted(lost, key=lambda item: item.key))
        raise WorkLost(f"replications not finished: {named} ({lost[0].error}); the others are", done)
    _refuse_stuck(done)
    return done


class WorkLost(RuntimeError):
    """Some replications could not be finished; `finished` are the others."""

    def __init__(self, message: str, finished: list[Replication]) -> None:
        super().__init__(message)
        self.finished = finished


def _refuse_stuck(done: Sequence[Replication]) -> None:
    for replication in done:
        for policy, where in replication.stuck.items():
            raise Deadlock(
                f"deadlock: under policy {policy!r}, replication {replication.number}, work waits in {where} and nothing can ever move again"
            )


def details_of(replications: Sequence[Replication], scenario: Scenario) -> dict[str, Any]:
    """Versions and digests for a comparison's `details`."""
    return {
        "versions": replications[0].versions if replications else {},
        "digests": {
            "scenario": scenario.digest,
            "policies": {policy.name: policy.digest for policy in scenario.policies},
            "traces": [replication.trace_digest for replication in replications],
            "logs": {
                policy.name: [replication.digests[policy.name] for replication in replications]
                for policy in scenario.policies
            },
        },
    }
