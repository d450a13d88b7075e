"""Trace files: JSON Lines (a header line, then one run per line; ``.gz`` too) and Parquet. Reading what was written gives the same
trace, writing what was read gives the same bytes.

Times are decimal seconds that name whole nanoseconds exactly; they are read through Decimal, never through float.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

from simkit.files import write_atomically
from simkit.model import NS_PER_S, UsageError
from simkit.trace.build import TraceBuilder, text_luck
from simkit.trace.table import SCHEMA, Trace

_MOST_PROBLEMS = 20
_FLAGS = ("public", "optional", "verifies", "side_effect", "checkpointable")
_MAGIC = "simkit.trace/"


class _Exact(float):
    """A float that prints as the decimal it was made from."""

    def __new__(cls, nanoseconds: int) -> Self:
        self = super().__new__(cls, nanoseconds / NS_PER_S)
        self.text = _decimal_text(nanoseconds)
        return self

    text: str

    def __repr__(self) -> str:
        return self.text


def _decimal_text(nanoseconds: int) -> str:
    whole, rest = divmod(nanoseconds, NS_PER_S)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".") if rest else str(whole)


def _dump(value: Any) -> str:
    """Canonical JSON on one line. (The json module prints float subclasses as plain floats, hence the own writer for exact times.)"""
    if isinstance(value, _Exact):
        return value.text
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {_dump(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(_dump(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def records(trace: Trace) -> Iterator[dict[str, Any]]:
    """The runs as plain records, defaults left out."""
    runs, tasks = trace.runs, trace.tasks
    columns = {
        name: getattr(runs, name)
        for name in ("arrival_ns", "tenant", "cls", "priority", "deadline_ns", "workflow", "session")
    }
    lists = {name: column.tolist() for name, column in columns.items()}
    luck, first = runs.luck.tolist(), runs.first_task.tolist()
    defect, detect, rework = runs.defect_p.tolist(), runs.detect_p.tolist(), runs.max_rework.tolist()
    task_lists = {name: getattr(tasks, name).tolist() for name in tasks.__slots__}
    for number, run_id in enumerate(runs.run_id):
        record: dict[str, Any] = {"run_id": run_id, "arrival_s": _Exact(lists["arrival_ns"][number])}
        record["tenant"] = trace.tenants[lists["tenant"][number]]
        record["class"] = trace.classes[lists["cls"][number]]
        if lists["priority"][number]:
            record["priority"] = lists["priority"][number]
        if lists["deadline_ns"][number] >= 0:
            record["deadline_s"] = _Exact(lists["deadline_ns"][number])
        record["workflow"] = trace.workflows[lists["workflow"][number]]
        if lists["session"][number] >= 0:
            record["session"] = trace.sessions[lists["session"][number]]
        if luck[number] != text_luck(run_id):
            record["luck"] = luck[number]
        soundness = {
            "defect_p": (defect[number], 0.0),
            "detect_p": (detect[number], 1.0),
            "max_rework": (rework[number], 0),
        }
        record.update({name: value for name, (value, default) in soundness.items() if value != default})
        record["tasks"] = [_task(trace, task_lists, place) for place in range(first[number], first[number + 1])]
        yield record


def _task(trace: Trace, columns: Mapping[str, list[Any]], place: int) -> dict[str, Any]:
    task: dict[str, Any] = {"task_id": trace.task_ids[columns["task_id"][place]]}
    before = columns["after"][columns["after_ptr"][place] : columns["after_ptr"][place + 1]]
    if before:
        task["after"] = [trace.task_ids[columns["task_id"][other]] for other in before]
    task["pool"] = trace.pools[columns["pool"][place]]
    task["service_s"] = _Exact(columns["service_ns"][place])
    if columns["estimate_ns"][place] != columns["service_ns"][place]:
        task["estimate_s"] = _Exact(columns["estimate_ns"][place])
    demand = trace.demands[columns["demand"][place]]
    if demand:
        task["demand"] = dict(sorted(demand.items()))
    if columns["tier"][place] >= 0:
        task["tier"] = trace.tiers[columns["tier"][place]]
    for name in ("tokens_in", "tokens_out", "cost_usd"):
        if columns[name][place]:
            task[name] = columns[name][place]
    if columns["cache_key"][place] >= 0:
        task["cache_key"] = trace.cache_keys[columns["cache_key"][place]]
    for flag in _FLAGS:
        if columns[flag][place]:
            task[flag] = True
    return task


def write(trace: Trace, path: str | Path) -> None:
    """Write a trace; the suffix decides: ``.jsonl``, ``.jsonl.gz`` or ``.parquet``. The file appears whole or not at all."""
    path = Path(path)
    if path.name.endswith(".parquet"):
        from simkit.trace.parquet import write_parquet

        write_parquet(trace, path)
        return
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        raise UsageError(f"cannot write a trace to {path.name!r}: expected .jsonl, .jsonl.gz or .parquet")
    header = {"schema": SCHEMA, "source": trace.source, "seed": trace.seed, "warnings": dict(trace.warnings)}
    with write_atomically(path) as raw, _text_to(raw, zipped=path.name.endswith(".gz")) as text:
        text.write(_dump({key: value for key, value in header.items() if value not in (None, "", {})}) + "\n")
        for record in records(trace):
            text.write(_dump(record) + "\n")


@contextmanager
def _text_to(raw: Any, *, zipped: bool) -> Iterator[io.TextIOWrapper]:
    """A text layer that leaves no trace of when it was written."""
    binary = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) if zipped else raw
    text = io.TextIOWrapper(binary, encoding="utf-8", newline="\n", write_through=not zipped)
    yield text
    text.flush()
    text.detach()
    if zipped:
        binary.close()


def read(path: str | Path) -> Trace:
    """Read a native trace. Raises UsageError naming file and line of every problem (at most 20)."""
    path = Path(path)
    problems: list[str] = []
    builder = TraceBuilder()
    header: dict[str, Any] = {}
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        record = _parse(line, path, number, problems)
        if record is None:
            pass
        elif number == 1:
            header = _header(record, path, problems)
        else:
            try:
                builder.add(_run(record))
            except UsageError as error:
                problems.append(f"{path}:{number}: {error}")
        if len(problems) >= _MOST_PROBLEMS:
            problems.append("reading stopped here")
            break
    if not problems and not len(builder):
        problems.append(f"{path}: the trace is empty: it has no runs")
    if problems:
        raise UsageError("\n".join(problems))
    return builder.build(source=header.get("source", ""), warnings=header.get("warnings", {}), seed=header.get("seed"))


def _lines(path: Path) -> Iterator[str]:
    try:
        if path.name.endswith(".gz"):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                yield from file
        else:
            with path.open(encoding="utf-8") as file:
                yield from file
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"found {name}, expected a finite number")


def _parse(line: str, path: Path, number: int, problems: list[str]) -> dict[str, Any] | None:
    try:
        record = json.loads(
            line, parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_without_duplicates
        )
    except ValueError as error:
        problems.append(f"{path}:{number}: not a JSON record: {error}")
        return None
    if not isinstance(record, dict):
        problems.append(f"{path}:{number}: found {type(record).__name__}, expected a record in braces")
        return None
    return record


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is given twice")
    return record


def _header(record: dict[str, Any], path: Path, problems: list[str]) -> dict[str, Any]:
    schema = record.get("schema")
    if schema != SCHEMA:
        known = isinstance(schema, str) and schema.startswith(_MAGIC)
        what = (
            f"found schema {schema!r}, this version reads {SCHEMA}" if known else f'expected {{"schema": "{SCHEMA}"}}'
        )
        problems.append(f"{path}:1: {what}")
    unknown = sorted(set(record) - {"schema", "source", "seed", "warnings"})
    if unknown:
        problems.append(f"{path}:1: unknown key {unknown[0]!r} in the header")
    return record


def _run(record: dict[str, Any]) -> dict[str, Any]:
    """A parsed record with times in whole ns and plain numbers."""
    run = _times(record, ("arrival", "deadline"))
    for name in ("priority", "luck", "max_rework"):
        _whole(run, name)
    for name in ("defect_p", "detect_p"):
        if name in run:
            run[name] = _probability(run[name], name)
    _texts(run, ("run_id", "tenant", "class", "workflow", "session"))
    tasks = run.get("tasks")
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise UsageError("tasks: expected a list of records")
    run["tasks"] = [_task_record(task) for task in tasks]
    return run


def _task_record(record: dict[str, Any]) -> dict[str, Any]:
    task = _times(record, ("service", "estimate"))
    _texts(task, ("task_id", "pool", "tier", "cache_key"))
    for name in ("tokens_in", "tokens_out"):
        _whole(task, name, least=0)
    for flag in _FLAGS:
        if not isinstance(task.get(flag, False), bool):
            raise UsageError(f"{flag}: found {task[flag]!r}, expected true or false")
    if "cost_usd" in task:
        cost = task["cost_usd"]
        if isinstance(cost, bool) or not isinstance(cost, int | Decimal) or cost < 0:
            raise UsageError(f"cost_usd: found {cost!r}, expected an amount of 0 or more")
        task["cost_usd"] = float(cost)
    after = task.get("after", [])
    if not isinstance(after, list) or not all(isinstance(name, str) for name in after):
        raise UsageError(f"after: found {after!r}, expected a list of task ids")
    demand = task.get("demand", {})
    if not isinstance(demand, dict) or not all(
        isinstance(need, int) and not isinstance(need, bool) and need >= 1 for need in demand.values()
    ):
        raise UsageError(f"demand: found {demand!r}, expected names with whole numbers of 1 or more")
    return task


def _times(record: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Replace ``x_s`` by ``x_ns``, exactly."""
    result = dict(record)
    for name in names:
        if f"{name}_ns" in result:
            raise UsageError(f"unknown key '{name}_ns': times are written in seconds ({name}_s)")
        value = result.pop(f"{name}_s", None)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise UsageError(f"{name}_s: found {value!r}, expected seconds")
        result[f"{name}_ns"] = int((Decimal(value) * NS_PER_S).to_integral_value())
    return result


def _whole(record: dict[str, Any], name: str, least: int | None = None) -> None:
    value = record.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
        raise UsageError(
            f"{name}: found {value!r}, expected a whole number" + ("" if least is None else f" of {least} or more")
        )


def _probability(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not 0 <= value <= 1:
        raise UsageError(f"{name}: found {value!r}, expected a number from 0 to 1")
    return float(value)


def _texts(record: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if name in record and (not isinstance(record[name], str) or not record[name]):
            raise UsageError(f"{name}: found {record[name]!r}, expected text")


def read_any(path: str | Path) -> Trace:
    """A trace in any native form, by suffix. Raises UsageError for other files, naming the import command."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"there is no trace file {str(path)!r}")
    if path.name.endswith(".parquet"):
        from simkit.trace.parquet import read_parquet

        return read_parquet(path)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return read(path)
    raise UsageError(
        f"{path.name!r} is no native trace (.jsonl, .jsonl.gz, .parquet): turn it into one with `simkit trace import FORMAT {path.name}`"
    )
