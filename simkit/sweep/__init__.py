"""Many simulations: executors that survive a killed worker, and the replications of a comparison."""

from simkit.sweep.executors import Failed, run_all
from simkit.sweep.replicate import Replication, WorkLost, replicate

__all__ = ["Failed", "Replication", "WorkLost", "replicate", "run_all"]
