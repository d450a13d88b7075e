"""The `workload` and `workflows` of a scenario: who sends what, when. Data only; `simkit.trace.synth` makes the trace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from simkit.documents import Misplaced, Strict, choose
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
    """One task of a workflow, or `count` equal ones side by side, the last `optional` of which may be left out under pressure.

    `after` names the tasks (all instances of each) that must finish first. `slots` of its own pool are held; `demand` says what else must be
    free at once, slots of other pools or calls of APIs. `estimate` is what a scheduler may believe: the mean of `service`, its exact value,
    the exact value with lognormal noise of mean one (``{error_cv: 0.5}``), or a duration.
    """

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
            raise Misplaced(
                ("optional",), f"found {self.optional} optional, but there are only {self.count} of the task"
            )
        if self.verifies and self.optional:
            raise Misplaced(("optional",), "a verification cannot be optional")
        if self.pool in self.demand and "slots" in self.model_fields_set:
            raise Misplaced(("slots",), f"slots and demand both say how much of {self.pool!r} is needed")
        for place, before in enumerate(self.after):
            if before in self.after[:place]:
                raise Misplaced(("after", place), f"after names a task twice ({before!r})")
        return self

    @property
    def full_demand(self) -> dict[str, int]:
        """Everything it needs besides one slot of its own pool."""
        demand = {self.pool: self.slots, **self.demand}
        return {place: amount for place, amount in demand.items() if place != self.pool or amount != 1}

    def ids(self, name: str) -> list[str]:
        """The task ids of its `count` instances: ``search``, or ``search.1``, ``search.2``, ..."""
        return [name] if self.count == 1 else [f"{name}.{number + 1}" for number in range(self.count)]


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
            for place, before in enumerate(task.after):
                if before not in self.tasks:
                    raise Misplaced(
                        ("tasks", name, "after", place),
                        f"after names {before!r}, which the workflow does not have{choose(before, self.tasks)}",
                    )
        self.order  # noqa: B018 - raises for a circle
        ids = [task_id for name, task in self.tasks.items() for task_id in task.ids(name)]
        if len(set(ids)) != len(ids):
            twice = next(task_id for task_id in ids if ids.count(task_id) > 1)
            raise ValueError(f"two tasks would be called {twice!r}")
        for setting, plain in (("max_rework", 0), ("detection", 1.0)):
            if getattr(self, setting) != plain and not any(task.verifies for task in self.tasks.values()):
                raise Misplaced((setting,), f"{setting} has no effect without a task that verifies")
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
    """A stream of runs. `name` names its random streams: it must not change when the numbers are to stay.

    Arrivals lie in [start, until), at most `count` of them; the times of bursts, floods and lists count from `start`.
    """

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
            raise Misplaced(("task", "after"), f"source {self.name!r}: a single task comes after nothing")
        if abs(self.priority) >= 2**62:
            raise Misplaced(
                ("priority",), f"source {self.name!r}: found priority {self.priority}, expected at most 62 bits"
            )
        if self.until is not None and self.until <= self.start:
            raise Misplaced(("until",), f"source {self.name!r}: until must lie after start")
        return self


class RecordedSpec(Strict):
    """A recorded or exported trace; its path is relative to the scenario."""

    trace: Name


class Workload(Strict):
    """All sources of a scenario with the workflows they use. Files are looked for in `folder`, the scenario's own, too."""

    sources: list[SourceSpec]
    workflows: Mapping[str, WorkflowSpec]
    folder: Path | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Workload:
        names = [source.name for source in self.sources]
        for source in self.sources:
            if names.count(source.name) > 1:
                raise ValueError(f"two sources are called {source.name!r}: names must differ")
            if source.workflow is not None and source.workflow not in self.workflows:
                raise ValueError(f"source {source.name!r}: there is no workflow {source.workflow!r}")
        return self

    def workflow_of(self, source: SourceSpec) -> WorkflowSpec:
        """The graph of its runs: the workflow it names, or its one task as a workflow."""
        if source.task is not None:
            return WorkflowSpec(tasks={"task": source.task})
        return self.workflows[str(source.workflow)]
