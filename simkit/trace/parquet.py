"""Traces as Parquet, for large ones: one row per run with its tasks as a nested list; the keys of the JSON Lines form, times as whole ns."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simkit.files import write_atomically
from simkit.model import UsageError
from simkit.trace.build import FLAGS, TraceBuilder
from simkit.trace.records import RecordErrors
from simkit.trace.table import SCHEMA, Trace

_MOST_PROBLEMS = 20
_ROWS = 10_000  # read at a time


def _pyarrow() -> Any:
    try:
        pa = importlib.import_module("pyarrow")
        importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError("Parquet needs pyarrow: install simkit[parquet], or use .jsonl.gz") from None
    return pa


def write_parquet(trace: Trace, path: Path) -> None:
    """Write `trace`. Raises UsageError without pyarrow or when the file cannot be written."""
    pa = _pyarrow()
    runs = trace.runs

    def named(codes: Any, names: Sequence[str]) -> Any:
        """Names by code, null for -1."""
        return pa.array([*names, None], pa.string()).take(pa.array(np.where(codes < 0, len(names), codes)))

    tasks = pa.ListArray.from_arrays(pa.array(runs.first_task, pa.int32()), _tasks(pa, trace, named))
    columns = {
        "run_id": pa.array(runs.run_id, pa.string()),
        "arrival_ns": pa.array(runs.arrival_ns),
        "tenant": named(runs.tenant, trace.tenants),
        "class": named(runs.cls, trace.classes),
        "priority": pa.array(runs.priority),
        "deadline_ns": pa.array(runs.deadline_ns, mask=runs.deadline_ns < 0),
        "workflow": named(runs.workflow, trace.workflows),
        "session": named(runs.session, trace.sessions),
        "luck": pa.array(runs.luck),
        "defect_p": pa.array(runs.defect_p),
        "detect_p": pa.array(runs.detect_p),
        "max_rework": pa.array(runs.max_rework),
        "tasks": tasks,
    }
    about = {"schema": SCHEMA, "source": trace.source, "seed": trace.seed, "warnings": dict(trace.warnings)}
    table = pa.table(columns, metadata={"simkit": json.dumps(about)})
    with write_atomically(path) as file:
        pa.parquet.write_table(table, file, compression="zstd")


def _tasks(pa: Any, trace: Trace, named: Any) -> Any:
    tasks = trace.tasks
    demands = pa.array([sorted(demand.items()) for demand in trace.demands], pa.map_(pa.string(), pa.int64()))
    fields = {
        "task_id": named(tasks.task_id, trace.task_ids),
        "after": pa.ListArray.from_arrays(
            pa.array(tasks.after_ptr, pa.int32()), named(tasks.task_id[tasks.after], trace.task_ids)
        ),
        "pool": named(tasks.pool, trace.pools),
        "service_ns": pa.array(tasks.service_ns),
        "estimate_ns": pa.array(tasks.estimate_ns),
        "demand": demands.take(pa.array(tasks.demand)),
        "tier": named(tasks.tier, trace.tiers),
        "tokens_in": pa.array(tasks.tokens_in),
        "tokens_out": pa.array(tasks.tokens_out),
        "cost_usd": pa.array(tasks.cost_usd),
        "cache_key": named(tasks.cache_key, trace.cache_keys),
        **{flag: pa.array(getattr(tasks, flag)) for flag in FLAGS},
    }
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields))


def read_parquet(path: Path) -> Trace:
    """Read a trace. Raises UsageError without pyarrow, when the file is no trace, and for what a trace cannot be."""
    pa = _pyarrow()
    problems: list[str] = []
    builder = TraceBuilder()
    try:
        with pa.parquet.ParquetFile(path) as file:
            about = _about(path, file.schema_arrow.metadata)
            for batch in file.iter_batches(batch_size=_ROWS):
                for record in batch.to_pylist():
                    try:
                        builder.add(_plain(record))
                    except RecordErrors as error:
                        problems.extend(f"{path}: {problem}" for problem in error.problems)
                if len(problems) >= _MOST_PROBLEMS:
                    problems[_MOST_PROBLEMS:] = ["and more"]
                    break
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path}: cannot be read as Parquet: {error}") from error
    if problems:
        raise UsageError("\n".join(problems))
    return builder.build(source=about["source"], warnings=about["warnings"], seed=about["seed"])


def _about(path: Path, metadata: dict[bytes, bytes] | None) -> dict[str, Any]:
    try:
        about = json.loads((metadata or {}).get(b"simkit", b"{}"))
    except ValueError:
        about = {}
    if not isinstance(about, dict) or about.get("schema") != SCHEMA:
        raise UsageError(f"{path}: no {SCHEMA} trace")
    return {"source": about.get("source", ""), "warnings": about.get("warnings", {}), "seed": about.get("seed")}


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """A row without its nulls."""
    run = {key: value for key, value in record.items() if value is not None}
    tasks = run.get("tasks")
    if isinstance(tasks, list):
        run["tasks"] = [
            {key: dict(value) if key == "demand" else value for key, value in task.items() if value is not None}
            for task in tasks
        ]
    return run
