"""How evenly, and how true to the weights, the work of competing flows was served."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simkit.log import RunLog
from simkit.metrics.window import Floats, Ints, Stays, Window
from simkit.model import TaskState

MOST_FLOWS = 16
"""`share_error` looks at the largest so many flows of each pool."""


def jain(window: Window) -> float:
    """Jain's index (R. Jain, D. Chiu, W. Hawe, 1984) over tenants of the share of their demanded work (by estimate) that was served:
    1 = all alike, 1/n = one of n got everything. NaN when nothing was served."""
    log = window.log
    tenants = len(log.names["tenant"])
    rows = log.rows
    served_all = not rows.submission.any() and bool((rows.state == TaskState.DONE).all()) and window.everything
    if served_all and len(rows.run):
        return 1.0
    first = rows.submission == 0
    if window.rows_counted is not None:
        first &= window.rows_counted
    work = rows.estimate_ns * rows.slots
    asked = np.bincount(rows.tenant[first], weights=work[first], minlength=tenants)
    done = first & (rows.state == TaskState.DONE)
    served = np.bincount(rows.tenant[done], weights=work[done], minlength=tenants)
    share = served[asked > 0] / asked[asked > 0]
    square = float(np.sum(share**2))
    return float(np.sum(share)) ** 2 / (len(share) * square) if square else math.nan


def share_error(log: RunLog, window: Window | None = None) -> float:
    """How far the division of dispatched work is from the weights while at least two flows wait: half the sum over flows of
    |share got - share due|; 0 = as the weights say, towards 1 = the wrong flow got everything.

    At each start the work is due to the flows that wait then, in proportion to their weights. Only the MOST_FLOWS flows of a pool that
    queued most tasks are looked at. Weights are the policy's, ``header["weights"]`` = {by, weights, default}; equal by tenant when it
    has none. Pools count by the work dispatched in them. NaN when two flows never waited together.
    """
    weights = log.header.get("weights") or {"by": "tenant", "weights": {}, "default": 1}
    by = weights["by"]
    names = log.names.get(by, ())
    if len(names) < 2:
        return math.nan
    queues = (window or Window(log)).queues
    found = [_pool_error(log, queues.of_pool(pool), by, names, weights) for pool in np.unique(queues.pool).tolist()]
    work = math.fsum(amount for _, amount in found)
    return math.fsum(error for error, _ in found) / work if work else math.nan


def _pool_error(
    log: RunLog, stays: Stays, by: str, names: Sequence[str], weights: Mapping[str, Any]
) -> tuple[float, float]:
    """(half the sum of |got - due| work, dispatched work) of one pool over the starts at which two flows wait."""
    rows = log.rows
    flow_of: Ints = (rows.cls if by == "class" else rows.tenant)[stays.row]
    started = np.flatnonzero(stays.started)
    at = started[np.argsort(stays.end[started], kind="stable")]
    if not len(at):
        return 0.0, 0.0
    flows = np.argsort(-np.bincount(flow_of, minlength=len(names)), kind="stable")[:MOST_FLOWS]
    times, flow = stays.end[at], flow_of[at]
    work = (rows.estimate_ns * rows.slots)[stays.row[at]].astype(np.float64)
    waits = np.zeros((len(flows), len(at)), dtype=np.bool_)
    for line, number in enumerate(flows.tolist()):
        mine = flow_of == number
        ready, left = np.sort(stays.begin[mine]), np.sort(stays.end[mine])
        waits[line] = np.searchsorted(ready, times, side="right") > np.searchsorted(left, times, side="left")
    contended = np.count_nonzero(waits, axis=0) >= 2
    contended &= np.isin(flow, flows)
    if not contended.any():
        return 0.0, 0.0
    table = np.array([float(weights["weights"].get(names[number], weights["default"])) for number in flows.tolist()])
    waits, flow, work = waits[:, contended], flow[contended], work[contended]
    per_weight = work / np.sum(table[:, None] * waits, axis=0)  # sums, not BLAS products: the same on every machine
    due: Floats = table * np.sum(waits * per_weight, axis=1)
    got = np.bincount(flow, weights=work, minlength=len(names))[flows]
    return float(np.abs(got - due).sum()) / 2, float(work.sum())
