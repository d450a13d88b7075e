"""Run logs as files, and their digest.

JSON Lines (``.jsonl``, ``.jsonl.gz``): the first line holds header, names, reasons, and of each table its columns with their types and its number
of entries; then one line per entry, table by table. Parquet (a folder ending in ``.parquet``): ``header.json`` with the same first record and
one file per table. Codes stay codes, times whole ns. Equal logs give equal bytes (Parquet: with one version of pyarrow), and what was
read is written again byte for byte. Files and folders appear whole or not at all.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from simkit.files import write_atomically, write_text
from simkit.log import SCHEMA, TABLES, RunLog, columns_of
from simkit.model import UsageError

_NOT_CONTENT = ("versions", "scenario", "trace_source", "weights", "kernel_events")
"""Header fields that say how or under which name a result was made, not what it is."""
_SUFFIXES = ".jsonl, .jsonl.gz or .parquet"
_BATCH = 10_000  # lines per write
_INFINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def digest(log: RunLog) -> str:
    """blake2b-128 over the header (but for `_NOT_CONTENT`), names, reasons and every column: equal for equal outcomes on any machine,
    whatever the width of the columns' integers."""
    state = hashlib.blake2b(digest_size=16)
    header = {key: value for key, value in log.header.items() if key not in _NOT_CONTENT}
    names = {key: list(value) for key, value in log.names.items()}
    state.update(json.dumps([header, names, list(log.reasons)], sort_keys=True, default=_plain).encode())
    for table in TABLES:
        for name, column in columns_of(getattr(log, table)).items():
            state.update(f"\0{table}.{name}:{len(column)}\0".encode())
            if name == "run_id":
                state.update(json.dumps([str(text) for text in column], ensure_ascii=False).encode())
                continue
            array = np.asarray(column)
            kind = "<f8" if array.dtype.kind == "f" else "<i8"
            state.update(np.ascontiguousarray(array.astype(kind, copy=False)).data)
    return state.hexdigest()


def write(log: RunLog, path: str | Path) -> None:
    """Write `log`; the suffix decides: ``.jsonl``, ``.jsonl.gz`` or ``.parquet`` (a folder). Raises UsageError for another suffix, a folder
    that cannot be written, or Parquet without pyarrow."""
    path = Path(path)
    if path.name.endswith(".parquet"):
        _write_folder(log, path)
    elif path.name.endswith((".jsonl", ".jsonl.gz")):
        with write_atomically(path) as raw:
            if path.name.endswith(".gz"):
                with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as zipped:
                    _write_lines(log, zipped)
            else:
                _write_lines(log, raw)
    else:
        raise UsageError(f"cannot write a run log to {path.name!r}: expected {_SUFFIXES}")


def read(path: str | Path) -> RunLog:
    """Read a run log. Raises UsageError naming the file, and the line of a JSON Lines file, for whatever is not one."""
    path = Path(path)
    if not path.exists():
        raise UsageError(f"there is no run log {str(path)!r}")
    if path.name.endswith(".parquet"):
        return _read_folder(path)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return _read_lines(path)
    raise UsageError(f"{path.name!r} is no run log: expected {_SUFFIXES}")


# --- JSON Lines ---------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Numpy numbers and arrays as Python's, for JSON. Raises TypeError for anything else."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not plain data")


def _about(log: RunLog) -> dict[str, Any]:
    """The first record of a file."""
    tables = {}
    for table in TABLES:
        columns = columns_of(getattr(log, table))
        kinds = {
            name: "text" if name == "run_id" else str(np.asarray(column).dtype) for name, column in columns.items()
        }
        tables[table] = {"entries": len(next(iter(columns.values()))), "columns": kinds}
    names = {key: list(value) for key, value in log.names.items()}
    return {"schema": SCHEMA, "header": log.header, "names": names, "reasons": list(log.reasons), "tables": tables}


def _dump(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    return text.encode() + b"\n"


def _write_lines(log: RunLog, file: IO[bytes] | gzip.GzipFile) -> None:
    file.write(_dump(_about(log)))
    for table in TABLES:
        columns = columns_of(getattr(log, table))
        keys = ("table", *columns)
        entries = zip(*(_listed(column) for column in columns.values()), strict=True)
        while batch := [_dump(dict(zip(keys, (table, *entry), strict=True))) for entry in islice(entries, _BATCH)]:
            file.write(b"".join(batch))


def _listed(column: Any) -> list[Any]:
    """A column as JSON values; a number that JSON cannot say is told by its name."""
    array = column if isinstance(column, np.ndarray) else None
    if array is None:
        return list(column)
    values: list[Any] = array.tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return [value if math.isfinite(value) else str(value) for value in values]
    return values


def _read_lines(path: Path) -> RunLog:
    lines = enumerate(_lines_of(path), start=1)
    number, line = next(lines, (1, ""))
    about = _checked(_parsed(path, number, line), path)
    columns: dict[str, dict[str, list[Any]]] = {
        table: {name: [] for name in described["columns"]} for table, described in about["tables"].items()
    }
    for number, line in lines:
        record = _parsed(path, number, line)
        target = columns.get(record.pop("table", None))
        if target is None or record.keys() != target.keys():
            raise UsageError(f"{path}:{number}: no entry of a table that line 1 describes")
        for name, value in record.items():
            target[name].append(value)
    for table, described in about["tables"].items():
        found = len(next(iter(columns[table].values())))
        if found != described["entries"]:
            raise UsageError(
                f"{path}: {table}: found {found} entries, line 1 promises {described['entries']}: the file is cut or edited"
            )
    return _assembled(about, columns, path)


def _lines_of(path: Path) -> Iterator[str]:
    try:
        if path.name.endswith(".gz"):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                yield from file
        else:
            with path.open(encoding="utf-8") as file:
                yield from file
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{path}:{number}: not a JSON record: {error}") from error
    if not isinstance(record, dict):
        raise UsageError(f"{path}:{number}: found {type(record).__name__}, expected a record in braces")
    return record


def _checked(about: dict[str, Any], path: Path) -> dict[str, Any]:
    """The first record, if it describes tables that this version knows."""
    if about.get("schema") != SCHEMA:
        raise UsageError(f"{path}: found schema {about.get('schema')!r}, this version reads {SCHEMA}")
    if {"header", "names", "reasons", "tables"} - about.keys():
        raise UsageError(
            f"{path}: the first record lacks {sorted({'header', 'names', 'reasons', 'tables'} - about.keys())}"
        )
    for table, described in about["tables"].items():
        known = TABLES.get(table)
        if known is None or list(described["columns"]) != list(known.__slots__):  # type: ignore[attr-defined]
            raise UsageError(f"{path}: table {table!r} does not have the columns of {SCHEMA}")
    return about


def _assembled(about: Mapping[str, Any], columns: Mapping[str, Mapping[str, Any]], path: Path) -> RunLog:
    tables = {}
    for table, described in about["tables"].items():
        found = {}
        for name, kind in described["columns"].items():
            values = columns[table][name]
            try:
                found[name] = values if kind == "text" else _array(values, kind)
            except (TypeError, ValueError, OverflowError) as error:
                raise UsageError(f"{path}: {table}.{name}: not {kind}: {error}") from error
        tables[table] = TABLES[table](**found)
    names = {key: tuple(value) for key, value in about["names"].items()}
    return RunLog(header=about["header"], names=names, reasons=tuple(about["reasons"]), **tables)


def _array(values: Any, kind: str) -> Any:
    if isinstance(values, np.ndarray):
        return values.astype(kind, copy=False)
    if np.dtype(kind).kind == "f":
        values = [_INFINITE[value] if isinstance(value, str) and value in _INFINITE else value for value in values]
    elif any(type(value) is float or type(value) is str for value in values):
        raise TypeError("found a number with a fraction, or text")
    return np.array(values, dtype=kind)


# --- Parquet ------------------------------------------------------------------------------------------------


def _pyarrow() -> Any:
    try:
        pa = importlib.import_module("pyarrow")
        importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError("Parquet needs pyarrow: install simkit[parquet], or use .jsonl.gz") from None
    return pa


def _write_folder(log: RunLog, path: Path) -> None:
    pa = _pyarrow()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        write_text(fresh / "header.json", _dump(_about(log)).decode())
        for table in TABLES:
            columns = columns_of(getattr(log, table))
            with write_atomically(fresh / f"{table}.parquet") as file:
                pa.parquet.write_table(
                    pa.table({name: pa.array(column) for name, column in columns.items()}), file, compression="zstd"
                )
        fresh.chmod(0o755)
        _replace_folder(fresh, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # gone already when it has taken its place


def _replace_folder(fresh: Path, path: Path) -> None:
    """`fresh` takes the place of `path`. A folder cannot replace a full one in one step: the old one is moved aside first."""
    if not path.exists():
        fresh.replace(path)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    path.replace(aside / "old")
    fresh.replace(path)
    shutil.rmtree(aside)


def _read_folder(path: Path) -> RunLog:
    pa = _pyarrow()
    try:
        about = _checked(_parsed(path / "header.json", 1, (path / "header.json").read_text(encoding="utf-8")), path)
        columns: dict[str, dict[str, Any]] = {}
        for table, described in about["tables"].items():
            found = pa.parquet.read_table(path / f"{table}.parquet")
            if found.num_rows != described["entries"] or found.column_names != list(described["columns"]):
                raise UsageError(f"{path}: {table}.parquet does not hold what header.json says")
            columns[table] = {
                name: found.column(name).to_pylist() if kind == "text" else found.column(name).to_numpy()
                for name, kind in described["columns"].items()
            }
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise UsageError(f"{path}: cannot be read as a run log: {error}") from error
    return _assembled(about, columns, path)
