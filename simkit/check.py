"""Judge results: a scenario's expectations and controls, and a comparison against a stored baseline.

An expectation passes when the mean over replications meets its bound; with `strict` its whole 95 % interval must. "Better than" passes when
the mean of the paired differences goes the right way by at least what it asks, and their 95 % interval lies off zero. What is
undefined (NaN) in any replication was not shown. A control is a policy that must fail: it is judged as if it were the policy that each
line names, and fails as it must when it misses at least one line.

A baseline holds one value per replication for each gated metric. The next run replays the same demand, so it is compared with the baseline
pair by pair, by the rules of `simkit.stats` and corrected over the whole gate:

* ``identical``: the same value in every replication;
* ``equivalent``: the 95 % interval of the differences lies within the scenario's margin;
* ``better`` / ``worse``: shown, and beyond the margin;
* ``inconclusive``: none of these.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from simkit.catalogue import CLASS_HEADLINES, METRICS, digits, direction, split_key
from simkit.compare import Comparison, clean
from simkit.files import write_text
from simkit.model import SimkitError, UsageError
from simkit.scenario import Expectation, Scenario
from simkit.stats import BETTER, NEUTRAL, SAME, WORSE, Difference, Estimate, estimate, judged, metric_key, paired

BASELINE_SCHEMA = "simkit.baseline/1"
IDENTICAL, EQUIVALENT, INCONCLUSIVE = "identical", "equivalent", "inconclusive"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One expectation or control, judged. `value` is the mean (of a "better than": the gain as a fraction of the other policy's mean; of a
    control: how many lines it fails), `ci95` its interval."""

    text: str
    ok: bool
    value: float
    ci95: tuple[float, float] | None
    line: int  # in the scenario file, 0 = none
    policy: str
    kind: str = "expectation"  # "expectation" | "control"
    note: str = ""
    unit: str = ""  # "%" for a value that is a fraction of another policy's

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def shown(self) -> str:
        """The value with the digits that its interval supports; what a control failed."""
        return self.note if self.kind == "control" else _with_interval(self.value, self.ci95, self.unit)


def _with_interval(value: float, interval: tuple[float, float] | None, unit: str = "") -> str:
    scale = 100 if unit == "%" else 1
    if interval is None:
        return digits(value * scale, None) + unit
    half, low, high = (interval[1] - interval[0]) / 2 * scale, interval[0] * scale, interval[1] * scale
    return f"{digits(value * scale, half)}{unit} [{digits(low, half)}{unit}, {digits(high, half)}{unit}]"


# --- expectations ------------------------------------------------------------------------------------------


def refuse_unknown_metrics(scenario: Scenario) -> None:
    """Refuse expectations about metrics that do not exist, before anything runs. Raises UsageError with every such line."""
    problems = []
    for line in scenario.expect:
        if len(line.where) > 1:
            problems.append(_at(scenario, line, "where: expected one of class, tenant and pool"))
        if line.metric.split(".", maxsplit=1)[0] not in METRICS:
            near = get_close_matches(line.metric.split(".", maxsplit=1)[0], METRICS, n=1)
            problems.append(_at(scenario, line, _no_metric(line.metric, near)))
        elif line.better_than is not None and direction(line.metric) == NEUTRAL:
            problems.append(
                _at(scenario, line, f"{line.metric!r} has no better and worse: use at_least, at_most or equals")
            )
    if problems:
        raise UsageError("\n".join(problems))


def _no_metric(metric: str, near: Sequence[str]) -> str:
    return f"there is no metric {metric!r}" + (f", did you mean {near[0]!r}?" if near else "")


def _at(scenario: Scenario | None, line: Expectation, message: str) -> str:
    place = f"{scenario.path}:{line.line}:1" if scenario is not None and scenario.path else f"expect, line {line.line}"
    return f"{place}: {message} [expect]"


def judge(comparison: Comparison, scenario: Scenario, *, strict: bool = False) -> list[Judgement]:
    """Every expectation, then one judgement per control. Raises UsageError for a metric that no policy has."""
    for line in scenario.expect:
        _refuse_unknown_part(comparison, scenario, line)
    found = [_judge_line(comparison, line, strict=strict) for line in scenario.expect]
    return found + [_judge_control(comparison, scenario.expect, name) for name in scenario.control]


def _refuse_unknown_part(comparison: Comparison, scenario: Scenario, line: Expectation) -> None:
    """``latency_s.p96``: the head is known, the part is not. The names that there are come from the results."""
    names: set[str] = set()
    for summary in (summary for own in comparison.results.values() for summary in own):
        kind = next(iter(line.where), None)
        tables: Mapping[str, Mapping[str, float]] = (
            {"": summary.metrics}
            if kind is None
            else {"class": summary.by_class, "tenant": summary.by_tenant, "pool": summary.pools}[kind]
        )
        names.update(name for table in tables.values() for name in table)
    if line.metric not in names:
        near = get_close_matches(line.metric, sorted(names), n=1)
        raise UsageError(_at(scenario, line, _no_metric(line.metric, near)))


def _judge_line(comparison: Comparison, line: Expectation, *, strict: bool) -> Judgement:
    if line.better_than is not None:
        return _judge_better(comparison, line, line.better_than)
    found = comparison.metric(line.policy, line.metric, line.where)
    ok = _meets(found, line, strict=strict)
    return Judgement(line.text, ok, found.mean, found.ci95, line.line, line.policy, note=_undefined(found))


def _undefined(found: Estimate) -> str:
    return f"undefined in {found.undefined} of {len(found.values)} replications" if found.undefined else ""


def _meets(found: Estimate, line: Expectation, *, strict: bool) -> bool:
    if math.isnan(found.mean) or found.undefined:
        return False
    low, high = found.ci95 if strict and found.ci95 is not None else (found.mean, found.mean)
    if line.at_most is not None:
        return high <= line.at_most
    if line.at_least is not None:
        return low >= line.at_least
    assert line.equals is not None  # the document demands exactly one bound
    return line.equals - line.tolerance <= low and high <= line.equals + line.tolerance


def _judge_better(comparison: Comparison, line: Expectation, other: str) -> Judgement:
    way = direction(line.metric)
    ours = comparison.values(line.policy, line.metric, line.where)
    theirs = comparison.values(other, line.metric, line.where)
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if not (math.isnan(a) or math.isnan(b))]
    gains = estimate(way * (a - b) for a, b in pairs)
    base = abs(estimate(b for _, b in pairs).mean)
    enough = not math.isnan(gains.mean) and gains.mean > 0 and gains.mean >= line.by * base
    shown = gains.ci95 is None or gains.ci95[0] > 0
    fraction = gains.mean / base if base else math.nan
    scaled = None if gains.ci95 is None or not base else (gains.ci95[0] / base, gains.ci95[1] / base)
    lost = len(ours) - len(pairs)
    note = f"undefined in {lost} of {len(ours)} replications" if lost else ""
    return Judgement(
        line.text, enough and shown and not lost, fraction, scaled, line.line, line.policy, note=note, unit="%"
    )


def _judge_control(comparison: Comparison, lines: Sequence[Expectation], name: str) -> Judgement:
    """Judged as if it were the policy of each line; a comparison with itself says nothing and is left out."""
    judgeable = [line for line in lines if line.better_than != name]
    failed = [line for line in judgeable if not _judge_line(comparison, replace(line, policy=name), strict=False).ok]
    note = f"fails {len(failed)} of {len(judgeable)}" + (f", first {failed[0].metric!r}" if failed else "")
    return Judgement(
        f"control {name} fails as it must", bool(failed), float(len(failed)), None, 0, name, "control", note
    )


# --- baselines ---------------------------------------------------------------------------------------------


class NotComparable(SimkitError):
    """The baseline is of another scenario, seed or demand: it says nothing about this run. The command line exits with 4."""


@dataclass(frozen=True, slots=True)
class GateLine:
    """One metric of one policy against the baseline: means before and now, the mean of the paired differences and its interval."""

    policy: str
    metric: str  # a key such as "latency_s.p95[tenant=b]"
    outcome: str  # identical | equivalent | better | worse | inconclusive
    before: float
    now: float
    change: float
    ci95: tuple[float, float] | None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def shown(self) -> str:
        """``12.3 -> 14.1, change 1.8 [1.2, 2.4]``."""
        half = None if self.ci95 is None else (self.ci95[1] - self.ci95[0]) / 2
        change = "" if self.outcome == IDENTICAL else f", change {_with_interval(self.change, self.ci95)}"
        return f"{digits(self.before, half)} -> {digits(self.now, half)}{change}"


@dataclass(frozen=True, slots=True)
class Gate:
    """A comparison against its baseline, and what there is to know besides (a policy changed, other versions, fewer replications)."""

    lines: tuple[GateLine, ...]
    notes: tuple[str, ...]


def gated(comparison: Comparison, scenario: Scenario) -> list[str]:
    """Keys of the metrics that a baseline keeps: the headlines, those of each class where there are several, and every metric that an
    expectation names; without those that have no better and worse."""
    keys = list(comparison.headlines)
    if len(comparison.classes) > 1:
        keys += [metric_key(metric, {"class": name}) for name in comparison.classes for metric in CLASS_HEADLINES]
    keys += [metric_key(line.metric, line.where) for line in scenario.expect]
    return [key for key in dict.fromkeys(keys) if direction(split_key(key)[0]) != NEUTRAL]


def baseline_of(comparison: Comparison, scenario: Scenario) -> dict[str, Any]:
    """What `check --update` stores: per-replication values of the gated metrics, digests, versions. NaN becomes null."""
    digests = comparison.details.get("digests", {})
    stored: dict[str, Any] = clean(
        {
            "schema": BASELINE_SCHEMA,
            "scenario": comparison.scenario,
            "seed": comparison.seed,
            "replications": comparison.replications,
            "versions": comparison.details.get("versions", {}),
            "digests": {key: digests.get(key) for key in ("scenario", "policies", "traces", "logs")},
            "policies": {
                policy: {key: comparison.values(policy, key) for key in gated(comparison, scenario)}
                for policy in comparison.policies
            },
        }
    )
    return stored


def write_baseline(comparison: Comparison, scenario: Scenario, path: str | Path) -> None:
    """Store the comparison as the baseline: keys sorted, a metric a line, so that its diff can be read."""
    write_text(path, _readable(baseline_of(comparison, scenario)) + "\n")


def _readable(value: Any, depth: int = 0) -> str:
    """JSON with a mapping's entries on lines of their own and everything else on one line."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, allow_nan=False)
    pad = " " * (depth + 1)
    entries = (f"{pad}{json.dumps(key)}: {_readable(item, depth + 1)}" for key, item in sorted(value.items()))
    return "{\n" + ",\n".join(entries) + "\n" + " " * depth + "}"


def read_baseline(path: str | Path) -> dict[str, Any]:
    """A stored baseline. Raises UsageError when it cannot be read or is none."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"baseline {path}: cannot be read: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != BASELINE_SCHEMA:
        raise UsageError(
            f"baseline {path}: expected a document of schema {BASELINE_SCHEMA} (see `simkit check --update`)"
        )
    missing = {"scenario", "seed", "replications", "digests", "policies"} - set(data)
    if missing:
        raise UsageError(f"baseline {path}: the key {min(missing)!r} is missing")
    return data


def gate(comparison: Comparison, scenario: Scenario, baseline: Mapping[str, Any]) -> Gate:
    """Every gated metric of every policy that both have, over the replications that both have.

    Raises NotComparable when scenario, seed or demand differ: then the pairs would not be pairs.
    """
    digests, stored = comparison.details.get("digests", {}), baseline["digests"]
    common = min(comparison.replications, int(baseline["replications"]))
    _refuse_other_demand(comparison, baseline, common)
    raw: list[Difference] = []
    identical: dict[tuple[str, str], bool] = {}
    shared = [policy for policy in comparison.policies if policy in baseline["policies"]]
    for policy in shared:
        for key in gated(comparison, scenario):
            if key not in baseline["policies"][policy]:
                continue
            before = [math.nan if v is None else float(v) for v in baseline["policies"][policy][key][:common]]
            now = comparison.values(policy, key)[:common]
            if np.isnan(before).all() and np.isnan(now).all():
                continue
            identical[policy, key] = bool(np.array_equal(before, now, equal_nan=True))
            raw.append(paired(now, before, policy=policy, metric=key, margin=comparison.margin, ratio=False))
    if not raw:
        raise NotComparable("the baseline has none of these policies and metrics: store a new one with --update")
    ways = {item.metric: direction(split_key(item.metric)[0]) for item in raw}
    lines = []
    for item in judged(raw, ways):
        before = baseline["policies"][item.policy][item.metric][:common]
        means = (
            estimate(math.nan if v is None else v for v in before).mean,
            estimate(comparison.values(item.policy, item.metric)[:common]).mean,
        )
        outcome = _outcome(item, identical=identical[item.policy, item.metric])
        lines.append(GateLine(item.policy, item.metric, outcome, *means, item.mean, item.ci95, item.note))
    return Gate(tuple(lines), tuple(_notes(comparison, baseline, shared, common, digests, stored)))


def _outcome(item: Difference, *, identical: bool) -> str:
    if identical:
        return IDENTICAL
    return {SAME: EQUIVALENT, BETTER: BETTER, WORSE: WORSE}.get(item.verdict, INCONCLUSIVE)


def _refuse_other_demand(comparison: Comparison, baseline: Mapping[str, Any], common: int) -> None:
    digests, stored = comparison.details.get("digests", {}), baseline["digests"]
    versions = comparison.details.get("versions", {})
    other = (
        "" if versions == baseline.get("versions") else f" (versions then: {_listed(baseline.get('versions') or {})})"
    )
    for what, ours, theirs in (
        ("scenario", comparison.scenario, baseline["scenario"]),
        ("seed", comparison.seed, baseline["seed"]),
        ("content of the scenario", digests.get("scenario"), stored.get("scenario")),
        ("demand", (digests.get("traces") or [])[:common], (stored.get("traces") or [])[:common]),
    ):
        if ours != theirs:
            raise NotComparable(
                f"the baseline is of another {what}{other if what == 'demand' else ''}: once the change is meant, store a new one with --update"
            )


def _notes(
    comparison: Comparison,
    baseline: Mapping[str, Any],
    shared: Sequence[str],
    common: int,
    digests: Mapping[str, Any],
    stored: Mapping[str, Any],
) -> Iterable[str]:
    then = stored.get("policies") or {}
    for what, policies in (
        (
            "changed since the baseline",
            [name for name in shared if digests.get("policies", {}).get(name) != then.get(name)],
        ),
        ("not in the baseline", [name for name in comparison.policies if name not in shared]),
        ("in the baseline, but not run", [name for name in baseline["policies"] if name not in comparison.policies]),
    ):
        if policies:
            yield f"{what}: {', '.join(policies)}"
    if comparison.replications != baseline["replications"]:
        yield f"compared over the first {common} replications ({comparison.replications} now, {baseline['replications']} then)"
    versions = comparison.details.get("versions", {})
    if versions != baseline.get("versions"):
        yield f"other versions: {_listed(versions)} now, {_listed(baseline.get('versions') or {})} then"


def _listed(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) or "unknown"
