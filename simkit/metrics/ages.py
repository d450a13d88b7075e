"""Age of the oldest waiting task as a function of time, of many queues (classes, tenants) at once."""

from __future__ import annotations

import numpy as np

from simkit.metrics.window import Floats, Ints, Window
from simkit.model import NS_PER_S


def queue_ages(window: Window, codes: Ints, groups: int) -> tuple[Floats, Floats]:
    """Per group of rows (`codes`: the group of each row): (the age in s that its oldest waiting task exceeds during 5 % of the measured time,
    the largest age). The age is 0 while none of the group waits; a group without rows has 0 both."""
    stays = window.queues
    begin, end = np.maximum(stays.begin, window.begin), np.minimum(stays.end, window.end)
    kept = np.flatnonzero(end > begin)
    ready, begin, end, group = stays.begin[kept], begin[kept], end[kept], codes[stays.row[kept]]
    order = np.lexsort((ready, group))
    ready, begin, end, group = ready[order], begin[order], end[order], group[order]
    since = np.maximum(begin, _all_left(end, np.bincount(group, minlength=groups), window.begin))
    oldest = np.flatnonzero(end > since)
    low, high, group = since[oldest] - ready[oldest], end[oldest] - ready[oldest], group[oldest]
    most = np.zeros(groups, dtype=np.int64)
    np.maximum.at(most, group, high)
    return exceeded_ns(low, high, group, groups, window.span_ns * 5 // 100) / NS_PER_S, most / NS_PER_S


def _all_left(end: Ints, sizes: Ints, begin_ns: int) -> Ints:
    """For each stay: when all stays of its group that come before it (in order of ready time) have ended."""
    last = np.full(len(end), begin_ns, dtype=np.int64)
    at = 0
    for size in sizes[sizes > 0].tolist():
        np.maximum.accumulate(end[at : at + size - 1], out=last[at + 1 : at + size])
        at += size
    return last


def exceeded_ns(low: Ints, high: Ints, group: Ints, groups: int, allowed_ns: int) -> Ints:
    """Per group: the smallest age that is exceeded during at most `allowed_ns`, when ages rise with time from `low` to `high` in each interval.

    Found by halving, in whole ns. Intervals that the answer cannot lie in are put aside, so that nearly all work is in the first few steps.
    """
    bottom, top, beyond = (np.zeros(groups, dtype=np.int64) for _ in range(3))
    np.maximum.at(top, group, high)
    while (bottom < top).any():
        middle = (bottom + top) // 2
        over = np.maximum(high - np.maximum(low, middle[group]), 0)
        above = beyond + _sums(over, group, groups) > allowed_ns
        bottom, top = np.where(above, middle + 1, bottom), np.where(above, top, middle)
        sure = low >= top[group]
        beyond += _sums(np.where(sure, high - low, 0), group, groups)
        kept = ~sure & (high > bottom[group])
        low, high, group = low[kept], high[kept], group[kept]
    return bottom


def _sums(values: Ints, group: Ints, groups: int) -> Ints:
    """Per group. The sums are times within the window: a double holds them exactly up to 104 days."""
    return np.bincount(group, weights=values, minlength=groups).astype(np.int64)
