"""Rows of recorded tables, CSV or JSON Lines, plain or gzipped, as mappings of column name to value."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from simkit.documents import nearest
from simkit.model import UsageError
from simkit.trace.importers.tally import Tally

Row = Mapping[str, Any]
Unpack = Callable[[Row], Iterable[Row]]


def rows(path: Path, columns: Mapping[str, str], tally: Tally, unpack: Unpack | None = None) -> Iterator[Row]:
    """The usable rows of a file in file order; every row is counted in `tally`, malformed ones as dropped.

    `columns` (field -> column name) must all be there: in the header of a CSV file, in at least one row of JSON Lines. `unpack` turns
    one JSON line into several rows. Raises UsageError for a missing column and for a file that cannot be read.
    """
    try:
        with _text(path) as file:
            if ".jsonl" in path.suffixes or ".json" in path.suffixes:
                yield from _json_rows(path, file, columns, tally, unpack)
            else:
                yield from _csv_rows(path, file, columns, tally)
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def _text(path: Path) -> IO[str]:
    """UTF-8 with or without a byte order mark; line ends are left to the parsers."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _csv_rows(path: Path, file: IO[str], columns: Mapping[str, str], tally: Tally) -> Iterator[Row]:
    reader = csv.DictReader(file)
    names = list(reader.fieldnames or ())
    _refuse_missing(path, columns, names)
    for column in columns.values():
        if names.count(column) > 1:
            raise UsageError(f"{path}:1: there are {names.count(column)} columns {column!r}")
    for row in reader:
        tally.read += 1
        if None in row or None in row.values():
            tally.drop("a row with too many or too few fields")
        else:
            yield row


def _json_rows(
    path: Path, file: IO[str], columns: Mapping[str, str], tally: Tally, unpack: Unpack | None
) -> Iterator[Row]:
    seen: dict[str, None] = {}
    for line in file:
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_float=Decimal)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            tally.read += 1
            tally.drop("a line that is no JSON record")
            continue
        for row in (record,) if unpack is None else unpack(record):
            tally.read += 1
            seen.update(dict.fromkeys(row))
            yield row
    if seen:
        _refuse_missing(path, columns, seen)


def _refuse_missing(path: Path, columns: Mapping[str, str], names: Collection[str]) -> None:
    for field, column in columns.items():
        if column not in names:
            raise UsageError(
                f"{path}:1: there is no column {column!r} (for {field}){nearest(column, names)} (columns: {', '.join(names) or 'none'})"
            )
