"""Reports of a comparison: page, Markdown, numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simkit.compare import Comparison


def write_report(comparison: Comparison, folder: str | Path) -> Path:
    """Write ``report.html`` (one file, needs no network), ``report.md``, ``summary.json``, ``summary.csv``, ``differences.csv`` and
    ``runs.csv.gz`` into `folder`; returns the path of the page.

    Equal comparisons give equal bytes. Each file appears whole or not at all. Raises UsageError when the folder cannot be written to.
    """
    from simkit.files import write_text
    from simkit.report import export, html, markdown

    folder = Path(folder)
    page = folder / "report.html"
    comparison.details["report"] = str(page)
    export.write_json(comparison, folder / "summary.json")
    export.write_summary_csv(comparison, folder / "summary.csv")
    export.write_differences_csv(comparison, folder / "differences.csv")
    export.write_runs_csv(comparison, folder / "runs.csv.gz")
    write_text(folder / "report.md", markdown.report(comparison))
    write_text(page, html.page(comparison))
    return page
