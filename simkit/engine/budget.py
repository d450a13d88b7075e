"""Budgets: money per window, reserved when an attempt starts. Enforced by the platform whatever the policy is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simkit.mechanisms.base import Context, Limit
from simkit.model import NEVER_NS, BudgetSpec, Drop, Hold

if TYPE_CHECKING:
    from simkit.engine.world import World

_CENT_FRACTION = 1e-9


class BudgetLimit(Limit):
    """One purse. An attempt's cost is taken when it starts (a failed attempt has cost too); when the purse cannot pay, the row waits for
    the next window, or, when no window will ever pay (no windows, or a cost above the whole budget), is dropped."""

    def __init__(self, spec: BudgetSpec, world: World) -> None:
        self._spec, self._world = spec, world
        self._window, self._spent = 0, 0.0

    @property
    def group_by(self) -> frozenset[str]:
        return frozenset(self._spec.for_)

    def bind(self, context: Context) -> None:
        trace, spec = self._world.trace, self._spec
        tenants, classes = spec.for_.get("tenant"), spec.for_.get("class")
        self._cost = context.rows.cost_usd
        self._tenant, self._cls = context.rows.tenant, context.rows.cls
        self._payers = [tenants is None or name in tenants for name in trace.tenants]
        self._paying_classes = [classes is None or name in classes for name in trace.classes]

    def _pays(self, row: int) -> bool:
        pays: bool = self._payers[self._tenant[row]] and self._paying_classes[self._cls[row]]
        return pays

    def _turn(self, now_ns: int) -> None:
        window_ns = self._spec.window_ns
        if window_ns is not None and now_ns // window_ns != self._window:
            self._window, self._spent = now_ns // window_ns, 0.0

    def hold(self, row: int, now_ns: int) -> Hold | Drop | None:
        if not self._pays(row):
            return None
        spec, cost = self._spec, self._cost[row]
        window_ns = spec.window_ns
        spent = self._spent if window_ns is None or now_ns // window_ns == self._window else 0.0
        if spent + cost <= spec.usd + _CENT_FRACTION:
            return None
        if window_ns is None or cost > spec.usd:
            return Drop(f"budget:{spec.name}")
        return Hold("window", f"budget:{spec.name}", min((now_ns // window_ns + 1) * window_ns, NEVER_NS))

    def start(self, row: int, now_ns: int) -> None:
        if self._pays(row):
            self._turn(now_ns)
            self._spent += self._cost[row]
            assert self._spent <= self._spec.usd + 2 * _CENT_FRACTION, f"budget {self._spec.name} overdrawn"
