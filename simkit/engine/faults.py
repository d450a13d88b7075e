"""Faults: the scenario's timeline of what goes wrong, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simkit.model import NEVER_NS, FaultSpec

if TYPE_CHECKING:
    from simkit.engine.admission import Door
    from simkit.engine.world import World


class Faults:
    """Puts every fault on the clock. Overlapping faults of one kind on one target: slow factors multiply, the latest capacity or
    allowance holds, and what one of them started lasts until the last of them ends."""

    def __init__(self, world: World, door: Door) -> None:
        self._world, self._door = world, door
        self._active: list[FaultSpec] = []
        for fault in world.faults:
            world.clock.call_at(fault.at_ns, self._begin, fault)

    def _begin(self, fault: FaultSpec) -> None:
        self._active.append(fault)
        self._note("fault_start", fault)
        self._apply(fault)
        if fault.for_ns < NEVER_NS:
            self._world.clock.call_at(fault.at_ns + fault.for_ns, self._end, fault)

    def _end(self, fault: FaultSpec) -> None:
        self._active.remove(fault)
        self._note("fault_end", fault)
        self._apply(fault)

    def _note(self, kind: str, fault: FaultSpec) -> None:
        world = self._world
        world.recorder.event(world.clock.now_ns, kind, -1, -1, f"{fault.what}:{fault.target}")

    def _same(self, fault: FaultSpec) -> list[FaultSpec]:
        return [other for other in self._active if (other.what, other.target) == (fault.what, fault.target)]

    def _apply(self, fault: FaultSpec) -> None:
        """Set the target to what the faults now in force make of it."""
        world, in_force = self._world, self._same(fault)
        if fault.what == "reject_all":
            self._door.closed_by_fault = bool(in_force)
            return
        place = world.layout.places[fault.target]
        pool = world.pools[place]
        api = world.apis[place - world.layout.pool_count] if place >= world.layout.pool_count else None
        match fault.what:
            case "slow":
                factor = 1.0
                for other in in_force:
                    factor *= float(other.value)
                pool.slow = factor
                if api is not None:
                    api.slow = factor
            case "capacity":
                self._set_capacity(place, int(in_force[-1].value) if in_force else pool.nominal)
            case "stall":
                pool.stalled = bool(in_force)
                pool.slots_changed()
            case "down":
                assert api is not None
                api.down = str(in_force[-1].value) if in_force else None
            case "allowance":
                assert api is not None
                for _, bucket in api.buckets:
                    bucket.scale(float(in_force[-1].value) if in_force else 1.0, world.clock.now_ns)
                world.gates.wake_all()
            case _:
                raise ValueError(f"unknown fault {fault.what!r}")

    def _set_capacity(self, place: int, slots: int) -> None:
        world = self._world
        pool = world.pools[place]
        pool.capacity = slots
        world.recorder.capacity.append((world.clock.now_ns, place, slots))
        world.gates.wake_all()
        pool.slots_changed()
