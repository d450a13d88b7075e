"""Compare policies on the same demand: paired differences over replications, with intervals and verdicts.

Replication k of every policy replays the same trace, so differences are taken within replications (common random numbers) and judged by a
Student-t interval over them. Metrics whose change is told as a ratio get a bootstrap interval (BCa) for it as well. All tests of a table
are corrected together (Holm 1979).

The verdict on a difference, with the metric's direction and an equivalence margin (a fraction of the baseline's mean):

* ``better`` / ``worse``: the Holm-corrected test rejects "no difference" at 5 % and the interval lies off zero.
* ``no difference shown``: the whole interval lies within the margin.
* ``inconclusive``: neither. More replications would tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simkit.rng import Streams

if TYPE_CHECKING:
    import pandas as pd

    from simkit.metrics import Summary

Floats = NDArray[np.float64]

LEVEL = 0.05
BETTER, WORSE, SAME, OPEN = "better", "worse", "no difference shown", "inconclusive"

HIGHER, LOWER, NEUTRAL = 1, -1, 0
_DIRECTIONS = {
    "goodput_per_s": HIGHER, "success_rate": HIGHER, "verified": HIGHER, "completed": HIGHER, "jain": HIGHER, "stable": HIGHER,
    "latency_s": LOWER, "wait_s": LOWER, "queue_age_s": LOWER, "deadline_miss_rate": LOWER, "cost_usd": LOWER,
    "cost_per_verified_usd": LOWER, "false_completions": LOWER, "unverified": LOWER, "failed": LOWER, "dead_lettered": LOWER,
    "timed_out": LOWER, "rejected": LOWER, "shed": LOWER, "unfinished": LOWER, "starved": LOWER, "duplicate_executions": LOWER,
    "wasted_work_s": LOWER, "retry_amplification": LOWER, "api_429": LOWER, "share_error": LOWER, "recovery_s": LOWER,
    "mode_switches": LOWER, "queue_depth": LOWER, "queue_depth_max": LOWER, "queued_work_s": LOWER,
}  # fmt: skip

HEADLINES = (
    "goodput_per_s", "success_rate", "latency_s.p50", "latency_s.p95", "latency_s.p99", "wait_s.p95", "deadline_miss_rate",
    "false_completions", "starved", "unfinished", "api_429", "retry_amplification", "cost_per_verified_usd",
)  # fmt: skip
"""The metrics that a comparison judges, in the order in which it shows them."""

GUARDS = ("success_rate", "false_completions", "starved", "deadline_miss_rate")
"""A recommended policy must not be worse than the best one on these."""


def direction(metric: str) -> int:
    """Whether more (HIGHER) or less (LOWER) of a metric is better; NEUTRAL when neither is."""
    return _DIRECTIONS.get(metric, _DIRECTIONS.get(metric.split(".", maxsplit=1)[0], NEUTRAL))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric over replications: mean and 95 % interval (None for fewer than two values), NaN values left out but counted."""

    values: tuple[float, ...]
    mean: float
    ci95: tuple[float, float] | None
    undefined: int = 0

    @property
    def half_width(self) -> float:
        return math.nan if self.ci95 is None else (self.ci95[1] - self.ci95[0]) / 2


def estimate(values: Iterable[float]) -> Estimate:
    """Mean and Student-t interval."""
    every = tuple(float(value) for value in values)
    known = np.array([value for value in every if not math.isnan(value)])
    if not len(known):
        return Estimate(every, math.nan, None, len(every))
    mean = float(np.mean(known))
    interval = t_interval(known)
    return Estimate(every, mean, interval, len(every) - len(known))


def t_interval(values: Floats, level: float = LEVEL) -> tuple[float, float] | None:
    """The Student-t interval of the mean at 1 - `level`; None for fewer than two values or infinite ones."""
    if len(values) < 2 or not np.isfinite(values).all():
        return None
    from scipy.stats import t

    mean = float(np.mean(values))
    half = float(t.ppf(1 - level / 2, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return (mean - half, mean + half)


@dataclass(frozen=True, slots=True)
class Difference:
    """`policy` against `baseline` on one metric: mean of the paired differences and what it means."""

    policy: str
    baseline: str
    metric: str
    mean: float
    ci95: tuple[float, float] | None
    p: float  # two-sided paired t test, before correction; NaN when it cannot be computed
    p_holm: float
    verdict: str
    ratio: float  # mean of the policy / mean of the baseline; NaN when the baseline's is 0
    ratio_ci95: tuple[float, float] | None
    pairs: int
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def differences(
    results: Mapping[str, Sequence[Summary]],
    baseline: str,
    *,
    metrics: Sequence[str] = HEADLINES,
    margin: float = 0.02,
    policies: Sequence[str] | None = None,
) -> list[Difference]:
    """Every policy but the baseline on every metric, corrected together."""
    raw = [
        _paired(_values(results[policy], metric), _values(results[baseline], metric), policy, baseline, metric)
        for policy in (policies or results)
        if policy != baseline
        for metric in metrics
        if any(not math.isnan(value) for name in (policy, baseline) for value in _values(results[name], metric))
    ]
    corrected = holm([item.p for item in raw])
    bases = {metric: estimate(_values(results[baseline], metric)).mean for metric in metrics}
    return [
        _judged(item, p_holm, margin * abs(bases[item.metric]) if not math.isnan(bases[item.metric]) else 0.0)
        for item, p_holm in zip(raw, corrected, strict=True)
    ]


def _values(summaries: Sequence[Summary], metric: str) -> list[float]:
    return [float(summary.metrics.get(metric, math.nan)) for summary in summaries]


def _paired(ours: Sequence[float], theirs: Sequence[float], policy: str, baseline: str, metric: str) -> Difference:
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if not (math.isnan(a) or math.isnan(b))]
    lost = len(ours) - len(pairs)
    note = f"undefined in {lost} of {len(ours)} replications" if lost else ""
    if not pairs:
        return Difference(policy, baseline, metric, math.nan, None, math.nan, math.nan, OPEN, math.nan, None, 0, note)
    first, second = np.array(pairs).T
    gaps = first - second
    interval = t_interval(gaps)
    if not gaps.any():
        p = 1.0
    elif interval is None:
        p = math.nan
    else:
        p = _paired_p(gaps)
    base = float(np.mean(second))
    ratio = float(np.mean(first)) / base if base else math.nan
    return Difference(
        policy, baseline, metric, float(np.mean(gaps)), interval, p, p, OPEN, ratio, _ratio_interval(first, second, metric),
        len(pairs), note,
    )  # fmt: skip


def _paired_p(gaps: Floats) -> float:
    spread = float(np.std(gaps, ddof=1))
    if spread <= 1e-12 * abs(float(np.mean(gaps))):
        return 0.0  # every replication shows the same difference
    from scipy.stats import t

    score = float(np.mean(gaps)) / (spread / math.sqrt(len(gaps)))
    return float(2 * t.sf(abs(score), len(gaps) - 1))


def _ratio_interval(first: Floats, second: Floats, metric: str) -> tuple[float, float] | None:
    """BCa bootstrap of the ratio of means over paired replications; None when there are too few or it degenerates."""
    if len(first) < 5 or not (second > 0).all() or not (np.isfinite(first).all() and np.isfinite(second).all()):
        return None
    if np.ptp(first / second) < 1e-12:
        ratio = float(first[0] / second[0])
        return (ratio, ratio)
    from scipy.stats import bootstrap

    def ratio_of_means(a: Floats, b: Floats, axis: int = -1) -> Any:
        return np.mean(a, axis=axis) / np.mean(b, axis=axis)

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a degenerate bootstrap distribution is answered with NaN, handled below
        result = bootstrap(
            (first, second),
            ratio_of_means,
            paired=True,
            method="BCa",
            n_resamples=999,
            rng=Streams(0).of(f"bootstrap/{metric}"),
        )
    low, high = float(result.confidence_interval.low), float(result.confidence_interval.high)
    return None if math.isnan(low) or math.isnan(high) else (low, high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction; NaN stays NaN and does not count."""
    known = [(p, place) for place, p in enumerate(p_values) if not math.isnan(p)]
    corrected = [math.nan] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(sorted(known)):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        corrected[place] = highest
    return corrected


def _judged(item: Difference, p_holm: float, margin: float) -> Difference:
    from dataclasses import replace

    return replace(item, p_holm=p_holm, verdict=_verdict(item, p_holm, margin))


def _verdict(item: Difference, p_holm: float, margin: float) -> str:
    if item.pairs and item.mean == 0.0 and item.p == 1.0:
        return SAME
    if item.ci95 is None:
        return OPEN
    low, high = item.ci95
    if not math.isnan(p_holm) and p_holm < LEVEL and not low <= 0 <= high:
        way = direction(item.metric)
        within = max(abs(low), abs(high)) <= margin
        if within:
            return SAME
        if way != NEUTRAL:
            return BETTER if (item.mean > 0) == (way == HIGHER) else WORSE
        return "higher" if item.mean > 0 else "lower"
    if max(abs(low), abs(high)) <= margin:
        return SAME
    return OPEN


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder: does `policy` earn what it adds over `below`?"""

    policy: str
    below: str
    verdict: str  # of the primary metric
    earned: str  # "yes" | "no" | "not shown"
    gains: tuple[str, ...]  # metrics on which it is better
    losses: tuple[str, ...]


@dataclass
class Comparison:
    """Results of several policies on the same replications: ``results[policy][replication]``."""

    scenario: str
    seed: int
    replications: int
    results: Mapping[str, Sequence[Summary]]
    baseline: str
    primary: str = "goodput_per_s"
    margin: float = 0.02
    about: str = ""
    details: dict[str, Any] = field(
        default_factory=dict
    )  # digests, versions, logs of replication 0, ... for the report
    expectations: list[Any] = field(default_factory=list)

    @property
    def policies(self) -> list[str]:
        """In the scenario's order: the ladder from plain to elaborate."""
        return list(self.results)

    def metric(self, policy: str, metric: str, where: Mapping[str, str] | None = None) -> Estimate:
        """One metric of one policy over the replications."""
        return estimate(summary.get(metric, where or {}) for summary in self.results[policy])

    def differences(self, baseline: str | None = None) -> list[Difference]:
        """Everybody against `baseline` (default: the scenario's) on the headline metrics and the primary one."""
        return differences(self.results, baseline or self.baseline, metrics=self.headlines, margin=self.margin)

    @property
    def headlines(self) -> tuple[str, ...]:
        return HEADLINES if self.primary in HEADLINES else (self.primary, *HEADLINES)

    def ladder(self) -> list[Rung]:
        """Each policy against the one before it."""
        steps = []
        for below, policy in zip(self.policies, self.policies[1:], strict=False):
            found = differences(self.results, below, metrics=self.headlines, margin=self.margin, policies=[policy])
            gains = tuple(item.metric for item in found if item.verdict == BETTER)
            losses = tuple(item.metric for item in found if item.verdict == WORSE)
            primary = next((item.verdict for item in found if item.metric == self.primary), OPEN)
            earned = (
                "yes"
                if primary == BETTER or (gains and not losses and primary != WORSE)
                else "no"
                if primary == WORSE or losses
                else "not shown"
            )
            steps.append(Rung(policy, below, primary, earned, gains, losses))
        return steps

    def recommendation(self) -> tuple[str, str]:
        """(policy, reason): the simplest policy that is not shown to be worse than the best one on the primary metric, and on no guard
        metric either. Simpler = earlier in the scenario's list."""
        best = self._best()
        against = differences(self.results, best, metrics=(self.primary, *GUARDS), margin=self.margin)
        worse = {item.policy: item.metric for item in against if item.verdict == WORSE}
        for policy in self.policies:
            if policy == best:
                return best, f"best {self.primary} among the policies, and no simpler one keeps up with it"
            if policy not in worse and not self._clearly_behind(policy, best):
                return policy, f"no policy is shown to be better on {self.primary}, and it is the simplest"
        return best, f"best {self.primary}"

    def _best(self) -> str:
        way = direction(self.primary) or HIGHER
        scores = {policy: self.metric(policy, self.primary).mean for policy in self.policies}
        known = [policy for policy in self.policies if not math.isnan(scores[policy])]
        return max(known, key=lambda policy: way * scores[policy]) if known else self.policies[0]

    def _clearly_behind(self, policy: str, best: str) -> bool:
        """With too few replications for a test, a policy further behind than the margin does not count as tied."""
        if self.replications >= 5:
            return False
        ours, theirs = self.metric(policy, self.primary).mean, self.metric(best, self.primary).mean
        return math.isnan(ours) or abs(ours - theirs) > self.margin * abs(theirs)

    def table(self) -> pd.DataFrame:
        """A row per policy and metric: mean, interval, undefined."""
        import pandas as pd

        rows = []
        for policy in self.policies:
            for name in sorted({metric for summary in self.results[policy] for metric in summary.metrics}):
                found = self.metric(policy, name)
                low, high = found.ci95 or (math.nan, math.nan)
                rows.append((policy, name, found.mean, low, high, found.undefined))
        return pd.DataFrame(rows, columns=["policy", "metric", "mean", "ci95_low", "ci95_high", "undefined"])

    def differences_table(self, baseline: str | None = None) -> pd.DataFrame:
        """`differences` as a table."""
        import pandas as pd

        return pd.DataFrame([item.as_dict() for item in self.differences(baseline)])

    def to_json(self) -> dict[str, Any]:
        """The document that ``--json`` prints (NaN becomes null)."""
        return clean(
            {
                "scenario": self.scenario,
                "seed": self.seed,
                "replications": self.replications,
                "versions": self.details.get("versions", {}),
                "digests": self.details.get("digests", {}),
                "policies": {policy: self._policy_json(policy) for policy in self.policies},
                "differences": [item.as_dict() for item in self.differences()],
                "ladder": [{name: getattr(rung, name) for name in Rung.__slots__} for rung in self.ladder()],
                "recommendation": dict(zip(("policy", "reason"), self.recommendation(), strict=True)),
                "expectations": [item.as_dict() for item in self.expectations],
                "report": self.details.get("report"),
            }
        )

    def _policy_json(self, policy: str) -> dict[str, Any]:
        summaries = self.results[policy]

        def over(tables: Sequence[Mapping[str, float]]) -> dict[str, Any]:
            names = sorted({name for table in tables for name in table})
            found = {name: estimate(table.get(name, math.nan) for table in tables) for name in names}
            return {
                name: {"mean": item.mean, "ci95": list(item.ci95) if item.ci95 else None, "values": list(item.values)}
                for name, item in found.items()
            }

        def grouped(attribute: str) -> dict[str, Any]:
            tables = [getattr(summary, attribute) for summary in summaries]
            names = sorted({name for table in tables for name in table})
            return {name: over([table.get(name, {}) for table in tables]) for name in names[:MOST_NAMES]}

        return {
            "metrics": over([summary.metrics for summary in summaries]),
            "by_class": grouped("by_class"),
            "by_tenant": grouped("by_tenant"),
            "pools": grouped("pools"),
        }

    def report(self, folder: str) -> str:
        """Write the report into `folder`; returns the path of its page."""
        from simkit.report import write_report

        return str(write_report(self, folder))

    def _repr_html_(self) -> str:
        from simkit.report.html import fragment

        return fragment(self)


MOST_NAMES = 100
"""A JSON document lists at most this many tenants (in order of name)."""


def clean(value: Any) -> Any:
    """Plain JSON data: NaN and infinities become None, tuples lists, numpy numbers Python's."""
    if isinstance(value, Mapping):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def digits(value: float, half_width: float | None) -> str:
    """`value` with no more digits than its interval supports: the last digit shown is of the size of the interval's first."""
    if math.isnan(value):
        return "-"
    if half_width is None or math.isnan(half_width) or half_width <= 0:
        return f"{value:.4g}"
    places = -math.floor(math.log10(half_width))
    if places > 6:
        return f"{value:.4g}"
    if places <= 0:
        scale = 10 ** (-places)
        return f"{round(value / scale) * scale:,.0f}"
    return f"{value:,.{places}f}"
