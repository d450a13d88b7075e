"""How a gate tells its result: text, JSON, JUnit XML, the step summary and annotations of a CI job; and its exit code."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from simkit.check import IDENTICAL, INCONCLUSIVE, Gate, GateLine, Judgement
from simkit.compare import Comparison
from simkit.files import write_atomically
from simkit.model import UsageError
from simkit.stats import BETTER, WORSE

SUMMARY_CAP = 900_000
"""Bytes. A step summary above 1 MiB is thrown away whole."""

MOST_ANNOTATIONS = 10
"""A step shows so many errors and drops the rest."""

_OUTCOMES = (WORSE, BETTER, INCONCLUSIVE, "equivalent", IDENTICAL)
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class GateResult:
    """Expectations and controls (on the comparison), the gate against the baseline, or why there is none."""

    comparison: Comparison
    gate: Gate | None
    not_comparable: str
    baseline: str
    missing: bool
    updated: bool = False  # this result is the new baseline: differences from the old one are told, not judged

    @property
    def failed(self) -> list[Judgement]:
        """Expectations and controls that do not hold."""
        return [item for item in self.comparison.expectations if not item.ok]

    @property
    def lines(self) -> Sequence[GateLine]:
        """One per gated metric of each policy."""
        return () if self.gate is None else self.gate.lines

    @property
    def regressions(self) -> list[GateLine]:
        """Metrics shown to be worse, unless this is the new baseline."""
        return [] if self.updated else [line for line in self.lines if line.outcome == WORSE]

    @property
    def verdict(self) -> str:
        """``passed``, ``FAILED (...)`` or ``could not be judged``."""
        if self.failed or self.regressions:
            counts = (
                _count(len(self.failed), "expectation"),
                _count(len(self.regressions), "metric", "worse than the baseline"),
            )
            return f"FAILED ({', '.join(text for text in counts if text)})"
        return "could not be judged" if self.not_comparable and not self.updated else "passed"


def _count(number: int, noun: str, tail: str = "") -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}{' ' if tail else ''}{tail}" if number else ""


def exit_code(result: GateResult, *, strict: bool, require_baseline: bool) -> int:
    """0 passed; 1 an expectation or a control failed, or a metric got worse; 4 could not judge."""
    if result.failed or result.regressions:
        return 1
    if result.updated:
        return 0
    if result.not_comparable or (require_baseline and result.missing):
        return 4
    unsure = any(line.outcome == INCONCLUSIVE for line in result.lines) or any(
        item.kind == "expectation" and item.ci95 is None for item in result.comparison.expectations
    )
    return 4 if strict and unsure else 0


def as_text(result: GateResult) -> str:
    """For a terminal: verdict first, then what is behind it."""
    lines = [f"{result.comparison.scenario}: {result.verdict}"]
    lines += [
        f"  {'ok  ' if item.ok else 'FAIL'} {item.text}: {item.shown}{_note(item)}"
        for item in result.comparison.expectations
    ]
    if result.not_comparable:
        lines.append(f"  not comparable: {result.not_comparable}")
    elif result.missing:
        lines.append(f"  no metric is compared: there is no baseline {result.baseline}")
    if result.lines:
        lines.append(f"  against {result.baseline}: {_tally(result.lines)}")
    lines += [f"    {line.outcome:12} {line.policy} {line.metric}: {line.shown}" for line in _telling(result.lines)]
    lines += [f"  note: {note}" for note in (() if result.gate is None else result.gate.notes)]
    return "\n".join(lines) + "\n"


def _note(item: Judgement) -> str:
    return f" ({item.note})" if item.note and item.kind != "control" else ""


def _tally(lines: Sequence[GateLine]) -> str:
    counts = {outcome: len([line for line in lines if line.outcome == outcome]) for outcome in _OUTCOMES}
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)


def _telling(lines: Sequence[GateLine]) -> list[GateLine]:
    """Lines worth reading, the worst first."""
    return [line for outcome in _OUTCOMES[:3] for line in lines if line.outcome == outcome]


def as_json(result: GateResult) -> dict[str, Any]:
    """The comparison's document and the gate."""
    return {
        "scenario": result.comparison.scenario,
        "verdict": result.verdict,
        "baseline": result.baseline,
        "missing_baseline": result.missing,
        "updated": result.updated,
        "not_comparable": result.not_comparable or None,
        "expectations": [item.as_dict() for item in result.comparison.expectations],
        "lines": [line.as_dict() for line in result.lines],
        "notes": [] if result.gate is None else list(result.gate.notes),
        "results": result.comparison.to_json(),
    }


# --- JUnit -------------------------------------------------------------------------------------------------


def write_junit(result: GateResult, path: Path, scenario: Path | None) -> None:
    """JUnit XML in the subset that CI systems agree on. Names hold no measured values, so that histories stay whole."""
    name = result.comparison.scenario
    cases: list[ET.Element] = []
    for item in result.comparison.expectations:
        case = _case(name, item.policy, item.text)
        if scenario is not None and item.line:
            case.set("file", _xml(_near(scenario)))
            case.set("line", str(item.line))
        if not item.ok:
            kind = "ControlPassed" if item.kind == "control" else "SloViolated"
            ET.SubElement(case, "failure", type=kind, message=_xml(f"is {item.shown}"))
        cases.append(case)
    for line in result.lines:
        case = _case(name, line.policy, f"{line.metric} against the baseline")
        if line in result.regressions:
            ET.SubElement(case, "failure", type="Regression", message=_xml(line.shown))
        cases.append(case)
    if result.missing or (result.not_comparable and not result.updated):
        case = _case(name, "", "baseline")
        ET.SubElement(case, "skipped", message=_xml(result.not_comparable or "there is no baseline"))
        cases.append(case)
    _write_suite(name, cases, path)


def write_junit_error(scenario: str, message: str, path: Path) -> None:
    """The suite of a gate that could not be run."""
    case = _case(scenario, "", "gate")
    ET.SubElement(case, "error", type="NotJudged", message=_xml(message))
    _write_suite(scenario, [case], path)


def _case(scenario: str, policy: str, name: str) -> ET.Element:
    owner = ".".join(part for part in ("simkit", scenario, policy) if part)
    return ET.Element("testcase", classname=_xml(owner), name=_xml(name))


def _xml(text: str) -> str:
    """Without the signs that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)


def _write_suite(name: str, cases: Sequence[ET.Element], path: Path) -> None:
    counts = {"tests": str(len(cases))}
    for plural, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counts[plural] = str(len([case for case in cases if case.find(tag) is not None]))
    root = ET.Element("testsuites", {"name": "simkit", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": _xml(name), **counts})
    suite.extend(cases)
    ET.indent(root)
    with write_atomically(path) as file:
        ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)


# --- GitHub ------------------------------------------------------------------------------------------------


def append_step_summary(result: GateResult) -> None:
    """Where a CI job offers a summary file, tell it there. Raises UsageError when it cannot be written."""
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return
    body = _capped(step_summary(result))
    try:
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(body)
    except OSError as error:
        raise UsageError(f"cannot write the step summary {target}: {error.strerror or error}") from error


def step_summary(result: GateResult) -> str:
    """Markdown: the verdict, what was expected, what changed, and the rest folded away."""
    text = [f"### {cell(result.comparison.scenario)}: {result.verdict}", ""]
    text += [
        f"- {'✅' if item.ok else '❌'} {cell(item.text)}: {cell(item.shown)}"
        for item in result.comparison.expectations
    ]
    if result.not_comparable:
        text += ["", f"Not comparable: {cell(result.not_comparable)}"]
    if result.lines:
        text += ["", f"Against `{result.baseline}`: {_tally(result.lines)}."]
    telling = _telling(result.lines)
    text += _table(telling)
    rest = [line for line in result.lines if line not in telling]
    if rest:
        text += [
            "",
            f"<details><summary>{_count(len(rest), 'metric')} unchanged</summary>",
            *_table(rest),
            "",
            "</details>",
        ]
    text += [f"\n{cell(note)}" for note in (() if result.gate is None else result.gate.notes)]
    return "\n".join(text) + "\n\n"


def _table(lines: Sequence[GateLine]) -> list[str]:
    if not lines:
        return []
    rows = [f"| {cell(line.policy)} | {cell(line.metric)} | {line.outcome} | {cell(line.shown)} |" for line in lines]
    return ["", "| policy | metric | outcome | baseline → now |", "|---|---|---|---|", *rows]


def cell(text: str) -> str:
    """`text` as plain text in Markdown, whatever a name holds: no markup, no cell border, no line break."""
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"[\\`*{}\[\]|#~@!]|(?<!\w)_|_(?!\w)", lambda found: f"&#{ord(found[0])};", text)


def _capped(text: str) -> str:
    """At most SUMMARY_CAP bytes, cut at a line."""
    raw = text.encode()
    if len(raw) <= SUMMARY_CAP:
        return text
    kept = raw[: SUMMARY_CAP - 40].rpartition(b"\n")[0].decode()
    return kept + "\n\n(cut: too long)\n"


def workflow_errors(result: GateResult, scenario: Path | None) -> list[str]:
    """Workflow commands for the worst failures, where the job reads them; at most MOST_ANNOTATIONS in all."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return []
    found = []
    for item in result.failed:
        place = f"file={_property(_near(scenario))},line={item.line or 1}," if scenario is not None else ""
        found.append(f"::error {place}title=expectation::{_data(f'{item.text}: {item.shown}')}")
    found += [
        f"::error title=regression::{_data(f'{line.policy} {line.metric}: {line.shown}')}"
        for line in result.regressions
    ]
    if len(found) > MOST_ANNOTATIONS:
        more = len(found) - MOST_ANNOTATIONS + 1
        found = [*found[: MOST_ANNOTATIONS - 1], f"::error title=simkit::and {more} more"]
    return found


def _near(path: Path) -> str:
    """The path as seen from here, where CI systems look for it; as it is when it lies elsewhere."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
