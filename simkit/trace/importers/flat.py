"""Flat tables: one request per row, CSV or JSON Lines, with a column map. Covers LLM request logs and the like.

A row becomes a run of one task. Its service time is a column, or follows from tokens by a stated model:
``overhead + prefill x tokens in + decode x tokens out``. Without either the import is refused: a service time is never invented.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from simkit.documents import nearest
from simkit.model import NEVER_NS, NS_PER_S, UsageError
from simkit.trace.build import TraceBuilder
from simkit.trace.importers.reading import Row, Unpack, rows
from simkit.trace.importers.tally import Tally
from simkit.trace.records import name as checked_name
from simkit.trace.table import Trace
from simkit.units import format_duration

FIELDS = (
    "arrival", "tenant", "class", "priority", "tokens_in", "tokens_out", "service", "deadline", "run_id", "cache_key",
)  # fmt: skip
_UNITS_NS = {"s": NS_PER_S, "ms": 10**6, "us": 10**3, "ns": 1}
_TEN_YEARS_NS = 3652 * 86400 * NS_PER_S


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
        overhead, prefill, decode = (
            format_duration(part) for part in (self.overhead_ns, self.prefill_ns, self.decode_ns)
        )
        return f"service = {overhead} + {prefill} x tokens in + {decode} x tokens out"


@dataclass(frozen=True)
class FlatFormat:
    """How to read a table: `columns` maps our fields to its column names; `time` is the unit of arrivals: s, ms, us, ns or iso;
    `service_unit` that of service and deadline; `prefix` is stripped from names (of tenants: also from file names that stand for
    tenants), e.g. ``{"tenant": "dummy-lora-"}``; `unpack` turns one JSON line into several rows."""

    columns: Mapping[str, str]
    time: str = "s"
    service_unit: str = "s"
    prefix: Mapping[str, str] = field(default_factory=dict)
    unpack: Unpack | None = None


def import_flat(
    paths: Sequence[str | Path],
    layout: FlatFormat,
    *,
    model: TokenModel | None = None,
    pool: str = "model",
    tenant: str | None = None,
    cls: str = "default",
    notes: Mapping[str, int] | None = None,
) -> Trace:
    """Read tables into one trace; several files are merged by time, and their run ids get the file's name in front.

    `tenant` is everybody's tenant where no column names one (default: the file's name). Dates, and plain numbers that are plainly
    dates (later than ten years), are counted from the first row; other numbers are taken as they are. Rows that cannot be used are
    dropped, rows out of order sorted; both are counted by reason in the trace's warnings. Raises UsageError for missing columns, for a
    table without service times and without a `model`, and for one without a usable row.
    """
    _refuse_layout(layout, model)
    tally = Tally()
    reader = _Reader(layout, model, pool, cls, tally)
    found: list[dict[str, Any]] = []
    for path in map(Path, paths):
        label = tenant or path.name.split(".")[0].removeprefix(layout.prefix.get("tenant", ""))
        latest = -1
        for run in reader.runs(path, label):
            tally.note("rows out of order, sorted by time", int(run["arrival_ns"] < latest))
            latest = max(latest, run["arrival_ns"])
            if len(paths) > 1 and "run_id" in run:
                run["run_id"] = f"{path.name.split('.')[0]}/{run['run_id']}"
            found.append(run)
    for what, count in (notes or {}).items():
        tally.note(what, count)
    if not found:
        raise UsageError(f"no usable row in {', '.join(map(str, paths))}: {tally.dropped or 'there are no rows'}")
    return _build(found, tally, paths, layout, model)


def _refuse_layout(layout: FlatFormat, model: TokenModel | None) -> None:
    columns = layout.columns
    unknown = [name for name in columns if name not in FIELDS]
    if unknown:
        raise UsageError(
            f"--map: there is no field {unknown[0]!r}{nearest(unknown[0], FIELDS)} (fields: {', '.join(FIELDS)})"
        )
    time_unit(layout.time)
    if layout.service_unit not in _UNITS_NS:
        raise UsageError(
            f"found {layout.service_unit!r}, expected one of {', '.join(_UNITS_NS)} as the unit of durations"
        )
    if "arrival" not in columns:
        raise UsageError("--map: the column of arrival is missing")
    if model is None and "service" not in columns:
        raise UsageError(
            "no service times: map a service column, or give the token model (--overhead, --prefill, --decode)"
        )
    if model is not None and "service" in columns:
        raise UsageError("a service column and a token model both give the service time: choose one")
    if model is not None and not {"tokens_in", "tokens_out"} <= set(columns):
        raise UsageError("the token model needs the columns tokens_in and tokens_out")


def _build(
    found: list[dict[str, Any]],
    tally: Tally,
    paths: Sequence[str | Path],
    layout: FlatFormat,
    model: TokenModel | None,
) -> Trace:
    found.sort(key=lambda run: run["arrival_ns"])  # stable: equal times keep file order
    origin = found[0]["arrival_ns"]
    if layout.time != "iso":
        if origin > _TEN_YEARS_NS:
            tally.note("times taken for dates, counted from the first row", len(found))
        else:
            origin = 0
    builder = TraceBuilder()
    for run in found:
        run["arrival_ns"] -= origin
        builder.add(run)
    tally.emitted = len(builder)
    source = "flat: " + ", ".join(Path(path).name for path in paths)
    if layout.time == "iso":
        source += "; times without a zone read as UTC"
    if model is not None:
        source += f"; {model.text}"
    return builder.build(source=source, warnings=tally.close())


class _DropError(Exception):
    """A row that cannot be used; says why."""


class _Reader:
    """Turns rows into records of runs; counts what it cannot use."""

    def __init__(self, layout: FlatFormat, model: TokenModel | None, pool: str, cls: str, tally: Tally) -> None:
        self._layout, self._columns, self._model = layout, layout.columns, model
        self._pool, self._cls, self._tally = pool, cls, tally

    def runs(self, path: Path, label: str) -> Iterator[dict[str, Any]]:
        """The usable rows of one file; `label` is the tenant of rows without one."""
        for row in rows(path, self._columns, self._tally, self._layout.unpack):
            try:
                yield self._run(row, label)
            except _DropError as reason:
                self._tally.drop(str(reason))

    def _run(self, row: Row, label: str) -> dict[str, Any]:
        needed = "tokens_in" if self._model is not None else "service"
        arrival = self._duration(row, "arrival", self._layout.time)
        tokens_in, tokens_out = (self._count(row, name, needed == "tokens_in") for name in ("tokens_in", "tokens_out"))
        if self._model is None:
            service = self._duration(row, "service", self._layout.service_unit)
        else:
            service = self._model.service_ns(tokens_in, tokens_out)
        if service >= NEVER_NS:
            raise _DropError("service is longer than any simulated time")
        task: dict[str, Any] = {
            "pool": self._pool, "service_ns": service, "tokens_in": tokens_in, "tokens_out": tokens_out,
        }  # fmt: skip
        run: dict[str, Any] = {
            "arrival_ns": arrival,
            "tenant": self._name(row, "tenant", label),
            "class": self._name(row, "class", self._cls),
            "priority": self._count(row, "priority", needed=False, signed=True),
            "tasks": [task],
        }
        if self._value(row, "deadline") is not None:
            run["deadline_ns"] = self._duration(row, "deadline", self._layout.service_unit)
        for name, record in (("run_id", run), ("cache_key", task)):
            if self._value(row, name) is not None:
                record[name] = self._name(row, name, "")
        return run

    def _value(self, row: Row, name: str) -> Any:
        """None when the field is not mapped, missing or blank."""
        found = row.get(self._columns[name]) if name in self._columns else None
        return None if found is None or found == "" else found

    def _needed(self, row: Row, name: str) -> Any:
        found = self._value(row, name)
        if found is None:
            raise _DropError(f"{name} is missing")
        return found

    def _duration(self, row: Row, name: str, unit: str) -> int:
        found = self._needed(row, name)
        try:
            nanoseconds = _date_ns(str(found)) if unit == "iso" else _number_ns(found, unit)
        except (ValueError, InvalidOperation, TypeError, OverflowError):
            raise _DropError(f"{name} cannot be read") from None
        if nanoseconds < 0:
            raise _DropError(f"{name} is negative")
        return nanoseconds

    def _count(self, row: Row, name: str, needed: bool, *, signed: bool = False) -> int:
        found = self._needed(row, name) if needed else self._value(row, name)
        if found is None:
            return 0
        try:
            number = _number(found)
        except (ValueError, InvalidOperation, TypeError):
            raise _DropError(f"{name} cannot be read") from None
        if number != number.to_integral_value() or abs(number) >= 2**62:
            raise _DropError(f"{name} is no whole number")
        if number < 0 and not signed:
            raise _DropError(f"{name} is negative")
        return int(number)

    def _name(self, row: Row, name: str, default: str) -> str:
        found = self._value(row, name)
        if found is None:
            self._tally.note(f"rows without {name}", int(name in self._columns))
            return default
        try:
            return checked_name(str(found).removeprefix(self._layout.prefix.get(name, "")))
        except ValueError:
            raise _DropError(f"{name} is no name") from None


def _number(value: Any) -> Decimal:
    if isinstance(value, bool):
        raise TypeError("a truth value is no number")
    number = Decimal(str(value).strip())
    if not number.is_finite():
        raise ValueError(f"{value} is not finite")
    return number


def _number_ns(value: Any, unit: str) -> int:
    number = _number(value) * _UNITS_NS[unit]
    if abs(number) >= NEVER_NS:
        raise ValueError(f"{value} {unit} is longer than any simulated time")
    return int(number.to_integral_value())


def _date_ns(text: str) -> int:
    """ns since 1970 of an ISO date and time with any number of decimals (zone: UTC where none is given), rounded to the nearest ns."""
    head, dot, tail = text.strip().partition(".")
    digits = tail[: len(tail) - len(tail.lstrip("0123456789"))] if dot else ""
    moment = datetime.fromisoformat(head + tail[len(digits) :])
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    fraction = int((Decimal(f"0.{digits or 0}") * NS_PER_S).to_integral_value())
    return (since.days * 86400 + since.seconds) * NS_PER_S + fraction


def parse_map(text: str) -> dict[str, str]:
    """``arrival=TIMESTAMP,tokens_in=ContextTokens`` as a mapping. Raises UsageError."""
    columns: dict[str, str] = {}
    for part in text.split(","):
        name, sign, column = (piece.strip() for piece in part.partition("="))
        if not sign or not name or not column:
            raise UsageError(f"--map: found {part!r}, expected field=column")
        if name in columns:
            raise UsageError(f"--map: {name} is given twice")
        columns[name] = column
    return columns


def time_unit(text: str) -> str:
    """A unit of time for arrivals. Raises UsageError."""
    if text not in (*_UNITS_NS, "iso"):
        raise UsageError(f"found {text!r}, expected one of {', '.join((*_UNITS_NS, 'iso'))}")
    return text
