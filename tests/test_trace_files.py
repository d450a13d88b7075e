"""Trace files: exact round trips, and every way in which a file can be wrong."""

import gzip
import json
import sys
from decimal import Decimal
from pathlib import Path

import hypothesis.strategies as st
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from trace_samples import FOLDER, documents, sample, workload

from simkit.model import UsageError
from simkit.rng import Streams
from simkit.schema import schema
from simkit.trace.build import from_runs
from simkit.trace.jsonl import convert, decimal_seconds, read, read_any, write
from simkit.trace.records import IN_FILES, trace_record_schema
from simkit.trace.synth import synthesise
from simkit.trace.table import Trace, flat_columns

HEADER = '{"schema": "simkit.trace/1"}\n'
RUN = '{"run_id": "a", "arrival_s": 1, "tasks": [{"pool": "p", "service_s": 1}]}\n'
SUFFIXES = ["jsonl", "jsonl.gz", "parquet"]


def rich() -> Trace:
    """A trace with every column in use."""
    task = {
        "task_id": "x", "pool": "gpu", "service_ns": 1, "estimate_ns": 2, "demand": {"gpu": 2, "api": 1}, "tier": "small",
        "tokens_in": 3, "tokens_out": 4, "cost_usd": 0.1, "cache_key": "k", "public": True, "optional": True, "side_effect": True,
        "checkpointable": True,
    }  # fmt: skip
    check = {"task_id": "y", "after": ["x"], "pool": "v", "service_ns": 10**9 + 1, "verifies": True}
    run = {
        "run_id": "größe \"1\"", "arrival_ns": 123, "tenant": "<b>t</b>", "class": "c", "priority": -5, "deadline_ns": 10**12 + 7,
        "workflow": "w", "session": "s", "luck": 2**64 - 1, "defect_p": 0.1, "detect_p": 0.95, "max_rework": 2, "tasks": [task, check],
    }  # fmt: skip
    plain = {"run_id": "b", "arrival_ns": 123, "tasks": [{"pool": "gpu", "service_ns": 0}]}
    return from_runs([run, plain], source='a "quoted" source', seed=7, warnings={"rows dropped: x": 3})


def columns(trace: Trace) -> dict[str, object]:
    found = {
        **flat_columns(trace.runs),
        **{f"task {name}": column for name, column in flat_columns(trace.tasks).items()},
    }
    return {name: column if isinstance(column, list) else column.tolist() for name, column in found.items()}


def problems(tmp_path: Path, text: str) -> list[str]:
    """What reading `text` complains of, without the folder."""
    path = tmp_path / "t.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_any(path)
    return [line.replace(str(path), "t.jsonl") for line in str(caught.value).split("\n")]


# --- round trips -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("make", [rich, lambda: sample("agent_mix")], ids=["rich", "agent_mix"])
def test_reading_what_was_written_gives_the_same_trace(tmp_path, suffix, make):
    trace = make()
    path = tmp_path / f"t.{suffix}"
    write(trace, path)
    back = read_any(path)
    assert columns(back) == columns(trace)
    assert back.digest() == trace.digest()
    assert (back.source, back.seed, dict(back.warnings)) == (trace.source, trace.seed, dict(trace.warnings))


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_writing_what_was_read_gives_the_same_bytes(tmp_path, suffix):
    first, second = tmp_path / f"first.{suffix}", tmp_path / f"second.{suffix}"
    write(rich(), first)
    write(read(first), second)
    assert second.read_bytes() == first.read_bytes()


def test_a_gzipped_trace_holds_no_time_and_no_name(tmp_path):
    write(rich(), tmp_path / "t.jsonl.gz")
    head = (tmp_path / "t.jsonl.gz").read_bytes()[:10]
    assert head[3] == 0  # RFC 1952: no flags, so no file name
    assert head[4:8] == bytes(4)  # no modification time


def test_conversion_goes_through_every_form_without_loss(tmp_path):
    write(rich(), tmp_path / "a.jsonl")
    convert(tmp_path / "a.jsonl", tmp_path / "b.parquet")
    convert(tmp_path / "b.parquet", tmp_path / "c.jsonl.gz")
    convert(tmp_path / "c.jsonl.gz", tmp_path / "d.jsonl")
    assert (tmp_path / "d.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()


@given(st.integers(min_value=0, max_value=2**62 - 1))
def test_decimal_seconds_name_whole_nanoseconds_exactly(nanoseconds):
    text = decimal_seconds(nanoseconds)
    assert Decimal(text) * 10**9 == nanoseconds
    assert not text.endswith((".", ".0"))


_name = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5)
_ns = st.integers(min_value=0, max_value=2**61)


@st.composite
def _runs(draw: st.DrawFn) -> list[dict[str, object]]:
    times = sorted(draw(st.lists(_ns, min_size=1, max_size=4)))
    runs: list[dict[str, object]] = []
    for number, time in enumerate(times):
        tasks: list[dict[str, object]] = []
        for place in range(draw(st.integers(1, 4))):
            before = draw(st.lists(st.integers(0, place - 1), unique=True)) if place else []
            tasks.append(
                {
                    "task_id": f"t{place}", "after": [f"t{other}" for other in before], "pool": draw(_name), "service_ns": draw(_ns),
                    "estimate_ns": draw(_ns), "demand": draw(st.dictionaries(_name, st.integers(1, 9), max_size=2)),
                    "cost_usd": draw(st.floats(0, 1e9)), "tokens_in": draw(st.integers(0, 2**61)), "optional": draw(st.booleans()),
                }
            )  # fmt: skip
        runs.append(
            {
                "run_id": f"{draw(_name)}{number}", "arrival_ns": time, "tenant": draw(_name), "priority": draw(st.integers(-9, 9)),
                "luck": draw(st.integers(0, 2**64 - 1)), "defect_p": draw(st.floats(0, 1)), "tasks": tasks,
            }
        )  # fmt: skip
    return runs


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_runs())
def test_any_trace_survives_both_forms(tmp_path, runs):
    trace = from_runs(runs)
    for suffix in ("jsonl", "parquet"):
        write(trace, tmp_path / f"t.{suffix}")
        assert read_any(tmp_path / f"t.{suffix}").digest() == trace.digest()


# --- what a file says --------------------------------------------------------------------------------------


def test_defaults_are_left_out_of_the_file(tmp_path):
    write(
        from_runs([{"run_id": "a", "arrival_s": 1.5, "tasks": [{"pool": "p", "service_s": 2}]}]), tmp_path / "t.jsonl"
    )
    assert (tmp_path / "t.jsonl").read_text() == (
        '{"schema": "simkit.trace/1"}\n'
        '{"run_id": "a", "arrival_s": 1.5, "tenant": "default", "class": "default", "workflow": "default", '
        '"tasks": [{"task_id": "t0", "pool": "p", "service_s": 2}]}\n'
    )


def test_a_nanosecond_survives_beside_a_hundred_years(tmp_path):
    # 3155760000.000000001 s needs 62 bits of ns: a double would round it to a multiple of 2^-21 s
    line = RUN.replace('"arrival_s": 1', '"arrival_s": 3155760000.000000001')
    (tmp_path / "t.jsonl").write_text(HEADER + line)
    assert read(tmp_path / "t.jsonl").runs.arrival_ns.tolist() == [3_155_760_000_000_000_001]


def test_blank_lines_and_a_missing_final_newline_are_fine(tmp_path):
    (tmp_path / "t.jsonl").write_text("\n" + HEADER + "\n" + RUN.rstrip("\n"))
    assert len(read(tmp_path / "t.jsonl")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.jsonl: the trace is empty: it has no runs"),
        (HEADER, "t.jsonl: the trace is empty: it has no runs"),
        (RUN, 't.jsonl:1: expected a header {"schema": "simkit.trace/1"}'),
        ('{"schema": "simkit.trace/2"}\n' + RUN, 't.jsonl:1: found schema "simkit.trace/2", this version reads simkit.trace/1'),
        ('{"schema": "simkit.trace/1", "sead": 1}\n' + RUN, "t.jsonl:1: unknown key 'sead' in the header"),
        ('{"schema": "simkit.trace/1", "seed": -1}\n' + RUN, "t.jsonl:1: seed: found -1"),
        ('{"schema": "simkit.trace/1", "warnings": [1]}\n' + RUN, "t.jsonl:1: warnings: found [1]"),
        (HEADER + "{", "t.jsonl:2: not a JSON record"),
        (HEADER + "[1]\n", "t.jsonl:2: found [1], expected a record in braces"),
        (HEADER + "[" * 100_000 + "\n", "t.jsonl:2: not a JSON record"),
        (HEADER + RUN.replace('"arrival_s": 1', '"arrival_s": NaN'), "t.jsonl:2: not a JSON record: found NaN"),
        (HEADER + RUN.replace('"arrival_s": 1', '"arrival_s": -0.001'), "arrival_s: found -0.001, a time cannot be negative"),
        (HEADER + RUN.replace('"arrival_s": 1', '"arrival_s": 1e999999999'), "longer than any simulated time"),
        (HEADER + RUN.replace('"arrival_s": 1', '"arrival_s": "1"'), "arrival_s: found '1', expected seconds"),
        (HEADER + RUN.replace('"arrival_s": 1', '"arrival_ns": 1'), "unknown key 'arrival_ns', did you mean 'arrival_s'"),
        (HEADER + RUN.replace('"arrival_s": 1', '"arrival_s": 1, "arrival_s": 2'), "the key 'arrival_s' is given twice"),
        (HEADER + RUN.replace('"service_s": 1', '"service_s": 1, "cost_usd": 1e400'), "cost_usd: found 1E+400"),
        (HEADER + RUN.replace('"service_s": 1', '"service_s": 1, "tier": null'), "tier: found None, expected text"),
        (HEADER + RUN + RUN, "t.jsonl:3: run_id 'a' occurs twice"),
        (HEADER + RUN + RUN.replace('"a"', '"b"').replace('"arrival_s": 1', '"arrival_s": 0.5'), "t.jsonl:3: run 'b' arrives at 0.5 s"),
        (HEADER + RUN.replace("}]", ', "after": ["t0"]}]'), "wait for each other in a circle"),
        (HEADER + RUN.replace("}]", ', "extra": 1}]'), "run 'a', task 't0': unknown key 'extra'"),
    ],
    ids=lambda value: str(value)[:30].strip() if isinstance(value, str) and value.startswith("t.") else "",
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_line(tmp_path, text, message):
    assert message in "\n".join(problems(tmp_path, text))


def test_all_problems_are_found_in_one_pass(tmp_path):
    lines = [RUN.replace('"a"', f'"r{n}"').replace('"pool"', '"pol"') for n in range(3)]
    found = problems(tmp_path, HEADER + "".join(lines))
    assert [line.split(": ")[0] for line in found] == ["t.jsonl:2"] * 2 + ["t.jsonl:3"] * 2 + ["t.jsonl:4"] * 2


def test_at_most_twenty_problems_are_listed(tmp_path):
    found = problems(tmp_path, HEADER + "[]\n" * 30)
    assert len(found) == 21
    assert found[-1] == "reading stopped here: there may be more"


@pytest.mark.parametrize("damage", ["cut short", "flipped", "no gzip", "no text"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "t.jsonl.gz"
    write(sample("agent_mix"), path)
    good = path.read_bytes()
    middle = len(good) // 2
    path.write_bytes(
        {
            "cut short": good[:middle],
            "flipped": good[:middle] + bytes(200) + good[middle + 200 :],
            "no gzip": b"plain",
            "no text": gzip.compress(b"\xff\xfe"),
        }[damage]
    )
    with pytest.raises(UsageError, match=r"t\.jsonl\.gz"):
        read_any(path)


@pytest.mark.parametrize("name", ["t.csv", "t.json", "t"])
def test_other_suffixes_are_refused_with_the_import_command(tmp_path, name):
    (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match="simkit trace import"):
        read_any(tmp_path / name)
    with pytest.raises(UsageError, match="cannot write a trace"):
        write(rich(), tmp_path / name)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="there is no trace file"):
        read_any(tmp_path / "no.jsonl")


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"t.{suffix}"
    write(rich(), path)
    before = path.read_bytes()

    def full(_trace):
        yield "{}"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("simkit.trace.jsonl._run_lines", full)
    with pytest.raises(UsageError, match="No space left on device"):
        write(rich(), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


# --- Parquet -----------------------------------------------------------------------------------------------


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"simkit\[parquet\]"):
        write(rich(), tmp_path / "t.parquet")
    (tmp_path / "t.parquet").write_bytes(b"")
    with pytest.raises(UsageError, match=r"simkit\[parquet\]"):
        read_any(tmp_path / "t.parquet")


def test_parquet_that_is_no_trace_is_refused(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"x": [1]}), tmp_path / "other.parquet")
    with pytest.raises(UsageError, match=r"no simkit\.trace/1 trace"):
        read_any(tmp_path / "other.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        read_any(tmp_path / "broken.parquet")


def test_parquet_is_checked_as_strictly_as_text(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    write(rich(), tmp_path / "t.parquet")
    table = parquet.read_table(tmp_path / "t.parquet")
    place = table.column_names.index("arrival_ns")
    parquet.write_table(table.set_column(place, "arrival_ns", arrow.array([5, 4])), tmp_path / "t.parquet")
    with pytest.raises(UsageError, match="runs must be in order of arrival"):
        read_any(tmp_path / "t.parquet")


# --- the schema and the samples ----------------------------------------------------------------------------


def test_the_published_schema_is_that_of_the_reader():
    published = schema("trace")
    assert {key: published[key] for key in ("description", "anyOf")} == trace_record_schema()
    assert set(IN_FILES.run) == set(published["anyOf"][1]["properties"])


def test_every_line_written_obeys_the_schema(tmp_path):
    write(rich(), tmp_path / "t.jsonl")
    write(sample("agent_mix"), tmp_path / "u.jsonl")
    check = jsonschema.Draft202012Validator(trace_record_schema())
    texts = [(tmp_path / name).read_text(encoding="utf-8") for name in ("t.jsonl", "u.jsonl")]
    lines = [line for text in texts for line in text.rstrip("\n").split("\n")]
    assert [list(check.iter_errors(json.loads(line))) for line in lines] == [[]] * len(lines)
    assert list(check.iter_errors({"arrival_s": -1, "tasks": []}))


def test_the_shipped_samples_are_what_their_documents_make():
    shipped = {path.name.removesuffix(".jsonl.gz"): read_any(path).digest() for path in FOLDER.glob("*.jsonl.gz")}
    assert shipped == {name: sample(name).digest() for name in documents()}


def test_export_and_replay_are_the_same_trace(tmp_path):
    text = "workload: [{name: s, arrivals: {poisson: {rate: 5/s}}, count: 50, task: {pool: p, service: {exp: {mean: 1s}}}}]"
    trace = synthesise(workload(text), streams=Streams(3, 2))
    write(trace, tmp_path / "t.jsonl.gz")
    assert columns(read_any(tmp_path / "t.jsonl.gz")) == columns(trace)
