"""Work that nobody waits for any more is not started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simkit.mechanisms.base import Context, Limit, mechanism
from simkit.model import Drop, Hold
from simkit.units import Duration


@mechanism("drop_expired")
@dataclass(eq=False)
class DropExpired(Limit):
    """Drop a row that comes up for service too late to be of use.

    Rule: when the row would start, it is dropped if now + its estimate + `margin` is later than the time it must be done by: the moment at
    which the submitting client gives up (`by: client`), the run's deadline (`by: deadline`), or the earlier of both (`by: both`). Being done at
    that very time is in time. Only the row's own estimate counts, not what follows it: a row of a chain is kept as long as it can
    itself end in time. It never makes a row wait. Rows are looked at when their turn comes, not before, so expired work still counts as
    waiting until then.

    Parameters: `margin`: duration. `by`: client | deadline | both. Complexity: O(1). Source: dropping requests whose client has timed out, the
    cure of the metastable retry storm (a server that answers nobody).
    """

    margin: Duration = 0
    by: Literal["client", "deadline", "both"] = "client"

    @property
    def group_by(self) -> frozenset[str]:
        return frozenset()  # holds nothing

    def bind(self, context: Context) -> None:
        rows = context.rows
        self._estimate = rows.estimate_ns
        self._until = [
            (column, reason)
            for column, reason, name in (
                (rows.client_deadline_ns, "expired:client", "client"),
                (rows.deadline_ns, "expired:deadline", "deadline"),
            )
            if self.by in (name, "both")
        ]

    def hold(self, row: int, now_ns: int) -> Hold | Drop | None:
        done = now_ns + self._estimate[row] + self.margin
        for column, reason in self._until:
            if done > column[row]:
                return Drop(reason)
        return None
