"""Flat tables: one request per row, CSV or JSON Lines, with a column map. Covers LLM request logs and the like.

A row becomes a run of one task. Its service time is a column, or follows from tokens by a stated model:
``overhead + prefill x tokens in + decode x tokens out``. Without either the import is refused: a service time is never invented.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from simkit.documents import nearest
from simkit.model import NS_PER_S, UsageError
from simkit.trace.build import TraceBuilder
from simkit.trace.importers.tally import Tally
from simkit.trace.table import Trace

FIELDS = (
    "arrival",
    "tenant",
    "class",
    "priority",
    "tokens_in",
    "tokens_out",
    "service",
    "deadline",
    "run_id",
    "cache_key",
)
_UNITS_NS = {"s": NS_PER_S, "ms": 10**6, "us": 10**3, "ns": 1}
_BAD = "a field that cannot be read"


@dataclass(frozen=True)
class TokenModel:
    """Service time from tokens, in ns: `overhead_ns` + `prefill_ns` x tokens in + `decode_ns` x tokens out."""

    overhead_ns: int = 0
    prefill_ns: int = 0
    decode_ns: int = 0

    def service_ns(self, tokens_in: int, tokens_out: int) -> int:
        return self.overhead_ns + self.prefill_ns * tokens_in + self.decode_ns * tokens_out

    @property
    def text(self) -> str:
        return f"service = {self.overhead_ns} ns + {self.prefill_ns} ns x tokens in + {self.decode_ns} ns x tokens out"


@dataclass(frozen=True)
class FlatFormat:
    """How to read a table: `columns` maps our fields to its column names; `time` is the unit of arrivals: s, ms, us, ns or iso."""

    columns: Mapping[str, str]
    time: str = "s"
    service_unit: str = "s"
    prefix: Mapping[str, str] = field(
        default_factory=dict
    )  # stripped from names, e.g. {"tenant": "dummy-lora-7b-rank-8-"}


PRESETS: dict[str, FlatFormat] = {
    "azure-llm": FlatFormat(
        {"arrival": "TIMESTAMP", "tokens_in": "ContextTokens", "tokens_out": "GeneratedTokens"}, "iso"
    ),
    "vtc": FlatFormat(
        {
            "arrival": "req_time_s",
            "tenant": "client",
            "tokens_in": "prompt_len",
            "tokens_out": "output_len",
            "run_id": "req_id",
        },
        "s",
        prefix={"tenant": "dummy-lora-7b-rank-8-"},
    ),
}


def import_flat(
    paths: Sequence[str | Path],
    layout: FlatFormat,
    *,
    model: TokenModel | None = None,
    pool: str = "model",
    tenant: str | None = None,
    cls: str = "default",
) -> Trace:
    """Read tables into one trace; several files are merged by time.

    `tenant` names everybody's tenant where no column does (default: the file's name). Rows out of order are sorted and counted. Raises
    UsageError for missing columns, for a table without service times and without a `model`, and for one without a usable row.
    """
    unknown = [name for name in layout.columns if name not in FIELDS]
    if unknown:
        raise UsageError(
            f"--map: there is no field {unknown[0]!r}{nearest(unknown[0], FIELDS)} (fields: {', '.join(FIELDS)})"
        )
    if "arrival" not in layout.columns:
        raise UsageError("--map: the column of arrival is missing")
    if model is None and "service" not in layout.columns:
        raise UsageError(
            "no service times: map a service column, or give the token model (--overhead, --prefill, --decode)"
        )
    if model is not None and not {"tokens_in", "tokens_out"} <= set(layout.columns):
        raise UsageError("the token model needs the columns tokens_in and tokens_out")
    tally = Tally()
    rows: list[tuple[int, int, dict[str, Any]]] = []
    for path in map(Path, paths):
        label = tenant or path.name.split(".")[0]
        for record in _records(path, layout):
            tally.read += 1
            run = _run(record, layout, model, pool, label, cls, tally)
            if run is not None:
                rows.append((run["arrival_ns"], len(rows), run))
    if not rows:
        raise UsageError(f"no usable row in {', '.join(map(str, paths))}: {tally.dropped or 'the file is empty'}")
    return _build(rows, tally, paths, model, absolute=layout.time == "iso")


def _build(
    rows: list[tuple[int, int, dict[str, Any]]],
    tally: Tally,
    paths: Sequence[str | Path],
    model: TokenModel | None,
    *,
    absolute: bool,
) -> Trace:
    late = 0
    latest = rows[0][0]
    for arrival, _, _ in rows:
        late += arrival < latest
        latest = max(latest, arrival)
    tally.note("rows sorted by time", late)
    rows.sort(key=lambda row: (row[0], row[1]))
    origin = rows[0][0] if absolute else min(0, rows[0][0])
    builder = TraceBuilder()
    for _, number, run in rows:
        run["arrival_ns"] -= origin
        run.setdefault("run_id", f"r{number}")
        builder.add(run)
    tally.emitted = len(rows)
    source = "flat: " + ", ".join(Path(path).name for path in paths)
    if model is not None:
        source += f"; {model.text}"
    return builder.build(source=source, warnings=tally.close())


def _records(path: Path, layout: FlatFormat) -> Iterator[Mapping[str, Any]]:
    """Rows of one file as mappings of column name to text or number."""
    try:
        opener = gzip.open if path.name.endswith(".gz") else open
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            if ".jsonl" in path.suffixes:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        yield _json_row(line, path, number)
            else:
                reader = csv.DictReader(file)
                _refuse_missing(path, layout, reader.fieldnames or ())
                yield from reader
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def _json_row(line: str, path: Path, number: int) -> Mapping[str, Any]:
    try:
        row = json.loads(line, parse_float=Decimal)
    except ValueError as error:
        raise UsageError(f"{path}:{number}: not a JSON record: {error}") from None
    if not isinstance(row, dict):
        raise UsageError(f"{path}:{number}: found {type(row).__name__}, expected a record")
    return row


def _refuse_missing(path: Path, layout: FlatFormat, names: Sequence[str]) -> None:
    for our_name, column in layout.columns.items():
        if column not in names:
            raise UsageError(
                f"{path}:1: there is no column {column!r} (for {our_name}){nearest(column, names)} (columns: {', '.join(names) or 'none'})"
            )


def _run(
    record: Mapping[str, Any],
    layout: FlatFormat,
    model: TokenModel | None,
    pool: str,
    label: str,
    cls: str,
    tally: Tally,
) -> dict[str, Any] | None:
    """One row as a run; None, counted by reason, when it cannot be one."""
    columns = layout.columns

    def value(name: str) -> Any:
        found = record.get(columns[name]) if name in columns else None
        return None if found in (None, "") else found

    try:
        arrival = _time_ns(value("arrival"), layout.time)
        tokens_in, tokens_out = _whole(value("tokens_in")), _whole(value("tokens_out"))
        if "service" in columns:
            service = _number_ns(value("service"), layout.service_unit)
        else:
            assert model is not None
            service = model.service_ns(tokens_in, tokens_out)
        deadline = _number_ns(value("deadline"), layout.service_unit) if value("deadline") is not None else None
        priority = _whole(value("priority"))
    except (ValueError, InvalidOperation, TypeError, OverflowError):
        tally.drop(_BAD)
        return None
    if tokens_in < 0 or tokens_out < 0 or service < 0:
        tally.drop("a negative amount")
        return None
    task: dict[str, Any] = {"pool": pool, "service_ns": service, "tokens_in": tokens_in, "tokens_out": tokens_out}
    if value("cache_key") is not None:
        task["cache_key"] = str(value("cache_key"))
    run: dict[str, Any] = {
        "arrival_ns": arrival, "tenant": _name(value("tenant"), layout.prefix.get("tenant", ""), label),
        "class": _name(value("class"), "", cls), "priority": priority, "tasks": [task],
    }  # fmt: skip
    if deadline is not None:
        run["deadline_ns"] = deadline
    if value("run_id") is not None:
        run["run_id"] = str(value("run_id"))
    return run


def _name(value: Any, prefix: str, default: str) -> str:
    return default if value is None else str(value).removeprefix(prefix)


def _whole(value: Any) -> int:
    if value is None:
        return 0
    number = Decimal(str(value))
    if number != number.to_integral_value():
        raise ValueError(f"{value} is not whole")
    return int(number)


def _number_ns(value: Any, unit: str) -> int:
    number = Decimal(str(value))
    if not number.is_finite():
        raise ValueError(f"{value} is not finite")
    return int((number * _UNITS_NS[unit]).to_integral_value())


def _time_ns(value: Any, unit: str) -> int:
    """A time in ns: a number in `unit`, or an ISO date and time with any number of decimals (zone: UTC where none is given)."""
    if value is None:
        raise ValueError("no time")
    if unit != "iso":
        nanoseconds = _number_ns(value, unit)
        if nanoseconds < 0:
            raise ValueError("negative time")
        return nanoseconds
    text = str(value).strip()
    head, dot, tail = text.partition(".")
    digits = ""
    while dot and tail and tail[0].isdigit():
        digits, tail = digits + tail[0], tail[1:]
    moment = datetime.fromisoformat(head + tail)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    whole = since.days * 86400 + since.seconds
    return whole * NS_PER_S + int((digits + "0" * 9)[:9])


def parse_map(text: str) -> dict[str, str]:
    """``arrival=TIMESTAMP,tokens_in=ContextTokens`` as a mapping. Raises UsageError."""
    columns = {}
    for part in text.split(","):
        name, sign, column = part.partition("=")
        if not sign or not name.strip() or not column.strip():
            raise UsageError(f"--map: found {part!r}, expected field=column")
        columns[name.strip()] = column.strip()
    return columns


def time_unit(text: str) -> str:
    """A unit of time for arrivals. Raises UsageError."""
    if text not in (*_UNITS_NS, "iso"):
        raise UsageError(f"found {text!r}, expected one of {', '.join((*_UNITS_NS, 'iso'))}")
    return text
