"""Queues and pools over time: depth, queued work, age of the oldest waiting task, use of slots."""

from __future__ import annotations

import math

import numpy as np

from simkit.metrics.window import Floats, Ints, Window, use_of_pool
from simkit.model import NS_PER_S


def pool_metrics(window: Window) -> dict[str, dict[str, float]]:
    """By pool: utilisation (of the slots there were; NaN when unlimited), queue depth (time-weighted mean, and maximum),
    queued work (estimated slot seconds, time-weighted mean), mean wait per stay. The time is the measured window."""
    log = window.log
    tables = {}
    for number, name in enumerate(log.names["pool"]):
        stays = window.queues.of_pool(number)
        work = log.rows.estimate_ns[stays.row] * log.rows.slots[stays.row] / NS_PER_S
        tables[name] = {
            "utilisation": _utilisation(window, number, *use_of_pool(log, window.slots, number)),
            "queue_depth": window.seconds_inside(stays.begin, stays.end) / window.span_s,
            "queue_depth_max": _highest(window, stays.begin, stays.end),
            "queued_work_s": window.seconds_inside(stays.begin, stays.end, work) / window.span_s,
            "wait_s.mean": float(np.mean(stays.end - stays.begin)) / NS_PER_S if len(stays.row) else math.nan,
        }
    return tables


def _utilisation(window: Window, pool: int, begin: Ints, end: Ints, slots: Ints) -> float:
    """Slot time used / slot time there was; NaN for an unlimited pool."""
    capacity = window.log.capacity
    mine = capacity.pool == pool
    if not mine.any():
        return math.nan
    at = np.append(capacity.at_ns[mine], max(window.end, 0))
    there = window.seconds_inside(at[:-1], at[1:], capacity.slots[mine])
    one = len(slots) > 0 and int(slots.min()) == 1 == int(slots.max())
    used = window.seconds_inside(begin, end, 1 if one else slots)
    return used / there if there else math.nan


def _highest(window: Window, begin: Ints, end: Ints) -> float:
    """The largest number that wait at once in the window; who leaves at the instant of its arrival never waited."""
    waits = (end > begin) & (end > window.begin) & (begin <= window.end)
    begin, end = np.sort(begin[waits]), np.sort(end[waits])
    if not len(begin):
        return 0.0
    if begin[0] < window.begin:
        np.maximum(begin, window.begin, out=begin)
    gone = np.searchsorted(end, begin, side="right")
    return float((np.arange(1, len(begin) + 1) - gone).max())


def queue_age(window: Window) -> dict[str, float]:
    """Age of the oldest waiting task, of any pool, as a function of time (0 while nothing waits): the age that it exceeds during 5 % of
    the measured time, and its maximum.

    With the stays sorted by ready time, a task is the oldest from the moment when all readier ones have left until it leaves itself.
    """
    stays = window.queues
    order = np.flatnonzero((stays.end > stays.begin) & (stays.end > window.begin))
    ready, left = stays.begin[order], stays.end[order]
    if len(ready) > 1 and (ready[1:] < ready[:-1]).any():
        by_ready = np.argsort(ready, kind="stable")
        ready, left = ready[by_ready], left[by_ready]
    left = np.minimum(left, window.end)
    before = np.concatenate([[window.begin], np.maximum.accumulate(left)[:-1]]) if len(left) else left
    begin = np.maximum(np.maximum(ready, before), window.begin)
    oldest = left > begin
    if not oldest.any():
        return {"queue_age_s.p95": 0.0, "queue_age_s.max": 0.0}
    low, high = (begin - ready)[oldest] / NS_PER_S, (left - ready)[oldest] / NS_PER_S
    return {"queue_age_s.p95": _exceeded(low, high, 0.05 * window.span_s), "queue_age_s.max": float(high.max())}


def _exceeded(low: Floats, high: Floats, target_s: float) -> float:
    """The age exceeded during `target_s` in all, when ages rise with time from low to high in each interval."""
    lows, highs = np.sort(low), np.sort(high)
    low_sums, high_sums = np.concatenate([[0.0], np.cumsum(lows)]), np.concatenate([[0.0], np.cumsum(highs)])

    def above(age: float) -> float:
        """Time during which the age is above `age`."""
        done, risen = np.searchsorted(highs, age, side="right"), np.searchsorted(lows, age, side="right")
        high_part = high_sums[-1] - high_sums[done] - age * (len(highs) - done)
        low_part = low_sums[-1] - low_sums[risen] - age * (len(lows) - risen)
        return float(high_part - low_part)

    if above(0.0) <= target_s:
        return 0.0
    bottom, top = 0.0, float(highs[-1])
    for _ in range(60):
        middle = (bottom + top) / 2
        bottom, top = (middle, top) if above(middle) > target_s else (bottom, middle)
    return (bottom + top) / 2
