"""The summary of one run log: overall, by class, by tenant, by pool."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from simkit.log import EVENT_KINDS, RunLog
from simkit.metrics.ages import queue_ages
from simkit.metrics.fairness import jain, share_error
from simkit.metrics.groups import columns_of
from simkit.metrics.health import mode_times, recovery_s, stable
from simkit.metrics.queues import pool_metrics, queue_age
from simkit.metrics.tables import GroupTable, Table
from simkit.metrics.window import Floats, Ints, Window
from simkit.model import UsageError

_POOL_METRICS = ("utilisation", "queue_depth", "queue_depth_max", "queued_work_s")


class Summary:
    """The metrics of one run log: `metrics` overall, `by_class`, `by_tenant` (worked out when first asked for) and `pools`."""

    def __init__(
        self,
        metrics: Table,
        by_class: Mapping[str, Table],
        pools: Mapping[str, Table],
        window: Window | None = None,
        runs: Table | None = None,
    ) -> None:
        """`window` and `runs` (the metrics that groups have, of all runs together): what `by_tenant` is worked out from."""
        self.metrics, self.by_class, self.pools = metrics, by_class, pools
        self._window, self._runs = window, runs or {}
        self._by_tenant: Mapping[str, Table] | None = None

    @property
    def by_tenant(self) -> Mapping[str, Table]:
        """Metrics of each tenant."""
        if self._by_tenant is None:
            assert self._window is not None
            self._by_tenant = _by(self._window, "tenant", self._runs)
            self._window, self._runs = None, {}
        return self._by_tenant

    def get(self, metric: str, where: Mapping[str, str] | None = None) -> float:
        """One metric; `where` selects a class, a tenant or a pool ({"class": name}). NaN when there is no such thing. Raises UsageError for
        another kind of group, or several at once."""
        if not where:
            return float(self.metrics.get(metric, math.nan))
        if len(where) > 1 or not where.keys() <= {"class", "tenant", "pool"}:
            raise UsageError(f"where: found {dict(where)}, expected one of class, tenant, pool")
        ((kind, name),) = where.items()
        groups = self.by_class if kind == "class" else self.by_tenant if kind == "tenant" else self.pools
        if isinstance(groups, GroupTable):
            return groups.value(name, metric, math.nan)
        return float(groups.get(name, {}).get(metric, math.nan))

    def __getstate__(self) -> dict[str, Any]:
        return {
            "metrics": self.metrics,
            "by_class": self.by_class,
            "pools": self.pools,
            "_by_tenant": self.by_tenant,  # the log stays behind
            "_window": None,
            "_runs": {},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def summarise(log: RunLog) -> Summary:
    """All metrics of a log, by the names of the metric table."""
    window = Window(log)
    runs = {metric: float(values[0]) for metric, values in columns_of(window, None, 1).items()}
    runs.update(queue_age(window))
    runs["api_429"] = float(len(_throttled(log)))
    pools = pool_metrics(window)
    metrics = {**runs, **_platform_metrics(window)}
    for name, table in pools.items():
        for metric in _POOL_METRICS:
            metrics[f"{metric}.{name}"] = table[metric]
    return Summary(metrics, _by(window, "class", runs), pools, window, runs)


def _throttled(log: RunLog) -> Ints:
    """Runs of the calls that were answered 429."""
    chosen = np.flatnonzero(log.events.kind == EVENT_KINDS.index("throttled"))
    return np.asarray(log.events.run[chosen], dtype=np.int64)


def _by(window: Window, attribute: str, overall: Mapping[str, float]) -> GroupTable:
    """The metrics of runs and tasks by class or tenant; `overall` has the same ones of all runs together."""
    log, names = window.log, window.log.names[attribute]
    if len(names) == 1:
        return GroupTable(names, {metric: np.array([value]) for metric, value in overall.items()})
    codes = np.asarray(log.runs.cls if attribute == "class" else log.runs.tenant)
    columns: dict[str, Floats] = columns_of(window, codes, len(names))
    row_codes = np.asarray(log.rows.cls if attribute == "class" else log.rows.tenant)
    columns["queue_age_s.p95"], columns["queue_age_s.max"] = queue_ages(window, row_codes, len(names))
    columns["api_429"] = np.bincount(codes[_throttled(log)], minlength=len(names)).astype(np.float64)
    return GroupTable(names, columns)


def _platform_metrics(window: Window) -> Table:
    log, header = window.log, window.log.header
    kinds = np.bincount(np.asarray(log.events.kind, dtype=np.int64), minlength=len(EVENT_KINDS))
    count = {name: float(kinds[number]) for number, name in enumerate(EVENT_KINDS)}
    calls = float(math.fsum(header.get("api_calls", {}).values()))
    logical = float(math.fsum(header.get("logical_calls", {}).values()))
    metrics = {
        "api_calls": calls,
        "api_errors": count["api_error"] + count["api_hang"],
        "coalesced": count["coalesced"],
        "mode_switches": count["mode"],
        "preemptions": 0.0,
        "jain": jain(window),
        "share_error": share_error(log, window),
        "stable": stable(window),
        "recovery_s": recovery_s(window),
    }
    if logical:
        metrics["retry_amplification"] = calls / logical
    metrics.update(mode_times(window))
    return metrics
