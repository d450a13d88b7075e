"""The books of an import."""

from __future__ import annotations

from simkit.model import UsageError


class Tally:
    """Rows read, emitted and dropped (by reason), and what was guessed or mended. `close` refuses books that do not add up."""

    def __init__(self) -> None:
        self.read = 0
        self.emitted = 0
        self.dropped: dict[str, int] = {}
        self.noted: dict[str, int] = {}

    def drop(self, reason: str, count: int = 1) -> None:
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    def note(self, what: str, count: int = 1) -> None:
        if count:
            self.noted[what] = self.noted.get(what, 0) + count

    def close(self) -> dict[str, int]:
        """The warnings for the trace's header. Raises UsageError when read != emitted + dropped."""
        dropped = 0
        for count in self.dropped.values():
            dropped += count
        if self.read != self.emitted + dropped:
            raise UsageError(
                f"the import does not add up: {self.read} rows read, {self.emitted} emitted, {dropped} dropped"
            )
        return {
            "rows read": self.read,
            **{f"dropped: {reason}": count for reason, count in sorted(self.dropped.items())},
            **dict(sorted(self.noted.items())),
        }
