"""What may pass a task that does not fit into the free slots."""

from __future__ import annotations

from dataclasses import dataclass

from simkit.mechanisms.base import Backfill, Context, mechanism
from simkit.units import PositiveCount


@mechanism("none")
@dataclass(eq=False)
class NoBackfill(Backfill):
    """Nothing passes: the order's next task waits for its slots and everything behind it waits too (first come, first served
    in the strict sense). Wide tasks are never starved; slots may stand idle. No parameters."""

    overtakes = False


@mechanism("skip")
@dataclass(eq=False)
class Skip(Backfill):
    """Whatever fits goes: tasks that do not fit are passed over. Keeps slots busy; a stream of narrow tasks starves a wide one
    for ever. No parameters. O(log n) per step: what does not fit is parked by its demand, not looked at again until slots free up."""


@mechanism("easy")
@dataclass(eq=False)
class Easy(Backfill):
    """EASY backfill: the first task that does not fit is promised its earliest start by the estimates; later tasks may go if they
    do not move it (Lifka 1995; Mu'alem and Feitelson 2001).

    A later task may start now if it fits and either ends, by its estimate, no later than the promised start, or needs no more than the
    slots that will be left over then. With exact estimates the promise is kept.

    Parameters: `depth`: how many waiting tasks are looked at per pass (default 100). O(depth log n) per dispatch pass.
    """

    depth: PositiveCount = 100
    reserves = True

    def may_overtake(self, row: int, slots: int, now_ns: int, shadow_ns: int, extra_slots: int) -> bool:
        return slots <= extra_slots or now_ns + self._estimate_ns[row] <= shadow_ns

    def bind(self, context: Context) -> None:
        self._estimate_ns = context.rows.estimate_ns
