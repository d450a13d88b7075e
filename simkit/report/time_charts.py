"""Charts of one replication: latency quantiles, series over time, overload modes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simkit.catalogue import digits
from simkit.report import svg
from simkit.report.charts import Chart, label, legend, look, make, plain_numbers
from simkit.report.data import FigureData
from simkit.report.words import harmless

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TICKS = (1, 2, 10, 100, 1000, 10_000, 100_000)


# --- latency -----------------------------------------------------------------------------------------------


def latency(data: Sequence[FigureData]) -> Chart | None:
    """Latency quantiles on an axis of 1/(1-q), all runs and each class; None when nobody completed anything."""
    names = list(dict.fromkeys(curve.name for one in data for curve in one.latency if curve.completed))
    if not names:
        return None
    curves = {(one.policy, curve.name): curve for one in data for curve in one.latency}
    columns = min(2, len(names))
    lines = math.ceil(len(names) / columns)

    def draw(figure: Figure) -> None:
        grid = figure.subplots(lines, columns, squeeze=False).ravel()
        for axes, name in zip(grid, names, strict=False):
            for place, one in enumerate(data):
                curve = curves.get((one.policy, name))
                if curve is not None and curve.completed:
                    axes.plot(curve.tail, curve.seconds, label=label(one.policy), **look(place))
            axes.set_xscale("log")
            axes.set_title(label(name) if name else "all runs")
            _seconds_axis(axes)
            _tail_axis(axes)
        for axes in grid[len(names) :]:
            axes.set_visible(False)
        legend(figure, max(grid[: len(names)], key=lambda axes: len(axes.lines)))

    header = ("policy", "runs", "completed", "median s", "p90 s", "p99 s", "p99.9 s")
    rows = [
        (harmless(one.policy), harmless(curve.name) or "all", f"{curve.completed:,} of {curve.offered:,}",
         *(digits(curve.quantile(q), None) for q in (0.5, 0.9, 0.99, 0.999)))
        for one in data for curve in one.latency
    ]  # fmt: skip
    about = (
        "Read it from the left: at 50 % half of the completed runs were faster, at 99 % one in a hundred was slower. Runs that were not "
        "completed are not in the curves: see how many completed in the table. Replication 0."
    )
    return make("latency", "Latency of completed runs", about, 0.6 + 2.5 * lines, draw, (header, rows))


def _tail_axis(axes: Axes) -> None:
    high = float(max((np.max(np.asarray(line.get_xdata(), dtype=float)) for line in axes.lines), default=2.0))
    ticks = [tick for tick in _TICKS if tick <= max(high, 2.0)]
    axes.set_xticks(ticks, ["0" if tick == 1 else f"{100 * (1 - 1 / tick):.6g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("percent of completed runs that were faster")


def _seconds_axis(axes: Axes) -> None:
    """Logarithmic where the curves are far apart; then what took no time at all sits at the lower end."""
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.lines] or [np.zeros(1)])
    positive = values[values > 0]
    if len(positive) and values.max() > 30 * np.median(positive):
        low = max(float(np.quantile(positive, 0.02)), 1e-3)
        axes.set_yscale("log", nonpositive="clip")
        axes.set_ylim(low / 1.5, float(values.max()) * 1.5)
        axes.minorticks_off()
    else:
        axes.set_ylim(bottom=0)
    plain_numbers(axes.yaxis)
    axes.set_ylabel("latency, s")


# --- over time ---------------------------------------------------------------------------------------------


def over_time(data: Sequence[FigureData]) -> Chart | None:
    """Waiting tasks, runs in the system and queued work over time."""
    panels = (
        ("tasks waiting", "waiting"),
        ("runs in the system", "in_system"),
        ("queued work, slot s", "queued_work_s"),
    )
    about = "Means over short spans of replication 0. Shaded: faults. A line that keeps rising is a queue that does not come to rest."
    return _trends("over_time", "Waiting and backlog over time", about, data, panels)


def trouble(data: Sequence[FigureData]) -> Chart | None:
    """Retries and 429 answers over time; None when there were none."""
    panels = (("429 answers per s", "throttled_per_s"), ("retries per s", "retries_per_s"))
    about = "Of all retry layers together (client, platform, SDK), in replication 0. Spikes at equal distances are clients in step."
    return _trends("trouble", "Retries and 429 answers", about, data, panels)


def _trends(
    name: str, title: str, about: str, data: Sequence[FigureData], panels: Sequence[tuple[str, str]]
) -> Chart | None:
    panels = [panel for panel in panels if any(max(getattr(one, panel[1]), default=0) > 0 for one in data)]
    if not panels:
        return None

    def draw(figure: Figure) -> None:
        grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True).ravel()
        for axes, (heading, field_name) in zip(grid, panels, strict=True):
            for place, one in enumerate(data):
                axes.plot(
                    one.t_s, getattr(one, field_name), label=label(one.policy), **{**look(place), "linewidth": 1.4}
                )
            for begin, end, _ in data[0].faults:
                axes.axvspan(begin, end, color=svg.FAINT, alpha=1.0, linewidth=0)
            axes.set_title(heading)
            axes.set_ylim(bottom=0)
            plain_numbers(axes.yaxis)
            axes.set_xlim(0, max(one.end_s for one in data))
        grid[-1].set_xlabel("time, s")
        plain_numbers(grid[-1].xaxis)
        legend(figure, grid[0])

    rows = []
    for one in data:
        for heading, field_name in panels:
            values = np.asarray(getattr(one, field_name), dtype=float)
            if len(values):
                top = int(np.argmax(values))
                quarter = values[-max(1, len(values) // 4) :]
                rows.append(
                    (harmless(one.policy), heading, *(digits(float(x), None) for x in (values.mean(), values[top], one.t_s[top], quarter.mean())))
                )  # fmt: skip
    header = ("policy", "what", "mean", "highest", "at s", "mean of the last quarter")
    return make(name, title, about, 0.7 + 1.65 * len(panels), draw, (header, rows))


def modes(data: Sequence[FigureData]) -> Chart | None:
    """Overload modes over time; None when no policy has any."""
    shown = [one for one in data if one.modes]
    if not shown:
        return None
    names = list(dict.fromkeys(name for one in shown for name in one.mode_names))
    colours = ("#009E73", "#56B4E9", "#E69F00", "#D55E00", "#CC79A7", "#0072B2")

    def draw(figure: Figure) -> None:
        from matplotlib.patches import Patch

        axes = figure.subplots()
        for line, one in enumerate(shown):
            for place, name in enumerate(names):
                spans = [(begin, end - begin) for begin, end, mode in one.modes if mode == name]
                fill: dict[str, Any] = {
                    "facecolors": colours[place % 6],
                    "hatch": svg.HATCHES[place % 7],
                    "edgecolor": svg.INK,
                    "linewidth": 0.2,
                }
                axes.broken_barh(spans, (len(shown) - line - 1.35, 0.7), **fill)
        axes.set_yticks(np.arange(len(shown))[::-1], [label(one.policy) for one in shown])
        axes.set_ylim(-0.6, len(shown) - 0.4)
        axes.set_xlim(0, max(one.end_s for one in shown))
        axes.set_xlabel("time, s")
        plain_numbers(axes.xaxis)
        patches = [
            Patch(facecolor=colours[place % 6], hatch=svg.HATCHES[place % 7], edgecolor=svg.INK, linewidth=0.2)
            for place in range(len(names))
        ]
        figure.legend(patches, [label(name) for name in names], loc="outside upper left", ncols=min(4, len(names)))

    rows = [
        (harmless(one.policy), harmless(name), digits(math.fsum(end - begin for begin, end, mode in one.modes if mode == name), None),
         len([1 for _, _, mode in one.modes if mode == name]))
        for one in shown for name in names
    ]  # fmt: skip
    about = "Which mode the overload mechanism was in, in replication 0. Rapid changes are oscillation: look at the dwell time."
    header = ("policy", "mode", "s", "times entered")
    return make("modes", "Overload modes", about, 1.1 + 0.5 * len(shown), draw, (header, rows))
