"""Where a run's time went: its latency split, to the nanosecond, along the chain of tasks that determined its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simkit.log import EVENT_KINDS, RunLog
from simkit.metrics import Stays, Window
from simkit.metrics.waits import held
from simkit.model import NS_PER_S, TaskState

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

ADMISSION, BACKOFF, CLIENT, SHARED, UNANSWERED, OTHER = (
    "admission",
    "backoff",
    "client",
    "shared",
    "unanswered",
    "other",
)
"""Parts of a run's time outside of queues and slots: at the door (deferrals); between attempts of a task; the client's delays between
submissions; sharing another row's work; after the platform dropped the work and before its client knew; not explained by the log."""


@dataclass(frozen=True)
class Visits:
    """The spells on the critical chains: of which run (a place in `PathTimes.runs`), which row, when it was ready, left the queue, and
    ended or was cut off by the run's end (ns). `started`: it left the queue for slots. `shared`: it never queued, it shared another row's work."""

    place: Ints
    row: Ints
    ready: Ints
    left: Ints
    until: Ints
    started: Flags
    shared: Flags


@dataclass(frozen=True)
class PathTimes:
    """Per run of `runs`, the ns of each part of its time from arrival to its end (or the end of the log): entries (place, part, ns) with
    ns > 0, in order of `place`, which is one in `runs`; `part` is one in `parts`. A run's entries add up to `total_ns` exactly.

    Parts: what waits in queues were for (limits' reasons, ``pool:NAME``), ``service:NAME`` (on slots of a pool), and ADMISSION, BACKOFF,
    CLIENT, SHARED, UNANSWERED, OTHER.
    """

    runs: Ints
    total_ns: Ints
    parts: Sequence[str]
    place: Ints
    part: Ints
    ns: Ints
    visits: Visits

    def of(self, number: int) -> dict[str, int]:
        """ns by part of the run at place `number`, the largest first."""
        low, high = np.searchsorted(self.place, [number, number + 1])
        found = zip(self.part[low:high].tolist(), self.ns[low:high].tolist(), strict=True)
        return dict(sorted(((self.parts[code], ns) for code, ns in found), key=lambda part: (-part[1], part[0])))


def path_times(log: RunLog, runs: Any, window: Window | None = None) -> PathTimes:
    """Split the time of `runs` (run numbers, ascending).

    Each submission of a run is split by itself, up to its client's next move or the run's end. Its chain is walked backwards: a task was
    released by the task of the same submission that ended at that very instant, an attempt by the attempt before it.
    """
    runs = np.asarray(runs, dtype=np.int64)
    window = window or Window(log)
    units = _Units(log, window, runs)
    gaps: list[tuple[Ints, str, Ints]] = [(units.owner, CLIENT, units.delay)]
    nodes = _Nodes(log, window, units)
    opened = nodes.first_ready(units)
    gaps.append((units.owner, ADMISSION, opened - units.begin))
    visits = _walk(nodes, units, opened, gaps)
    return _added_up(log, runs, units.total, visits, gaps)


class _Units:
    """The submissions of the runs, one entry each, in order: `owner` (place of the run), `begin`, `end` (when the client moved on, the run
    ended, or the log did) and `delay` (the client's, after it) in ns; `first` is a run's first entry."""

    def __init__(self, log: RunLog, window: Window, runs: Ints) -> None:
        events, size = log.events, len(runs)
        arrival, finished = log.runs.arrival_ns[runs], log.runs.finished_ns[runs]
        final = np.maximum(np.where(finished >= 0, finished, max(window.end, 0)), arrival)
        self.total = final - arrival
        self.place = np.full(len(log.runs.arrival_ns), -1, dtype=np.int64)  # of each run of the log
        self.place[runs] = np.arange(size)
        again = np.flatnonzero(events.kind == EVENT_KINDS.index("client_retry"))
        again = again[self.place[events.run[again]] >= 0]
        again = again[np.argsort(self.place[events.run[again]], kind="stable")]
        owner = self.place[events.run[again]]
        left = np.minimum(events.at_ns[again], final[owner])
        back = np.minimum(left + np.rint(events.value[again] * NS_PER_S).astype(np.int64), final[owner])
        self.first = np.arange(size) + np.searchsorted(owner, np.arange(size))
        later = np.arange(len(again)) + owner + 1  # entries of repeated submissions
        self.owner, self.begin, self.end, self.delay = (np.zeros(size + len(again), dtype=np.int64) for _ in range(4))
        self.owner[self.first], self.owner[later] = np.arange(size), owner
        self.begin[self.first], self.begin[later] = arrival, back
        self.end[self.first], self.end[later] = final, final[owner]
        self.end[later - 1], self.delay[later - 1] = left, back - left

    def of_rows(self, log: RunLog, rows: Ints) -> Ints:
        """The entry of each row's submission; -1 for rows of other runs."""
        place = self.place[log.rows.run[rows]]
        last = np.append(self.first[1:], len(self.owner)) - 1
        unit = self.first[np.maximum(place, 0)] + log.rows.submission[rows] if len(self.first) else place
        return np.where((place >= 0) & (unit <= last[np.maximum(place, 0)]), unit, -1) if len(self.first) else place


class _Nodes:
    """Every spell of the submissions, as columns; `unit` is its submission. What lies after the submission's end is cut off."""

    def __init__(self, log: RunLog, window: Window, units: _Units) -> None:
        rows, attempts, queues = log.rows, log.attempts, window.queues
        unit = units.of_rows(log, np.arange(len(rows.run)))
        end = max(window.end, 0)
        shared = _sharing(log) & (rows.ready_ns >= 0) & (rows.start_ns < 0) & (rows.state != TaskState.CANCELLED)
        served = np.flatnonzero((unit >= 0) & (rows.start_ns >= 0))
        sharing = np.flatnonzero((unit >= 0) & shared)
        waiting = np.flatnonzero(~queues.started & (unit[queues.row] >= 0))
        early = np.flatnonzero(unit[attempts.row] >= 0) if len(attempts.row) else np.empty(0, dtype=np.int64)

        def column(*parts: Any) -> Ints:
            return np.concatenate(parts).astype(np.int64)

        def until(ends: Any) -> Any:
            return np.where(ends >= 0, ends, end)

        shared_until = until(rows.end_ns[sharing])
        self.row = column(served, sharing, queues.row[waiting], attempts.row[early])
        self.unit = unit[self.row]
        self.ready = column(
            rows.ready_ns[served], rows.ready_ns[sharing], queues.begin[waiting], attempts.ready_ns[early]
        )
        self.left = column(rows.start_ns[served], shared_until, queues.end[waiting], attempts.start_ns[early])
        self.until = column(until(rows.end_ns[served]), shared_until, queues.end[waiting], attempts.end_ns[early])
        self.error = column(np.full(len(self.row) - len(early), -1), attempts.error[early])
        kind = np.repeat([0, 1, 2, 0], [len(served), len(sharing), len(waiting), len(early)])
        self.started, self.shared = kind == 0, kind == 1
        last = units.end[self.unit]
        kept = self.ready <= last
        for name in ("row", "unit", "ready", "left", "until", "error", "started", "shared"):
            setattr(self, name, getattr(self, name)[kept])
        last = last[kept]
        self.left, self.until = np.minimum(self.left, last), np.minimum(self.until, last)
        self._link(log)

    def _link(self, log: RunLog) -> None:
        """Attempt before each attempt of a row, and the order in which to look for what released a task."""
        rework = log.reasons.index("rework") if "rework" in log.reasons else -2
        order = np.lexsort((self.until, self.ready, self.row))
        self.before = np.full(len(order), -1, dtype=np.int64)
        same = self.row[order[1:]] == self.row[order[:-1]]
        same &= self.error[order[:-1]] != rework
        self.before[order[1:][same]] = order[:-1][same]
        # who takes no time releases at the very time at which it was released itself
        lasting = np.flatnonzero((self.until > self.ready) & (self.started | self.shared))
        self._times = np.sort(self.until)
        self._base = len(self._times) + 1
        keys = self.unit[lasting] * self._base + np.searchsorted(self._times, self.until[lasting], side="right")
        arrange = np.argsort(keys, kind="stable")
        self._keys, self._nodes = keys[arrange], lasting[arrange]

    def first_ready(self, units: _Units) -> Ints:
        """When each submission's first task was ready: it was let in then. Its end, when it never was."""
        first = units.end.copy()
        np.minimum.at(first, self.unit, self.ready)
        return first

    def ended_by(self, unit: Ints, times: Ints) -> tuple[Ints, Ints]:
        """(spell of the submission that ended last by each time, how long before it); -1 when none."""
        if not len(self._keys):
            return np.full(len(unit), -1, dtype=np.int64), np.zeros(len(unit), dtype=np.int64)
        rank = np.searchsorted(self._times, times, side="right")
        place = np.searchsorted(self._keys, unit * self._base + rank, side="right") - 1
        found = place >= 0
        found &= self.unit[self._nodes[np.maximum(place, 0)]] == unit
        first = np.searchsorted(self._keys, self._keys[np.maximum(place, 0)], side="left")  # of several the first row
        node = np.where(found, self._nodes[first], -1)
        return node, np.where(found, times - self.until[node], 0)


def _sharing(log: RunLog) -> Flags:
    """Rows that share (or last shared) another row's work."""
    rows, events = log.rows, log.events
    flags: Flags = rows.state == TaskState.COALESCED
    joined = events.kind == EVENT_KINDS.index("coalesced")
    row = events.row[joined]
    flags[row[(rows.ready_ns[row] == events.at_ns[joined]) & (rows.start_ns[row] < 0)]] = True
    return flags


def _walk(nodes: _Nodes, units: _Units, opened: Ints, gaps: list[tuple[Ints, str, Ints]]) -> Visits:
    """Back from each submission's end to when it was let in; what lies between spells is appended to `gaps`."""
    owner = units.owner
    served = nodes.started | nodes.shared  # of spells that ended at one time one that left unserved tells more
    order = np.lexsort((nodes.ready, served, -nodes.until, nodes.unit))  # the spell that lasted longest first
    unit, first = np.unique(nodes.unit[order], return_index=True)
    node = order[first]
    rest, failed = units.end[unit] - nodes.until[node], nodes.error[node] >= 0
    unserved = ~served[node]
    for name, chosen in ((BACKOFF, failed), (UNANSWERED, unserved), (OTHER, ~failed & ~unserved)):
        gaps.append((owner[unit[chosen]], name, rest[chosen]))
    visited = [node]
    while len(unit):
        ready, before = nodes.ready[node], nodes.before[node]
        again = before >= 0
        gaps.append((owner[unit[again]], BACKOFF, ready[again] - nodes.until[before[again]]))
        released, since = nodes.ended_by(unit, ready)
        inner = ~again & (ready > opened[unit])
        linked = inner & (released >= 0)
        lost = inner & ~linked
        gaps.append((owner[unit[linked]], OTHER, since[linked]))
        gaps.append((owner[unit[lost]], OTHER, (ready - opened[unit])[lost]))
        follow = again | linked
        node, unit = np.where(again, before, released)[follow], unit[follow]
        visited.append(node)
    node = np.concatenate(visited)
    return Visits(
        owner[nodes.unit[node]], nodes.row[node], nodes.ready[node], nodes.left[node], nodes.until[node], nodes.started[node],
        nodes.shared[node],
    )  # fmt: skip


def _added_up(log: RunLog, runs: Ints, total: Ints, visits: Visits, gaps: list[tuple[Ints, str, Ints]]) -> PathTimes:
    pools = log.names["pool"]
    parts = list(dict.fromkeys([
        *log.reasons, *(f"pool:{name}" for name in pools), *(f"service:{name}" for name in pools),
        ADMISSION, BACKOFF, CLIENT, SHARED, UNANSWERED, OTHER,
    ]))  # fmt: skip
    code = {name: number for number, name in enumerate(parts)}
    pool_code = np.array([code[f"pool:{name}"] for name in pools], dtype=np.int64)
    service_code = np.array([code[f"service:{name}"] for name in pools], dtype=np.int64)
    pool = log.rows.pool[visits.row]
    wait = visits.left - visits.ready
    queued = np.flatnonzero(~visits.shared)
    stay, reason, ns = held(log, stays_of(log, visits, queued))
    rest = wait.copy()
    np.subtract.at(rest, queued[stay], ns)
    wait_code = np.where(visits.shared, code[SHARED], pool_code[pool])
    at = np.concatenate([visits.place[queued[stay]], visits.place, visits.place, *(gap[0] for gap in gaps)])
    part = np.concatenate(
        [reason, wait_code, service_code[pool], *(np.full(len(gap[0]), code[gap[1]]) for gap in gaps)]
    )
    length = np.concatenate([ns, rest, visits.until - visits.left, *(gap[2] for gap in gaps)])
    keep = length > 0
    key, inverse = np.unique(at[keep] * len(parts) + part[keep], return_inverse=True)
    added = np.zeros(len(key), dtype=np.int64)
    np.add.at(added, inverse, length[keep])
    return PathTimes(runs, total, parts, key // len(parts), key % len(parts), added, visits)


def stays_of(log: RunLog, visits: Visits, chosen: Ints) -> Stays:
    """The queueing of some visits, as stays."""
    row = visits.row[chosen]
    return Stays(row, log.rows.pool[row], visits.ready[chosen], visits.left[chosen], visits.started[chosen])
