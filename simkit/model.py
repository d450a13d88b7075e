"""The nouns of simkit: small frozen types and the row tables that everything else speaks of.

Time is a whole number of nanoseconds everywhere inside; files speak of seconds and are converted once, at
the edge (`simkit.units`). Names carry their unit last: `wait_ns`, `cost_usd`.

Rows
----
The engine keeps demand in columns, not in objects. A *row* is the number of one queued unit of work: one task
of one submission of a run. Rows ``0 .. n-1`` are the tasks of the trace in trace order; when a client submits
a run again its tasks get new rows at the end (`Rows.grow`). A mechanism names a row by its number and reads
what it may know about it from the columns, e.g. ``rows.priority[row]``. `Task` is a view of one row for
authors who prefer attributes.

Oracle boundary: the columns of a `Rows` that a mechanism receives hold estimates only; true service times,
defects and failures live in the engine's own tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

NS_PER_S = 1_000_000_000
CHEAPEST = "cheapest"
"""Instead of a tier's name, in policies: the tier with the lowest price that the platform has."""
NEVER_NS = 2**62
"""A time later than any simulated time: 'no deadline', 'no patience'. About 146 years."""


class SimkitError(Exception):
    """Base of every error that simkit raises on purpose."""


class UsageError(SimkitError):
    """The user's input is wrong: the command line exits with 2."""


class LawViolation(SimkitError):
    """A law of the model was broken: a defect of simkit or of a mechanism. The command line exits with 3."""


class Deadlock(SimkitError):
    """Work waits and nothing can ever move again. The command line exits with 4."""


class Outcome(IntEnum):
    """Where a submitted run ended. Exactly one per run; together they partition the offered runs."""

    UNFINISHED = 0
    VERIFIED = 1
    UNVERIFIED = 2
    FALSE_COMPLETION = 3
    FAILED = 4
    DEAD_LETTERED = 5
    TIMED_OUT = 6
    REJECTED = 7
    SHED = 8


COMPLETED = (Outcome.VERIFIED, Outcome.UNVERIFIED, Outcome.FALSE_COMPLETION)


class TaskState(IntEnum):
    """What became of a row. `DONE` includes rows that finished after their client had gone."""

    PENDING = 0
    DONE = 1
    FAILED = 2
    SKIPPED = 3
    DROPPED = 4
    COALESCED = 5
    CANCELLED = 6


class Verdict(IntEnum):
    """The six answers of admission."""

    ADMIT = 0
    QUEUE = 1
    DEFER = 2
    DOWNGRADE = 3
    SHED = 4
    REJECT = 5


@dataclass(frozen=True, slots=True)
class Decision:
    """An admission's answer about one submission.

    `retry_after_ns` goes with DEFER (the platform asks again then) and REJECT (told to the client);
    `tier` and `width` (a factor in [0, 1] on the optional tasks) go with DOWNGRADE.
    """

    verdict: Verdict
    reason: str
    retry_after_ns: int = 0
    tier: str | None = None
    width: float | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """A limit's 'not yet': what the row waits for.

    The engine parks the row's whole group until the limit calls ``context.wake(self, key)`` or until
    `until_ns`. `reason` is what the wait is attributed to, e.g. ``"share_cap:tenant=a"``.
    """

    key: object
    reason: str
    until_ns: int = NEVER_NS


@dataclass(frozen=True, slots=True)
class Drop:
    """A limit's 'never': the row is taken out of the queue unserved; `reason` goes to the log."""

    reason: str


# --- the platform, resolved (durations in ns, rates per second) -------------------------------------------


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A plain pool: `slots` held while attempts run. `slots` = None means unlimited."""

    name: str
    slots: int | None


@dataclass(frozen=True, slots=True)
class LimitSpec:
    """One provider limit of an API: at most `burst` at once, refilled at `per_s` (GCRA, continuous).

    `unit` is ``"requests"`` or ``"tokens"``.
    """

    unit: str
    per_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """An external, rate-limited service. It is a place to queue for (as a pool) and may also be demanded
    beside a pool. A call over any limit is answered 429 with Retry-After; a call beyond `concurrency` too.

    `latency_ns` is added to a call's service; `error_p` is the chance that a call fails (503) although the
    API is up; a failing call takes `error_latency_ns`, a hanging one lasts until `hang_timeout_ns`.
    """

    name: str
    limits: tuple[LimitSpec, ...] = ()
    concurrency: int | None = None
    latency_ns: int = 0
    error_p: float = 0.0
    error_latency_ns: int = 0
    hang_timeout_ns: int = 60 * NS_PER_S


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """Money that the owner may spend per window (windows aligned to time 0; None = the whole run).

    `for_` selects who pays: {"tenant": [...]} and/or {"class": [...]}; empty = everybody, one shared purse.
    """

    name: str
    usd: float
    window_ns: int | None
    for_: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class TierSpec:
    """One of several ways to serve a model call. A task of tier A served by tier B queues in B's pool, takes
    service * speed_A / speed_B, costs cost * price_B / price_A; `success_p` replaces 1 - defect_p of the run
    when every tiered task of it ran on this tier or a better one (the lowest success of its tiers counts).
    """

    name: str
    pool: str
    speed: float = 1.0
    price: float = 1.0
    success_p: float | None = None


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """A timed change: from `at_ns` for `for_ns` (NEVER_NS: to the end), `what` happens to `target`.

    what / value: ``"down"`` ("error" | "hang") on an API; ``"slow"`` (factor on the service of attempts that
    start then) on a pool or an API; ``"capacity"`` (slots) on a pool; ``"stall"`` (starts nothing) on a pool;
    ``"allowance"`` (fraction of every rate limit that is left) on an API; ``"reject_all"`` on the platform
    (target "") refuses every submission.
    """

    at_ns: int
    for_ns: int
    target: str
    what: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class RetrySpec:
    """A retry layer that belongs to the world, not to the policy (client, SDK): `attempts` in all."""

    attempts: int = 1
    base_ns: int = 0
    cap_ns: int = 0
    multiplier: float = 2.0
    jitter: str = "none"  # none | full | equal | decorrelated
    budget: float | None = None  # retries per first attempt; None = unlimited


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """How the clients of the runs selected by `for_` behave (first match wins).

    `patience_ns`: a submission not closed by then is given up (its server-side work goes on), and tried again
    while `retry` allows. `obey_retry_after`: the fraction of clients that wait at least the Retry-After they
    are given; the others use their own backoff. `sdk` is the retry layer inside one attempt at an API.
    """

    for_: Mapping[str, tuple[str, ...]]
    patience_ns: int = NEVER_NS
    retry: RetrySpec = RetrySpec()
    obey_retry_after: float = 1.0
    sdk: RetrySpec = RetrySpec()


@dataclass(frozen=True, slots=True)
class PlatformSpec:
    """All that runs work: pools and APIs in declaration order (names are unique over both)."""

    pools: tuple[PoolSpec, ...]
    apis: tuple[ApiSpec, ...] = ()
    budgets: tuple[BudgetSpec, ...] = ()
    tiers: tuple[TierSpec, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """Names of everything a task can queue for: pools first, then APIs."""
        return tuple(p.name for p in self.pools) + tuple(a.name for a in self.apis)


# --- rows --------------------------------------------------------------------------------------------------


class Rows:
    """Columns that grow together: ``rows.priority[row]``.

    A column is made from its numpy source when first asked for and is a plain list from then on (list reads
    are what the hot path does most). Mechanisms may add columns of their own with `derive`; those grow too.
    """

    def __init__(self, sources: Mapping[str, NDArray[Any] | Callable[[], NDArray[Any]]], size: int) -> None:
        self._sources = dict(sources)  # a function is a column that is worked out when first asked for
        self._lists: list[list[Any]] = []
        self._origin: list[int] = []  # of rows >= the original size: the row each was copied from
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getattr__(self, name: str) -> list[Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        column = self.derive(self.source(name))
        setattr(self, name, column)  # next time no __getattr__
        return column

    def source(self, name: str) -> NDArray[Any]:
        """The column as laid out at the start, as an array (for vectorised preparation in `bind`)."""
        try:
            source = self._sources[name]
        except KeyError:
            raise AttributeError(f"no column {name!r}; there are {sorted(self._sources)}") from None
        if callable(source):
            source = self._sources[name] = source()
        return source

    def derive(self, values: NDArray[Any] | Sequence[Any]) -> list[Any]:
        """Add a column of one's own: `values` per original row; rows that are grown later copy their origin."""
        column: list[Any] = values.tolist() if isinstance(values, np.ndarray) else list(values)
        for origin in self._origin:
            column.append(column[origin])
        self._lists.append(column)
        return column

    def grow(self, origins: Iterable[int]) -> int:
        """Append a copy of each row in `origins` to every column. Returns the first new row."""
        first = self.size
        copied = list(origins)
        self._origin.extend(copied)
        for column in self._lists:
            for origin in copied:
                column.append(column[origin])
        self.size += len(copied)
        return first


class Task:
    """What a scheduler may know of one waiting task: a view of a row, made when asked for."""

    __slots__ = ("_names", "_rows", "row")

    def __init__(self, rows: Rows, row: int, names: Mapping[str, Sequence[str]]) -> None:
        self._rows, self.row, self._names = rows, row, names

    @property
    def tenant(self) -> str:
        name: str = self._names["tenant"][self._rows.tenant[self.row]]
        return name

    @property
    def class_(self) -> str:
        name: str = self._names["class"][self._rows.cls[self.row]]
        return name

    @property
    def pool(self) -> str:
        name: str = self._names["pool"][self._rows.pool[self.row]]
        return name

    @property
    def priority(self) -> int:
        """Larger is more urgent."""
        priority: int = self._rows.priority[self.row]
        return priority

    @property
    def estimate_s(self) -> float:
        estimate: int = self._rows.estimate_ns[self.row]
        return estimate / NS_PER_S

    @property
    def arrival_s(self) -> float:
        """When the run was first submitted."""
        arrival: int = self._rows.arrival_ns[self.row]
        return arrival / NS_PER_S

    @property
    def deadline_s(self) -> float:
        """Absolute; infinity when the run has none."""
        deadline: int = self._rows.deadline_ns[self.row]
        return float("inf") if deadline >= NEVER_NS else deadline / NS_PER_S

    @property
    def tokens(self) -> int:
        """Prompt tokens plus the expected answer."""
        tokens: int = self._rows.tokens[self.row]
        return tokens

    @property
    def cost_usd(self) -> float:
        cost: float = self._rows.cost_usd[self.row]
        return cost

    @property
    def optional(self) -> bool:
        optional: bool = self._rows.optional[self.row]
        return optional


Callback = Callable[[Any], object]
