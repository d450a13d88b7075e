"""Overload control: a signal, levels with hysteresis, and what each level does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeVar

from simkit.mechanisms.base import Actions, Context, Overload, ParameterError, View, mechanism
from simkit.mechanisms.selection import codes_of, known_tier, places_of
from simkit.mechanisms.shares import UNLIMITED
from simkit.model import NS_PER_S
from simkit.units import Duration, Fraction, Name, Number, PositiveDuration

NORMAL = "normal"

T = TypeVar("T")


@dataclass(frozen=True)
class Level:
    """Thresholds of one mode, in the unit of the signal."""

    enter: Number
    leave: Number

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


@dataclass(frozen=True)
class Action:
    """One thing that a mode does (see `Hysteresis`); usually one field is given."""

    optional_width: Fraction | None = None
    defer: list[Name] | None = None
    defer_for: PositiveDuration | None = None
    only: list[Name] | None = None
    tier: Name | None = None
    skip_verification: list[Name] | None = None

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


def next_level(level: int, signal: float, enter: Sequence[float], leave: Sequence[float]) -> int:
    """The level after one sample: 0 is normal, level k has thresholds ``enter[k - 1]`` and ``leave[k - 1]``, both ascending.

    Up: straight to the highest level whose `enter` the signal reaches (>=). Down: one level after the other while the signal
    is below (<) the `leave` of the level one is in; a signal that collapses goes down several levels in one sample.
    """
    highest = max((number for number, threshold in enumerate(enter, 1) if signal >= threshold), default=0)
    if highest > level:
        return highest
    while level > 0 and signal < leave[level - 1]:
        level -= 1
    return level


@mechanism("hysteresis")
@dataclass(eq=False)
class Hysteresis(Overload):
    """Modes of growing severity, each entered at one threshold and left at a lower one.

    Rule: every `every` the signal is sampled and moves the mode as `next_level` says: up at once and as far as it reaches; down
    only once `dwell` has passed since the last change. Because `enter` > `leave` for each mode, a signal that swings between the two
    changes nothing; with one threshold the mode flaps at every sample, so equal ones are refused.

    Parameters: `signal`: ``max_utilisation`` (slots in use / capacity), ``drain_s`` (seconds in which a pool's slots clear the work that waits),
    ``queued_work_s`` (waiting work, slot-seconds), ``queue_age_s`` (age of the oldest waiting row, seconds): each the largest over the pools
    and APIs that have a limit (age: over all of them), or that of `pool` alone; ``utilisation`` is that of `pool`.
    `modes`: in order of severity, ``{name: {enter: x, leave: y}}`` in the signal's unit; both ascend from mode to mode (`leave` may repeat).
    `do`: per mode a list of actions; what milder modes do stays in force in graver ones. ``optional_width: fraction`` (of the optional
    tasks that runs admitted now keep), ``tier: name`` (or ``cheapest``), ``only: [classes]`` and ``defer_for: duration`` (30 s unless given): the gravest mode's
    counts; ``defer: [classes]`` and ``skip_verification: [classes]`` add up.
    `every`: time between samples. `dwell`: least time in a mode before it is left downwards. `smoothing`: weight of the past in an
    exponential average of the signal that starts at the first sample (0: none).

    `signal_value` is the last sample after smoothing. Complexity: O(pools) per sample.
    Source: hysteresis (Schmitt trigger) with a minimum dwell; what controllers with one threshold per mode lack.
    """

    modes: Mapping[Name, Level]
    signal: Literal["max_utilisation", "utilisation", "queued_work_s", "drain_s", "queue_age_s"] = "max_utilisation"
    pool: Name | None = None
    do: Mapping[Name, list[Action]] | None = None
    every: PositiveDuration = NS_PER_S
    dwell: Duration = 0
    smoothing: Fraction = 0.0

    def __post_init__(self) -> None:
        if self.signal == "utilisation" and self.pool is None:
            raise ParameterError("hysteresis: signal: utilisation needs a pool; max_utilisation looks at all pools")
        if self.signal == "max_utilisation" and self.pool is not None:
            raise ParameterError(
                "hysteresis: pool: max_utilisation looks at all pools; use signal: utilisation for one"
            )
        if self.smoothing >= 1:
            raise ParameterError("hysteresis: smoothing must be below 1, or the signal never moves")
        self._levels = {name: _made(Level, level) for name, level in self.modes.items()}
        _check_levels(self._levels)
        self._do = {name: [_made(Action, one) for one in entries] for name, entries in (self.do or {}).items()}
        for name in self._do:
            if name not in self._levels:
                raise ParameterError(f"hysteresis: do: there is no mode {name!r} ({', '.join(self._levels)})")
        self.every_ns = self.every
        self._names = [NORMAL, *self._levels]
        self._enter = [level.enter for level in self._levels.values()]
        self._leave = [level.leave for level in self._levels.values()]
        self._start()

    def _start(self) -> None:
        self._level, self._since_ns, self._sampled = 0, 0, False
        self.signal_value = 0.0

    def bind(self, context: Context) -> None:
        self._start()
        view = context.view
        places = range(len(context.names["pool"])) if self.pool is None else places_of(context, [self.pool])
        if self.pool is None and self.signal != "queue_age_s":
            places = [place for place in places if view.capacity(place) < UNLIMITED]
        self._places, self._read = list(places), _reader(self.signal, view)
        self._actions = _cumulative(self._names, self._do)
        for actions in self._do.values():
            for action in actions:
                for classes in (action.defer, action.only, action.skip_verification):
                    codes_of(context, self, "class", classes or ())
        for mode in self._actions.values():
            if mode.tier is not None and not known_tier(context, self, mode.tier):
                mode.tier = None

    def observe(self, now_ns: int) -> str:
        sample = max((self._read(place) for place in self._places), default=0.0)
        if self.smoothing and self._sampled:
            sample = self.smoothing * self.signal_value + (1 - self.smoothing) * sample
        self.signal_value, self._sampled = sample, True
        level = next_level(self._level, sample, self._enter, self._leave)
        if level > self._level or (level < self._level and now_ns - self._since_ns >= self.dwell):
            self._level, self._since_ns = level, now_ns
        return self._names[self._level]

    def actions(self, mode: str) -> Actions:
        return self._actions[mode]


def _made(cls: type[T], value: T | Mapping[str, Any]) -> T:
    """`value`, or an object made from a mapping (policies written in Python)."""
    if not isinstance(value, Mapping):
        return value
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    unknown = sorted(set(value) - set(names))
    if unknown:
        raise ParameterError(f"hysteresis: unknown key {unknown[0]!r} (expected {', '.join(names)})")
    return cls(**value)


def _check_levels(levels: Mapping[str, Level]) -> None:
    if not levels:
        raise ParameterError("hysteresis: modes: at least one mode is needed")
    before: tuple[str, Level] | None = None
    for name, level in levels.items():
        if name == NORMAL:
            raise ParameterError("hysteresis: modes: 'normal' is the mode in which none of these is in force")
        if not level.enter > level.leave:
            raise ParameterError(
                f"hysteresis: modes: {name}: enter ({level.enter}) must be above leave ({level.leave}), or the mode flaps"
            )
        if before is not None and not (level.enter > before[1].enter and level.leave >= before[1].leave):
            raise ParameterError(f"hysteresis: modes: {name} comes after {before[0]}, so its thresholds must be higher")
        before = (name, level)


def _cumulative(names: Sequence[str], do: Mapping[str, Sequence[Action]]) -> dict[str, Actions]:
    """What each mode does, the milder modes' actions included."""
    actions: dict[str, Actions] = {}
    now = Actions()
    for name in names:
        for one in do.get(name, ()):
            now = Actions(
                optional_width=now.optional_width if one.optional_width is None else one.optional_width,
                defer=now.defer.union(one.defer or ()),
                defer_ns=one.defer_for or now.defer_ns,
                only=now.only if one.only is None else frozenset(one.only),
                tier=one.tier or now.tier,
                skip_verification=now.skip_verification.union(one.skip_verification or ()),
            )
        actions[name] = Actions(now.optional_width, now.defer, now.defer_ns, now.only, now.tier, now.skip_verification)
    return actions


def _reader(signal: str, view: View) -> Callable[[int], float]:
    """The signal of one place."""
    if signal in ("max_utilisation", "utilisation"):
        return view.utilisation
    if signal == "queue_age_s":
        return lambda place: view.oldest_wait_ns(place) / NS_PER_S
    if signal == "queued_work_s":
        return lambda place: view.queued_work_ns(place) / NS_PER_S

    def drain_s(place: int) -> float:
        work, capacity = view.queued_work_ns(place), view.capacity(place)
        return work / capacity / NS_PER_S if capacity else float("inf") if work else 0.0

    return drain_s
