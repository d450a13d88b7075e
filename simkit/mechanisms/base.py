"""What a mechanism is: the protocols, the registry, and what a mechanism may see.

A mechanism is a dataclass marked ``@mechanism("name")``; its fields are its YAML parameters, checked from their
types (`simkit.units` has the annotated ones: Duration, Fraction, Rate, ...). A field whose YAML name is a Python keyword
ends in an underscore (``for_``, ``else_``). Its slot follows from its base class:

============  ==============  ===========================================================================
slot          base class      answers
============  ==============  ===========================================================================
order         `Order`         who is next in one pool: ``push``, ``pop``, ``len``
admission     `Admission`     may this submission enter: ``decide``; a chain, the first answer but None stands
limits        `Limit`         may this row start now: ``hold``, with ``start``/``finish`` to keep count
overload      `Overload`      how hard is the platform pressed: ``observe`` -> a mode; and what a mode does
retry         `Retry`         try a failed attempt again, and when: ``delay_ns``
backfill      `Backfill`      may a row overtake one that does not fit: ``may_overtake``
coalesce      `Coalesce`      may a row share another's work: ``key``
============  ==============  ===========================================================================

Every simulation makes its own mechanism objects (one order per pool) and calls `bind` once before the first event.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from simkit.model import Decision, Drop, Hold, Rows, Task, UsageError


class ParameterError(UsageError, ValueError):
    """A mechanism's parameters contradict each other. Raised by ``__post_init__``."""


class View(Protocol):
    """The live state of the platform that a mechanism may read. Pools and APIs are numbered as in
    ``PlatformSpec.places``; the slots of an API are its `concurrency`. Every method is O(1) unless said otherwise."""

    @property
    def now_ns(self) -> int: ...

    @property
    def mode(self) -> str:
        """The overload mode in force, "normal" without an overload mechanism."""

    def capacity(self, pool: int) -> int:
        """Slots now (faults change it); a very large number when unlimited."""

    def free(self, pool: int) -> int:
        """Slots free now (never negative, also while capacity shrinks below what is in use)."""

    def waiting(self, pool: int) -> int:
        """Rows ready and not started in this pool."""

    def queued_work_ns(self, pool: int) -> int:
        """Sum of slots x estimate over the waiting rows."""

    def utilisation(self, pool: int) -> float:
        """Slots in use / capacity now, 0 for an unlimited pool."""

    def oldest_wait_ns(self, pool: int) -> int:
        """Age of the oldest waiting row; 0 when none waits. Amortised O(1)."""


class Allowance(Protocol):
    """One rate limit of a provider, as it publishes it: to read, never to take from (it is a `simkit.mechanisms.bucket.Gcra`)."""

    @property
    def burst(self) -> int: ...

    def wait_ns(self, cost: int, now_ns: int) -> int:
        """How long until `cost` could be taken if nobody took any before: 0 = now, -1 = never (cost above the burst)."""

    def peek_tokens(self, now_ns: int) -> int:
        """Whole tokens left ("remaining")."""


class Context(Protocol):
    """What the engine hands to `bind`: columns, names, live state, and the few things a mechanism may do."""

    rows: Rows
    """One row per task of each submission. Columns (lists; index = row): ``run`` (trace run), ``task`` (trace task),
    ``instance`` (submission), ``pool``, ``tenant``, ``cls`` (codes into `names`), ``priority``, ``slots`` (of the own
    pool), ``arrival_ns`` (first submission of the run), ``deadline_ns`` (absolute, NEVER_NS = none),
    ``client_deadline_ns`` (when the submitting client gives up), ``estimate_ns``, ``tokens`` (in + expected out),
    ``cost_usd``, ``optional``, ``verifies``, ``tier`` (code, -1 = none), ``cache_key`` (code, -1 = none),
    ``public`` (cache scope), ``demand`` (code into `demands`), ``group`` (see `Limit.group_by`)."""

    submissions: Rows
    """One row per submission (first submissions in trace order). Columns: ``run``, ``tenant``, ``cls``, ``priority``,
    ``arrival_ns`` (of the run), ``deadline_ns``, ``client_deadline_ns``, ``critical_path_ns`` (estimated, longest chain),
    ``work_ns`` (estimated, slots x time over all tasks), ``first_row``, ``n_rows``."""

    names: Mapping[str, Sequence[str]]
    """Code tables: "tenant", "class", "pool" (PlatformSpec.places), "tier"."""

    demands: Sequence[Sequence[tuple[int, int]]]
    """What a row needs all at once to start: ``demands[rows.demand[row]]`` lists (place, slots), the own place first; of an API that is
    called beside a pool it is what the call takes of its concurrency (how many calls and tokens: `api_demand`). Few distinct
    entries, shared by all rows of the same needs (downgrades to another tier may append some)."""

    view: View
    pools: Sequence[int]
    """The pools this object is for: the one pool of an order, every pool otherwise."""
    grouped: bool
    """False when no limit is in force: no row is ever refused, an order may leave out `block`/`unblock` work."""
    group_count: int

    def rng(self, name: str) -> np.random.Generator:
        """A stream of this mechanism's own: policies draw from no stream of the workload."""

    def call_at(self, at_ns: int, function: Callable[[Any], object], argument: Any = None) -> None:
        """A timer: ``function(argument)`` at `at_ns`, after completions and before arrivals of that instant."""

    def wake(self, limit: Limit, key: Hashable) -> None:
        """What `limit` held under `key` may be looked at again in the next dispatch pass (at this instant, if slots are free). When a
        fault changes a capacity or an allowance the engine wakes everything by itself."""

    def api(self, place: int) -> Sequence[tuple[str, Allowance]]:
        """The provider's limits of an API as (unit, allowance), unit ``"requests"`` or ``"tokens"``, in declaration order; empty for a
        pool and for an API without limits. The objects are live and the same for the whole run: keep them in `bind`."""

    def api_demand(self, row: int) -> Sequence[tuple[int, int, int]]:
        """(place, calls, tokens) for each API that an attempt of `row` calls: what the engine will take from the allowances when the
        attempt starts (tokens as reserved then, from the estimate). Empty for a row that calls none."""

    def waiting_by(self, attribute: str | Sequence[int], pools: Sequence[int] | None = None) -> list[int]:
        """A live list, one count per code of `attribute` ("tenant" | "class" | "pool" | "all", or a column of codes 0, 1, … of one's own,
        made with ``rows.derive``), of waiting rows in `pools` (None = all). Kept by the engine from `bind` on; only for counts
        somebody asked for."""

    def running_by(self, attribute: str | Sequence[int], pools: Sequence[int] | None = None) -> list[int]:
        """The same for slots in use by rows of the attribute."""

    def note(self, kind: str, *, row: int = -1, submission: int = -1, reason: str = "", value: float = 0.0) -> None:
        """Write one record to the event log."""

    def task(self, row: int) -> Task: ...


class Mechanism:
    """Base of all mechanisms."""

    slot: ClassVar[str]
    mechanism_name: ClassVar[str] = ""
    warnings: Sequence[str] = ()
    """What `bind` found odd about the parameters here, e.g. a class that no run has. Not a parameter."""

    def bind(self, context: Context) -> None:
        """Called once, before the first event. Keep what is needed of `context`."""

    def warn(self, context: Context, text: str) -> None:
        """Add `text` to `warnings` and to the event log."""
        self.warnings = [*self.warnings, text]
        context.note("warning", reason=f"{self.mechanism_name}: {text}")


class Order(Mechanism):
    """Who is next in one pool. An order owns its queue.

    Authors need `push`, `pop` and `__len__`. Orders that set ``parks = True`` also know `head`, `take`, `block` and `unblock`,
    which lets a limit hold back one group without touching the others (all built-in orders do); others are wrapped by the
    engine, which keeps refused rows aside and pushes them back one at a time.
    """

    slot = "order"
    parks: ClassVar[bool] = False

    def push(self, row: int, now_ns: int) -> None:
        """`row` became ready."""
        raise NotImplementedError

    def pop(self, now_ns: int) -> int:
        """Take out the next row; -1 when nothing (unblocked) waits."""
        raise NotImplementedError

    def __len__(self) -> int:
        """How many rows wait, blocked ones included."""
        raise NotImplementedError

    def head(self, now_ns: int) -> int:
        """The row that `take` would give, without taking it; -1 when none."""
        raise NotImplementedError

    def take(self, now_ns: int) -> int:
        """Take out exactly the row that `head` just named."""
        return self.pop(now_ns)

    def block(self, group: int) -> None:
        """Rows of `group` are passed over until `unblock`. Rows pushed meanwhile wait too."""
        raise NotImplementedError

    def unblock(self, group: int) -> None:
        raise NotImplementedError

    def remove(self, row: int) -> None:
        """`row` left the queue another way (cancelled, dropped): it must never be given out. The default marks nothing: the
        engine skips cancelled rows itself when they come up; override only to keep `len` or tags exact."""

    def finished(self, row: int, now_ns: int) -> None:
        """`row`, given out earlier, ended (for orders that charge afterwards). Called only if overridden."""


class Admission(Mechanism):
    slot = "admission"

    def decide(self, submission: int, now_ns: int) -> Decision | None:
        """None = no objection (the next in the chain is asked). `submission` is a row of `Context.submissions`."""
        raise NotImplementedError


class Limit(Mechanism):
    """May a row start now? Must be pure in `hold`; the engine asks every limit first and only then calls `start` on all:
    a refusal leaves every counter unchanged."""

    slot = "limits"

    @property
    def group_by(self) -> frozenset[str]:
        """The attributes by which `hold` tells rows apart, out of "tenant", "class", "priority", "verifies", "optional",
        "submission". Rows that agree on these and on their demand (pools, slots, APIs, tier) form a *group*: when one is held, the whole group waits."""
        raise NotImplementedError

    def hold(self, row: int, now_ns: int) -> Hold | Drop | None:
        """None = may start."""
        raise NotImplementedError

    def watches(self, place: int) -> bool:
        """False: rows that queue in this place are never held and need not be counted (asked after `bind`; spares the calls)."""
        return True

    def start(self, row: int, now_ns: int) -> None:
        """`row` starts (all limits agreed)."""

    def finish(self, row: int, now_ns: int) -> None:
        """The attempt of `row` ended, well or badly."""

    def left(self, row: int, now_ns: int) -> None:
        """`row` left the queue without starting (cancelled, dropped). Called only if overridden."""


class Overload(Mechanism):
    """Turns signals into a mode. The engine calls `observe` every `every_ns` and applies `actions` of the mode in force."""

    slot = "overload"
    every_ns: int

    def observe(self, now_ns: int) -> str:
        """The mode from now on ("normal" or one of one's own)."""
        raise NotImplementedError

    def actions(self, mode: str) -> Actions:
        raise NotImplementedError


class Actions:
    """What a mode does to submissions and rows, all classes as names; the defaults do nothing.

    `optional_width`: optional tasks of runs admitted now are kept only up to this fraction (rounded down per fan-out, in task order).
    `defer`: classes whose submissions are deferred by `defer_ns`. `only`: if set, other classes are shed. `tier`: tiered tasks of runs
    admitted now go to this tier unless they already name a cheaper one (lower price). `skip_verification`: classes whose verification is
    skipped (it then shows in `unverified` and `false_completions`).
    """

    __slots__ = ("defer", "defer_ns", "only", "optional_width", "skip_verification", "tier")

    def __init__(
        self,
        optional_width: float = 1.0,
        defer: frozenset[str] = frozenset(),
        defer_ns: int = 30_000_000_000,
        only: frozenset[str] | None = None,
        tier: str | None = None,
        skip_verification: frozenset[str] = frozenset(),
    ) -> None:
        self.optional_width, self.defer, self.defer_ns = optional_width, defer, defer_ns
        self.only, self.tier, self.skip_verification = only, tier, skip_verification


class Retry(Mechanism):
    """The platform's retry layer: a failed attempt goes back to its queue after a delay."""

    slot = "retry"

    def first(self, row: int, now_ns: int) -> None:
        """The first attempt of `row` starts (budgets earn here). Called only if overridden."""

    def delay_ns(self, row: int, attempt: int, error: str, retry_after_ns: int, now_ns: int) -> int | None:
        """`attempt` (from 1) of `row` failed with `error` ("error" | "throttled" | "hang"). None = give up; else the delay before the next
        attempt, at least `retry_after_ns` when the API named one (a lower bound, jitter goes on top)."""
        raise NotImplementedError


class Backfill(Mechanism):
    """What happens behind a row that does not fit into the free slots of its pool(s)."""

    slot = "backfill"
    overtakes: ClassVar[bool] = True
    """False: nothing passes the blocked head of line."""
    reserves: ClassVar[bool] = False
    """True: the engine computes the blocked head's reservation (earliest start from the estimated ends of running rows) and asks
    `may_overtake`; False with `overtakes`: whatever fits may go."""

    def may_overtake(self, row: int, slots: int, now_ns: int, shadow_ns: int, extra_slots: int) -> bool:
        """May `row` start now, ahead of the head that is promised to start at `shadow_ns`, when `extra_slots` will still be free then?"""
        return True


class Coalesce(Mechanism):
    slot = "coalesce"

    def key(self, row: int) -> Hashable | None:
        """Rows with equal keys share one execution while it is queued or running; None = never shared."""
        raise NotImplementedError


SLOTS: dict[str, type[Mechanism]] = {
    base.slot: base for base in (Order, Admission, Limit, Overload, Retry, Backfill, Coalesce)
}
_METHODS = {"push": "order", "rank": "order", "decide": "admission", "hold": "limits", "observe": "overload",
            "delay_ns": "retry", "may_overtake": "backfill", "key": "coalesce"}  # fmt: skip

_REGISTRY: dict[tuple[str, str], type[Any]] = {}


T = TypeVar("T", bound=type)


def mechanism(name: str) -> Callable[[T], T]:
    """Register a dataclass under its YAML name. The slot is that of its base class, or, for a class that derives from none, follows from
    its methods (``push``/``pop`` make an order). Registering the same class again (a notebook cell run twice) replaces it."""

    def register(cls: T) -> T:
        slot = _slot_of(cls)
        known = _REGISTRY.get((slot, name))
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"{slot} mechanism {name!r} is already {known.__module__}.{known.__qualname__}")
        cls.mechanism_name = name  # type: ignore[attr-defined]
        cls.slot = slot  # type: ignore[attr-defined]
        _complete(cls, SLOTS[slot])
        _REGISTRY[slot, name] = cls
        return cls

    return register


def _complete(cls: type, base: type[Mechanism]) -> None:
    """Give a class that derives from no base the base's defaults for what it does not define (bind, finished, ...)."""
    if issubclass(cls, base):
        return
    for ancestor in base.__mro__[:-1]:
        for name, value in vars(ancestor).items():
            if not name.startswith("__") and not hasattr(cls, name):
                setattr(cls, name, value)


def _slot_of(cls: type) -> str:
    for slot, base in SLOTS.items():
        if issubclass(cls, base):
            return slot
    for method, slot in _METHODS.items():
        if hasattr(cls, method):
            return slot
    raise TypeError(
        f"{cls.__name__} is no mechanism: it derives from none of the bases and has none of {sorted(_METHODS)}"
    )


def registered(slot: str | None = None) -> dict[tuple[str, str], type[Any]]:
    """(slot, name) -> class for everything registered so far, in name order."""
    return {key: _REGISTRY[key] for key in sorted(_REGISTRY) if slot in (None, key[0])}


def forget(module: str) -> None:
    """Take the classes of a module out of the registry (a policy's own Python file: its classes are named by file and class)."""
    for key in [key for key, cls in _REGISTRY.items() if cls.__module__ == module]:
        del _REGISTRY[key]
