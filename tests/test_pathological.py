"""Mechanisms that are bad on purpose do what they are there to do."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from engine_harness import jobs, poisson_jobs, run
from mechanism_harness import FakeContext, bound

from simkit.mechanisms.overload import Hysteresis, Level
from simkit.mechanisms.pathological import HoldAll, Immediate, NoRestraint, OneThreshold, RejectAll
from simkit.model import NS_PER_S, Hold, Outcome, Verdict


def test_reject_all_turns_every_run_away() -> None:
    decision = RejectAll(retry_after=5 * NS_PER_S).decide(0, 0)
    assert decision is not None
    assert (decision.verdict, decision.retry_after_ns) == (Verdict.REJECT, 5 * NS_PER_S)
    log = run(jobs([0, 1, 2], [1, 1, 1]), {"w": 1}, slots={"admission": ["reject_all"]})
    assert log.runs.outcome.tolist() == [Outcome.REJECTED] * 3
    assert (log.rows.start_ns == -1).all()


@pytest.mark.parametrize("order", ["fifo", "strict_priority", "weighted_fair", "drr"])
def test_no_restraint_gives_the_starts_of_no_limit(order: str) -> None:
    """The same simulation with and without the machinery of limits."""
    draw = np.random.default_rng(2)
    trace = poisson_jobs(
        2, 400, 3.0, tenant=[f"t{code}" for code in draw.integers(0, 5, 400)], priority=draw.integers(0, 3, 400)
    )
    assert NoRestraint().hold(0, 0) is None
    free = run(trace, {"w": 2}, order)
    limited = run(trace, {"w": 2}, order, slots={"limits": ["no_restraint"]})
    assert limited.rows.start_ns.tolist() == free.rows.start_ns.tolist()


def test_hold_all_ends_in_a_deadlock_that_is_named() -> None:
    assert HoldAll().hold(0, 0) == Hold("all", "hold_all")
    log = run(jobs([0, 1], [1, 1]), {"w": 1}, slots={"limits": ["hold_all"]})
    assert log.header["status"] == "deadlock"
    assert log.runs.outcome.tolist() == [Outcome.UNFINISHED] * 2


def test_one_threshold_flaps_where_two_hold_still() -> None:
    """P30: utilisation alternates between 85 % and 95 %, 200 samples. One threshold at 90 % changes its mind at each of the 199 later ones;
    enter 90 %, leave 70 % goes up once and stays."""
    context = FakeContext(1)
    context.view.slots = [20]
    changes = {}
    for overload in (OneThreshold(threshold=0.9), Hysteresis(modes={"hot": Level(enter=0.9, leave=0.7)})):
        bound(overload, context)
        modes = ["normal"]
        for sample in range(200):
            context.view.used = [17 + 2 * (sample % 2)]
            modes.append(overload.observe(sample * NS_PER_S))
        changes[overload.mechanism_name] = sum(a != b for a, b in pairwise(modes))
    assert changes == {"one_threshold": 199, "hysteresis": 1}
    assert OneThreshold(optional_width=0.25).actions("hot").optional_width == 0.25
    assert OneThreshold().actions("normal").optional_width == 1.0


def test_immediate_retries_at_once_until_its_last_attempt() -> None:
    retry = Immediate(max_attempts=3)
    assert [retry.delay_ns(0, attempt, "error", 0, 0) for attempt in (1, 2, 3)] == [0, 0, None]
    assert retry.delay_ns(0, 1, "throttled", 7, 0) == 7
