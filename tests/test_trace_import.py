"""Importers: exact times, honest books, nothing guessed in silence. The recorded files beside the checkout: tests marked `recorded`."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from simkit.model import UsageError
from simkit.trace.build import from_runs, single_task
from simkit.trace.describe import describe
from simkit.trace.importers import PRESETS, import_azure_llm, import_flat
from simkit.trace.importers.flat import FlatFormat, TokenModel, parse_map
from simkit.trace.importers.tally import Tally
from simkit.trace.importers.vtc import read_measured
from simkit.trace.jsonl import read_any, write

S = 1_000_000_000
MODEL = TokenModel(overhead_ns=20_000_000, prefill_ns=350_000, decode_ns=43_000_000)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319601,3180,8"
FLAT = FlatFormat({"arrival": "t", "service": "d"})
RECORDED = Path(__file__).parent.parent.parent / "shared" / "traces"


def recorded(*parts: str) -> Path:
    path = RECORDED.joinpath(*parts)
    if not path.is_file():
        pytest.skip(f"the recorded workloads are not beside the checkout ({path.name})")
    return path


def table(tmp_path: Path, text: str, name: str = "t.csv") -> list[Path]:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return [path]


# --- times and service -------------------------------------------------------------------------------------


def test_seven_decimals_crlf_and_no_final_newline_are_read_exactly(tmp_path):
    trace = import_azure_llm(table(tmp_path, AZURE, "AzureLLMInferenceTrace_code.csv"))
    assert trace.runs.arrival_ns.tolist() == [0, 52_000_100]  # 04.0319601 - 03.9799600
    assert trace.tasks.tokens_in.tolist() == [4808, 3180]
    assert trace.tasks.tokens_out.tolist() == [10, 8]
    assert trace.tenants == ["code"]


def test_the_token_model_gives_service_times_and_stands_in_the_trace(tmp_path):
    trace = import_flat(table(tmp_path, AZURE), PRESETS["azure-llm"], model=MODEL)
    # 20 ms + 0.35 ms x 4808 + 43 ms x 10 = 2132.8 ms; 20 + 1113 + 344 = 1477 ms
    assert trace.tasks.service_ns.tolist() == [2_132_800_000, 1_477_000_000]
    assert "service = 20ms + 350us x tokens in + 43ms x tokens out" in trace.source
    assert "UTC" in trace.source


def test_the_default_token_model_is_counted_as_a_guess(tmp_path):
    assert any("default token model" in what for what in import_azure_llm(table(tmp_path, AZURE)).warnings)
    assert not any(
        "default token model" in what for what in import_azure_llm(table(tmp_path, AZURE), model=MODEL).warnings
    )


@pytest.mark.parametrize(
    ("unit", "text", "expected"),
    [
        ("s", "1.000000001", [0, 1_000_000_001]),
        ("ms", "1.5", [0, 1_500_000]),
        ("us", "7", [0, 7_000]),
        ("ns", "7", [0, 7]),
    ],
)
def test_numbers_are_read_in_their_unit(tmp_path, unit, text, expected):
    trace = import_flat(table(tmp_path, f"t,d\n0,1\n{text},1\n"), FlatFormat({"arrival": "t", "service": "d"}, unit))
    assert trace.runs.arrival_ns.tolist() == expected


@pytest.mark.parametrize(
    ("text", "later_ns"),
    [
        ("2024-05-10 02:00:00.5+02:00", 500_000_000),  # the zone counts
        ("2024-05-10T00:00:00.123456789Z", 123_456_789),
        ("2024-05-10T00:00:00.9999999996Z", S),  # rounded to the nearest ns
        ("2024-05-10 00:00:01", S),
    ],
)
def test_dates_are_read_to_the_nanosecond(tmp_path, text, later_ns):
    trace = import_flat(table(tmp_path, f"t,d\n2024-05-10 00:00:00,1\n{text},1\n"), FlatFormat(FLAT.columns, "iso"))
    assert trace.runs.arrival_ns.tolist() == [0, later_ns]


def test_numbers_that_are_plainly_dates_count_from_the_first_row(tmp_path):
    trace = import_flat(table(tmp_path, "t,d\n1700000000.25,1\n1700000001,1\n"), FLAT)
    assert trace.runs.arrival_ns.tolist() == [0, 750_000_000]
    assert any("taken for dates" in what for what in trace.warnings)
    assert import_flat(table(tmp_path, "t,d\n5,1\n"), FLAT).runs.arrival_ns.tolist() == [5 * S]


def test_all_mapped_columns_reach_the_trace(tmp_path):
    columns = parse_map(
        "arrival=t, tenant=who, class=kind, priority=p, service=d, deadline=by, run_id=id, cache_key=k, tokens_in=i"
    )
    text = 't,who,kind,p,d,by,id,k,i\n0,"a, b",fast,-3,1.5,60,q7,key,12\n1,c,,,2,,q8,,\n'
    trace = import_flat(table(tmp_path, text), FlatFormat(columns), pool="gpu", cls="slow")
    assert trace.runs.run_id == ["q7", "q8"]
    assert [trace.tenants[code] for code in trace.runs.tenant] == ["a, b", "c"]
    assert [trace.classes[code] for code in trace.runs.cls] == ["fast", "slow"]
    assert trace.runs.priority.tolist() == [-3, 0]
    assert trace.runs.deadline_ns.tolist() == [60 * S, -1]
    assert trace.tasks.service_ns.tolist() == [1_500_000_000, 2 * S]
    assert trace.tasks.tokens_in.tolist() == [12, 0]
    assert trace.cache_keys == ["key"]
    assert trace.pools == ["gpu"]
    assert trace.warnings == {"rows read": 2, "rows without class": 1}


# --- books -------------------------------------------------------------------------------------------------


def test_rows_read_are_rows_emitted_or_dropped_by_reason(tmp_path):
    rows = ["0,1", "x,1", ",1", "-1,1", "1,", "1,nan", "1,-2", "1,1,1", "1", "1e30,1", "2,1"]
    trace = import_flat(table(tmp_path, "t,d\n" + "\n".join(rows)), FLAT)
    assert len(trace) == 2
    assert trace.warnings == {
        "rows read": 11,
        "dropped: a row with too many or too few fields": 2,
        "dropped: arrival cannot be read": 2,
        "dropped: arrival is missing": 1,
        "dropped: arrival is negative": 1,
        "dropped: service cannot be read": 1,
        "dropped: service is missing": 1,
        "dropped: service is negative": 1,
    }


def test_books_that_do_not_add_up_are_refused():
    tally = Tally()
    tally.read, tally.emitted = 3, 1
    tally.drop("a reason")
    with pytest.raises(UsageError, match="3 rows read, 1 emitted, 1 dropped"):
        tally.close()


def test_blank_tokens_are_dropped_where_the_service_time_depends_on_them(tmp_path):
    layout = FlatFormat({"arrival": "t", "tokens_in": "i", "tokens_out": "o"})
    trace = import_flat(table(tmp_path, "t,i,o\n0,1,1\n1,,1\n2,1.5,1\n"), layout, model=MODEL)
    assert trace.warnings == {
        "rows read": 3,
        "dropped: tokens_in is missing": 1,
        "dropped: tokens_in is no whole number": 1,
    }


def test_rows_out_of_order_are_sorted_and_counted_and_equal_times_keep_file_order(tmp_path):
    layout = FlatFormat({**FLAT.columns, "run_id": "id"})
    trace = import_flat(table(tmp_path, "t,d,id\n2,1,a\n1,1,b\n2,1,c\n1,1,d\n"), layout)
    assert trace.runs.run_id == ["b", "d", "a", "c"]
    assert trace.warnings == {"rows read": 4, "rows out of order, sorted by time": 2}


def test_files_are_merged_by_time_and_keep_their_ids_and_names_apart(tmp_path):
    layout = FlatFormat({**FLAT.columns, "run_id": "id"})
    files = table(tmp_path, "t,d,id\n0,1,x\n2,1,y\n", "one.csv") + table(tmp_path, "t,d,id\n1,1,x\n", "two.csv")
    trace = import_flat(files, layout)
    assert trace.runs.run_id == ["one/x", "two/x", "one/y"]
    assert [trace.tenants[code] for code in trace.runs.tenant] == ["one", "two", "one"]
    assert trace.warnings == {"rows read": 3}  # neither file is out of order in itself
    assert import_flat(files, layout, tenant="all").tenants == ["all"]


# --- JSON Lines --------------------------------------------------------------------------------------------


def test_json_lines_are_read_like_tables(tmp_path):
    lines = '{"t": 0, "d": 0.1}\nnot json\n[1]\n\n{"t": 1}\n{"t": true, "d": 1}\n'
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    trace = import_flat([path], FLAT)
    assert trace.tasks.service_ns.tolist() == [100_000_000]
    assert trace.warnings == {
        "rows read": 5, "dropped: a line that is no JSON record": 2, "dropped: arrival cannot be read": 1, "dropped: service is missing": 1,
    }  # fmt: skip


def test_a_column_that_no_json_line_has_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"no column 'dur' \(for service\)"):
        import_flat(table(tmp_path, '{"t": 0, "d": 1}\n', "t.jsonl"), FlatFormat({"arrival": "t", "service": "dur"}))


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "more", "message"),
    [
        ({"arrival": "t"}, {}, "no service times"),
        ({"arrival": "t"}, {"model": MODEL}, "needs the columns tokens_in and tokens_out"),
        ({"service": "d"}, {}, "the column of arrival is missing"),
        ({"arrival": "t", "service": "d", "tokens": "x"}, {}, "no field 'tokens'"),
        ({"arrival": "t", "service": "d", "tokens_in": "d", "tokens_out": "d"}, {"model": MODEL}, "choose one"),
        ({"arrival": "time", "service": "d"}, {}, r"t.csv:1: there is no column 'time' \(for arrival\)"),
    ],
    ids=["no service", "model without tokens", "no arrival", "unknown field", "two service times", "no column"],
)
def test_a_map_that_cannot_work_is_refused(tmp_path, columns, more, message):
    with pytest.raises(UsageError, match=message):
        import_flat(table(tmp_path, "t,d\n0,1\n"), FlatFormat(columns), **more)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column 't'"),
        ("t,d\n", "no usable row"),
        ("t,d\nx,1\n", "no usable row"),
        ("t,t,d\n0,0,1\n", "2 columns 't'"),
    ],
)
def test_a_table_without_a_usable_row_is_refused(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        import_flat(table(tmp_path, text), FLAT)


@pytest.mark.parametrize("content", [b"t,d\n0,\xff\n", b"\x1f\x8bbroken"], ids=["no text", "no gzip"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path, content):
    path = tmp_path / ("t.csv.gz" if content.startswith(b"\x1f") else "t.csv")
    path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read"):
        import_flat([path], FLAT)


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    assert len(import_flat(table(tmp_path, "\ufefft,d\n0,1\n"), FLAT)) == 1


def test_a_request_given_twice_is_refused(tmp_path):
    with pytest.raises(UsageError, match="run_id 'x' occurs twice"):
        import_flat(table(tmp_path, "t,d,id\n0,1,x\n1,1,x\n"), FlatFormat({**FLAT.columns, "run_id": "id"}))


@pytest.mark.parametrize("text", ["arrival", "arrival=", "=t", "arrival=t,arrival=u", ""])
def test_a_column_map_that_cannot_be_read_is_refused(text):
    with pytest.raises(UsageError, match="--map"):
        parse_map(text)


@pytest.mark.parametrize("layout", [FlatFormat(FLAT.columns, "h"), FlatFormat(FLAT.columns, "s", "iso")])
def test_units_that_do_not_exist_are_refused(tmp_path, layout):
    with pytest.raises(UsageError, match="expected one of"):
        import_flat(table(tmp_path, "t,d\n0,1\n"), layout)


# --- describe ----------------------------------------------------------------------------------------------


def test_the_description_of_a_small_trace_is_hand_arithmetic():
    facts = describe(single_task([0, S, S, 121 * S], [S, 2 * S, 3 * S, 4 * S], tenant=["a", "b", "b", "b"], pool="gpu"))
    assert (facts["runs"], facts["span_s"], facts["by_tenant"]) == (4, 121.0, {"b": 3, "a": 1})
    assert facts["mean_per_min"] == pytest.approx(4 / (121 / 60))
    assert (facts["peak_per_min"], facts["peak_per_min_bin"], facts["empty_minutes"], facts["peak_per_s"]) == (
        3,
        0,
        1,
        2,
    )
    gaps = np.array([1, 0, 120])
    assert facts["iat_cv"] == pytest.approx(gaps.std(ddof=1) / gaps.mean())
    assert facts["longest_gap_s"] == 120
    counts = np.array([1, 2, *[0] * 119, 1])
    assert facts["iod_1s"] == pytest.approx(counts.var(ddof=1) / counts.mean())
    assert facts["service_s"]["mean"] == 2.5
    assert facts["work_s_by_pool"] == {"gpu": 10.0}


def test_one_run_has_no_gaps_to_describe():
    facts = describe(from_runs([{"arrival_s": 0, "tasks": [{"pool": "p", "service_s": 1}]}]))
    assert all(np.isnan(facts[name]) for name in ("mean_per_min", "iat_mean_s", "iat_cv", "iod_1s", "longest_gap_s"))


# --- recorded files ----------------------------------------------------------------------------------------

AZURE_FACTS = {
    # as computed with pandas from the original files: see the README beside them
    "code": {
        "runs": 8819, "span_s": 3435.95, "mean_per_min": 154.0012, "peak_per_min": 632, "peak_per_min_bin": 14, "empty_minutes": 12,
        "longest_gap_s": 217.169, "iat_mean_s": 0.389652, "iat_cv": 13.1520, "iod_1s": 13.1858, "peak_per_s": 67,
        "tokens_in_total": 18_059_974, "tokens_out_total": 245_896,
    },
    "conv": {
        "runs": 19366, "span_s": 3501.72, "mean_per_min": 331.8253, "peak_per_min": 507, "peak_per_min_bin": 31, "empty_minutes": 0,
        "longest_gap_s": 4.31458, "iat_mean_s": 0.180827, "iat_cv": 1.0942, "iod_1s": 1.3860, "peak_per_s": 16,
        "tokens_in_total": 22_361_870, "tokens_out_total": 4_088_665,
    },
}  # fmt: skip
AZURE_QUANTILES = {
    "code": {
        "tokens_in": {"p50": 1469, "p95": 7303.3, "p99": 7436, "max": 7437, "mean": 2047.85},
        "tokens_out": {"p50": 13, "p95": 90, "p99": 251.46, "max": 1899, "mean": 27.8825},
    },
    "conv": {
        "tokens_in": {"p50": 1020, "p95": 4083, "p99": 4142, "max": 14050, "mean": 1154.70},
        "tokens_out": {"p50": 129, "p95": 451, "p99": 601, "max": 1000, "mean": 211.126},
    },
}


@pytest.mark.recorded
@pytest.mark.parametrize("name", ["code", "conv"])
def test_the_azure_traces_are_what_their_facts_say(name, tmp_path):
    trace = import_azure_llm([recorded("azure-llm-2023", f"AzureLLMInferenceTrace_{name}.csv")], model=MODEL)
    facts = describe(trace)
    for fact, value in AZURE_FACTS[name].items():
        assert facts[fact] == pytest.approx(value, rel=5e-6 if isinstance(value, float) and value > 1e3 else 5e-5), fact
    for column, quantiles in AZURE_QUANTILES[name].items():
        assert facts[column] == pytest.approx(quantiles, rel=5e-6)
    assert trace.warnings == {"rows read": len(trace)}
    write(trace, tmp_path / "t.jsonl.gz")
    assert read_any(tmp_path / "t.jsonl.gz").digest() == trace.digest()


@pytest.mark.recorded
def test_the_azure_traces_merge_as_two_tenants():
    files = [recorded("azure-llm-2023", f"AzureLLMInferenceTrace_{name}.csv") for name in ("code", "conv")]
    trace = import_azure_llm(files, model=MODEL)
    assert describe(trace)["by_tenant"] == {"conv": 19366, "code": 8819}
    # the first conversation at 18:15:46.6805900, the first code request at 18:17:03.9799600
    code = trace.tenants.index("code")
    assert trace.runs.arrival_ns[trace.runs.tenant == code][0] == 77_299_370_000


@pytest.mark.recorded
def test_the_vtc_trace_is_what_its_facts_say():
    trace = import_flat([recorded("vtc-arena", "real_trace.derived.csv")], PRESETS["vtc"], model=MODEL)
    facts = describe(trace)
    expected = {"runs": 1500, "span_s": 600.0, "mean_per_min": 150.0, "peak_per_min": 183, "peak_per_min_bin": 9, "iat_mean_s": 0.400267,
                "iat_cv": 1.1047, "iod_1s": 1.3878}  # fmt: skip
    for fact, value in expected.items():
        assert facts[fact] == pytest.approx(value, rel=5e-5), fact
    assert facts["tokens_in"] == pytest.approx(
        {"p50": 40, "p95": 653.15, "p99": 902.27, "max": 1021, "mean": 136.265}, rel=5e-6
    )
    assert facts["tokens_out"] == pytest.approx(
        {"p50": 211, "p95": 513, "p99": 785, "max": 977, "mean": 256.198}, rel=5e-6
    )
    assert facts["tokens_in_total"] + facts["tokens_out_total"] == 588_695
    assert len(trace.tenants) == 27
    assert max(facts["by_tenant"].values()) == 296


@pytest.mark.recorded
@pytest.mark.parametrize(
    ("scheduler", "served", "mean", "p50", "p95", "end"),
    [
        ("FCFS", 1500, 46.7716, 39.0659, 127.146, 757.7),
        ("VTC", 1500, 39.6824, 4.91492, 185.975, 755.9),
        ("LShare_rpm20", 1158, 3.67766, 0.62655, 15.3758, 637.0),
        ("LShare_rpm5", 581, 0.21154, 0.133526, 0.498409, 615.9),
    ],
)
def test_measured_results_are_read_with_the_demand_that_made_them(scheduler, served, mean, p50, p95, end):
    measured = read_measured(recorded("vtc-arena", "measured", f"{scheduler}.real.jsonl.gz"), model=MODEL)
    demand = import_flat([recorded("vtc-arena", "real_trace.derived.csv")], PRESETS["vtc"], model=MODEL)
    assert measured.trace.digest() == demand.digest()
    assert (~measured.rejected).sum() == served
    first = measured.first_token_s[~measured.rejected]
    found = [first.mean(), *np.percentile(first, (50, 95))]
    assert found == pytest.approx([mean, p50, p95], rel=5e-6)
    assert measured.end_s == pytest.approx(end, abs=0.05)


@pytest.mark.recorded
def test_mooncake_needs_only_a_column_map():
    columns = parse_map("arrival=timestamp,tokens_in=input_length,tokens_out=output_length")
    trace = import_flat([recorded("mooncake", "conversation_trace.jsonl")], FlatFormat(columns, "ms"), model=MODEL)
    facts = describe(trace)
    assert (facts["runs"], facts["peak_per_s"]) == (12031, 28)
    assert facts["span_s"] == pytest.approx(3537, rel=5e-6)  # printed to six digits
    assert (facts["iat_cv"], facts["iod_1s"]) == pytest.approx((3.0339, 7.8963), rel=5e-5)
    assert int((np.diff(trace.runs.arrival_ns) == 0).sum()) == 10_851
    assert trace.tasks.tokens_in[:3].tolist() == [6758, 7322, 7236]  # equal times keep file order


# --- a measured file made by hand --------------------------------------------------------------------------


def test_a_rejected_request_is_demand_without_a_latency(tmp_path):
    response = {"adapter_dir": "dummy-lora-7b-rank-8-3", "prompt_len": 10, "output_len": 2, "req_time": 1.5}
    responses = [{**response, "request_latency": 4.0, "first_token_latency": 3.0},
                 {**response, "request_latency": -1, "first_token_latency": -1, "req_time": 2.0}]  # fmt: skip
    path = tmp_path / "X.real.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps({"config": {}, "result": {"responses": responses}}).encode()))
    measured = read_measured(path, model=MODEL)
    assert measured.trace.tenants == ["3"]
    assert measured.rejected.tolist() == [False, True]
    assert measured.latency_s[0] == 4.0
    assert measured.end_s == 5.5
    responses[1]["req_time"] = 1.0
    path.write_bytes(gzip.compress(json.dumps({"result": {"responses": responses}}).encode()))
    with pytest.raises(UsageError, match="out of order"):
        read_measured(path, model=MODEL)
