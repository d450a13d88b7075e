"""The platform's state as a whole: modes, whether it is stable, how long it took to recover."""

from __future__ import annotations

import math

import numpy as np

from simkit.log import EVENT_KINDS
from simkit.metrics.window import Ints, Window
from simkit.model import NEVER_NS, NS_PER_S

LEAST_GROWTH = 10
"""A queue that grew by fewer entries does not count as growing."""
GROWTH_SHARE = 0.05
RECOVERED = 0.95
"""Goodput is back when it is at least this share of what it was."""
STAYS_RECOVERED = 0.9
"""... and when its mean stays above this share: random arrivals make the mean over the rest vary by some percent."""


def mode_times(window: Window) -> dict[str, float]:
    """``mode_s.NAME``: seconds of the measured time in each mode; nothing when there is no overload mechanism."""
    log = window.log
    modes = log.names["mode"]
    if len(log.samples.at_ns) == 0:
        return {}
    switches = log.events.kind == EVENT_KINDS.index("mode")
    at = np.concatenate([[0], log.events.at_ns[switches], [window.end]])
    mode = [0, *(modes.index(log.reasons[code]) for code in log.events.reason[switches].tolist())]
    lengths = np.diff(np.clip(at, window.begin, window.end)) / NS_PER_S
    return {
        f"mode_s.{name}": math.fsum(float(length) for length, m in zip(lengths, mode, strict=True) if m == number)
        for number, name in enumerate(modes)
    }


def stable(window: Window) -> float:
    """0 when a queue grows to the end of the arrivals, else 1.

    Looked at are the queue of each pool (rows of clients that have gone included) and the runs in the system (deferred ones included): the
    mean number in the last quarter of the arrival time against the quarter before. It grows when the difference is above LEAST_GROWTH and above
    GROWTH_SHARE of what arrived in that last quarter. At load rho > 1 the difference is 1 - 1/rho of the arrivals (so loads above 1.05 are
    found), at rho < 1 it is noise around 0. A simulation that got stuck is not stable.
    """
    log = window.log
    if log.header.get("status") == "deadlock":
        return 0.0
    runs = log.runs
    arrived = window.offered
    if np.count_nonzero(arrived) < 2:
        return 1.0
    arrival = runs.arrival_ns if window.everything else runs.arrival_ns[arrived]
    first, last = int(arrival[0]), int(arrival[-1])
    quarter = (last - first) // 4
    if quarter == 0:
        return 1.0
    edges = (last - 2 * quarter, last - quarter, last)
    finished = np.where(runs.finished_ns < 0, NEVER_NS, runs.finished_ns)
    if _grows(runs.arrival_ns, finished, edges):
        return 0.0
    for pool in range(len(log.names["pool"])):
        stays = window.queues.of_pool(pool)
        if len(stays.row) and _grows(stays.begin, stays.end, edges):
            return 0.0
    return 1.0


def _grows(begin: Ints, end: Ints, edges: tuple[int, int, int]) -> bool:
    late = end > edges[0]
    begin, end = begin[late], end[late]
    means = []
    for low, high in ((edges[0], edges[1]), (edges[1], edges[2])):
        inside = np.minimum(end, high) - np.maximum(begin, low)
        means.append(float(np.maximum(inside, 0).sum()) / (high - low))
    entered = np.count_nonzero((begin > edges[1]) & (begin <= edges[2]))
    growth = means[1] - means[0]
    return growth > max(LEAST_GROWTH, GROWTH_SHARE * int(entered))


def recovery_s(window: Window) -> float:
    """From the last fault's end until goodput is back for good within 5 % of what it was before the first one; NaN when it never is, when
    no fault ended, or when there was no goodput before.

    "Before" is the mean from the warm-up to the first fault. Goodput is counted in a sliding window: as long as 20 runs took before, and at
    least 1 s and 1/60 of the measured time, at most a quarter of it; it is back at the start of the first such window from which on the mean
    to the last arrival stays within 10 % of before. So the short peak of what had piled up during an outage is no recovery.
    """
    log = window.log
    faults = [fault for fault in log.header.get("faults", ()) if fault["to_ns"] < min(window.end, NEVER_NS)]
    if not faults:
        return math.nan
    first, last = min(fault["at_ns"] for fault in faults), max(fault["to_ns"] for fault in faults)
    done = np.sort(log.runs.finished_ns[window.good])
    before_s = (first - window.begin) / NS_PER_S
    usual = np.count_nonzero((done >= window.begin) & (done < first)) / before_s if before_s > 0 else 0.0
    if usual <= 0:
        return math.nan
    width = max(NS_PER_S, window.span_ns // 60, round(20 / usual * NS_PER_S))
    width = min(width, window.span_ns // 4)
    starts = np.unique(np.concatenate([[last], done[done >= last]]))
    starts = starts[starts + width <= window.end]
    counts = np.searchsorted(done, starts + width, side="left") - np.searchsorted(done, starts, side="left")
    demand_ends = np.maximum(int(log.runs.arrival_ns[window.offered].max()), starts + width)
    lasting = np.searchsorted(done, demand_ends, side="right") - np.searchsorted(done, starts, side="left")
    back = np.flatnonzero(
        (counts >= RECOVERED * usual * width / NS_PER_S)
        & (lasting >= STAYS_RECOVERED * usual * (demand_ends - starts) / NS_PER_S)
    )
    return float(starts[back[0]] - last) / NS_PER_S if len(back) else math.nan
