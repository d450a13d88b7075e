"""The clock: integer time, the documented order at one instant, SimPy processes unchanged."""

from __future__ import annotations

import pytest
import simpy

from simkit.engine.clock import Clock
from simkit.model import NEVER_NS


def drive(clock: Clock, arrivals: list[int], log: list[str], horizon_ns: int = NEVER_NS) -> None:
    dirty: list[str] = []

    def arrive(number: int) -> None:
        log.append(f"arrival {number}")
        dirty.append("x")

    def dispatch() -> None:
        dirty.clear()
        log.append("dispatch")

    clock.drive(arrivals, arrive, dirty, dispatch, horizon_ns)


def test_one_instant_runs_completions_then_timers_then_arrivals_then_one_dispatch() -> None:
    clock, log = Clock(), []
    clock.call_at(5, log.append, "timer")
    clock.call_done(5, log.append, "completion")
    drive(clock, [5, 5], log)
    assert log == ["completion", "timer", "arrival 0", "arrival 1", "dispatch"]


def test_entries_of_one_kind_keep_the_order_of_creation() -> None:
    clock, log = Clock(), []
    for name in "cab":
        clock.call_done(3, log.append, name)
    drive(clock, [], log)
    assert log == ["c", "a", "b"]


def test_what_an_instant_causes_at_once_follows_at_the_same_instant() -> None:
    clock, log = Clock(), []
    clock.call_at(2, lambda _: clock.call_done(2, log.append, f"at {clock.now_ns}"))
    drive(clock, [2], log)
    assert log == ["at 2", "arrival 0", "dispatch"]


def test_simpy_processes_and_events_run_unchanged() -> None:
    clock, log = Clock(), []

    def worker(env: simpy.Environment, store: simpy.Store):
        while True:
            item = yield store.get()
            log.append((env.now, item))

    def source(env: simpy.Environment, store: simpy.Store):
        for item in "xy":
            yield env.timeout(10)
            yield store.put(item)

    store = simpy.Store(clock)
    clock.process(worker(clock, store))
    clock.process(source(clock, store))
    clock.run(until=100)
    assert log == [(10, "x"), (20, "y")]
    assert clock.now == 100


def test_an_error_in_a_process_comes_out() -> None:
    clock = Clock()

    def broken(env: simpy.Environment):
        yield env.timeout(1)
        raise RuntimeError("broken loop")

    clock.process(broken(clock))
    with pytest.raises(RuntimeError, match="broken loop"):
        drive(clock, [], [])


def test_nothing_happens_after_the_horizon_and_everything_at_it() -> None:
    clock, log = Clock(), []
    clock.call_done(7, log.append, "at the horizon")
    clock.call_done(8, log.append, "after it")
    drive(clock, [7, 9], log, horizon_ns=7)
    assert log == ["at the horizon", "arrival 0", "dispatch"]
    assert clock.now_ns == 7


def test_a_timer_in_the_past_is_refused() -> None:
    clock = Clock()
    clock.call_done(5, lambda _: clock.call_at(4, print), None)
    with pytest.raises(ValueError, match="past"):
        drive(clock, [], [])


def test_arrivals_do_not_pass_through_the_heap() -> None:
    clock, log = Clock(), []
    drive(clock, list(range(1000)), log)
    assert clock.events_done == 0
    assert log.count("dispatch") == 1000
