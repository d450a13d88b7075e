"""simkit: decide how to schedule an AI-agent platform.

    import simkit
    comparison = simkit.compare("noisy_neighbor", policies=["fifo", "weighted_fair"], replications=10)
    comparison.differences_table()

Names are loaded when first used, so that importing simkit stays light.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simkit.api import RunResult, compare, run
    from simkit.compare import Comparison
    from simkit.log import RunLog
    from simkit.mechanisms import Order, RankOrder, mechanism
    from simkit.model import Task, UsageError
    from simkit.policy import Policy, load_policy
    from simkit.scenario import Scenario, load_scenario
    from simkit.trace.jsonl import read_any as read_trace
    from simkit.trace.table import Trace

__version__ = "0.1.0"

__all__ = [
    "Comparison", "Order", "Policy", "RankOrder", "RunLog", "RunResult", "Scenario", "Task", "Trace", "UsageError", "__version__",
    "compare", "load_policy", "load_scenario", "mechanism", "read_trace", "run",
]  # fmt: skip

_HOMES = {
    "Comparison": "simkit.compare", "Order": "simkit.mechanisms", "Policy": "simkit.policy", "RankOrder": "simkit.mechanisms",
    "RunLog": "simkit.log", "RunResult": "simkit.api", "Scenario": "simkit.scenario", "Task": "simkit.model",
    "Trace": "simkit.trace.table", "UsageError": "simkit.model", "load_policy": "simkit.policy", "load_scenario": "simkit.scenario",
    "mechanism": "simkit.mechanisms", "read_trace": "simkit.trace.jsonl:read_any", "run": "simkit.api",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'simkit' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """``simkit.compare`` is the function, always. A module of that name exists as well, and importing a module makes Python set it as an
    attribute of its package: that is passed over here."""

    @property
    def compare(self) -> Any:
        return import_module("simkit.api").compare

    @compare.setter
    def compare(self, value: Any) -> None:
        pass


sys.modules[__name__].__class__ = _Package
