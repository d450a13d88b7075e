"""A comparison as Markdown: the file of a report, and the table that a CI job's summary shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from simkit.report import tables
from simkit.report.words import MARKS, harmless, markdown
from simkit.stats import BETTER, OPEN, SAME, WORSE

if TYPE_CHECKING:
    from simkit.compare import Comparison


def cell(text: object) -> str:
    """Text for a cell of a table or a line: nothing of it is formatting, and it is one line."""
    return markdown(text)


def table(header: Sequence[object], rows: Iterable[Sequence[object]], *, numbers_from: int = 1) -> str:
    """A Markdown table; columns from `numbers_from` on are aligned right."""
    align = ["---" if place < numbers_from else "---:" for place in range(len(header))]
    lines = [header, *rows]
    text = ["| " + " | ".join(cell(item) for item in line) + " |" for line in lines]
    return "\n".join([text[0], "| " + " | ".join(align) + " |", *text[1:]])


def summary_table(comparison: Comparison) -> str:
    """Headline metrics, one row each, one column per policy, with intervals and verdict marks."""
    rows = [[row.heading, *(_marked(item) for item in row.cells)] for row in tables.headline_rows(comparison)]
    names = [f"{policy} (baseline)" if policy == comparison.baseline else policy for policy in comparison.policies]
    legend = (
        f"{MARKS[BETTER]} better, {MARKS[WORSE]} worse, {MARKS[SAME]} no difference shown, {MARKS[OPEN]} inconclusive. "
    )
    return f"{table(['metric', *names], rows)}\n\n{legend}{markdown(tables.how_judged(comparison))}"


def _marked(item: tables.Cell) -> str:
    return f"{item.text} {MARKS.get(item.verdict, '')}".strip()


def report(comparison: Comparison) -> str:
    """The whole report without its figures."""
    parts = [
        f"# {cell(comparison.scenario)}",
        cell(tables.setting(comparison))
        + (f". {markdown(harmless(comparison.about, 2000))}" if comparison.about else ""),
        cell(tables.stopped_line(comparison)),
        f"**{markdown(harmless(comparison.recommendation.sentence, 2000))}**",
        _expectations(comparison),
        "## Policies side by side",
        summary_table(comparison),
        _ladder(comparison),
        _classes(comparison),
        _differences(comparison),
        _provenance(comparison),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _expectations(comparison: Comparison) -> str:
    lines = tables.expected(comparison)
    if not lines:
        return ""
    head = tables.expectations_line(comparison)
    items = [
        f"- {'✅' if line.ok else '❌'} {cell(line.text)}" + (f" ({cell(line.value)})" if line.value else "")
        for line in lines
    ]
    return "\n".join([f"## Expectations: {cell(head)}", "", *items])


def _ladder(comparison: Comparison) -> str:
    found = tables.steps(comparison)
    if not found:
        return ""
    rows = [(step.policy, step.below, tables.EARNED[step.earned], step.why) for step in found]
    return "## Does each step earn its complexity?\n\n" + table(
        ("policy", "over", "earned", "because"), rows, numbers_from=4
    )


def _classes(comparison: Comparison) -> str:
    parts = []
    for name, rows in tables.class_rows(comparison).items():
        lines = [[row.heading, *(_marked(item) for item in row.cells)] for row in rows]
        parts.append(f"### Class {cell(name)}\n\n{table(['metric', *comparison.policies], lines)}")
    return "## By class\n\n" + "\n\n".join(parts) if parts else ""


def _differences(comparison: Comparison) -> str:
    found = tables.changes(comparison.differences())
    if not found:
        return ""
    rows = [(item.policy, item.metric, item.difference, item.ratio, item.p, item.verdict, item.note) for item in found]
    body = table(("policy", "metric", "difference", "ratio", "p", "verdict", "note"), rows, numbers_from=2)
    return f"## Every difference from {cell(comparison.baseline)}\n\n{cell(tables.how_judged(comparison))}\n\n{body}"


def _provenance(comparison: Comparison) -> str:
    rows = tables.provenance(comparison)
    return "## Where this comes from\n\n" + table(("what", "value"), rows, numbers_from=2)
