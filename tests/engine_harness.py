"""Run the engine in tests: every run with all laws on, and small independent simulations to hold it against."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simkit.engine.simulation import Simulation
from simkit.log import RunLog
from simkit.model import NS_PER_S, ApiSpec, PlatformSpec, PoolSpec
from simkit.policy import load_policy
from simkit.trace.build import from_runs, single_task
from simkit.trace.table import Trace

Ints = NDArray[np.int64]


def policy(order: Any = "fifo", **slots: Any) -> Any:
    """A policy from its parts: ``policy("edf", limits=[...])``."""
    return load_policy({"name": "test", "order": order, **slots})


def run(
    trace: Trace, pools: Mapping[str, int | None], order: Any = "fifo", *, apis: Sequence[ApiSpec] = (), tiers: Any = (),
    budgets: Any = (), slots: Mapping[str, Any] | None = None, **options: Any,
) -> RunLog:  # fmt: skip
    """The log of one strict simulation."""
    platform = PlatformSpec(
        tuple(PoolSpec(name, size) for name, size in pools.items()), tuple(apis), tuple(budgets), tuple(tiers)
    )
    return Simulation(platform, policy(order, **(slots or {})), trace, **options).run(strict=True)


def ns(values: Any) -> Ints:
    """Seconds to whole nanoseconds."""
    return np.round(np.asarray(values, dtype=np.float64) * NS_PER_S).astype(np.int64)


def jobs(arrivals_s: Any, services_s: Any, **columns: Any) -> Trace:
    """One-task runs in pool "w"."""
    return single_task(ns(arrivals_s), ns(services_s), pool="w", **columns)


def tasks_trace(*runs: Mapping[str, Any]) -> Trace:
    return from_runs(runs)


def waits_s(log: RunLog) -> NDArray[np.float64]:
    """Per row: ready to start, in s (rows that started)."""
    started = log.rows.start_ns >= 0
    waits: NDArray[np.float64] = (log.rows.start_ns - log.rows.ready_ns)[started] / NS_PER_S
    return waits


def starts_s(log: RunLog) -> list[float]:
    return [start / NS_PER_S for start in log.rows.start_ns.tolist()]


def ends_s(log: RunLog) -> list[float]:
    return [end / NS_PER_S for end in log.rows.end_ns.tolist()]


def poisson_jobs(
    seed: int, size: int, rate: float, mean_service: float = 1.0, law: str = "exp", **columns: Any
) -> Trace:
    """A Poisson stream of `size` jobs with services of the given law and mean."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate, size))
    services = {
        "exp": lambda: rng.exponential(mean_service, size),
        "det": lambda: np.full(size, mean_service),
        "gamma4": lambda: rng.gamma(0.25, 4 * mean_service, size),  # squared coefficient of variation 4
    }[law]()
    return jobs(arrivals, services, **columns)


# --- an independent simulation: one heap of ends, one list of waiting jobs, a key per discipline -----------


def reference_starts(
    arrival: Sequence[int], service: Sequence[int], servers: int, discipline: str, *,
    priority: Sequence[int] = (), flow: Sequence[int] = (), weight: Sequence[int] = (), cost: Sequence[int] = (),
) -> list[int]:  # fmt: skip
    """Start times of jobs on `servers` equal servers, non-preemptive. At one instant: ends, then arrivals, then starts.

    `discipline`: fifo, priority (larger first), sfq (start tags by cost / weight; v = tag of the last job started, or the largest finish
    tag of a started job when nothing waits).
    """
    starts = [-1] * len(arrival)
    waiting: list[tuple[float, int]] = []
    ends: list[int] = []
    finish: dict[int, float] = {}
    tag: dict[int, tuple[float, float]] = {}
    v = last_finish = 0.0
    following = 0
    while following < len(arrival) or ends or waiting:
        now = min([*ends[:1], *arrival[following : following + 1]])
        while ends and ends[0] == now:
            heapq.heappop(ends)
        while following < len(arrival) and arrival[following] == now:
            job = following
            following += 1
            if discipline == "sfq":
                if not waiting:
                    v = max(v, last_finish)
                begin = max(v, finish.get(flow[job], 0.0))
                tag[job] = (begin, begin + cost[job] / weight[flow[job]])
                finish[flow[job]] = tag[job][1]
                key = begin
            else:
                key = -priority[job] if discipline == "priority" else 0.0
            heapq.heappush(waiting, (key, job))
        while waiting and len(ends) < servers:
            key, job = heapq.heappop(waiting)
            starts[job] = now
            heapq.heappush(ends, now + service[job])
            if discipline == "sfq":
                v = max(v, key)
                last_finish = max(last_finish, tag[job][1])
    return starts
