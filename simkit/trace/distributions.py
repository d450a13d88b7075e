"""Distributions of service times and token counts, by mean and coefficient of variation (cv = standard deviation / mean).

Each law is a small document model with `sample(rng, size)` and `mean`. Quantities are in the unit of the field: ns for durations,
plain numbers for tokens.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, model_validator

from simkit.documents import Strict
from simkit.model import NEVER_NS
from simkit.units import Amount, Duration, Number

Floats = NDArray[np.float64]
Q = TypeVar("Q", bound=float)
_Z95 = 1.6448536269514722  # 95 % of a standard normal lie below it


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError(f"found {value!r}, expected a number above 0")
    return value


PositiveNumber = Annotated[Number, AfterValidator(_positive)]


class Exponential(Strict, Generic[Q]):
    mean: Q

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        return rng.exponential(float(self.mean), size)

    @property
    def average(self) -> float:
        return float(self.mean)


class Lognormal(Strict, Generic[Q]):
    """Two numbers of it: mean or median, and cv or 95th percentile."""

    mean: Q | None = None
    cv: PositiveNumber | None = None
    median: Q | None = None
    p95: Q | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Lognormal[Q]:
        if (self.mean is None) == (self.median is None) or (self.cv is None) == (self.p95 is None):
            raise ValueError("lognormal: expected mean or median, and cv or p95")
        if not (self.mean or self.median):
            raise ValueError("lognormal: mean and median must lie above 0")
        if self.p95 is not None and self.p95 <= (self.median or self.mean or 0):
            raise ValueError("lognormal: p95 must lie above the mean or median")
        if self.mean and self.p95 and self.p95 > self.mean * math.exp(_Z95**2 / 2):
            raise ValueError("lognormal: p95 of a lognormal law is at most 3.87 times its mean")
        return self

    @property
    def _mu_sigma(self) -> tuple[float, float]:
        """Of the normal law of the logarithm. mean = exp(mu + sigma^2/2), median = exp(mu), cv^2 = exp(sigma^2) - 1, p95 = exp(mu + z sigma)."""
        centre = math.log(self.mean or self.median or 1.0)
        if self.cv is not None:
            sigma = math.sqrt(math.log1p(self.cv**2))
        else:
            above = math.log(self.p95 or 1.0) - centre
            sigma = above / _Z95 if self.mean is None else _Z95 - math.sqrt(max(_Z95**2 - 2 * above, 0.0))
        return centre - (sigma**2 / 2 if self.mean is not None else 0.0), sigma

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
        return rng.gamma(shape, float(self.mean) / shape, size)

    @property
    def average(self) -> float:
        return float(self.mean)


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
        return rng.weibull(shape, size) * (float(self.mean) / math.gamma(1 + 1 / shape))

    @property
    def average(self) -> float:
        return float(self.mean)


class HyperExponential(Strict, Generic[Q]):
    """Two exponential branches with balanced means, cv >= 1: heavy tails. Branch i with chance p_i has mean m / (2 p_i), so that both
    bring the same work; p_1 = (1 + sqrt((cv^2 - 1) / (cv^2 + 1))) / 2 (Allen, Probability, Statistics and Queueing Theory, 1990)."""

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
        draws = rng.random((size, 2))  # side by side, so that a longer sample begins with the shorter one
        mean = float(self.mean)
        return np.where(draws[:, 0] < p, mean / (2 * p), mean / (2 * (1 - p))) * -np.log1p(-draws[:, 1])

    @property
    def average(self) -> float:
        return float(self.mean)


class Uniform(Strict, Generic[Q]):
    low: Q
    high: Q

    @model_validator(mode="after")
    def _ordered(self) -> Uniform[Q]:
        if float(self.low) > float(self.high):
            raise ValueError("uniform: low must not lie above high")
        return self

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        return rng.uniform(float(self.low), float(self.high), size)

    @property
    def average(self) -> float:
        return (float(self.low) + float(self.high)) / 2


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
        try:
            average = self.average
        except OverflowError:
            average = math.inf
        if not 0 < average < NEVER_NS:
            raise ValueError("expected a distribution with a mean above 0 (and below 146 years)")
        return self

    @property
    def _chosen(self) -> Any:
        return next(getattr(self, name) for name in type(self).model_fields if getattr(self, name) is not None)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """`size` draws, in order: a longer sample begins with the shorter one."""
        if self.deterministic is not None:
            return np.full(size, float(self.deterministic))
        drawn: Floats = self._chosen.sample(rng, size)
        return drawn

    @property
    def average(self) -> float:
        """The mean of the law."""
        if self.deterministic is not None:
            return float(self.deterministic)
        return float(self._chosen.average)


DurationLaw = Law[Duration]
"""ns."""
NumberLaw = Law[Amount]
"""Plain numbers, such as tokens."""
