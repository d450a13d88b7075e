"""Metrics of many groups, kept as columns: a mapping from the group's name to its metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from simkit.metrics.window import Floats

Table = dict[str, float]


class GroupTable(Mapping[str, Table]):
    """``table["interactive"]["latency_s.p95"]``, from one array per metric: 10,000 tenants take a few MB, not tens. Read only; a group's
    metrics are made into a dict when asked for."""

    def __init__(self, names: Sequence[str], columns: Mapping[str, Floats]) -> None:
        self.columns = dict(columns)
        self._codes = {name: code for code, name in enumerate(names)}

    def __getitem__(self, name: str) -> Table:
        code = self._codes[name]
        return {metric: float(values[code]) for metric, values in self.columns.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._codes)

    def __len__(self) -> int:
        return len(self._codes)

    def value(self, name: str, metric: str, default: float) -> float:
        """One number, without the dict."""
        code, values = self._codes.get(name), self.columns.get(metric)
        return default if code is None or values is None else float(values[code])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(dict(self))
