"""Run logs as files: what is written is what is read, byte for byte, and the digest speaks of the content alone."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from log_builder import LogBuilder

from simkit.log import TABLES, RowTable, RunLog, columns_of, empty
from simkit.log_io import digest, read, write
from simkit.model import UsageError

FORMS = ["log.jsonl", "log.jsonl.gz", "log.parquet"]


def small_log(tenant: str = 'Ünïted "quotes"\n') -> RunLog:
    """Every table has an entry; values that JSON has no word for are among them."""
    builder = LogBuilder(pools={"gpu": 2, "api": None}, horizon=60.0, class_limits={"c": 5.0})
    run = builder.run("r\t1", 0.0, 4.0, tenant=tenant, deadline=10.0)
    row = builder.row(run, 2.0, 3.0, 4.0, cost=0.1, group=1, verifies=True)
    builder.attempt(row, 0.0, 0.5, 1.0, "error:api")
    builder.run("r2", 1.0, 1.0, "rejected", reason="queue_limit:all", admitted=None)
    builder.hold(2.0, 3.0, "share_cap:tenant=a", pool="gpu", group=1)
    builder.event(1.0, "api_error", row=row, reason="api", value=float("inf"))
    builder.event(1.0, "reject", run=1, reason="queue_limit:all", value=float("nan"))
    builder.event(2.0, "mode", reason="severe", value=0.1 + 0.2)
    builder.sample(2.0, 0.95, "severe")
    builder.use(1, "api", 3)
    return builder.build()


def bytes_of(path: Path) -> dict[str, bytes]:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return {file.name: file.read_bytes() for file in files}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_is_what_is_read(tmp_path: Path, form: str) -> None:
    log = small_log()
    write(log, tmp_path / form)
    back = read(tmp_path / form)
    assert back.header == log.header
    assert back.names == log.names
    assert tuple(back.reasons) == tuple(log.reasons)
    for table in TABLES:
        for name, column in columns_of(getattr(log, table)).items():
            found = getattr(getattr(back, table), name)
            np.testing.assert_array_equal(np.asarray(found), np.asarray(column), err_msg=f"{table}.{name}")
            assert np.asarray(found).dtype == np.asarray(column).dtype
    assert digest(back) == digest(log)


@pytest.mark.parametrize("form", FORMS)
def test_equal_logs_give_equal_bytes_and_reading_and_writing_again_changes_none(tmp_path: Path, form: str) -> None:
    for name in ("one", "two"):
        write(small_log(), tmp_path / name / form)
    write(read(tmp_path / "one" / form), tmp_path / "again" / form)
    first = bytes_of(tmp_path / "one" / form)
    assert first == bytes_of(tmp_path / "two" / form)
    assert first == bytes_of(tmp_path / "again" / form)


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_log_survives(tmp_path: Path, form: str) -> None:
    log = LogBuilder().build()
    write(log, tmp_path / form)
    assert digest(read(tmp_path / form)) == digest(log)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_takes_the_place_of_an_older_one_and_leaves_nothing_beside_it(tmp_path: Path, form: str) -> None:
    write(small_log("old"), tmp_path / form)
    write(small_log("new"), tmp_path / form)
    assert read(tmp_path / form).names["tenant"][0] == "new"
    assert [path.name for path in tmp_path.iterdir()] == [form]


def test_lines_tell_one_entry_each_under_a_header_that_counts_them(tmp_path: Path) -> None:
    write(small_log(), tmp_path / "log.jsonl")
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert records[0]["schema"] == "simkit.log/1"
    # by hand: 2 runs + 1 row + 1 attempt + 1 hold + 3 events + 1 sample + 1 capacity + 1 task + 1 use
    assert len(records) == 1 + 12
    assert records[1]["table"] == "runs"
    assert records[1]["finished_ns"] == 4_000_000_000


def test_the_digest_does_not_depend_on_column_types_or_on_who_made_the_log() -> None:
    log, other = small_log(), small_log()
    other.rows = RowTable(**{name: column.astype(np.int32) if column.dtype == np.int64 and (abs(column) < 2**31).all() else column
                             for name, column in columns_of(log.rows).items()})  # fmt: skip
    other.header = {**other.header, "versions": {"python": "9.9"}, "kernel_events": 77}
    assert digest(log) == digest(other)


@pytest.mark.parametrize(
    "table", ["runs", "rows", "attempts", "holds", "events", "samples", "capacity", "tasks", "uses"]
)
def test_the_digest_changes_with_every_table(table: str) -> None:
    log, other = small_log(), small_log()
    for name, column in columns_of(getattr(other, table)).items():
        if name != "run_id":
            changed = np.array(column)
            changed[-1] = not changed[-1] if changed.dtype == bool else changed[-1] + 1
            setattr(getattr(other, table), name, changed)
            assert digest(log) != digest(other), name
            setattr(getattr(other, table), name, column)
    assert digest(log) == digest(other)


def test_the_digest_changes_with_run_ids_header_and_reasons() -> None:
    log = small_log()
    seen = {digest(log)}
    log.runs.run_id = ["r\t1r", "2"]  # the same letters, cut differently
    seen.add(digest(log))
    log.header["seed"] = 1
    seen.add(digest(log))
    log.reasons = (*log.reasons, "more")
    seen.add(digest(log))
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (0, '{"schema":"simkit.log/2"}', "found schema 'simkit.log/2', this version reads simkit.log/1"),
        (0, "not json", ":1: not a JSON record"),
        (0, "[1]", ":1: found list, expected a record in braces"),
        (0, '{"schema":"simkit.log/1"}', "the first record lacks"),
        (2, '{"table":"nowhere"}', ":3: no entry of a table that line 1 describes"),
        (3, '{"table":"rows","run":0}', ":4: no entry of a table that line 1 describes"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: int, text: str, message: str) -> None:
    path = tmp_path / "log.jsonl"
    write(small_log(), path)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[line] = text
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read(path)
    assert message in str(caught.value)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(small_log(), path)
    path.write_text("\n".join(path.read_text(encoding="utf-8").splitlines()[:-1]) + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match="uses: found 0 entries, line 1 promises 1"):
        read(path)
    zipped = tmp_path / "log.jsonl.gz"
    write(small_log(), zipped)
    zipped.write_bytes(zipped.read_bytes()[:-20])
    with pytest.raises(UsageError, match="cannot be read"):
        read(zipped)


def test_a_value_of_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(small_log(), path)
    path.write_text(
        path.read_text(encoding="utf-8").replace('"finished_ns":4000000000', '"finished_ns":4.5'), encoding="utf-8"
    )
    with pytest.raises(UsageError, match=r"runs\.finished_ns: not int64"):
        read(path)


def test_a_parquet_folder_that_lost_a_file_is_refused(tmp_path: Path) -> None:
    write(small_log(), tmp_path / "log.parquet")
    (tmp_path / "log.parquet" / "rows.parquet").unlink()
    with pytest.raises(UsageError, match="cannot be read as a run log"):
        read(tmp_path / "log.parquet")


def test_other_suffixes_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected \.jsonl"):
        write(small_log(), tmp_path / "log.csv")
    (tmp_path / "log.csv").touch()
    with pytest.raises(UsageError, match="is no run log"):
        read(tmp_path / "log.csv")
    with pytest.raises(UsageError, match="there is no run log"):
        read(tmp_path / "absent.jsonl")


def test_gz_carries_no_time_and_no_name(tmp_path: Path) -> None:
    write(small_log(), tmp_path / "log.jsonl.gz")
    head = (tmp_path / "log.jsonl.gz").read_bytes()[:10]
    assert head[3] == 0  # flags: no file name
    assert head[4:8] == b"\0\0\0\0"  # mtime
    assert gzip.decompress((tmp_path / "log.jsonl.gz").read_bytes()).startswith(b'{"schema"')


def test_an_empty_table_has_every_column() -> None:
    assert {name: len(column) for name, column in columns_of(empty(RowTable)).items()} == dict.fromkeys(
        RowTable.__slots__, 0
    )
