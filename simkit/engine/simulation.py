"""Wire one scenario, one policy and one trace into a simulation and run it."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from simkit.engine import express, laws
from simkit.engine.admission import Door
from simkit.engine.aside import SetAside
from simkit.engine.attempts import Attempts
from simkit.engine.budget import BudgetLimit
from simkit.engine.clients import Desk
from simkit.engine.control import start_governor
from simkit.engine.express import ExpressLane
from simkit.engine.external import Api
from simkit.engine.faults import Faults
from simkit.engine.gates import Gates
from simkit.engine.lifecycle import Lifecycle
from simkit.engine.outcome import first_capacities, run_log
from simkit.engine.pool import Pool
from simkit.engine.tables import capacity_of
from simkit.engine.world import LiveContext, LiveView, World
from simkit.log import RunLog
from simkit.mechanisms.base import Limit, Mechanism, Order
from simkit.model import NEVER_NS, ClientSpec, FaultSpec, PlatformSpec
from simkit.policy import Policy
from simkit.rng import Streams
from simkit.trace.table import Trace

if TYPE_CHECKING:
    from simkit.scenario import Scenario


def simulate(
    scenario: Scenario,
    policy: Policy,
    trace: Trace | None = None,
    *,
    seed: int | None = None,
    replication: int = 0,
    strict: bool = False,
) -> RunLog:
    """Replay one replication of `scenario` under `policy`.

    `trace` defaults to the scenario's own for this seed and replication. `strict` checks every law on the finished log as well as
    the counters that are always on. Raises UsageError when trace and platform do not fit, LawViolation when a law is broken.
    """
    seed = scenario.seed if seed is None else seed
    if trace is None:
        trace = scenario.trace(replication, seed)
    simulation = Simulation(
        scenario.platform,
        policy,
        trace,
        clients=scenario.clients,
        faults=scenario.faults,
        horizon_ns=scenario.horizon_ns,
        warmup_ns=scenario.warmup_ns,
        seed=seed,
        replication=replication,
        class_limits_ns={name: spec.starved_after_ns for name, spec in scenario.classes.items()},
        labels={"scenario": scenario.name, "scenario_digest": scenario.digest},
    )
    return simulation.run(strict=strict)


class Simulation:
    """One run of the engine: construct, `run` once, read the log."""

    def __init__(
        self,
        platform: PlatformSpec,
        policy: Policy,
        trace: Trace,
        *,
        clients: Sequence[ClientSpec] = (),
        faults: Sequence[FaultSpec] = (),
        horizon_ns: int = NEVER_NS,
        warmup_ns: int = 0,
        seed: int = 0,
        replication: int = 0,
        class_limits_ns: Mapping[str, int | None] | None = None,
        labels: Mapping[str, Any] | None = None,
        express_lane: bool = True,
    ) -> None:
        """`express_lane=False` forces the general path where the short one would do (their logs are equal; tests say so)."""
        self.policy = policy
        self.header: dict[str, Any] = {
            "policy": policy.name,
            "policy_version": policy.version,
            "policy_digest": policy.digest,
            "seed": seed,
            "replication": replication,
            "horizon_ns": horizon_ns,
            "warmup_ns": warmup_ns,
            "class_limits_ns": dict(class_limits_ns or {}),
            **(labels or {}),
        }
        self.world = World(
            trace, platform, clients=clients, faults=faults, horizon_ns=horizon_ns, streams=Streams(seed, replication)
        )
        self._view = LiveView(self.world)
        self._make_mechanisms()
        self._lane: ExpressLane | None = None
        if express_lane and express.applies(self.world, policy):
            self._lane = self._wire_express()
        else:
            self._wire()

    def run(self, *, strict: bool = False) -> RunLog:
        """Run to the end (or the horizon) and return the log."""
        world = self.world
        with _quiet_collector():
            if self._lane is not None:
                log = self._lane.run(self.header)
            else:
                arrivals = world.trace.runs.arrival_ns.tolist()
                world.clock.drive(arrivals, world.desk.arrive, world.dirty, world.dispatch, world.horizon_ns)
                world.gates.close_all(min(world.clock.now_ns, world.horizon_ns))
                laws.check_counters(world)
                log = run_log(world, self.header)
        laws.check_partition(log)
        if strict:
            laws.check_log(log, world)
        return log

    # --- wiring ---

    def _make_mechanisms(self) -> None:
        world, policy, slots = self.world, self.policy, self.world.mechanisms
        budgets: list[Limit] = [BudgetLimit(spec, world) for spec in world.platform.budgets]
        slots.limits = [*(spec.build() for spec in policy.limits), *budgets]
        slots.admission = [spec.build() for spec in policy.admission]
        slots.overload = policy.overload.build() if policy.overload else None
        slots.retry = policy.retry.build() if policy.retry else None
        slots.backfill = policy.backfill.build() if policy.backfill else None
        slots.coalesce = policy.coalesce.build() if policy.coalesce else None
        plans = slots.backfill is not None and slots.backfill.reserves
        world.gates = Gates(world, slots.limits, by_row=plans)

    def _wire_express(self) -> ExpressLane:
        """Pools first, then the mechanisms that look at them, then an order per pool: one that can park only where rows may be held."""
        world = self.world
        lane = ExpressLane(world)
        lane.open_pools()
        self._bind_mechanisms(grouped=bool(world.mechanisms.limits))
        for pool, order in zip(world.pools, self._make_orders(), strict=True):
            grouped = bool(lane.limits_of(pool.number))
            pool.order = self._bound(order, pool.number, grouped=grouped)
        world.anything_left = lambda: (
            any(pool.waiting or pool.used for pool in world.pools) or bool(lane.door and lane.door.deferred)
        )
        start_governor(world)
        return lane

    def _wire(self) -> None:
        """Make the parts of the general path, bind the mechanisms, and put faults and control loops on the clock."""
        world = self.world
        world.lay_out()
        self._make_pools()
        self._bind_mechanisms(grouped=True)
        for pool, order in zip(world.pools, self._make_orders(), strict=True):
            pool.take_order(self._bound(order, pool.number, grouped=True))
        world.attempts_part = Attempts(world)
        if world.mechanisms.backfill is not None and world.mechanisms.backfill.reserves:
            world.attempts_part.keep_running_rows()
        world.lifecycle = Lifecycle(world)
        door = Door(world)
        world.desk = Desk(world, door)
        world.anything_left = lambda: world.open_runs > 0
        Faults(world, door)
        start_governor(world)

    def _bind_mechanisms(self, *, grouped: bool) -> None:
        """Bind all but the orders: limits first, for they say by what rows are grouped."""
        world, slots = self.world, self.world.mechanisms
        for mechanism in (*slots.limits, *slots.admission, slots.overload, slots.retry, slots.backfill, slots.coalesce):
            if mechanism is not None:
                mechanism.bind(self._context(mechanism, range(len(world.pools)), grouped=grouped))
        if grouped:
            world.gates.lay_out_groups()

    def _make_orders(self) -> list[Order]:
        policy = self.policy
        return [policy.order_by_pool.get(name, policy.order).build() for name in self.world.platform.places]

    def _bound(self, order: Order, pool: int, *, grouped: bool) -> Order:
        """The order of a pool, bound; wrapped where rows may be held and it cannot park."""
        if grouped and not getattr(order, "parks", False):
            order = SetAside(order)
        order.bind(self._context(order, [pool], grouped=grouped))
        return order

    def _make_pools(self) -> None:
        world, slots = self.world, self.world.mechanisms
        for number, name in enumerate(world.platform.places):
            capacity = capacity_of(world.layout.place_spec(number))
            pool = Pool(world, number, name, capacity, slots.backfill)
            pool.tracks_age = bool(slots.admission or slots.limits or slots.overload)
            world.pools.append(pool)
        world.recorder.capacity.extend(first_capacities(world))
        for number, spec in enumerate(world.platform.apis):
            world.apis.append(Api(number, spec, world.pools[world.layout.pool_count + number]))

    def _context(self, mechanism: Mechanism, pools: Sequence[int], *, grouped: bool) -> Any:
        inner = mechanism.inner if isinstance(mechanism, SetAside) else mechanism
        label = f"{getattr(inner, 'slot', '')}/{getattr(inner, 'mechanism_name', '') or type(inner).__name__}"
        if len(pools) == 1:
            label += f"/{self.world.platform.places[pools[0]]}"
        return LiveContext(self.world, label, pools, self._view, grouped=grouped)


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Keep the cyclic garbage collector from walking over the simulation's millions of live numbers."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
