"""Unit tests of one mechanism without an engine: a context made of numpy columns, and a tiny pool that serves an order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, TypeVar

import numpy as np

from simkit.mechanisms.base import Order
from simkit.model import NEVER_NS, NS_PER_S, Rows, Task
from simkit.rng import Streams

M = TypeVar("M")

_DEFAULTS: dict[str, Any] = {
    "run": None, "task": None, "instance": None,  # None: the row's own number
    "pool": 0, "tenant": 0, "cls": 0, "priority": 0, "slots": 1, "arrival_ns": 0, "deadline_ns": NEVER_NS,
    "client_deadline_ns": NEVER_NS, "estimate_ns": NS_PER_S, "tokens": 0, "cost_usd": 0.0, "optional": False,
    "verifies": False, "tier": -1, "cache_key": -1, "public": False, "demand": 0, "group": 0,
}  # fmt: skip


class FakeView:
    """Live state as the test sets it: one number per pool in each list."""

    def __init__(self, pools: int) -> None:
        self.now_ns = 0
        self.mode = "normal"
        self.slots, self.used = [1] * pools, [0] * pools
        self.queued, self.work_ns, self.age_ns = [0] * pools, [0] * pools, [0] * pools

    def capacity(self, pool: int) -> int:
        return self.slots[pool]

    def free(self, pool: int) -> int:
        return max(0, self.slots[pool] - self.used[pool])

    def waiting(self, pool: int) -> int:
        return self.queued[pool]

    def queued_work_ns(self, pool: int) -> int:
        return self.work_ns[pool]

    def utilisation(self, pool: int) -> float:
        return self.used[pool] / self.slots[pool]

    def oldest_wait_ns(self, pool: int) -> int:
        return self.age_ns[pool]


class FakeContext:
    """What `bind` receives. Columns not given have a plain default (one tenant, one class, an estimate of 1 s, …).

    ``FakeContext(4, tenant=[0, 0, 1, 1], group=[0, 0, 1, 1])`` has four rows. Names are ``t0, t1, …`` and ``c0, c1, …`` unless given.
    `grouped` defaults to whether a group column is given. Timers land in `timers`, notes in `notes`, wake-ups in `woken`.
    """

    def __init__(
        self,
        size: int,
        *,
        grouped: bool | None = None,
        names: dict[str, list[str]] | None = None,
        pools: Sequence[int] = (0,),
        seed: int = 1,
        **columns: Any,
    ) -> None:
        unknown = set(columns) - set(_DEFAULTS)
        assert not unknown, f"no such column: {sorted(unknown)}"
        sources: dict[str, Any] = {}
        for name, default in _DEFAULTS.items():
            value = columns.get(name, np.arange(size) if default is None else default)
            sources[name] = np.broadcast_to(np.asarray(value), (size,)).copy()
        self.rows = Rows(sources, size)
        self.grouped = "group" in columns if grouped is None else grouped
        self.group_count = int(sources["group"].max(initial=0)) + 1
        self.pools = pools
        self.names: dict[str, Sequence[str]] = {
            "tenant": [f"t{code}" for code in range(int(sources["tenant"].max(initial=0)) + 1)],
            "class": [f"c{code}" for code in range(int(sources["cls"].max(initial=0)) + 1)],
            "pool": [f"p{code}" for code in range(max(*pools, int(sources["pool"].max(initial=0)), 0) + 1)],
            "tier": [],
            **(names or {}),
        }
        self.submissions = Rows({}, 0)
        self.demands: Sequence[Sequence[tuple[int, int]]] = [[(0, 1)]]
        self.view = FakeView(len(self.names["pool"]))
        self.timers: list[tuple[int, Callable[[Any], object], Any]] = []
        self.notes: list[tuple[str, int, str]] = []
        self.woken: list[tuple[object, Hashable]] = []
        self._streams = Streams(seed)

    def rng(self, name: str) -> np.random.Generator:
        return self._streams.of(f"policy/{name}")

    def call_at(self, at_ns: int, function: Callable[[Any], object], argument: Any = None) -> None:
        self.timers.append((at_ns, function, argument))

    def wake(self, limit: object, key: Hashable) -> None:
        self.woken.append((limit, key))

    def api(self, place: int) -> Sequence[Any]:
        return ()

    def api_demand(self, row: int) -> Sequence[tuple[int, int, int]]:
        return ()

    def waiting_by(self, attribute: str | Sequence[int], pools: Sequence[int] | None = None) -> list[int]:
        codes: Sequence[str] | int = (
            self.names.get(attribute, [""]) if isinstance(attribute, str) else max(attribute) + 1
        )
        return [0] * (codes if isinstance(codes, int) else len(codes))

    running_by = waiting_by

    def note(self, kind: str, *, row: int = -1, submission: int = -1, reason: str = "", value: float = 0.0) -> None:
        self.notes.append((kind, row, reason))

    def task(self, row: int) -> Task:
        return Task(self.rows, row, self.names)


def bound(mechanism: M, context: FakeContext) -> M:
    """The mechanism, bound."""
    mechanism.bind(context)  # type: ignore[attr-defined]
    return mechanism


def push_all(order: Order, rows: Iterable[int], now_ns: int = 0) -> None:
    for row in rows:
        order.push(row, now_ns)


def drain(order: Order, now_ns: int = 0, limit: int = 10**9) -> list[int]:
    """Pop until nothing is given out (or `limit` rows are)."""
    rows: list[int] = []
    while len(rows) < limit and (row := order.pop(now_ns)) >= 0:
        rows.append(row)
    return rows


def serve(order: Order, arrival_ns: Sequence[int], service_ns: Sequence[int], slots: int = 1) -> list[tuple[int, int]]:
    """Serve rows 0, 1, … on `slots` servers: (start, row) in the order in which they start.

    A plain event loop of its own: at one instant completions, then arrivals in row order, then dispatch.
    """
    starts: list[tuple[int, int]] = []
    ends: list[int] = []
    upcoming = sorted(range(len(arrival_ns)), key=lambda row: (arrival_ns[row], row))
    position = 0
    while position < len(upcoming) or ends:
        now_ns = min([arrival_ns[upcoming[position]]] if position < len(upcoming) else ends[:1], default=0)
        if ends:
            now_ns = min(now_ns, ends[0])
        while ends and ends[0] == now_ns:
            heappop(ends)
        while position < len(upcoming) and arrival_ns[upcoming[position]] == now_ns:
            order.push(upcoming[position], now_ns)
            position += 1
        while len(ends) < slots and (row := order.pop(now_ns)) >= 0:
            starts.append((now_ns, row))
            heappush(ends, now_ns + int(service_ns[row]))
    return starts
