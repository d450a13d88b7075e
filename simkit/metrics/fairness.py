"""How evenly, and how true to the weights, the work of competing flows was served. A flow is a tenant or a class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simkit.log import RunLog
from simkit.metrics.window import Flags, Floats, Ints, Stays, Window
from simkit.model import NS_PER_S, TaskState, UsageError


def jain(window: Window) -> float:
    """Jain's index (R. Jain, D. Chiu, W. Hawe, 1984) over tenants of the share of their demanded work (by estimate) that was served:
    1 = all alike, 1/n = one of n got everything. NaN when nothing was served. A task is served when any submission's row of it was done,
    or shared work that was; tasks left out of a downgraded run were demanded too."""
    log = window.log
    tenants = len(log.names["tenant"])
    rows = log.rows
    several = bool(rows.submission.any())
    done: Flags = (rows.state == TaskState.DONE) | (rows.state == TaskState.COALESCED)
    if not several and window.everything and len(done) and bool(done.all()):
        return 1.0
    first = rows.submission == 0
    if several:
        by_task = np.zeros(int(rows.task.max()) + 1, dtype=np.bool_)
        by_task[rows.task[done]] = True
        done = by_task[rows.task]
    if window.rows_counted is not None:
        first &= window.rows_counted
    work = rows.estimate_ns * rows.slots
    asked = np.bincount(rows.tenant[first], weights=work[first], minlength=tenants)
    done = first & done
    served = np.bincount(rows.tenant[done], weights=work[done], minlength=tenants)
    share = served[asked > 0] / asked[asked > 0]
    square = float(np.sum(share**2))
    return float(np.sum(share)) ** 2 / (len(share) * square) if square else math.nan


def share_error(log: RunLog, window: Window | None = None) -> float:
    """How far the division of dispatched work is from the weights while at least two flows wait: half the sum over flows of
    |work got - work due|, over all that work; 0 = as the weights say, towards 1 = the wrong flows got everything.

    Work is estimated slot time and counts when it is dispatched. What is dispatched while several flows are backlogged in its pool is due
    to all of them in proportion to their weights; what is dispatched to a flow alone, or at once, is no contest. A row held by a limit
    waits too: a cap that bites shows here. Weights are the policy's, ``header["weights"]`` = {by, weights, default}; equal by tenant when it
    has none. Pools count by the work dispatched in them. NaN when two flows never waited together. O(n log n), whatever the number of flows.
    """
    weights = log.header.get("weights") or {"by": "tenant", "weights": {}, "default": 1}
    by = weights["by"]
    names = log.names.get(by, ())
    if len(names) < 2:
        return math.nan
    window = window or Window(log)
    table = _weight_table(names, weights)
    queues = window.queues
    found = [_pool_error(window, queues.of_pool(pool), by, table) for pool in np.unique(queues.pool).tolist()]
    work = math.fsum(amount for _, amount in found)
    return math.fsum(error for error, _ in found) / work if work else math.nan


def _weight_table(names: Sequence[str], weights: Mapping[str, Any]) -> Floats:
    return np.array([float(weights["weights"].get(name, weights["default"])) for name in names])


def _flow_of(log: RunLog, by: str, row: Ints) -> Ints:
    return np.asarray(log.rows.cls if by == "class" else log.rows.tenant, dtype=np.int64)[row]


@dataclass(frozen=True, slots=True)
class _Backlogs:
    """The times [begin, end], ends included, over which a flow always had a row waiting: disjoint, in order of (flow, begin)."""

    flow: Ints
    begin: Ints
    end: Ints

    def holds(self, flow: Ints, at: Ints) -> Flags:
        """Is the flow backlogged at that time?"""
        times = np.sort(self.begin)
        base = len(times) + 1
        keys = self.flow * base + np.searchsorted(times, self.begin, side="right")
        place = np.searchsorted(keys, flow * base + np.searchsorted(times, at, side="right"), side="right") - 1
        known = np.maximum(place, 0)
        return np.asarray((place >= 0) & (self.flow[known] == flow) & (self.end[known] >= at))


def _backlogs(flow: Ints, stays: Stays) -> _Backlogs:
    """Merge the stays of each flow. Who starts the moment it is ready does not wait."""
    waited = np.flatnonzero(stays.end > stays.begin)
    flow, begin, end = flow[waited], stays.begin[waited], stays.end[waited]
    order = np.lexsort((begin, flow))
    flow, begin, end = flow[order], begin[order], end[order]
    if not len(flow):
        return _Backlogs(flow, begin, end)
    times = np.sort(np.concatenate([begin, end]))
    base = len(times)
    latest = np.maximum.accumulate(
        flow * base + np.searchsorted(times, end)
    )  # (flow, time) as one number; a later flow is larger
    fresh = np.append(True, flow[1:] * base + np.searchsorted(times, begin[1:]) > latest[:-1])
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(flow)) - 1
    return _Backlogs(flow[first], begin[first], times[latest[last] % base])


def _pool_error(window: Window, stays: Stays, by: str, weight: Floats) -> tuple[float, float]:
    """(half the sum of |got - due| work, contested work) of one pool, in s.

    V(t) grows by work / (sum of the weights of the backlogged flows) with everything that is dispatched in a contest; what is due to a flow is
    its weight times the growth of V while it is backlogged.
    """
    log = window.log
    flow = _flow_of(log, by, stays.row)
    backlogs = _backlogs(flow, stays)
    at = np.flatnonzero(stays.started & (stays.end >= window.begin))
    at = at[np.argsort(stays.end[at], kind="stable")]
    if not len(at) or not len(backlogs.flow):
        return 0.0, 0.0
    times = stays.end[at]
    work = (log.rows.estimate_ns * log.rows.slots)[stays.row[at]] / NS_PER_S
    by_begin, by_end = np.argsort(backlogs.begin, kind="stable"), np.argsort(backlogs.end, kind="stable")
    begun = np.searchsorted(backlogs.begin[by_begin], times, side="right")
    over = np.searchsorted(backlogs.end[by_end], times, side="left")
    contested = (begun - over >= 2) & backlogs.holds(flow[at], times)
    if not contested.any():
        return 0.0, 0.0

    def running(order: Ints) -> Floats:
        return np.concatenate([[0.0], np.cumsum(weight[backlogs.flow[order]])])

    in_contest = running(by_begin)[begun] - running(by_end)[over]
    growth = np.where(contested, work / np.where(contested, in_contest, 1.0), 0.0)
    virtual = np.concatenate([[0.0], np.cumsum(growth)])
    gained = (
        virtual[np.searchsorted(times, backlogs.end, side="right")]
        - virtual[np.searchsorted(times, backlogs.begin, side="left")]
    )
    due = weight * np.bincount(backlogs.flow, weights=gained, minlength=len(weight))
    got = np.bincount(flow[at[contested]], weights=work[contested], minlength=len(weight))
    return float(np.abs(got - due).sum()) / 2, float(work[contested].sum())


def service_gap_s(
    log: RunLog, pool: str, first: str, second: str, *, by: str = "tenant", weights: tuple[float, float] = (1.0, 1.0)
) -> float:
    """The largest |W_first / w_first - W_second / w_second| over all intervals during which both flows are backlogged in a pool: dispatched work
    (estimated slot seconds) over weight. The quantity that fair queueing bounds: start-time fair queueing by l_f / w_f + l_g / w_g, with l the
    largest work of one task (P. Goyal, H. Vin, H. Cheng, 1996). 0 when they never wait together.

    Within one common backlog it is the highest less the lowest value of the running difference. What is dispatched at the very instant at which a
    backlog ends is left out: the log does not say whether before or after. Raises UsageError for an unknown pool or flow.
    """
    for kind, name in (("pool", pool), (by, first), (by, second)):
        if name not in log.names.get(kind, ()):
            raise UsageError(f"there is no {kind} {name!r}; there are {', '.join(log.names.get(kind, ()))}")
    window = Window(log)
    stays = window.queues.of_pool(list(log.names["pool"]).index(pool))
    flow = _flow_of(log, by, stays.row)
    one, two = (list(log.names[by]).index(name) for name in (first, second))
    backlogs = _backlogs(flow, stays)
    at = np.flatnonzero(stays.started & ((flow == one) | (flow == two)))
    at = at[np.argsort(stays.end[at], kind="stable")]
    work = (log.rows.estimate_ns * log.rows.slots)[stays.row[at]] / NS_PER_S
    moved = np.concatenate([[0.0], np.cumsum(np.where(flow[at] == one, work / weights[0], -work / weights[1]))])
    gap = 0.0
    for begin, end in _common(backlogs, one, two):
        low, high = np.searchsorted(stays.end[at], [begin, end], side="left")
        values = moved[low : high + 1]
        gap = max(gap, float(values.max() - values.min()))
    return gap


def _common(backlogs: _Backlogs, one: int, two: int) -> list[tuple[int, int]]:
    """The times during which both flows are backlogged."""
    mine, others = (
        [(int(a), int(b)) for f, a, b in zip(backlogs.flow, backlogs.begin, backlogs.end, strict=True) if f == flow]
        for flow in (one, two)
    )
    found, place = [], 0
    for begin, end in mine:
        while place < len(others) and others[place][1] <= begin:
            place += 1
        look = place
        while look < len(others) and others[look][0] < end:
            found.append((max(begin, others[look][0]), min(end, others[look][1])))
            look += 1
    return found
