"""A hand-cranked platform for tests of one mechanism: columns, places with slots, a clock, APIs; no queue of its own."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from simkit.mechanisms.base import Limit
from simkit.mechanisms.bucket import Gcra
from simkit.model import NEVER_NS, Drop, Hold, Rows, Task
from simkit.rng import Streams

S = 1_000_000_000
UNLIMITED = 2**40


class Bench:
    """`rows` and `runs` are lists of mappings of the columns that matter; the others get plain defaults.

    A row names its place ("pool", default the first), "tenant", "class", and "needs": {place: slots} (default 1 slot of its
    place). It is a `Context` and a `View` in one; `capacity`, `used`, `waiting`, `work` are lists by place to be set by the test.
    """

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        pools: Mapping[str, int | None] | None = None,
        runs: Sequence[Mapping[str, Any]] = (),
        apis: Mapping[str, Sequence[tuple[str, Gcra]]] | None = None,
        tiers: Sequence[str] = (),
        seed: int = 1,
    ) -> None:
        pools = pools or {"pool": 4}
        self.apis = dict(apis or {})
        places = list(pools)
        self.names = {
            "pool": places,
            "tenant": list(dict.fromkeys(row.get("tenant", "t") for row in (*rows, *runs))) or ["t"],
            "class": list(dict.fromkeys(row.get("class", "c") for row in (*rows, *runs))) or ["c"],
            "tier": list(tiers),
        }
        self.capacity_of = [UNLIMITED if slots is None else slots for slots in pools.values()]
        self.used = [0] * len(places)
        self.work_ns = [0] * len(places)
        self.oldest_ns = [0] * len(places)
        self.mode = "normal"
        self.now_ns = 0
        self.view, self.pools, self.grouped, self.group_count = self, range(len(places)), True, 1
        self.demands: list[tuple[tuple[int, int], ...]] = []
        self._lay_out(rows, runs)
        self.woken: list[Hashable] = []
        self.notes: list[tuple[str, str]] = []
        self.counts: list[tuple[list[int] | None, list[int], list[int]]] = []
        self.queued: list[int] = [0] * len(places)
        self._streams = Streams(seed)

    def _lay_out(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> None:
        code = {kind: {name: number for number, name in enumerate(names)} for kind, names in self.names.items()}
        demand = []
        for row in rows:
            own = code["pool"][row.get("pool", self.names["pool"][0])]
            needs = {code["pool"][name]: slots for name, slots in row.get("needs", {}).items()}
            one = tuple({own: needs.get(own, 1), **needs}.items())
            if one not in self.demands:
                self.demands.append(one)
            demand.append(self.demands.index(one))
        defaults = {
            "run": 0, "priority": 0, "estimate_ns": S, "tokens": 0, "cost_usd": 0.0, "optional": False, "verifies": False,
            "deadline_ns": NEVER_NS, "client_deadline_ns": NEVER_NS, "arrival_ns": 0,
        }  # fmt: skip
        sources: dict[str, Any] = {
            name: np.array([row.get(name, default) for row in rows]) for name, default in defaults.items()
        }
        sources["demand"] = np.array(demand, dtype=np.int64)
        sources["pool"] = np.array([self.demands[d][0][0] for d in demand], dtype=np.int64)
        sources["slots"] = np.array([self.demands[d][0][1] for d in demand], dtype=np.int64)
        sources["tenant"] = np.array([code["tenant"][row.get("tenant", "t")] for row in rows], dtype=np.int64)
        sources["cls"] = np.array([code["class"][row.get("class", "c")] for row in rows], dtype=np.int64)
        self.rows = Rows(sources, len(rows))
        of_runs = {
            "deadline_ns": NEVER_NS, "client_deadline_ns": NEVER_NS, "critical_path_ns": S, "first_row": 0, "n_rows": 1,
            "arrival_ns": 0,
        }  # fmt: skip
        columns: dict[str, Any] = {
            name: np.array([run.get(name, default) for run in runs], dtype=np.int64)
            for name, default in of_runs.items()
        }
        columns["tenant"] = np.array([code["tenant"][run.get("tenant", "t")] for run in runs], dtype=np.int64)
        columns["cls"] = np.array([code["class"][run.get("class", "c")] for run in runs], dtype=np.int64)
        self.submissions = Rows(columns, len(runs))
        self._calls = [row.get("calls", ()) for row in rows]

    # --- Context ---

    def rng(self, name: str) -> np.random.Generator:
        return self._streams.of(name)

    def wake(self, limit: Limit, key: Hashable) -> None:
        self.woken.append(key)

    def note(self, kind: str, *, row: int = -1, submission: int = -1, reason: str = "", value: float = 0.0) -> None:
        self.notes.append((kind, reason))

    def waiting_by(self, attribute: Any, pools: Sequence[int] | None = None) -> list[int]:
        places = list(self.pools if pools is None else pools)
        column = (
            {"tenant": "tenant", "class": "cls", "pool": "pool"}.get(attribute) if isinstance(attribute, str) else None
        )
        codes = getattr(self.rows, column) if column else None if isinstance(attribute, str) else attribute
        size = len(self.names[attribute]) if column else 1 if codes is None else max(codes) + 1
        self.counts.append((codes, [0] * size, places))
        return self.counts[-1][1]

    running_by = waiting_by

    def api(self, place: int) -> Sequence[tuple[str, Gcra]]:
        return self.apis.get(self.names["pool"][place], ())

    def api_demand(self, row: int) -> list[tuple[int, int, int]]:
        return [(self.names["pool"].index(name), calls, tokens) for name, calls, tokens in self._calls[row]]

    def task(self, row: int) -> Task:
        return Task(self.rows, row, self.names)

    def call_at(self, at_ns: int, function: Any, argument: Any = None) -> None:
        raise AssertionError("no mechanism of these needs a timer")

    # --- View ---

    def capacity(self, pool: int) -> int:
        return self.capacity_of[pool]

    def free(self, pool: int) -> int:
        return max(0, self.capacity_of[pool] - self.used[pool])

    def waiting(self, pool: int) -> int:
        return self.queued[pool]

    def queued_work_ns(self, pool: int) -> int:
        return self.work_ns[pool]

    def utilisation(self, pool: int) -> float:
        return 0.0 if self.capacity_of[pool] >= UNLIMITED else self.used[pool] / self.capacity_of[pool]

    def oldest_wait_ns(self, pool: int) -> int:
        return self.oldest_ns[pool]

    # --- the crank ---

    def queue(self, row: int, by: int = 1) -> None:
        """`row` joins (or, by -1, leaves) the queue of its place."""
        place = self.rows.pool[row]
        self.queued[place] += by
        self.work_ns[place] += by * self.rows.slots[row] * self.rows.estimate_ns[row]
        for codes, counts, places in self.counts:
            if place in places:
                counts[0 if codes is None else codes[row]] += by

    def ask(self, limit: Limit, row: int) -> Hold | Drop | None:
        """`hold`, asked twice: it must be pure."""
        first = limit.hold(row, self.now_ns)
        assert limit.hold(row, self.now_ns) == first
        return first

    def start(self, limit: Limit, row: int) -> None:
        """Start `row`, which the limit must allow."""
        assert self.ask(limit, row) is None
        for place, slots in self.demands[self.rows.demand[row]]:
            self.used[place] += slots
        limit.start(row, self.now_ns)
        for place, calls, tokens in self.api_demand(row):
            for unit, bucket in self.api(place):
                bucket.take(calls if unit == "requests" else tokens, self.now_ns)

    def finish(self, limit: Limit, row: int) -> list[Hashable]:
        """End `row`; the keys that were woken."""
        self.woken.clear()
        limit.finish(row, self.now_ns)
        for place, slots in self.demands[self.rows.demand[row]]:
            self.used[place] -= slots
        return list(self.woken)


def bound(mechanism: Any, bench: Bench) -> Any:
    """The mechanism, bound to the bench."""
    mechanism.bind(bench)
    return mechanism
