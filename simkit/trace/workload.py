"""The `workload` and `workflows` of a scenario: who sends what, when. Data only; `simkit.trace.synth` makes the trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from simkit.documents import Strict
from simkit.trace.arrivals import Arrivals
from simkit.trace.distributions import DurationLaw, NumberLaw, PositiveNumber
from simkit.units import Count, Duration, Factor, Fraction, Name, PositiveCount, PositiveDuration, Usd, Whole


class NoisyEstimate(Strict):
    """The true service time times lognormal noise of mean one."""

    error_cv: PositiveNumber


class CacheKeys(Strict):
    """Each task reads one of `pool_of` equal items, all equally likely; `zipf` makes item k likely as k^-zipf."""

    pool_of: PositiveCount
    zipf: PositiveNumber | None = None
    scope: Literal["public", "tenant"] = "tenant"


class TaskSpec(Strict):
    """One task of a workflow, or `count` equal ones side by side, the last `optional` of which may be left out under pressure."""

    pool: Name
    service: DurationLaw
    slots: PositiveCount = 1
    after: list[Name] = Field(default_factory=list)
    count: PositiveCount = 1
    optional: Count = 0
    estimate: Literal["mean", "exact"] | NoisyEstimate | PositiveDuration = "mean"
    demand: dict[Name, PositiveCount] = Field(default_factory=dict)
    tier: Name | None = None
    tokens_in: NumberLaw | None = None
    tokens_out: NumberLaw | None = None
    cost: Usd = 0.0
    cache_key: CacheKeys | None = None
    verifies: bool = False

    @model_validator(mode="after")
    def _sensible(self) -> TaskSpec:
        if self.optional > self.count:
            raise ValueError(f"optional: found {self.optional}, but there are only {self.count} of the task")
        if self.verifies and self.optional:
            raise ValueError("a verification cannot be optional")
        if self.pool in self.demand:
            raise ValueError(f"demand: {self.pool!r} is the task's own pool: write slots")
        return self

    @property
    def full_demand(self) -> dict[str, int]:
        """Everything it needs besides one slot of its own pool."""
        own = {self.pool: self.slots} if self.slots != 1 else {}
        return {**own, **self.demand}


class WorkflowSpec(Strict):
    """A graph of tasks, and how sound its work is: a round of work is defective with chance `defect`; each verification catches a
    defective round with chance `detection`; a caught one is done again up to `max_rework` times."""

    tasks: dict[Name, TaskSpec]
    defect: Fraction = 0.0
    detection: Fraction = 1.0
    max_rework: Count = 0

    @model_validator(mode="after")
    def _graph(self) -> WorkflowSpec:
        if not self.tasks:
            raise ValueError("a workflow needs at least one task")
        for name, task in self.tasks.items():
            for before in task.after:
                if before not in self.tasks:
                    raise ValueError(f"task {name!r}: after names {before!r}, which the workflow does not have")
        self.order  # noqa: B018 - raises for a circle
        if self.max_rework and not any(task.verifies for task in self.tasks.values()):
            raise ValueError("max_rework has no effect without a task that verifies")
        return self

    @property
    def order(self) -> list[str]:
        """Task names, predecessors first, otherwise as written."""
        placed: dict[str, None] = {}
        while len(placed) < len(self.tasks):
            free = next(
                (n for n, t in self.tasks.items() if n not in placed and all(b in placed for b in t.after)), None
            )
            if free is None:
                stuck = ", ".join(repr(name) for name in self.tasks if name not in placed)
                raise ValueError(f"the tasks {stuck} wait for each other in a circle")
            placed[free] = None
        return list(placed)


class Tenants(Strict):
    """Many tenants ``prefix0``, ``prefix1``, ...: each run is of one of them, all equally likely, or number k with chance ~ (k+1)^-zipf."""

    prefix: Name
    count: PositiveCount
    zipf: PositiveNumber | None = None


class DeadlineFactor(Strict):
    """A deadline of `factor` times the run's estimated critical path."""

    factor: Factor


class SourceSpec(Strict):
    """A stream of runs. `name` names its random streams: it must not change when the numbers are to stay."""

    name: Name
    tenant: Name | None = None
    tenants: Tenants | None = None
    class_: Annotated[Name, Field(alias="class")] = "default"
    priority: Whole = 0
    workflow: Name | None = None
    task: TaskSpec | None = None
    arrivals: Arrivals
    start: Duration = 0
    until: PositiveDuration | None = None
    count: PositiveCount | None = None
    deadline: PositiveDuration | DeadlineFactor | None = None

    @model_validator(mode="after")
    def _sensible(self) -> SourceSpec:
        if (self.workflow is None) == (self.task is None):
            raise ValueError(f"source {self.name!r}: expected exactly one of workflow and task")
        if self.tenant is not None and self.tenants is not None:
            raise ValueError(f"source {self.name!r}: expected tenant or tenants, not both")
        if self.task is not None and self.task.after:
            raise ValueError(f"source {self.name!r}: a single task comes after nothing")
        if self.until is not None and self.until <= self.start:
            raise ValueError(f"source {self.name!r}: until must lie after start")
        return self


class RecordedSpec(Strict):
    """A recorded or exported trace; its path is relative to the scenario."""

    trace: Name


class Workload(Strict):
    """All sources of a scenario with the workflows they use."""

    sources: list[SourceSpec]
    workflows: Mapping[str, WorkflowSpec]

    def workflow_of(self, source: SourceSpec) -> WorkflowSpec:
        if source.task is not None:
            return WorkflowSpec(tasks={"task": source.task})
        return self.workflows[str(source.workflow)]
