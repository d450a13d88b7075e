"""Distributions of service times and token counts, by mean and coefficient of variation (cv = standard deviation / mean).

Each law is a small document model with `sample(rng, size)` and `mean`. Quantities are in the unit of the field: ns for durations,
plain numbers for tokens.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, model_validator

from simkit.documents import Strict
from simkit.units import Number, PositiveDuration

Floats = NDArray[np.float64]
Q = TypeVar("Q")


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError(f"found {value!r}, expected a number above 0")
    return value


PositiveNumber = Annotated[Number, AfterValidator(_positive)]


class Exponential(Strict, Generic[Q]):
    mean: Q

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        return rng.exponential(float(self.mean), size)  # type: ignore[arg-type]

    @property
    def average(self) -> float:
        return float(self.mean)  # type: ignore[arg-type]


class Lognormal(Strict, Generic[Q]):
    """By mean and cv, or by median and 95th percentile."""

    mean: Q | None = None
    cv: PositiveNumber | None = None
    median: Q | None = None
    p95: Q | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Lognormal[Q]:
        by_mean = self.mean is not None and self.cv is not None and self.median is None and self.p95 is None
        by_median = self.median is not None and self.p95 is not None and self.mean is None and self.cv is None
        if not (by_mean or by_median):
            raise ValueError("lognormal: expected mean and cv, or median and p95")
        if by_median and float(self.p95) <= float(self.median):  # type: ignore[arg-type]
            raise ValueError("lognormal: p95 must lie above the median")
        return self

    @property
    def _mu_sigma(self) -> tuple[float, float]:
        if self.mean is not None:
            assert self.cv is not None
            sigma = math.sqrt(math.log1p(self.cv**2))
            return math.log(float(self.mean)) - sigma**2 / 2, sigma  # type: ignore[arg-type]
        mu = math.log(float(self.median))  # type: ignore[arg-type]
        return mu, (math.log(float(self.p95)) - mu) / 1.6448536269514722  # type: ignore[arg-type]

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        mu, sigma = self._mu_sigma
        return rng.lognormal(mu, sigma, size)

    @property
    def average(self) -> float:
        mu, sigma = self._mu_sigma
        return math.exp(mu + sigma**2 / 2)


class Gamma(Strict, Generic[Q]):
    mean: Q
    cv: PositiveNumber

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        shape = 1 / self.cv**2
        return rng.gamma(shape, float(self.mean) / shape, size)  # type: ignore[arg-type]

    @property
    def average(self) -> float:
        return float(self.mean)  # type: ignore[arg-type]


def weibull_shape(cv: float) -> float:
    """The shape k of the Weibull law with this cv: cv^2 = G(1+2/k)/G(1+1/k)^2 - 1, by bisection."""
    low, high = 0.05, 100.0

    def excess(k: float) -> float:
        return math.exp(math.lgamma(1 + 2 / k) - 2 * math.lgamma(1 + 1 / k)) - 1 - cv**2

    if excess(high) > 0 or excess(low) < 0:
        raise ValueError(f"weibull: found cv {cv}, expected one from 0.013 to about 1e5")
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


class Weibull(Strict, Generic[Q]):
    mean: Q
    cv: PositiveNumber

    @model_validator(mode="after")
    def _possible(self) -> Weibull[Q]:
        weibull_shape(self.cv)
        return self

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        shape = weibull_shape(self.cv)
        return rng.weibull(shape, size) * (float(self.mean) / math.gamma(1 + 1 / shape))  # type: ignore[arg-type]

    @property
    def average(self) -> float:
        return float(self.mean)  # type: ignore[arg-type]


class HyperExponential(Strict, Generic[Q]):
    """Two exponential branches with balanced means (p1/m1 = p2/m2 in rates), cv >= 1: heavy tails (Allen 1990)."""

    mean: Q
    cv: PositiveNumber

    @model_validator(mode="after")
    def _possible(self) -> HyperExponential[Q]:
        if self.cv < 1:
            raise ValueError(f"hyperexp: found cv {self.cv}, expected 1 or more")
        return self

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        square = self.cv**2
        p = (1 + math.sqrt((square - 1) / (square + 1))) / 2
        mean = float(self.mean)  # type: ignore[arg-type]
        first = rng.random(size) < p
        return np.where(first, mean / (2 * p), mean / (2 * (1 - p))) * rng.exponential(1.0, size)

    @property
    def average(self) -> float:
        return float(self.mean)  # type: ignore[arg-type]


class Uniform(Strict, Generic[Q]):
    low: Q
    high: Q

    @model_validator(mode="after")
    def _ordered(self) -> Uniform[Q]:
        if float(self.low) > float(self.high):  # type: ignore[arg-type]
            raise ValueError("uniform: low must not lie above high")
        return self

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        return rng.uniform(float(self.low), float(self.high), size)  # type: ignore[arg-type]

    @property
    def average(self) -> float:
        return (float(self.low) + float(self.high)) / 2  # type: ignore[arg-type]


class Empirical(Strict, Generic[Q]):
    """Recorded values, drawn with replacement; `weights` default to equal."""

    values: list[Q]
    weights: list[PositiveNumber] | None = None

    @model_validator(mode="after")
    def _usable(self) -> Empirical[Q]:
        if not self.values:
            raise ValueError("empirical: values is empty")
        if self.weights is not None and len(self.weights) != len(self.values):
            raise ValueError(f"empirical: {len(self.values)} values and {len(self.weights)} weights")
        return self

    @property
    def _shares(self) -> Floats:
        weights = np.ones(len(self.values)) if self.weights is None else np.array(self.weights)
        shares: Floats = weights / weights.sum()
        return shares

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        edges = np.cumsum(self._shares)[:-1]
        return np.array(self.values, dtype=np.float64)[np.searchsorted(edges, rng.random(size), side="right")]

    @property
    def average(self) -> float:
        return float(np.array(self.values, dtype=np.float64) @ self._shares)


class Law(Strict, Generic[Q]):
    """Exactly one distribution: ``{lognormal: {mean: 4s, cv: 1}}``. A bare value is deterministic."""

    deterministic: Q | None = None
    exp: Exponential[Q] | None = None
    lognormal: Lognormal[Q] | None = None
    gamma: Gamma[Q] | None = None
    weibull: Weibull[Q] | None = None
    hyperexp: HyperExponential[Q] | None = None
    uniform: Uniform[Q] | None = None
    empirical: Empirical[Q] | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, data: Any) -> Any:
        return data if isinstance(data, dict) else {"deterministic": data}

    @model_validator(mode="after")
    def _exactly_one(self) -> Law[Q]:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            names = ", ".join(type(self).model_fields)
            raise ValueError(f"found {len(given)} distributions, expected exactly one of {names}")
        return self

    @property
    def _chosen(self) -> Any:
        return next(getattr(self, name) for name in type(self).model_fields if getattr(self, name) is not None)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """`size` draws, in order: a longer sample begins with the shorter one."""
        if self.deterministic is not None:
            return np.full(size, float(self.deterministic))  # type: ignore[arg-type]
        drawn: Floats = self._chosen.sample(rng, size)
        return drawn

    @property
    def average(self) -> float:
        """The mean of the law."""
        if self.deterministic is not None:
            return float(self.deterministic)  # type: ignore[arg-type]
        return float(self._chosen.average)


DurationLaw = Law[PositiveDuration]
"""ns."""
NumberLaw = Law[PositiveNumber]

EstimateWord = Literal["mean", "exact"]
