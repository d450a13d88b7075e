"""Limits and parking: which groups of rows are held back, by what, since when, and what wakes them.

A *group* is a set of rows that every limit treats alike: the same demand and the same value of every attribute that some
limit looks at. When a limit holds one row, its whole group is parked in its pool's order and costs nothing until the limit
wakes the key it named (or a time comes). So a dispatch step never walks over held rows.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from simkit.engine.tables import number_combinations
from simkit.model import NEVER_NS, Drop, Hold

if TYPE_CHECKING:
    from simkit.engine.pool import Pool
    from simkit.engine.tables import Shape
    from simkit.engine.world import World
    from simkit.mechanisms.base import Limit

_COLUMNS = {
    "tenant": "tenant", "class": "cls", "priority": "priority", "submission": "instance", "verifies": "verifies", "optional": "optional",
}  # fmt: skip
SLOTS = 0
"""The 'limit' id under which rows wait for slots of another pool (or of their own, when others may pass)."""


class Gates:
    """The limits of one simulation and what they hold."""

    def __init__(self, world: World, limits: list[Limit], *, by_row: bool) -> None:
        """`by_row`: every row is a group of its own (a backfill that plans row by row needs that)."""
        self._world = world
        self.limits = limits
        self._by_row = by_row
        self._asks = [limit.hold for limit in limits]
        self._attributes = sorted({attribute for limit in limits for attribute in limit.group_by})
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._parked: dict[tuple[int, Hashable], list[tuple[Pool, int]]] = {}
        self._timers: set[tuple[int, Hashable, int]] = set()
        self.group_count = 1

    def lay_out_groups(self) -> None:
        """Number the groups of all rows (in order of first appearance) and fill the `group` column."""
        rows = self._world.rows
        if self._by_row:
            rows.group[:] = range(rows.size)
            self.group_count = rows.size
            return
        columns = [
            np.asarray(rows.source(name), dtype=np.int64)
            for name in ("demand", *(_COLUMNS[a] for a in self._attributes))
        ]
        numbers, firsts = number_combinations(columns)
        self._numbers = {
            tuple(int(column[row]) for column in columns): group for group, row in enumerate(firsts.tolist())
        }
        rows.group[:] = numbers.tolist()
        self.group_count = len(firsts)

    def regroup(self, row: int) -> None:
        """`row` changed its demand (tier) or is a copy: put it into its group, a new one if need be."""
        rows = self._world.rows
        if self._by_row:
            rows.group[row] = row
            return
        key = (self._world.shape[row], *(getattr(rows, _COLUMNS[name])[row] for name in self._attributes))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self.group_count
            self.group_count += 1
        rows.group[row] = number

    def refusal(self, row: int, shape: Shape, now_ns: int) -> tuple[int, Hold | Drop] | None:
        """The first objection to starting `row` now and the id of who objects; changes nothing."""
        if shape.others:
            pools = self._world.pools
            for place, slots in shape.others:
                other = pools[place]
                if slots > other.capacity - other.used:
                    return SLOTS, Hold(place, f"pool:{other.name}")
        if not self._asks:
            return None
        for ask, limit in zip(self._asks, self.limits, strict=True):
            answer = ask(row, now_ns)
            if answer is not None:
                return id(limit), answer
        return None

    def park(self, pool: Pool, group: int, limit: int, hold: Hold, now_ns: int) -> None:
        """Hold `group` back in `pool` until `hold.key` is woken."""
        pool.order.block(group)
        pool.open_holds[group] = (hold.reason, now_ns)
        self._parked.setdefault((limit, hold.key), []).append((pool, group))
        timer = (limit, hold.key, hold.until_ns)
        if hold.until_ns < NEVER_NS and timer not in self._timers:
            self._timers.add(timer)
            self._world.clock.call_at(max(hold.until_ns, now_ns), self._on_timer, timer)

    def wake(self, limit: int, key: Hashable) -> None:
        """Everything parked under the key may be looked at again."""
        parked = self._parked.pop((limit, key), None)
        if parked is not None:
            now_ns = self._world.clock.now_ns
            for pool, group in parked:
                pool.order.unblock(group)
                self.close_hold(pool, group, now_ns)
                self._world.mark(pool)

    def wake_all(self) -> None:
        """A fault changed what limits go by: everything held may be looked at again."""
        for limit, key in list(self._parked):
            self.wake(limit, key)

    def close_hold(self, pool: Pool, group: int, now_ns: int) -> None:
        """The hold on a group ends: log it, unless it had no length."""
        reason, since_ns = pool.open_holds.pop(group)
        if now_ns > since_ns:
            recorder = self._world.recorder
            recorder.holds.append((pool.number, group, recorder.reason(reason), since_ns, now_ns))

    def close_all(self, now_ns: int) -> None:
        """The simulation is over: log the holds that are still open."""
        for pool in self._world.pools:
            for group in list(pool.open_holds):
                self.close_hold(pool, group, now_ns)

    @property
    def holding(self) -> bool:
        return bool(self._parked)

    def _on_timer(self, timer: tuple[int, Hashable, int]) -> None:
        self._timers.discard(timer)
        self.wake(timer[0], timer[1])
