"""What the waiting was for: every ns that a task queued, put down to a limit or to a pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simkit.log import EVENT_KINDS, HoldTable, RunLog
from simkit.metrics.window import Ints, Stays, Window, per_row
from simkit.model import NS_PER_S, LawViolation

RUN_REASONS = ("admission", "backoff", "client")
"""What a run waits for outside of queues: deferrals; the platform's backoff between attempts; the client's between submissions."""
_DELAYS = {"defer": "admission", "retry": "backoff", "client_retry": "client"}


@dataclass(frozen=True)
class WaitAttribution:
    """Per (row, reason) the ns that the row waited in queues for that reason: entries with ns > 0, in order of row.

    `reason` numbers into `reasons`: what limits said (``share_cap:tenant=a``), and ``pool:NAME`` for the time in which nothing but the
    slots of a pool was missing. The entries of a row add up to `wait_ns` of that row, exactly.
    """

    reasons: Sequence[str]
    row: Ints
    reason: Ints
    ns: Ints
    wait_ns: Ints

    def of(self, row: int) -> dict[str, int]:
        """ns by reason of one row, the largest first."""
        low, high = np.searchsorted(self.row, [row, row + 1])
        parts = zip(self.reason[low:high].tolist(), self.ns[low:high].tolist(), strict=True)
        return dict(sorted(((self.reasons[code], ns) for code, ns in parts), key=lambda part: (-part[1], part[0])))

    def by_reason(self) -> dict[str, int]:
        """ns by reason over all rows, the largest first."""
        total = np.zeros(len(self.reasons), dtype=np.int64)
        np.add.at(total, self.reason, self.ns)
        parts = ((name, ns) for name, ns in zip(self.reasons, total.tolist(), strict=True) if ns)
        return dict(sorted(parts, key=lambda part: (-part[1], part[0])))


def wait_attribution(log: RunLog, window: Window | None = None) -> WaitAttribution:
    """Put down every row's wait to reasons: the time in which a limit held its (pool, group) back to the limit's reason, the rest to
    ``pool:NAME``. All attempts count, those that left unserved too; rows that shared another row's work did not wait."""
    stays = (window or Window(log)).queues
    names = list(dict.fromkeys([*log.reasons, *(f"pool:{name}" for name in log.names["pool"])]))
    code = {name: number for number, name in enumerate(names)}
    pool_codes = np.array([code[f"pool:{name}"] for name in log.names["pool"]], dtype=np.int64)
    stay, reason, ns_held = held(log, stays)
    waits = stays.end - stays.begin
    rest = waits.copy()
    np.subtract.at(rest, stay, ns_held)
    if len(rest) and int(rest.min()) < 0:
        worst = int(stays.row[int(np.argmin(rest))])
        raise LawViolation(f"holds of row {worst} overlap: they add up to more than its wait")
    row = np.concatenate([stays.row[stay], stays.row])
    reason = np.concatenate([reason, pool_codes[stays.pool]])
    ns = np.concatenate([ns_held, rest])
    keep = ns > 0
    row, reason, ns = row[keep], reason[keep], ns[keep]
    key, inverse = np.unique(row * len(names) + reason, return_inverse=True)
    total = np.zeros(len(key), dtype=np.int64)
    np.add.at(total, inverse, ns)
    return WaitAttribution(names, key // len(names), key % len(names), total, per_row(stays, len(log.rows.run)))


def held(log: RunLog, stays: Stays) -> tuple[Ints, Ints, Ints]:
    """(stay, reason, ns): how long each stay was held for each reason.

    Per (pool, group, reason) the held time up to t is a step-free, piecewise linear function H(t); a stay was held for
    H(end) - H(begin). All functions are evaluated together: holds are sorted by (function, time), and times are replaced by ranks so
    that (function, time) is one number to search for.
    """
    none = np.empty(0, dtype=np.int64)
    holds = log.holds
    if not len(holds.from_ns) or not len(stays.row):
        return none, none, none
    groups = int(max(log.rows.group.max(initial=0), holds.group.max(initial=0))) + 1
    place = holds.pool.astype(np.int64) * groups + holds.group
    reasons = len(log.reasons)
    functions, function = np.unique(place * reasons + holds.reason, return_inverse=True)
    places = functions // reasons
    stay_place = stays.pool.astype(np.int64) * groups + log.rows.group[stays.row]
    low, high = np.searchsorted(places, stay_place, side="left"), np.searchsorted(places, stay_place, side="right")
    counts = high - low
    stay = np.repeat(np.arange(len(stays.row)), counts)
    if not len(stay):
        return none, none, none
    asked = np.arange(len(stay)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
    curve = _Curves(holds, function, len(functions))
    length = curve.at(asked, stays.end[stay]) - curve.at(asked, stays.begin[stay])
    return stay, functions[asked] % reasons, length


class _Curves:
    """Held time up to t, of many (pool, group, reason) at once."""

    def __init__(self, holds: HoldTable, function: Ints, functions: int) -> None:
        order = np.lexsort((holds.from_ns, function))
        self._from, self._to = holds.from_ns[order], holds.to_ns[order]
        ordered = function[order]
        self._sums = np.concatenate([[0], np.cumsum(self._to - self._from)])
        self._first = np.searchsorted(ordered, np.arange(functions))
        self._times = np.unique(self._from)
        self._base = len(self._times) + 1
        self._keys = ordered * self._base + np.searchsorted(self._times, self._from, side="right")

    def at(self, function: Ints, times: Ints) -> Ints:
        rank = np.searchsorted(self._times, times, side="right")
        place = np.searchsorted(self._keys, function * self._base + rank, side="right")  # holds that began by then
        first = self._first[function]
        total = self._sums[place] - self._sums[first]
        begun = place > first
        open_ns = np.where(begun, np.maximum(self._to[np.maximum(place - 1, 0)] - times, 0), 0)
        return np.asarray(total - open_ns, dtype=np.int64)


def run_delays(log: RunLog) -> dict[str, Ints]:
    """Per run, ns outside of queues by RUN_REASONS, from the recorded delays (cut off at the end of the log)."""
    end = Window(log).end
    events = log.events
    found = {name: np.zeros(len(log.runs.outcome), dtype=np.int64) for name in RUN_REASONS}
    for kind, name in _DELAYS.items():
        these = events.kind == EVENT_KINDS.index(kind)
        delay = np.rint(events.value[these] * NS_PER_S).astype(np.int64)
        if kind == "defer":
            delay = np.maximum(delay, 1)
        np.add.at(found[name], events.run[these], np.minimum(delay, np.maximum(end - events.at_ns[these], 0)))
    return found


def wait_by_reason(log: RunLog, by: str | None = None) -> dict[str, float] | dict[str, dict[str, float]]:
    """Seconds waited by reason, the largest first: of tasks in queues, and of runs for `RUN_REASONS`. With `by` ("class" or "tenant")
    one such dict per class or tenant."""
    attribution = wait_attribution(log)
    delays = run_delays(log)
    names = [*attribution.reasons, *(name for name in RUN_REASONS if name not in attribution.reasons)]
    code = {name: number for number, name in enumerate(names)}
    groups = [""] if by is None else list(log.names[by])
    run_group = np.zeros(len(log.runs.outcome), dtype=np.int64)
    if by is not None:
        run_group = np.asarray(log.runs.cls if by == "class" else log.runs.tenant, dtype=np.int64)
    total = np.zeros((len(groups), len(names)), dtype=np.int64)
    np.add.at(total, (run_group[log.rows.run[attribution.row]], attribution.reason), attribution.ns)
    for name, ns in delays.items():
        np.add.at(total[:, code[name]], run_group, ns)
    tables = {
        group: {
            names[place]: int(line[place]) / NS_PER_S
            for place in sorted(np.flatnonzero(line).tolist(), key=lambda place: (-int(line[place]), names[place]))
        }
        for group, line in zip(groups, total, strict=True)
    }
    return tables[""] if by is None else tables


def largest(parts: dict[str, int]) -> tuple[str, int]:
    """The largest part (ties: the first by name); ("", 0) when there is none."""
    if not parts or math.fsum(parts.values()) <= 0:
        return "", 0
    return min(parts.items(), key=lambda part: (-part[1], part[0]))
