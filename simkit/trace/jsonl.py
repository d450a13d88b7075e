"""Trace files: JSON Lines (a header line, then one run per line; ``.gz`` too) and Parquet. Reading what was written gives the same
trace, writing what was read gives the same bytes.

Times are decimal seconds that name whole nanoseconds exactly; they are read through Decimal, never through float.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from simkit.files import write_atomically
from simkit.model import NS_PER_S, UsageError
from simkit.trace.build import FLAGS, TraceBuilder, text_luck
from simkit.trace.records import IN_FILES, RecordErrors, shown
from simkit.trace.table import SCHEMA, TaskColumns, Trace

_MOST_PROBLEMS = 20
_MAGIC = "simkit.trace/"
SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")


# --- writing -----------------------------------------------------------------------------------------------


def write(trace: Trace, path: str | Path) -> None:
    """Write a trace; the suffix decides: ``.jsonl``, ``.jsonl.gz`` or ``.parquet``. The file appears whole or not at all.

    Raises UsageError for another suffix, when the file cannot be written, and for Parquet without pyarrow.
    """
    path = Path(path)
    if not path.name.endswith(SUFFIXES):
        raise UsageError(
            f"cannot write a trace to {path.name!r}: expected {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        )
    if path.name.endswith(".parquet"):
        from simkit.trace.parquet import write_parquet

        write_parquet(trace, path)
        return
    with write_atomically(path) as raw, _text_to(raw, zipped=path.name.endswith(".gz")) as text:
        text.write(_header_line(trace) + "\n")
        text.writelines(line + "\n" for line in _run_lines(trace))


@contextmanager
def _text_to(raw: Any, *, zipped: bool) -> Iterator[io.TextIOWrapper]:
    """A text layer that leaves no trace of when it was written."""
    binary = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) if zipped else raw
    text = io.TextIOWrapper(binary, encoding="utf-8", newline="\n")
    try:
        yield text
        text.flush()
    finally:
        try:
            text.detach()
        finally:
            if zipped:
                binary.close()


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _header_line(trace: Trace) -> str:
    header = {"schema": SCHEMA, "source": trace.source, "seed": trace.seed, "warnings": dict(trace.warnings)}
    return _quoted({key: value for key, value in header.items() if value not in (None, "", {})})


def decimal_seconds(nanoseconds: int) -> str:
    """The shortest decimal of seconds that is exactly these ns: 1500000000 -> "1.5"."""
    whole, rest = divmod(nanoseconds, NS_PER_S)
    return f"{whole}.{rest:09d}".rstrip("0") if rest else str(whole)


def _run_lines(trace: Trace) -> Iterator[str]:
    """One line per run, defaults left out, keys in the order of the trace document."""
    runs = trace.runs
    tenants, classes, workflows = ([_quoted(n) for n in t] for t in (trace.tenants, trace.classes, trace.workflows))
    sessions = [_quoted(session) for session in trace.sessions]
    first = runs.first_task.tolist()
    tasks = _task_texts(trace)
    columns = zip(
        runs.run_id, runs.arrival_ns.tolist(), runs.tenant.tolist(), runs.cls.tolist(), runs.priority.tolist(),
        runs.deadline_ns.tolist(), runs.workflow.tolist(), runs.session.tolist(), runs.luck.tolist(), runs.defect_p.tolist(),
        runs.detect_p.tolist(), runs.max_rework.tolist(), first, first[1:], strict=False,
    )  # fmt: skip
    for (
        run_id,
        arrival,
        tenant,
        cls,
        priority,
        deadline,
        workflow,
        session,
        luck,
        defect,
        detect,
        rework,
        a,
        b,
    ) in columns:
        parts = [f'{{"run_id": {_quoted(run_id)}, "arrival_s": {decimal_seconds(arrival)}']
        parts.append(f'"tenant": {tenants[tenant]}, "class": {classes[cls]}')
        if priority:
            parts.append(f'"priority": {priority}')
        if deadline >= 0:
            parts.append(f'"deadline_s": {decimal_seconds(deadline)}')
        parts.append(f'"workflow": {workflows[workflow]}')
        if session >= 0:
            parts.append(f'"session": {sessions[session]}')
        if luck != text_luck(run_id):
            parts.append(f'"luck": {luck}')
        if defect:
            parts.append(f'"defect_p": {_quoted(defect)}')
        if detect != 1:
            parts.append(f'"detect_p": {_quoted(detect)}')
        if rework:
            parts.append(f'"max_rework": {rework}')
        parts.append(f'"tasks": [{", ".join(tasks[a:b])}]}}')
        yield ", ".join(parts)


def _task_texts(trace: Trace) -> list[str]:
    """Each task as JSON."""
    tasks = trace.tasks
    ids, pools, tiers, keys = (
        [_quoted(name) for name in table] for table in (trace.task_ids, trace.pools, trace.tiers, trace.cache_keys)
    )
    demands = [_quoted(dict(sorted(demand.items()))) if demand else "" for demand in trace.demands]
    flags = _flag_texts(tasks)
    after, task_id = tasks.after.tolist(), tasks.task_id.tolist()
    pointers = tasks.after_ptr.tolist()
    columns = zip(
        task_id, tasks.pool.tolist(), tasks.service_ns.tolist(), tasks.estimate_ns.tolist(), tasks.demand.tolist(),
        tasks.tier.tolist(), tasks.tokens_in.tolist(), tasks.tokens_out.tolist(), tasks.cost_usd.tolist(), tasks.cache_key.tolist(),
        flags, pointers, pointers[1:], strict=False,
    )  # fmt: skip
    texts = []
    for number, pool, service, estimate, demand, tier, tokens_in, tokens_out, cost, key, flag, a, b in columns:
        text = f'{{"task_id": {ids[number]}, '
        if a < b:
            text += f'"after": [{", ".join([ids[task_id[before]] for before in after[a:b]])}], '
        text += f'"pool": {pools[pool]}, "service_s": {decimal_seconds(service)}'
        if estimate != service:
            text += f', "estimate_s": {decimal_seconds(estimate)}'
        if demands[demand]:
            text += f', "demand": {demands[demand]}'
        if tier >= 0:
            text += f', "tier": {tiers[tier]}'
        if tokens_in:
            text += f', "tokens_in": {tokens_in}'
        if tokens_out:
            text += f', "tokens_out": {tokens_out}'
        if cost:
            text += f', "cost_usd": {_quoted(cost)}'
        if key >= 0:
            text += f', "cache_key": {keys[key]}'
        texts.append(text + flag + "}")
    return texts


def _flag_texts(tasks: TaskColumns) -> Sequence[str]:
    """Per task: the flags that are set."""
    number = np.zeros(len(tasks.pool), dtype=np.int64)
    for bit, flag in enumerate(FLAGS):
        number |= getattr(tasks, flag).astype(np.int64) << bit
    kinds = [
        "".join(f', "{flag}": true' for bit, flag in enumerate(FLAGS) if kind >> bit & 1)
        for kind in range(2 ** len(FLAGS))
    ]
    return [kinds[kind] for kind in number.tolist()]


# --- reading -----------------------------------------------------------------------------------------------


def read(path: str | Path) -> Trace:
    """Read a native trace. Raises UsageError naming file and line of every problem (at most 20)."""
    path = Path(path)
    problems: list[str] = []
    builder = TraceBuilder(IN_FILES)
    header: dict[str, Any] | None = None
    runs = 0
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            record = _parse(line)
            if header is None:
                header = {}
                header = _header(record)
            else:
                runs += 1
                builder.add(record)
        except RecordErrors as error:
            problems.extend(f"{path}:{number}: {problem}" for problem in error.problems)
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
        if len(problems) >= _MOST_PROBLEMS:
            problems[_MOST_PROBLEMS:] = ["reading stopped here: there may be more"]
            break
    if not problems and not runs:
        problems.append(f"{path}: the trace is empty: it has no runs")
    if problems:
        raise UsageError("\n".join(problems))
    return builder.build(**(header or {}))


def _lines(path: Path) -> Iterator[str]:
    try:
        if path.name.endswith(".gz"):
            with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
                yield from file
        else:
            with path.open(encoding="utf-8", newline="\n") as file:
                yield from file
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"found {name}, expected a finite number")


def _parse(line: str) -> dict[str, Any]:
    """A line as a record. Raises ValueError."""
    try:
        record = json.loads(line, parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a JSON record: {error}") from None
    if not isinstance(record, dict):
        raise ValueError(f"found {shown(record)}, expected a record in braces")
    return record


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is given twice")
    return record


def _header(record: dict[str, Any]) -> dict[str, Any]:
    """What the header says of the trace. Raises RecordErrors."""
    schema = record.get("schema")
    if schema != SCHEMA:
        known = isinstance(schema, str) and schema.startswith(_MAGIC)
        text = (
            f"found schema {schema!r}, this version reads {SCHEMA}"
            if known
            else f"expected a header {{'schema': {SCHEMA!r}}}"
        )
        raise RecordErrors([text.replace("'", '"')])
    problems = [
        f"unknown key {key!r} in the header" for key in record if key not in ("schema", "source", "seed", "warnings")
    ]
    source, seed, warnings = record.get("source", ""), record.get("seed"), record.get("warnings", {})
    if not isinstance(source, str):
        problems.append(f"source: found {shown(source)}, expected text")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        problems.append(f"seed: found {shown(seed)}, expected a whole number of 0 or more")
    counts = warnings.values() if isinstance(warnings, dict) else [None]
    if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts):
        problems.append(f"warnings: found {shown(warnings)}, expected texts with counts")
    if problems:
        raise RecordErrors(problems)
    return {"source": source, "seed": seed, "warnings": warnings}


def read_any(path: str | Path) -> Trace:
    """A trace in any native form, by suffix. Raises UsageError for other files, naming the import command."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"there is no trace file {str(path)!r}")
    if path.name.endswith(".parquet"):
        from simkit.trace.parquet import read_parquet

        return read_parquet(path)
    if path.name.endswith(SUFFIXES):
        return read(path)
    raise UsageError(
        f"{path.name!r} is no native trace ({', '.join(SUFFIXES)}): turn it into one with `simkit trace import FORMAT {path.name}`"
    )


def convert(source: str | Path, target: str | Path) -> Trace:
    """Write the trace in `source` to `target` in the form that its suffix names. Raises UsageError."""
    trace = read_any(source)
    write(trace, target)
    return trace
