"""GCRA: the bucket that refills continuously. APIs keep their allowances in it; the limits built on it are in `simkit.mechanisms.rate`."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor

from simkit.model import NEVER_NS, NS_PER_S

NEVER = -1
"""The answer of `Gcra.wait_ns` to a cost that no waiting can pay."""


def exact_rate(per_s: float | Fraction) -> Fraction:
    """The rate that was meant: the simplest fraction that reads as this float (relative 1e-14).

    ``100000 / 60`` is 5000/3 again, ``1 / 86400`` is one a day, and 0.1 is 1/10. Raises ValueError unless > 0 and finite.
    """
    if not 0 < per_s < float("inf"):
        raise ValueError(f"a rate must be above 0 and finite, found {per_s}")
    exact = Fraction(per_s)
    # a slow rate is simple in its period, a fast one in its rate
    simple = exact.limit_denominator(10**6) if exact >= 1 else 1 / (1 / exact).limit_denominator(10**6)
    return simple if abs(simple - exact) <= exact / 10**14 else exact


class Gcra:
    """Generic cell rate algorithm: at most `burst` at once, refilled one by one at `per_s`; starts full.

    Rule: with T = 1/per_s and the *theoretical arrival time* tat, a cost q may be taken at `now` iff
    ``max(now, tat) + q T - burst T <= now``; taking it moves tat to ``max(now, tat) + q T``. It decides exactly as a token
    bucket of `burst` tokens that refills at `per_s`: the tokens held are ``burst - max(0, tat - now) / T``. In any window
    of length D at most ``burst + floor(D / T)`` are taken. (ITU-T I.371; redis-cell, whose "max burst" is `burst` - 1.)

    All arithmetic is in whole numbers: T = period/scale ns with both whole, and tat is kept times scale, so a rate such
    as 7 per minute neither drifts nor rounds. Every method is O(1); time must not go backwards.

    Parameters: `per_s` tokens per second (> 0; a float is read by `exact_rate`), `burst` tokens (>= 1).
    """

    __slots__ = ("_burst_scaled", "_period", "_scale", "_tat", "burst", "fraction", "per_s")

    def __init__(self, per_s: float | Fraction, burst: int) -> None:
        if burst < 1:
            raise ValueError(f"a burst must be at least 1, found {burst}")
        self.per_s = exact_rate(per_s)
        self.burst = burst
        self.fraction = Fraction(1)
        self._tat = 0  # times _scale
        self._set_rate()

    def _set_rate(self) -> None:
        if self.fraction == 0:
            self._period, self._scale = NEVER_NS**2, 1  # no part of a token within any simulated time that shows
        else:
            period = NS_PER_S / (self.per_s * self.fraction)
            self._period, self._scale = period.numerator, period.denominator
        self._burst_scaled = self.burst * self._period

    def wait_ns(self, cost: int, now_ns: int) -> int:
        """How long until `cost` tokens (>= 0) may be taken, if nobody takes any before: 0 = now; `NEVER` (-1) when the
        cost is above the burst; never more than NEVER_NS. Changes nothing."""
        if cost > self.burst:
            return NEVER
        now = now_ns * self._scale
        tat = self._tat
        short = max(now, tat) + cost * self._period - self._burst_scaled - now
        if short <= 0:
            return 0
        wait = -(-short // self._scale)
        return min(wait, NEVER_NS)

    def take(self, cost: int, now_ns: int) -> None:
        """Take `cost` tokens. Raises ValueError, and takes nothing, when `wait_ns` is not 0."""
        if self.wait_ns(cost, now_ns) != 0:
            raise ValueError(f"{cost} tokens are not there: {self.peek_tokens(now_ns)} of {self.burst} are")
        self.charge(cost, now_ns)

    def charge(self, cost: int, now_ns: int) -> None:
        """Book `cost` tokens (>= 0) whatever is there: a bill above what was reserved leaves a debt to refill first."""
        now = now_ns * self._scale
        tat = self._tat
        self._tat = max(now, tat) + cost * self._period

    def give_back(self, cost: int, now_ns: int) -> None:
        """Return `cost` tokens (>= 0) that were taken and not used (true-up); what exceeds the burst is lost."""
        now = now_ns * self._scale
        tat = self._tat - cost * self._period
        self._tat = max(now, tat)

    def settle(self, reserved: int, used: int, now_ns: int) -> None:
        """True-up: `reserved` were taken, `used` is the bill."""
        if used > reserved:
            self.charge(used - reserved, now_ns)
        elif used < reserved:
            self.give_back(reserved - used, now_ns)

    def scale(self, fraction: float | Fraction, now_ns: int) -> None:
        """A fault leaves only `fraction` (>= 0) of the nominal allowance; 1 ends it.

        The refill becomes fraction x per_s (0: no refill). Tokens held above fraction x burst are lost, the others and
        any debt stay, so savings from before the cut do not outlive it; when a cut ends nothing is given back. The burst
        itself stays: a call that was possible stays possible, it waits longer. The held amount is rounded down by less
        than what one nanosecond refills.
        """
        exact = Fraction(0) if fraction == 0 else exact_rate(fraction)
        held = min(self._held(now_ns), exact * self.burst)
        self.fraction = exact
        self._set_rate()
        missing = (self.burst - held) * self._period
        self._tat = now_ns * self._scale - floor(-missing)

    def _held(self, now_ns: int) -> Fraction:
        ahead = self._tat - now_ns * self._scale
        return self.burst - Fraction(ahead, self._period) if ahead > 0 else Fraction(self.burst)

    def peek_tokens(self, now_ns: int) -> int:
        """Whole tokens held (rounded down; negative in debt): what a provider publishes as "remaining"."""
        ahead = self._tat - now_ns * self._scale
        return (self._burst_scaled - ahead) // self._period if ahead > 0 else self.burst

    def full_in_ns(self, now_ns: int) -> int:
        """Time until the bucket is full (rounded up): what a provider publishes as "reset"."""
        ahead = self._tat - now_ns * self._scale
        return min(-(-ahead // self._scale), NEVER_NS) if ahead > 0 else 0


def wait_all(buckets: Sequence[Gcra], costs: Sequence[int], now_ns: int) -> int:
    """How long until every bucket can pay its cost at once (all or nothing): the longest wait, `NEVER` if one never can.
    O(buckets); changes nothing."""
    longest = 0
    for bucket, cost in zip(buckets, costs, strict=True):
        wait = bucket.wait_ns(cost, now_ns)
        if wait < 0:
            return NEVER
        if wait > longest:
            longest = wait
    return longest
