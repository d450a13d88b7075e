"""Failures of the platform as a whole, which no single run shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simkit.diagnose.labels import OTHER, Diagnosis, diagnose
from simkit.log import EVENT_KINDS, RunLog
from simkit.metrics import Window
from simkit.metrics.series import integral
from simkit.metrics.window import use_of_pool
from simkit.model import NS_PER_S

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.int64]

AMPLIFIED = 1.5
"""Attempts per call above which retries amplify the load."""
HEALTHY = 0.9
"""Share of the offered runs that must be verified in time for goodput not to count as down."""
RESTLESS_PER_MIN = 4.0
"""Changes of mode per minute above which modes count as oscillating: no mode lasts 15 s."""
LEAST_SWITCHES = 4
SATURATED = 0.95
"""Utilisation from which a pool with a queue is saturated."""
BINS = 100
LEAST_STRETCH = 6
"""A pool must stay saturated for so many of the BINS parts of the time."""
FALLS = 0.9
"""Upstream demand falls when the second half of a saturated stretch starts less than this share of the first half's."""
LEAST_STARTS = 10
GROWS = 1.5
"""A queue grows when its mean in the second half of a saturated stretch is this many times, and LEAST_GROWTH tasks, above the first half's.
(One that grows steadily from nothing triples.)"""
LEAST_GROWTH = 5
MANY = 0.05
"""Share of the offered runs from which a label of runs is a finding about the platform."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One failure: its label, what was seen, the number that says so and the threshold it passed."""

    label: str
    evidence: str
    value: float
    threshold: float


def findings(log: RunLog, diagnosis: Diagnosis | None = None) -> list[Finding]:
    """Everything that is wrong with the platform, in the order of the table in `simkit.diagnose`."""
    window = Window(log)
    found = diagnosis or diagnose(log, window)
    return [
        *_retries(log, window),
        *_oscillation(log, window),
        *_backpressure(log, window),
        *_frequent(window, found),
    ]


def findings_table(log: RunLog, diagnosis: Diagnosis | None = None) -> pd.DataFrame:
    """`findings` as a table."""
    import pandas as pd

    rows = [(item.label, item.evidence, item.value, item.threshold) for item in findings(log, diagnosis)]
    return pd.DataFrame(rows, columns=["label", "evidence", "value", "threshold"])


def _retries(log: RunLog, window: Window) -> Iterator[Finding]:
    calls, logical = (math.fsum(log.header.get(name, {}).values()) for name in ("api_calls", "logical_calls"))
    what = "calls per logical call"
    if not logical:
        ran = log.rows.attempts > 0
        calls, logical = float(log.rows.attempts.sum()), float(len(np.unique(log.rows.task[ran])))
        what = "executions per task"
    offered = np.count_nonzero(window.offered)
    if not logical or not offered or calls / logical <= AMPLIFIED:
        return
    good = np.count_nonzero(window.good & window.offered) / offered
    if good < HEALTHY:
        yield Finding(
            "RETRY_AMPLIFICATION",
            f"{calls / logical:.2f} {what}, and {good:.0%} of the runs verified in time",
            calls / logical,
            AMPLIFIED,
        )


def _oscillation(log: RunLog, window: Window) -> Iterator[Finding]:
    at = log.events.at_ns[log.events.kind == EVENT_KINDS.index("mode")]
    at = at[(at >= window.begin) & (at <= window.end)]
    if len(at) < LEAST_SWITCHES or at[-1] == at[0]:
        return
    per_min = (len(at) - 1) * 60 * NS_PER_S / float(at[-1] - at[0])
    if per_min > RESTLESS_PER_MIN:
        yield Finding(
            "SCHEDULER_OSCILLATION", f"{len(at)} changes of mode, {per_min:.1f} per minute", per_min, RESTLESS_PER_MIN
        )


def _backpressure(log: RunLog, window: Window) -> Iterator[Finding]:
    """A pool stays saturated and its queue grows, and the pools that feed it start as much as before."""
    if window.end <= 0 or not len(log.rows.run):
        return
    edges = np.unique(np.linspace(0, window.end, BINS + 1).astype(np.int64))
    names = log.names["pool"]
    for pool, feeders in _feeders(log).items():
        busy = _saturated(log, window, pool, edges)
        first, last = _longest(busy)
        if last - first < LEAST_STRETCH:
            continue
        stays = window.queues.of_pool(pool)
        middle = (first + last) // 2
        depth = integral(stays.begin, stays.end, edges) / (np.diff(edges) / NS_PER_S)
        before, after = float(np.mean(depth[first:middle])), float(np.mean(depth[middle:last]))
        if after <= max(GROWS * before, before + LEAST_GROWTH):
            continue
        starts = np.sort(np.concatenate([window.slots.of_pool(feeder).begin for feeder in feeders]))
        early, late = (
            np.searchsorted(starts, edges[high]) - np.searchsorted(starts, edges[low])
            for low, high in ((first, middle), (middle, last))
        )
        early_rate, late_rate = early / float(edges[middle] - edges[first]), late / float(edges[last] - edges[middle])
        if early >= LEAST_STARTS and late_rate >= FALLS * early_rate:
            yield Finding(
                "BACKPRESSURE_FAILURE",
                f"{names[pool]} was saturated from {edges[first] / NS_PER_S:.4g} s to {edges[last] / NS_PER_S:.4g} s and its queue grew from"
                f" {before:.3g} to {after:.3g}, while {', '.join(names[feeder] for feeder in feeders)} started as much as before",
                late_rate / early_rate, FALLS,
            )  # fmt: skip


def _feeders(log: RunLog) -> dict[int, list[int]]:
    """Pools whose tasks' ends made tasks of another pool ready, by that pool: at least one in twenty of its tasks."""
    rows = log.rows
    ended = np.flatnonzero((rows.end_ns >= 0) & (rows.start_ns >= 0))
    ready = np.flatnonzero(rows.ready_ns >= 0)
    times, several = np.unique(rows.end_ns[ended]), int(rows.submission.max(initial=0)) + 1
    one = rows.run.astype(np.int64) * several + rows.submission
    base = len(times) + 1
    keys = one[ended] * base + np.searchsorted(times, rows.end_ns[ended])
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(times, rows.ready_ns[ready])
    place[np.append(times, -1)[place] != rows.ready_ns[ready]] = len(times)
    wanted = one[ready] * base + place
    at = np.searchsorted(keys[order], wanted)
    hit = (at < len(keys)) & (np.append(keys[order], -1)[at] == wanted)
    upstream, downstream = rows.pool[ended[order[at[hit]]]], rows.pool[ready[hit]]
    pools = len(log.names["pool"])
    pairs = np.bincount(upstream.astype(np.int64) * pools + downstream, minlength=pools * pools).reshape(pools, pools)
    tasks = np.bincount(rows.pool[ready], minlength=pools)
    return {
        pool: feeders
        for pool in range(pools)
        if (
            feeders := [
                up for up in range(pools) if up != pool and pairs[up, pool] and 20 * pairs[up, pool] >= tasks[pool]
            ]
        )
    }


def _saturated(log: RunLog, window: Window, pool: int, edges: Ints) -> NDArray[np.bool_]:
    """Parts of the time in which the pool was as good as full and something waited."""
    capacity = log.capacity
    mine = capacity.pool == pool
    if not mine.any():
        return np.zeros(len(edges) - 1, dtype=np.bool_)
    at = np.append(capacity.at_ns[mine], edges[-1])
    there = integral(at[:-1], at[1:], edges, capacity.slots[mine].astype(np.float64))
    begin, end, slots = use_of_pool(log, window.slots, pool)
    used = integral(begin, end, edges, slots.astype(np.float64))
    stays = window.queues.of_pool(pool)
    return np.asarray((used >= SATURATED * there) & (there > 0) & (integral(stays.begin, stays.end, edges) > 0))


def _longest(flags: NDArray[np.bool_]) -> tuple[int, int]:
    """[first, last) of the longest stretch of True."""
    edge = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    if not len(edge):
        return 0, 0
    begins, ends = edge[::2], edge[1::2]
    best = int(np.argmax(ends - begins))
    return int(begins[best]), int(ends[best])


def _frequent(window: Window, found: Diagnosis) -> Iterator[Finding]:
    """Labels that many runs have."""
    offered = np.count_nonzero(window.offered)
    names, how_many = np.unique(found.label.astype(str), return_counts=True) if len(found.label) else ((), ())
    for name, count in sorted(zip(names, how_many, strict=True), key=lambda item: (-int(item[1]), str(item[0]))):
        if name != OTHER and count >= MANY * offered:
            yield Finding(str(name), f"{int(count)} of {offered} runs", count / offered, MANY)
