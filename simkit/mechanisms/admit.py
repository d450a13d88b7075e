"""Admission: may a submission enter now? A chain of these; the first that objects decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from simkit.mechanisms.base import Admission, Context, ParameterError, View, mechanism
from simkit.mechanisms.selection import codes_of, known_tier, per_code, places_of, run_codes, run_places
from simkit.model import NEVER_NS, NS_PER_S, Decision, Verdict
from simkit.units import Count, Duration, Fraction, Name, PositiveDuration

AUTO_FLOOR_NS = NS_PER_S
"""The least Retry-After that ``auto`` names."""


@mechanism("queue_limit")
@dataclass(eq=False)
class QueueLimit(Admission):
    """Refuse a submission when too many rows already wait.

    Rule: in each pool p of `pools`, w(p) rows of the submission's key wait and f(p) slots are free. What must really wait there is
    max(0, w(p) - f(p)): rows that arrived at this very instant are dispatched into the free slots right after. Their sum over the
    pools is the queue; the submission is refused when the queue is at or above `max`. With ``max: 0`` it is refused when any row
    really waits, or when the pool of its first task has no free slot left: a loss system (Erlang B); with c slots and
    ``max: K - c`` it is M/M/c/K. Free slots are not divided between keys: of several keys arriving at one instant each sees them all.
    ``by: pool`` counts every pool on the run's path by itself and refuses when w(p) - f(p) >= `max` for one of them.
    Only ready rows count: tasks of admitted runs that wait for a predecessor do not.

    Parameters: `by`: class | tenant | pool | all. `max`: rows, for every key alike or by name with an optional `default` (names
    without a bound are not limited). `pools`: where rows are counted (default: everywhere). `retry_after`: a duration, or ``auto`` =
    the time in which the slots of the fullest counted pool clear the work that waits there, at least 1 s. `jitter`: Retry-After is drawn
    evenly from [r, (1 + jitter) r], so refused clients do not come back together and never early. `verdict`: reject | shed | defer.

    Complexity: O(1) below the bound, else O(pools). Source: bounded queues (M/M/c/K); a fixed Retry-After
    synchronises the refused clients, hence jitter and the backlog / drain-rate form.
    """

    max: Count | Mapping[Name, Count]
    by: Literal["class", "tenant", "pool", "all"] = "all"
    pools: list[Name] | None = None
    retry_after: PositiveDuration | Literal["auto"] = 30 * NS_PER_S
    jitter: Fraction = 0.0
    verdict: Literal["reject", "shed", "defer"] = "reject"

    def __post_init__(self) -> None:
        if self.by == "all" and isinstance(self.max, Mapping):
            raise ParameterError("queue_limit: max by name needs by: class, tenant or pool")
        if self.pools is not None and not self.pools:
            raise ParameterError("queue_limit: pools: name at least one")

    def bind(self, context: Context) -> None:
        self._view = context.view
        self._pool_of_row, self._first_row = context.rows.pool, context.submissions.first_row
        everywhere = list(range(len(context.names["pool"])))
        self._places = everywhere if self.pools is None else places_of(context, self.pools)
        self._bounds = per_code(context, self, self.by, self.max)
        self._names = ("all",) if self.by == "all" else context.names[self.by]
        self._verdict = Verdict[self.verdict.upper()]
        self._rng = context.rng("retry_after")
        self._counted = frozenset(self._places)
        if self.by == "pool":
            paths = run_places(context)
            shortened = {path: tuple(p for p in path if p in self._counted) for path in dict.fromkeys(paths)}
            self._paths = context.submissions.derive([shortened[path] for path in paths])
        elif self.by != "all":
            self._codes = run_codes(context.submissions, self.by)
            self._waiting = {place: context.waiting_by(self.by, [place]) for place in self._places}
            several = len(self._places) > 1
            self._total = context.waiting_by(self.by, self._places) if several else self._waiting[self._places[0]]

    def decide(self, submission: int, now_ns: int) -> Decision | None:
        if self.by == "pool":
            return self._by_pool(submission)
        code = 0 if self.by == "all" else self._codes[submission]
        bound = self._bounds[code]
        if bound is None or (self.by != "all" and self._total[code] < bound):
            return None
        queue = 0
        for place in self._places:
            over = self._waits(place, code) - self._view.free(place)
            if over > 0:
                queue += over
        if queue < bound or (bound == 0 and queue == 0 and self._has_room(submission, code)):
            return None
        return self._refuse(f"queue_limit:{self.by}={self._names[code]}", self._places)

    def _waits(self, place: int, code: int) -> int:
        return self._view.waiting(place) if self.by == "all" else self._waiting[place][code]

    def _has_room(self, submission: int, code: int) -> bool:
        entry = self._pool_of_row[self._first_row[submission]]
        return entry not in self._counted or self._waits(entry, code) < self._view.free(entry)

    def _by_pool(self, submission: int) -> Decision | None:
        view = self._view
        for place in self._paths[submission]:
            bound = self._bounds[place]
            if bound is not None and view.waiting(place) - view.free(place) >= bound:
                return self._refuse(f"queue_limit:pool={self._names[place]}", [place])
        return None

    def _refuse(self, reason: str, places: list[int]) -> Decision:
        if self.retry_after == "auto":
            wait = max(AUTO_FLOOR_NS, *(_drain_ns(self._view, place) for place in places))
        else:
            wait = self.retry_after
        if self.jitter:
            wait += round(self._rng.random() * self.jitter * wait)
        return Decision(self._verdict, reason, min(wait, NEVER_NS))


def _drain_ns(view: View, place: int) -> int:
    """Time that the slots of a place need for the work that waits there."""
    work, capacity = view.queued_work_ns(place), view.capacity(place)
    return -(-work // capacity) if capacity else NEVER_NS if work else 0


@mechanism("deadline_feasible")
@dataclass(eq=False)
class DeadlineFeasible(Admission):
    """Refuse a submission that would miss its deadline by the estimates.

    Rule: ready = now + waits + critical path, where the waits are the sum over the pools on the run's path of (estimated work that
    waits there / its capacity) and the critical path is the longest chain of the run's estimates. The run is refused when
    ready + `slack` > deadline. A run without a deadline passes. What is running is not counted (nobody knows what is left of it), and
    neither is work that later stages of admitted runs will queue, so the estimate is a lower bound under load; `slack` makes up for it.

    Parameters: `else`: reject | downgrade (to `tier`, a name or cheapest, and/or `width`, then admitted) | defer (asked again after `retry_after`, as long as
    the run could still make it through empty queues then; rejected otherwise). `slack`: duration. `retry_after`: for reject and defer.

    Complexity: O(pools on the path). Source: admission for EDF, which otherwise collapses in overload (the domino effect).
    """

    else_: Literal["reject", "downgrade", "defer"] = "reject"
    slack: Duration = 0
    tier: Name | None = None
    width: Fraction | None = None
    retry_after: Duration = 30 * NS_PER_S

    def __post_init__(self) -> None:
        if (self.else_ == "downgrade") != (self.tier is not None or self.width is not None):
            raise ParameterError("deadline_feasible: else: downgrade goes with tier and/or width, and they with it")
        if self.else_ == "defer" and not self.retry_after:
            raise ParameterError("deadline_feasible: else: defer needs a retry_after above 0")

    def bind(self, context: Context) -> None:
        submissions = context.submissions
        self._view = context.view
        self._deadline, self._critical = submissions.deadline_ns, submissions.critical_path_ns
        self._paths = run_places(context)
        self._tier = self.tier if self.tier is not None and known_tier(context, self, self.tier) else None

    def decide(self, submission: int, now_ns: int) -> Decision | None:
        deadline = self._deadline[submission] - self.slack
        if deadline >= NEVER_NS - self.slack:
            return None
        bare = now_ns + self._critical[submission]
        view = self._view
        if bare + sum(_drain_ns(view, place) for place in self._paths[submission]) <= deadline:
            return None
        if self.else_ == "downgrade":
            return Decision(Verdict.DOWNGRADE, "deadline_feasible", tier=self._tier, width=self.width)
        if self.else_ == "defer" and bare + self.retry_after <= deadline:
            return Decision(Verdict.DEFER, "deadline_feasible", self.retry_after)
        return Decision(Verdict.REJECT, "deadline_feasible", self.retry_after)


class _Chosen:
    """Submissions by class and tenant (both must match where both are given), in some overload modes only."""

    def __init__(
        self,
        context: Context,
        owner: Admission,
        classes: list[str] | None,
        tenants: list[str] | None,
        modes: list[str] | None,
    ) -> None:
        self._view, self._modes = context.view, None if modes is None else frozenset(modes)
        self._tests = [
            (run_codes(context.submissions, attribute), codes_of(context, owner, attribute, names))
            for attribute, names in (("class", classes), ("tenant", tenants))
            if names is not None
        ]

    def in_force(self) -> bool:
        return self._modes is None or self._view.mode in self._modes

    def holds(self, submission: int) -> bool:
        return all(column[submission] in codes for column, codes in self._tests)


def _need_names(name: str, classes: list[str] | None, tenants: list[str] | None) -> None:
    if not (classes or tenants):
        raise ParameterError(f"{name}: name classes or tenants")


@mechanism("only")
@dataclass(eq=False)
class Only(Admission):
    """Let in nobody but the chosen: submissions of other classes (or tenants) are turned away.

    Parameters: `classes`, `tenants`: names (both given: both must match). `verdict`: shed | reject. `retry_after`: told with reject.
    `when_mode`: the overload modes in which this is in force (default: always). Complexity: O(1).
    """

    classes: list[Name] | None = None
    tenants: list[Name] | None = None
    verdict: Literal["shed", "reject"] = "shed"
    retry_after: Duration = 30 * NS_PER_S
    when_mode: list[Name] | None = None

    def __post_init__(self) -> None:
        _need_names("only", self.classes, self.tenants)

    def bind(self, context: Context) -> None:
        self._chosen = _Chosen(context, self, self.classes, self.tenants, self.when_mode)
        shed = self.verdict == "shed"
        self._answer = Decision(Verdict.SHED, "only") if shed else Decision(Verdict.REJECT, "only", self.retry_after)

    def decide(self, submission: int, now_ns: int) -> Decision | None:
        if self._chosen.in_force() and not self._chosen.holds(submission):
            return self._answer
        return None


@mechanism("shed")
@dataclass(eq=False)
class Shed(Admission):
    """Drop the chosen submissions at the door.

    Parameters: `classes`, `tenants`: names (both given: both must match). `when_mode`: the overload modes in which this is in force
    (default: always). Complexity: O(1).
    """

    classes: list[Name] | None = None
    tenants: list[Name] | None = None
    when_mode: list[Name] | None = None

    def __post_init__(self) -> None:
        _need_names("shed", self.classes, self.tenants)

    def bind(self, context: Context) -> None:
        self._chosen = _Chosen(context, self, self.classes, self.tenants, self.when_mode)
        self._answer = Decision(Verdict.SHED, "shed")

    def decide(self, submission: int, now_ns: int) -> Decision | None:
        if self._chosen.in_force() and self._chosen.holds(submission):
            return self._answer
        return None


@mechanism("defer")
@dataclass(eq=False)
class Defer(Admission):
    """Put the chosen submissions off: the platform asks again later.

    Parameters: `classes`, `tenants`: names (both given: both must match). `for`: how long each time. `max`: deferrals of one submission
    by this member, after which it has no more objection (default: no end while the mode lasts). `jitter`: each delay is drawn evenly
    from [for, (1 + jitter) for]. `when_mode`: the overload modes in which this is in force. One of `max` and `when_mode` is needed, or
    the chosen would never get in. Complexity: O(1).
    """

    classes: list[Name] | None = None
    tenants: list[Name] | None = None
    for_: PositiveDuration = 30 * NS_PER_S
    max: Count | None = None
    jitter: Fraction = 0.0
    when_mode: list[Name] | None = None

    def __post_init__(self) -> None:
        _need_names("defer", self.classes, self.tenants)
        if self.max is None and self.when_mode is None:
            raise ParameterError("defer: without max or when_mode the chosen would be put off for ever")

    def bind(self, context: Context) -> None:
        self._chosen = _Chosen(context, self, self.classes, self.tenants, self.when_mode)
        self._rng = context.rng("defer")
        self._times: dict[int, int] = {}

    def decide(self, submission: int, now_ns: int) -> Decision | None:
        if not (self._chosen.in_force() and self._chosen.holds(submission)):
            return None
        if self.max is not None:
            times = self._times.get(submission, 0)
            if times >= self.max:
                return None
            self._times[submission] = times + 1
        wait = self.for_
        if self.jitter:
            wait += round(self._rng.random() * self.jitter * wait)
        return Decision(Verdict.DEFER, "defer", wait)
