"""From a run log to numbers and tables: every metric of the product, with exactly one meaning each.

The measured time goes from the warm-up to the horizon, or to the end of the log without one. Metrics of runs and tasks speak of the runs that
arrived in it (the *offered* ones); metrics of queues, slots and modes of what happened in it. Percentiles use numpy's linear method; what is
empty is NaN, never 0. A policy that drops work looks fast: look at latency beside `success_rate` and `unfinished`.

==========================  ====================================================================================================
of runs                     overall, by class and by tenant
==========================  ====================================================================================================
offered                     runs that arrived; the next nine partition them
verified, unverified,       closed as done: sound; sound but with a required verification skipped; while defective. Together: `completed`
false_completions
failed, dead_lettered,      closed otherwise, as the run table says; `unfinished`: not closed when the log ends
timed_out, rejected, shed
admitted, downgrades        runs that were let in; that were given less (each once)
deferrals, rework           answers "later" at the door; rounds of rework
goodput_per_s               verified runs that met their deadline (if they have one) per s of measured time
success_rate                verified / offered
deadline_miss_rate          of the runs with a deadline, the share not completed by it (refused and unfinished ones included)
latency_s.*                 s from first submission to end, of completed runs: mean, p50, p95, p99, max
wait_s.*                    s that a task queued (ready to start), all its attempts together, backoff between them not counted; of tasks that started
queue_age_s.p95, .max       age in s of the oldest waiting task as a function of time: exceeded during 5 % of the time; the largest
starved                     tasks that waited longer than their class's limit, started or not
executions                  attempts started
retry_amplification         overall calls / logical calls of APIs; without APIs, and of groups: attempts (an SDK's included) / tasks that ran
duplicate_executions        tasks run again by a later submission of their run
served_work_s               slot seconds used
wasted_work_s               of these, by attempts that were not the last, by submissions that did not close their run, by runs that ended badly
cost_usd                    cost of all attempts; cost_per_verified_usd: that / verified
api_429                     calls answered 429 (over the whole log)
==========================  ====================================================================================================

==========================  ====================================================================================================
of the platform             overall
==========================  ====================================================================================================
api_calls, api_errors       calls made; answered by an error or not at all (over the whole log)
coalesced                   tasks that shared another's work
mode_s.NAME, mode_switches  s in each overload mode; changes of mode
jain, share_error           fairness between tenants; against weights (`simkit.metrics.fairness`)
stable                      1, or 0 when a queue grows to the end of the arrivals (`simkit.metrics.health`)
recovery_s                  s from the last fault's end until goodput is back (`simkit.metrics.health`)
utilisation.POOL            slot time used / slot time there was
queue_depth.POOL            tasks waiting, mean over time; queue_depth_max.POOL: the most at one time
queued_work_s.POOL          estimated slot seconds waiting, mean over time
==========================  ====================================================================================================
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
