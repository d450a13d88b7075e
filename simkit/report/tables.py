"""The tables that terminal, Markdown and page share, as plain text cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simkit.catalogue import CLASS_HEADLINES, digits, direction, entry, shown, split_key, unit_of, words
from simkit.report.words import harmless, percent, percent_range, spread_text, value_text
from simkit.stats import BETTER, HIGHER, WORSE, Difference, Estimate, estimate

if TYPE_CHECKING:
    from simkit.advice import Rung
    from simkit.compare import Comparison


@dataclass(frozen=True)
class Cell:
    """One number: `value`, `spread` ("± 0.05" or ""), the verdict against the baseline ("" for the baseline itself) and a note."""

    value: str
    spread: str = ""
    verdict: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        return f"{self.value} {self.spread}".rstrip()


@dataclass(frozen=True)
class Row:
    """One metric over all policies, in their order."""

    key: str
    label: str
    unit: str
    cells: Sequence[Cell]
    telling: bool  # some policy is shown to differ from the baseline

    @property
    def heading(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


def headline_rows(comparison: Comparison) -> list[Row]:
    """The headline metrics over everything, beside them the runs that latency knows nothing of. What nobody has is left out, and what is 0
    everywhere, unless more of it were better."""
    verdicts = {(item.policy, item.key): item for item in comparison.differences()}
    rows = [_row(comparison, key, {}, verdicts) for key in comparison.headlines]
    found = [row for row in rows if row is not None]
    after = next((place for place, row in enumerate(found) if row.key.startswith("latency_s")), len(found))
    unknown = _not_completed(comparison)
    return [*found[:after], *unknown, *found[after:]]


def class_rows(comparison: Comparison) -> dict[str, list[Row]]:
    """Four metrics of each class; nothing where there is one class only."""
    if len(comparison.classes) < 2:
        return {}
    verdicts = {(item.policy, item.key): item for item in comparison.differences()}
    tables = {}
    for name in comparison.classes:
        rows = [_row(comparison, metric, {"class": name}, verdicts) for metric in CLASS_HEADLINES]
        tables[name] = [row for row in rows if row is not None]
    return tables


def _row(
    comparison: Comparison, key: str, where: Mapping[str, str], verdicts: Mapping[tuple[str, str], Difference]
) -> Row | None:
    metric, inner = split_key(key)
    place = where or inner
    found = [comparison.metric(policy, metric, place) for policy in comparison.policies]
    if all(math.isnan(item.mean) for item in found):
        return None
    is_zero = all(set(item.values) <= {0.0} for item in found)
    if is_zero and key != comparison.primary and direction(metric) != HIGHER:
        return None  # nothing of what is bad; nothing of what is good is news
    full = key if inner or not where else key + "".join(f"[{kind}={name}]" for kind, name in where.items())
    cells = [
        _cell(metric, item, verdicts.get((policy, full)))
        for policy, item in zip(comparison.policies, found, strict=True)
    ]
    label = harmless(words(metric, inner))
    return Row(full, label, unit_of(metric), cells, any(cell.verdict in (BETTER, WORSE) for cell in cells))


def _cell(metric: str, found: Estimate, difference: Difference | None) -> Cell:
    notes = [] if difference is None else [difference.note]
    if found.undefined and not (difference is not None and difference.note.startswith("undefined")):
        notes.append(f"undefined in {found.undefined} of {len(found.values)} replications")
    return Cell(
        value_text(metric, found),
        spread_text(metric, found),
        "" if difference is None else difference.verdict,
        "; ".join(note for note in notes if note),
    )


def _not_completed(comparison: Comparison) -> list[Row]:
    """Offered minus completed: what a latency leaves out."""
    found = []
    for policy in comparison.policies:
        offered, completed = (comparison.values(policy, metric) for metric in ("offered", "completed"))
        found.append(estimate(a - b for a, b in zip(offered, completed, strict=True)))
    if all(math.isnan(item.mean) for item in found):
        return []
    cells = [Cell(shown("unfinished", item.mean, item.half_width), spread_text("unfinished", item)) for item in found]
    return [Row("not_completed", "runs not completed", "", cells, telling=False)]


@dataclass(frozen=True)
class Change:
    """One line of the table of differences, as text."""

    policy: str
    metric: str
    difference: str  # "+0.12 [0.05, 0.19]"
    ratio: str  # "+12% [+9%, +15%]"
    p: str
    verdict: str
    note: str


def changes(table: Sequence[Difference]) -> list[Change]:
    """All differences as text."""
    return [_change(item) for item in table]


def _change(item: Difference) -> Change:
    half = None if item.ci95 is None else (item.ci95[1] - item.ci95[0]) / 2
    ends = "" if item.ci95 is None else f" [{', '.join(_signed(item.metric, end, half, '') for end in item.ci95)}]"
    difference = f"{_signed(item.metric, item.mean, half)}{ends}"
    if entry(item.metric).unit == "%" and not math.isnan(item.mean):
        difference = f"{difference.replace('%', '')} points"  # of percent: a difference, not a ratio
    ratio = f"{percent(item.ratio, item.ratio_ci95)} {percent_range(item.ratio_ci95)}".strip()
    if item.ratio_ci95 is None and item.pairs > 1:
        ratio = ""  # no interval says how much of it to believe
    return Change(
        harmless(item.policy), harmless(words(item.metric, item.where)), difference, ratio, p_text(item.p_holm), item.verdict,
        "; ".join(note for note in (item.note, item.ratio_note if ratio else "") if note),
    )  # fmt: skip


def _signed(metric: str, mean: float, half: float | None, plus: str = "+") -> str:
    number = digits(mean, half) if metric == "stable" else shown(metric, mean, half)
    return f"{plus}{number}" if mean > 0 else number


def p_text(p: float) -> str:
    """A corrected p with two significant digits; never smaller than it can be trusted."""
    if math.isnan(p):
        return "-"
    return "< 0.0001" if p < 0.0001 else f"{p:.2g}" if p < 0.995 else "1"


EARNED = {
    "yes": "yes", "no": "no", "mixed": "for some, at a price", "not shown": "not shown",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One rung of the ladder as text."""

    policy: str
    below: str
    earned: str  # a key of EARNED
    why: str


def steps(comparison: Comparison) -> list[Step]:
    """The ladder: what each policy adds to the one below it."""
    return [_step(comparison, rung) for rung in comparison.ladder()]


def _step(comparison: Comparison, rung: Rung) -> Step:
    parts = []
    metric, where = split_key(comparison.primary)
    if rung.primary is not None:
        change = _change(rung.primary)
        shift = "identical" if rung.primary.note.startswith("identical") else change.difference
        parts.append(f"{words(metric, where)}: {rung.verdict} ({shift})")
    for verb, keys in (("better on", rung.gains), ("worse on", rung.losses)):
        named = [words(*split_key(key)) for key in keys if key != comparison.primary]
        if named:
            more = f" and {len(named) - 4} more" if len(named) > 4 else ""
            parts.append(f"{verb} {', '.join(named[:4])}{more}")
    return Step(harmless(rung.policy), harmless(rung.below), rung.earned, harmless("; ".join(parts), 400))


@dataclass(frozen=True)
class Expected:
    """One judged expectation or control as text."""

    text: str
    ok: bool
    value: str  # what it is, as a half sentence: "is 1.9 [1.6, 2.3]", "fails 1 of 1 ..."; may be ""


def expected(comparison: Comparison) -> list[Expected]:
    """Expectations and controls in their order."""
    found = []
    for item in comparison.expectations:
        value = f"is {harmless(item.shown)}" if item.kind == "expectation" else ""
        note = f"{value}, {harmless(item.note)}" if value and item.note else value or harmless(item.note)
        found.append(Expected(harmless(item.text, 300), bool(item.ok), note))
    return found


def expectations_line(comparison: Comparison) -> str:
    """One sentence on all of them; "" without any."""
    lines = [item for item in comparison.expectations if item.kind == "expectation"]
    controls = [item for item in comparison.expectations if item.kind != "expectation"]
    if not lines and not controls:
        return ""
    failed = len([item for item in lines if not item.ok])
    text = f"{failed} of {len(lines)} expectations fail" if failed else f"all {len(lines)} expectations are met"
    if len(lines) == 1:
        text = "the expectation fails" if failed else "the expectation is met"
    silent = [item for item in controls if not item.ok]
    if silent:
        text += f"; {_count(len(silent), 'control')} that must fail {'does' if len(silent) == 1 else 'do'} not"
    elif controls:
        text += f"; {'the control fails' if len(controls) == 1 else 'the controls fail'} as {'it' if len(controls) == 1 else 'they'} must"
    return text


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def setting(comparison: Comparison) -> str:
    """``5 policies x 10 replications, seed 7``."""
    policies = f"{len(comparison.policies)} {'policy' if len(comparison.policies) == 1 else 'policies'}"
    return f"{policies} × {_count(comparison.replications, 'replication')}, seed {comparison.seed}"


def stopped_line(comparison: Comparison) -> str:
    """That the comparison is of a part only; "" when it is whole."""
    stopped = comparison.details.get("stopped")
    if not stopped:
        return ""
    return (
        f"Stopped early ({stopped['reason']}): this is from {stopped['finished']} of {stopped['wanted']} replications."
    )


def how_judged(comparison: Comparison) -> str:
    """What the marks mean, in one sentence."""
    count = len([item for item in comparison.differences() if not item.where])
    if comparison.replications < 2:
        return "One replication: no intervals and no verdicts."
    return (
        f"Against {harmless(comparison.baseline)}, paired by replication; 95 % intervals, "
        f"tests corrected for {count} comparisons (Holm); differences within {comparison.margin * 100:g} % do not count."
    )


def provenance(comparison: Comparison) -> list[tuple[str, str]]:
    """Everything that it takes to have the same numbers again."""
    details = comparison.details
    digests = details.get("digests", {})
    rows = [
        ("repeat with", command(comparison)),
        ("seed", str(comparison.seed)),
        ("replications", str(comparison.replications)),
        ("baseline", comparison.baseline),
        ("primary metric", comparison.primary),
        ("equivalence margin", f"{comparison.margin * 100:g} % of the baseline's mean"),
    ]
    rows += [(f"version of {name}", str(value)) for name, value in sorted(details.get("versions", {}).items())]
    if digests.get("scenario"):
        rows.append(("digest of the scenario", str(digests["scenario"])))
    rows += [(f"digest of policy {name}", str(value)) for name, value in (digests.get("policies") or {}).items()]
    rows += [(f"digest of demand {place}", str(value)) for place, value in enumerate(digests.get("traces") or ())]
    for name, logs in (digests.get("logs") or {}).items():
        rows.append((f"digest of log 0 under {name}", str(logs[0]) if logs else "-"))
    return [(harmless(name), harmless(value, 400)) for name, value in rows]


def command(comparison: Comparison) -> str:
    """The command line that gives these numbers again."""
    import shlex

    given = comparison.details.get("command")
    if given:
        return str(given)
    parts = [
        "simkit",
        "run",
        comparison.scenario,
        "--seed",
        str(comparison.seed),
        "--replications",
        str(comparison.replications),
    ]
    for policy in comparison.policies:
        parts += ["--policy", policy]
    return shlex.join(parts)
