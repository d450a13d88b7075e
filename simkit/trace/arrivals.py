"""Arrival processes. Each gives times in ns, sorted, from `start_ns` on; a longer sample begins with the shorter one.

Renewal processes (poisson, gamma, weibull) begin with a full gap after the start. Rates that change with time are drawn by inversion: a unit-rate Poisson process pushed through the inverse of the integrated rate, exact for
any rate function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simkit.documents import Strict
from simkit.library import find
from simkit.model import NEVER_NS, NS_PER_S
from simkit.trace.distributions import Floats, PositiveNumber, weibull_shape
from simkit.trace.jsonl import read_any
from simkit.units import Duration, Name, PositiveCount, PositiveDuration, Rate

Times = NDArray[np.int64]
_BLOCK = 4096
MOST_RUNS = 20_000_000
"""More arrivals than this from one source is taken for a mistake."""


class Poisson(Strict):
    """Independent exponential gaps."""

    rate: Rate

    def gaps(self, rng: np.random.Generator, size: int) -> Floats:
        return rng.exponential(1 / self.rate, size)


class GammaGaps(Strict):
    """Independent gamma gaps: cv 1 is Poisson, above it bursty."""

    rate: Rate
    cv: PositiveNumber

    def gaps(self, rng: np.random.Generator, size: int) -> Floats:
        shape = 1 / self.cv**2
        return rng.gamma(shape, 1 / (self.rate * shape), size)


class WeibullGaps(Strict):
    """Independent Weibull gaps."""

    rate: Rate
    cv: PositiveNumber

    @model_validator(mode="after")
    def _possible(self) -> WeibullGaps:
        weibull_shape(self.cv)
        return self

    def gaps(self, rng: np.random.Generator, size: int) -> Floats:
        shape = weibull_shape(self.cv)
        return rng.weibull(shape, size) / (self.rate * math.gamma(1 + 1 / shape))


class Even(Strict):
    """Equal gaps, the first arrival at the start."""

    every: PositiveDuration | None = None
    rate: Rate | None = None

    @model_validator(mode="after")
    def _one(self) -> Even:
        if (self.every is None) == (self.rate is None):
            raise ValueError("even: expected exactly one of every and rate")
        return self

    def times(self, size: int) -> Times:
        steps = np.arange(size)
        if self.every is not None:
            return steps.astype(np.int64) * self.every
        assert self.rate is not None
        return np.round(steps * (NS_PER_S / self.rate)).astype(np.int64)


class Burst(Strict):
    """`count` runs at one instant (after the start)."""

    at: Duration
    count: PositiveCount


class OnOff(Strict):
    """Poisson at `rate` for `on`, at `off_rate` (default 0) for `off`, and so on, beginning with on."""

    rate: Rate
    on: PositiveDuration
    off: PositiveDuration
    off_rate: Rate | None = None

    def inverse(self, mass: Floats) -> Floats:
        on, off = self.on / NS_PER_S, self.off / NS_PER_S
        first, second = self.rate * on, (self.off_rate or 0.0) * off
        cycles = np.floor(mass / (first + second))
        rest = mass - cycles * (first + second)
        inside = np.where(rest < first, rest / self.rate, on + (rest - first) / (self.off_rate or np.inf))
        inverse: Floats = cycles * (on + off) + inside
        return inverse


class Diurnal(Strict):
    """Poisson at rate x (1 + (peak_to_mean - 1) sin(2 pi t / period))."""

    rate: Rate
    peak_to_mean: PositiveNumber
    period: PositiveDuration = 86400 * NS_PER_S

    @model_validator(mode="after")
    def _possible(self) -> Diurnal:
        if not 1 <= self.peak_to_mean <= 2:
            raise ValueError(f"diurnal: found peak_to_mean {self.peak_to_mean}, expected 1 to 2")
        return self

    def mass(self, time: Floats) -> Floats:
        period = self.period / NS_PER_S
        swing = self.peak_to_mean - 1
        mass: Floats = self.rate * (time + swing * period / (2 * np.pi) * (1 - np.cos(2 * np.pi * time / period)))
        return mass

    def inverse(self, mass: Floats) -> Floats:
        slack = (self.peak_to_mean - 1) * self.period / NS_PER_S / np.pi
        high = mass / self.rate
        low = np.maximum(high - slack, 0.0)
        for _ in range(80):
            middle = (low + high) / 2
            above = self.mass(middle) > mass
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return (low + high) / 2


class Flood(Strict):
    """Poisson at `base_rate`, and at `peak_rate` from `from` for `for` (after the start)."""

    base_rate: Rate
    peak_rate: Rate
    from_: Duration = Field(alias="from")
    for_: PositiveDuration = Field(alias="for")

    def inverse(self, mass: Floats) -> Floats:
        begin, length = self.from_ / NS_PER_S, self.for_ / NS_PER_S
        before, peak = self.base_rate * begin, self.peak_rate * length
        inverse: Floats = np.where(
            mass < before,
            mass / self.base_rate,
            np.where(
                mass < before + peak,
                begin + (mass - before) / self.peak_rate,
                begin + length + (mass - before - peak) / self.base_rate,
            ),
        )
        return inverse


class Recorded(Strict):
    """The arrivals of a recorded trace (counted from the start), with other runs in its place."""

    file: Name

    def times(self, folder: Path | None) -> Times:
        path = find("traces", self.file, folder)
        return _arrivals_of(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _arrivals_of(path: Path, _changed_ns: int) -> Times:
    return read_any(path).runs.arrival_ns


class Arrivals(Strict):
    """Exactly one process: ``{poisson: {rate: 2/s}}``."""

    poisson: Poisson | None = None
    gamma: GammaGaps | None = None
    weibull: WeibullGaps | None = None
    even: Even | None = None
    burst: Burst | list[Burst] | None = None
    on_off: OnOff | None = None
    diurnal: Diurnal | None = None
    flood: Flood | None = None
    at: list[Duration] | None = None
    empirical: Recorded | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Arrivals:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"found {len(given)} arrival processes, expected exactly one of {', '.join(type(self).model_fields)}"
            )
        if [] in (self.at, self.burst):
            raise ValueError(f"{given[0]}: the list is empty")
        return self

    @property
    def is_finite(self) -> bool:
        """Ends by itself, without `count` or `until`."""
        return self.burst is not None or self.at is not None or self.empirical is not None

    def times_ns(
        self, rng: np.random.Generator, *, start_ns: int, until_ns: int, count: int | None, folder: Path | None = None
    ) -> Times:
        """The arrivals in [start_ns, until_ns), at most `count` of them. Files are looked for in `folder` too.

        Raises ValueError for more than MOST_RUNS, UsageError for a file that is no trace.
        """
        if self.is_finite:
            return _cut(start_ns + self._listed(folder), until_ns, count)
        if self.even is not None:
            return self._even(start_ns, until_ns, count)
        process: Any = self.poisson or self.gamma or self.weibull
        if process is not None:
            return _until(lambda size: process.gaps(rng, size), _as_it_is, start_ns, until_ns, count)
        changing: Any = self.on_off or self.diurnal or self.flood
        return _until(lambda size: rng.exponential(1.0, size), changing.inverse, start_ns, until_ns, count)

    def _listed(self, folder: Path | None) -> Times:
        if self.empirical is not None:
            return self.empirical.times(folder)
        if self.at is not None:
            return np.sort(np.array(self.at, dtype=np.int64))
        bursts = self.burst if isinstance(self.burst, list) else [self.burst]
        times = [np.full(burst.count, burst.at, dtype=np.int64) for burst in bursts if burst is not None]
        return np.sort(np.concatenate(times)) if times else np.empty(0, dtype=np.int64)

    def _even(self, start_ns: int, until_ns: int, count: int | None) -> Times:
        assert self.even is not None
        gap = self.even.every or NS_PER_S / (self.even.rate or 1.0)
        bound = count if count is not None else math.ceil((until_ns - start_ns) / gap) + 1
        if bound > MOST_RUNS:
            raise ValueError(f"more than {MOST_RUNS} arrivals from one source")
        return _cut(start_ns + self.even.times(bound), until_ns, count)


def _clock(times_s: Floats) -> Times:
    """s -> ns, capped far beyond every horizon."""
    return np.round(np.minimum(times_s, NEVER_NS / NS_PER_S) * NS_PER_S).astype(np.int64)


def _cut(times: Times, until_ns: int, count: int | None) -> Times:
    inside = times[times < until_ns]
    return inside if count is None else inside[:count]


def _as_it_is(mass: Floats) -> Floats:
    return mass


def _until(
    gaps: Callable[[int], Floats], when: Callable[[Floats], Floats], start_ns: int, until_ns: int, count: int | None
) -> Times:
    """Blocks of arrivals until the bound: the gaps add up over all blocks, `when` turns the sum into seconds."""
    times: list[Times] = []
    total, mass, last = 0, 0.0, 0
    while (count is None or total < count) and start_ns + last < until_ns:
        reached = mass + np.cumsum(gaps(_BLOCK))
        mass = float(reached[-1])
        block = _clock(when(reached))
        times.append(block)
        total, last = total + len(block), int(block[-1])
        if total > MOST_RUNS:
            raise ValueError(f"more than {MOST_RUNS} arrivals from one source")
    joined = np.concatenate(times) if times else np.empty(0, dtype=np.int64)
    in_order = np.maximum.accumulate(joined)  # an inverse in floating point may step back by a rounding error
    return _cut(start_ns + in_order, until_ns, count)
