"""The charts of a report, each with the same numbers as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from simkit.catalogue import digits, words
from simkit.report import svg
from simkit.report.charts import Chart, dots, label, legend, make, plain_numbers
from simkit.report.data import FigureData, figure_data
from simkit.report.time_charts import latency, modes, over_time, trouble
from simkit.report.words import harmless, percent
from simkit.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from simkit.compare import Comparison


# --- shares and utilisation ----------------------------------------------------------------------------


def shares(data: Sequence[FigureData]) -> Chart | None:
    """What each flow got against what its weight made due; None where no two flows ever waited together."""
    shown = [one for one in data if one.shares]
    if not shown:
        return None
    heights = [len(one.shares) for one in shown]

    def draw(figure: Figure) -> None:
        grid = figure.subplots(len(shown), 1, squeeze=False, sharex=True, height_ratios=heights).ravel()
        for axes, one in zip(grid, shown, strict=True):
            names = [label(share.name) for share in one.shares]
            at = np.arange(len(names))[::-1]
            got, due = [share.got * 100 for share in one.shares], [share.due * 100 for share in one.shares]
            axes.hlines(at, np.minimum(got, due), np.maximum(got, due), color=svg.INK, linewidth=1.2, alpha=0.5)
            axes.plot(due, at, "|", color=svg.PALETTE[1], markersize=13, markeredgewidth=2.4, label="due by weight")
            axes.plot(got, at, "o", color=svg.PALETTE[0], markersize=7, label="got")
            axes.set_yticks(at, names)
            axes.set_ylim(-0.6, len(names) - 0.4)
            axes.set_xlim(-2, 102)
            axes.set_title(f"{label(one.policy)}, by {one.shares_by}")
        grid[-1].set_xlabel("percent of the work that was started while two or more waited")
        legend(figure, grid[0])

    rows = [
        (harmless(one.policy), harmless(share.name), f"{share.due:.1%}", f"{share.got:.1%}")
        for one in shown
        for share in one.shares
    ]
    about = (
        "A circle on its bar means: served as the weights say. Policies without weights of their own are held to equal shares per tenant. "
        "Replication 0."
    )
    height = 0.8 + 0.42 * len(shown) + 0.3 * int(np.sum(heights))
    return make("shares", "Share against weights", about, height, draw, (("policy", "flow", "due", "got"), rows))


def utilisation(comparison: Comparison) -> Chart | None:
    """Utilisation of each pool under each policy with its interval; None without limited pools."""
    pools = sorted({name for own in comparison.results.values() for summary in own for name in summary.pools})
    found = {
        (policy, pool): comparison.metric(policy, "utilisation", {"pool": pool})
        for policy in comparison.policies
        for pool in pools
    }
    pools = [pool for pool in pools if any(not math.isnan(found[policy, pool].mean) for policy in comparison.policies)]
    if not pools:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        count = len(comparison.policies)
        for place, policy in enumerate(comparison.policies):
            at = np.arange(len(pools))[::-1] + (0.5 - (place + 1) / (count + 1)) * 0.8
            mean = np.array([found[policy, pool].mean * 100 for pool in pools])
            half = np.array([_half(found[policy, pool]) * 100 for pool in pools])
            axes.errorbar(mean, at, xerr=half, label=label(policy), **dots(place))
        axes.set_yticks(np.arange(len(pools))[::-1], [label(pool) for pool in pools])
        axes.set_ylim(-0.55, len(pools) - 0.45)
        axes.set_xlim(-2, 102)
        axes.set_xlabel("percent of slot time in use")
        legend(figure, axes)

    rows = [(harmless(pool), *(_with_half(found[policy, pool]) for policy in comparison.policies)) for pool in pools]
    header = ("pool", *(harmless(policy) for policy in comparison.policies))
    about = "Mean over replications with its 95 % interval. Near 100 % a pool has no room for bursts."
    height = 1.2 + len(pools) * (0.25 + 0.13 * len(comparison.policies))
    return make("utilisation", "Utilisation", about, height, draw, (header, rows))


def _half(found: Estimate) -> float:
    return 0.0 if math.isnan(found.half_width) else found.half_width


def _with_half(found: Estimate) -> str:
    if math.isnan(found.mean):
        return "-"
    half = found.half_width * 100
    return f"{digits(found.mean * 100, half)}%" + (f" ± {digits(half, half)}" if half > 0 else "")


# --- what went wrong ---------------------------------------------------------------------------------------


def waits(data: Sequence[FigureData]) -> Chart | None:
    """What the waiting was for: each policy's waiting time by what was missing."""
    parts = {one.policy: {harmless(reason): seconds for reason, seconds in one.waits} for one in data}
    about = (
        "All waiting of replication 0 by what was missing: a free slot of a pool, a limit of the policy, an API's permission, or admission "
        "and backoff outside of queues."
    )
    return _stacked("waits", "What the waiting was for", about, "waited, s", "reason", parts)


def causes(data: Sequence[FigureData]) -> Chart | None:
    """Failed and late runs by label and root cause."""
    parts = {one.policy: {harmless(cause.label): 0.0 for cause in one.causes} for one in data}
    for one in data:
        for cause in one.causes:
            parts[one.policy][harmless(cause.label)] += cause.runs
    chart = _stacked(
        "causes", "Root causes of failed and late runs",
        "Runs of replication 0 that failed, were turned away or missed their deadline, by the kind of failure; the table adds what most of their "
        "time went to.", "runs", "label", parts,
    )  # fmt: skip
    if chart is None:
        return None
    rows = [
        (harmless(one.policy), harmless(cause.label), harmless(cause.root), f"{cause.runs:,}")
        for one in data
        for cause in one.causes
    ]
    return Chart(chart.name, chart.title, chart.about, chart.svg, ("policy", "label", "root cause", "runs"), rows)


def _stacked(
    name: str, title: str, about: str, unit: str, what: str, parts: dict[str, dict[str, float]]
) -> Chart | None:
    totals: dict[str, float] = {}
    for own in parts.values():
        for key, amount in own.items():
            totals[key] = totals.get(key, 0.0) + amount
    keys = sorted((key for key in totals if totals[key] > 0), key=lambda key: (-totals[key], key))
    if not keys:
        return None
    keep, rest = keys[:6], keys[6:]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        at = np.arange(len(parts))[::-1]
        left = np.zeros(len(parts))
        groups = [(key, [key]) for key in keep] + ([("all other", rest)] if rest else [])
        for place, (key, members) in enumerate(groups):
            width = np.array([math.fsum(own.get(each, 0.0) for each in members) for own in parts.values()])
            there = width > 0
            fill: dict[str, Any] = {
                "color": svg.PALETTE[place] if place < len(keep) else svg.FAINT, "hatch": svg.HATCHES[place % len(svg.HATCHES)],
                "edgecolor": svg.INK, "linewidth": 0.3,
            }  # fmt: skip
            axes.barh(at[there], width[there], left=left[there], height=0.62, label=label(key), **fill)
            left += width
        axes.set_yticks(at, [label(policy) for policy in parts])
        axes.set_xlabel(unit)
        axes.set_xlim(left=0)
        plain_numbers(axes.xaxis)
        axes.locator_params(axis="x", nbins=6)
        legend(figure, axes)

    rows = [
        (harmless(policy), key, digits(own[key], None), f"{own[key] / math.fsum(own.values()):.0%}")
        for policy, own in parts.items() for key in keys if own.get(key)
    ]  # fmt: skip
    return make(
        name,
        title,
        about,
        1.2 + 0.42 * len(parts) + 0.2 * math.ceil(len(keep) / 3),
        draw,
        (("policy", what, unit, "part"), rows),
    )


# --- differences -------------------------------------------------------------------------------------------


def differences(comparison: Comparison) -> Chart | None:
    """Each policy's change against the baseline, headline metric by headline metric; None when there is no ratio to show."""
    table = [
        item for item in comparison.differences()
        if not item.where and item.ratio_ci95 is not None and item.ratio > 0 and item.metric != "stable" and not item.note.startswith("identical")
    ]  # fmt: skip
    if not table:
        return None
    metrics = [key for key in comparison.headlines if any(item.key == key for item in table)]
    policies = [policy for policy in comparison.policies if policy != comparison.baseline]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        margin = comparison.margin * 100
        axes.axvspan(-margin, margin, color=svg.FAINT, linewidth=0)
        axes.axvline(0, color=svg.INK, linewidth=0.9)
        for place, policy in enumerate(policies):
            own = [item for item in table if item.policy == policy]
            shift = (0.5 - (place + 1) / (len(policies) + 1)) * 0.85
            at = [len(metrics) - 1 - metrics.index(item.key) + shift for item in own]
            middle = np.array([(item.ratio - 1) * 100 for item in own])
            ends = (np.array([item.ratio_ci95 for item in own], dtype=float).reshape(-1, 2) - 1) * 100
            error = np.abs(ends - middle[:, None]).T
            axes.errorbar(middle, at, xerr=error, label=label(policy), **dots(place + 1))
        axes.set_yticks(np.arange(len(metrics))[::-1], [label(words(key)) for key in metrics])
        axes.set_ylim(-0.6, len(metrics) - 0.4)
        shown = [end for item in table if item.ratio_ci95 for end in (item.ratio, *item.ratio_ci95)]
        _change_axis(axes, (np.array(shown) - 1) * 100, margin)
        axes.set_xlabel(
            f"change against {label(comparison.baseline)} (linear within ±{max(margin, 1):g} %, then logarithmic)"
        )
        legend(figure, axes)

    rows = [
        (harmless(item.policy), words(item.metric), percent(item.ratio, item.ratio_ci95), item.verdict)
        for item in table
    ]
    about = (
        f"Ratio of the means with its 95 % interval, by bootstrap over replications (by t with fewer than ten). The band is the margin of {comparison.margin * 100:g} % within which "
        "differences do not count. Left of the line is less, which is good or bad by the metric: see the verdicts."
    )
    height = 1.2 + len(metrics) * (0.2 + 0.13 * len(policies))
    return make(
        "differences",
        f"Against {label(comparison.baseline)}",
        about,
        height,
        draw,
        (("policy", "metric", "change", "verdict"), rows),
    )


def _change_axis(axes: Axes, values: Any, margin: float) -> None:
    """Percent, linear within the margin and logarithmic outside: a change of 2 % and one of 98 % are both seen."""
    edge = max(margin, 1.0)
    axes.set_xscale("symlog", linthresh=edge, linscale=0.7)
    low, high = min(float(np.min(values)), -edge), max(float(np.max(values)), edge)
    axes.set_xlim(low * 1.6 if low < 0 else low, high * 1.6)
    place = axes.xaxis.get_transform().transform
    left, right = place([low * 1.6, high * 1.6])
    kept = [0.0, edge, -edge]
    for tick in (
        100,
        1000,
        10,
        10_000,
        30,
        100_000,
        5,
        3,
    ):  # the rounder the earlier: what comes too close to one that is there is left out
        for signed in (float(tick), -float(tick)):
            near = min(abs(float(place([signed])[0]) - float(place([other])[0])) for other in kept)
            if signed >= -100 and abs(signed) > edge and near > 0.085 * (right - left):
                kept.append(signed)
    inside = sorted(tick for tick in kept if low * 1.6 <= tick <= high * 1.6)
    axes.set_xticks(inside, ["0" if tick == 0 else f"{tick:+,g}%" for tick in inside])
    axes.minorticks_off()


# --- all of them -------------------------------------------------------------------------------------------


@dataclass
class Plots:
    """The charts of a comparison by name, each drawn when asked for; None where there is nothing to draw."""

    comparison: Comparison
    data: Sequence[FigureData] = field(default_factory=tuple)

    @classmethod
    def of(cls, comparison: Comparison) -> Plots:
        """With the figures of the logs that the comparison brings (of replication 0)."""
        known = comparison.details.get("figures")
        if known is None:
            known = comparison.details["figures"] = [
                figure_data(log) for log in comparison.details.get("logs", {}).values()
            ]
        return cls(comparison, known)

    def differences(self) -> Chart | None:
        return differences(self.comparison)

    def latency(self) -> Chart | None:
        return latency(self.data)

    def over_time(self) -> Chart | None:
        return over_time(self.data)

    def shares(self) -> Chart | None:
        return shares(self.data)

    def utilisation(self) -> Chart | None:
        return utilisation(self.comparison)

    def modes(self) -> Chart | None:
        return modes(self.data)

    def trouble(self) -> Chart | None:
        return trouble(self.data)

    def waits(self) -> Chart | None:
        return waits(self.data)

    def causes(self) -> Chart | None:
        return causes(self.data)

    def every(self) -> list[Chart]:
        """All that there is to draw, in the order of the report."""
        made = (
            self.differences(), self.latency(), self.over_time(), self.shares(), self.utilisation(), self.modes(), self.trouble(),
            self.waits(), self.causes(),
        )  # fmt: skip
        return [chart for chart in made if chart is not None]
