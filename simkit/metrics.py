"""From a run log to numbers: every metric of the product, with exactly one meaning each.

Percentiles use numpy's linear method over runs that arrived in the measured window (from the warm-up on); what is empty is NaN, never 0.
Latency counts from the run's first submission to its end, for completed runs. A policy that drops work looks fast: look at latency beside
`success_rate` and `unfinished`.

The measured time goes from the warm-up to the horizon, or to the end of the log without one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simkit.log import EVENT_KINDS, RunLog
from simkit.model import NEVER_NS, NS_PER_S, Outcome, TaskState

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_STATES = {
    "verified": Outcome.VERIFIED, "unverified": Outcome.UNVERIFIED, "false_completions": Outcome.FALSE_COMPLETION,
    "failed": Outcome.FAILED, "dead_lettered": Outcome.DEAD_LETTERED, "timed_out": Outcome.TIMED_OUT,
    "rejected": Outcome.REJECTED, "shed": Outcome.SHED, "unfinished": Outcome.UNFINISHED,
}  # fmt: skip
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
MOST_FLOWS = 16
"""`share_error` looks at the largest so many flows."""


class Summary:
    """The metrics of one run log: overall, by class, by tenant and by pool."""

    def __init__(
        self,
        metrics: dict[str, float],
        by_class: dict[str, dict[str, float]],
        pools: dict[str, dict[str, float]],
        log: RunLog | None,
    ) -> None:
        self.metrics, self.by_class, self.pools = metrics, by_class, pools
        self._log = log
        self._by_tenant: dict[str, dict[str, float]] | None = None

    @property
    def by_tenant(self) -> dict[str, dict[str, float]]:
        """Metrics of each tenant, worked out when first asked for."""
        if self._by_tenant is None:
            assert self._log is not None
            self._by_tenant = _by(self._log, "tenant")
            self._log = None
        return self._by_tenant

    def get(self, metric: str, where: Mapping[str, str] | None = None) -> float:
        """One metric; `where` selects a class, a tenant or a pool. NaN when there is no such thing."""
        table = self.metrics
        for kind, name in (where or {}).items():
            table = {"class": self.by_class, "tenant": self.by_tenant, "pool": self.pools}[kind].get(name, {})
        return float(table.get(metric, math.nan))

    def __getstate__(self) -> dict[str, Any]:
        return {
            "metrics": self.metrics,
            "by_class": self.by_class,
            "pools": self.pools,
            "_by_tenant": self.by_tenant,
            "_log": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def summarise(log: RunLog) -> Summary:
    """All metrics of a log."""
    window = _Window(log)
    metrics = _table(window, None, 1, 0)
    metrics.update(_platform_metrics(window))
    pools = _pool_metrics(window)
    for name, table in pools.items():
        for metric in ("utilisation", "queue_depth", "queue_depth_max", "queued_work_s"):
            metrics[f"{metric}.{name}"] = table[metric]
    return Summary(metrics, _by(log, "class", window), pools, log)


class _Window:
    """The log with what every metric needs worked out once."""

    def __init__(self, log: RunLog) -> None:
        self.log = log
        header = log.header
        self.begin = int(header["warmup_ns"])
        horizon = int(header["horizon_ns"])
        self.end = horizon if horizon < NEVER_NS else int(header["ended_ns"])
        self.span_s = max(self.end - self.begin, 1) / NS_PER_S
        runs, rows = log.runs, log.rows
        self.offered = (runs.arrival_ns >= self.begin) & (runs.arrival_ns <= horizon)
        self.everything = bool(self.offered.all())
        outcome = runs.outcome
        self.completed = (outcome >= Outcome.VERIFIED) & (outcome <= Outcome.FALSE_COMPLETION) & self.offered
        self.has_deadline = (runs.deadline_ns < NEVER_NS) & self.offered
        self.in_time = runs.finished_ns <= runs.deadline_ns
        self.good = (outcome == Outcome.VERIFIED) & self.in_time & self.offered
        self.row_counts = self.offered[rows.run]
        self.started = rows.start_ns >= 0


def _by(log: RunLog, attribute: str, window: _Window | None = None) -> dict[str, dict[str, float]]:
    names = log.names[attribute]
    window = window or _Window(log)
    codes = np.asarray(log.runs.cls if attribute == "class" else log.runs.tenant)
    if len(names) == 1:
        return {names[0]: _table(window, None, 1, 0)}
    columns = _columns(window, codes, len(names))
    return {
        name: {metric: float(values[code]) for metric, values in columns.items()} for code, name in enumerate(names)
    }


def _table(window: _Window, codes: Ints | None, groups: int, group: int) -> dict[str, float]:
    return {metric: float(values[group]) for metric, values in _columns(window, codes, groups).items()}


def _columns(window: _Window, codes: Ints | None, groups: int) -> dict[str, Floats]:
    """Every per-run and per-task metric, one value per group of runs."""
    log = window.log
    runs, rows = log.runs, log.rows

    def count(flags: NDArray[np.bool_]) -> Floats:
        if codes is None:
            return np.array([np.count_nonzero(flags)], dtype=np.float64)
        return np.bincount(codes[flags], minlength=groups).astype(np.float64)

    def total(values: Any, flags: NDArray[np.bool_]) -> Floats:
        if codes is None:
            return np.array([float(np.sum(values[flags], dtype=np.float64))])
        return np.bincount(codes[flags], weights=values[flags], minlength=groups)

    offered = window.offered
    columns: dict[str, Floats] = {"offered": count(offered)}
    for name, state in _STATES.items():
        columns[name] = count((runs.outcome == state) & offered)
    columns["completed"] = count(window.completed)
    columns["admitted"] = count((runs.admitted_ns >= 0) & offered)
    columns["deferrals"] = total(runs.deferrals, offered)
    columns["downgrades"] = count(runs.downgraded & offered)
    columns["rework"] = total(runs.rework, offered)
    columns["goodput_per_s"] = count(window.good) / window.span_s
    with np.errstate(divide="ignore", invalid="ignore"):
        columns["success_rate"] = columns["verified"] / columns["offered"]
        missed = window.has_deadline & ~(window.completed & window.in_time)
        columns["deadline_miss_rate"] = count(missed) / count(window.has_deadline)
    latency = (runs.finished_ns - runs.arrival_ns)[window.completed] / NS_PER_S
    _distribution(columns, "latency_s", latency, None if codes is None else codes[window.completed], groups)
    _task_columns(window, columns, None if codes is None else codes[rows.run], groups)
    return columns


def _task_columns(window: _Window, columns: dict[str, Floats], codes: Ints | None, groups: int) -> None:
    """Waits (each attempt's once, backoff between attempts not counted), executions, wasted work, cost, starvation."""
    log = window.log
    rows, attempts = log.rows, log.attempts
    run_good = np.isin(log.runs.outcome, (Outcome.VERIFIED, Outcome.UNVERIFIED, Outcome.FALSE_COMPLETION))
    wait = np.where(window.started, rows.start_ns - rows.ready_ns, 0)
    if len(attempts.row):
        np.add.at(wait, attempts.row, attempts.start_ns - attempts.ready_ns)
    counted = window.row_counts & window.started

    def total(values: Any, flags: NDArray[np.bool_]) -> Floats:
        if codes is None:
            return np.array([float(np.sum(values[flags], dtype=np.float64))])
        return np.bincount(codes[flags], weights=values[flags], minlength=groups)

    _distribution(columns, "wait_s", wait[counted] / NS_PER_S, None if codes is None else codes[counted], groups)
    columns["executions"] = total(rows.attempts, window.row_counts)
    logical = (rows.submission == 0) & (rows.attempts > 0) & window.row_counts
    ones = np.ones(len(rows.run))
    with np.errstate(divide="ignore", invalid="ignore"):
        columns["retry_amplification"] = columns["executions"] / total(ones, logical)
    ran = np.where(window.started & (rows.end_ns >= 0), rows.end_ns - rows.start_ns, 0) * rows.slots / NS_PER_S
    useful = (rows.state == TaskState.DONE) & run_good[rows.run] & _closing_submission(log)
    wasted = np.where(useful, 0.0, ran)
    if len(attempts.row):
        np.add.at(wasted, attempts.row, (attempts.end_ns - attempts.start_ns) * rows.slots[attempts.row] / NS_PER_S)
    columns["wasted_work_s"] = total(wasted, window.row_counts)
    columns["duplicate_executions"] = total(ones, (rows.submission > 0) & (rows.attempts > 0) & window.row_counts)
    columns["served_work_s"] = total(ran, window.row_counts)
    columns["cost_usd"] = total(rows.cost_usd * rows.attempts, window.row_counts)
    with np.errstate(divide="ignore", invalid="ignore"):
        columns["cost_per_verified_usd"] = columns["cost_usd"] / columns["verified"]
    limits = log.header.get("class_limits_s", {})
    if limits:
        bound = np.array([limits.get(name, math.inf) for name in log.names["class"]])[rows.cls]
        so_far = np.where(window.started, wait, window.end - rows.ready_ns)
        waits = (rows.ready_ns >= 0) & np.isin(
            rows.state, (TaskState.PENDING, TaskState.DONE, TaskState.FAILED, TaskState.DROPPED)
        )
        columns["starved"] = total(ones, waits & window.row_counts & (so_far / NS_PER_S > bound))
    else:
        columns["starved"] = np.zeros(groups)


def _closing_submission(log: RunLog) -> NDArray[np.bool_]:
    """Rows of the submission that closed their run: the last one made."""
    last: NDArray[np.bool_] = log.rows.submission == log.runs.submissions[log.rows.run] - 1
    return last


def _distribution(columns: dict[str, Floats], name: str, values: Floats, codes: Ints | None, groups: int) -> None:
    """mean, p50, p95, p99, max of each group; NaN for an empty one."""
    if codes is None:
        if not len(values):
            for part in ("mean", *_QUANTILES, "max"):
                columns[f"{name}.{part}"] = np.array([math.nan])
            return
        columns[f"{name}.mean"] = np.array([float(np.mean(values))])
        for part, value in zip(_QUANTILES, np.quantile(values, list(_QUANTILES.values())), strict=True):
            columns[f"{name}.{part}"] = np.array([float(value)])
        columns[f"{name}.max"] = np.array([float(values.max())])
        return
    order = np.lexsort((values, codes))
    ordered = values[order]
    size = np.bincount(codes, minlength=groups)
    first = np.concatenate([[0], np.cumsum(size)[:-1]])
    empty = size == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        columns[f"{name}.mean"] = np.bincount(codes, weights=values, minlength=groups) / size
    for part, q in (*_QUANTILES.items(), ("max", 1.0)):
        at = np.where(empty, 0, q * np.maximum(size - 1, 0))
        low = np.floor(at).astype(np.int64)
        if not len(ordered):
            columns[f"{name}.{part}"] = np.full(groups, math.nan)
            continue
        below = ordered[np.minimum(first + low, len(ordered) - 1)]
        above = ordered[np.minimum(first + np.minimum(low + 1, np.maximum(size - 1, 0)), len(ordered) - 1)]
        columns[f"{name}.{part}"] = np.where(empty, math.nan, below + (above - below) * (at - low))


# --- the platform as a whole -------------------------------------------------------------------------------


def _platform_metrics(window: _Window) -> dict[str, float]:
    log = window.log
    header = log.header
    kinds = np.bincount(np.asarray(log.events.kind, dtype=np.int64), minlength=len(EVENT_KINDS))
    count = {name: int(kinds[number]) for number, name in enumerate(EVENT_KINDS)}
    calls = float(math.fsum(header.get("api_calls", {}).values()))
    logical = float(math.fsum(header.get("logical_calls", {}).values()))
    metrics = {
        "api_calls": calls,
        "api_429": float(count["throttled"]),
        "api_errors": float(count["api_error"] + count["api_hang"]),
        "coalesced": float(count["coalesced"]),
        "mode_switches": float(count["mode"]),
        "preemptions": 0.0,
        "jain": _jain(window),
        "share_error": share_error(log),
        "stable": _stable(window),
        "recovery_s": _recovery_s(window),
    }
    if logical:
        metrics["retry_amplification"] = calls / logical
    metrics.update(_queue_age(window))
    metrics.update(_mode_times(window))
    return metrics


def _jain(window: _Window) -> float:
    """Jain's index over tenants of the share of their demanded work that was served: 1 = all alike, 1/n = one got everything."""
    log = window.log
    rows = log.rows
    first = (rows.submission == 0) & window.row_counts
    work = rows.estimate_ns * rows.slots
    tenants = len(log.names["tenant"])
    asked = np.bincount(rows.tenant[first], weights=work[first], minlength=tenants)
    done = first & (rows.state == TaskState.DONE)
    served = np.bincount(rows.tenant[done], weights=work[done], minlength=tenants)
    share = served[asked > 0] / asked[asked > 0]
    square = float(np.sum(share**2))
    return float(np.sum(share)) ** 2 / (len(share) * square) if square else math.nan


def share_error(log: RunLog) -> float:
    """How far the division of dispatched work is from the weights while at least two flows wait: half the sum over flows of
    |share got - share due|, 0 = as the weights say, towards 1 = the wrong flow got everything.

    At each start the work is due to the flows that wait then, in proportion to their weights. Looks at the largest MOST_FLOWS flows; weights
    are the policy's (equal by tenant when it has none). NaN when two flows never waited together.
    """
    weights = log.header.get("weights") or {"by": "tenant", "weights": {}, "default": 1}
    attribute = weights["by"]
    names = log.names[attribute]
    if len(names) < 2:
        return math.nan
    rows = log.rows
    flow_of = np.asarray(rows.cls if attribute == "class" else rows.tenant)
    worst = [_pool_share_error(log, pool, flow_of, names, weights) for pool in np.unique(rows.pool).tolist()]
    work = math.fsum(amount for _, amount in worst)
    return math.fsum(error for error, _ in worst) / work if work else math.nan


def _pool_share_error(
    log: RunLog, pool: int, flow_of: Ints, names: Any, weights: Mapping[str, Any]
) -> tuple[float, float]:
    """(half the sum of |got - due| work, dispatched work) of one pool over the moments at which two flows wait."""
    rows = log.rows
    here = np.flatnonzero((rows.pool == pool) & (rows.ready_ns >= 0))
    started = here[rows.start_ns[here] >= 0]
    if not len(started):
        return 0.0, 0.0
    order = started[np.argsort(rows.start_ns[started], kind="stable")]
    times, work = rows.start_ns[order], (rows.estimate_ns * rows.slots)[order].astype(np.float64)
    flows = np.argsort(-np.bincount(flow_of[here], minlength=len(names)), kind="stable")[:MOST_FLOWS]
    backlogged = np.zeros((len(order), len(flows)), dtype=np.bool_)
    for column, flow in enumerate(flows.tolist()):
        mine = here[flow_of[here] == flow]
        ready = np.sort(rows.ready_ns[mine])
        left = np.sort(np.where(rows.start_ns[mine] >= 0, rows.start_ns[mine], NEVER_NS))
        waiting = np.searchsorted(ready, times, side="right") - np.searchsorted(left, times, side="left")
        backlogged[:, column] = waiting > 0
    contended = backlogged.sum(axis=1) >= 2
    if not contended.any():
        return 0.0, 0.0
    table = np.array([float(weights["weights"].get(names[flow], weights["default"])) for flow in flows.tolist()])
    due = backlogged[contended] * table
    due = due / due.sum(axis=1, keepdims=True) * work[contended, None]
    got = (flow_of[order][contended, None] == flows[None, :]) * work[contended, None]
    return float(np.abs(got.sum(axis=0) - due.sum(axis=0)).sum()) / 2, float(work[contended].sum())


def _queue_age(window: _Window) -> dict[str, float]:
    """Age of the oldest waiting task as a function of time: its 95 % quantile over the measured time, and its maximum.

    With the waits sorted by ready time, a task is the oldest from the moment when all readier ones have started until it starts itself.
    """
    ready, start = _wait_intervals(window)
    if not len(ready):
        return {"queue_age_s.p95": 0.0, "queue_age_s.max": 0.0}
    order = np.argsort(ready, kind="stable")
    ready, start = ready[order], start[order]
    before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(start)[:-1]])
    begin = np.maximum(np.maximum(ready, before), window.begin)
    oldest = start > begin
    low, high = (begin - ready)[oldest] / NS_PER_S, (start - ready)[oldest] / NS_PER_S
    if not len(low):
        return {"queue_age_s.p95": 0.0, "queue_age_s.max": 0.0}
    return {"queue_age_s.p95": _age_quantile(low, high, 0.95, window.span_s), "queue_age_s.max": float(high.max())}


def _age_quantile(low: Floats, high: Floats, q: float, span_s: float) -> float:
    """The age that is exceeded during (1 - q) of the span, when ages rise linearly from low to high in each interval."""
    target = (1 - q) * span_s
    lows, highs = np.sort(low), np.sort(high)
    low_sums, high_sums = np.concatenate([[0.0], np.cumsum(lows)]), np.concatenate([[0.0], np.cumsum(highs)])

    def above(age: float) -> float:
        """Time during which the age is above `age`."""
        done, risen = np.searchsorted(highs, age, side="right"), np.searchsorted(lows, age, side="right")
        high_part = high_sums[-1] - high_sums[done] - age * (len(highs) - done)
        low_part = low_sums[-1] - low_sums[risen] - age * (len(lows) - risen)
        return float(high_part - low_part)

    if above(0.0) <= target:
        return 0.0
    bottom, top = 0.0, float(highs[-1])
    for _ in range(60):
        middle = (bottom + top) / 2
        bottom, top = (middle, top) if above(middle) > target else (bottom, middle)
    return (bottom + top) / 2


def _wait_intervals(window: _Window, pool: int | None = None) -> tuple[Ints, Ints]:
    """(ready, left the queue) of every attempt that queued, in the measured window; unserved ones wait to its end."""
    rows, attempts = window.log.rows, window.log.attempts
    gone = np.isin(rows.state, (TaskState.CANCELLED, TaskState.DROPPED, TaskState.COALESCED, TaskState.SKIPPED))
    queued = (rows.ready_ns >= 0) & ~(gone & (rows.start_ns < 0))
    ready, start = rows.ready_ns[queued], np.where(rows.start_ns[queued] >= 0, rows.start_ns[queued], window.end)
    pools = rows.pool[queued]
    if len(attempts.row):
        ready = np.concatenate([ready, attempts.ready_ns])
        start = np.concatenate([start, attempts.start_ns])
        pools = np.concatenate([pools, rows.pool[attempts.row]])
    keep = start > window.begin
    if pool is not None:
        keep &= pools == pool
    return ready[keep], np.minimum(start[keep], max(window.end, 0))


def _mode_times(window: _Window) -> dict[str, float]:
    log = window.log
    modes = log.names["mode"]
    if len(log.samples.at_ns) == 0:
        return {}
    kind = EVENT_KINDS.index("mode")
    switches = log.events.kind == kind
    at = np.concatenate([[0], log.events.at_ns[switches], [window.end]])
    mode = [0, *(modes.index(log.reasons[code]) for code in log.events.reason[switches].tolist())]
    lengths = np.diff(np.clip(at, window.begin, window.end)) / NS_PER_S
    return {
        f"mode_s.{name}": math.fsum(float(length) for length, m in zip(lengths, mode, strict=True) if m == number)
        for number, name in enumerate(modes)
    }


def _stable(window: _Window) -> float:
    """0 when work piles up: between the middle and the end of the arrivals the runs in the system grew by more than 5 % of the runs
    that arrived meanwhile, and by more than 10. A queue at load rho > 1 grows by 1 - 1/rho of its arrivals; a stable one by nothing."""
    runs = window.log.runs
    arrival = runs.arrival_ns[window.offered]
    if len(arrival) < 2:
        return 1.0
    finished = np.where(runs.finished_ns < 0, NEVER_NS, runs.finished_ns)[window.offered]
    last = int(arrival[-1])
    middle = (int(arrival[0]) + last) // 2
    in_system = [int((arrival <= at).sum() - (finished <= at).sum()) for at in (middle, last)]
    arrived = int((arrival > middle).sum())
    growth = in_system[1] - in_system[0]
    return 0.0 if growth > 10 and growth > 0.05 * arrived else 1.0


def _recovery_s(window: _Window) -> float:
    """From the last fault's end until goodput is back within 5 % of what it was before the first one; infinite when it never is, NaN
    without a fault that ends.

    Goodput is counted in sliding windows of 1/60 of the measured time (at least 1 s); "before" is the mean from the warm-up to the first fault.
    """
    log = window.log
    faults = [fault for fault in log.header.get("faults", ()) if fault["to_ns"] < min(window.end, NEVER_NS)]
    if not faults:
        return math.nan
    first, last = min(fault["at_ns"] for fault in faults), max(fault["to_ns"] for fault in faults)
    done = np.sort(log.runs.finished_ns[window.good])
    before_s = (first - window.begin) / NS_PER_S
    if before_s <= 0:
        return math.nan
    usual = float(((done >= window.begin) & (done < first)).sum()) / before_s
    width = max(NS_PER_S, (window.end - window.begin) // 60)
    starts = np.unique(np.concatenate([[last], done[done >= last]]))
    starts = starts[starts + width <= window.end]
    counts = np.searchsorted(done, starts + width, side="left") - np.searchsorted(done, starts, side="left")
    back = np.flatnonzero(counts / (width / NS_PER_S) >= 0.95 * usual)
    return float(starts[back[0]] - last) / NS_PER_S if len(back) else math.inf


# --- pools -------------------------------------------------------------------------------------------------


def _pool_metrics(window: _Window) -> dict[str, dict[str, float]]:
    """Utilisation (of the slots there were), queue depth (time-weighted mean, maximum), queued work, waits, by pool."""
    log = window.log
    tables = {}
    for number, name in enumerate(log.names["pool"]):
        ready, left = _wait_intervals(window, number)
        depth = _integral(ready, left, window) / (window.span_s * NS_PER_S)
        tables[name] = {
            "utilisation": _utilisation(window, number),
            "queue_depth": depth,
            "queue_depth_max": _highest(ready, left),
            "queued_work_s": _queued_work_s(window, number),
            "wait_s.mean": float(np.mean(left - ready)) / NS_PER_S if len(ready) else math.nan,
        }
    return tables


def _integral(begin: Ints, end: Ints, window: _Window, weight: Any = 1) -> float:
    inside = np.minimum(end, window.end) - np.maximum(begin, window.begin)
    return float(np.sum(np.maximum(inside, 0) * weight, dtype=np.float64))


def _highest(ready: Ints, left: Ints) -> float:
    """The largest number that wait at once; who leaves at the instant of its arrival never waited."""
    waits = left > ready
    ready, left = np.sort(ready[waits]), np.sort(left[waits])
    if not len(ready):
        return 0.0
    return float((np.arange(1, len(ready) + 1) - np.searchsorted(left, ready, side="right")).max())


def _busy_intervals(window: _Window, pool: int) -> tuple[Ints, Ints, Ints]:
    """(start, end, slots) of every attempt in a pool; running ones last to the end of the window."""
    rows, attempts = window.log.rows, window.log.attempts
    here = (rows.pool == pool) & (rows.start_ns >= 0)
    start, end, slots = rows.start_ns[here], rows.end_ns[here], rows.slots[here]
    end = np.where(end >= 0, end, window.end)
    if len(attempts.row):
        other = rows.pool[attempts.row] == pool
        start = np.concatenate([start, attempts.start_ns[other]])
        end = np.concatenate([end, attempts.end_ns[other]])
        slots = np.concatenate([slots, rows.slots[attempts.row[other]]])
    return start, end, slots


def _utilisation(window: _Window, pool: int) -> float:
    """Slot time used / slot time there was; NaN for an unlimited pool."""
    capacity = window.log.capacity
    mine = capacity.pool == pool
    if not mine.any():
        return math.nan
    at = np.append(capacity.at_ns[mine], max(window.end, 0))
    there = _integral(at[:-1], at[1:], window, capacity.slots[mine])
    return (
        _integral(*_busy_intervals(window, pool)[:2], window, _busy_intervals(window, pool)[2]) / there
        if there
        else math.nan
    )


def _queued_work_s(window: _Window, pool: int) -> float:
    """Time-weighted mean of the estimated work that waits, in slot seconds."""
    rows = window.log.rows
    here = (rows.pool == pool) & (rows.ready_ns >= 0)
    left = np.where(rows.start_ns[here] >= 0, rows.start_ns[here], window.end)
    work = rows.estimate_ns[here] * rows.slots[here] / NS_PER_S
    return _integral(rows.ready_ns[here], left, window, work) / (window.span_s * NS_PER_S)
