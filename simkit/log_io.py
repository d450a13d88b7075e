"""Run logs as files, and their digest."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from simkit.log import TABLES, RunLog, columns_of

_NOT_CONTENT = ("versions", "scenario", "trace_source", "weights")


def digest(log: RunLog) -> str:
    """blake2b-128 over the stable header fields, names, reasons and every column: equal for equal outcomes on any machine."""
    state = hashlib.blake2b(digest_size=16)
    header = {key: value for key, value in log.header.items() if key not in _NOT_CONTENT}
    names = {key: list(value) for key, value in log.names.items()}
    state.update(json.dumps([header, names, list(log.reasons)], sort_keys=True, default=str).encode())
    for table in TABLES:
        for name, column in columns_of(getattr(log, table)).items():
            array = np.asarray(column)
            if array.dtype.kind in "US":
                state.update("\0".join(array.tolist()).encode())
                continue
            kind = np.float64 if array.dtype.kind == "f" else np.int64
            state.update(name.encode())
            state.update(np.ascontiguousarray(array.astype(kind)).tobytes())
    return state.hexdigest()
