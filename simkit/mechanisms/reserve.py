"""Slots kept free for some of the work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simkit.mechanisms.base import Context, Limit, ParameterError, mechanism
from simkit.mechanisms.selection import Who, check_who, chosen_rows, places_of, who_attributes
from simkit.mechanisms.shares import UNLIMITED, part_up
from simkit.model import Drop, Hold
from simkit.units import Count, Fraction, Name


@mechanism("reserve")
@dataclass(eq=False)
class Reserve(Limit):
    """Keep slots of a pool for the chosen rows, e.g. verification.

    Rule: R slots of the pool are reserved; u of them are in use by chosen rows (any slot a chosen row uses counts). Another row may
    start only if the slots still free after its start cover the unused part, R - u. Chosen rows are never held by this limit and may use
    more than R. With `lend` the unused part is kept only as far as chosen rows queue for the pool (one slot for each): idle
    reserve is lent out and comes back as slots are given back, so a chosen row may have to wait for one ending.

    R is `slots`, or ceil(`fraction` x capacity), at least 1; so in small pools it is more than the fraction (15 % of 4 slots is 1). A
    fraction below 1 leaves the others at least one slot: a pool of one slot has no reserve (a warning says so). R follows the pool's
    capacity. A row that needs more than capacity - R of the undisturbed pool could never start: it is dropped as impossible.

    Parameters: `for`: the chosen rows ({class: …, tenant: …, verifies: true, optional: …}; all keys must match; a list of mappings: any of
    them). `pool`, `pools` or `api` (its concurrency); without one of these, every limited place that chosen rows and others need. Exactly one of
    `fraction` and `slots`. `lend`: bool. A place that only chosen rows need gets no reserve, and one that no chosen row needs neither:
    there it would only idle slots; when nothing at all is reserved a warning says so.

    Not work conserving without `lend`. Complexity: O(places of the row's demand). Source: trunk reservation in loss
    systems.
    """

    for_: Who
    pool: Name | None = None
    pools: list[Name] | None = None
    api: Name | None = None
    fraction: Fraction | None = None
    slots: Count | None = None
    lend: bool = False

    def __post_init__(self) -> None:
        check_who(self.for_)
        if (self.fraction is None) == (self.slots is None):
            raise ParameterError("reserve: give exactly one of fraction and slots")
        if sum(value is not None for value in (self.pool, self.pools, self.api)) > 1:
            raise ParameterError("reserve: give at most one of pool, pools and api")
        if not (self.fraction or self.slots):
            raise ParameterError("reserve: a reserve of nothing has no effect")

    @property
    def group_by(self) -> frozenset[str]:
        return who_attributes(self.for_)

    def bind(self, context: Context) -> None:
        self._context, self._view = context, context.view
        self._demand, self._demands = context.rows.demand, context.demands
        mask = chosen_rows(context, self, self.for_)
        self._chosen = context.rows.derive(mask)
        names = [self.pool] if self.pool else [self.api] if self.api else self.pools
        self._size: dict[int, int] = {}
        self._most: dict[int, int] = {}  # what another row may need at most, in the undisturbed pool
        self._name = dict(enumerate(context.names["pool"]))
        self._useful_places(context, mask, names)
        self._used = dict.fromkeys(self._size, 0)
        self._waiting: dict[int, list[int]] | None = None
        if self.lend and self._size:  # code 0: other rows, code 1: chosen rows
            codes = context.rows.derive(mask.astype(np.int64))
            self._waiting = {place: context.waiting_by(codes, [place]) for place in self._size}

    def _useful_places(self, context: Context, mask: NDArray[np.bool_], names: list[str] | None) -> None:
        """Fill `_size` and `_most` with the places where a reserve has an effect."""
        demand = context.rows.source("demand")
        self._capacity = {place: context.view.capacity(place) for place in self._name}

        def needed_by(some: NDArray[np.bool_]) -> set[int]:
            return {place for code in np.unique(demand[some]).tolist() for place, _ in context.demands[code]}

        chosen, others = needed_by(mask), needed_by(~mask)
        limited = [place for place, capacity in self._capacity.items() if capacity < UNLIMITED]
        wanted = limited if names is None else places_of(context, names)
        for place in wanted:
            size = self._size_of(place) if place in limited else 0
            if place in chosen and place in others and size:
                self._size[place] = size
                self._most[place] = self._capacity[place] - size
            elif names is not None or (place in chosen and place in others):
                why = (
                    "no chosen row needs it" if place not in chosen
                    else "only chosen rows need it" if place not in others
                    else "it has no limit" if place not in limited
                    else "it has too few slots"
                )  # fmt: skip
                self.warn(context, f"nothing is reserved in {self._name[place]!r}: {why}")
        if not self._size:
            self.warn(context, "no place is shared by chosen rows and others: the reserve has no effect")

    def _size_of(self, place: int) -> int:
        capacity = self._capacity[place]
        if self.slots is not None:
            return min(self.slots, capacity)
        assert self.fraction is not None
        leave = 1 if self.fraction < 1 else 0
        return max(0, min(max(1, part_up(self.fraction, capacity)), capacity - leave))

    def _kept(self, place: int) -> int:
        """Slots that others must leave free now."""
        capacity = self._view.capacity(place)
        if capacity != self._capacity[place]:  # a fault began or ended
            self._capacity[place] = capacity
            self._size[place] = self._size_of(place)
        short = self._size[place] - self._used[place]
        if self._waiting is not None:
            return min(short, self._waiting[place][1])
        return short

    def hold(self, row: int, now_ns: int) -> Hold | Drop | None:
        if self._chosen[row]:
            return None
        for place, slots in self._demands[self._demand[row]]:
            if place in self._size:
                kept = self._kept(place)
                if kept > 0 and self._view.free(place) - slots < kept:
                    if slots > self._most[place] and not self.lend:
                        return Drop(f"impossible:reserve:{self._name[place]}")
                    return Hold(place, f"reserve:{self._name[place]}")
        return None

    def start(self, row: int, now_ns: int) -> None:
        if self._chosen[row]:
            for place, slots in self._demands[self._demand[row]]:
                if place in self._size:
                    self._used[place] += slots
                    if self.lend:
                        self._context.wake(self, place)

    def finish(self, row: int, now_ns: int) -> None:
        chosen = self._chosen[row]
        for place, slots in self._demands[self._demand[row]]:
            if place in self._size:
                # slots that go back into the unused part of the reserve free nothing for the others
                if not chosen or self.lend or self._used[place] > self._size[place]:
                    self._context.wake(self, place)
                if chosen:
                    self._used[place] -= slots

    def left(self, row: int, now_ns: int) -> None:
        if self.lend and self._chosen[row]:
            for place, _ in self._demands[self._demand[row]]:
                if place in self._size:
                    self._context.wake(self, place)
