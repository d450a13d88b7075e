"""The result of a comparison on a terminal: what to choose and why on one screen, or all differences."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simkit.catalogue import GUARDS
from simkit.report import tables
from simkit.report.words import MARKS, PLAIN_MARKS, harmless
from simkit.stats import BETTER, OPEN, SAME, WORSE

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from simkit.compare import Comparison

_NARROW, _WIDE, _WIDEST = 80, 110, 140
_STYLES = {
    BETTER: "green",
    WORSE: "red",
    SAME: "dim",
    OPEN: "dim",
    "yes": "green",
    "no": "dim",
    "mixed": "yellow",
    "not shown": "dim",
}
_TOGETHER = ("success_rate", "latency_s.p95", "not_completed")
_MOST_EXPECTATIONS = 5
_EARNED = {**tables.EARNED, "mixed": "mixed"}


def show(comparison: Comparison, console: Console | None = None) -> None:
    """The verdict, the policies side by side, the ladder, the expectations; at most as wide as the terminal (80 without one)."""
    out = console or _console()
    marks = _marks(out)
    _heading(out, comparison)
    _say(out, comparison.recommendation.sentence, style="bold")
    out.print()
    _policies(out, comparison, marks)
    if len(comparison.policies) > 1:
        out.print()
        _ladder(out, comparison)
    if comparison.expectations:
        out.print()
        _expectations(out, comparison)


def show_differences(comparison: Comparison, console: Console | None = None) -> None:
    """Every difference from the baseline with its interval and verdict."""
    out = console or _console()
    marks = _marks(out)
    _heading(out, comparison)
    _policies(out, comparison, marks)
    found = tables.changes(comparison.differences())
    if not found:
        _say(out, "There is nothing to compare with: one policy.")
        return
    wide = out.width >= _WIDE
    for policy in dict.fromkeys(item.policy for item in found):
        out.print()
        _say(out, f"{policy} against {harmless(comparison.baseline)}", style="bold")
        own = [item for item in found if item.policy == policy]
        table = _table(out, ("metric", "difference", "change", *(("p", "verdict") if wide else ("",))))
        for item in own:
            cells = [item.metric, item.difference, item.ratio, *([item.p] if wide else [])]
            verdict = f"{item.verdict} {marks[item.verdict]}" if wide else marks[item.verdict]
            table.add_row(*(_text(out, cell) for cell in cells), _text(out, verdict, _STYLES.get(item.verdict, "")))
        out.print(table)
        for item in own:
            if "undefined" in item.note:
                _say(out, f"{item.metric}: {item.note}", style="dim")


# --- parts -------------------------------------------------------------------------------------------------


def _console() -> Console:
    from rich.console import Console

    terminal = sys.stdout.isatty()
    width = max(_NARROW // 2, min(shutil.get_terminal_size((_NARROW, 24)).columns, _WIDEST)) if terminal else _NARROW
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def _marks(out: Console) -> dict[str, str]:
    """Triangles where the terminal can write them."""
    return MARKS if _writes(out, "".join(MARKS.values())) else PLAIN_MARKS


def _writes(out: Console, text: str) -> bool:
    try:
        text.encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _text(out: Console, text: str, style: str = "") -> Text:
    """Never markup; signs that the terminal cannot write become plain ones."""
    from rich.text import Text

    if not _writes(out, text):
        for sign, plain in (
            ("±", "+-"),
            ("×", "x"),
            ("≈", "="),
            ("…", "..."),
            ("∞", "inf"),
            ("·", "-"),
            ("✓", "ok"),
            ("✗", "FAIL"),
        ):
            text = text.replace(sign, plain)
        text = text.encode(out.encoding or "ascii", "replace").decode(out.encoding or "ascii")
    return Text(text, style=style)


def _say(out: Console, text: str, style: str = "") -> None:
    for line in textwrap.wrap(harmless(text, 2000), out.width, break_on_hyphens=False):
        out.print(_text(out, line, style))


def _heading(out: Console, comparison: Comparison) -> None:
    _say(out, f"{harmless(comparison.scenario)}: {tables.setting(comparison)}")
    stopped = tables.stopped_line(comparison)
    if stopped:
        _say(out, stopped, style="yellow")
    line = tables.expectations_line(comparison)
    if line:
        good = all(item.ok for item in comparison.expectations)
        _say(out, f"{'✓' if good else '✗'} {line[0].upper()}{line[1:]}.", style="green" if good else "bold red")


def _table(out: Console, columns: Sequence[str]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for place, name in enumerate(columns):
        table.add_column(_text(out, name), justify="right" if place else "left", overflow="fold", no_wrap=place > 0)
    return table


def _policies(out: Console, comparison: Comparison, marks: dict[str, str]) -> None:
    rows = tables.headline_rows(comparison)
    first = max(12, min(26, max(len(harmless(policy)) for policy in comparison.policies)))
    chosen = _chosen(rows, comparison.primary, out.width - first, marks)
    table = _table(out, ["policy", *(_short_heading(row) for row in chosen)])
    for place, policy in enumerate(comparison.policies):
        name = harmless(policy, first)
        cells = [_marked(row.cells[place], marks) for row in chosen]
        best = policy == comparison.recommendation.policy
        table.add_row(
            _text(out, name, "bold" if best else ""),
            *(
                _text(out, cell, _STYLES.get(row.cells[place].verdict, ""))
                for cell, row in zip(cells, chosen, strict=True)
            ),
        )
    out.print(table)
    if len(comparison.policies) > 1:
        legend = f"{marks[BETTER]} better {marks[WORSE]} worse {marks[SAME]} no difference {marks[OPEN]} open. {tables.how_judged(comparison)}"
        _say(out, legend, style="dim")
    left = len(rows) - len(chosen)
    if left > 0:
        _say(out, f"{left} more {'metric is' if left == 1 else 'metrics are'} in the report.", style="dim")


def _marked(cell: tables.Cell, marks: dict[str, str]) -> str:
    return f"{cell.value}{cell.spread.replace('± ', ' ±')} {marks.get(cell.verdict, ' ')}"


def _short_heading(row: tables.Row) -> str:
    """In two lines: what, and of it which part or in which unit."""
    label = row.label.replace("runs not completed", "not done").replace("cost per verified run", "cost/verified")
    words = label.split(" ")
    half = max(1, len(words) // 2)
    second = " ".join(words[half:]) + (f", {row.unit}" if row.unit and words[half:] else row.unit)
    return f"{' '.join(words[:half])}\n{second}".rstrip()


def _chosen(rows: Sequence[tables.Row], primary: str, width: int, marks: dict[str, str]) -> list[tables.Row]:
    """The columns that fit: the primary metric, guards that tell policies apart, latency only together with what it leaves out, the rest."""
    groups = [[row] for row in rows if row.key == primary]
    groups += [[row] for row in rows if row.telling and row.key in GUARDS and row.key != primary]
    together = [row for row in rows if row.key in _TOGETHER]
    groups += [together, *([row] for row in rows if row.key == "success_rate")]
    groups += [[row] for row in rows if row.telling and not row.key.startswith("latency_s")]
    kept: list[tables.Row] = []
    for group in groups:
        new = [row for row in group if row not in kept]
        need = 0
        for row in new:
            heading = max(len(line) for line in _short_heading(row).split("\n"))
            need += max(heading, *(len(_marked(cell, marks)) for cell in row.cells)) + 3  # two of padding, one between
        if need <= width:
            kept += new
            width -= need
    return [row for row in rows if row in kept]


def _listed(out: Console, lines: Sequence[tuple[str, str, str]]) -> None:
    """(word, its style, text) one below the other, long texts indented."""
    indent = 3 + max(len(word) for word, _, _ in lines)
    for word, style, text in lines:
        wrapped = textwrap.wrap(text, max(20, out.width - indent), break_on_hyphens=False) or [""]
        line = _text(out, f"  {word}", style)
        line.append_text(_text(out, f"{' ' * (indent - 2 - len(word))}{wrapped[0]}"))
        out.print(line)
        for more in wrapped[1:]:
            out.print(_text(out, " " * indent + more))


def _ladder(out: Console, comparison: Comparison) -> None:
    _say(out, "Does each step earn its complexity?", style="bold")
    _listed(
        out,
        [
            (_EARNED[step.earned], _STYLES[step.earned], f"{step.policy} over {step.below}: {step.why}")
            for step in tables.steps(comparison)
        ],
    )


def _expectations(out: Console, comparison: Comparison) -> None:
    """Those that fail, and some of those that are met."""
    lines = tables.expected(comparison)
    worst_first = [line for line in lines if not line.ok] + [line for line in lines if line.ok]
    failed = len([line for line in lines if not line.ok])
    most = max(failed, _MOST_EXPECTATIONS)
    _say(out, "Expectations", style="bold")
    _listed(
        out,
        [
            (
                "✓" if line.ok else "✗",
                "green" if line.ok else "bold red",
                line.text + (f"  ({line.value})" if line.value else ""),
            )
            for line in worst_first[:most]
        ],
    )
    if len(lines) > most:
        _say(out, f"  and {len(lines) - most} more that are met", style="dim")
