"""From a trace and a platform to the engine's columns: rows, submissions, demand shapes, groups.

Everything here is prepared once, vectorised, before the first event.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simkit.model import NEVER_NS, ApiSpec, PlatformSpec, PoolSpec, Rows, UsageError
from simkit.trace.table import Trace

UNLIMITED_SLOTS = 2**40
"""Capacity of an unlimited pool: more than any simulation can use, small enough for exact arithmetic."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a row needs to start: slots of its own pool, slots of other pools, calls of APIs (place numbers)."""

    pool: int
    slots: int
    others: tuple[tuple[int, int], ...]
    calls: tuple[tuple[int, int], ...]  # (API number, requests)
    tier: int


class Layout:
    """Codes and shapes of one trace on one platform. `pool_of_task` and `shape_of_task` are arrays over trace tasks."""

    def __init__(self, trace: Trace, platform: PlatformSpec) -> None:
        self.trace, self.platform = trace, platform
        self.places: dict[str, int] = {name: number for number, name in enumerate(platform.places)}
        self.pool_count = len(platform.pools)
        self.tier_names = tuple(tier.name for tier in platform.tiers)
        tasks = trace.tasks
        columns = [np.asarray(column, dtype=np.int64) for column in (tasks.pool, tasks.demand, tasks.tier)]
        shape_of_task, firsts = number_combinations(columns)
        self.shapes: list[Shape] = [self._shape(*(int(column[task]) for column in columns)) for task in firsts.tolist()]
        self.demands = [self._visible(shape) for shape in self.shapes]
        self._shape_numbers = {shape: number for number, shape in reversed(list(enumerate(self.shapes)))}
        self.shape_of_task = shape_of_task
        self.pool_of_shape = np.array([shape.pool for shape in self.shapes], dtype=np.int64)
        self.slots_of_shape = np.array([shape.slots for shape in self.shapes], dtype=np.int64)

    def shape_number(self, shape: Shape) -> int:
        """The number of `shape`, added when new (a row that was moved to another tier)."""
        number = self._shape_numbers.get(shape)
        if number is None:
            number = self._shape_numbers[shape] = len(self.shapes)
            self.shapes.append(shape)
            self.demands.append(self._visible(shape))
        return number

    def _visible(self, shape: Shape) -> tuple[tuple[int, int], ...]:
        """What mechanisms see of a shape: (place, slots), the own place first (see `Context.demands`)."""
        beside = tuple((self.pool_count + api, 1) for api, _ in shape.calls if self.pool_count + api != shape.pool)
        return ((shape.pool, shape.slots), *shape.others, *beside)

    def _shape(self, pool_code: int, demand_code: int, tier_code: int) -> Shape:
        pool_name = self.trace.pools[pool_code]
        pool = self._place(pool_name, "a task queues for")
        demand: Mapping[str, int] = self.trace.demands[demand_code]
        others, calls = [], []
        for name, amount in sorted(demand.items(), key=lambda item: self._place(item[0], "a task demands")):
            place = self.places[name]
            if place >= self.pool_count:
                calls.append((place - self.pool_count, amount))
            elif place != pool:
                others.append((place, amount))
        if pool >= self.pool_count and pool_name not in demand:
            calls.append((pool - self.pool_count, 1))
        slots = 1 if pool >= self.pool_count else demand.get(pool_name, 1)
        tier = -1
        if tier_code >= 0:
            tier_name = self.trace.tiers[tier_code]
            if tier_name not in self.tier_names:
                raise UsageError(_unknown("a task is of tier", tier_name, self.tier_names))
            tier = self.tier_names.index(tier_name)
        shape = Shape(pool, slots, tuple(others), tuple(calls), tier)
        self._refuse_impossible(shape)
        return shape

    def _place(self, name: str, who: str) -> int:
        if name not in self.places:
            raise UsageError(_unknown(who, name, self.places))
        return self.places[name]

    def _refuse_impossible(self, shape: Shape) -> None:
        for place, amount in ((shape.pool, shape.slots), *shape.others):
            limit = capacity_of(self.place_spec(place))
            if amount > limit:
                name = self.platform.places[place]
                raise UsageError(f"impossible demand: a task needs {amount} slots of {name!r}, which has {limit}")
        for api, calls in shape.calls:
            for limit_spec in self.platform.apis[api].limits:
                if limit_spec.unit == "requests" and calls > limit_spec.burst:
                    raise UsageError(
                        f"impossible demand: a task makes {calls} calls at once to {self.platform.apis[api].name!r}, "
                        f"whose limit lets at most {limit_spec.burst} through at once"
                    )

    def place_spec(self, place: int) -> PoolSpec | ApiSpec:
        if place < self.pool_count:
            return self.platform.pools[place]
        return self.platform.apis[place - self.pool_count]


def capacity_of(spec: PoolSpec | ApiSpec) -> int:
    """Slots of a pool, or calls at a time of an API."""
    limit = spec.slots if isinstance(spec, PoolSpec) else spec.concurrency
    return UNLIMITED_SLOTS if limit is None else limit


def build_rows(layout: Layout) -> Rows:
    """The visible columns of all rows (see `mechanisms.base.Context.rows`), one row per task of the trace."""
    trace = layout.trace
    runs, tasks, size = trace.runs, trace.tasks, trace.task_count
    run_of_task = np.repeat(np.arange(len(trace)), np.diff(runs.first_task))
    shape = layout.shape_of_task

    def of_run(column: NDArray[Any]) -> Any:
        return lambda: column[run_of_task]

    tier_map = _tier_codes(layout)
    sources: dict[str, Any] = {
        "run": run_of_task,
        "task": lambda: np.arange(size),
        "instance": lambda: run_of_task,
        "demand": lambda: shape,
        "pool": lambda: layout.pool_of_shape[shape],
        "slots": lambda: layout.slots_of_shape[shape],
        "tenant": of_run(runs.tenant),
        "cls": of_run(runs.cls),
        "priority": of_run(runs.priority),
        "arrival_ns": of_run(runs.arrival_ns),
        "deadline_ns": lambda: absolute_deadlines(trace)[run_of_task],
        "client_deadline_ns": lambda: np.full(size, NEVER_NS),
        "estimate_ns": tasks.estimate_ns,
        "tokens": lambda: tasks.tokens_in + tasks.tokens_out,
        "cost_usd": tasks.cost_usd,
        "optional": tasks.optional,
        "verifies": tasks.verifies,
        "tier": lambda: tier_map[tasks.tier],
        "cache_key": tasks.cache_key,
        "public": tasks.public,
        "group": lambda: np.zeros(size, dtype=np.int64),
    }
    return Rows(sources, size)


def build_submissions(layout: Layout, rows: Rows) -> Rows:
    """The visible columns of all submissions, one per run of the trace."""
    trace = layout.trace
    runs = trace.runs
    size = len(trace)
    sources: dict[str, Any] = {
        "run": lambda: np.arange(size),
        "tenant": runs.tenant,
        "cls": runs.cls,
        "priority": runs.priority,
        "arrival_ns": runs.arrival_ns,
        "deadline_ns": lambda: absolute_deadlines(trace),
        "client_deadline_ns": lambda: np.full(size, NEVER_NS),
        "first_row": lambda: runs.first_task[:-1],
        "n_rows": lambda: np.diff(runs.first_task),
        "work_ns": lambda: np.add.reduceat(rows.source("slots") * trace.tasks.estimate_ns, runs.first_task[:-1]),
        "critical_path_ns": lambda: critical_paths(trace),
    }
    return Rows(sources, size)


def absolute_deadlines(trace: Trace) -> NDArray[np.int64]:
    """Per run: arrival + deadline, NEVER_NS where there is none."""
    deadline = trace.runs.deadline_ns
    return np.where(deadline < 0, NEVER_NS, trace.runs.arrival_ns + deadline)


def critical_paths(trace: Trace) -> NDArray[np.int64]:
    """Per run: the longest chain of estimates through its tasks, in ns."""
    tasks = trace.tasks
    finish: list[int] = []
    pointers, after = tasks.after_ptr.tolist(), tasks.after.tolist()
    for task, estimate in enumerate(tasks.estimate_ns.tolist()):
        before = after[pointers[task] : pointers[task + 1]]
        finish.append(estimate + max((finish[other] for other in before), default=0))
    return np.maximum.reduceat(np.array(finish, dtype=np.int64), trace.runs.first_task[:-1])


def successors(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The graph turned round: (pointers, tasks that follow), both int64, successors in task order."""
    tasks = trace.tasks
    size = trace.task_count
    follower = np.repeat(np.arange(size), np.diff(tasks.after_ptr))
    order = np.argsort(tasks.after, kind="stable")
    pointers = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(tasks.after, minlength=size), out=pointers[1:])
    return pointers, follower[order]


def _tier_codes(layout: Layout) -> NDArray[np.int64]:
    """Trace tier code -> platform tier number; the last entry serves code -1 (no tier)."""
    numbers = [layout.tier_names.index(name) if name in layout.tier_names else -1 for name in layout.trace.tiers]
    return np.array([*numbers, -1], dtype=np.int64)


def number_combinations(columns: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(number of each entry's combination of values, counted in order of first appearance; the first entry of each)."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        column = _compact(column - column.min())
        key = _compact(key * (int(column.max()) + 1) + column)
    first = np.full(int(key.max()) + 1, -1, dtype=np.int64)
    first[key[::-1]] = np.arange(len(key) - 1, -1, -1)  # the last assignment wins: the first entry of each key
    firsts = np.sort(first[first >= 0])
    rank = np.empty(len(first), dtype=np.int64)
    rank[key[firsts]] = np.arange(len(firsts))
    return rank[key], firsts


def _compact(key: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same distinctions in numbers below a few times the length: small enough to multiply and to index with."""
    if len(key) and int(key.max()) > 4 * len(key) + 1024:
        return np.unique(key, return_inverse=True)[1].reshape(-1)
    return key


def _unknown(who: str, name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f", did you mean {near[0]!r}?" if near else ""
    return f"{who} {name!r}, which the platform does not have{hint} (it has {', '.join(names) or 'none'})"
