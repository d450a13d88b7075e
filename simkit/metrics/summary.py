"""The summary of one run log: overall, by class, by tenant, by pool."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from simkit.log import EVENT_KINDS, RunLog
from simkit.metrics.fairness import jain, share_error
from simkit.metrics.groups import columns_of
from simkit.metrics.health import mode_times, recovery_s, stable
from simkit.metrics.queues import pool_metrics, queue_age
from simkit.metrics.window import Window

Table = dict[str, float]
_POOL_METRICS = ("utilisation", "queue_depth", "queue_depth_max", "queued_work_s")


class Summary:
    """The metrics of one run log: `metrics` overall, `by_class`, `by_tenant` (worked out when first asked for) and `pools`."""

    def __init__(
        self,
        metrics: Table,
        by_class: dict[str, Table],
        pools: dict[str, Table],
        window: Window | None = None,
        runs: Table | None = None,
    ) -> None:
        """`window` and `runs` (the metrics of runs and tasks alone): what `by_tenant` is worked out from."""
        self.metrics, self.by_class, self.pools = metrics, by_class, pools
        self._window, self._runs = window, runs or {}
        self._by_tenant: dict[str, Table] | None = None

    @property
    def by_tenant(self) -> dict[str, Table]:
        """Metrics of each tenant."""
        if self._by_tenant is None:
            assert self._window is not None
            self._by_tenant = _by(self._window, "tenant", self._runs)
            self._window, self._runs = None, {}
        return self._by_tenant

    def get(self, metric: str, where: Mapping[str, str] | None = None) -> float:
        """One metric; `where` selects a class, a tenant or a pool ({"class": name}). NaN when there is no such thing."""
        table = self.metrics
        for kind, name in (where or {}).items():
            table = {"class": self.by_class, "tenant": self.by_tenant, "pool": self.pools}[kind].get(name, {})
        return float(table.get(metric, math.nan))

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
    pools = pool_metrics(window)
    metrics = {**runs, **_platform_metrics(window)}
    for name, table in pools.items():
        for metric in _POOL_METRICS:
            metrics[f"{metric}.{name}"] = table[metric]
    return Summary(metrics, _by(window, "class", runs), pools, window, runs)


def _by(window: Window, attribute: str, overall: Mapping[str, float]) -> dict[str, Table]:
    names = window.log.names[attribute]
    if len(names) == 1:
        return {names[0]: dict(overall)}
    runs = window.log.runs
    columns = columns_of(window, np.asarray(runs.cls if attribute == "class" else runs.tenant), len(names))
    lists = {metric: values.tolist() for metric, values in columns.items()}
    return {name: {metric: values[code] for metric, values in lists.items()} for code, name in enumerate(names)}


def _platform_metrics(window: Window) -> Table:
    log, header = window.log, window.log.header
    kinds = np.bincount(np.asarray(log.events.kind, dtype=np.int64), minlength=len(EVENT_KINDS))
    count = {name: float(kinds[number]) for number, name in enumerate(EVENT_KINDS)}
    calls = float(math.fsum(header.get("api_calls", {}).values()))
    logical = float(math.fsum(header.get("logical_calls", {}).values()))
    metrics = {
        "api_calls": calls,
        "api_429": count["throttled"],
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
    metrics.update(queue_age(window))
    metrics.update(mode_times(window))
    return metrics
