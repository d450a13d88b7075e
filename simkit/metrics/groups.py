"""Metrics of runs and tasks, for any division of the runs into groups (all of them, classes, tenants) in one vectorised pass."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from simkit.log import EVENT_KINDS
from simkit.metrics.window import Flags, Floats, Ints, Window, per_row
from simkit.model import NEVER_NS, NS_PER_S, Outcome, TaskState

STATES: Mapping[str, Outcome] = {
    "verified": Outcome.VERIFIED, "unverified": Outcome.UNVERIFIED, "false_completions": Outcome.FALSE_COMPLETION,
    "failed": Outcome.FAILED, "dead_lettered": Outcome.DEAD_LETTERED, "timed_out": Outcome.TIMED_OUT,
    "rejected": Outcome.REJECTED, "shed": Outcome.SHED, "unfinished": Outcome.UNFINISHED,
}  # fmt: skip
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
_SDK_RETRY = EVENT_KINDS.index("sdk_retry")


class Groups:
    """Sums over groups; `codes` (the group of each entry) is None when all is one group."""

    def __init__(self, codes: Ints | None, size: int) -> None:
        self.codes, self.size = codes, size

    def count(self, flags: Flags | None, length: int) -> Floats:
        """Entries with the flag (None = all of `length`) per group."""
        if self.codes is None:
            return np.array([float(length if flags is None else np.count_nonzero(flags))])
        codes = self.codes if flags is None else self.codes[flags]
        return np.bincount(codes, minlength=self.size).astype(np.float64)

    def total(self, values: Ints | Floats, flags: Flags | None = None) -> Floats:
        """Sum of the values of flagged entries per group."""
        if self.codes is None:
            return np.array([float(np.sum(values if flags is None else values[flags], dtype=np.float64))])
        codes = self.codes if flags is None else self.codes[flags]
        weights = np.asarray(values if flags is None else values[flags], dtype=np.float64)
        return np.asarray(np.bincount(codes, weights=weights, minlength=self.size), dtype=np.float64)

    def distribution(self, name: str, values_ns: Ints, flags: Flags | None) -> dict[str, Floats]:
        """mean, p50, p95, p99 and max in s (numpy's linear method); NaN for an empty group. One sort in all."""
        values = values_ns if flags is None else values_ns[flags]
        codes = self.codes if self.codes is None or flags is None else self.codes[flags]
        size = np.array([len(values)]) if codes is None else np.bincount(codes, minlength=self.size)
        columns: dict[str, Floats] = {}
        if not len(values):
            return {f"{name}.{part}": np.full(self.size, math.nan) for part in ("mean", *QUANTILES)}
        ordered = np.sort(values) if codes is None else _sorted_by_group(values, codes, self.size)
        first = np.concatenate([[0], np.cumsum(size)[:-1]])
        empty = size == 0
        sums = np.array([float(np.sum(values))]) if codes is None else np.bincount(codes, values, self.size)
        columns[f"{name}.mean"] = np.where(empty, math.nan, sums / np.maximum(size, 1)) / NS_PER_S
        last = np.maximum(size - 1, 0)
        for part, q in QUANTILES.items():
            at = q * last
            low = np.floor(at).astype(np.int64)
            below = _pick(ordered, first + low)
            above = _pick(ordered, first + np.minimum(low + 1, last))
            columns[f"{name}.{part}"] = np.where(empty, math.nan, _between(below, above, at - low))
        return columns


def _pick(ordered: Ints, at: Ints) -> Floats:
    return ordered[np.minimum(at, len(ordered) - 1)] / NS_PER_S


def _between(below: Floats, above: Floats, share: Floats) -> Floats:
    """Linear interpolation as numpy does it (exact at both ends)."""
    step = above - below
    return np.where(share >= 0.5, above - step * (1 - share), below + step * share)


def _sorted_by_group(values: Ints, codes: Ints, groups: int) -> Ints:
    """The values, ascending within each group, groups one after the other."""
    top = int(values.max()) + 1
    if int(values.min()) >= 0 and top * groups < 2**62:
        keys = (
            codes.astype(np.int64) * top + values
        )  # one number holds both: sorting numbers is much faster than sorting pairs
        keys.sort()
        return keys % top
    return values[np.lexsort((values, codes))]


def columns_of(window: Window, codes: Ints | None, size: int) -> dict[str, Floats]:
    """Every metric of runs and tasks, one value per group; `codes` gives the group of each run."""
    log, runs = window.log, window.log.runs
    groups = Groups(codes, size)
    offered = None if window.everything else window.offered
    columns = {"offered": groups.count(offered, len(runs.outcome))}
    state = runs.outcome if offered is None else runs.outcome[offered]
    key = state if codes is None else (codes if offered is None else codes[offered]) * len(Outcome) + state
    table = np.bincount(key, minlength=size * len(Outcome)).reshape(size, len(Outcome)).astype(np.float64)
    for name, outcome in STATES.items():
        columns[name] = table[:, outcome]
    columns["completed"] = table[:, [Outcome.VERIFIED, Outcome.UNVERIFIED, Outcome.FALSE_COMPLETION]].sum(axis=1)
    columns["admitted"] = groups.count((runs.admitted_ns >= 0) & window.offered, 0)
    for name, source in (("deferrals", runs.deferrals), ("downgrades", runs.downgraded), ("rework", runs.rework)):
        columns[name] = groups.total(source, offered) if source.any() else np.zeros(size)
    columns["goodput_per_s"] = groups.count(window.good, 0) / window.span_s
    due = runs.deadline_ns < NEVER_NS
    with np.errstate(divide="ignore", invalid="ignore"):
        columns["success_rate"] = columns["verified"] / columns["offered"]
        due &= window.offered
        missed = due & ~(window.completed & window.in_time)
        columns["deadline_miss_rate"] = groups.count(missed, 0) / groups.count(due, 0)
    done = None if window.completed.all() else window.completed
    columns.update(groups.distribution("latency_s", runs.finished_ns - runs.arrival_ns, done))
    row_codes = None if codes is None else (codes if _one_row_per_run(window) else codes[log.rows.run])
    columns.update(_task_columns(window, Groups(row_codes, size), columns["verified"]))
    return columns


def _one_row_per_run(window: Window) -> bool:
    run = window.log.rows.run
    return len(run) == len(window.log.runs.outcome) and bool((run == np.arange(len(run))).all())


def _task_columns(window: Window, groups: Groups, verified: Floats) -> dict[str, Floats]:
    """Waits, executions, work, cost, starvation. Rows of offered runs count."""
    rows = window.log.rows
    counted = window.rows_counted
    size = len(rows.run)
    columns: dict[str, Floats] = {}
    ever = None if (rows.attempts > 0).all() else rows.attempts > 0
    served = _both(counted, ever)
    columns.update(groups.distribution("wait_s", _served_wait_ns(window), served))
    columns["executions"] = groups.total(rows.attempts, counted)
    columns["retry_amplification"], columns["duplicate_executions"] = _repeats(
        window, groups, columns["executions"], served
    )
    work = per_row(window.slots, size) * rows.slots / NS_PER_S
    columns["served_work_s"] = groups.total(work, counted)
    columns["wasted_work_s"] = groups.total(_wasted_s(window, work), counted)
    if rows.cost_usd.any():
        columns["cost_usd"] = groups.total(rows.cost_usd * rows.attempts, counted)
    else:
        columns["cost_usd"] = np.zeros(groups.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        columns["cost_per_verified_usd"] = np.where(verified > 0, columns["cost_usd"] / verified, math.nan)
    columns["starved"] = _starved(window, groups)
    return columns


def _both(one: Flags | None, other: Flags | None) -> Flags | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _served_wait_ns(window: Window) -> Ints:
    """Per row: ready to start, summed over its attempts that started."""
    if window.queues.whole:
        return window.wait_ns
    rows, attempts = window.log.rows, window.log.attempts
    wait = np.where(rows.start_ns >= 0, rows.start_ns - rows.ready_ns, 0)
    if len(attempts.row):
        np.add.at(wait, attempts.row, attempts.start_ns - attempts.ready_ns)
    return wait


def _repeats(window: Window, groups: Groups, executions: Floats, served: Flags | None) -> tuple[Floats, Floats]:
    """(attempts per task that ran at all, executions begun by later submissions of a task that had run before).

    Attempts count the retries of an SDK inside one execution as well.
    """
    log, rows = window.log, window.log.rows
    if not rows.submission.any():  # no run was submitted twice
        distinct = begun = groups.count(served, len(rows.run))
    else:
        ran = np.flatnonzero(rows.attempts > 0 if served is None else served)
        _, at = np.unique(rows.task[ran], return_index=True)
        once = np.zeros(len(rows.run), dtype=np.bool_)
        once[ran[at]] = True
        distinct, begun = groups.count(once, 0), groups.count(served, len(rows.run))
    attempts = executions
    again = log.events.kind == _SDK_RETRY
    if again.any():
        extra = np.bincount(log.events.row[again], minlength=len(rows.run))
        attempts = attempts + groups.total(extra, window.rows_counted)
    with np.errstate(divide="ignore", invalid="ignore"):
        return attempts / distinct, begun - distinct


def _wasted_s(window: Window, work: Floats) -> Floats:
    """Per row: slot time that did nothing for its run: of attempts that were not the last one, of submissions that did not close their run,
    of runs that ended badly. Work of the open submission of an unfinished run is not lost yet."""
    log, rows, attempts = window.log, window.log.rows, window.log.attempts
    alive = window.closed_well | (log.runs.outcome == Outcome.UNFINISHED)
    several = rows.submission.any()
    if not several and alive.all():
        useful = np.ones(len(rows.run), dtype=np.bool_)
    else:
        useful = alive[rows.run] & (rows.submission == log.runs.submissions[rows.run] - 1)
    useful &= (rows.state == TaskState.DONE) | (rows.state == TaskState.PENDING)
    wasted = np.where(useful, 0.0, work)
    if len(attempts.row):
        early = (attempts.end_ns - attempts.start_ns) * rows.slots[attempts.row] / NS_PER_S
        lost = useful[attempts.row]  # of the other rows all work is counted already
        np.add.at(wasted, attempts.row[lost], early[lost])
    return wasted


def _starved(window: Window, groups: Groups) -> Floats:
    """Tasks that waited in queues, so far or in all, longer than the limit of their class."""
    log = window.log
    limits = log.header.get("class_limits_s", {})
    if not limits:
        return np.zeros(groups.size)
    bound_ns = np.array([limits.get(name, math.inf) for name in log.names["class"]]) * NS_PER_S
    late = window.wait_ns > bound_ns[log.rows.cls]
    if window.rows_counted is not None:
        late = late & window.rows_counted
    return groups.count(late, 0)
