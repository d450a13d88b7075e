"""The platform over time, in bins of equal length: exact integrals of step functions, not samples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from simkit.log import EVENT_KINDS, RunLog
from simkit.metrics.window import Floats, Ints, Window, use_of_pool
from simkit.model import NS_PER_S, UsageError

if TYPE_CHECKING:
    import pandas as pd

BINS = 200
"""Bins of a series when no step is given."""
_MOST_BINS = 1_000_000


def series(log: RunLog, step_s: float | None = None) -> pd.DataFrame:
    """One line per bin from time 0 to the end of the log.

    `t_s` (begin of the bin); per pool ``queue_depth.NAME`` (mean number waiting), ``queued_work_s.NAME`` (mean estimated slot seconds
    waiting), ``utilisation.NAME`` (slot time used / there; NaN when unlimited); ``in_system`` (mean number of runs between arrival and
    end), ``completions_per_s``, ``api_429_per_s``. Means are exact integrals over the bin. `step_s` defaults to 1/200 of the time; the
    last bin may be shorter. Raises UsageError for a step that is not positive or makes more than a million bins.
    """
    import pandas as pd

    window = Window(log)
    edges = _edges(window.end, step_s)
    lengths = np.diff(edges) / NS_PER_S
    columns: dict[str, Floats] = {"t_s": edges[:-1] / NS_PER_S}
    rows = log.rows
    for number, name in enumerate(log.names["pool"]):
        stays = window.queues.of_pool(number)
        work = rows.estimate_ns[stays.row] * rows.slots[stays.row] / NS_PER_S
        columns[f"queue_depth.{name}"] = integral(stays.begin, stays.end, edges) / lengths
        columns[f"queued_work_s.{name}"] = integral(stays.begin, stays.end, edges, work) / lengths
        columns[f"utilisation.{name}"] = _utilisation(log, number, *use_of_pool(log, window.slots, number), edges)
    runs = log.runs
    arrived = runs.arrival_ns <= window.end
    left = np.where(runs.finished_ns >= 0, runs.finished_ns, window.end)
    columns["in_system"] = integral(runs.arrival_ns[arrived], left[arrived], edges) / lengths
    columns["completions_per_s"] = _counts(runs.finished_ns[window.closed_well], edges) / lengths
    throttled = log.events.kind == EVENT_KINDS.index("throttled")
    columns["api_429_per_s"] = _counts(log.events.at_ns[throttled], edges) / lengths
    return pd.DataFrame(columns)


def _edges(end_ns: int, step_s: float | None) -> Ints:
    end_ns = max(end_ns, 1)
    if step_s is not None and not (step_s > 0 and math.isfinite(step_s)):
        raise UsageError(f"series: found a step of {step_s} s, expected a positive number of seconds")
    step = max(1, -(-end_ns // BINS) if step_s is None else round(step_s * NS_PER_S))
    if end_ns / step > _MOST_BINS:
        raise UsageError(f"series: a step of {step_s} s makes {end_ns // step:,} bins; choose a longer one")
    return np.append(np.arange(0, end_ns, step, dtype=np.int64), end_ns)


def _counts(times: Ints, edges: Ints) -> Floats:
    """Events per bin [begin, end); the last one takes its end too."""
    place = np.searchsorted(np.sort(times), edges, side="left")
    place[-1] = len(times)
    return np.diff(place).astype(np.float64)


def integral(begin: Ints, end: Ints, edges: Ints, weight: Floats | None = None) -> Floats:
    """Per bin, in s: the integral of the number (or the weight) of intervals [begin, end) that are open.

    F(t) = sum over intervals of the part before t is piecewise linear, so a bin's integral is F(right) - F(left); F comes from the
    sorted ends of the intervals: sum of w x max(0, t - begin) - sum of w x max(0, t - end).
    """
    return (_ramp(begin, edges, weight) - _ramp(end, edges, weight)) / NS_PER_S


def _ramp(times: Ints, edges: Ints, weight: Floats | None) -> Floats:
    """Per bin: the growth of sum w x max(0, t - time)."""
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    weights = np.ones(len(times), dtype=np.int64) if weight is None else weight[order]
    place = np.searchsorted(ordered, edges, side="right")
    passed = np.concatenate([[0], np.cumsum(weights)])[place]
    # within a bin: entries from before grow by its length, those inside by what is left of it
    inside = np.concatenate([[0], np.cumsum(weights * (ordered - ordered[:1]))])
    origin = ordered[0] if len(ordered) else 0
    later = passed[1:] - passed[:-1]
    grown = passed[:-1] * np.diff(edges) + later * (edges[1:] - origin) - (inside[place[1:]] - inside[place[:-1]])
    return np.asarray(grown, dtype=np.float64)


def _utilisation(log: RunLog, pool: int, begin: Ints, end: Ints, slots: Ints, edges: Ints) -> Floats:
    capacity = log.capacity
    mine = capacity.pool == pool
    if not mine.any():
        return np.full(len(edges) - 1, math.nan)
    at = np.append(capacity.at_ns[mine], edges[-1])
    there = integral(at[:-1], at[1:], edges, capacity.slots[mine].astype(np.float64))
    used = integral(begin, end, edges, slots.astype(np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(there > 0, used / there, math.nan)
