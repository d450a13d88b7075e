"""Results of the VTC artifact (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024): the demand, and what real schedulers made of it.

A file holds one JSON record ``{"config": ..., "result": {"total_time": ..., "responses": [...]}}``; a response is one request with its client
(``adapter_dir``), tokens, ``req_time`` and two latencies in seconds from its own arrival. A latency of -1 means that the request was turned away.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simkit.model import UsageError
from simkit.trace.importers.flat import TokenModel, import_flat
from simkit.trace.importers.presets import PRESETS
from simkit.trace.importers.reading import rows
from simkit.trace.importers.tally import Tally
from simkit.trace.table import Trace


@dataclass(frozen=True, slots=True)
class Measured:
    """One recorded run of a real scheduler. Arrays have one entry per run of `trace`, in its order; NaN where the request was turned away."""

    trace: Trace
    first_token_s: NDArray[np.float64]  # from the request's arrival
    latency_s: NDArray[np.float64]  # from the request's arrival to its last token

    @property
    def rejected(self) -> NDArray[np.bool_]:
        turned_away: NDArray[np.bool_] = np.isnan(self.latency_s)
        return turned_away

    @property
    def end_s(self) -> float:
        """When the last answer was complete."""
        return float(np.nanmax(self.trace.runs.arrival_ns / 1e9 + self.latency_s))


def read_measured(path: str | Path, *, model: TokenModel, pool: str = "model", cls: str = "default") -> Measured:
    """Demand and measured latencies of one result file. `model` gives the service times (the file has none of its own).

    Raises UsageError for a file that cannot be read or whose requests are not in order of arrival.
    """
    path = Path(path)
    layout = PRESETS["vtc"]
    trace = import_flat([path], layout, model=model, pool=pool, cls=cls)
    columns = {"first": "first_token_latency", "last": "request_latency"}
    responses = list(rows(path, columns, Tally(), layout.unpack))
    if len(responses) != len(trace) or any("out of order" in what for what in trace.warnings):
        raise UsageError(
            f"{path}: requests were dropped or out of order: they cannot be told apart any more ({trace.warnings})"
        )
    first, last = (np.array([float(row[column]) for row in responses]) for column in columns.values())
    return Measured(trace, np.where(first < 0, np.nan, first), np.where(last < 0, np.nan, last))
