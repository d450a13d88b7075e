"""A trace: all demand, as columns. Synthesis and every importer make one; the engine only ever replays one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCHEMA = "simkit.trace/1"

Codes = NDArray[np.int32]
Times = NDArray[np.int64]


@dataclass(slots=True)
class RunColumns:
    """One entry per run, ordered by arrival (equal arrivals keep file order). Codes index the tables of `Trace`."""

    run_id: list[str]
    arrival_ns: Times  # >= 0, non-decreasing
    tenant: Codes
    cls: Codes
    priority: NDArray[np.int64]  # larger is more urgent
    deadline_ns: Times  # after arrival; -1 = none
    workflow: Codes
    session: Codes  # -1 = none
    first_task: Times  # n + 1 offsets into the task columns
    luck: NDArray[np.uint64]  # keys every later draw of this run (failures, defects): see simkit.rng.keyed_uniform
    defect_p: NDArray[np.float64]  # chance that one round of work comes out defective
    detect_p: NDArray[np.float64]  # chance that a verification catches a defective round
    max_rework: NDArray[np.int32]  # rounds of rework after a caught defect before the run fails


@dataclass(slots=True)
class TaskColumns:
    """One entry per task; the tasks of a run are contiguous and topologically ordered."""

    task_id: Codes  # into Trace.task_ids (ids are unique within a run)
    pool: Codes  # into Trace.pools: where it queues (a pool or an API)
    service_ns: Times  # true service time: for the engine only
    estimate_ns: Times  # what a scheduler may believe
    demand: Codes  # into Trace.demands
    tier: Codes  # into Trace.tiers; -1 = untiered
    tokens_in: NDArray[np.int64]
    tokens_out: NDArray[np.int64]
    cost_usd: NDArray[np.float64]
    cache_key: Codes  # into Trace.cache_keys; -1 = none
    public: NDArray[np.bool_]  # cache scope: True = any tenant may share, False = within the tenant
    optional: NDArray[np.bool_]
    verifies: NDArray[np.bool_]  # checks the tasks before it; a caught defect sends the run to rework
    side_effect: NDArray[np.bool_]
    checkpointable: NDArray[np.bool_]
    after_ptr: Times  # n + 1 offsets into `after`
    after: Times  # global indices of the tasks that must finish first (always smaller than one's own)


@dataclass(slots=True)
class Trace:
    """Runs with nested tasks plus the code tables. `demands[code]` maps the name of a pool or API to slots or calls,
    the own pool included: ``{"gpu": 2, "github": 1}`` (a task queues for `pool` and needs everything in its demand to start)."""

    runs: RunColumns
    tasks: TaskColumns
    tenants: Sequence[str]
    classes: Sequence[str]
    pools: Sequence[str]
    workflows: Sequence[str]
    sessions: Sequence[str]
    task_ids: Sequence[str]
    tiers: Sequence[str]
    cache_keys: Sequence[str]
    demands: Sequence[Mapping[str, int]]
    source: str = ""  # where it came from, for people
    warnings: Mapping[str, int] = field(default_factory=dict)  # what an import dropped or guessed, counted
    seed: int | None = None
    _digest: str = ""

    def __len__(self) -> int:
        return len(self.runs.run_id)

    @property
    def task_count(self) -> int:
        return len(self.tasks.pool)

    def digest(self) -> str:
        """blake2b-128 over all columns and tables: equal demand has an equal digest (source, warnings and seed do not count).

        Worked out once: a trace is not changed after it was made.
        """
        from simkit.trace.digest import digest_of

        if not self._digest:
            self._digest = digest_of(self)
        return self._digest


def flat_columns(table: Any) -> dict[str, Any]:
    """The columns of a table by name, in declaration order."""
    return {name: getattr(table, name) for name in table.__slots__}
