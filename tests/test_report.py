"""Reports: numbers as text, names that stay text, one page that needs nothing, files that are whole and the same every time."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import pickle
import re
from dataclasses import asdict
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from comparison_harness import FakeJudgement, Made
from small_scenarios import FORMULA, HOSTILE, hostile, two_tenants

from simkit import api
from simkit.metrics import share_error
from simkit.model import UsageError
from simkit.report import export, html, markdown, svg, tables, terminal, write_report
from simkit.report.data import figure_data
from simkit.report.figures import Plots
from simkit.report.words import csv_text, harmless, percent, short, spread_text
from simkit.report.words import markdown as md
from simkit.stats import estimate

OVERLOAD = {
    "hysteresis": {
        "signal": "max_utilisation",
        "modes": {"high": {"enter": 0.5, "leave": 0.3}},
        "do": {"high": [{"defer": ["background"]}]},
    }
}
POLICIES = ["fifo", "weighted_fair", {"name": "modes", "order": "fifo", "overload": OVERLOAD}]


@pytest.fixture(scope="module")
def compared():
    return api.compare(two_tenants(policies=POLICIES), replications=5, jobs=1)


@pytest.fixture(scope="module")
def dangerous():
    found = api.compare(hostile(name=HOSTILE, about=HOSTILE), replications=2, jobs=1)
    found.expectations = [FakeJudgement(f"{HOSTILE} at most 1", False, "fifo"), FakeJudgement(FORMULA, True, "fifo")]
    return found


@pytest.fixture(scope="module")
def page(compared):
    return html.page(compared)


class Page(HTMLParser):
    """The elements of a page, its text, and whether its tags match."""

    VOID = frozenset({"meta", "link", "br", "img", "path", "use", "rect", "circle"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.text, self.scripts = [], [], [], {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append((tag, dict(attributes)))

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and self.open[-1][0] == "script":
            self.scripts[self.open[-1][1]["id"]] = data
        elif self.open and self.open[-1][0] != "style":
            self.text.append(data)


# --- words -------------------------------------------------------------------------------------------------


def test_control_signs_and_direction_changes_become_visible_and_harmless():
    assert harmless("a\x1b[31mb\nc\u202ed\x00") == "a�[31mb�c�d�"
    assert harmless("Zürich 東京 🙂") == "Zürich 東京 🙂"


def test_a_long_name_keeps_its_beginning_and_its_end():
    assert short("abcdefghijklmnop", 10) == "abcdef…nop"
    assert len(harmless("x" * 5000)) == 200


@pytest.mark.parametrize(
    "text", ["**b**", "`c`", "[a](http://x)", "<b>", "a|b", "_i_", "# h", "![](x)", "~~s~~", "a\nb", "@user", "&lt;"]
)
def test_markdown_shows_names_as_they_are(text):
    shown = md(text)
    assert not re.search(r"(?<!\\)[*`\[\]|#~!]|(?<!\\)_\b|<|://|@|\n", shown)
    assert "&lt;" not in shown or "<" in text or text == "&lt;"
    assert md("weighted_fair") == "weighted_fair"  # an underscore within a word is no emphasis
    assert md("&lt;") == "&amp;lt;"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1"])
def test_a_spreadsheet_takes_no_name_for_a_formula(text):
    assert csv_text(text) == f"'{text}"
    assert csv_text("plain") == "plain"


def test_a_half_width_is_written_with_one_digit_and_in_the_unit_of_its_value():
    assert spread_text("latency_s.p95", estimate([1, 2, 3, 4, 5])) == "± 2"  # 1.96
    assert spread_text("success_rate", estimate([0.98, 0.96])) == "± 10"  # 12.7 percent points
    assert spread_text("starved", estimate([3, 3, 3])) == ""
    assert spread_text("starved", estimate([3])) == ""


def test_ratios_are_written_as_changes():
    assert percent(1.1234, (1.10, 1.15)) == "+12%"
    assert percent(0.5, None) == "-50%"
    assert percent(math.nan, None) == ""


# --- data --------------------------------------------------------------------------------------------------


def test_figure_data_is_plain_and_survives_pickling_and_json(compared):
    for log in compared.details["logs"].values():
        found = figure_data(log)
        assert pickle.loads(pickle.dumps(found)) == found
        json.dumps(asdict(found), allow_nan=False)
        series = (
            found.t_s,
            found.waiting,
            found.in_system,
            found.queued_work_s,
            found.throttled_per_s,
            found.retries_per_s,
        )
        assert {len(values) for values in series} == {200}


def test_the_latency_curve_is_made_of_the_quantiles_of_completed_runs(compared):
    log = compared.details["logs"]["fifo"]
    every = figure_data(log).latency[0]
    frame = api.RunResult(log).runs
    latency = frame["latency_s"].dropna().to_numpy()
    assert (every.completed, every.offered) == (len(latency), len(frame))
    assert every.quantile(0.9) == pytest.approx(np.quantile(latency, 0.9), rel=0.02)  # interpolated between 80 points
    assert every.seconds[-1] == pytest.approx(np.quantile(latency, 1 - 1 / len(latency)))
    assert math.isnan(every.quantile(0.9999))  # no curve is longer than its runs allow


def test_shares_due_and_got_are_those_of_the_metric_share_error(compared):
    for log in compared.details["logs"].values():
        found = figure_data(log)
        assert math.fsum(share.got for share in found.shares) == pytest.approx(1)
        assert math.fsum(share.due for share in found.shares) == pytest.approx(1)
    one_pool = two_tenants(workflows={}, workload=[
        {"name": "a", "tenant": "a", "class": "background", "task": {"pool": "gpu", "service": "1s"}, "arrivals": {"burst": {"at": "0s", "count": 30}}},
        {"name": "b", "tenant": "b", "class": "interactive", "task": {"pool": "gpu", "service": "2s"}, "arrivals": {"burst": {"at": "0s", "count": 30}}},
    ])  # fmt: skip
    log = api.run(one_pool, "fifo").log
    gap = math.fsum(abs(share.due - share.got) for share in figure_data(log).shares) / 2
    assert gap == pytest.approx(share_error(log))  # with one pool both are half the sum of the gaps


def test_modes_follow_each_other_without_gaps_to_the_end(compared):
    found = figure_data(compared.details["logs"]["modes"])
    assert len(found.modes) > 1
    assert found.modes[0][0] == 0
    assert found.modes[-1][1] == found.end_s
    assert all(before[1] == after[0] for before, after in zip(found.modes, found.modes[1:], strict=False))
    assert {name for _, _, name in found.modes} <= set(found.mode_names)


def test_waits_add_up_to_what_the_metrics_attribute(compared):
    from simkit.metrics import wait_by_reason

    log = compared.details["logs"]["fifo"]
    assert math.fsum(seconds for _, seconds in figure_data(log).waits) == pytest.approx(
        math.fsum(wait_by_reason(log).values())
    )


# --- charts ------------------------------------------------------------------------------------------------


def test_charts_are_the_same_bytes_every_time_and_need_nothing(compared):
    charts = Plots.of(compared).every()
    assert [chart.name for chart in charts] == [
        "differences", "latency", "over_time", "shares", "utilisation", "modes", "trouble", "waits", "causes",
    ]  # fmt: skip
    assert [chart.svg for chart in charts] == [chart.svg for chart in Plots.of(compared).every()]
    for chart in charts:
        assert "http" not in chart.svg
        assert svg.INK.lower() not in chart.svg.lower()
        assert "currentColor" in chart.svg
        assert "<text" in chart.svg  # text is text: it can be read, searched and set in the page's font


def test_ids_of_charts_are_unique_on_a_page_and_all_references_are_met(page):
    ids = [attributes["id"] for _, attributes in Page(page).elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    referenced = set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r"url\(#([^)]+)\)", page))
    assert referenced <= set(ids)


def test_every_chart_has_its_numbers_beside_it(compared):
    for chart in Plots.of(compared).every():
        assert chart.rows
        assert all(len(row) == len(chart.header) for row in chart.rows)
        assert chart.about


def test_a_chart_can_be_saved_and_shown_in_a_notebook(compared, tmp_path):
    chart = compared.plot.latency()
    chart.save(str(tmp_path / "latency.svg"))
    assert (tmp_path / "latency.svg").read_text().startswith('<svg xmlns="http://www.w3.org/2000/svg" viewBox=')
    Page(chart._repr_html_())


def test_the_settings_of_a_user_do_not_reach_our_charts(compared):
    import matplotlib as mpl

    plain = compared.plot.utilisation().svg
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.grid": False}):
        assert compared.plot.utilisation().svg == plain


def test_names_that_matplotlib_reads_are_only_names():
    made = Made()
    for name in ("_hidden", "$x^2$", "a\nb", "$broken", "\\frac"):
        made.policy(name, {"goodput_per_s": [1.0, 2.0]}, pools={"$p": {"utilisation": [0.5, 0.6]}})
    chart = made.compared().plot.utilisation()
    for text in (" _hidden", "$x^2$", "a�b", "$broken", "\\frac", "$p"):
        assert f">{text}<" in chart.svg


# --- the page ----------------------------------------------------------------------------------------------


def test_the_page_is_well_formed_and_loads_nothing(page):
    found = Page(page)
    assert found.open == []
    for tag, attributes in found.elements:
        assert tag not in ("img", "iframe", "object", "embed", "audio", "video")
        for name in ("src", "href", "action", "srcset", "xlink:href"):
            target = attributes.get(name, "#")
            assert target.startswith(("#", "data:,"))
        assert not [name for name in attributes if name.startswith("on")]
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page


def test_the_page_says_first_what_to_choose_and_then_why(page, compared):
    text = " ".join(Page(page).text)
    order = [
        f"Choose {compared.recommendation.policy}",
        "Policies side by side",
        "earn its complexity",
        "By class",
        "Charts",
        "Every difference",
        "Where this comes from",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    for title in ("Latency of completed runs", "Waiting and backlog over time", "Share against weights", "Utilisation", "Overload modes",
                  "Retries and 429 answers", "Root causes of failed and late runs"):  # fmt: skip
        assert title in text


def test_the_data_in_the_page_can_be_read_again(page, compared):
    scripts = Page(page).scripts
    results = json.loads(scripts["simkit-results"])
    assert results["policies"]["fifo"]["metrics"]["goodput_per_s"]["values"] == list(
        compared.metric("fifo", "goodput_per_s").values
    )
    assert [one["policy"] for one in json.loads(scripts["simkit-figures"])] == compared.policies


def test_the_page_is_the_same_bytes_every_time(page, compared):
    again = api.compare(two_tenants(policies=POLICIES), replications=5, jobs=1)
    assert html.page(again) == page


def test_hostile_names_stay_text_everywhere(dangerous):
    page = html.page(dangerous)
    assert "<script>alert" not in page
    assert {attributes.get("type") for tag, attributes in Page(page).elements if tag == "script"} == {
        "application/json"
    }
    assert HOSTILE in " ".join(Page(page).text)
    assert "<script>alert" not in html.fragment(dangerous)
    report = markdown.report(dangerous)
    assert "<script" not in report
    for line in report.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")


def test_latency_is_never_shown_without_success_and_without_what_it_leaves_out(compared):
    rows = [row.key for row in tables.headline_rows(compared)]
    place = next(k for k, key in enumerate(rows) if key.startswith("latency_s"))
    assert rows[place - 1] == "not_completed"
    assert "success_rate" in rows


def test_metrics_that_are_zero_everywhere_are_left_out_and_partly_undefined_ones_say_so():
    made = Made().policy("a", {"goodput_per_s": [1.0, 2.0], "starved": [0, 0], "latency_s.p95": [math.nan, 3.0]})
    made.policy("b", {"goodput_per_s": [1.5, 2.0], "starved": [0, 0], "latency_s.p95": [2.0, 3.0]})
    rows = {row.key: row for row in tables.headline_rows(made.compared())}
    assert "starved" not in rows
    assert rows["latency_s.p95"].cells[0].note == "undefined in 1 of 2 replications"
    assert "undefined in 1 of 2" in rows["latency_s.p95"].cells[1].note


def test_that_nothing_succeeds_is_shown():
    rows = tables.headline_rows(
        Made().policy("a", {"goodput_per_s": [0.0, 0.0], "success_rate": [0.0, 0.0]}).compared()
    )
    assert [(row.key, row.cells[0].text) for row in rows][:2] == [("goodput_per_s", "0"), ("success_rate", "0%")]


def test_a_report_of_one_policy_in_one_replication_without_logs_says_what_it_cannot(tmp_path):
    only = Made().policy("a", {"goodput_per_s": [1.0]}).compared()
    page = html.page(only)
    assert Page(page).open == []
    assert "One replication: no intervals and no verdicts." in page
    assert "Nothing to draw: latency" in page
    write_report(only, tmp_path)
    assert not (tmp_path / "runs.csv.gz").exists()


def test_failed_expectations_and_early_stops_are_on_top(compared):
    made = Made().policy("a", {"goodput_per_s": [1.0, 1.1]}).policy("b", {"goodput_per_s": [1.0, 1.2]})
    found = made.compared(details={"stopped": {"reason": "interrupted", "finished": 2, "wanted": 10}})
    found.expectations = [
        FakeJudgement("x at most 1", False, "a"),
        FakeJudgement("y", True, "b"),
        FakeJudgement("control", False, "b", "control"),
    ]
    text = " ".join(Page(html.page(found)).text)
    assert text.index("this is from 2 of 10 replications") < text.index("Policies side by side")
    assert "1 of 2 expectations fail; 1 control that must fail does not" in text
    assert tables.expectations_line(compared) == ""


def test_what_is_undefined_about_an_expectation_is_told_beside_its_value():
    made = Made().policy("a", {"goodput_per_s": [1.0, 1.1]})
    judged = FakeJudgement("x at most 1", False, "a", value=2.0, note="undefined in 1 of 2 replications")
    (line,) = tables.expected(made.compared(expectations=[judged]))
    assert line.value == "is 2, undefined in 1 of 2 replications"


# --- terminal ----------------------------------------------------------------------------------------------


def printed(comparison, capsys, show=terminal.show):
    show(comparison)
    return capsys.readouterr().out


def test_the_terminal_gets_the_choice_first_on_80_columns_without_colour(compared, capsys):
    out = printed(compared, capsys)
    lines = out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert "\x1b" not in out
    assert lines[0] == "two_tenants: 3 policies × 5 replications, seed 11"
    assert lines[1].startswith(f"Choose {compared.recommendation.policy}: ")
    assert len(lines) <= 40  # one screen
    for word in ("goodput", "success", "not", "latency", "earn its complexity"):
        assert word in out


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_terminal_of_any_width_shows_latency_only_beside_what_it_leaves_out(compared, width):
    from rich.console import Console

    buffer = io.StringIO()
    terminal.show(compared, Console(file=buffer, width=width, highlight=False, markup=False, emoji=False))
    lines = buffer.getvalue().splitlines()
    heading = " ".join(lines[next(k for k, line in enumerate(lines) if "─" in line) - 2 :][:2])
    assert max(len(line) for line in lines) <= width
    assert ("latency" in heading) <= ("done" in heading and "success" in heading)


def test_all_differences_fit_on_80_columns_too(compared, capsys):
    out = printed(compared, capsys, terminal.show_differences)
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "weighted_fair against fifo" in out
    assert "latency p95" in out


def test_a_terminal_that_knows_ascii_only_gets_ascii(compared):
    from rich.console import Console

    buffer = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    for show in (terminal.show, terminal.show_differences):
        show(compared, Console(file=buffer, width=80, highlight=False, markup=False, emoji=False))
    buffer.flush()
    text = buffer.buffer.getvalue().decode("ascii")
    assert "+-" in text
    assert "3 policies x 5 replications" in text


def test_hostile_names_reach_no_terminal_as_orders(capsys):
    made = (
        Made()
        .policy("\x1b[31mred", {"goodput_per_s": [1.0, 2.0]})
        .policy("[bold]x[/bold]", {"goodput_per_s": [1.0, 2.0]})
    )
    out = printed(made.compared(scenario="\x1b]0;title\x07"), capsys)
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]x[/bold]" in out


# --- files -------------------------------------------------------------------------------------------------


def test_a_report_is_a_folder_of_whole_files_and_equal_comparisons_give_equal_bytes(tmp_path):
    found = []
    for _ in range(2):
        comparison = api.compare(two_tenants(), replications=2, jobs=1)
        assert write_report(comparison, tmp_path / "out") == tmp_path / "out" / "report.html"
        found.append({path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()})
    assert found[0] == found[1]
    assert set(found[0]) == {
        "report.html",
        "report.md",
        "summary.json",
        "summary.csv",
        "differences.csv",
        "runs.csv.gz",
    }


def test_the_summary_table_holds_every_value_at_full_precision(compared, tmp_path):
    export.write_summary_csv(compared, tmp_path / "summary.csv")
    frame = pd.read_csv(tmp_path / "summary.csv", keep_default_na=False, dtype=str)
    line = frame[(frame.policy == "fifo") & (frame["of"] == "class") & (frame.name == frame.name)]
    line = frame[
        (frame["policy"] == "fifo")
        & (frame["of"] == "class")
        & (frame["name"] == "interactive")
        & (frame["metric"] == "latency_s.p95")
    ].iloc[0]
    expected = compared.metric("fifo", "latency_s.p95", {"class": "interactive"})
    assert [float(line[f"replication_{k}"]) for k in range(5)] == list(expected.values)
    assert float(line["mean"]) == expected.mean


def test_names_in_tables_start_no_formula(dangerous, tmp_path):
    export.write_runs_csv(dangerous, tmp_path / "runs.csv.gz")
    export.write_summary_csv(dangerous, tmp_path / "summary.csv")
    rows = list(csv.DictReader(io.StringIO(gzip.decompress((tmp_path / "runs.csv.gz").read_bytes()).decode())))
    assert {row["tenant"] for row in rows} == {HOSTILE, f"'{FORMULA}"}
    assert {row["policy"] for row in rows} == {"fifo", "strict_priority", "weighted_fair"}
    every = csv.reader(io.StringIO((tmp_path / "summary.csv").read_text()))
    assert not [cell for line in every for cell in line if cell[:1] in "=+@" and cell]


def test_the_table_of_differences_has_one_line_per_difference(compared, tmp_path):
    export.write_differences_csv(compared, tmp_path / "differences.csv")
    frame = pd.read_csv(tmp_path / "differences.csv")
    assert len(frame) == len(compared.differences())
    assert set(frame["policy"]) == {"weighted_fair", "modes"}


def test_a_folder_that_cannot_be_written_to_is_refused_and_left_without_halves(compared, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        write_report(compared, tmp_path / "file" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_markdown_has_one_row_per_metric_and_one_column_per_policy(compared):
    lines = markdown.summary_table(compared).splitlines()
    assert lines[0] == "| metric | fifo (baseline) | weighted_fair | modes |"
    assert lines[1] == "| --- | ---: | ---: | ---: |"
    body = [line for line in lines[2:] if line.startswith("|")]
    assert len(body) == len(tables.headline_rows(compared))
    assert all(line.count("|") == 5 for line in body)


def test_the_command_to_repeat_quotes_what_a_shell_would_read(dangerous):
    assert tables.command(dangerous).startswith(f"simkit run '{HOSTILE}' --seed 11 --replications 2")
    dangerous.details["command"] = "simkit run x.yaml"
    assert tables.command(dangerous) == "simkit run x.yaml"
