"""Compare policies on the same demand: what differs, by how much, how sure that is, and which policy to choose.

A `Comparison` holds the summaries of all policies over the same replications and reads everything else from them: intervals, paired
differences with verdicts (rules in `simkit.stats`), the ladder (each policy against the one below it), a recommendation.

Two tables of differences are each corrected as a whole (Holm): the headline metrics over everything, and, where there are several classes,
four metrics of each class.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from simkit.advice import Recommendation, Rung, recommend, rung
from simkit.catalogue import CLASS_HEADLINES, GUARDS, HEADLINES, digits, direction, split_key
from simkit.model import UsageError
from simkit.stats import (
    BETTER,
    HIGHER,
    LOWER,
    NEUTRAL,
    OPEN,
    SAME,
    WORSE,
    Difference,
    Estimate,
    estimate,
    holm,
    judged,
    paired,
    replications_for,
    t_interval,
)  # fmt: skip

if TYPE_CHECKING:
    import pandas as pd

    from simkit.metrics import Summary
    from simkit.report.figures import Plots

__all__ = [
    "BETTER", "GUARDS", "HEADLINES", "HIGHER", "LOWER", "NEUTRAL", "OPEN", "SAME", "WORSE", "Comparison", "Difference", "Estimate",
    "Recommendation", "Rung", "clean", "digits", "direction", "estimate", "holm", "needs_more", "t_interval",
]  # fmt: skip

SCHEMA = "simkit.results/1"

MOST_TENANTS = 100
"""A JSON document lists at most so many tenants (those with most runs) and says how many it left out."""

_GROUPS = {"class": "by_class", "tenant": "by_tenant", "pool": "pools"}


@dataclass
class Comparison:
    """Results of several policies on the same replications: ``results[policy][replication]``, policies from plain to elaborate.

    `primary` is a metric, of everything or of one part (``"latency_s.p95[class=interactive]"``); `margin` a fraction of the baseline's mean
    below which a difference does not matter; `details` what the report needs besides (digests, versions, logs of replication 0, command);
    `expectations` judged lines (`simkit.check.Judgement`). Raises UsageError for a primary metric or baseline that nobody has.
    """

    scenario: str
    seed: int
    replications: int
    results: Mapping[str, Sequence[Summary]]
    baseline: str
    primary: str = "goodput_per_s"
    margin: float = 0.02
    about: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    expectations: list[Any] = field(default_factory=list)
    _found: dict[Any, list[Difference]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.results:
            raise UsageError("nothing to compare: there are no results")
        if self.baseline not in self.results:
            names = ", ".join(self.results)
            raise UsageError(f"there is no policy {self.baseline!r} to compare with (there are {names})")
        metric, where = split_key(self.primary)
        summaries = [summary for own in self.results.values() for summary in own]
        for kind, name in where.items():
            _refuse_unknown(name, {name for summary in summaries for name in getattr(summary, _GROUPS[kind])}, kind)
        _refuse_unknown(metric, {name for summary in summaries for name in _table_of(summary, where)}, "metric")

    # --- values ---

    @property
    def policies(self) -> list[str]:
        """In the scenario's order: the ladder from plain to elaborate."""
        return list(self.results)

    @cached_property
    def classes(self) -> list[str]:
        """Names of all classes, sorted."""
        return sorted({name for own in self.results.values() for summary in own for name in summary.by_class})

    def values(self, policy: str, metric: str, where: Mapping[str, str] | None = None) -> list[float]:
        """One value per replication, NaN where it is undefined. Raises UsageError for an unknown policy."""
        if policy not in self.results:
            raise UsageError(f"there is no policy {policy!r} (there are {', '.join(self.results)})")
        name, inner = split_key(metric)
        place = where or inner
        return [float(_table_of(summary, place).get(name, math.nan)) for summary in self.results[policy]]

    def metric(self, policy: str, metric: str, where: Mapping[str, str] | None = None) -> Estimate:
        """One metric of one policy over the replications, of everything or `where` {"class" | "tenant" | "pool": name}."""
        return estimate(self.values(policy, metric, where))

    @property
    def headlines(self) -> tuple[str, ...]:
        """The metrics that are judged; the primary one first when it is not among the usual ones."""
        return HEADLINES if self.primary in HEADLINES else (self.primary, *HEADLINES)

    # --- differences ---

    def differences(self, baseline: str | None = None, *, ratios: bool = True) -> list[Difference]:
        """Every other policy against `baseline` (default: the scenario's): the headline metrics, then those of each class.

        `ratios=False` leaves out the bootstrap intervals of the ratios. Raises UsageError for an unknown policy.
        """
        against = baseline or self.baseline
        if against not in self.results:
            raise UsageError(f"there is no policy {against!r} (there are {', '.join(self.results)})")
        return self._table(tuple((policy, against) for policy in self.policies if policy != against), ratios=ratios)

    def _table(self, pairs: tuple[tuple[str, str], ...], *, ratios: bool) -> list[Difference]:
        """The differences of these pairs of policies, overall and by class, each of the two corrected as a whole."""
        key = (ratios, *pairs)
        if (True, *pairs) in self._found:
            key = (True, *pairs)
        if key not in self._found:
            overall = [split_key(metric) for metric in self.headlines]
            several = self.classes if len(self.classes) > 1 else []
            by_class = [(metric, {"class": name}) for name in several for metric in CLASS_HEADLINES]
            self._found[key] = [
                item for metrics in (overall, by_class) for item in self._corrected(pairs, metrics, ratios=ratios)
            ]
        return self._found[key]

    def _corrected(
        self,
        pairs: Sequence[tuple[str, str]],
        metrics: Sequence[tuple[str, Mapping[str, str]]],
        *,
        ratios: bool,
    ) -> list[Difference]:
        raw = []
        for policy, against in pairs:
            named = {"policy": policy, "baseline": against}
            for metric, where in metrics:
                ours, theirs = self.values(policy, metric, where), self.values(against, metric, where)
                if not (np.isnan(ours).all() and np.isnan(theirs).all()):  # a metric that does not apply is no line
                    raw.append(
                        paired(ours, theirs, **named, metric=metric, where=where, margin=self.margin, ratio=ratios)
                    )
        return judged(raw, {metric: direction(metric) for metric, _ in metrics})

    def ladder(self) -> list[Rung]:
        """Each policy against the one before it."""
        pairs = tuple(zip(self.policies[1:], self.policies, strict=False))
        table = self._table(pairs, ratios=False)
        return [
            rung(
                policy, below, [item for item in table if (item.policy, item.baseline) == (policy, below)], self.primary
            )
            for policy, below in pairs
        ]

    @property
    def recommendation(self) -> Recommendation:
        """The simplest policy that nothing speaks against."""
        return recommend(self)

    # --- tables, documents, pages ---

    def table(self, by: str | None = None) -> pd.DataFrame:
        """A row per policy and metric (and per class, tenant or pool with `by`): mean, interval, count of undefined replications."""
        import pandas as pd

        if by is not None and by not in _GROUPS:
            raise UsageError(f"table by {by!r}: expected class, tenant or pool")
        rows = []
        for policy in self.policies:
            for name in self._names(policy, by):
                tables = [_table_of(summary, {by: name} if by else {}) for summary in self.results[policy]]
                for metric in sorted({metric for table in tables for metric in table}):
                    found = estimate(table.get(metric, math.nan) for table in tables)
                    low, high = found.ci95 or (math.nan, math.nan)
                    rows.append((policy, name, metric, found.mean, low, high, found.undefined))
        frame = pd.DataFrame(
            rows, columns=["policy", by or "name", "metric", "mean", "ci95_low", "ci95_high", "undefined"]
        )
        return frame if by else frame.drop(columns="name")

    def _names(self, policy: str, by: str | None) -> list[str]:
        if by is None:
            return [""]
        return sorted({name for summary in self.results[policy] for name in getattr(summary, _GROUPS[by])})

    def differences_table(self, baseline: str | None = None) -> pd.DataFrame:
        """`differences` as a table."""
        import pandas as pd

        return pd.DataFrame([{**item.as_dict(), "metric": item.key} for item in self.differences(baseline)]).drop(
            columns="where", errors="ignore"
        )

    def to_json(self) -> dict[str, Any]:
        """The document that ``--json`` prints: plain data, NaN and infinities are None."""
        document: dict[str, Any] = clean(
            {
                "schema": SCHEMA,
                "scenario": self.scenario,
                "seed": self.seed,
                "replications": self.replications,
                "baseline": self.baseline,
                "primary": self.primary,
                "margin": self.margin,
                "versions": self.details.get("versions", {}),
                "digests": self.details.get("digests", {}),
                "policies": {policy: self._policy_json(policy) for policy in self.policies},
                "differences": [item.as_dict() for item in self.differences()],
                "ladder": [rung.as_dict() for rung in self.ladder()],
                "recommendation": self.recommendation.as_dict(),
                "expectations": [item.as_dict() for item in self.expectations],
                "report": self.details.get("report"),
            }
        )
        return document

    def _policy_json(self, policy: str) -> dict[str, Any]:
        summaries = self.results[policy]

        def over(tables: Sequence[Mapping[str, float]]) -> dict[str, Any]:
            names = sorted({name for table in tables for name in table})
            return {name: _plain(estimate(table.get(name, math.nan) for table in tables)) for name in names}

        def grouped(attribute: str, names: Sequence[str]) -> dict[str, Any]:
            return {name: over([getattr(summary, attribute).get(name, {}) for summary in summaries]) for name in names}

        kept, left_out = self._largest_tenants
        plain = {
            "metrics": over([summary.metrics for summary in summaries]),
            "by_class": grouped("by_class", self._names(policy, "class")),
            "by_tenant": grouped("by_tenant", kept),
            "pools": grouped("pools", self._names(policy, "pool")),
        }
        return {**plain, "by_tenant_left_out": left_out} if left_out else plain

    @cached_property
    def _largest_tenants(self) -> tuple[list[str], int]:
        """The tenants to list, the same for every policy, and how many more there are."""
        offered: dict[str, float] = {}
        for own in self.results.values():
            for summary in own:
                for name, table in summary.by_tenant.items():
                    offered[name] = max(offered.get(name, 0.0), table.get("offered", 0.0))
        ranked = sorted(offered, key=lambda name: (-offered[name], name))
        return sorted(ranked[:MOST_TENANTS]), max(0, len(ranked) - MOST_TENANTS)

    def report(self, folder: str) -> str:
        """Write the report into `folder`; returns the path of its page."""
        from simkit.report import write_report

        return str(write_report(self, folder))

    @property
    def plot(self) -> Plots:
        """The charts of the report: ``comparison.plot.latency()`` and its like, which a notebook shows and ``.save(path)`` writes."""
        from simkit.report.figures import Plots

        return Plots.of(self)

    def __repr__(self) -> str:
        # all results would be megabytes, and a notebook keeps this text beside the page
        policies = ", ".join(self.policies)
        return f"<Comparison of {policies} on {self.scenario}, {self.replications} replications, seed {self.seed}>"

    def _repr_html_(self) -> str:
        from simkit.report.html import fragment

        return fragment(self)


def _refuse_unknown(name: str, known: Collection[str], kind: str) -> None:
    from difflib import get_close_matches

    if name not in known:
        near = get_close_matches(name, sorted(known), n=1)
        raise UsageError(f"primary: there is no {kind} {name!r}" + (f", did you mean {near[0]!r}?" if near else ""))


def _table_of(summary: Summary, where: Mapping[str, str]) -> Mapping[str, float]:
    if not where:
        return summary.metrics
    ((kind, name),) = where.items()
    table: Mapping[str, float] = getattr(summary, _GROUPS[kind]).get(name, {})
    return table


def _plain(found: Estimate) -> dict[str, Any]:
    return {"mean": found.mean, "ci95": found.ci95, "values": found.values}  # noqa: PD011 - a tuple of ours


def needs_more(comparison: Comparison, precision: float) -> int:
    """How many more replications would bring the primary metric's interval to +- `precision` (a fraction of the mean) under every policy;
    0 when it is there. An estimate from the spread so far: run them and ask again.

    Stopping when an interval happens to be short makes it cover a little less than stated; ten replications to start with keep that small.
    """
    wanted = [
        replications_for(comparison.metric(policy, comparison.primary), precision) for policy in comparison.policies
    ]
    return max(0, *(total - comparison.replications for total in wanted))


def clean(value: Any) -> Any:
    """Plain JSON data: NaN and infinities become None, tuples lists, numpy numbers Python's."""
    if isinstance(value, Mapping):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if isinstance(value, np.ndarray):
        return clean(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
