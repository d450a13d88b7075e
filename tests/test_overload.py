"""Overload modes: hysteresis against flapping, jumps over levels, dwell, and what each mode does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limit_harness import Bench, S, bound
from pydantic import TypeAdapter

from simkit.mechanisms.base import ParameterError
from simkit.mechanisms.overload import Action, Hysteresis, Level, next_level
from simkit.model import UsageError

LADDER = {
    "constrained": Level(0.80, 0.65),
    "severe": Level(0.90, 0.75),
    "emergency": Level(0.97, 0.85),
}


def transitions(samples: list[float], enter: list[float], leave: list[float]) -> int:
    level, changes = 0, 0
    for sample in samples:
        new = next_level(level, sample, enter, leave)
        changes += new != level
        level = new
    return changes


def test_a_signal_around_one_threshold_flaps_200_times_and_once_with_a_gap() -> None:
    # P30: 200 samples alternating .95 and .85. One threshold of .9 changes at every sample; enter .9, leave .7 changes once.
    samples = [0.95, 0.85] * 100
    assert transitions(samples, [0.9], [0.9]) == 200
    assert transitions(samples, [0.9], [0.7]) == 1


class Probe:
    """A hysteresis on one pool of 100 slots whose utilisation the test sets, sampled once a second."""

    def __init__(self, **parameters: Any) -> None:
        self.bench = Bench([{}], pools={"gpu": 100})
        self.governor = bound(Hysteresis(**{"modes": LADDER, **parameters}), self.bench)

    def modes(self, *percentages: int) -> list[str]:
        seen = []
        for used in percentages:
            self.bench.used[0] = used
            self.bench.now_ns += S
            seen.append(self.governor.observe(self.bench.now_ns))
        return seen


def test_modes_are_entered_at_one_threshold_and_left_below_another() -> None:
    assert Probe().modes(79, 80, 66, 65, 64) == ["normal", "constrained", "constrained", "constrained", "normal"]


def test_a_jump_goes_straight_to_the_highest_level_reached() -> None:
    assert Probe().modes(99, 86, 85, 84) == ["emergency", "emergency", "emergency", "severe"]


def test_a_collapse_goes_down_through_every_level_it_is_below() -> None:
    assert Probe().modes(99, 70, 99, 10) == ["emergency", "constrained", "emergency", "normal"]
    # 84 % leaves emergency (below .85) but not severe (.75); it does not fall back up
    assert Probe().modes(99, 84, 90, 96) == ["emergency", "severe", "severe", "severe"]


def test_dwell_delays_the_way_down_and_never_the_way_up() -> None:
    probe = Probe(dwell=3 * S)
    assert probe.modes(85, 10, 10, 10, 95, 99, 10, 10, 10) == [
        "constrained", "constrained", "constrained", "normal",  # 3 s after it was entered
        "severe", "emergency",  # at once
        "emergency", "emergency", "normal",  # 3 s after the last change
    ]  # fmt: skip


def test_without_smoothing_the_sample_counts_and_with_it_the_average() -> None:
    assert Probe().modes(100) == ["emergency"]
    probe = Probe(smoothing=0.5)
    # averages: 0, .5, .75, .875, .9375, .96875, .984
    assert probe.modes(0, 100, 100, 100, 100, 100, 100) == [
        "normal", "normal", "normal", "constrained", "severe", "severe", "emergency",
    ]  # fmt: skip
    assert probe.governor.signal_value == 1 - 0.5**6


@given(st.lists(st.floats(0, 1), max_size=200), st.integers(0, 5))
def test_switches_are_bounded_by_the_swings_through_a_whole_gap(samples: list[float], dwell: int) -> None:
    """From one entry of a mode to the next the signal must have been below its leave threshold, and with a dwell of d samples
    the ways down are at least d apart."""
    probe = Probe(dwell=dwell * S)
    levels = ["normal", *LADDER]
    before, changed_at = 0, 0
    for number, sample in enumerate(samples, 1):
        mode = levels.index(probe.modes(sample * 100)[0])  # type: ignore[arg-type]
        value = probe.governor.signal_value
        if mode > before:
            assert value >= LADDER[levels[mode]].enter
        elif mode < before:
            assert all(value < LADDER[levels[level]].leave for level in range(mode + 1, before + 1))
            assert number - changed_at >= dwell
        if mode != before:
            before, changed_at = mode, number


def test_the_signals_read_what_they_say() -> None:
    bench = Bench([{}], pools={"gpu": 4, "cpu": 2, "free": None})
    bench.used, bench.work_ns, bench.oldest_ns = [3, 1, 9], [40 * S, 30 * S, 9000 * S], [2 * S, S, 7 * S]

    def signal(name: Any, pool: str | None = None) -> float:
        governor = bound(Hysteresis(modes={"hot": Level(1e9, 1)}, signal=name, pool=pool), bench)
        governor.observe(0)
        value: float = governor.signal_value
        return value

    assert signal("max_utilisation") == 0.75
    assert signal("utilisation", "cpu") == 0.5
    assert signal("queued_work_s") == 40  # slot-seconds, over the limited pools
    assert signal("queued_work_s", "cpu") == 30
    assert signal("drain_s") == 15  # 30 / 2 slots beats 40 / 4
    assert signal("queue_age_s") == 7  # waiting too long is told of an unlimited pool too
    bench.capacity_of[1] = 0
    assert signal("drain_s", "cpu") == float("inf")


DO = {
    "constrained": [{"optional_width": 0.5}, {"defer": ["background"]}],
    "severe": [{"tier": "small"}, {"defer": ["automation"], "defer_for": 60 * S}],
    "emergency": [{"only": ["incident"]}, {"optional_width": 0.0, "skip_verification": ["background"]}],
}


def test_graver_modes_keep_what_milder_ones_do() -> None:
    bench = Bench([{"class": c} for c in ("background", "automation", "incident")], tiers=["small"])
    governor = bound(Hysteresis(modes=LADDER, do=DO), bench)
    told = [
        (
            a.optional_width,
            sorted(a.defer),
            a.defer_ns // S,
            a.tier,
            a.only and sorted(a.only),
            sorted(a.skip_verification),
        )
        for a in (governor.actions(mode) for mode in ("normal", *LADDER))
    ]
    assert told == [
        (1.0, [], 30, None, None, []),
        (0.5, ["background"], 30, None, None, []),
        (0.5, ["automation", "background"], 60, "small", None, []),
        (0.0, ["automation", "background"], 60, "small", ["incident"], ["background"]),
    ]
    assert not governor.warnings


def test_a_policy_for_everywhere_only_warns_of_what_is_not_here() -> None:
    bench = Bench([{"class": "background"}])
    governor = bound(Hysteresis(modes=LADDER, do=DO), bench)
    assert sorted(governor.warnings) == [
        "there are no tiers here: 'small' has no effect",
        "there are no tiers here: 'small' has no effect",  # of severe and of emergency
        "there is no class 'automation' here",
        "there is no class 'incident' here",
    ]
    assert governor.actions("severe").tier is None
    with pytest.raises(UsageError, match="did you mean 'small'"):
        bound(Hysteresis(modes=LADDER, do={"severe": [{"tier": "smal"}]}), Bench([{}], tiers=["small"]))


def test_a_document_gives_levels_and_actions() -> None:
    do = TypeAdapter(dict[str, list[Action]]).validate_python({"hot": [{"optional_width": "50%"}, {"defer_for": "1m"}]})
    assert do["hot"] == [Action(optional_width=0.5), Action(defer_for=60 * S)]
    assert TypeAdapter(Level).validate_python({"enter": 0.9, "leave": 0.7}) == Level(0.9, 0.7)
    for wrong in ({"enter": 0.9, "leave": 0.7, "exit": 1}, {"enter": 0.9}, {"enter": True, "leave": 0}):
        with pytest.raises(ValueError, match="validation error"):
            TypeAdapter(Level).validate_python(wrong)


def test_levels_that_would_flap_or_contradict_are_refused() -> None:
    def one(enter: float, leave: float) -> dict[str, Level]:
        return {"hot": Level(enter, leave)}

    cases: list[tuple[dict[str, Any], str]] = [
        ({"modes": one(0.9, 0.9)}, "must be above leave"),
        ({"modes": one(0.7, 0.9)}, "must be above leave"),
        ({"modes": {}}, "at least one mode"),
        ({"modes": {"normal": Level(0.9, 0.7)}}, "'normal' is the mode"),
        ({"modes": {"a": Level(0.9, 0.7), "b": Level(0.8, 0.7)}}, "b comes after a"),
        ({"modes": {"a": Level(0.9, 0.7), "b": Level(0.95, 0.6)}}, "b comes after a"),
        ({"modes": one(0.9, 0.7), "do": {"warm": []}}, "no mode 'warm'"),
        ({"modes": one(0.9, 0.7), "do": {"hot": [{"defr": ["a"]}]}}, "unknown key 'defr'"),
        ({"modes": one(0.9, 0.7), "signal": "utilisation"}, "needs a pool"),
        ({"modes": one(0.9, 0.7), "pool": "gpu"}, "looks at all pools"),
        ({"modes": one(0.9, 0.7), "smoothing": 1.0}, "below 1"),
    ]
    for parameters, message in cases:
        with pytest.raises(ParameterError, match=message):
            Hysteresis(**parameters)
