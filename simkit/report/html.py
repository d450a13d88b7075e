"""The report as one page: HTML with its style, charts and data inside. It loads nothing and runs no script."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from simkit.compare import clean
from simkit.report import tables
from simkit.report.charts import Chart
from simkit.report.data import FigureData, thin
from simkit.report.figures import Plots
from simkit.report.words import MARKS, harmless
from simkit.stats import BETTER, OPEN, SAME, WORSE

if TYPE_CHECKING:
    from jinja2 import Environment

    from simkit.compare import Comparison

_MOST_TENANTS = 20
_KINDS = {BETTER: "better", WORSE: "worse", SAME: "same", OPEN: "open", "higher": "open", "lower": "open"}
_EARNED = {"yes": "better", "no": "same", "mixed": "mixed", "not shown": "open"}


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("simkit.report", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def page(comparison: Comparison) -> str:
    """The whole document."""
    return _render("report.html.j2", comparison, charts=Plots.of(comparison).every())


def fragment(comparison: Comparison) -> str:
    """The verdict, the policies and the ladder, for a notebook."""
    return _render("fragment.html.j2", comparison, charts=[])


def chart_fragment(chart: Chart) -> str:
    """A chart with its table, for a notebook."""
    return (
        _templates()
        .get_template("chart_fragment.html.j2")
        .render(chart=_chart(chart), style=_style(), kinds=_KINDS, marks=MARKS)
    )


def _render(template: str, comparison: Comparison, *, charts: list[Chart]) -> str:
    changes = tables.changes(comparison.differences())
    text: str = _templates().get_template(template).render(
        title=harmless(comparison.scenario),
        about=harmless(comparison.about, 3000),
        setting=tables.setting(comparison),
        stopped=tables.stopped_line(comparison),
        recommendation=comparison.recommendation,
        policies=[harmless(policy) for policy in comparison.policies],
        baseline=harmless(comparison.baseline),
        expectations_line=tables.expectations_line(comparison),
        expectations=tables.expected(comparison),
        rows=tables.headline_rows(comparison),
        classes=tables.class_rows(comparison),
        steps=tables.steps(comparison),
        earned=tables.EARNED,
        how=tables.how_judged(comparison),
        changes=changes,
        charts=[_chart(chart) for chart in charts],
        missing=_missing(charts) if charts or template.startswith("report") else "",
        provenance=tables.provenance(comparison),
        primary=comparison.primary,
        pick=harmless(comparison.recommendation.policy),
        marks=MARKS,
        kinds=_KINDS,
        earned_kinds=_EARNED,
        style=_style(),
        data=_json(_document(comparison)),
        figures=_json([_plain_figures(one) for one in comparison.details.get("figures") or ()]),
    )  # fmt: skip
    return text


def _chart(chart: Chart) -> dict[str, Any]:
    from markupsafe import Markup

    drawing = Markup(chart.svg)  # noqa: S704 - drawn by us, its texts escaped by matplotlib and `svg.inline`
    return {
        "name": chart.name,
        "title": chart.title,
        "about": chart.about,
        "svg": drawing,
        "header": chart.header,
        "rows": chart.rows,
    }


def _style() -> Any:
    from markupsafe import Markup

    return Markup(_templates().get_template("style.css").render())  # noqa: S704 - a file of ours, nothing is put into it


_TITLES = {
    "latency": "latency", "over_time": "waiting over time", "shares": "shares (no two flows waited together)",
    "modes": "overload modes (no policy has any)", "trouble": "retries and 429 answers (there were none)",
    "causes": "root causes (no run failed or was late)", "waits": "waiting by reason (nothing waited)",
}  # fmt: skip


def _missing(charts: list[Chart]) -> str:
    """What there is no chart of, and why."""
    drawn = {chart.name for chart in charts}
    return ", ".join(text for name, text in _TITLES.items() if name not in drawn)


def _document(comparison: Comparison) -> dict[str, Any]:
    """The results with the largest tenants only: the page shall stay small."""
    document = comparison.to_json()
    offered: dict[str, float] = {}
    for own in document["policies"].values():
        for name, table in own["by_tenant"].items():
            offered[name] = max(offered.get(name, 0.0), (table.get("offered") or {}).get("mean") or 0.0)
    kept = set(sorted(offered, key=lambda name: (-offered[name], name))[:_MOST_TENANTS])
    for own in document["policies"].values():
        left_out = len(own["by_tenant"]) - len(kept & own["by_tenant"].keys()) + own.get("by_tenant_left_out", 0)
        own["by_tenant"] = {name: table for name, table in own["by_tenant"].items() if name in kept}
        if left_out:
            own["by_tenant_left_out"] = left_out
    return document


def _plain_figures(one: FigureData) -> dict[str, Any]:
    plain: dict[str, Any] = {"policy": one.policy, "replication": one.replication, "end_s": one.end_s}
    for name in ("t_s", "waiting", "in_system", "queued_work_s", "throttled_per_s", "retries_per_s"):
        plain[name] = thin(getattr(one, name))
    plain["latency"] = [
        {"class": curve.name, "completed": curve.completed, "offered": curve.offered, "tail": thin(curve.tail), "seconds": thin(curve.seconds)}
        for curve in one.latency
    ]  # fmt: skip
    plain["shares"] = [{"flow": share.name, "due": share.due, "got": share.got} for share in one.shares]
    plain["modes"], plain["faults"], plain["waits"] = list(one.modes), list(one.faults), list(one.waits)
    plain["causes"] = [{"label": cause.label, "root": cause.root, "runs": cause.runs} for cause in one.causes]
    return plain


def _json(value: Any) -> Any:
    """JSON inside a ``<script>``: no sign of it can end the element."""
    from markupsafe import Markup

    text = json.dumps(clean(value), sort_keys=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&'":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)  # noqa: S704 - every sign with a meaning in HTML is written as an escape
