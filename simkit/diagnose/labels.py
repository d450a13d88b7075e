"""One label per failed, late or starving run (the rules: `simkit.diagnose`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simkit.diagnose.evidence import beside
from simkit.diagnose.paths import ADMISSION, BACKOFF, CLIENT, UNANSWERED, PathTimes, path_times
from simkit.log import EVENT_KINDS, RunLog
from simkit.metrics import Window
from simkit.model import NEVER_NS, NS_PER_S, Outcome

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Texts = NDArray[np.object_]

BUDGETS = ("budget:",)
QUOTAS = ("quota:", "share_cap:", "token_bucket:", "reserve:")
RATES = ("throttled:", "api_allowance:", "api_concurrency:")
EXPIRED = ("expired:",)
OTHER = "OTHER"
_BAD = (
    Outcome.UNVERIFIED, Outcome.FALSE_COMPLETION, Outcome.FAILED, Outcome.DEAD_LETTERED, Outcome.TIMED_OUT, Outcome.REJECTED, Outcome.SHED,
)  # fmt: skip
_ENDED = (Outcome.FAILED, Outcome.DEAD_LETTERED, Outcome.REJECTED, Outcome.SHED)
"""Something said no: the root cause is what it said."""


@dataclass(frozen=True)
class Diagnosis:
    """What is known about the runs that went wrong: `times` splits the time of each (`times.runs` are their numbers), `label` and `cause` are
    per run, as are `late_ns` (how long after its deadline it ended; negative = before, NEVER_NS = no deadline) and `starving`."""

    times: PathTimes
    label: Texts
    cause: Texts
    late_ns: Ints
    starving: Flags

    def place_of(self, run: int) -> int:
        """Where in the columns the run is; -1 = nothing went wrong with it."""
        place = int(np.searchsorted(self.times.runs, run))
        return place if place < len(self.times.runs) and int(self.times.runs[place]) == run else -1


def diagnose(log: RunLog, window: Window | None = None) -> Diagnosis:
    """Label every offered run that failed, was late, or has a task that waited longer than the limit of its class."""
    window = window or Window(log)
    runs, starving_run = log.runs, _starving(log, window)
    ended = np.where(runs.finished_ns >= 0, runs.finished_ns, max(window.end, 0))
    late = (runs.deadline_ns < NEVER_NS) & (ended > runs.deadline_ns)
    chosen = np.flatnonzero(window.offered & (np.isin(runs.outcome, _BAD) | late | starving_run))
    times = path_times(log, chosen, window)
    late_ns = np.where(runs.deadline_ns[chosen] < NEVER_NS, ended[chosen] - runs.deadline_ns[chosen], NEVER_NS)
    reason = np.array([*log.reasons, ""], dtype=object)[np.asarray(runs.reason[chosen], dtype=np.int64)]
    cause = _causes(log, times, reason)
    signs = _Signs(log, window, times, reason, cause, starving_run[chosen], late_ns)
    return Diagnosis(times, signs.labels(), cause, late_ns, starving_run[chosen])


def _starving(log: RunLog, window: Window) -> Flags:
    """Runs with a task that waited (or has waited so far) longer than the limit of its class."""
    flags = np.zeros(len(log.runs.outcome), dtype=np.bool_)
    limits = log.header.get("class_limits_s", {})
    if limits:
        bound = np.array([limits.get(name, np.inf) for name in log.names["class"]]) * NS_PER_S
        flags[log.rows.run[window.wait_ns > bound[log.rows.cls]]] = True
    return flags


def _starts_with(texts: Sequence[Any] | Texts, prefixes: tuple[str, ...]) -> Flags:
    return np.array([text.startswith(prefixes) for text in texts], dtype=np.bool_)


def _causes(log: RunLog, times: PathTimes, reason: Texts) -> Texts:
    """The root cause of each run.

    The root cause is what ended the run where something refused or failed it; else the largest part of its time that was not service;
    service itself only for a run that waited for nothing, or whose service alone is longer than its deadline allowed.
    """
    names = np.array([*times.parts, ""], dtype=object)
    service = _starts_with(names, ("service:",))
    unsaid = names == UNANSWERED  # a consequence, whatever it lasted
    largest_wait = _largest(times, ~service[times.part] & ~unsaid[times.part], len(names) - 1)
    largest_service = _largest(times, service[times.part], len(names) - 1)
    served = np.zeros(len(times.runs), dtype=np.int64)
    on_slots = service[times.part]
    np.add.at(served, times.place[on_slots], times.ns[on_slots])
    runs = log.runs
    allowed = runs.deadline_ns[times.runs] - runs.arrival_ns[times.runs]
    by_service = (names[largest_wait] == "") | (served > allowed)
    cause = np.where(by_service, names[largest_service], names[largest_wait])
    told = np.isin(runs.outcome[times.runs], _ENDED) & (reason != "") & ~_starts_with(reason, EXPIRED)
    return np.where(told, reason, cause)


def _largest(times: PathTimes, among: Flags, none: int) -> Ints:
    """Per run the part with most ns among some entries (of equals the first by name); `none` for a run without any."""
    found = np.full(len(times.runs), none, dtype=np.int64)
    by_name = np.argsort(np.argsort(np.array(times.parts, dtype=object)))
    at, part, ns = times.place[among], times.part[among], times.ns[among]
    order = np.lexsort((-by_name[part], ns, at)) if len(at) else np.empty(0, dtype=np.int64)
    found[at[order]] = part[order]  # the largest of a run is written last
    return found


class _Signs:
    """The evidence for each label, one flag per run."""

    def __init__(
        self,
        log: RunLog,
        window: Window,
        times: PathTimes,
        reason: Texts,
        cause: Texts,
        starving: Flags,
        late_ns: Ints,
    ) -> None:
        self.log, self.times, self.reason, self.cause, self.starving = log, times, reason, cause, starving
        self.size = len(times.runs)
        self.outcome = log.runs.outcome[times.runs]
        self.late = (late_ns > 0) & (late_ns < NEVER_NS)
        visits = times.visits
        around = beside(log, window, visits)
        self.for_slots = _starts_with(cause, ("pool:",))
        slot_part = _starts_with(times.parts, ("pool:",))[times.part]
        self.slot_wait = self._per_run(times.place[slot_part], times.ns[slot_part])
        self.fits, self.partly = (
            self._per_run(visits.place, around.fits_ns),
            self._per_run(visits.place, around.partly_ns),
        )
        self.passed = self._per_run(visits.place, around.passed)
        self.overtaken = self._per_run(visits.place, around.overtaken)
        verifies = (
            log.tasks.verifies[log.rows.task[visits.row]].astype(np.bool_)
            if len(log.tasks.verifies)
            else np.zeros(len(visits.place), bool)
        )
        waits = np.where(visits.shared, 0, visits.left - visits.ready)
        self.queue_wait = self._per_run(visits.place, waits)
        self.verifying_wait = self._per_run(visits.place, np.where(verifies, waits, 0))

    def _per_run(self, at: Ints, values: Ints) -> Ints:
        total = np.zeros(self.size, dtype=np.int64)
        np.add.at(total, at, values)
        return total

    def _events(self, *kinds: str) -> Ints:
        """How many events of some kinds each run has."""
        events = self.log.events
        chosen = np.isin(events.kind, [EVENT_KINDS.index(kind) for kind in kinds]) & (events.run >= 0)
        count = np.bincount(events.run[chosen].astype(np.int64), minlength=len(self.log.runs.outcome))
        return count[self.times.runs]

    def labels(self) -> Texts:
        """The first rule that holds."""
        cause = self.cause
        retrying = (cause == BACKOFF) | (cause == CLIENT)
        throttled, failed = self._events("throttled"), self._events("throttled", "api_error", "api_hang")
        skipped = self._events("verification_skipped") > 0
        unchecked = (self.outcome == Outcome.UNVERIFIED) | ((self.outcome == Outcome.FALSE_COMPLETION) & skipped)
        refused = (self.outcome == Outcome.REJECTED) | ((self.outcome == Outcome.SHED) & (self._events("shed") > 0))
        rules: list[tuple[str, Flags]] = [
            ("BUDGET_EXHAUSTION", _starts_with(cause, BUDGETS)),
            ("QUOTA_EXCEEDED", _starts_with(cause, QUOTAS)),
            (
                "RATE_LIMIT_EXHAUSTION",
                _starts_with(cause, RATES) | (retrying & (failed > 0) & (2 * throttled >= failed)),
            ),
            ("ADMISSION_OVERLOAD", refused | (cause == ADMISSION)),
            ("RETRY_AMPLIFICATION", retrying),
            ("VERIFICATION_STARVATION", unchecked | (self.for_slots & (2 * self.verifying_wait > self.queue_wait))),
            ("RESOURCE_FRAGMENTATION", self.for_slots & (2 * self.partly > self.slot_wait)),
            ("HEAD_OF_LINE_BLOCKING", self.for_slots & (2 * self.fits > self.slot_wait)),
            ("PRIORITY_INVERSION", self.for_slots & (2 * self.overtaken > self.passed)),
            ("STARVATION", self.starving),
            ("DEADLINE_MISS", self.late | (self.outcome == Outcome.TIMED_OUT) | _starts_with(self.reason, EXPIRED)),
        ]
        found = np.full(self.size, OTHER, dtype=object)
        for name, holds in reversed(rules):
            found[holds] = name
        return found


# --- tables -------------------------------------------------------------------------------------------------


def label(log: RunLog, diagnosis: Diagnosis | None = None) -> pd.DataFrame:
    """One row per run that failed, was late or starved, in order of arrival.

    Columns: run_id, tenant, class, outcome, label, root_cause, reason (what ended it, as the log says it; None = nothing did), time_s (arrival to
    end, or to the end of the log), late_by_s (after its deadline; NaN without one), waited_s (all of it but service), components ({part: s}, the
    largest first; they add up to time_s).
    """
    import pandas as pd

    found = diagnosis or diagnose(log)
    times, runs = found.times, log.runs
    number = times.runs
    parts = [times.of(place) for place in range(len(number))]
    service = [sum(ns for name, ns in split.items() if name.startswith("service:")) for split in parts]
    ids = np.array([*runs.run_id, None], dtype=object)
    outcomes = np.array([state.name.lower() for state in Outcome], dtype=object)
    return pd.DataFrame(
        {
            "run_id": ids[number],
            "tenant": np.array([*log.names["tenant"], None], dtype=object)[runs.tenant[number]],
            "class": np.array([*log.names["class"], None], dtype=object)[runs.cls[number]],
            "outcome": outcomes[runs.outcome[number]],
            "label": found.label,
            "root_cause": found.cause,
            "reason": np.array([*log.reasons, None], dtype=object)[runs.reason[number]],
            "time_s": times.total_ns / NS_PER_S,
            "late_by_s": np.where(found.late_ns == NEVER_NS, np.nan, found.late_ns / NS_PER_S),
            "waited_s": (times.total_ns - np.array(service, dtype=np.int64)) / NS_PER_S,
            "components": [{name: ns / NS_PER_S for name, ns in split.items()} for split in parts],
        }
    )


def counts(labelled: pd.DataFrame) -> pd.DataFrame:
    """Runs per label and root cause, the most frequent first: columns label, root_cause, runs, waited_s (their waits together)."""
    import pandas as pd

    if labelled.empty:
        return pd.DataFrame(
            {"label": [], "root_cause": [], "runs": np.empty(0, dtype=np.int64), "waited_s": np.empty(0)}
        )
    grouped = labelled.groupby(["label", "root_cause"], sort=True)["waited_s"].agg(["size", "sum"]).reset_index()
    table = grouped.rename(columns={"size": "runs", "sum": "waited_s"})
    return table.sort_values(["runs", "label", "root_cause"], ascending=[False, True, True], ignore_index=True)
