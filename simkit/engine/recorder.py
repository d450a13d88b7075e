"""Writing the run log while the simulation runs: plain appends, arrays only at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from simkit.log import EVENT_KINDS, AttemptTable, CapacityTable, EventTable, HoldTable, SampleTable

_KIND_NUMBERS = {kind: number for number, kind in enumerate(EVENT_KINDS)}


class Recorder:
    """Collects the sparse tables of a `RunLog`. Entries come in order of time."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self._reason_numbers: dict[str, int] = {}
        self.events: list[tuple[int, int, int, int, int, float]] = []
        self.attempts: list[tuple[int, int, int, int, int, int]] = []
        self.holds: list[tuple[int, int, int, int, int]] = []
        self.samples: list[tuple[int, float, int]] = []
        self.capacity: list[tuple[int, int, int]] = []

    def reason(self, text: str) -> int:
        """The code of a reason; -1 for none."""
        if not text:
            return -1
        number = self._reason_numbers.get(text)
        if number is None:
            number = self._reason_numbers[text] = len(self.reasons)
            self.reasons.append(text)
        return number

    def event(self, at_ns: int, kind: str, run: int, row: int, reason: str = "", value: float = 0.0) -> None:
        self.events.append((at_ns, _KIND_NUMBERS[kind], run, row, self.reason(reason), value))

    def event_table(self) -> EventTable:
        return EventTable(*_columns(self.events, (np.int64, np.int16, np.int64, np.int64, np.int32, np.float64)))

    def attempt_table(self) -> AttemptTable:
        return AttemptTable(*_columns(self.attempts, (np.int64, np.int32, np.int64, np.int64, np.int64, np.int32)))

    def hold_table(self) -> HoldTable:
        return HoldTable(*_columns(self.holds, (np.int32, np.int64, np.int32, np.int64, np.int64)))

    def sample_table(self) -> SampleTable:
        return SampleTable(*_columns(self.samples, (np.int64, np.float64, np.int32)))

    def capacity_table(self) -> CapacityTable:
        return CapacityTable(*_columns(self.capacity, (np.int64, np.int32, np.int64)))


def _columns(entries: list[Any], kinds: tuple[Any, ...]) -> list[Any]:
    if not entries:
        return [np.empty(0, dtype=kind) for kind in kinds]
    return [np.array(column, dtype=kind) for column, kind in zip(zip(*entries, strict=True), kinds, strict=True)]
