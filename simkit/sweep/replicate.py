"""The replications of a comparison: each replays one trace under every policy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from simkit.engine.simulation import simulate
from simkit.log import RunLog
from simkit.log_io import digest
from simkit.metrics import Summary, summarise
from simkit.model import Deadlock, SimkitError
from simkit.policy import Policy
from simkit.scenario import Scenario
from simkit.sweep.executors import Failed, Make, run_all

Progress = Callable[[int, int], None]
"""Told (simulations finished, simulations in all): one simulation is one policy in one replication."""


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


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of work: some policies (by place in the scenario) in one replication."""

    number: int
    places: tuple[int, ...]


@dataclass(frozen=True)
class _Work:
    """What a worker needs besides the item."""

    scenario: Scenario
    seed: int
    strict: bool
    keep_logs_of: int

    def __call__(self, item: Item) -> Replication:
        trace = self.scenario.trace(item.number, self.seed)
        result = Replication(item.number, trace_digest=trace.digest())
        for place in item.places:
            policy = self.scenario.policies[place]
            try:
                log = simulate(
                    self.scenario, policy, trace, seed=self.seed, replication=item.number, strict=self.strict
                )
            except Exception as error:
                error.add_note(
                    f"scenario {self.scenario.name}, policy {policy.name}, seed {self.seed}, replication {item.number}"
                )
                raise
            self._note(result, policy, log)
        return result

    def _note(self, result: Replication, policy: Policy, log: RunLog) -> None:
        log.header["weights"] = policy.weights
        summary = summarise(log)
        summary.by_tenant  # noqa: B018 - worked out here, in parallel, and not from a log that stays behind
        result.summaries[policy.name] = summary
        result.digests[policy.name] = digest(log)
        result.versions = log.header["versions"]
        if log.header["status"] == "deadlock":
            result.stuck[policy.name] = ", ".join(log.header.get("stuck_in", ())) or "the door"
        if result.number < self.keep_logs_of:
            result.logs[policy.name] = log


class WorkLost(SimkitError):
    """Some replications could not be finished, because workers died on them every time; `finished` are the others."""

    def __init__(self, message: str, finished: list[Replication]) -> None:
        super().__init__(message)
        self.finished = finished


def default_jobs() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def plan(numbers: Sequence[int], policies: int, jobs: int) -> list[Item]:
    """Pieces of work for `jobs` workers.

    Whole replications where there are enough of them (each makes its trace once); the last ones that would not fill all workers are split
    by policy, so that no worker idles while another does a whole replication.
    """
    everything = tuple(range(policies))
    whole = len(numbers) - len(numbers) % max(jobs, 1)
    items = [Item(number, everything) for number in numbers[:whole]]
    items += [Item(number, (place,)) for number in numbers[whole:] for place in everything]
    return items


def replicate(
    scenario: Scenario,
    numbers: Sequence[int],
    *,
    seed: int | None = None,
    jobs: int | None = None,
    kind: str | Make = "loky",
    strict: bool = False,
    keep_logs_of: int = 0,
    progress: Progress | None = None,
    finished: list[Replication] | None = None,
) -> list[Replication]:
    """Replications `numbers` of `scenario`, in order of number whatever the order in which they finish; equal for any `jobs` and `kind`.

    `finished` receives each one as it comes, so that an interrupt (KeyboardInterrupt is passed on) or an error leaves what was done.
    `keep_logs_of`: of the first so many replications the logs are kept. Raises Deadlock naming pool and policy when a simulation got
    stuck, WorkLost when workers died on a replication every time, and whatever a simulation raises.
    """
    work = _Work(scenario, scenario.seed if seed is None else seed, strict, keep_logs_of)
    jobs = jobs or default_jobs()
    items = plan(list(numbers), len(scenario.policies), jobs)
    done = finished if finished is not None else []
    lost: dict[int, Failed] = {}
    total, simulated = len(numbers) * len(scenario.policies), 0
    parts = _Parts(scenario)
    for item, result in run_all(work, items, jobs=jobs, kind=kind):
        if isinstance(result, Failed):
            lost.setdefault(item.number, result)
        else:
            done.extend(parts.add(result))
        simulated += len(item.places)
        if progress is not None:
            progress(simulated, total)
    done.sort(key=lambda replication: replication.number)
    if lost:
        named, error = ", ".join(str(number) for number in sorted(lost)), next(iter(lost.values())).error
        raise WorkLost(f"not finished: replications {named} of {len(numbers)} ({error}); the others are", done)
    _refuse_stuck(done)
    return done


class _Parts:
    """Puts replications together that were worked on in parts."""

    def __init__(self, scenario: Scenario) -> None:
        self.names = [policy.name for policy in scenario.policies]
        self.open: dict[int, Replication] = {}

    def add(self, part: Replication) -> Iterator[Replication]:
        """The replication, once its last part has come; policies in the scenario's order."""
        whole = self.open.setdefault(part.number, part)
        if whole is not part:
            assert whole.trace_digest == part.trace_digest, "two workers made different demand of one replication"
            for name in ("summaries", "digests", "stuck", "logs"):
                getattr(whole, name).update(getattr(part, name))
        if len(whole.summaries) == len(self.names):
            del self.open[part.number]
            for name in ("summaries", "digests", "stuck", "logs"):
                found = getattr(whole, name)
                setattr(whole, name, {policy: found[policy] for policy in self.names if policy in found})
            yield whole


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
        "is_recorded": scenario.recorded is not None,
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
