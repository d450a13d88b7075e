"""Make a trace from arrays or plain records: the one place that turns names into codes and checks the graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simkit.model import NS_PER_S, UsageError
from simkit.rng import mix
from simkit.trace.records import IN_PROGRAMS, Keys, RecordErrors, check_run
from simkit.trace.table import RunColumns, TaskColumns, Trace

FLAGS = ("public", "optional", "verifies", "side_effect", "checkpointable")


class Codes:
    """Names to codes in order of first appearance."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def of(self, name: str | None) -> int:
        """The code of `name`; -1 for None."""
        if name is None:
            return -1
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number


class DemandCodes:
    """Demands to codes in order of first appearance."""

    def __init__(self) -> None:
        self.demands: list[dict[str, int]] = []
        self._numbers: dict[tuple[tuple[str, int], ...], int] = {}

    def of(self, demand: Mapping[str, int]) -> int:
        key = tuple(sorted(demand.items()))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.demands)
            self.demands.append(dict(key))
        return number


def text_luck(run_id: str) -> int:
    """The luck of a run whose record names none: a hash of its id, so that it is the same in every import."""
    return mix(*run_id.encode())


def canonical(trace: Trace) -> Trace:
    """The same trace with code tables in order of first appearance and without unused entries, as a reader would number them."""
    tables: list[tuple[Any, str, str]] = [
        (trace.runs, "tenant", "tenants"), (trace.runs, "cls", "classes"), (trace.runs, "workflow", "workflows"),
        (trace.runs, "session", "sessions"), (trace.tasks, "task_id", "task_ids"), (trace.tasks, "pool", "pools"),
        (trace.tasks, "tier", "tiers"), (trace.tasks, "cache_key", "cache_keys"), (trace.tasks, "demand", "demands"),
    ]  # fmt: skip
    for columns, name, table in tables:
        codes = getattr(columns, name)
        used, first = np.unique(codes, return_index=True)
        order = used[np.argsort(first)]
        order = order[order >= 0]
        renumber = np.full(len(getattr(trace, table)) + 1, -1, dtype=np.int32)  # the last entry serves code -1
        renumber[order] = np.arange(len(order), dtype=np.int32)
        setattr(columns, name, renumber[codes])
        setattr(trace, table, [getattr(trace, table)[code] for code in order.tolist()])
    return trace


def single_task(
    arrival_ns: ArrayLike,
    service_ns: ArrayLike,
    *,
    pool: str = "pool",
    tenant: Sequence[str] | str = "t",
    cls: Sequence[str] | str = "default",
    priority: ArrayLike = 0,
    estimate_ns: ArrayLike | None = None,
    deadline_ns: ArrayLike = -1,
    slots: Sequence[int] | int = 1,
) -> Trace:
    """Runs of one task each, from arrays of equal length (arrivals sorted, ns). `slots` of its own pool; an estimate that is not given is
    exact; a deadline counts from the arrival, -1 = none. Raises ValueError for arrays that are no trace."""
    arrival = np.asarray(arrival_ns, dtype=np.int64)
    service = np.asarray(service_ns, dtype=np.int64).reshape(-1, 1)
    estimate = service if estimate_ns is None else np.asarray(estimate_ns, dtype=np.int64).reshape(-1, 1)
    demand = np.broadcast_to(np.asarray(slots, dtype=np.int64), arrival.shape)
    return _regular(arrival, service, estimate, [pool], tenant, cls, priority, deadline_ns, demand)


def chain(
    arrival_ns: ArrayLike,
    service_ns: ArrayLike,
    pools: Sequence[str],
    *,
    tenant: Sequence[str] | str = "t",
    cls: Sequence[str] | str = "default",
    priority: ArrayLike = 0,
    deadline_ns: ArrayLike = -1,
) -> Trace:
    """Runs that pass through `pools` one after the other; `service_ns` has shape (runs, len(pools))."""
    arrival = np.asarray(arrival_ns, dtype=np.int64)
    service = np.asarray(service_ns, dtype=np.int64)
    slots = np.ones(len(arrival), dtype=np.int64)
    return _regular(arrival, service, service, list(pools), tenant, cls, priority, deadline_ns, slots)


def _regular(
    arrival: NDArray[np.int64],
    service: NDArray[np.int64],
    estimate: NDArray[np.int64],
    pools: list[str],
    tenant: Sequence[str] | str,
    cls: Sequence[str] | str,
    priority: ArrayLike,
    deadline_ns: ArrayLike,
    slots: NDArray[np.int64],
) -> Trace:
    size, steps = service.shape
    if len(arrival) != size or estimate.shape != service.shape:
        raise ValueError(f"arrays differ in length: {len(arrival)} arrivals, {service.shape} services")
    if size and (np.diff(arrival).min(initial=0) < 0 or arrival[0] < 0 or min(service.min(), estimate.min()) < 0):
        raise ValueError("arrivals must be sorted, and no time may be negative")
    tenants, classes, demands = Codes(), Codes(), DemandCodes()
    tenant_codes = _code_column(tenants, tenant, size)
    class_codes = _code_column(classes, cls, size)
    total = size * steps
    first = np.arange(size + 1, dtype=np.int64) * steps
    degree = np.ones(total, dtype=np.int64)
    degree[first[:-1]] = 0
    pool_codes = Codes()
    pool_of_step = np.array([pool_codes.of(name) for name in pools], dtype=np.int32)
    demand = np.full(total, demands.of({}), dtype=np.int32)
    needs, number = np.unique(slots, return_inverse=True)
    need_codes = [demands.of({pools[0]: need} if need != 1 else {}) for need in needs.tolist()]
    demand[first[:-1]] = np.array(need_codes, dtype=np.int32)[number]
    none = np.full(total, -1, dtype=np.int32)
    flags: dict[str, Any] = {flag: np.zeros(total, dtype=np.bool_) for flag in FLAGS}
    return canonical(
        Trace(
            runs=_plain_runs(arrival, tenant_codes, class_codes, priority, deadline_ns, first),
            tasks=TaskColumns(
                task_id=np.tile(np.arange(steps, dtype=np.int32), size),
                pool=np.tile(pool_of_step, size),
                service_ns=service.reshape(-1),
                estimate_ns=estimate.reshape(-1),
                demand=demand,
                tier=none,
                tokens_in=np.zeros(total, dtype=np.int64),
                tokens_out=np.zeros(total, dtype=np.int64),
                cost_usd=np.zeros(total),
                cache_key=none.copy(),
                **flags,
                after_ptr=np.concatenate([[0], np.cumsum(degree)]),
                after=np.flatnonzero(degree) - 1,
            ),
            tenants=tenants.names,
            classes=classes.names,
            pools=pool_codes.names,
            workflows=["chain" if steps > 1 else "single"],
            sessions=[],
            task_ids=[f"t{step}" for step in range(steps)],
            tiers=[],
            cache_keys=[],
            demands=demands.demands,
        )
    )


def _plain_runs(
    arrival: NDArray[np.int64],
    tenant: NDArray[np.int32],
    cls: NDArray[np.int32],
    priority: ArrayLike,
    deadline_ns: ArrayLike,
    first_task: NDArray[np.int64],
) -> RunColumns:
    size = len(arrival)
    return RunColumns(
        run_id=[f"r{number}" for number in range(size)],
        arrival_ns=arrival,
        tenant=tenant,
        cls=cls,
        priority=np.broadcast_to(np.asarray(priority, dtype=np.int64), (size,)).copy(),
        deadline_ns=np.broadcast_to(np.asarray(deadline_ns, dtype=np.int64), (size,)).copy(),
        workflow=np.zeros(size, dtype=np.int32),
        session=np.full(size, -1, dtype=np.int32),
        first_task=first_task,
        luck=np.arange(size, dtype=np.uint64),
        defect_p=np.zeros(size),
        detect_p=np.ones(size),
        max_rework=np.zeros(size, dtype=np.int32),
    )


def _code_column(codes: Codes, names: Sequence[str] | str, size: int) -> NDArray[np.int32]:
    if isinstance(names, str):
        return np.full(size, codes.of(names), dtype=np.int32)
    if len(names) != size:
        raise ValueError(f"arrays differ in length: {size} arrivals, {len(names)} names")
    return np.array([codes.of(name) for name in names], dtype=np.int32)


_RUN_KINDS: dict[str, Any] = {
    "arrival_ns": np.int64, "tenant": np.int32, "cls": np.int32, "priority": np.int64, "deadline_ns": np.int64, "workflow": np.int32,
    "session": np.int32, "luck": np.uint64, "defect_p": np.float64, "detect_p": np.float64, "max_rework": np.int32,
}  # fmt: skip
_TASK_KINDS: dict[str, Any] = {
    "task_id": np.int32, "pool": np.int32, "service_ns": np.int64, "estimate_ns": np.int64, "demand": np.int32, "tier": np.int32,
    "tokens_in": np.int64, "tokens_out": np.int64, "cost_usd": np.float64, "cache_key": np.int32,
    **dict.fromkeys(FLAGS, np.bool_),
}  # fmt: skip


def _columns(rows: Sequence[tuple[Any, ...]], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Tuples in the order of `kinds`, turned into one array per name."""
    return {
        name: np.array(column, dtype=kind)
        for (name, kind), column in zip(kinds.items(), zip(*rows, strict=True), strict=True)
    }


class TraceBuilder:
    """Collects runs given as plain records (the keys of the trace document) and makes a Trace.

    Runs come in order of arrival. Raises RecordErrors (a UsageError) with everything that is wrong with a record: an unknown key, a
    value that is none, unsorted or negative times, an id given twice, a dependency on a task that does not exist, a circle.
    """

    def __init__(self, keys: Keys = IN_PROGRAMS) -> None:
        self._keys = keys
        self._tenants, self._classes, self._pools, self._workflows = Codes(), Codes(), Codes(), Codes()
        self._sessions, self._task_ids, self._tiers, self._cache_keys = Codes(), Codes(), Codes(), Codes()
        self._demands = DemandCodes()
        self._seen: set[str] = set()  # also the ids of records that were refused
        self._run_ids: list[str] = []
        self._runs: list[tuple[Any, ...]] = []
        self._tasks: list[tuple[Any, ...]] = []
        self._first_task = [0]
        self._after_ptr = [0]
        self._after: list[int] = []
        self._last_arrival = 0

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, record: Mapping[str, Any]) -> None:
        """One run with its tasks."""
        run_id = record.get("run_id", f"r{len(self._runs)}")
        problems: list[str] = []
        run = check_run(record, self._keys, run_id, problems)
        if isinstance(run_id, str) and run_id in self._seen:
            problems.append(f"run_id {run_id!r} occurs twice")
        arrival = run.get("arrival_ns", self._last_arrival)
        if arrival < self._last_arrival:
            problems.append(
                f"run {run_id!r} arrives at {arrival / NS_PER_S} s, before the run above it ({self._last_arrival / NS_PER_S} s): "
                "runs must be in order of arrival"
            )
        self._last_arrival = max(arrival, self._last_arrival)
        order = _order(run_id, run["tasks"], problems)
        if isinstance(run_id, str):
            self._seen.add(run_id)
        if problems:
            raise RecordErrors(problems)
        self._add_tasks(run["tasks"], order)
        self._run_ids.append(run_id)
        self._runs.append(
            (
                arrival,
                self._tenants.of(run.get("tenant", "default")),
                self._classes.of(run.get("class", "default")),
                run.get("priority", 0),
                run.get("deadline_ns", -1),
                self._workflows.of(run.get("workflow", "default")),
                self._sessions.of(run.get("session")),
                text_luck(run_id) if "luck" not in run else run["luck"],
                run.get("defect_p", 0.0),
                run.get("detect_p", 1.0),
                run.get("max_rework", 0),
            )
        )

    def _add_tasks(self, tasks: Sequence[Mapping[str, Any]], order: Sequence[int]) -> None:
        base = len(self._tasks)
        position = {tasks[number]["task_id"]: base + place for place, number in enumerate(order)}
        for number in order:
            task = tasks[number]
            service = task["service_ns"]
            self._after.extend(sorted(position[before] for before in task.get("after", ())))
            self._after_ptr.append(len(self._after))
            self._tasks.append(
                (
                    self._task_ids.of(task["task_id"]),
                    self._pools.of(task["pool"]),
                    service,
                    task.get("estimate_ns", service),
                    self._demands.of(task.get("demand", {})),
                    self._tiers.of(task.get("tier")),
                    task.get("tokens_in", 0),
                    task.get("tokens_out", 0),
                    task.get("cost_usd", 0.0),
                    self._cache_keys.of(task.get("cache_key")),
                    *(task.get(flag, False) for flag in FLAGS),
                )
            )
        self._first_task.append(len(self._tasks))

    def build(self, *, source: str = "", warnings: Mapping[str, int] | None = None, seed: int | None = None) -> Trace:
        """The trace of everything added. Raises UsageError when nothing was."""
        if not self._runs:
            raise UsageError("the trace is empty: it has no runs")
        first_task = np.array(self._first_task, dtype=np.int64)
        after: dict[str, Any] = {
            "after_ptr": np.array(self._after_ptr, dtype=np.int64),
            "after": np.array(self._after, dtype=np.int64),
        }
        return Trace(
            runs=RunColumns(run_id=self._run_ids, first_task=first_task, **_columns(self._runs, _RUN_KINDS)),
            tasks=TaskColumns(**_columns(self._tasks, _TASK_KINDS), **after),
            tenants=self._tenants.names,
            classes=self._classes.names,
            pools=self._pools.names,
            workflows=self._workflows.names,
            sessions=self._sessions.names,
            task_ids=self._task_ids.names,
            tiers=self._tiers.names,
            cache_keys=self._cache_keys.names,
            demands=self._demands.demands,
            source=source,
            warnings=dict(warnings or {}),
            seed=seed,
        )


def from_runs(runs: Iterable[Mapping[str, Any]], **about: Any) -> Trace:
    """A trace of plain records."""
    builder = TraceBuilder()
    for run in runs:
        builder.add(run)
    return builder.build(**about)


def _order(run_id: str, tasks: Sequence[Mapping[str, Any]], problems: list[str]) -> Sequence[int]:
    """Task numbers with predecessors first, otherwise in the given order (Kahn's algorithm, smallest number first)."""
    number = {task["task_id"]: place for place, task in enumerate(tasks)}
    if len(number) < len(tasks):
        problems.append(f"run {run_id!r}: a task_id occurs twice")
        return ()
    followers: list[list[int]] = [[] for _ in tasks]
    missing = [0] * len(tasks)
    forward = True
    for place, task in enumerate(tasks):
        for before in task.get("after", ()):
            if before not in number:
                problems.append(
                    f"run {run_id!r}, task {task['task_id']!r}: after names {before!r}, which the run does not have"
                )
                continue
            followers[number[before]].append(place)
            missing[place] += 1
            forward &= number[before] < place
    if forward:
        return range(len(tasks))
    free = [place for place, count in enumerate(missing) if not count]
    order = []
    while free:
        place = heappop(free)
        order.append(place)
        for follower in followers[place]:
            missing[follower] -= 1
            if not missing[follower]:
                heappush(free, follower)
    if len(order) < len(tasks):
        stuck = ", ".join(repr(task["task_id"]) for task, count in zip(tasks, missing, strict=True) if count)
        problems.append(f"run {run_id!r}: the tasks {stuck} wait for each other in a circle")
    return order
