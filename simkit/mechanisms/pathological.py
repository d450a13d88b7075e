"""Bad on purpose: controls that a scenario's expectations and the checks of the engine must catch."""

from __future__ import annotations

from dataclasses import dataclass

from simkit.mechanisms.base import (
    Actions,
    Admission,
    Context,
    Limit,
    Order,
    Overload,
    ParameterError,
    Retry,
    View,
    mechanism,
)
from simkit.mechanisms.fair import StartTime, WeightedFair
from simkit.mechanisms.order import RankOrder
from simkit.model import NS_PER_S, Decision, Drop, Hold, Verdict
from simkit.units import Fraction, Name, PositiveCount, PositiveDuration

_BATCH = 4096


@mechanism("reverse_priority")
@dataclass(eq=False)
class ReversePriority(RankOrder):
    """The least urgent first, first come first served within a priority: every priority inversion there is.

    No parameters. O(log n).
    """

    def bind(self, context: Context) -> None:
        self._priority = context.rows.priority
        super().bind(context)

    def key(self, row: int, now_ns: int) -> int:
        key: int = self._priority[row]
        return key


@mechanism("starve_tenant")
@dataclass(eq=False)
class StarveTenant(RankOrder):
    """First come, first served, but one tenant only when nobody else waits.

    Parameters: `tenant`, the victim (default: the first tenant of the workload). O(log n).
    """

    tenant: Name | None = None

    def bind(self, context: Context) -> None:
        self._tenant = context.rows.tenant
        tenants = list(context.names["tenant"])
        self._victim = 0
        if self.tenant is not None:
            self._victim = tenants.index(self.tenant) if self.tenant in tenants else -1
            if self._victim < 0:
                self.warn(context, f"there is no tenant {self.tenant!r} here")
        super().bind(context)

    def key(self, row: int, now_ns: int) -> int:
        return int(self._tenant[row] == self._victim)


@mechanism("longest_first")
@dataclass(eq=False)
class LongestFirst(RankOrder):
    """The largest estimated work first: the worst mean wait that estimates can buy. No parameters. O(log n)."""

    def bind(self, context: Context) -> None:
        self._estimate_ns, self._slots = context.rows.estimate_ns, context.rows.slots
        super().bind(context)

    def key(self, row: int, now_ns: int) -> int:
        key: int = -self._estimate_ns[row] * self._slots[row]
        return key


@mechanism("random")
@dataclass(eq=False)
class RandomOrder(Order):
    """Any waiting task, each with the same chance, at every pick: no memory of who came when (service in random order).

    The mean wait is FIFO's, the tail is longer. It keeps no groups: the engine sets aside what limits hold back. No parameters. O(1).
    """

    def bind(self, context: Context) -> None:
        self._rows: list[int] = []
        self._rng = context.rng("pick")
        self._drawn: list[float] = []

    def push(self, row: int, now_ns: int) -> None:
        self._rows.append(row)

    def pop(self, now_ns: int) -> int:
        rows = self._rows
        if not rows:
            return -1
        if not self._drawn:
            self._drawn = self._rng.random(_BATCH).tolist()
        pick = int(self._drawn.pop() * len(rows))
        rows[pick], rows[-1] = rows[-1], rows[pick]
        return rows.pop()

    def __len__(self) -> int:
        return len(self._rows)


class _Hoard(StartTime):
    """Start tags that never catch up with virtual time."""

    def push(self, flow: int, row: int, group: int) -> None:
        self._virtual = self._last_finish = 0
        super().push(flow, row, group)

    def take(self, cost: int) -> None:
        self._virtual = 0
        super().take(cost)


@mechanism("idle_credit")
@dataclass(eq=False)
class IdleCredit(WeightedFair):
    """weighted_fair without its one necessary line: a flow that was idle keeps the share it did not use and later takes it all at once,
    however long it was away, while everybody else waits.

    Parameters: those of weighted_fair, on one level. O(log n).
    """

    _fixed_tags = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self._attributes) > 1:
            raise ParameterError("idle_credit: by: expected tenant or class")

    def _level(self, lengths: list[int]) -> StartTime:
        return _Hoard(lengths)


@mechanism("reject_all")
@dataclass(eq=False)
class RejectAll(Admission):
    """Turns every submission away: no queue, no latency, no success.

    Parameters: `retry_after`, what the clients are told (default 30 s, for all the same: they come back together). O(1).
    """

    retry_after: PositiveDuration = 30 * NS_PER_S

    def decide(self, submission: int, now_ns: int) -> Decision | None:
        return Decision(Verdict.REJECT, "reject_all", retry_after_ns=self.retry_after)


@mechanism("no_restraint")
@dataclass(eq=False)
class NoRestraint(Limit):
    """Holds nothing back: the same results as no limit at all, by the path that limits take. No parameters. O(1)."""

    @property
    def group_by(self) -> frozenset[str]:
        return frozenset()

    def hold(self, row: int, now_ns: int) -> Hold | Drop | None:
        return None


@mechanism("hold_all")
@dataclass(eq=False)
class HoldAll(Limit):
    """Lets nothing start and never thinks again: the simulation must say that it is stuck. No parameters. O(1)."""

    @property
    def group_by(self) -> frozenset[str]:
        return frozenset()

    def hold(self, row: int, now_ns: int) -> Hold | Drop | None:
        return Hold("all", "hold_all")


@mechanism("one_threshold")
@dataclass(eq=False)
class OneThreshold(Overload):
    """A mode with one threshold for entering and leaving: it flaps as often as the load crosses it.

    Rule: mode ``hot`` while the largest utilisation of any pool is at least `threshold`, else ``normal``; in ``hot`` runs are admitted with
    `optional_width` of their optional tasks.

    Parameters: `threshold` (default 80 %), `every` (time between samples, 1 s), `optional_width` (50 %). O(pools) per sample.
    """

    threshold: Fraction = 0.8
    every: PositiveDuration = NS_PER_S
    optional_width: Fraction = 0.5

    def __post_init__(self) -> None:
        self.every_ns = self.every

    def bind(self, context: Context) -> None:
        self._view: View = context.view
        self._pools = context.pools

    def observe(self, now_ns: int) -> str:
        busiest = max((self._view.utilisation(pool) for pool in self._pools), default=0.0)
        return "hot" if busiest >= self.threshold else "normal"

    def actions(self, mode: str) -> Actions:
        return Actions(optional_width=self.optional_width) if mode == "hot" else Actions()


@mechanism("immediate")
@dataclass(eq=False)
class Immediate(Retry):
    """Tries again at once, everybody at the same time; only a Retry-After makes it wait. Feeds retry storms.

    Parameters: `max_attempts`, the first included (default 4). O(1).
    """

    max_attempts: PositiveCount = 4

    def delay_ns(self, row: int, attempt: int, error: str, retry_after_ns: int, now_ns: int) -> int | None:
        return retry_after_ns if attempt < self.max_attempts else None
