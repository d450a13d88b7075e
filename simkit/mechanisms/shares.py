"""Parts of a whole, in whole numbers: exact rounding of fractions and apportionment."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor

from simkit.mechanisms.bucket import exact_rate

UNLIMITED = 2**40
"""A capacity from here on is no limit, and nothing to take a share of."""


def part_down(fraction: float, whole: int) -> int:
    """floor(fraction x whole) for the fraction that was meant: 0.29 of 100 is 29, although ``0.29 * 100`` is just below."""
    return floor(_exact(fraction) * whole)


def part_up(fraction: float, whole: int) -> int:
    """ceil(fraction x whole) for the fraction that was meant: 0.07 of 100 is 7, although ``0.07 * 100`` is just above."""
    return ceil(_exact(fraction) * whole)


def _exact(fraction: float) -> Fraction:
    return exact_rate(fraction) if fraction else Fraction(0)


def apportion(total: int, weights: Sequence[float], *, at_least_one: bool = False) -> list[int]:
    """Share `total` units out by `weights` so that the shares add up to `total` (largest remainder, Hamilton's method).

    Each gets the whole part of its exact share; the units left go to the largest remainders, ties to the larger weight, then
    to the earlier. `at_least_one`: every positive weight gets a unit first, when there are enough of them. O(n log n).
    Raises ValueError when a weight is negative or none is positive.
    """
    exact = [_exact(weight) if weight >= 0 else Fraction(-1) for weight in weights]
    whole = sum(exact)
    if any(weight < 0 for weight in exact) or not whole:
        raise ValueError(f"weights must be >= 0 and one above 0, found {list(weights)}")
    positive = [number for number, weight in enumerate(exact) if weight]
    if at_least_one and len(positive) <= total:
        return _lift([total * weight / whole for weight in exact], positive, total)
    return _round([total * weight / whole for weight in exact], exact, total)


def _round(quotas: list[Fraction], weights: list[Fraction], total: int) -> list[int]:
    shares = [floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda n: (-(quotas[n] - shares[n]), -weights[n], n))
    for number in by_remainder[: total - sum(shares)]:
        shares[number] += 1
    return shares


def _lift(quotas: list[Fraction], positive: list[int], total: int) -> list[int]:
    """Quotas below one become one; the others share the rest in proportion (again, until none falls below one)."""
    small: set[int] = set()
    while True:
        large = [number for number in positive if number not in small]
        weight = sum((quotas[number] for number in large), Fraction(0))
        rest = total - len(small)
        exact = {number: rest * quotas[number] / weight for number in large}
        below = {number for number in large if exact[number] < 1}
        if not below:
            break
        small |= below
    shares = [0] * len(quotas)
    for number in small:
        shares[number] = 1
    kept = _round([exact[number] for number in large], [quotas[number] for number in large], rest)
    for number, share in zip(large, kept, strict=True):
        shares[number] = share
    return shares
