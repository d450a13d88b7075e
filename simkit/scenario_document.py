"""The scenario document, key by key, as strict models; and the platform's specs that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from simkit.documents import Misplaced, Strict
from simkit.model import (
    NEVER_NS,
    NS_PER_S,
    ApiSpec,
    BudgetSpec,
    ClientSpec,
    FaultSpec,
    LimitSpec,
    PlatformSpec,
    PoolSpec,
    RetrySpec,
    TierSpec,
)
from simkit.trace.workload import WorkflowSpec
from simkit.units import (
    Amount,
    Count,
    Duration,
    Factor,
    Fraction,
    Gain,
    Name,
    Number,
    PositiveCount,
    PositiveDuration,
    Rate,
    Usd,
    UsdRate,
)  # fmt: skip

_WINDOWS_NS = {"minute": 60 * NS_PER_S, "hour": 3600 * NS_PER_S, "day": 86400 * NS_PER_S}


class PoolDocument(Strict):
    slots: PositiveCount | Literal["unlimited"]


class _Limit(Strict):
    requests: Rate | None = None
    tokens: Rate | None = None
    burst: PositiveCount | None = None

    @model_validator(mode="after")
    def _one_unit(self) -> _Limit:
        if (self.requests is None) == (self.tokens is None):
            raise ValueError("expected exactly one of requests and tokens, such as {requests: 60/min, burst: 10}")
        return self

    def spec(self) -> LimitSpec:
        unit, rate = ("requests", self.requests) if self.requests is not None else ("tokens", self.tokens)
        assert rate is not None
        return LimitSpec(unit, rate, self.burst if self.burst is not None else max(1, round(rate * 60)))


class ApiDocument(Strict):
    limits: list[_Limit] = Field(default_factory=list)
    concurrency: PositiveCount | None = None
    latency: Duration = 0
    error_rate: Fraction = 0.0
    error_latency: Duration = 0
    hang_timeout: PositiveDuration = 60 * NS_PER_S


_Names = Name | Annotated[list[Name], Field(min_length=1)]
_Who = dict[Literal["tenant", "class"], _Names]
"""Who is meant: all of it must hold, any of the names does; empty = everybody."""


class BudgetDocument(Strict):
    """``{usd: 50, per: day}``, or shorter ``{usd: $50/day}``; without a window for the whole run."""

    usd: Usd | UsdRate
    per: Literal["minute", "hour", "day"] | PositiveDuration | None = None
    for_: Annotated[_Who, Field(alias="for")] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_window(self) -> BudgetDocument:
        if isinstance(self.usd, tuple) and self.per is not None:
            raise Misplaced(("per",), "the window is given twice: in usd and here")
        return self

    def spec(self, name: str) -> BudgetSpec:
        if isinstance(self.usd, tuple):
            usd, window = self.usd
            return BudgetSpec(name, usd, window, chosen_names(self.for_))
        window_ns = _WINDOWS_NS[self.per] if isinstance(self.per, str) else self.per
        return BudgetSpec(name, self.usd, window_ns, chosen_names(self.for_))


class TierDocument(Strict):
    pool: Name
    speed: Factor = 1.0
    price: Amount = 1.0
    success: Fraction | None = None


class PlatformDocument(Strict):
    pools: dict[Name, PoolDocument] = Field(default_factory=dict)
    apis: dict[Name, ApiDocument] = Field(default_factory=dict)
    budgets: dict[Name, BudgetDocument] = Field(default_factory=dict)
    tiers: dict[Name, TierDocument] = Field(default_factory=dict)


class _Backoff(Strict):
    base: Duration = 0
    cap: Duration = 0
    multiplier: Factor = 2.0
    jitter: Literal["none", "full", "equal", "decorrelated"] = "none"

    @model_validator(mode="after")
    def _has_effect(self) -> _Backoff:
        for key in ("cap", "multiplier", "jitter"):
            if key in self.model_fields_set and not self.base:
                raise Misplaced((key,), f"{key} has no effect without base")
        if "cap" in self.model_fields_set and self.cap < self.base:
            raise Misplaced(("cap",), "cap must not be below base")
        return self


class RetriesDocument(Strict):
    """Attempts in all; delays between them; retries per first attempt that the budget allows."""

    attempts: PositiveCount = 1
    backoff: _Backoff = Field(default_factory=_Backoff)
    budget: Fraction | None = None

    @model_validator(mode="after")
    def _has_effect(self) -> RetriesDocument:
        if self.attempts == 1:
            for key in ("backoff", "budget"):
                if key in self.model_fields_set:
                    raise Misplaced((key,), f"{key} has no effect with one attempt: set attempts to 2 or more")
        return self

    def spec(self) -> RetrySpec:
        return _retry_spec(self.attempts, self.backoff, self.budget)


class SdkDocument(_Backoff):
    """The retry layer inside one attempt at an API: attempts in all, and the delays between them."""

    attempts: PositiveCount = 1
    budget: Fraction | None = None

    @model_validator(mode="after")
    def _tries_again(self) -> SdkDocument:
        others = sorted(self.model_fields_set - {"attempts"})
        if self.attempts == 1 and others:
            raise Misplaced((others[0],), f"{others[0]} has no effect with one attempt: set attempts to 2 or more")
        return self

    def spec(self) -> RetrySpec:
        return _retry_spec(self.attempts, self, self.budget)


def _retry_spec(attempts: int, backoff: _Backoff, budget: float | None) -> RetrySpec:
    return RetrySpec(attempts, backoff.base, backoff.cap, backoff.multiplier, backoff.jitter, budget)


class ClientDocument(Strict):
    for_: Annotated[_Who, Field(alias="for")] = Field(default_factory=dict)
    patience: PositiveDuration | None = None
    retries: RetriesDocument = Field(default_factory=RetriesDocument)
    obey_retry_after: Fraction = 1.0
    sdk: SdkDocument = Field(default_factory=SdkDocument)

    def spec(self) -> ClientSpec:
        return ClientSpec(
            chosen_names(self.for_),
            self.patience or NEVER_NS,
            self.retries.spec(),
            self.obey_retry_after,
            self.sdk.spec(),
        )


class FaultWhat(Strict):
    pool: Name | None = None
    api: Name | None = None
    down: Literal["error", "hang"] | None = None
    slow: Factor | None = None
    capacity: Count | None = None
    starts: Literal["nothing"] | None = None
    allowance: Fraction | None = None
    reject: Literal["everything"] | None = None

    @model_validator(mode="after")
    def _one_fault(self) -> FaultWhat:
        faults = [
            n for n in ("down", "slow", "capacity", "starts", "allowance", "reject") if getattr(self, n) is not None
        ]
        if len(faults) != 1:
            raise ValueError(
                f"found {len(faults)} faults, expected exactly one of down, slow, capacity, starts, allowance, reject"
            )
        needs = {
            "down": "api",
            "allowance": "api",
            "capacity": "pool",
            "starts": "pool",
            "slow": "pool or api",
            "reject": "no target",
        }
        target = needs[faults[0]]
        fits = {
            "api": self.api is not None and self.pool is None,
            "pool": self.pool is not None and self.api is None,
            "pool or api": (self.pool is None) != (self.api is None),
            "no target": self.pool is None and self.api is None,
        }[target]
        if not fits:
            raise ValueError(f"{faults[0]} needs {target}")
        return self


class FaultDocument(Strict):
    at: Duration
    for_: Annotated[PositiveDuration | None, Field(alias="for")] = None
    what: FaultWhat

    def spec(self) -> FaultSpec:
        what = self.what
        kind, value = next(
            (kind, value)
            for kind, value in (
                ("down", what.down), ("slow", what.slow), ("capacity", what.capacity), ("stall", what.starts),
                ("allowance", what.allowance), ("reject_all", what.reject),
            )
            if value is not None
        )  # fmt: skip
        return FaultSpec(
            self.at, NEVER_NS if self.for_ is None else self.for_, what.pool or what.api or "", kind, value
        )


class ClassDocument(Strict):
    starved_after: PositiveDuration


class ExpectDocument(Strict):
    metric: Name
    where: dict[Literal["class", "tenant", "pool"], Name] = Field(default_factory=dict)
    policy: Name | None = None
    at_most: Number | None = None
    at_least: Number | None = None
    equals: Number | None = None
    tolerance: Amount = 0.0
    better_than: Name | None = None
    by: Gain = 0.0

    @model_validator(mode="after")
    def _one_bound(self) -> ExpectDocument:
        bounds = [n for n in ("at_most", "at_least", "equals", "better_than") if getattr(self, n) is not None]
        if len(bounds) != 1:
            raise ValueError(
                f"found {len(bounds)} bounds, expected exactly one of at_most, at_least, equals, better_than"
            )
        for key, bound in (("tolerance", "equals"), ("by", "better_than")):
            if key in self.model_fields_set and bounds != [bound]:
                raise Misplaced((key,), f"{key} goes with {bound}")
        return self


class ScenarioDocument(Strict):
    """A scenario file, key by key."""

    name: Name
    about: str = ""
    seed: Count = 1
    horizon: PositiveDuration | None = None
    warmup: Duration = 0
    replications: PositiveCount = 10
    primary: Name = "goodput_per_s"
    margin: Fraction = 0.02
    classes: dict[Name, ClassDocument] = Field(default_factory=dict)
    platform: PlatformDocument
    workflows: dict[Name, WorkflowSpec] = Field(default_factory=dict)
    workload: list[dict[str, Any]]
    clients: list[ClientDocument] = Field(default_factory=list)
    faults: list[FaultDocument] = Field(default_factory=list)
    policies: list[Any] = Field(default_factory=lambda: ["fifo"])
    baseline: Name | None = None
    control: Name | list[Name] = Field(default_factory=list)
    expect: list[ExpectDocument] = Field(default_factory=list)


def chosen_names(chosen: Mapping[Any, str | list[str]]) -> dict[str, tuple[str, ...]]:
    return {kind: (names,) if isinstance(names, str) else tuple(names) for kind, names in chosen.items()}


def platform_spec(spec: PlatformDocument) -> PlatformSpec:
    return PlatformSpec(
        pools=tuple(PoolSpec(name, None if pool.slots == "unlimited" else pool.slots) for name, pool in spec.pools.items()),
        apis=tuple(
            ApiSpec(
                name, tuple(limit.spec() for limit in api.limits), api.concurrency, api.latency, api.error_rate,
                api.error_latency, api.hang_timeout,
            )
            for name, api in spec.apis.items()
        ),
        budgets=tuple(
            budget.spec(name) for name, budget in spec.budgets.items()
        ),
        tiers=tuple(TierSpec(name, tier.pool, tier.speed, tier.price, tier.success) for name, tier in spec.tiers.items()),
    )  # fmt: skip
