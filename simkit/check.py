"""Judge results: a scenario's expectations and controls, and a comparison against a stored baseline.

An expectation passes when the mean over replications meets its bound; with `strict` the whole 95 % interval must. A comparison ("better than")
passes when the mean of the paired differences goes the right way by at least what it asks, and the interval of the differences excludes zero.
A control is a policy that must fail: it is judged as if it were the policy that each expectation names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simkit.compare import HIGHER, LOWER, Comparison, Estimate, clean, digits, direction, estimate, t_interval
from simkit.files import write_text
from simkit.model import UsageError
from simkit.scenario import Expectation, Scenario

BASELINE_SCHEMA = "simkit.baseline/1"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One expectation, judged."""

    text: str
    ok: bool
    value: float
    ci95: tuple[float, float] | None
    line: int
    policy: str
    kind: str = "expectation"  # "expectation" | "control"

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def shown(self) -> str:
        """The value with the digits that its interval supports."""
        half = None if self.ci95 is None else (self.ci95[1] - self.ci95[0]) / 2
        interval = (
            ""
            if self.ci95 is None or half is None
            else f" [{digits(self.ci95[0], half)}, {digits(self.ci95[1], half)}]"
        )
        return digits(self.value, half) + interval


def judge(comparison: Comparison, scenario: Scenario, *, strict: bool = False) -> list[Judgement]:
    """Every expectation, then one judgement per control. Raises UsageError for a metric that no policy has."""
    judged = [_judge_one(comparison, line, strict=strict) for line in scenario.expect]
    judged.extend(_judge_control(comparison, scenario.expect, name) for name in scenario.control)
    return judged


def _judge_one(comparison: Comparison, line: Expectation, *, strict: bool) -> Judgement:
    _refuse_unknown_metric(comparison, line)
    if line.better_than is not None:
        return _judge_better(comparison, line)
    found = comparison.metric(line.policy, line.metric, line.where)
    return Judgement(line.text, _meets(found, line, strict=strict), found.mean, found.ci95, line.line, line.policy)


def _refuse_unknown_metric(comparison: Comparison, line: Expectation) -> None:
    summaries = [summary for results in comparison.results.values() for summary in results]
    names = {name for summary in summaries for name in summary.metrics}
    for group in ("by_class", "by_tenant", "pools"):
        if any(
            kind in line.where for kind in {"by_class": ("class",), "by_tenant": ("tenant",), "pools": ("pool",)}[group]
        ):
            names |= {name for summary in summaries for table in getattr(summary, group).values() for name in table}
    if line.metric not in names:
        import difflib

        near = difflib.get_close_matches(line.metric, sorted(names), n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"expect (line {line.line}): there is no metric {line.metric!r}{hint}")


def _meets(found: Estimate, line: Expectation, *, strict: bool) -> bool:
    """NaN meets nothing: what is undefined was not shown."""
    low, high = found.ci95 if strict and found.ci95 is not None else (found.mean, found.mean)
    if math.isnan(found.mean):
        return False
    if line.at_most is not None:
        return high <= line.at_most
    if line.at_least is not None:
        return low >= line.at_least
    assert line.equals is not None
    return line.equals - line.tolerance <= low and high <= line.equals + line.tolerance


def _judge_better(comparison: Comparison, line: Expectation) -> Judgement:
    assert line.better_than is not None
    way = direction(line.metric)
    if way not in (HIGHER, LOWER):
        raise UsageError(f"expect (line {line.line}): {line.metric!r} has no better and worse: use at_least or at_most")
    ours = comparison.metric(line.policy, line.metric, line.where).values
    theirs = comparison.metric(line.better_than, line.metric, line.where).values
    gains = [way * (a - b) for a, b in zip(ours, theirs, strict=True) if not (math.isnan(a) or math.isnan(b))]
    base = estimate(theirs).mean
    mean = estimate(gains).mean
    import numpy as np

    interval = t_interval(np.array(gains))
    enough = not math.isnan(mean) and mean > 0 and mean >= line.by * abs(base)
    shown = interval is None or interval[0] > 0
    relative = mean / abs(base) if base else math.nan
    scaled = None if interval is None or not base else (interval[0] / abs(base), interval[1] / abs(base))
    return Judgement(line.text, enough and shown, relative, scaled, line.line, line.policy)


def _judge_control(comparison: Comparison, lines: Sequence[Expectation], name: str) -> Judgement:
    """A control passes as a control when it fails at least one expectation."""
    failed = []
    for line in lines:
        if line.better_than == name:
            continue
        verdict = _judge_one(comparison, replace(line, policy=name), strict=False)
        if not verdict.ok:
            failed.append(verdict.text)
    text = (
        f"control {name} fails as it must" if failed else f"control {name} must fail an expectation, but meets them all"
    )
    return Judgement(text, bool(failed), float(len(failed)), None, 0, name, "control")


# --- baselines ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GateLine:
    """One metric of one policy against the baseline: ``identical | equivalent | better | worse | inconclusive``."""

    policy: str
    metric: str
    outcome: str
    before: float
    now: float
    change: float  # mean of the paired differences
    ci95: tuple[float, float] | None

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class NotComparable(Exception):
    """The baseline is of another scenario, seed or size: it says nothing about this run. The command line exits with 4."""


def baseline_of(comparison: Comparison) -> dict[str, Any]:
    """What `check --update` stores: per-replication values of the headline metrics, digests, versions."""
    digests = comparison.details.get("digests", {})
    return clean(
        {
            "schema": BASELINE_SCHEMA,
            "scenario": comparison.scenario,
            "seed": comparison.seed,
            "replications": comparison.replications,
            "versions": comparison.details.get("versions", {}),
            "digests": {key: digests.get(key) for key in ("scenario", "policies", "traces", "logs")},
            "policies": {
                policy: {metric: list(comparison.metric(policy, metric).values) for metric in comparison.headlines}
                for policy in comparison.policies
            },
        }
    )


def write_baseline(comparison: Comparison, path: str | Path) -> None:
    """Store the comparison as the baseline, keys sorted, so that its diff can be read."""
    write_text(path, json.dumps(baseline_of(comparison), indent=1, sort_keys=True, allow_nan=False) + "\n")


def read_baseline(path: str | Path) -> dict[str, Any]:
    """A stored baseline. Raises UsageError when it cannot be read or is none."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"baseline {path}: cannot be read: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != BASELINE_SCHEMA:
        raise UsageError(f"baseline {path}: expected a document of schema {BASELINE_SCHEMA}")
    return data


def gate(comparison: Comparison, baseline: dict[str, Any]) -> list[GateLine]:
    """Every headline metric of every policy that both have, replication by replication.

    Raises NotComparable when scenario, seed or demand differ: then the pairs would not be pairs.
    """
    digests, stored = comparison.details.get("digests", {}), baseline["digests"]
    for what, ours, theirs in (
        ("scenario", comparison.scenario, baseline["scenario"]),
        ("scenario's content", digests.get("scenario"), stored.get("scenario")),
        ("seed", comparison.seed, baseline["seed"]),
        ("number of replications", comparison.replications, baseline["replications"]),
        ("demand", digests.get("traces"), stored.get("traces")),
    ):
        if ours != theirs:
            raise NotComparable(f"the baseline is of another {what}: update it with --update once the change is meant")
    lines = []
    for policy in comparison.policies:
        if policy not in baseline["policies"]:
            continue
        same_log = digests.get("logs", {}).get(policy) == (stored.get("logs") or {}).get(policy)
        for metric, before in baseline["policies"][policy].items():
            lines.append(_gate_line(comparison, policy, metric, before, same_log=same_log))
    if not lines:
        raise NotComparable("the baseline has none of these policies: update it with --update")
    return lines


def _gate_line(
    comparison: Comparison, policy: str, metric: str, before: list[float | None], *, same_log: bool
) -> GateLine:
    import numpy as np

    old = [math.nan if value is None else float(value) for value in before]
    new = list(comparison.metric(policy, metric).values)
    was, now = estimate(old), estimate(new)
    gaps = np.array([b - a for a, b in zip(old, new, strict=True) if not (math.isnan(a) or math.isnan(b))])
    appeared = [math.isnan(a) for a in old] != [math.isnan(b) for b in new]
    if (same_log or not gaps.any()) and not appeared:
        return GateLine(policy, metric, "identical", was.mean, now.mean, 0.0, None)
    interval = t_interval(gaps)
    change = float(np.mean(gaps)) if len(gaps) else math.nan
    margin = comparison.margin * abs(was.mean) if not math.isnan(was.mean) else 0.0
    low, high = interval if interval is not None else (change, change)
    way = direction(metric)
    if appeared or math.isnan(change):
        outcome = "inconclusive"
    elif max(abs(low), abs(high)) <= margin:
        outcome = "equivalent"
    elif low > 0 or high < 0:
        outcome = "changed" if way == 0 else "better" if (change > 0) == (way == HIGHER) else "worse"
    else:
        outcome = "inconclusive"
    return GateLine(policy, metric, outcome, was.mean, now.mean, change, interval)
