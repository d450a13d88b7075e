"""From a run log to numbers and tables: every metric of the product, with exactly one meaning each.

Percentiles use numpy's linear method over runs that arrived in the measured window (from the warm-up on); what is empty is NaN, never 0.
Latency counts from the run's first submission to its end, for completed runs. A policy that drops work looks fast: look at latency beside
`success_rate` and `unfinished`. The measured time goes from the warm-up to the horizon, or to the end of the log without one.
"""

from __future__ import annotations

from simkit.metrics.events import all_events
from simkit.metrics.fairness import service_gap_s, share_error
from simkit.metrics.frames import runs_frame, tasks_frame
from simkit.metrics.series import series
from simkit.metrics.summary import Summary, summarise
from simkit.metrics.tables import GroupTable
from simkit.metrics.waits import WaitAttribution, held, run_delays, wait_attribution, wait_by_reason
from simkit.metrics.window import Stays, Window

__all__ = [
    "GroupTable",
    "Stays",
    "Summary",
    "WaitAttribution",
    "Window",
    "all_events",
    "held",
    "run_delays",
    "runs_frame",
    "series",
    "service_gap_s",
    "share_error",
    "summarise",
    "tasks_frame",
    "wait_attribution",
    "wait_by_reason",
]
