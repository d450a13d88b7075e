"""How a gate tells its result: text, JSON, JUnit XML, the step summary of a CI job; and the exit code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from simkit.check import GateLine, Judgement
from simkit.compare import Comparison, digits
from simkit.files import write_atomically
from simkit.model import UsageError

_SUMMARY_CAP = 900_000  # a step summary above 1 MiB is thrown away whole
_MOST_ANNOTATIONS = 9
_WORSE = ("worse", "changed")


@dataclass(frozen=True)
class GateResult:
    """Expectations and controls (on the comparison), the lines against the baseline, or why there are none."""

    comparison: Comparison
    lines: Sequence[GateLine]
    not_comparable: str
    baseline: str
    missing: bool

    @property
    def failed(self) -> list[Judgement]:
        return [item for item in self.comparison.expectations if not item.ok]

    @property
    def regressions(self) -> list[GateLine]:
        return [line for line in self.lines if line.outcome in _WORSE]


def exit_code(result: GateResult, *, strict: bool, require_baseline: bool) -> int:
    """0 passed; 1 an expectation or a control failed, or a metric got worse; 4 could not judge."""
    if result.failed or result.regressions:
        return 1
    if result.not_comparable or (require_baseline and result.missing):
        return 4
    if strict and any(line.outcome == "inconclusive" for line in result.lines):
        return 4
    return 0


def as_text(result: GateResult) -> str:
    """For a terminal: verdict first, then what is behind it."""
    lines = [f"{result.comparison.scenario}: {_verdict(result)}"]
    for item in result.comparison.expectations:
        value = "" if item.kind == "control" else f"  (is {item.shown})"
        lines.append(f"  {'ok  ' if item.ok else 'FAIL'} {item.text}{value}")
    if result.not_comparable:
        lines.append(f"  not comparable: {result.not_comparable}")
    counts = _counts(result.lines)
    if counts:
        lines.append(
            f"  against {result.baseline}: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        )
    for line in result.lines:
        if line.outcome not in ("identical", "equivalent"):
            lines.append(f"    {line.outcome:12} {line.policy} {line.metric}: {_change(line)}")
    return "\n".join(lines) + "\n"


def _verdict(result: GateResult) -> str:
    if result.failed or result.regressions:
        return f"FAILED ({len(result.failed)} expectations, {len(result.regressions)} metrics worse)"
    return "could not be judged" if result.not_comparable else "passed"


def _counts(lines: Sequence[GateLine]) -> dict[str, int]:
    order = ("worse", "changed", "better", "inconclusive", "equivalent", "identical")
    counts = {outcome: len([line for line in lines if line.outcome == outcome]) for outcome in order}
    return {outcome: count for outcome, count in counts.items() if count}


def _change(line: GateLine) -> str:
    half = None if line.ci95 is None else (line.ci95[1] - line.ci95[0]) / 2
    interval = (
        ""
        if line.ci95 is None
        else f", change {digits(line.change, half)} [{digits(line.ci95[0], half)}, {digits(line.ci95[1], half)}]"
    )
    return f"{digits(line.before, half)} -> {digits(line.now, half)}{interval}"


def as_json(result: GateResult) -> dict[str, Any]:
    """The comparison's document plus the gate."""
    return {
        **result.comparison.to_json(),
        "gate": {
            "verdict": _verdict(result),
            "baseline": result.baseline,
            "missing_baseline": result.missing,
            "not_comparable": result.not_comparable or None,
            "lines": [line.as_dict() for line in result.lines],
        },
    }


def write_junit(result: GateResult, path: Path, scenario: Path | None) -> None:
    """JUnit XML in the subset that CI systems agree on; names hold no values, so that histories stay whole."""
    name = result.comparison.scenario
    cases: list[ET.Element] = []
    for item in result.comparison.expectations:
        case = ET.Element("testcase", classname=f"simkit.{name}.{item.policy}", name=item.text)
        if scenario is not None and item.line:
            case.set("file", str(scenario))
            case.set("line", str(item.line))
        if not item.ok:
            ET.SubElement(case, "failure", type="SloViolated", message=f"is {item.shown}")
        cases.append(case)
    for line in result.lines:
        case = ET.Element(
            "testcase", classname=f"simkit.{name}.{line.policy}", name=f"{line.metric} against the baseline"
        )
        if line.outcome in _WORSE:
            ET.SubElement(case, "failure", type="Regression", message=_change(line))
        cases.append(case)
    if result.missing or result.not_comparable:
        case = ET.Element("testcase", classname=f"simkit.{name}", name="baseline")
        ET.SubElement(case, "skipped", message=result.not_comparable or "there is no baseline")
        cases.append(case)
    failures, skipped = (
        str(len([case for case in cases if case.find(tag) is not None])) for tag in ("failure", "skipped")
    )
    counts = {"tests": str(len(cases)), "failures": failures, "errors": "0", "skipped": skipped}
    root = ET.Element("testsuites", name="simkit", **counts)
    suite = ET.SubElement(root, "testsuite", name=name, **counts)
    suite.extend(cases)
    ET.indent(root)
    with write_atomically(path) as file:
        ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)


def append_step_summary(result: GateResult) -> None:
    """Where a CI job offers a summary file and reads annotations, tell it there."""
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return
    from simkit.report.markdown import cell, summary_table

    text = [f"### {cell(result.comparison.scenario)}: {_verdict(result)}", ""]
    text += [f"- {'✅' if item.ok else '❌'} {cell(item.text)}" for item in result.comparison.expectations]
    if result.lines:
        text += ["", "| policy | metric | outcome | change |", "|---|---|---|---|"]
        text += [
            f"| {cell(line.policy)} | {line.metric} | {line.outcome} | {_change(line)} |"
            for line in result.lines
            if line.outcome not in ("identical", "equivalent")
        ]
    text += ["", "<details><summary>All policies</summary>", "", summary_table(result.comparison), "", "</details>", ""]
    body = "\n".join(text)[:_SUMMARY_CAP]
    try:
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(body + "\n")
    except OSError as error:
        raise UsageError(f"cannot write the step summary {target}: {error}") from error


def annotations(result: GateResult, scenario: Path | None) -> list[str]:
    """Workflow commands for the worst failures (a job shows ten at most)."""
    place = f"file={_escape(str(scenario))}," if scenario is not None else ""
    found = [
        f"::error {place}line={item.line or 1},title=expectation::{_escape(item.text)}: is {_escape(item.shown)}"
        for item in result.failed
    ]
    found += [
        f"::error {place}title=regression::{_escape(line.policy)} {line.metric}: {_escape(_change(line))}"
        for line in result.regressions
    ]
    more = (
        [f"::error title=simkit::and {len(found) - _MOST_ANNOTATIONS} more"] if len(found) > _MOST_ANNOTATIONS else []
    )
    return found[:_MOST_ANNOTATIONS] + more


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
