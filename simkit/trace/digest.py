"""What identifies demand: a digest over all columns and tables."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from simkit.trace.table import Trace, flat_columns

_TABLES = ("tenants", "classes", "pools", "workflows", "sessions", "task_ids", "tiers", "cache_keys")


def digest_of(trace: Trace) -> str:
    """blake2b-128 (hex) over columns and code tables. Source, warnings and seed do not count."""
    state = hashlib.blake2b(digest_size=16)
    for table in (trace.runs, trace.tasks):
        for name, column in flat_columns(table).items():
            state.update(name.encode())
            if isinstance(column, np.ndarray):
                state.update(np.ascontiguousarray(column).tobytes())
            else:
                state.update("\0".join(column).encode())
    for name in _TABLES:
        state.update(json.dumps([name, list(getattr(trace, name))]).encode())
    state.update(json.dumps([dict(demand) for demand in trace.demands], sort_keys=True).encode())
    return state.hexdigest()
