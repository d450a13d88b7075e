"""Mechanisms: the code that policies are composed of. One file per family; every module here is found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from simkit.mechanisms.base import (
    SLOTS,
    Actions,
    Admission,
    Backfill,
    Coalesce,
    Context,
    Limit,
    Mechanism,
    Order,
    Overload,
    ParameterError,
    Retry,
    View,
    mechanism,
    registered,
)
from simkit.mechanisms.order import RankOrder

__all__ = [
    "SLOTS", "Actions", "Admission", "Backfill", "Coalesce", "Context", "Limit", "Mechanism", "Order", "Overload",
    "ParameterError", "RankOrder", "Retry", "View", "load_builtin", "mechanism", "registered",
]  # fmt: skip


@cache
def load_builtin() -> None:
    """Import every family of this package, so that the registry is full."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
