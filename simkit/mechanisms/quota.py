"""Limits by count: at most so many slots, runs, calls, tokens or dollars for one tenant or class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simkit.mechanisms.base import Context, Limit, ParameterError, mechanism
from simkit.mechanisms.selection import By, Key, key_attributes, per_code, places_of
from simkit.mechanisms.shares import UNLIMITED, apportion, part_down
from simkit.model import NS_PER_S, Drop, Hold
from simkit.units import Count, Fraction, Name, Number, PositiveDuration, Usd

NANO = 1_000_000_000
"""Money is counted in whole billionths of a dollar: sums are exact."""


@mechanism("share_cap")
@dataclass(eq=False)
class ShareCap(Limit):
    """At most a share of each pool's slots for one tenant (or class).

    Rule: in each pool a row may start only if the slots its key uses there and its own stay within the cap. The cap is, one of:
    `fraction`: max(1, floor(fraction x capacity)); `count`: so many slots, for every key alike or by name with an optional `default`
    (names without a bound have no cap); `weights`: the pool is divided between the named keys by largest remainder, at least one slot
    each while there are enough (a static partition: the caps add up to the capacity; a `default` weight goes to every name not
    listed, otherwise those have no cap). Caps of `fraction` and `weights` follow the pool's capacity: when it shrinks below what a key
    uses, nothing is taken away and nothing new starts until enough has ended. The cap holds also when nobody else wants the slots
    (not work conserving); in pools below 1/fraction slots it is 1, more than the fraction.

    A row that needs more than the cap of its key in the undisturbed pool could never start: it is dropped as impossible.

    Parameters: `by`: tenant | class | a list of both. Exactly one of `fraction`, `count`, `weights`. `pools`: names (default: every pool
    and API with a limit). Complexity: O(places of the row's demand). Source: per-tenant lease caps (25 % of the pool).
    """

    by: By = "tenant"
    fraction: Fraction | None = None
    count: Count | Mapping[Name, Count] | None = None
    weights: Mapping[Name, Number] | None = None
    pools: list[Name] | None = None

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.fraction, self.count, self.weights)) != 1:
            raise ParameterError("share_cap: give exactly one of fraction, count and weights")
        if self.by == "all":
            raise ParameterError("share_cap: by: expected tenant, class or a list of both")
        if len(key_attributes(self.by)) > 1 and (self.weights is not None or isinstance(self.count, Mapping)):
            raise ParameterError("share_cap: bounds by name need by: tenant or by: class")
        if self.weights is not None and (
            min(self.weights.values(), default=0) < 0 or not any(value > 0 for value in self.weights.values())
        ):
            raise ParameterError("share_cap: weights must be >= 0 and one above 0")

    @property
    def group_by(self) -> frozenset[str]:
        return frozenset(key_attributes(self.by))

    def bind(self, context: Context) -> None:
        self._context, self._view = context, context.view
        self._key = Key(context, self.by)
        self._code = self._key.column
        self._demand, self._demands = context.rows.demand, context.demands
        named = self.weights if self.weights is not None else self.count if isinstance(self.count, Mapping) else None
        attribute = key_attributes(self.by)[0]
        self._by_name = None if named is None else per_code(context, self, attribute, named)
        places = range(len(context.names["pool"])) if self.pools is None else places_of(context, self.pools)
        if self.pools is None and self.count is None:
            places = [place for place in places if context.view.capacity(place) < UNLIMITED]
        self._capacity = {place: context.view.capacity(place) for place in places}
        self._caps = {place: self._caps_of(place) for place in places}
        self._nominal = dict(self._caps)
        self._used = {place: [0] * self._key.size for place in places}
        self._widest = max((slots for demand in context.demands for _, slots in demand), default=1)

    def _caps_of(self, place: int) -> list[int | None]:
        """The cap of each key in a place, at its capacity now."""
        capacity = self._capacity[place]
        if self.fraction is not None:
            return [max(1, part_down(self.fraction, capacity))] * self._key.size
        if self._by_name is None:
            assert isinstance(self.count, int)
            return [self.count] * self._key.size
        if self.weights is None:
            return [None if bound is None else int(bound) for bound in self._by_name]
        weighted = [code for code, weight in enumerate(self._by_name) if weight is not None]
        caps: list[int | None] = [None] * self._key.size
        if any(self._by_name[code] for code in weighted):
            shares = apportion(capacity, [self._by_name[code] or 0.0 for code in weighted], at_least_one=True)
            for code, share in zip(weighted, shares, strict=True):
                caps[code] = share
        return caps

    def hold(self, row: int, now_ns: int) -> Hold | Drop | None:
        code = self._code[row]
        for place, slots in self._demands[self._demand[row]]:
            if place not in self._capacity:
                continue
            if self._view.capacity(place) != self._capacity[place]:  # a fault began or ended
                self._capacity[place] = self._view.capacity(place)
                self._caps[place] = self._caps_of(place)
            cap = self._caps[place][code]
            if cap is not None and self._used[place][code] + slots > cap:
                nominal = self._nominal[place][code]
                if nominal is not None and slots > nominal:
                    return Drop(f"impossible:share_cap:{self._key.name(code)}")
                return Hold((place, code), f"share_cap:{self._key.name(code)}")
        return None

    def start(self, row: int, now_ns: int) -> None:
        code = self._code[row]
        for place, slots in self._demands[self._demand[row]]:
            if place in self._used:
                self._used[place][code] += slots

    def finish(self, row: int, now_ns: int) -> None:
        code = self._code[row]
        for place, slots in self._demands[self._demand[row]]:
            used = self._used.get(place)
            if used is not None:
                cap = self._caps[place][code]
                if cap is not None and used[code] + self._widest > cap:  # somebody may have been held
                    self._context.wake(self, (place, code))
                used[code] -= slots


@mechanism("quota")
@dataclass(eq=False)
class Quota(Limit):
    """At most so much at a time, or so much per window, for one tenant (or class).

    Rule, `concurrent`: at most so many attempts of the key at a time. Rule, `per`: time is cut into windows of this length that start at
    0, `per`, 2 `per`, …; in each the key may use up to the stated amounts of `runs` (first task of a run to start), `calls` (attempts, retries
    included), `tokens`, `usd` and `slot_seconds`. Everything is charged by the estimate when an attempt starts, never after the fact, so
    concurrent starts cannot pass the limit together; `slot_seconds` are trued up to what was used if the attempt ends within the window.
    A row that does not fit waits until the window turns; one that needs more than a whole window's amount is dropped as impossible.

    A fixed window admits up to twice its amount in a short time around its edge (all at the end of one, all at the start of the next);
    `token_bucket` does not. Of one key, rows wait in order: one that does not fit holds back those of the same needs behind it.

    Parameters: `by`: tenant | class | a list of both | all. `concurrent`: attempts, or `per`: duration with at least one of `runs`, `calls`,
    `tokens`, `usd`, `slot_seconds`. `pools`: only rows that queue for these (default: all). Complexity: O(amounts named).
    """

    by: By = "tenant"
    concurrent: Count | None = None
    per: PositiveDuration | None = None
    runs: Count | None = None
    calls: Count | None = None
    tokens: Count | None = None
    usd: Usd | None = None
    slot_seconds: Number | None = None
    pools: list[Name] | None = None

    def __post_init__(self) -> None:
        amounts = [self.runs, self.calls, self.tokens, self.usd, self.slot_seconds]
        if (self.concurrent is None) == (self.per is None):
            raise ParameterError("quota: give exactly one of concurrent and per")
        if (self.per is not None) != any(amount is not None for amount in amounts):
            raise ParameterError("quota: per goes with runs, calls, tokens, usd or slot_seconds, and they with it")
        if self.slot_seconds is not None and not 0 <= self.slot_seconds < float("inf"):
            raise ParameterError("quota: slot_seconds must be >= 0")
        key_attributes(self.by)

    @property
    def group_by(self) -> frozenset[str]:
        return frozenset(key_attributes(self.by))

    def bind(self, context: Context) -> None:
        self._context, self._rows = context, context.rows
        self._key = Key(context, self.by)
        self._code, self._pool = self._key.column, context.rows.pool
        self._places = None if self.pools is None else frozenset(places_of(context, self.pools))
        self._running = [0] * self._key.size
        self._window = 0
        self._used: dict[tuple[str, int], int] = {}
        self._counted_runs: set[int] = set()
        self._started: dict[int, tuple[int, int, int]] = {}  # row -> window, start, slot-time charged
        amounts: list[tuple[str, float | None, int]] = [
            ("runs", self.runs, 1), ("calls", self.calls, 1), ("tokens", self.tokens, 1),
            ("usd", self.usd, NANO), ("slot_seconds", self.slot_seconds, NS_PER_S),
        ]  # fmt: skip
        self._limits = [(name, round(amount * unit)) for name, amount, unit in amounts if amount is not None]

    def _needs(self, row: int, name: str) -> int:
        rows = self._rows
        if name == "runs":
            need = 0 if rows.run[row] in self._counted_runs else 1
        elif name == "calls":
            need = 1
        elif name == "tokens":
            need = rows.tokens[row]
        elif name == "usd":
            need = round(rows.cost_usd[row] * NANO)
        else:
            need = rows.slots[row] * rows.estimate_ns[row]
        return need

    def hold(self, row: int, now_ns: int) -> Hold | Drop | None:
        if self._places is not None and self._pool[row] not in self._places:
            return None
        code = self._code[row]
        if self.per is None:
            assert self.concurrent is not None
            if self._running[code] < self.concurrent:
                return None
            if not self.concurrent:
                return Drop(f"impossible:quota:concurrent:{self._key.name(code)}")
            return Hold(code, f"quota:concurrent:{self._key.name(code)}")
        window = now_ns // self.per
        for name, limit in self._limits:
            need = self._needs(row, name)
            used = self._used.get((name, code), 0) if window == self._window else 0
            if used + need > limit:
                if need > limit:
                    return Drop(f"impossible:quota:{name}:{self._key.name(code)}")
                return Hold(code, f"quota:{name}:{self._key.name(code)}", (window + 1) * self.per)
        return None

    def start(self, row: int, now_ns: int) -> None:
        if self._places is not None and self._pool[row] not in self._places:
            return
        code = self._code[row]
        if self.per is None:
            self._running[code] += 1
            return
        window = now_ns // self.per
        if window != self._window:
            self._window = window
            self._used.clear()
        for name, _ in self._limits:
            need = self._needs(row, name)
            self._used[name, code] = self._used.get((name, code), 0) + need
            if name == "slot_seconds":
                self._started[row] = (window, now_ns, need)
        if self.runs is not None:
            self._counted_runs.add(self._rows.run[row])

    def finish(self, row: int, now_ns: int) -> None:
        if self._places is not None and self._pool[row] not in self._places:
            return
        code = self._code[row]
        if self.per is None:
            if self._running[code] == self.concurrent:
                self._context.wake(self, code)
            self._running[code] -= 1
        elif self.slot_seconds is not None:
            window, since, charged = self._started.pop(row)
            if window == self._window == now_ns // self.per:
                used = self._rows.slots[row] * (now_ns - since)
                self._used["slot_seconds", code] += used - charged
                if used < charged:
                    self._context.wake(self, code)
