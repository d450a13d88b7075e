"""Attempts: one execution of a row, from the slot it takes to success or failure, with the retry layers below the client."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappush
from typing import TYPE_CHECKING

from simkit.engine.backoff import Budget, delay_ns
from simkit.engine.external import Failure, Provider
from simkit.mechanisms.base import Limit, Retry
from simkit.model import NS_PER_S, ClientSpec
from simkit.rng import keyed_uniform

if TYPE_CHECKING:
    from simkit.engine.pool import Pool
    from simkit.engine.tables import Shape
    from simkit.engine.world import World

_SDK = 0x73646B  # purpose key of the SDK's jitter
_EVENT_OF = {"throttled": "throttled", "error": "api_error", "hang": "api_hang"}


class Attempts:
    """Starts rows on slots and brings them to an end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._provider = Provider(world)
        limits = world.mechanisms.limits
        self._starts = [limit.start for limit in limits if type(limit).start is not Limit.start]
        self._finishes = [limit.finish for limit in limits if type(limit).finish is not Limit.finish]
        self.leavers = [limit.left for limit in limits if type(limit).left is not Limit.left]
        self._retry = world.mechanisms.retry
        self._earns = self._retry is not None and type(self._retry).first is not Retry.first
        self._running: dict[int, int] | None = None  # row -> pool, kept only when a backfill plans with it
        self._sdk_budgets: dict[int, Budget] = {}

    def keep_running_rows(self) -> None:
        self._running = {}

    def running_in(self, pool: int) -> Iterable[int]:
        """Rows running in `pool`, in order of start (after `keep_running_rows`)."""
        assert self._running is not None
        return [row for row, place in self._running.items() if place == pool]

    def start(self, row: int, pool: Pool, shape: Shape) -> None:
        """All gates agreed: take what `shape` names and begin."""
        world = self._world
        now_ns = world.clock._now
        pool.used += shape.slots
        for place, slots in shape.others:
            world.pools[place].take_slots(slots)
        for start in self._starts:
            start(row, now_ns)
        for counter in pool.running_counters:
            counter.add(row, shape.slots)
        if self._running is not None:
            self._running[row] = pool.number
        world.running += 1
        world.attempts[row] += 1
        world.start_ns[row] = now_ns
        if world.attempts[row] == 1 and self._earns and self._retry is not None:
            self._retry.first(row, now_ns)
        if shape.calls or pool.slow != 1.0:
            self._execute(row, 1)
        else:
            clock = world.clock
            heappush(clock.entries, (now_ns + world.service_ns[row], clock.next_order(), self._succeeded, row))

    def _execute(self, row: int, number: int) -> None:
        """The try `number` (from 1) inside the attempt: the calls first, then the work."""
        world = self._world
        now_ns = world.clock.now_ns
        shape = world.layout.shapes[world.shape[row]]
        pool = world.pools[shape.pool]
        latency_ns = 0
        if shape.calls:
            if number == 1:
                self._count_first_try(row, shape)
            answer = self._provider.call(row, shape, self._luck(row, number), now_ns)
            if isinstance(answer, Failure):
                world.clock.call_done(now_ns + answer.lasts_ns, self._call_failed, (row, number, answer))
                return
            latency_ns = answer
        service_ns = world.service_ns[row]
        slow = pool.slow
        if slow != 1.0:
            service_ns = round(service_ns * slow)
        world.clock.call_done(now_ns + service_ns + latency_ns, self._succeeded, row)

    def _count_first_try(self, row: int, shape: Shape) -> None:
        """The first call of an attempt earns the SDK's retry budget; that of a row's first attempt is a logical call."""
        world = self._world
        client = world.client_of(row)
        if client is not None:
            self._sdk_budget(client).earn()
        if world.attempts[row] == 1 and world.live_of(row).attempt == 0:
            for api, requests in shape.calls:
                world.apis[api].logical_calls += requests

    def _luck(self, row: int, number: int) -> tuple[int, ...]:
        world = self._world
        submission = world.live_of(row)
        return (world.luck[submission.run], world.task[row], submission.attempt, world.attempts[row], number)

    def _call_failed(self, failed: tuple[int, int, Failure]) -> None:
        """A call inside the attempt did not work: the SDK layer may try again while the slots stay taken."""
        row, number, failure = failed
        world = self._world
        now_ns = world.clock.now_ns
        retry_after_s = failure.retry_after_ns / NS_PER_S
        name = world.apis[failure.api].spec.name
        world.recorder.event(now_ns, _EVENT_OF[failure.kind], world.rows.run[row], row, name, retry_after_s)
        client = world.client_of(row)
        if client is not None and number < client.sdk.attempts and self._sdk_budget(client).spend():
            luck = keyed_uniform(_SDK, *self._luck(row, number))
            delay = max(delay_ns(client.sdk, number, luck), failure.retry_after_ns)
            world.recorder.event(now_ns, "sdk_retry", world.rows.run[row], row, name, delay / NS_PER_S)
            world.clock.call_at(now_ns + delay, self._try_again, (row, number + 1))
            return
        self._failed(row, failure)

    def _try_again(self, arguments: tuple[int, int]) -> None:
        self._execute(*arguments)

    def _sdk_budget(self, client: ClientSpec) -> Budget:
        return self._sdk_budgets.setdefault(id(client), Budget(client.sdk.budget))

    def _succeeded(self, row: int) -> None:
        world = self._world
        shape = world.layout.shapes[world.shape[row]]
        if shape.calls:
            self._provider.done(row, shape, world.clock.now_ns)
        self._end(row, shape)
        world.lifecycle.task_done(row)

    def _failed(self, row: int, failure: Failure) -> None:
        """The attempt ends badly; the platform's retry layer decides whether there is another."""
        world = self._world
        now_ns = world.clock.now_ns
        self._end(row, world.layout.shapes[world.shape[row]])
        attempt, run = world.attempts[row], world.rows.run[row]
        delay = None
        submission = world.live_of(row)
        if self._retry is not None and not submission.dead:
            delay = self._retry.delay_ns(row, attempt, failure.kind, failure.retry_after_ns, now_ns)
        reason = f"{failure.kind}:{world.apis[failure.api].spec.name}"
        if delay is None:
            world.recorder.event(now_ns, "gave_up", run, row, reason, attempt)
            world.lifecycle.task_failed(row, reason, dead_letter=self._retry is not None)
            return
        self.log_attempt(row, reason)
        world.recorder.event(now_ns, "retry", run, row, reason, delay / NS_PER_S)
        world.clock.call_at(now_ns + delay, self._queue_again, row)

    def log_attempt(self, row: int, error: str) -> None:
        """The attempt that just ended is not the row's last one."""
        world = self._world
        world.recorder.attempts.append(
            (row, world.attempts[row], world.ready_ns[row], world.start_ns[row], world.end_ns[row],
             world.recorder.reason(error))
        )  # fmt: skip
        world.ready_ns[row] = world.start_ns[row] = world.end_ns[row] = -1

    def _queue_again(self, row: int) -> None:
        world = self._world
        if world.live_of(row).dead:
            world.lifecycle.cancel(row)
        else:
            world.pools[world.rows.pool[row]].push(row, world.clock.now_ns)

    def _end(self, row: int, shape: Shape) -> None:
        """Give back what the attempt held."""
        world = self._world
        now_ns = world.clock._now
        world.end_ns[row] = now_ns
        world.running -= 1
        pool = world.pools[shape.pool]
        if self._running is not None:
            del self._running[row]
        for counter in pool.running_counters:
            counter.add(row, -shape.slots)
        for finish in self._finishes:
            finish(row, now_ns)
        if pool.tells_finished:
            pool.order.finished(row, now_ns)
        pool.free_slots(shape.slots)
        for place, slots in shape.others:
            world.pools[place].free_slots(slots)
