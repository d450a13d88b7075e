"""External APIs: provider limits, latency, outages. The provider decides here; what a policy knows of it is in mechanisms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simkit.mechanisms.bucket import Gcra
from simkit.model import ApiSpec
from simkit.rng import keyed_uniform

if TYPE_CHECKING:
    from simkit.engine.pool import Pool
    from simkit.engine.tables import Shape
    from simkit.engine.world import World

_FAILS = 0x66616C  # purpose key of the failure draw


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that did not work: `kind` is "throttled" (429), "error" (503) or "hang"; it took `lasts_ns`."""

    api: int
    kind: str
    lasts_ns: int
    retry_after_ns: int = 0


class Api:
    """One provider. Calls beside a pool hold one unit of its concurrency, as queued calls do."""

    def __init__(self, number: int, spec: ApiSpec, pool: Pool) -> None:
        self.number, self.spec, self.pool = number, spec, pool
        self.buckets = [(limit.unit, Gcra(limit.per_s, limit.burst)) for limit in spec.limits]
        self.down: str | None = None  # "error" | "hang" while an outage lasts
        self.slow = 1.0
        self.calls = 0
        self.logical_calls = 0
        self.throttled = 0

    def wait_ns(self, requests: int, tokens: int, now_ns: int) -> int:
        """How long until every limit would accept the call; 0 = now, -1 = never (more than a limit's burst)."""
        longest = 0
        for unit, bucket in self.buckets:
            wait = bucket.wait_ns(requests if unit == "requests" else tokens, now_ns)
            if wait < 0:
                return -1
            longest = max(longest, wait)
        return longest

    def take(self, requests: int, tokens: int, now_ns: int) -> None:
        for unit, bucket in self.buckets:
            bucket.take(requests if unit == "requests" else tokens, now_ns)

    def settle(self, reserved: int, used: int, now_ns: int) -> None:
        """True-up of token limits after a call that reserved more or less than it used."""
        if reserved != used:
            for unit, bucket in self.buckets:
                if unit == "tokens":
                    bucket.settle(reserved, used, now_ns)


class Provider:
    """Answers the calls that an attempt makes: all of them, or one failure and nothing consumed."""

    def __init__(self, world: World) -> None:
        self._world = world

    def call(self, row: int, shape: Shape, key: tuple[int, ...], now_ns: int) -> Failure | int:
        """Make every call of `shape` at once. Returns the longest latency in ns, or the first failure (in order of APIs).

        `key` identifies the try (run's luck, task, attempt, ...): the failure draw depends on it alone.
        """
        world = self._world
        tokens = world.rows.tokens[row]
        latency_ns = 0
        for number, requests in shape.calls:
            api = world.apis[number]
            api.calls += requests
            failure = self._failure(api, shape, requests, tokens, key, now_ns)
            if failure is not None:
                if failure.kind == "throttled":
                    api.throttled += 1
                return failure
            latency_ns = max(latency_ns, round(api.spec.latency_ns * api.slow))
        for number, requests in shape.calls:
            api = world.apis[number]
            api.take(requests, tokens, now_ns)
            if api.pool.number != shape.pool:
                api.pool.take_slots(1)
        return latency_ns

    def done(self, row: int, shape: Shape, now_ns: int) -> None:
        """The attempt whose calls were accepted ended: concurrency is given back, tokens are trued up."""
        world = self._world
        reserved, used = world.rows.tokens[row], world.tokens_used[row]
        for number, _ in shape.calls:
            api = world.apis[number]
            api.settle(reserved, used, now_ns)
            if api.pool.number != shape.pool:
                api.pool.free_slots(1)

    def _failure(
        self, api: Api, shape: Shape, requests: int, tokens: int, key: tuple[int, ...], now_ns: int
    ) -> Failure | None:
        spec = api.spec
        if api.down == "error":
            return Failure(api.number, "error", spec.error_latency_ns)
        if api.down == "hang":
            return Failure(api.number, "hang", spec.hang_timeout_ns)
        wait_ns = api.wait_ns(requests, tokens, now_ns)
        if wait_ns:
            return Failure(api.number, "throttled", spec.error_latency_ns, max(wait_ns, 0))
        if api.pool.number != shape.pool and api.pool.used >= api.pool.capacity:
            return Failure(api.number, "throttled", spec.error_latency_ns, spec.latency_ns)
        if spec.error_p and keyed_uniform(_FAILS, api.number, *key) < spec.error_p:
            return Failure(api.number, "error", spec.error_latency_ns)
        return None
