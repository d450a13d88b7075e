"""simkit: decide how to schedule an AI-agent platform.

    import simkit
    comparison = simkit.compare("noisy_neighbor", policies=["fifo", "weighted_fair"], replications=10)
    comparison.differences_table()

Names are loaded when first used, so that importing simkit stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "compare": "simkit.api",
    "run": "simkit.api",
    "RunResult": "simkit.api",
    "Comparison": "simkit.compare",
    "RunLog": "simkit.log",
    "Task": "simkit.model",
    "Trace": "simkit.trace.table",
    "Policy": "simkit.policy",
    "load_policy": "simkit.policy",
    "Scenario": "simkit.scenario",
    "load_scenario": "simkit.scenario",
    "read_trace": "simkit.trace.jsonl",
    "mechanism": "simkit.mechanisms",
    "Order": "simkit.mechanisms",
    "RankOrder": "simkit.mechanisms",
    "UsageError": "simkit.model",
}
_RENAMED = {"read_trace": "read_any"}

__all__ = [
    "Comparison", "Order", "Policy", "RankOrder", "RunLog", "RunResult", "Scenario", "Task", "Trace", "UsageError", "__version__",
    "compare", "load_policy", "load_scenario", "mechanism", "read_trace", "run",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'simkit' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), _RENAMED.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
