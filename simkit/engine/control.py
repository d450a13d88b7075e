"""Control loops: the overload mechanism's samples and the mode in force."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import simpy

from simkit.mechanisms.base import Actions, Overload

if TYPE_CHECKING:
    from simkit.engine.world import World

IDLE_TICKS = 10_000
"""A control loop that ticks this often while nothing runs, arrives or is due otherwise gives up: nothing can move any more."""


class Governor:
    """Asks the overload mechanism at every tick and puts its mode's actions in force."""

    def __init__(self, world: World, overload: Overload) -> None:
        self._world, self._overload = world, overload
        self._idle = 0

    def loop(self) -> Generator[simpy.Event, Any, None]:
        """The SimPy process: one sample per `every_ns` while there is anything left to govern."""
        world = self._world
        while True:
            yield world.clock.timeout(self._overload.every_ns)
            if not world.clock.arrivals_left and not world.anything_left():
                return
            self._sample()
            if self._is_stuck():
                return

    def _sample(self) -> None:
        world = self._world
        now_ns = world.clock.now_ns
        mode = self._overload.observe(now_ns)
        signal = float(getattr(self._overload, "signal_value", 0.0))
        if mode != world.mode:
            world.mode = mode
            world.actions = self._overload.actions(mode)
            if mode not in world.modes:
                world.modes.append(mode)
            world.recorder.event(now_ns, "mode", -1, -1, mode, signal)
        world.recorder.samples.append((now_ns, signal, world.modes.index(mode)))

    def _is_stuck(self) -> bool:
        """True when only this loop is left and has been for long: then it must not keep the simulation alive."""
        world = self._world
        only_this = (
            not any(pool.used for pool in world.pools)
            and world.clock.arrivals_left == 0
            and len(world.clock.entries) == 1
        )
        self._idle = self._idle + 1 if only_this else 0
        return self._idle >= IDLE_TICKS


def start_governor(world: World) -> None:
    """Start the overload loop, if the policy has one."""
    overload = world.mechanisms.overload
    if overload is not None:
        world.actions = overload.actions("normal") or Actions()
        world.clock.start_loop(Governor(world, overload).loop())
