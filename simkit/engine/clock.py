"""The clock: a SimPy environment that counts whole nanoseconds and runs plain calls beside ordinary events.

Order at one instant
--------------------
1. completions (`call_done`), 2. timers and SimPy events (`call_at`, ``env.timeout``, processes; urgent SimPy events
first), 3. arrivals, 4. one dispatch pass. Within a kind: in the order of creation. What these cause at the same instant
follows in further rounds of the same four steps.

Why a subclass: an event object, its callback list and a heap entry per completion cost more than all the rest of a
simulation step. Here a heap entry is ``(time, order, function, argument)``, arrivals are merged from the sorted trace and
never enter the heap, and ordinary SimPy processes still run unchanged (control loops are processes).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any

import simpy

from simkit.model import NEVER_NS

_KIND = 1 << 56
_URGENT_TIMER = 1 * _KIND
_TIMER = 2 * _KIND
_FOREVER = (2 * NEVER_NS, 0, None, None)

Entry = tuple[int, int, Any, Any]


def _fire(event: simpy.Event) -> None:
    """Run a SimPy event's callbacks, as `Environment.step` does."""
    callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
    for callback in callbacks:
        callback(event)
    if not event._ok and not event.defused:
        error = event._value
        raise type(error)(*error.args) from error


class Clock(simpy.Environment):
    """Time in integer nanoseconds from 0."""

    def __init__(self) -> None:
        super().__init__(initial_time=0)
        self.next_order: Callable[[], int] = count(1).__next__
        self.entries: list[Entry] = [_FOREVER]  # the heap; the sentinel spares the emptiness test
        self.events_done = 0
        """Heap entries processed so far (arrivals do not pass through the heap)."""
        self.arrivals_left = 0
        self._now: int = 0

    @property
    def now_ns(self) -> int:
        now: int = self._now
        return now

    def call_done(self, at_ns: int, function: Callable[[Any], object], argument: Any) -> None:
        """A completion: ``function(argument)`` at `at_ns`, before the timers of that instant."""
        heappush(self.entries, (at_ns, self.next_order(), function, argument))

    def call_at(self, at_ns: int, function: Callable[[Any], object], argument: Any = None) -> None:
        """A timer: ``function(argument)`` at `at_ns` (not before now), before the arrivals of that instant."""
        if at_ns < self._now:
            raise ValueError(f"a timer cannot fire in the past: asked for {at_ns} ns, now is {self._now} ns")
        if at_ns < NEVER_NS:
            heappush(self.entries, (at_ns, _TIMER + self.next_order(), function, argument))

    def start_loop(self, loop: Generator[simpy.Event, Any, Any]) -> simpy.Process:
        """Run a SimPy process on this clock; its delays are in ns."""
        return self.process(loop)

    def schedule(self, event: simpy.Event, priority: Any = 1, delay: Any = 0) -> None:
        """SimPy's own hook: events become timers, urgent ones first."""
        kind = _URGENT_TIMER if priority == 0 else _TIMER
        heappush(self.entries, (self._now + delay, kind + self.next_order(), _fire, event))

    def peek(self) -> Any:
        """Time of the next entry, infinity when there is none (SimPy's contract)."""
        at = self.entries[0][0]
        return float("inf") if at > NEVER_NS else at

    def step(self) -> None:
        """Process one entry (for SimPy's ``run(until=...)``; `drive` is the fast way)."""
        if self.entries[0][0] > NEVER_NS:
            raise simpy.core.EmptySchedule
        self._now, _, function, argument = heappop(self.entries)
        self.events_done += 1
        function(argument)

    def drive(
        self,
        arrivals_ns: Sequence[int],
        on_arrival: Callable[[int], object],
        dirty: list[Any],
        on_dispatch: Callable[[], object],
        horizon_ns: int = NEVER_NS,
    ) -> None:
        """Run until nothing is left or the next thing lies beyond `horizon_ns`.

        `arrivals_ns` is sorted; ``on_arrival(i)`` is called for each. ``on_dispatch()`` closes every round that left
        something in `dirty`. At the horizon itself everything still happens.
        """
        entries, index, done = self.entries, 0, 0
        upcoming = list(arrivals_ns)
        upcoming.append(_FOREVER[0])
        self.arrivals_left = len(arrivals_ns)
        next_arrival = upcoming[0]
        try:
            while True:
                now = entries[0][0]
                if next_arrival < now:
                    now = next_arrival
                if now > horizon_ns or now > NEVER_NS:
                    break
                self._now = now
                while entries[0][0] == now:
                    _, _, function, argument = heappop(entries)
                    done += 1
                    function(argument)
                while next_arrival == now:
                    index += 1
                    next_arrival = upcoming[index]
                    self.arrivals_left -= 1
                    on_arrival(index - 1)
                if dirty:
                    on_dispatch()
        finally:
            self.events_done += done
