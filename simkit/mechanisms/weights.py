"""What fair orders reckon with: the cost of a row, weights as whole numbers, and the shares that are fair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import Literal

import numpy as np

from simkit.mechanisms.base import Context, Mechanism, ParameterError
from simkit.mechanisms.bucket import exact_rate
from simkit.model import Rows

Cost = Literal["estimate", "count", "tokens", "usd"]
"""What a row is charged: ns of estimated slot time, 1, tokens, or dollars. At least one unit: nothing is free."""

_LARGEST = 2**64


def cost_of(rows: Rows, cost: Cost) -> Callable[[int], int]:
    """row -> what serving it is charged, a whole number >= 1 (dollars count in 1e-9). It reads the live columns."""
    if cost == "estimate":
        estimate_ns, slots = rows.estimate_ns, rows.slots
        return lambda row: estimate_ns[row] * slots[row] or 1
    if cost == "tokens":
        tokens = rows.tokens
        return lambda row: tokens[row] or 1
    if cost == "usd":
        usd = rows.cost_usd
        return lambda row: round(usd[row] * 1e9) or 1
    return lambda _: 1


def largest_cost(context: Context, cost: Cost) -> int:
    """The largest cost of any row of the order's own pool(s), as the trace has it."""
    rows = context.rows
    if cost == "count":
        return 1
    if cost == "estimate":
        costs = rows.source("estimate_ns") * rows.source("slots")
    else:
        costs = rows.source("tokens") if cost == "tokens" else np.round(rows.source("cost_usd") * 1e9)
    own = costs[np.isin(rows.source("pool"), list(context.pools))]
    return max(int(own.max(initial=1)), 1)


def check_weights(name: str, weights: Mapping[str, float], default: float) -> None:
    for key, weight in (*weights.items(), ("default", default)):
        if not 0 < weight < float("inf"):
            raise ParameterError(f"{name}: weights: {key}: found {weight}, a weight must be above 0")


def weights_of(
    context: Context, order: Mechanism, attribute: str, weights: Mapping[str, float], default: float
) -> list[float]:
    """One weight per code of the attribute; a name that is not there is warned of."""
    names = context.names[attribute]
    chosen = [default] * max(len(names), 1)
    code = {name: number for number, name in enumerate(names)}
    for name, weight in weights.items():
        if name in code:
            chosen[code[name]] = weight
        else:
            order.warn(context, f"weights: there is no {attribute} {name!r} here")
    return chosen


def whole_ratios(values: Sequence[float | Fraction]) -> list[int]:
    """The smallest whole numbers in the ratios of `values` (> 0): exact arithmetic needs no tolerance.

    ``[0.5, 1, 2.5] -> [1, 2, 5]``; a float counts as the simple fraction that it was written as. Values with no small common
    measure (many arbitrary decimals) are rounded to one part in 10^12 of the smallest.
    """
    exact = {value: exact_rate(value) for value in dict.fromkeys(values)}
    scale = 1
    for fraction in exact.values():
        scale = lcm(scale, fraction.denominator)
        if scale > _LARGEST:
            smallest = min(exact.values())
            return [round(exact[value] / smallest * 10**12) for value in values]
    whole = {value: fraction.numerator * (scale // fraction.denominator) for value, fraction in exact.items()}
    common = gcd(*whole.values())
    return [whole[value] // common for value in values]


def virtual_lengths(weights: Sequence[float]) -> list[int]:
    """Virtual length of one unit of cost per flow: whole numbers in the ratios of 1 / weight."""
    inverse = {weight: 1 / exact_rate(weight) for weight in dict.fromkeys(weights)}
    return whole_ratios([inverse[weight] for weight in weights])


def fair_alloc(
    demands: Sequence[float | Fraction], capacity: float | Fraction, weights: Sequence[float | Fraction] | None = None
) -> list[Fraction]:
    """Max-min fair shares of `capacity` (>= 0): nobody gets more than its demand, and nobody's share / weight could grow but at the
    cost of one whose share / weight is no larger. Exact; the reference that fair orders are measured against.

    ``fair_alloc([3, 7, 9, 1], 14) == [3, 5, 5, 1]``. Progressive filling (Bertsekas and Gallager 1992), O(n log n).
    """
    need = [Fraction(demand) for demand in demands]
    share = [Fraction(1) if weights is None else Fraction(weights[number]) for number in range(len(need))]
    left, weight_left = Fraction(capacity), sum(share, Fraction(0))
    given = [Fraction(0)] * len(need)
    for number in sorted(range(len(need)), key=lambda n: (need[n] / share[n], n)):
        given[number] = min(need[number], left * share[number] / weight_left)
        left -= given[number]
        weight_left -= share[number]
    return given
