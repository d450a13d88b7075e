"""Backoff of the retry layers that belong to the world (clients, SDKs), with keyed luck so that policies share it.

Formulas: none min(cap, base m^(k-1)); full U(0, that); equal half of it plus U(0, half); decorrelated min(cap, U(base, 3 previous))
(Brooker, "Exponential backoff and jitter", AWS 2015).
"""

from __future__ import annotations

from simkit.model import NEVER_NS, RetrySpec


def delay_ns(spec: RetrySpec, retry: int, luck: float, previous_ns: int = 0) -> int:
    """Delay before retry number `retry` (from 1); `luck` is uniform in [0, 1), `previous_ns` the last delay."""
    cap = spec.cap_ns or NEVER_NS
    ceiling = min(float(cap), spec.base_ns * spec.multiplier ** (retry - 1))
    if spec.jitter == "full":
        return round(luck * ceiling)
    if spec.jitter == "equal":
        return round(ceiling / 2 + luck * ceiling / 2)
    if spec.jitter == "decorrelated":
        low, high = spec.base_ns, 3 * max(previous_ns, spec.base_ns)
        return min(cap, round(low + luck * (high - low)))
    return round(ceiling)


BUDGET_START, BUDGET_MOST = 10.0, 100.0
"""A retry budget holds this many retries at first, and never more than that (as the policy's `backoff` does)."""


class Budget:
    """Retries allowed per first attempt: each first attempt earns `ratio`, each retry costs one (None = no limit).

    Retries <= BUDGET_START + ratio x first attempts, and at most BUDGET_MOST of them are saved up.
    """

    __slots__ = ("_ratio", "_tokens")

    def __init__(self, ratio: float | None) -> None:
        self._ratio, self._tokens = ratio, BUDGET_START

    def earn(self) -> None:
        """A first attempt."""
        if self._ratio is not None:
            self._tokens = min(BUDGET_MOST, self._tokens + self._ratio)

    def spend(self) -> bool:
        """One retry; False when the budget does not allow it."""
        if self._ratio is None:
            return True
        if self._tokens < 1.0 - 1e-9:  # ten times 0.1 is one retry
            return False
        self._tokens -= 1.0
        return True
