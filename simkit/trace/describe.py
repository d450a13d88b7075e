"""What is in a trace: the facts by which one trace is told from another.

Definitions: span = last - first arrival; IAT CV = sample standard deviation / mean of the gaps between sorted arrivals; IoD = sample variance /
mean of the counts in 1 s bins (index of dispersion; 1 for Poisson); peak per minute = the largest count in 60 s bins from the first arrival, the
bin itself counts from 0; empty minutes = such bins without an arrival.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from simkit.model import NS_PER_S
from simkit.trace.table import Trace


def describe(trace: Trace) -> dict[str, Any]:
    """Counts, rates, burstiness, service and token quantiles, shares by tenant, class and pool. Plain data; NaN where undefined."""
    runs, tasks = trace.runs, trace.tasks
    arrival = runs.arrival_ns
    since = arrival - arrival[0]
    gaps = np.diff(arrival) / NS_PER_S
    minutes, per_minute = np.unique(since // (60 * NS_PER_S), return_counts=True)
    seconds, per_second = np.unique(since // NS_PER_S, return_counts=True)
    span = float(since[-1]) / NS_PER_S
    return {
        "runs": len(trace),
        "tasks": trace.task_count,
        "tenants": len(trace.tenants),
        "span_s": span,
        "mean_per_min": len(trace) / (span / 60) if span else math.nan,
        "peak_per_min": int(per_minute.max()),
        "peak_per_min_bin": int(minutes[per_minute.argmax()]),
        "empty_minutes": int(minutes[-1]) + 1 - len(minutes),
        "peak_per_s": int(per_second.max()),
        "iat_mean_s": float(gaps.mean()) if len(gaps) else math.nan,
        "iat_cv": float(gaps.std(ddof=1) / gaps.mean()) if len(gaps) > 1 and gaps.mean() else math.nan,
        "longest_gap_s": float(gaps.max()) if len(gaps) else math.nan,
        "iod_1s": _dispersion(per_second, int(seconds[-1]) + 1),
        "service_s": _quantiles(tasks.service_ns / NS_PER_S),
        "tokens_in": _quantiles(tasks.tokens_in),
        "tokens_out": _quantiles(tasks.tokens_out),
        "tokens_in_total": int(tasks.tokens_in.sum()),
        "tokens_out_total": int(tasks.tokens_out.sum()),
        "by_tenant": _counts(runs.tenant, trace.tenants),
        "by_class": _counts(runs.cls, trace.classes),
        "work_s_by_pool": {
            name: float(tasks.service_ns[tasks.pool == code].sum()) / NS_PER_S for code, name in enumerate(trace.pools)
        },
        "source": trace.source,
        "warnings": dict(trace.warnings),
        "digest": trace.digest(),
    }


def _dispersion(counts: Any, bins: int) -> float:
    """Sample variance / mean over `bins` bins of which only those with `counts` are not empty."""
    if bins < 2:
        return math.nan
    mean = float(counts.sum()) / bins
    squares = float((counts.astype(np.float64) ** 2).sum())
    return (squares - bins * mean**2) / (bins - 1) / mean


def _quantiles(values: Any) -> dict[str, float]:
    p50, p95, p99 = (float(value) for value in np.percentile(values, (50, 95, 99)))
    return {"mean": float(np.mean(values)), "p50": p50, "p95": p95, "p99": p99, "max": float(np.max(values))}


def _counts(codes: Any, names: Any, most: int = 20) -> dict[str, int]:
    """Runs per name, the largest first, at most `most` of them."""
    counts = np.bincount(codes, minlength=len(names))
    order = np.argsort(-counts, kind="stable")[:most]
    return {names[code]: int(counts[code]) for code in order.tolist()}
