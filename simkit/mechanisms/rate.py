"""Limits by rate: one's own token buckets, and the allowance that a provider has left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simkit.mechanisms.base import Context, Limit, ParameterError, mechanism
from simkit.mechanisms.bucket import Gcra
from simkit.mechanisms.selection import By, Key, Who, check_who, chosen_rows, key_attributes, places_of, who_attributes
from simkit.mechanisms.shares import UNLIMITED, part_up
from simkit.model import NEVER_NS, Drop, Hold
from simkit.units import Fraction, Name, Number, Rate

_NANO = 1_000_000_000  # money is counted in whole billionths of a dollar


@mechanism("token_bucket")
@dataclass(eq=False)
class TokenBucket(Limit):
    """A bucket of tokens for each tenant (or class): `burst` at once, refilled continuously at `rate`; full at the start.

    Rule: see `simkit.mechanisms.bucket.Gcra`. Each attempt that starts (retries included) takes 1 (`unit: calls`), its tokens by the
    estimate, or its estimated cost in dollars; it waits until the bucket holds that much. One that needs more than `burst` is dropped as
    impossible. In any time D at most burst + rate x D pass. Of one key, rows wait in order: one that does not fit holds back those of the
    same needs behind it.

    Parameters: `rate`: per second ("10/s", "600/min"), in units. `burst`: units (whole for calls and tokens). `by`: tenant | class | a
    list of both | all. `unit`: calls | tokens | usd. `pools`: only rows that queue for these (default: all).
    Complexity: O(1). Source: token bucket / GCRA.
    """

    rate: Rate
    burst: Number
    by: By = "tenant"
    unit: Literal["calls", "tokens", "usd"] = "calls"
    pools: list[Name] | None = None

    def __post_init__(self) -> None:
        key_attributes(self.by)
        if not 0 < self.burst < float("inf"):
            raise ParameterError(f"token_bucket: burst must be above 0, found {self.burst}")
        if self.unit != "usd" and self.burst != int(self.burst):
            raise ParameterError(f"token_bucket: burst is a whole number of {self.unit}, found {self.burst}")

    @property
    def group_by(self) -> frozenset[str]:
        return frozenset(key_attributes(self.by))

    def bind(self, context: Context) -> None:
        self._key = Key(context, self.by)
        self._code, self._pool = self._key.column, context.rows.pool
        self._places = None if self.pools is None else frozenset(places_of(context, self.pools))
        self._costs: list[int] | None = None
        if self.unit == "usd":
            self._costs = context.rows.derive([round(cost * _NANO) for cost in context.rows.cost_usd])
        elif self.unit == "tokens":
            self._costs = context.rows.tokens
        self._buckets: dict[int, Gcra] = {}

    def _bucket(self, code: int) -> Gcra:
        bucket = self._buckets.get(code)
        if bucket is None:
            scale = _NANO if self.unit == "usd" else 1
            bucket = self._buckets[code] = Gcra(self.rate * scale, round(self.burst * scale))
        return bucket

    def hold(self, row: int, now_ns: int) -> Hold | Drop | None:
        if self._places is not None and self._pool[row] not in self._places:
            return None
        code = self._code[row]
        wait = self._bucket(code).wait_ns(1 if self._costs is None else self._costs[row], now_ns)
        if wait == 0:
            return None
        if wait < 0:
            return Drop(f"impossible:token_bucket:{self._key.name(code)}")
        return Hold(code, f"token_bucket:{self._key.name(code)}", min(now_ns + wait, NEVER_NS))

    def watches(self, place: int) -> bool:
        return self._places is None or place in self._places

    def start(self, row: int, now_ns: int) -> None:
        if self._places is None or self._pool[row] in self._places:
            # `hold` has just said that the tokens are there
            self._bucket(self._code[row]).charge(1 if self._costs is None else self._costs[row], now_ns)


@mechanism("api_allowance")
@dataclass(eq=False)
class ApiAllowance(Limit):
    """Call an API only when it would accept the call, instead of running into its 429.

    Rule: the provider publishes what is left of each of its limits (requests, tokens). A row that calls the API waits until every limit
    of every API it calls could pay for its calls at once, and until the API has a free place under its concurrency. `keep`: rows other
    than the chosen leave the last ceil(`keep` x burst) of each limit to them (less for a call so large that only a full
    allowance could pay for it), so when the allowance gets short background work stops first. A call above a limit's burst
    is dropped as impossible.

    A row that needs much may be passed by rows that need little, again and again, while the allowance is short: nothing saves up for it.
    Outages are not published: calls to an API that is down are not held back.

    Parameters: `apis`: names (default: all). `keep`: fraction of each burst, with `keep_for`: the chosen rows ({class: …, tenant: …, verifies:
    true}; a list of mappings: any of them). Complexity: O(limits of the APIs called). Source: x-ratelimit-remaining and -reset headers of
    model providers; priority reservation of LiteLLM's dynamic limiter.
    """

    apis: list[Name] | None = None
    keep: Fraction | None = None
    keep_for: Who | None = None

    def __post_init__(self) -> None:
        if (self.keep is None) != (self.keep_for is None):
            raise ParameterError("api_allowance: keep and keep_for go together")
        if self.keep_for is not None:
            check_who(self.keep_for)

    @property
    def group_by(self) -> frozenset[str]:
        return frozenset() if self.keep_for is None else who_attributes(self.keep_for)

    def bind(self, context: Context) -> None:
        self._context, self._view, self._pool = context, context.view, context.rows.pool
        self._calls = context.api_demand
        self._name = list(context.names["pool"])
        named = range(len(self._name)) if self.apis is None else places_of(context, self.apis)
        self._covered = frozenset(named)
        self._limits = {
            place: [
                (unit, allowance, part_up(self.keep or 0.0, allowance.burst)) for unit, allowance in context.api(place)
            ]
            for place in sorted(self._covered)
            if context.api(place)
        }
        self._booked_in_tokens = frozenset(
            place for place, limits in self._limits.items() if any(unit == "tokens" for unit, _, _ in limits)
        )
        self._bounded = frozenset(place for place in self._covered if context.view.capacity(place) < UNLIMITED)
        if self.apis is not None:
            for place in named:
                if place not in self._limits and place not in self._bounded:
                    self.warn(context, f"{self._name[place]!r} has no limits: there is nothing to wait for")
        self._chosen = None
        if self.keep_for is not None:
            mask = chosen_rows(context, self, self.keep_for)
            if not mask.any():
                self.warn(context, "no row is chosen by keep_for: what is kept is of no use")
            self._chosen = context.rows.derive(mask)

    def hold(self, row: int, now_ns: int) -> Hold | Drop | None:
        longest, longest_at = 0, -1
        spares = self._chosen is not None and not self._chosen[row]
        for place, calls, tokens in self._calls(row):
            if place in self._bounded and place != self._pool[row] and self._view.free(place) < 1:
                return Hold(place, f"api_concurrency:{self._name[place]}")
            for unit, allowance, kept in self._limits.get(place, ()):
                cost = calls if unit == "requests" else tokens
                if spares:
                    cost += max(0, min(kept, allowance.burst - cost))
                wait = allowance.wait_ns(cost, now_ns)
                if wait < 0:
                    return Drop(f"impossible:api_allowance:{self._name[place]}")
                if wait > longest:
                    longest, longest_at = wait, place
        if longest_at < 0:
            return None
        return Hold(longest_at, f"api_allowance:{self._name[longest_at]}", min(now_ns + longest, NEVER_NS))

    def finish(self, row: int, now_ns: int) -> None:
        for place, _, _ in self._calls(row):
            # a place under the concurrency is free again, or tokens that were reserved and not used came back
            if place in self._bounded or place in self._booked_in_tokens:
                self._context.wake(self, place)
