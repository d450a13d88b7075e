"""The Python face: one simulation, or a comparison, as objects with tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simkit import metrics
from simkit.check import judge, refuse_unknown_metrics
from simkit.compare import Comparison, needs_more
from simkit.engine.simulation import simulate
from simkit.log import RunLog
from simkit.model import Deadlock, UsageError
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

MOST_TIMES = 10
"""`precision` runs at most so many times the replications asked for."""


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

    @property
    def _title(self) -> str:
        header = self.log.header
        name = header.get("scenario", "simulation")
        return f"{name} under {header['policy']}, seed {header['seed']}, replication {header['replication']}"

    def __repr__(self) -> str:
        return f"<RunResult of {self._title}>"

    def _repr_html_(self) -> str:
        from html import escape

        import pandas as pd

        table = pd.Series(self.summary().metrics, name="value").to_frame()
        return f"<p>{escape(self._title)}</p>{table.to_html(float_format=lambda value: f'{value:.4g}')}"


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
    _refuse_numbers(seed=seed, replication=replication)
    chosen = loaded.policies[-1] if policy is None else pick(loaded, policy, allow_code=allow_code)
    log = simulate(loaded, chosen, trace, seed=seed, replication=replication, strict=strict)
    log.header["weights"] = chosen.weights
    if log.header["status"] == "deadlock":
        raise Deadlock(f"deadlock under policy {chosen.name!r}: work waits and nothing can ever move again")
    return RunResult(log)


def _refuse_numbers(**numbers: int | None) -> None:
    for name, value in numbers.items():
        if value is not None and value < 0:
            raise UsageError(f"{name}: found {value}, expected a whole number of 0 or more")


def pick(scenario: Scenario, policy: PolicyLike, *, allow_code: bool = False) -> Policy:
    """A policy of the scenario by name, or any other by name, path, data or class."""
    for own in scenario.policies:
        if own.name == policy:
            return own
    return load_policy(policy, allow_code=allow_code)


def choose(scenario: Scenario, policies: Sequence[PolicyLike], *, allow_code: bool = False) -> Scenario:
    """The scenario with these policies instead of its own.

    Expectations about policies that are not run are left out; the controls then too, since what they must fail may be among them. Raises
    UsageError for no policies, or for two of one name.
    """
    if not policies:
        raise UsageError("no policy to run")
    chosen = [pick(scenario, policy, allow_code=allow_code) for policy in policies]
    names = [policy.name for policy in chosen]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"policy {name!r} is there twice: names must differ")
    narrowed = scenario.with_policies(chosen)
    return narrowed if len(narrowed.expect) == len(scenario.expect) else replace(narrowed, control=())


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

    `replications` defaults to the scenario's. `precision` (a fraction) adds replications until the interval of the primary metric is within
    it for every policy, up to 10 times as many; ``details["precision"]`` says whether that was reached. Policies may be names, paths,
    plain data, or mechanism classes defined in a notebook. `finished` receives replications as they finish. Raises UsageError, Deadlock,
    `simkit.sweep.replicate.WorkLost`.
    """
    loaded = load_scenario(scenario, allow_code=allow_code)
    if policies is not None:
        loaded = choose(loaded, policies, allow_code=allow_code)
    if baseline is not None:
        loaded = replace(loaded, baseline=loaded.policy(baseline).name)
    refuse_unknown_metrics(loaded)
    _refuse_numbers(seed=seed)
    count = loaded.replications if replications is None else replications
    if count < 1:
        raise UsageError(f"replications: found {count}, expected 1 or more")
    done: list[Replication] = [] if finished is None else finished

    def more(numbers: range) -> Comparison:
        replicate(
            loaded, numbers, seed=seed, jobs=jobs, kind=kind, strict=strict, keep_logs_of=LOGS_KEPT, progress=progress, finished=done,
        )  # fmt: skip
        return assemble(loaded, done, seed, strict=strict)

    comparison = more(range(count))
    if precision is None:
        return comparison
    most = MOST_TIMES * count
    while (wanted := min(needs_more(comparison, precision), most - len(done))) > 0:
        comparison = more(range(len(done), len(done) + wanted))
    comparison.details["precision"] = {"wanted": precision, "reached": needs_more(comparison, precision) == 0}
    return comparison


def assemble(
    scenario: Scenario, done: Sequence[Replication], seed: int | None = None, *, strict: bool = False
) -> Comparison:
    """A comparison from finished replications (in any order), with its expectations judged. Raises UsageError when there are none."""
    ordered = sorted(done, key=lambda replication: replication.number)
    comparison = Comparison(
        scenario=scenario.name,
        seed=scenario.seed if seed is None else seed,
        replications=len(ordered),
        results={
            policy.name: [replication.summaries[policy.name] for replication in ordered]
            for policy in scenario.policies
            if ordered
        },
        baseline=scenario.baseline,
        primary=scenario.primary,
        margin=scenario.margin,
        about=scenario.about,
        details=details_of(ordered, scenario),
    )
    comparison.details["logs"] = ordered[0].logs
    comparison.expectations = list(judge(comparison, scenario, strict=strict))
    return comparison
