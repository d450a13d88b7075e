"""Synthesis: a workload and named random streams make a trace. Vectorised over the runs of each source.

Streams are ``<purpose>/<source>[/<task>]``: a source's draws depend on its own name and laws alone, and more runs of it begin with the same
runs as fewer. Draws beyond 73 years are cut there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simkit.model import NEVER_NS, UsageError
from simkit.rng import Streams
from simkit.trace.build import Codes, DemandCodes, canonical
from simkit.trace.distributions import Floats
from simkit.trace.table import RunColumns, TaskColumns, Trace
from simkit.trace.workload import CacheKeys, DeadlineFactor, NoisyEstimate, SourceSpec, TaskSpec, WorkflowSpec, Workload

_MOST = NEVER_NS // 2


class _Tables:
    """Name tables shared by all sources."""

    def __init__(self) -> None:
        self.tenants, self.classes, self.pools, self.workflows = Codes(), Codes(), Codes(), Codes()
        self.task_ids, self.tiers, self.cache_keys = Codes(), Codes(), Codes()
        self.demands = DemandCodes()


@dataclass
class _Part:
    """What one source contributes. Run columns have shape (n,), task columns (n, tasks per run)."""

    arrival_ns: NDArray[np.int64]
    tenant: NDArray[np.int32]
    luck: NDArray[np.uint64]
    deadline_ns: NDArray[np.int64]
    service_ns: NDArray[np.int64]
    estimate_ns: NDArray[np.int64]
    tokens_in: NDArray[np.int64]
    tokens_out: NDArray[np.int64]
    cache_key: NDArray[np.int32]
    source: SourceSpec
    workflow: WorkflowSpec
    template: _Template


@dataclass
class _Template:
    """The tasks of one run of a workflow: per position, codes and flags; `after` as positions within the run."""

    task_id: NDArray[np.int32]
    pool: NDArray[np.int32]
    demand: NDArray[np.int32]
    tier: NDArray[np.int32]
    cost_usd: NDArray[np.float64]
    public: NDArray[np.bool_]
    optional: NDArray[np.bool_]
    verifies: NDArray[np.bool_]
    after: list[list[int]]
    columns: dict[str, slice]  # task name -> its positions


def synthesise(workload: Workload, *, streams: Streams, horizon_ns: int = NEVER_NS) -> Trace:
    """The trace of one replication: the runs of all sources in order of arrival (ties in order of the sources).

    Raises UsageError when a source has no end, or the workload makes no run at all.
    """
    tables = _Tables()
    parts = [_draw(source, workload, streams, horizon_ns, tables) for source in workload.sources]
    parts = [part for part in parts if len(part.arrival_ns)]
    if not parts:
        raise UsageError("the workload makes no run at all: look at start, until, count and the horizon")
    return canonical(_merge(parts, tables, streams.seed))


def _stream_name(*names: str) -> str:
    """Names as a path; a slash inside a name cannot be taken for one between two."""
    return "/".join(name.replace("%", "%25").replace("/", "%2F") for name in names)


def _whole(drawn: Floats, least: int) -> NDArray[np.int64]:
    return np.clip(np.round(drawn), least, _MOST).astype(np.int64)


def _arrivals(source: SourceSpec, workload: Workload, streams: Streams, horizon_ns: int) -> NDArray[np.int64]:
    until_ns = min(horizon_ns, NEVER_NS if source.until is None else source.until)
    if until_ns >= NEVER_NS and source.count is None and not source.arrivals.is_finite:
        raise UsageError(f"source {source.name!r} never ends: give it until or count, or give the scenario a horizon")
    rng = streams.of(_stream_name("arrivals", source.name))
    try:
        return source.arrivals.times_ns(
            rng, start_ns=source.start, until_ns=until_ns, count=source.count, folder=workload.folder
        )
    except ValueError as error:
        raise UsageError(f"source {source.name!r}: {error}") from None


def _draw(source: SourceSpec, workload: Workload, streams: Streams, horizon_ns: int, tables: _Tables) -> _Part:
    workflow, name = workload.workflow_of(source), source.name
    arrival = _arrivals(source, workload, streams, horizon_ns)
    size = len(arrival)
    template = _template(workflow, tables)
    tables.workflows.of(source.workflow or name)
    tables.classes.of(source.class_)
    service = np.empty((size, len(template.after)), dtype=np.int64)
    estimate, tokens_in, tokens_out = np.empty_like(service), np.zeros_like(service), np.zeros_like(service)
    cache = np.full(service.shape, -1, dtype=np.int32)
    for task_name, positions in template.columns.items():
        spec, path = workflow.tasks[task_name], _stream_name(name, task_name)
        shape = (size, positions.stop - positions.start)
        drawn = spec.service.sample(streams.of(f"service/{path}"), shape[0] * shape[1]).reshape(shape)
        service[:, positions] = _whole(drawn, 0)
        estimate[:, positions] = _estimate(spec, drawn, streams, path)
        for law, column, purpose in ((spec.tokens_in, tokens_in, "in"), (spec.tokens_out, tokens_out, "out")):
            if law is not None:
                tokens = law.sample(streams.of(f"tokens_{purpose}/{path}"), shape[0] * shape[1]).reshape(shape)
                column[:, positions] = _whole(tokens, 1)
        if spec.cache_key is not None:
            cache[:, positions] = _cache_codes(spec.cache_key, streams, path, shape, tables)
    return _Part(
        arrival, _tenant_codes(source, streams, size, tables),
        streams.of(_stream_name("luck", name)).integers(0, 2**63, size, dtype=np.uint64), _deadlines(source, estimate, template),
        service, estimate, tokens_in, tokens_out, cache, source, workflow, template,
    )  # fmt: skip


def _estimate(spec: TaskSpec, drawn: Floats, streams: Streams, path: str) -> NDArray[np.int64] | int:
    if spec.estimate == "mean":
        return min(max(1, round(spec.service.average)), _MOST)
    if spec.estimate == "exact":
        return _whole(drawn, 0)
    if isinstance(spec.estimate, NoisyEstimate):
        sigma = np.sqrt(np.log1p(spec.estimate.error_cv**2))
        noise = streams.of(f"estimate/{path}").lognormal(-(sigma**2) / 2, sigma, drawn.size).reshape(drawn.shape)
        return _whole(drawn * noise, 1)
    return int(spec.estimate)


def _cache_codes(
    keys: CacheKeys, streams: Streams, path: str, shape: tuple[int, int], tables: _Tables
) -> NDArray[np.int32]:
    """Which of the source's items each task reads; only items that are read get a code."""
    items = _ranks(streams.of(f"cache/{path}"), shape[0] * shape[1], keys.pool_of, keys.zipf)
    used, number = np.unique(items, return_inverse=True)
    codes = np.array([tables.cache_keys.of(f"{path}/{item}") for item in used.tolist()], dtype=np.int32)
    return codes[number.reshape(shape)]


def _ranks(rng: np.random.Generator, size: int, kinds: int, zipf: float | None) -> NDArray[np.int64]:
    """`size` numbers in [0, kinds): equally likely, or k with chance ~ (k+1)^-zipf."""
    uniform = rng.random(size)
    if zipf is None:
        return np.minimum((uniform * kinds).astype(np.int64), kinds - 1)
    weights = np.arange(1, kinds + 1, dtype=np.float64) ** -zipf
    edges = np.cumsum(weights / weights.sum())[:-1]
    ranks: NDArray[np.int64] = np.searchsorted(edges, uniform, side="right")
    return ranks


def _tenant_codes(source: SourceSpec, streams: Streams, size: int, tables: _Tables) -> NDArray[np.int32]:
    if source.tenants is None:
        return np.full(size, tables.tenants.of(source.tenant or source.name), dtype=np.int32)
    many = source.tenants
    used, place = np.unique(
        _ranks(streams.of(_stream_name("tenant", source.name)), size, many.count, many.zipf), return_inverse=True
    )
    codes = np.array([tables.tenants.of(f"{many.prefix}{number}") for number in used.tolist()], dtype=np.int32)
    return codes[place]


def _deadlines(source: SourceSpec, estimate: NDArray[np.int64], template: _Template) -> NDArray[np.int64]:
    size = len(estimate)
    if source.deadline is None:
        return np.full(size, -1, dtype=np.int64)
    if isinstance(source.deadline, DeadlineFactor):
        finish = np.zeros_like(estimate)
        for position, before in enumerate(template.after):
            longest = finish[:, before].max(axis=1) if before else 0
            finish[:, position] = longest + estimate[:, position]
        return _whole(finish.max(axis=1) * source.deadline.factor, 0)
    return np.full(size, source.deadline, dtype=np.int64)


def _template(workflow: WorkflowSpec, tables: _Tables) -> _Template:
    columns: dict[str, slice] = {}
    entries: list[tuple[Any, ...]] = []
    after: list[list[int]] = []
    for name in workflow.order:
        spec = workflow.tasks[name]
        first = len(entries)
        before = [place for other in spec.after for place in range(columns[other].start, columns[other].stop)]
        for number, task_id in enumerate(spec.ids(name)):
            entries.append(
                (
                    tables.task_ids.of(task_id),
                    tables.pools.of(spec.pool),
                    tables.demands.of(spec.full_demand),
                    tables.tiers.of(spec.tier),
                    spec.cost,
                    spec.cache_key is not None and spec.cache_key.scope == "public",
                    number >= spec.count - spec.optional,
                    spec.verifies,
                )
            )
            after.append(sorted(before))
        columns[name] = slice(first, len(entries))
    kinds: dict[str, Any] = {
        "task_id": np.int32, "pool": np.int32, "demand": np.int32, "tier": np.int32, "cost_usd": np.float64, "public": np.bool_,
        "optional": np.bool_, "verifies": np.bool_,
    }  # fmt: skip
    arrays: dict[str, Any] = {
        name: np.array(column, dtype=kind)
        for (name, kind), column in zip(kinds.items(), zip(*entries, strict=True), strict=True)
    }
    return _Template(after=after, columns=columns, **arrays)


def _merge(parts: list[_Part], tables: _Tables, seed: int) -> Trace:
    """One trace from all parts, in order of arrival."""
    sizes = [len(part.arrival_ns) for part in parts]
    widths = [len(part.template.after) for part in parts]
    part_of = np.repeat(np.arange(len(parts)), sizes)
    arrival = np.concatenate([part.arrival_ns for part in parts])
    order = np.argsort(arrival, kind="stable")
    width = np.repeat(widths, sizes)
    offset = np.concatenate([[0], np.cumsum(width)])
    first_task = np.concatenate([[0], np.cumsum(width[order])])
    gather = _gather(offset[order], width[order])

    def runs(values: list[Any]) -> Any:
        return np.concatenate(values)[order]

    def flat(name: str) -> Any:
        return np.concatenate([getattr(part, name).reshape(-1) for part in parts])[gather]

    def per_task(name: str) -> Any:
        tiled = [np.tile(getattr(part.template, name), size) for part, size in zip(parts, sizes, strict=True)]
        return np.concatenate(tiled)[gather]

    def constant(values: list[Any], kind: Any) -> Any:
        return np.array(values, dtype=kind)[part_of][order]

    per_source = [0] * len(parts)
    run_ids = []
    for part in part_of[order].tolist():
        run_ids.append(f"{parts[part].source.name}-{per_source[part]}")
        per_source[part] += 1
    after_ptr, after = _after(parts, sizes, order, part_of, first_task)
    total = int(first_task[-1])
    return Trace(
        runs=RunColumns(
            run_id=run_ids,
            arrival_ns=arrival[order],
            tenant=runs([part.tenant for part in parts]),
            cls=constant([tables.classes.of(part.source.class_) for part in parts], np.int32),
            priority=constant([part.source.priority for part in parts], np.int64),
            deadline_ns=runs([part.deadline_ns for part in parts]),
            workflow=constant([tables.workflows.of(part.source.workflow or part.source.name) for part in parts], np.int32),
            session=np.full(len(order), -1, dtype=np.int32),
            first_task=first_task,
            luck=runs([part.luck for part in parts]),
            defect_p=constant([part.workflow.defect for part in parts], np.float64),
            detect_p=constant([part.workflow.detection for part in parts], np.float64),
            max_rework=constant([part.workflow.max_rework for part in parts], np.int32),
        ),
        tasks=TaskColumns(
            task_id=per_task("task_id"), pool=per_task("pool"), service_ns=flat("service_ns"), estimate_ns=flat("estimate_ns"),
            demand=per_task("demand"), tier=per_task("tier"), tokens_in=flat("tokens_in"), tokens_out=flat("tokens_out"),
            cost_usd=per_task("cost_usd"), cache_key=flat("cache_key"), public=per_task("public"),
            optional=per_task("optional"), verifies=per_task("verifies"),
            side_effect=np.zeros(total, dtype=np.bool_), checkpointable=np.zeros(total, dtype=np.bool_),
            after_ptr=after_ptr, after=after,
        ),
        tenants=tables.tenants.names, classes=tables.classes.names, pools=tables.pools.names,
        workflows=tables.workflows.names, sessions=[], task_ids=tables.task_ids.names, tiers=tables.tiers.names,
        cache_keys=tables.cache_keys.names, demands=tables.demands.demands,
        source="synthetic", seed=seed,
    )  # fmt: skip


def _gather(starts: NDArray[np.int64], widths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices start, start+1, ... start+width-1 of each entry, one after the other."""
    ends = np.cumsum(widths)
    indices: NDArray[np.int64] = np.arange(int(ends[-1])) + np.repeat(starts - (ends - widths), widths)
    return indices


def _after(
    parts: list[_Part],
    sizes: list[int],
    order: NDArray[np.int64],
    part_of: NDArray[np.int64],
    first_task: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The dependency lists of all tasks in their final order: (pointers, global indices)."""
    degrees = [np.array([len(before) for before in part.template.after], dtype=np.int64) for part in parts]
    flat = [np.array([place for before in part.template.after for place in before], dtype=np.int64) for part in parts]
    edges = np.array([len(places) for places in flat], dtype=np.int64)
    degree = np.concatenate([np.tile(degree, size) for degree, size in zip(degrees, sizes, strict=True)])
    relative = np.concatenate([np.tile(places, size) for places, size in zip(flat, sizes, strict=True)])
    width = np.array([len(part.template.after) for part in parts])[part_of]
    task_offset = np.concatenate([[0], np.cumsum(width)])[:-1]
    edge_count = edges[part_of]
    edge_offset = np.concatenate([[0], np.cumsum(edge_count)])[:-1]
    ordered_degree = degree[_gather(task_offset[order], width[order])]
    pointers = np.concatenate([[0], np.cumsum(ordered_degree)])
    if not edge_count.any():
        return pointers, np.empty(0, dtype=np.int64)
    ordered = relative[_gather(edge_offset[order], edge_count[order])]
    return pointers, ordered + np.repeat(first_task[:-1], edge_count[order])
