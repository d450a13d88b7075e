"""Comparisons from made-up numbers, for tests of statistics and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simkit.compare import Comparison
from simkit.metrics import Summary

Values = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class FakeJudgement:
    """What `simkit.check` says of one expectation."""

    text: str
    ok: bool
    policy: str
    kind: str = "expectation"
    value: float = 1.0
    ci95: tuple[float, float] | None = None
    line: int = 1
    note: str = ""

    @property
    def shown(self) -> str:
        return f"{self.value:g}"

    def as_dict(self) -> dict[str, Any]:
        return {"text": self.text, "ok": self.ok, "value": self.value, "policy": self.policy, "kind": self.kind}


def summaries(values: Values, by_class: Mapping[str, Values] | None = None, by_tenant: Mapping[str, Values] | None = None,
              pools: Mapping[str, Values] | None = None) -> list[Summary]:  # fmt: skip
    """One summary per replication from columns of values."""

    def at(columns: Values, place: int) -> dict[str, float]:
        return {metric: float(column[place]) for metric, column in columns.items()}

    def group(tables: Mapping[str, Values] | None, place: int) -> dict[str, dict[str, float]]:
        return {name: at(columns, place) for name, columns in (tables or {}).items()}

    found = []
    for place in range(len(next(iter(values.values())))):
        summary = Summary(at(values, place), group(by_class, place), group(pools, place), None)
        summary._by_tenant = group(by_tenant, place)
        found.append(summary)
    return found


@dataclass
class Made:
    """Builds a comparison policy by policy."""

    results: dict[str, list[Summary]] = field(default_factory=dict)

    def policy(self, name: str, values: Values, **groups: Any) -> Made:
        self.results[name] = summaries(values, **groups)
        return self

    def compared(self, **options: Any) -> Comparison:
        first = next(iter(self.results))
        given = {"scenario": "made", "seed": 7, "baseline": first, **options}
        return Comparison(replications=len(self.results[first]), results=self.results, **given)
