"""What to make of a comparison: does each step of the ladder earn its complexity, and which policy to choose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simkit.catalogue import GUARDS, direction, split_key, with_unit, words
from simkit.stats import BETTER, HIGHER, OPEN, SAME, WORSE, Difference, judged, paired

if TYPE_CHECKING:
    from simkit.compare import Comparison


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder: does `policy` earn what it adds over `below`?

    "yes": better on the primary metric or on a guard, and on neither worse; "no": worse somewhere and better nowhere, or shown to make no
    difference on any of them; "mixed": better on some and worse on others; "not shown": the rest.
    """

    policy: str
    below: str
    verdict: str  # of the primary metric
    earned: str  # "yes" | "no" | "mixed" | "not shown"
    primary: Difference | None  # None when the primary metric is undefined under both
    gains: tuple[str, ...]  # keys of all metrics on which it is better
    losses: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "primary"}
        return {**plain, "primary": None if self.primary is None else self.primary.as_dict()}


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to choose, and why, in words for someone who sees simkit for the first time."""

    policy: str
    best: str  # highest (or lowest) mean on the primary metric
    tied: tuple[str, ...]  # not shown to be worse than it
    dropped: Mapping[str, str]  # policy -> why it is out although it may do well on the primary metric
    reason: str
    caution: str = ""

    @property
    def sentence(self) -> str:
        """``Choose X: reason. Caution.``"""
        return f"Choose {self.policy}: {self.reason}." + (f" {self.caution}" if self.caution else "")

    def as_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {**plain, "dropped": dict(self.dropped), "sentence": self.sentence}


def rung(policy: str, below: str, table: Sequence[Difference], primary: str) -> Rung:
    """The verdict on one step, from the corrected differences between the two."""
    main = next((item for item in table if item.key == primary), None)
    deciding = [item for item in table if item.key == primary or item.key in GUARDS]
    better = [item for item in deciding if item.verdict == BETTER]
    worse = [item for item in deciding if item.verdict == WORSE]
    if better:
        earned = "mixed" if worse else "yes"
    elif worse or all(item.verdict == SAME for item in deciding):
        earned = "no"
    else:
        earned = "not shown"
    return Rung(
        policy, below, OPEN if main is None else main.verdict, earned, main,
        tuple(item.key for item in table if item.verdict == BETTER), tuple(item.key for item in table if item.verdict == WORSE),
    )  # fmt: skip


_FEWEST_TESTED = 5
"""Replications below which the recommendation goes by means."""
_FAILS = "it fails what the scenario expects"


# --- the recommendation ------------------------------------------------------------------------------------


def recommend(comparison: Comparison) -> Recommendation:
    """The simplest policy that is statistically tied with the best one on the primary metric and loses no guard metric to another such.

    1. Policies that were shown to fail the scenario's expectations are out (unless all of them do).
    2. Of the others, those behind the best mean on the primary metric are out: shown by paired t tests against it, corrected over the
       policies (Holm), and beyond the margin; with fewer than five replications, where tests show little, the means and the margin decide.
    3. Guards in order of gravity: who is behind the best of the remaining on one is out.
    4. Of what remains, the first in the scenario's order, which runs from plain to elaborate.
    """
    dropped = _failing(comparison)
    if len(dropped) == len(comparison.policies):
        dropped = {}
    candidates = [policy for policy in comparison.policies if policy not in dropped]
    best = _best(comparison, candidates, comparison.primary)
    behind = _behind(comparison, candidates, best, comparison.primary)
    tied = [policy for policy in candidates if policy not in behind]
    dropped.update(behind)
    left = tied
    for guard in GUARDS:
        leader = _best(comparison, left, guard)
        lost = _behind(comparison, left, leader, guard)
        left = [policy for policy in left if policy not in lost]
        dropped.update(lost)
    chosen = left[0]
    reason = _reason(comparison, chosen, best, tied, left, dropped)
    return Recommendation(chosen, best, tuple(tied), dropped, reason, _caution(comparison, chosen, best, left))


def _failing(comparison: Comparison) -> dict[str, str]:
    """Policies that do not do what the scenario expects: failed lines, and controls that failed as they must."""
    found: dict[str, str] = {}
    for item in comparison.expectations:
        if item.policy in comparison.results and (item.kind == "control") == bool(item.ok):
            found.setdefault(item.policy, _FAILS)
    return found


def _best(comparison: Comparison, policies: Sequence[str], metric: str) -> str:
    """The best mean; the first of equals, and the first at all when nobody has one."""
    way = direction(split_key(metric)[0]) or HIGHER
    scores = {policy: way * comparison.metric(policy, metric).mean for policy in policies}
    known = [policy for policy in policies if not math.isnan(scores[policy])]
    return max(known, key=lambda policy: scores[policy]) if known else policies[0]


def _against(comparison: Comparison, policies: Sequence[str], best: str, metric: str) -> list[Difference]:
    """Each of the policies but the best one against it, on one metric, corrected together."""
    name, where = split_key(metric)
    theirs = comparison.values(best, name, where)
    table = [
        paired(
            comparison.values(policy, name, where), theirs, policy=policy, baseline=best, metric=name, where=where,
            margin=comparison.margin, ratio=False,
        )
        for policy in policies if policy != best
    ]  # fmt: skip
    return judged(table, {name: direction(name) or HIGHER})


def _behind(comparison: Comparison, policies: Sequence[str], best: str, metric: str) -> dict[str, str]:
    """Those that are behind `best` on one metric, and why."""
    name, where = split_key(metric)
    found = {}
    for item in _against(comparison, policies, best, metric):
        if comparison.replications < _FEWEST_TESTED:
            out = _beyond(item, direction(name) or HIGHER)
        else:
            out = item.verdict == WORSE
        if out:
            half = item_half(item)
            ours, theirs = (with_unit(name, comparison.metric(who, metric).mean, half) for who in (item.policy, best))
            found[item.policy] = f"{words(name, where)} ({ours} against {theirs} under {best})"
    return found


def _beyond(item: Difference, way: int) -> bool:
    """By the means alone: behind by more than the margin. What is undefined under both, or under one, is not behind."""
    return way * item.mean < 0 and abs(item.mean) > item.margin


def item_half(item: Difference) -> float | None:
    """Half the width of a difference's interval."""
    return None if item.ci95 is None else (item.ci95[1] - item.ci95[0]) / 2


def _reason(
    comparison: Comparison, chosen: str, best: str, tied: Sequence[str], left: Sequence[str], dropped: Mapping[str, str]
) -> str:
    name, where = split_key(comparison.primary)
    found = comparison.metric(chosen, comparison.primary)
    value = f"{words(name, where)} ({with_unit(name, found.mean, found.half_width)})"
    if len(comparison.policies) == 1:
        return f"it is the only policy here, {value}"
    failing = [policy for policy, why in dropped.items() if why == _FAILS]
    among = " among the policies that do what the scenario expects" if failing else ""
    if chosen == best:
        parts = [f"it has the best {value}{among}"]
    else:
        level = next(item for item in _against(comparison, tied, best, comparison.primary) if item.policy == chosen)
        how = "level with" if level.verdict == SAME else "not shown to be behind"
        parts = [f"its {value} is {how} that of {best}, the best{among}"]
    for policy in tied:
        if policy in dropped:
            parts.append(f"{policy} does as well there but falls behind on {dropped[policy]}")
    simpler = [policy for policy in left if policy != chosen]
    if simpler:
        parts.append(f"no advantage of {_list(simpler)} over it is shown, and it is the simplest")
    return "; ".join(parts)


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def _of_a_recording(comparison: Comparison) -> str:
    """A recording is one sample of the traffic: replaying it again adds nothing, and an interval without width must not pass for certainty."""
    count = comparison.replications
    alike = all(
        len({summary.metrics[name] for summary in own if not math.isnan(summary.metrics[name])}) <= 1
        for own in comparison.results.values()
        for name in own[0].metrics
    )
    if count > 1 and alike:
        return f"All {count} replications are the same replay of one recording: the intervals show nothing. Try other recordings before you decide."
    return "This is one recording: try others before you decide."


def _caution(comparison: Comparison, chosen: str, best: str, left: Sequence[str]) -> str:
    """What the choice costs: guards on which another policy is shown to be better; and how little few replications show."""
    notes = []
    count = comparison.replications
    if comparison.details.get("is_recorded"):
        notes.append(_of_a_recording(comparison))
    elif len(comparison.policies) > 1 and count < _FEWEST_TESTED:
        notes.append(
            f"{'One replication is' if count == 1 else f'{count} replications are'} a first impression: run ten before you decide."
        )
    table = comparison.differences(chosen, ratios=False)
    undecided = [item.policy for item in _against(comparison, left, best, comparison.primary) if item.verdict == OPEN]
    if undecided and count >= _FEWEST_TESTED:
        notes.append(
            f"{count} replications leave open how {_list(undecided)} would compare with {best}: more would tell."
        )
    rivals: dict[str, list[str]] = {}
    for item in table:
        if item.key in GUARDS and item.verdict == BETTER:
            rivals.setdefault(item.policy, []).append(words(item.metric))
    if rivals:
        notes.append(
            "Weigh what others do better: " + "; ".join(f"{name} on {_list(on)}" for name, on in rivals.items()) + "."
        )
    failing = _failing(comparison)
    if chosen in failing:
        notes.append("No policy here does what the scenario expects, this one included.")
    return " ".join(notes)
