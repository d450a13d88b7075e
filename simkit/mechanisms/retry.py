"""The platform's retry layer: backoff with jitter, and a budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simkit.mechanisms.base import Context, ParameterError, Retry, mechanism
from simkit.mechanisms.bucket import exact_rate
from simkit.model import NEVER_NS, NS_PER_S
from simkit.units import Count, Factor, Fraction, PositiveCount, PositiveDuration

Errors = Literal["error", "throttled", "hang"]


class RetryBudget:
    """Retries in proportion to first attempts: each first attempt earns `ratio`, each retry costs 1.

    It starts with `start` and never holds more than `most` (what is earned above is lost), so of n first attempts at most
    ``start + ratio x n`` are retried. Whole-number arithmetic: ten times 10 % is exactly one retry (ratios rounded to whole
    attempts per retry, as some libraries do, allow 33 % for 30 % and 100 % for 60 %).
    """

    __slots__ = ("_earn", "_most", "_price", "_tokens")

    def __init__(self, ratio: float, start: int, most: int) -> None:
        exact = exact_rate(ratio) if ratio else exact_rate(1) * 0
        self._earn, self._price = exact.numerator, exact.denominator
        self._tokens, self._most = start * self._price, most * self._price

    def earn(self) -> None:
        """A first attempt starts."""
        self._tokens = min(self._tokens + self._earn, self._most)

    def spend(self) -> bool:
        """Pay for one retry; False, and nothing is paid, when there is not enough."""
        if self._tokens < self._price:
            return False
        self._tokens -= self._price
        return True


@mechanism("backoff")
@dataclass(eq=False)
class Backoff(Retry):
    """Try a failed attempt again after a growing, randomised delay.

    Rule: after failed attempt k (from 1) the ceiling is v = min(`cap`, `base` x `multiplier`^(k-1)). The delay is, by `jitter`:
    ``none`` v; ``full`` uniform in [0, v]; ``equal`` v/2 + uniform in [0, v/2]; ``decorrelated`` min(`cap`, uniform in [`base`, 3 x the
    row's previous delay]), the first from [`base`, 3 `base`]. A Retry-After is a lower bound: with jitter the drawn delay comes on top of it, so those that
    were told the same time do not come back together; without jitter the longer of the two counts. The row is given up at
    `max_attempts`, on an error not in `on`, and when the budget is empty.

    Parameters: `base`, `cap`: durations, base <= cap. `multiplier` >= 1. `jitter`: full | equal | decorrelated | none. `max_attempts`: in all, the
    first included. `budget`: retries per first attempt, e.g. 10 % (default: no budget); `budget_start`: retries in hand at the start;
    `budget_most`: the most it saves up; retries <= `budget_start` + `budget` x first attempts. `on`: errors that are retried.

    With failure probability p per attempt and n = `max_attempts` the mean number of attempts is (1 - p^n) / (1 - p).
    Complexity: O(1). Source: Brooker, "Exponential backoff and jitter" (AWS 2015), whose exponent starts at 1 where ours starts at 0; gRPC, Finagle
    (budgets).
    """

    base: PositiveDuration = NS_PER_S
    cap: PositiveDuration = 60 * NS_PER_S
    multiplier: Factor = 2.0
    jitter: Literal["full", "equal", "decorrelated", "none"] = "full"
    max_attempts: PositiveCount = 4
    budget: Fraction | None = None
    budget_start: Count = 10
    budget_most: Count = 100
    on: list[Errors] = field(default_factory=lambda: ["error", "throttled", "hang"])

    def __post_init__(self) -> None:
        if self.base > self.cap:
            raise ParameterError("backoff: base must not be above cap")
        if not 1 <= self.multiplier < float("inf"):
            raise ParameterError(f"backoff: multiplier must be at least 1, found {self.multiplier}")
        if self.max_attempts < 1:
            raise ParameterError("backoff: max_attempts counts the first attempt too: at least 1")
        if not self.on:
            raise ParameterError("backoff: on: name at least one of error, throttled and hang")
        if self.budget is None and (self.budget_start, self.budget_most) != (10, 100):
            raise ParameterError("backoff: budget_start and budget_most have no effect without budget")
        if self.budget is not None and self.budget_start > self.budget_most:
            raise ParameterError("backoff: budget_start must not be above budget_most")

    def bind(self, context: Context) -> None:
        self._rng = context.rng("jitter")
        self._errors = frozenset(self.on)
        self._previous: dict[int, int] = {}
        self._budget = None if self.budget is None else RetryBudget(self.budget, self.budget_start, self.budget_most)

    def first(self, row: int, now_ns: int) -> None:
        if self._budget is not None:
            self._budget.earn()

    def delay_ns(self, row: int, attempt: int, error: str, retry_after_ns: int, now_ns: int) -> int | None:
        if attempt >= self.max_attempts or error not in self._errors:
            self._previous.pop(row, None)
            return None
        if self._budget is not None and not self._budget.spend():
            self._previous.pop(row, None)
            return None
        drawn = self._draw(row, attempt)
        if self.jitter == "none":
            return min(max(drawn, retry_after_ns), NEVER_NS)
        return min(retry_after_ns + drawn, NEVER_NS)

    def _draw(self, row: int, attempt: int) -> int:
        if self.jitter == "decorrelated":
            longest = 3 * self._previous.get(row, self.base)
            delay = min(self.cap, self.base + round(self._rng.random() * (longest - self.base)))
            self._previous[row] = delay
            return delay
        ceiling = self._ceiling(attempt)
        if self.jitter == "none":
            return ceiling
        if self.jitter == "full":
            return round(self._rng.random() * ceiling)
        return ceiling // 2 + round(self._rng.random() * (ceiling - ceiling // 2))

    def _ceiling(self, attempt: int) -> int:
        try:
            return round(min(self.base * self.multiplier ** (attempt - 1), self.cap))
        except OverflowError:
            return self.cap
