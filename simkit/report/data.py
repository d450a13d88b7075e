"""What the figures of a report show, as plain numbers: made from run logs once, needing no live object afterwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simkit.log import EVENT_KINDS, RunLog
from simkit.metrics import Window, series, wait_by_reason
from simkit.model import NS_PER_S

_RETRIES = ("retry", "client_retry", "sdk_retry")
_MOST_CLASSES = 4
_MOST_SHARES = 12
_MOST_WAITS = 8
_POINTS = 80


@dataclass(frozen=True)
class Latency:
    """The tail of completed runs of a class ("" = all): `seconds[k]` is exceeded by the fraction ``1 / tail[k]`` of them."""

    name: str
    completed: int
    offered: int
    tail: Sequence[float] = ()
    seconds: Sequence[float] = ()

    def quantile(self, q: float) -> float:
        """Interpolated on the curve; NaN without runs or beyond what so many runs can tell."""
        if not self.completed or 1 / (1 - q) > max(self.completed, 2):
            return math.nan
        return float(np.interp(math.log(1 / (1 - q)), np.log(self.tail), self.seconds))


@dataclass(frozen=True)
class Share:
    """A flow's part of the work that was started while at least two flows waited: what its weight made due, and what it got."""

    name: str
    due: float
    got: float


@dataclass(frozen=True)
class Cause:
    """Runs that failed or came late, by label and root cause."""

    label: str
    root: str
    runs: int


@dataclass(frozen=True)
class FigureData:
    """One policy in one replication. Series are means over bins that begin at `t_s` (s); all lists of a series are equally long."""

    policy: str
    replication: int
    end_s: float
    latency: Sequence[Latency]  # all runs first, then classes
    t_s: Sequence[float] = ()
    waiting: Sequence[float] = ()  # tasks in queues
    in_system: Sequence[float] = ()  # runs between arrival and end
    queued_work_s: Sequence[float] = ()  # estimated slot seconds in queues
    throttled_per_s: Sequence[float] = ()  # 429 answers
    retries_per_s: Sequence[float] = ()  # by any layer
    shares_by: str = "tenant"
    shares: Sequence[Share] = ()
    modes: Sequence[tuple[float, float, str]] = ()  # from s, to s, mode
    mode_names: Sequence[str] = ()  # from calm to worst
    faults: Sequence[tuple[float, float, str]] = ()
    waits: Sequence[tuple[str, float]] = ()  # reason, s; the largest first
    causes: Sequence[Cause] = field(default_factory=tuple)


def figure_data(log: RunLog) -> FigureData:
    """Read one log."""
    window = Window(log)
    frame = series(log)
    pools = list(log.names["pool"])

    def total(prefix: str) -> list[float]:
        return np.sum([frame[f"{prefix}.{pool}"] for pool in pools], axis=0).tolist() if pools else []

    edges = np.append(np.rint(frame["t_s"].to_numpy() * NS_PER_S).astype(np.int64), max(window.end, 1))
    end_s = window.end / NS_PER_S
    by, shares = _shares(log, window)
    return FigureData(
        policy=str(log.header["policy"]),
        replication=int(log.header["replication"]),
        end_s=end_s,
        latency=_latencies(log, window),
        t_s=frame["t_s"].tolist(),
        waiting=total("queue_depth"),
        in_system=frame["in_system"].tolist(),
        queued_work_s=total("queued_work_s"),
        throttled_per_s=frame["api_429_per_s"].tolist(),
        retries_per_s=_per_second(log, _RETRIES, edges),
        shares_by=by,
        shares=shares,
        modes=_modes(log, end_s),
        mode_names=list(log.names["mode"]),
        faults=[
            (fault["at_ns"] / NS_PER_S, min(fault["to_ns"] / NS_PER_S, end_s), f"{fault['target']}: {fault['what']}")
            for fault in log.header.get("faults", ())
        ],
        waits=_waits(log),
        causes=_causes(log),
    )


def _latencies(log: RunLog, window: Window) -> list[Latency]:
    runs = log.runs
    latency = (runs.finished_ns - runs.arrival_ns) / NS_PER_S
    found = [_latency("", latency[window.completed], int(np.count_nonzero(window.offered)))]
    names = log.names["class"]
    if len(names) > 1:
        sizes = np.bincount(runs.cls[window.offered], minlength=len(names))
        largest = sorted(np.argsort(-sizes, kind="stable")[:_MOST_CLASSES].tolist())
        for code in largest:
            mine = runs.cls == code
            found.append(_latency(names[code], latency[window.completed & mine], int(sizes[code])))
    return found


def _latency(name: str, seconds: Any, offered: int) -> Latency:
    """Quantiles at points evenly spaced in log 1/(1-q), as far as so many runs can tell."""
    if not len(seconds):
        return Latency(name, 0, offered)
    tail = np.geomspace(1.0, max(len(seconds), 2), _POINTS)
    return Latency(name, len(seconds), offered, tail.tolist(), np.quantile(seconds, 1 - 1 / tail).tolist())


def _per_second(log: RunLog, kinds: Sequence[str], edges: Any) -> list[float]:
    wanted = np.isin(log.events.kind, [EVENT_KINDS.index(kind) for kind in kinds])
    counts, _ = np.histogram(log.events.at_ns[wanted], bins=edges)
    rates: list[float] = (counts / np.maximum(np.diff(edges), 1) * NS_PER_S).tolist()
    return rates


def _modes(log: RunLog, end_s: float) -> list[tuple[float, float, str]]:
    if not len(log.samples.at_ns):
        return []
    switches = log.events.kind == EVENT_KINDS.index("mode")
    at = [0.0, *(log.events.at_ns[switches] / NS_PER_S).tolist(), end_s]
    names = [log.names["mode"][0], *(log.reasons[code] for code in log.events.reason[switches].tolist())]
    return [(begin, end, name) for begin, end, name in zip(at, at[1:], names, strict=False) if end > begin]


def _shares(log: RunLog, window: Window) -> tuple[str, list[Share]]:
    """Due and received work by flow, with the rule of the metric `share_error`, over all pools together."""
    weights = log.header.get("weights") or {"by": "tenant", "weights": {}, "default": 1}
    by = str(weights["by"])
    names = log.names.get(by, ())
    if len(names) < 2:
        return by, []
    due, got = np.zeros(len(names)), np.zeros(len(names))
    factor = np.array([float(weights["weights"].get(name, weights["default"])) for name in names])
    rows, queues = log.rows, window.queues
    for pool in np.unique(queues.pool).tolist():
        stays = queues.of_pool(pool)
        flow = (rows.cls if by == "class" else rows.tenant)[stays.row]
        largest = np.argsort(-np.bincount(flow, minlength=len(names)), kind="stable")[:_MOST_SHARES]
        started = np.flatnonzero(stays.started)
        at = started[np.argsort(stays.end[started], kind="stable")]
        times, work = stays.end[at], (rows.estimate_ns * rows.slots)[stays.row[at]] / NS_PER_S
        waits = np.array([_waiting(stays, flow == number, times) for number in largest.tolist()])
        fought_for = (waits.sum(axis=0) >= 2) & np.isin(flow[at], largest)
        waits, work = waits[:, fought_for], work[fought_for]
        per_weight = work / np.maximum((factor[largest, None] * waits).sum(axis=0), 1e-300)
        due[largest] += factor[largest] * (waits * per_weight).sum(axis=1)
        got += np.bincount(flow[at][fought_for], weights=work, minlength=len(names))
    total = float(got.sum())
    if not total:
        return by, []
    order = np.argsort(-np.maximum(due, got), kind="stable")[:_MOST_SHARES].tolist()
    shares = [Share(names[number], float(due[number]) / total, float(got[number]) / total) for number in order]
    return by, [share for share in shares if share.due or share.got]


def _waiting(stays: Any, mine: Any, times: Any) -> Any:
    """Whether any of the stays `mine` is in the queue just before each of the times."""
    ready, left = np.sort(stays.begin[mine]), np.sort(stays.end[mine])
    return np.searchsorted(ready, times, side="right") > np.searchsorted(left, times, side="left")


def _waits(log: RunLog) -> list[tuple[str, float]]:
    parts: dict[str, Any] = wait_by_reason(log)
    found = [(str(reason), float(seconds)) for reason, seconds in parts.items() if seconds]
    rest = math.fsum(seconds for _, seconds in found[_MOST_WAITS:])
    return found[:_MOST_WAITS] + ([("other", rest)] if rest else [])


def _causes(log: RunLog) -> list[Cause]:
    """Counts of the labels that diagnosis gives to failed and late runs, the largest first."""
    from simkit.diagnose import label

    table = label(log)
    if not len(table):
        return []
    counts = table.groupby(["label", "root_cause"], sort=True, dropna=False).size()
    found = [Cause(str(key[0]), str(key[1]), int(count)) for key, count in counts.items()]  # type: ignore[index]
    return sorted(found, key=lambda cause: (-cause.runs, cause.label, cause.root))


def thin(values: Sequence[float], digits: int = 5) -> list[float | None]:
    """Numbers with so many significant digits, for a page that carries its data; None for NaN."""
    return [None if math.isnan(value) else float(f"{value:.{digits}g}") for value in values]
