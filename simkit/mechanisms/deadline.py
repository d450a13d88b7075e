"""Orders by deadline."""

from __future__ import annotations

from dataclasses import dataclass

from simkit.mechanisms.base import Context, mechanism
from simkit.mechanisms.order import RankOrder


@mechanism("edf")
@dataclass(eq=False)
class EarliestDeadlineFirst(RankOrder):
    """The earliest deadline of the run first; runs without one come last, ties first come first served. Not preemptive.

    No parameters. O(log n). Optimal on one preemptive server while all deadlines can be met (Liu and Layland 1973); not preemptive
    it is not, and in overload it serves those who are about to be late anyway (domino effect): pair it with ``deadline_feasible``.
    """

    def bind(self, context: Context) -> None:
        self._deadline = context.rows.deadline_ns
        super().bind(context)

    def key(self, row: int, now_ns: int) -> int:
        key: int = self._deadline[row]
        return key
