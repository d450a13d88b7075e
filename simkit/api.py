"""The Python face: one simulation, or a comparison, as objects with tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simkit import metrics
from simkit.check import judge
from simkit.compare import Comparison
from simkit.engine.simulation import simulate
from simkit.log import RunLog
from simkit.model import Deadlock
from simkit.policy import Policy, load_policy
from simkit.scenario import Scenario, load_scenario
from simkit.sweep.replicate import Progress, Replication, details_of, replicate
from simkit.trace.table import Trace

if TYPE_CHECKING:
    import pandas as pd

ScenarioLike = str | Path | Mapping[str, Any] | Scenario
PolicyLike = str | Path | Mapping[str, Any] | Policy | type

LOGS_KEPT = 1
"""Of the first so many replications the logs are kept, for the figures of a report."""


@dataclass
class RunResult:
    """One simulation: its log, and what can be read from it."""

    log: RunLog

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row per run: times in s, outcome, latency."""
        return metrics.runs_frame(self.log)

    @cached_property
    def tasks(self) -> pd.DataFrame:
        """One row per task of every submission, with its wait and what it waited for."""
        return metrics.tasks_frame(self.log)

    @cached_property
    def events(self) -> pd.DataFrame:
        """Everything that happened, in order."""
        return metrics.all_events(self.log)

    @cached_property
    def series(self) -> pd.DataFrame:
        """Queues, utilisation and backlog over time."""
        return metrics.series(self.log)

    def summary(self) -> metrics.Summary:
        """The metrics of the run."""
        return metrics.summarise(self.log)

    def explain(self, run_id: str) -> str:
        """The story of one run."""
        from simkit.diagnose import explain

        return explain(self.log, run_id)

    def _repr_html_(self) -> str:
        import pandas as pd

        table = pd.Series(self.summary().metrics, name=str(self.log.header["policy"])).to_frame()
        html: str = table.to_html(float_format=lambda value: f"{value:.4g}")
        return html


def run(
    scenario: ScenarioLike,
    policy: PolicyLike | None = None,
    seed: int | None = None,
    *,
    replication: int = 0,
    trace: Trace | None = None,
    strict: bool = False,
    allow_code: bool = False,
) -> RunResult:
    """Simulate one replication under one policy (default: the scenario's last).

    Raises UsageError for input that cannot be, Deadlock when nothing can move any more.
    """
    loaded = load_scenario(scenario, allow_code=allow_code)
    chosen = loaded.policies[-1] if policy is None else pick(loaded, policy, allow_code=allow_code)
    log = simulate(loaded, chosen, trace, seed=seed, replication=replication, strict=strict)
    log.header["weights"] = chosen.weights
    if log.header["status"] == "deadlock":
        raise Deadlock(f"deadlock under policy {chosen.name!r}: work waits and nothing can ever move again")
    return RunResult(log)


def pick(scenario: Scenario, policy: PolicyLike, *, allow_code: bool = False) -> Policy:
    """A policy of the scenario by name, or any other by name, path, data or class."""
    for own in scenario.policies:
        if own.name == policy:
            return own
    return load_policy(policy, allow_code=allow_code)


def compare(
    scenario: ScenarioLike,
    policies: Sequence[PolicyLike] | None = None,
    replications: int | None = None,
    *,
    seed: int | None = None,
    baseline: str | None = None,
    jobs: int | None = None,
    precision: float | None = None,
    strict: bool = False,
    allow_code: bool = False,
    kind: str = "loky",
    progress: Progress | None = None,
    finished: list[Replication] | None = None,
) -> Comparison:
    """Replay the scenario's demand under several policies and compare them.

    `replications` defaults to the scenario's. `precision` (a fraction) adds replications until the interval of the primary metric is within it
    for every policy, up to 10 times as many. Policies may be names, paths, plain data, or mechanism classes defined in a notebook.
    """
    loaded = load_scenario(scenario, allow_code=allow_code)
    if policies is not None:
        loaded = loaded.with_policies([pick(loaded, policy, allow_code=allow_code) for policy in policies])
    if baseline is not None:
        loaded = replace(loaded, baseline=loaded.policy(baseline).name)
    count = loaded.replications if replications is None else replications
    options: dict[str, Any] = {
        "seed": seed, "jobs": jobs, "kind": kind, "strict": strict, "keep_logs_of": LOGS_KEPT, "progress": progress,
        "finished": finished,
    }  # fmt: skip
    done = replicate(loaded, range(count), **options)
    comparison = assemble(loaded, done, seed, strict=strict)
    most = 10 * count
    while precision is not None and len(done) < most and not _precise(comparison, precision):
        more = range(len(done), min(most, len(done) + max(2, len(done) // 2)))
        options["finished"] = None if finished is None else finished
        extra = replicate(loaded, more, **options)
        done = extra if finished is not None else [*done, *extra]
        comparison = assemble(loaded, done, seed, strict=strict)
    return comparison


def _precise(comparison: Comparison, precision: float) -> bool:
    for policy in comparison.policies:
        found = comparison.metric(policy, comparison.primary)
        if found.ci95 is None or found.half_width > precision * abs(found.mean):
            return False
    return True


def assemble(
    scenario: Scenario, done: Sequence[Replication], seed: int | None = None, *, strict: bool = False
) -> Comparison:
    """A comparison from finished replications, with its expectations judged."""
    comparison = Comparison(
        scenario=scenario.name,
        seed=scenario.seed if seed is None else seed,
        replications=len(done),
        results={
            policy.name: [replication.summaries[policy.name] for replication in done] for policy in scenario.policies
        },
        baseline=scenario.baseline,
        primary=scenario.primary,
        margin=scenario.margin,
        about=scenario.about,
        details=details_of(done, scenario),
    )
    comparison.details["logs"] = done[0].logs if done else {}
    comparison.expectations = list(judge(comparison, scenario, strict=strict))
    return comparison
