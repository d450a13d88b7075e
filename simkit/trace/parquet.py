"""Traces as Parquet, for large ones: one row per run with its tasks as a nested list, the same keys as the JSON Lines form."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from simkit.files import write_atomically
from simkit.model import UsageError
from simkit.trace.build import TraceBuilder
from simkit.trace.table import SCHEMA, Trace


def _pyarrow() -> Any:
    try:
        pa = importlib.import_module("pyarrow")
        importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError("Parquet needs pyarrow: install simkit[parquet], or use .jsonl.gz") from None
    return pa


def write_parquet(trace: Trace, path: Path) -> None:
    """Write `trace`. Raises UsageError without pyarrow."""
    pyarrow = _pyarrow()
    from simkit.trace.jsonl import records

    rows = []
    for record in records(trace):
        run = _exact(record)
        run["tasks"] = [_task(task) for task in record["tasks"]]
        rows.append(run)
    about = {"schema": SCHEMA, "source": trace.source, "seed": trace.seed, "warnings": dict(trace.warnings)}
    table = pyarrow.Table.from_pylist(rows, schema=_schema(pyarrow)).replace_schema_metadata(
        {"simkit": json.dumps(about)}
    )
    with write_atomically(path) as file:
        pyarrow.parquet.write_table(table, file, compression="zstd")


def _exact(record: dict[str, Any]) -> dict[str, Any]:
    """Times as whole ns."""
    return {
        (key[:-2] + "_ns" if key.endswith("_s") else key): round(value * 10**9) if key.endswith("_s") and not hasattr(value, "text")
        else _ns(value.text) if key.endswith("_s") else value
        for key, value in record.items() if key != "tasks"
    }  # fmt: skip


def _ns(text: str) -> int:
    from decimal import Decimal

    return int(Decimal(text) * 10**9)


def _task(task: dict[str, Any]) -> dict[str, Any]:
    plain = _exact(task)
    plain["demand"] = sorted(task.get("demand", {}).items())
    return plain


def _schema(pa: Any) -> Any:
    text, whole, real, flag = pa.string(), pa.int64(), pa.float64(), pa.bool_()
    task = pa.struct(
        [
            ("task_id", text), ("after", pa.list_(text)), ("pool", text), ("service_ns", whole), ("estimate_ns", whole),
            ("demand", pa.map_(text, whole)), ("tier", text), ("tokens_in", whole), ("tokens_out", whole), ("cost_usd", real),
            ("cache_key", text), ("public", flag), ("optional", flag), ("verifies", flag), ("side_effect", flag),
            ("checkpointable", flag),
        ]
    )  # fmt: skip
    return pa.schema(
        [
            ("run_id", text), ("arrival_ns", whole), ("tenant", text), ("class", text), ("priority", whole), ("deadline_ns", whole),
            ("workflow", text), ("session", text), ("luck", pa.uint64()), ("defect_p", real), ("detect_p", real),
            ("max_rework", pa.int32()), ("tasks", pa.list_(task)),
        ]
    )  # fmt: skip


def read_parquet(path: Path) -> Trace:
    """Read a trace. Raises UsageError without pyarrow or when the file is no trace."""
    pyarrow = _pyarrow()
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path}: cannot be read as Parquet: {error}") from error
    metadata = (table.schema.metadata or {}).get(b"simkit")
    about = json.loads(metadata) if metadata else {}
    if about.get("schema") != SCHEMA:
        raise UsageError(f"{path}: no {SCHEMA} trace")
    builder = TraceBuilder()
    for record in table.to_pylist():
        run = {key: value for key, value in record.items() if value is not None}
        run["tasks"] = [
            {key: dict(value) if key == "demand" else value for key, value in task.items() if value is not None}
            for task in record["tasks"]
        ]
        builder.add(run)
    return builder.build(source=about["source"], warnings=about["warnings"], seed=about["seed"])
