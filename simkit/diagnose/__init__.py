"""Why runs fail, are late or starve, and what is wrong with the platform: labels, root causes, and the story of one run.

Every label and what must be seen for it. A run gets the first that holds, in this order; its *cause* is what refused or failed it, where
something did, and otherwise the largest part of its time from arrival to end that was not service (`simkit.diagnose.paths` splits that time
exactly along the chain of tasks that determined the run's end). Service is the cause only of a run that waited for nothing, or
whose service alone is longer than its deadline allowed.

=======================  ======================================================================================================
label of a run           evidence
=======================  ======================================================================================================
BUDGET_EXHAUSTION        its cause is a budget: dropped for want of money, or waiting for the next window
QUOTA_EXCEEDED           its cause is a limit of the policy on who may use how much: quota, share_cap, token_bucket, reserve
RATE_LIMIT_EXHAUSTION    its cause is a provider's limit (a 429, api_allowance, api_concurrency), or it mostly waited between tries (see
                         RETRY_AMPLIFICATION) and at least half of its failed calls were 429s
ADMISSION_OVERLOAD       refused or shed at the door for another reason, or its longest waits were deferrals
RETRY_AMPLIFICATION      most of its waiting was backoff between attempts or its client's delays between submissions
VERIFICATION_STARVATION  its verification was skipped under pressure, or it waited for slots and most of that in front of verifying tasks
RESOURCE_FRAGMENTATION   it waited for slots, and most of that time some slots of the pool were free but not all it needed at once
HEAD_OF_LINE_BLOCKING    it waited for slots, and most of that time all it needed was free: something ahead of it could not start
PRIORITY_INVERSION       it waited for slots, and most of the tasks that started in the pool meanwhile had a lower priority and took as many
STARVATION               a task of it waited longer than its class's limit
DEADLINE_MISS            it ended (or the log did) after its deadline, its client's patience ran out, or it was dropped as expired; none of the above
OTHER                    none of these is to blame (a dependency failed, rework was exhausted, a defect slipped through): see the root cause
=======================  ======================================================================================================

Time in front of a pool counts for the last four evidences only while no limit held the row back, and not while a fault stalled the pool.

=======================  ======================================================================================================
label of the platform    evidence
=======================  ======================================================================================================
RETRY_AMPLIFICATION      more than 1.5 calls per logical call (executions per task without APIs), and less than 90 % of the offered runs verified in time
SCHEDULER_OSCILLATION    at least 4 changes of mode, more than 4 per minute between the first and the last
BACKPRESSURE_FAILURE     a pool was saturated (95 % used, with a queue) for at least 6 % of the time, its queue grew by half from the first to the second half
                         of that, and the pools that feed it started at least 90 % as much in the second half as in the first
any label of a run       at least 5 % of the offered runs have it
=======================  ======================================================================================================
"""

from __future__ import annotations

from simkit.diagnose.findings import Finding, findings, findings_table
from simkit.diagnose.labels import Diagnosis, counts, diagnose, label
from simkit.diagnose.paths import PathTimes, path_times
from simkit.diagnose.story import explain

__all__ = [
    "Diagnosis",
    "Finding",
    "PathTimes",
    "counts",
    "diagnose",
    "explain",
    "findings",
    "findings_table",
    "label",
    "path_times",
]
