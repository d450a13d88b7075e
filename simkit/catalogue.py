"""The metrics as people meet them: which way is better, what they are called, their unit, and how their numbers are written."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from simkit.model import UsageError
from simkit.stats import HIGHER, LOWER, NEUTRAL


@dataclass(frozen=True, slots=True)
class Entry:
    """`way`: HIGHER or LOWER is better, or NEUTRAL; `words`: what it is called; `unit`: "s", "1/s", "$", "%" (a fraction), "" (a number)."""

    way: int
    words: str
    unit: str = ""


METRICS: Mapping[str, Entry] = {
    "goodput_per_s": Entry(HIGHER, "goodput", "1/s"),
    "success_rate": Entry(HIGHER, "success rate", "%"),
    "latency_s": Entry(LOWER, "latency", "s"),
    "wait_s": Entry(LOWER, "task wait", "s"),
    "queue_age_s": Entry(LOWER, "queue age", "s"),
    "deadline_miss_rate": Entry(LOWER, "deadlines missed", "%"),
    "cost_usd": Entry(LOWER, "cost", "$"),
    "cost_per_verified_usd": Entry(LOWER, "cost per verified run", "$"),
    "offered": Entry(NEUTRAL, "runs offered"),
    "admitted": Entry(NEUTRAL, "runs admitted"),
    "completed": Entry(HIGHER, "runs completed"),
    "verified": Entry(HIGHER, "runs verified"),
    "unverified": Entry(LOWER, "runs closed unverified"),
    "false_completions": Entry(LOWER, "false completions"),
    "failed": Entry(LOWER, "runs failed"),
    "dead_lettered": Entry(LOWER, "runs dead-lettered"),
    "timed_out": Entry(LOWER, "runs timed out"),
    "rejected": Entry(LOWER, "runs rejected"),
    "shed": Entry(LOWER, "runs shed"),
    "unfinished": Entry(LOWER, "runs unfinished"),
    "deferrals": Entry(NEUTRAL, "deferrals"),
    "downgrades": Entry(NEUTRAL, "downgrades"),
    "preemptions": Entry(NEUTRAL, "preemptions"),
    "executions": Entry(NEUTRAL, "executions"),
    "duplicate_executions": Entry(LOWER, "duplicate executions"),
    "wasted_work_s": Entry(LOWER, "wasted work", "s"),
    "retry_amplification": Entry(LOWER, "attempts per call"),
    "api_calls": Entry(NEUTRAL, "API calls"),
    "api_429": Entry(LOWER, "429 answers"),
    "api_errors": Entry(LOWER, "API errors"),
    "coalesced": Entry(NEUTRAL, "calls shared"),
    "rework": Entry(LOWER, "rounds of rework"),
    "served_work_s": Entry(NEUTRAL, "work served", "s"),
    "starved": Entry(LOWER, "starved tasks"),
    "jain": Entry(HIGHER, "Jain fairness index"),
    "share_error": Entry(LOWER, "share error"),
    "utilisation": Entry(NEUTRAL, "utilisation", "%"),
    "queue_depth": Entry(LOWER, "queue depth"),
    "queue_depth_max": Entry(LOWER, "deepest queue"),
    "queued_work_s": Entry(LOWER, "queued work", "s"),
    "mode_s": Entry(NEUTRAL, "time in mode", "s"),
    "mode_switches": Entry(LOWER, "mode switches"),
    "recovery_s": Entry(LOWER, "recovery", "s"),
    "stable": Entry(HIGHER, "stable"),
}

HEADLINES = (
    "goodput_per_s", "success_rate", "latency_s.p50", "latency_s.p95", "latency_s.p99", "wait_s.p95", "deadline_miss_rate",
    "false_completions", "starved", "unfinished", "api_429", "retry_amplification", "cost_per_verified_usd", "stable",
)  # fmt: skip
"""The metrics that a comparison judges, in the order in which it shows them."""

CLASS_HEADLINES = ("success_rate", "latency_s.p95", "deadline_miss_rate", "starved")
"""What it judges of each class where there are several: an average over classes hides who pays."""

GUARDS = ("stable", "false_completions", "success_rate", "starved", "deadline_miss_rate")
"""A recommended policy must not be worse on these than another one that does the main job equally well; the gravest first."""

_MOST_DIGITS = 7
_KEY = re.compile(r"(?P<metric>[^\[\]]+)(?:\[(?P<kind>class|tenant|pool)=(?P<name>.+)\])?")
_PART_WORDS = {"mean": "mean", "p50": "median", "p95": "p95", "p99": "p99", "max": "max"}


def entry(metric: str) -> Entry:
    """Of ``latency_s.p95`` as of ``latency_s``; an unknown metric is neutral and called by its name."""
    known = METRICS.get(metric) or METRICS.get(metric.split(".", maxsplit=1)[0])
    return known or Entry(NEUTRAL, metric)


def direction(metric: str) -> int:
    """Whether more (HIGHER) or less (LOWER) of a metric is better; NEUTRAL when neither is."""
    return entry(metric).way


def split_key(key: str) -> tuple[str, dict[str, str]]:
    """``"latency_s.p95[class=interactive]"`` -> ("latency_s.p95", {"class": "interactive"}). Raises UsageError for another form."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise UsageError(
            f"{key!r} names no metric: expected for example latency_s.p95 or latency_s.p95[class=interactive]"
        )
    kind = found["kind"]
    return found["metric"], {kind: found["name"]} if kind else {}


def words(metric: str, where: Mapping[str, str] | None = None) -> str:
    """``latency p95 of class interactive``."""
    head, _, part = metric.partition(".")
    text = entry(head).words + (f" {_PART_WORDS.get(part, part)}" if part else "")
    return text + "".join(f" of {kind} {name}" for kind, name in (where or {}).items())


def digits(value: float, half_width: float | None) -> str:
    """`value` with no more digits than its interval supports: the last digit shown is of the size of the half-width's first one.

    Without an interval (None, NaN or width 0) four significant digits; whole numbers whole. NaN is "-".
    """
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if half_width is None or not math.isfinite(half_width) or half_width <= 0:
        return _four(value)
    places = -math.floor(math.log10(half_width))
    if value and places + math.floor(math.log10(abs(value))) >= _MOST_DIGITS:
        return _four(value)  # an interval of rounding noise promises nothing
    return _rounded(value, places)


def _four(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    text = _rounded(value, 3 - math.floor(math.log10(abs(value))))
    return text.rstrip("0").rstrip(".") if "." in text else text


def _rounded(value: float, places: int) -> str:
    if places <= 0:
        return f"{int(round(value, places)):,}"
    text = f"{value:,.{places}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text


def shown(metric: str, value: float, half_width: float | None = None) -> str:
    """A metric's value as people read it: fractions as percent, dollars with their sign, `stable` as yes or no where it is unanimous."""
    unit = entry(metric).unit
    if metric == "stable" and value in (0.0, 1.0):
        return "yes" if value else "no"
    if unit == "%":
        text = digits(value * 100, None if half_width is None else half_width * 100)
        return text if math.isnan(value) else f"{text}%"
    text = digits(value, half_width)
    if unit != "$" or math.isnan(value):
        return text
    return f"-${text[1:]}" if text.startswith("-") else f"${text}"


def with_unit(metric: str, value: float, half_width: float | None = None) -> str:
    """`shown` with its unit behind: ``12.3 s``, ``4.03/s``."""
    text, unit = shown(metric, value, half_width), unit_of(metric)
    if not unit or math.isnan(value):
        return text
    return f"{text}{unit[1:]}" if unit.startswith("1/") else f"{text} {unit}"


def unit_of(metric: str) -> str:
    """The unit to put into a heading; "" where the number itself says it."""
    unit = entry(metric).unit
    return "" if unit in ("%", "$") else unit
