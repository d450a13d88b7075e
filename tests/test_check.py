"""Expectations, controls, baselines, and how a gate tells its result."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from comparison_harness import Made
from conftest import ROOT, TINY, plain

from simkit import gate_report
from simkit.check import (
    NotComparable,
    gate,
    gated,
    judge,
    read_baseline,
    refuse_unknown_metrics,
    write_baseline,
)
from simkit.compare import Comparison
from simkit.gate_report import GateResult
from simkit.model import UsageError
from simkit.scenario import Scenario, load_scenario

# p95 waits of four replications: mean 2, sample standard deviation 0.8165, so the 95 % interval is 2 +- 3.182 x 0.8165 / 2 = [0.70, 3.30]
# (t quantile for 3 degrees of freedom: 3.182, any table)
GOOD = [1.0, 2.0, 3.0, 2.0]
BAD = [11.0, 12.0, 14.0, 11.0]


def scenario(*expect: dict[str, Any], control: Sequence[str] = ()) -> Scenario:
    return load_scenario({**plain(TINY), "expect": list(expect), "control": list(control)})


def compared(
    good: Sequence[float] = GOOD, bad: Sequence[float] = BAD, metric: str = "wait_s.p95", **options: Any
) -> Comparison:
    """`strict_priority` has the good values, `fifo` the bad ones."""
    rate = [1.0] * len(good)
    found = Made().policy("fifo", {metric: bad, "goodput_per_s": rate})
    return found.policy("strict_priority", {metric: good, "goodput_per_s": rate}).compared(**options)


def line(**given: Any) -> dict[str, Any]:
    return {"metric": "wait_s.p95", "policy": "strict_priority", **given}


def verdicts(
    comparison: Comparison, *expect: dict[str, Any], strict: bool = False, control: Sequence[str] = ()
) -> list[bool]:
    return [item.ok for item in judge(comparison, scenario(*expect, control=control), strict=strict)]


# --- expectations ------------------------------------------------------------------------------------------


def test_a_bound_is_met_by_the_mean() -> None:
    expect = [line(at_most=2), line(at_most=1.9), line(at_least=2), line(at_least=2.1)]
    expect += [line(equals=2), line(equals=2.5, tolerance=0.5), line(equals=2.6, tolerance=0.5)]
    assert verdicts(compared(), *expect) == [True, False, True, False, True, True, False]


def test_with_strict_the_whole_interval_must_meet_the_bound() -> None:
    # the interval is [0.70, 3.30], see above
    expect = [line(at_most=3.31), line(at_most=3.29), line(at_least=0.69), line(at_least=0.71)]
    expect += [line(equals=2, tolerance=1.31), line(equals=2, tolerance=1.29)]
    assert verdicts(compared(), *expect, strict=True) == [True, False, True, False, True, False]


def test_what_is_undefined_meets_nothing() -> None:
    nothing = compared(good=[math.nan] * 4)
    assert verdicts(nothing, line(at_most=1e9), line(at_least=-1e9)) == [False, False]


def test_what_is_undefined_in_some_replications_is_told_and_meets_nothing() -> None:
    (item,) = judge(compared(good=[1.0, math.nan, 3.0, 2.0]), scenario(line(at_most=2)))
    assert not item.ok
    assert item.note == "undefined in 1 of 4 replications"
    (better,) = judge(compared(good=[1.0, math.nan, 3.0, 2.0]), scenario(line(better_than="fifo")))
    assert (better.ok, better.note) == (False, item.note)


def test_better_than_asks_for_the_gain_and_for_an_interval_off_zero() -> None:
    # gains 10, 10, 11, 9: mean 10 of the baseline's mean 12 = 83.3 %; interval 10 +- 3.182 x 0.8165 / 2 = [8.7, 11.3]
    (enough, too_little) = judge(
        compared(), scenario(line(better_than="fifo", by="83%"), line(better_than="fifo", by="84%"))
    )
    assert (enough.ok, too_little.ok) == (True, False)
    assert enough.value == pytest.approx(10 / 12)
    assert enough.shown == "80% [70%, 90%]"  # two digits more than the interval supports would be pretence
    # same mean gain, but all over the place: 40, -20, 30, -10 has the interval 10 +- 3.182 x 29.4 / 2, over zero
    unsure = compared(bad=[41.0, -18.0, 33.0, -8.0])
    assert verdicts(unsure, line(better_than="fifo")) == [False]


def test_better_means_more_where_more_is_better() -> None:
    comparison = compared(good=[9.0, 8.0, 9.0, 8.0], bad=[5.0, 4.0, 5.0, 5.0], metric="success_rate")
    expect = {"metric": "success_rate", "policy": "strict_priority", "better_than": "fifo"}
    assert verdicts(comparison, expect) == [True]
    assert verdicts(comparison, {**expect, "policy": "fifo", "better_than": "strict_priority"}) == [False]


def test_a_control_must_miss_a_line() -> None:
    (_, control) = judge(compared(), scenario(line(at_most=5), control=["fifo"]))
    assert control.ok
    assert (control.kind, control.policy, control.text) == ("control", "fifo", "control fifo fails as it must")
    assert control.shown == "fails 1 of 1, first 'wait_s.p95'"


def test_a_control_that_meets_every_line_fails_the_scenario() -> None:
    (_, control) = judge(compared(), scenario(line(at_most=50), control=["fifo"]))
    assert not control.ok
    assert control.shown == "fails 0 of 1"


def test_a_control_is_not_compared_with_itself() -> None:
    # as strict_priority's stand-in fifo would have to be better than fifo: that says nothing, so only the other line counts
    (_, _, control) = judge(compared(), scenario(line(at_most=50), line(better_than="fifo"), control=["fifo"]))
    assert control.shown == "fails 0 of 1"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric": "wiat_s.p95", "at_most": 1}, "there is no metric 'wiat_s.p95', did you mean 'wait_s'?"),
        ({"metric": "offered", "better_than": "fifo"}, "'offered' has no better and worse"),
        (
            {"where": {"class": "interactive", "tenant": "people"}, "at_most": 1},
            "expected one of class, tenant and pool",
        ),
    ],
)
def test_nonsense_is_refused_before_anything_runs(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        refuse_unknown_metrics(scenario(line(**given)))


def test_an_unknown_part_of_a_metric_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no metric 'wait_s\.p96', did you mean 'wait_s\.p95'"):
        judge(compared(), scenario(line(metric="wait_s.p96", at_most=1)))


# --- baselines ---------------------------------------------------------------------------------------------

DIGESTS = {
    "scenario": "s",
    "policies": {"fifo": "f", "strict_priority": "p"},
    "traces": ["0", "1", "2", "3"],
    "logs": {},
}


def gated_against(before: Comparison, now: Comparison, tmp_path: Path) -> gate_report.Gate:
    for item in (before, now):
        item.details.setdefault("digests", DIGESTS)
    write_baseline(before, scenario(), tmp_path / "b.json")
    return gate(now, scenario(), read_baseline(tmp_path / "b.json"))


def outcome(found: gate_report.Gate, policy: str = "strict_priority", metric: str = "wait_s.p95") -> str:
    return next(item.outcome for item in found.lines if (item.policy, item.metric) == (policy, metric))


# Margin of the scenario: 2 % of the mean 100 = 2. Holm over the gate's four lines only ever makes p larger.
STEADY = [100.0, 101.0, 99.0, 100.0]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (STEADY, "identical"),
        ([100.5, 101.4, 99.5, 100.6], "equivalent"),  # +0.5 each: within 2
        ([110.0, 111.5, 109.0, 110.5], "worse"),  # +10.25 +- 0.5: off zero and beyond 2
        ([90.0, 91.5, 89.0, 90.5], "better"),
        ([120.0, 85.0, 110.0, 90.0], "inconclusive"),  # +20, -16, +11, -10
        ([math.nan, 101.0, 99.0, 100.0], "inconclusive"),  # undefined where it was defined
    ],
)
def test_a_metric_against_the_baseline(now: list[float], expected: str, tmp_path: Path) -> None:
    assert outcome(gated_against(compared(good=STEADY), compared(good=now), tmp_path)) == expected


def test_one_shaky_metric_among_many_is_not_called_a_regression(tmp_path: Path) -> None:
    # paired differences 3, 5, 9, 3: t = 5 / (2.83 / 2) = 3.53 on 3 degrees of freedom: p = 0.039 alone. Each policy has two more lines in
    # which something moved (p near 0.3), so Holm multiplies it by six.
    moved = {"latency_s.p50": STEADY, "latency_s.p95": STEADY}

    def both(waits: list[float], others: list[float]) -> Comparison:
        values = {"wait_s.p95": waits, "goodput_per_s": STEADY, **dict.fromkeys(moved, others)}
        return Made().policy("fifo", values).policy("strict_priority", values).compared()

    found = gated_against(
        both(STEADY, STEADY), both([103.0, 106.0, 108.0, 103.0], [104.0, 100.0, 99.5, 103.0]), tmp_path
    )
    assert outcome(found) == "inconclusive"


def test_the_replications_that_both_have_are_compared(tmp_path: Path) -> None:
    before = compared(good=STEADY)
    now = compared(good=STEADY[:3], bad=BAD[:3], details={"digests": {**DIGESTS, "traces": ["0", "1", "2"]}})
    found = gated_against(before, now, tmp_path)
    assert {item.outcome for item in found.lines} == {"identical"}
    assert found.notes == ("compared over the first 3 replications (3 now, 4 then)",)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 8}, "another seed"),
        ({"scenario": "else"}, "another scenario"),
        ({"details": {"digests": {**DIGESTS, "scenario": "t"}}}, "another content of the scenario"),
        ({"details": {"digests": {**DIGESTS, "traces": ["0", "1", "2", "9"]}}}, "another demand"),
    ],
)
def test_another_demand_is_not_comparable(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(NotComparable, match=f"the baseline is of {message}"):
        gated_against(compared(), compared(**changed), tmp_path)


def test_what_else_has_changed_is_told(tmp_path: Path) -> None:
    digests = {**DIGESTS, "policies": {"fifo": "f2", "strict_priority": "p"}}
    now = compared(details={"digests": digests, "versions": {"numpy": "3"}})
    found = gated_against(compared(), now, tmp_path)
    assert found.notes == ("changed since the baseline: fifo", "other versions: numpy 3 now, unknown then")


def test_the_gate_keeps_what_has_a_better_and_worse() -> None:
    keys = gated(
        compared(),
        scenario(line(at_most=3), line(metric="offered", at_least=1), line(metric="queue_depth_max.gpu", at_most=9)),
    )
    assert "goodput_per_s" in keys
    assert "queue_depth_max.gpu" in keys
    assert "offered" not in keys  # neutral: more is neither better nor worse
    assert len(keys) == len(set(keys))


def test_a_baseline_is_sorted_and_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    write_baseline(compared(good=[1.0, math.nan, 3.0, 2.0]), scenario(), path)
    text = path.read_text()
    data = json.loads(text)
    assert data["policies"]["strict_priority"]["wait_s.p95"] == [1.0, None, 3.0, 2.0]
    assert list(data) == sorted(data)
    assert '   "wait_s.p95": [1.0, null, 3.0, 2.0]' in text.splitlines()  # a metric a line: a diff can be read


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "simkit.baseline/2"}', '{"schema": "simkit.baseline/1"}'])
def test_what_is_no_baseline_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(UsageError, match=r"baseline .*b\.json"):
        read_baseline(tmp_path / "b.json")


# --- how it is told ----------------------------------------------------------------------------------------


def told(tmp_path: Path, now: Sequence[float] = STEADY, **options: Any) -> GateResult:
    comparison = compared(good=now)
    found = gated_against(compared(good=STEADY), comparison, tmp_path)
    comparison.expectations = judge(comparison, scenario(line(at_most=options.pop("at_most", 500))))
    return GateResult(comparison, found, "", "b.json", missing=False, **options)


def missing(why_not: str = "") -> GateResult:
    return GateResult(compared(), None, why_not, "b.json", missing=not why_not)


def test_exit_codes_of_a_gate(tmp_path: Path) -> None:
    def code(result: GateResult, **options: bool) -> int:
        return gate_report.exit_code(result, **{"strict": False, "require_baseline": False, **options})

    worse = [110.0, 111.5, 109.0, 110.5]
    shaky = [120.0, 85.0, 110.0, 90.0]
    assert code(told(tmp_path)) == 0
    assert code(told(tmp_path, worse)) == 1
    assert code(told(tmp_path, worse, updated=True)) == 0  # this is the new baseline
    assert code(told(tmp_path, at_most=1)) == 1  # an expectation fails
    assert code(told(tmp_path, shaky)) == 0
    assert code(told(tmp_path, shaky), strict=True) == 4
    assert code(missing()) == 0
    assert code(missing(), require_baseline=True) == 4
    assert code(missing("the baseline is of another seed")) == 4


def test_the_text_says_the_verdict_first_and_the_worst_before_the_rest(tmp_path: Path) -> None:
    lines = gate_report.as_text(told(tmp_path, [110.0, 111.5, 109.0, 110.5], at_most=1)).splitlines()
    assert lines[0] == "made: FAILED (1 expectation, 1 metric worse than the baseline)"
    assert lines[1].startswith("  FAIL wait_s.p95 under strict_priority at most 1: 110")
    assert "  against b.json: 1 worse, 3 identical" in lines
    # differences 10, 10.5, 10, 10.5: mean 10.25, interval +- 3.182 x 0.289 / 2 = 0.46, so one decimal
    assert "    worse        strict_priority wait_s.p95: 100.0 -> 110.2, change 10.2 [9.8, 10.7]" in lines


def test_junit_can_be_read_by_another_reader(tmp_path: Path) -> None:
    from junitparser import JUnitXml

    gate_report.write_junit(told(tmp_path, [110.0, 111.5, 109.0, 110.5], at_most=1), tmp_path / "j.xml", None)
    xml = JUnitXml.fromfile(str(tmp_path / "j.xml"))
    assert (xml.tests, xml.failures, xml.errors, xml.skipped) == (5, 2, 0, 0)
    kinds = [result.type for suite in xml for case in suite for result in case.result]
    assert kinds == ["SloViolated", "Regression"]


def test_names_in_junit_hold_no_measured_values(tmp_path: Path) -> None:
    def names(now: list[float]) -> list[str]:
        gate_report.write_junit(told(tmp_path, now), tmp_path / "j.xml", None)
        return [
            part for part in (tmp_path / "j.xml").read_text().split('"') if "strict_priority" in part or "fifo" in part
        ]

    assert names(STEADY) == names([100.5, 101.4, 99.5, 100.6])


def test_junit_says_when_there_is_no_baseline_and_when_nothing_was_judged(tmp_path: Path) -> None:
    gate_report.write_junit(missing(), tmp_path / "j.xml", None)
    assert '<skipped message="there is no baseline" />' in (tmp_path / "j.xml").read_text()
    gate_report.write_junit_error("made", "deadlock \x00 in gpu", tmp_path / "j.xml")
    assert 'errors="1"' in (tmp_path / "j.xml").read_text()
    assert "\x00" not in (tmp_path / "j.xml").read_text()  # XML cannot hold it


def test_the_step_summary_is_appended_and_never_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "summary.md"
    target.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(target))
    gate_report.append_step_summary(told(tmp_path))
    text = target.read_text()
    assert text.startswith("before\n### made: passed\n")
    assert "<details><summary>4 metrics unchanged</summary>" in text
    monkeypatch.setattr(gate_report, "SUMMARY_CAP", 300)
    target.write_text("")
    gate_report.append_step_summary(told(tmp_path))
    assert len(target.read_bytes()) <= 300
    assert target.read_text().endswith("(cut: too long)\n")


def test_without_a_step_summary_file_nothing_is_written(tmp_path: Path, folder: Path) -> None:
    gate_report.append_step_summary(told(tmp_path))
    assert [path.name for path in folder.iterdir()] == ["b.json"]


def test_a_step_summary_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))  # a folder
    with pytest.raises(UsageError, match="cannot write the step summary"):
        gate_report.append_step_summary(told(tmp_path))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a|b", "a&#124;b"),
        ("`rm`", "&#96;rm&#96;"),
        ("<script>", "&lt;script&gt;"),
        ("a\nb", "a b"),
        ("weighted_fair", "weighted_fair"),  # GitHub reads no emphasis inside a word
        ("_a_", "&#95;a&#95;"),
        ("@team", "&#64;team"),
    ],
)
def test_names_stay_text_in_markdown(name: str, shown: str) -> None:
    assert gate_report.cell(name) == shown


def test_workflow_errors_are_at_most_ten_and_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = compared()
    comparison.expectations = judge(comparison, scenario(*[line(at_most=bound / 100) for bound in range(12)]))
    result = GateResult(comparison, None, "", "b.json", missing=True)
    assert gate_report.workflow_errors(result, None) == []  # nobody reads them here
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.chdir(tmp_path)
    found = gate_report.workflow_errors(result, tmp_path / "a,b.yaml")
    assert len(found) == 10
    assert found[0].startswith("::error file=a%2Cb.yaml,line=1,title=expectation::wait_s.p95 under strict_priority")
    assert found[-1] == "::error title=simkit::and 3 more"


# --- the committed baselines -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "reports/baseline").glob("*.json")), ids=lambda path: path.stem)
def test_a_committed_baseline_is_of_the_scenario_as_it_is(path: Path) -> None:
    # after a change that is meant: simkit check scenarios/NAME.yaml --update
    stored, now = read_baseline(path), load_scenario(ROOT / f"scenarios/{path.stem}.yaml")
    assert stored["digests"]["scenario"] == now.digest
    assert set(stored["policies"]) == {policy.name for policy in now.policies}  # their content is what the gate is for
    assert stored["digests"]["traces"][0] == now.trace(0).digest()
    assert (stored["seed"], stored["replications"]) == (now.seed, now.replications)
