"""Text of reports: names from traces made harmless, numbers with their intervals, verdict marks."""

from __future__ import annotations

import math
import re
import unicodedata

from simkit.catalogue import digits, entry, shown
from simkit.stats import BETTER, OPEN, SAME, WORSE, Estimate

MARKS = {BETTER: "▲", WORSE: "▼", SAME: "≈", OPEN: "?", "higher": "↑", "lower": "↓"}
"""Better and worse, whichever way the number moved."""
PLAIN_MARKS = {BETTER: "+", WORSE: "-", SAME: "=", OPEN: "?", "higher": "^", "lower": "v"}
"""For terminals that know ASCII only."""

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def harmless(text: object, longest: int = 200) -> str:
    """One printable line: control signs (terminal escapes, line breaks) and signs that turn the direction of text become ``�``."""
    clean = "".join("�" if _controls(sign) else sign for sign in str(text))
    return short(clean, longest)


def _controls(sign: str) -> bool:
    return sign in _BIDI or unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp")


def short(text: str, longest: int) -> str:
    """`text`, its middle left out where it is too long."""
    if len(text) <= longest:
        return text
    head = (longest - 1) * 2 // 3
    return text[:head] + "…" + text[len(text) - (longest - 1 - head) :]


def half_text(metric: str, half_width: float) -> str:
    """A half-width with one significant digit, in the metric's unit (percent points for fractions)."""
    scaled = half_width * 100 if entry(metric).unit == "%" else half_width
    return digits(scaled, scaled)


def value_text(metric: str, found: Estimate) -> str:
    """``4.12``: no more digits than the interval supports."""
    return shown(metric, found.mean, found.half_width)


def spread_text(metric: str, found: Estimate) -> str:
    """``± 0.05``; empty without an interval or with one of width 0."""
    if found.ci95 is None or not found.half_width > 0 or metric == "stable":
        return ""
    if found.half_width < 1e-9 * abs(found.mean):
        return ""
    return f"± {half_text(metric, found.half_width)}"


def percent(change: float, interval: tuple[float, float] | None) -> str:
    """A ratio as a change: ``+12%``; whole percents where no interval says how many digits it supports."""
    if math.isnan(change):
        return ""
    half = None if interval is None else (interval[1] - interval[0]) / 2 * 100
    text = digits((change - 1) * 100, half or 1.0)
    return f"{text if text.startswith('-') else '+' + text}%"


def percent_range(interval: tuple[float, float] | None) -> str:
    """``[+9%, +15%]``."""
    if interval is None:
        return ""
    return f"[{percent(interval[0], interval)}, {percent(interval[1], interval)}]"


_MARKDOWN = re.compile(r"([\\`*\[\]~|!#])")
_EMPHASIS = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def markdown(text: object) -> str:
    """Text that Markdown shows as it is: nothing of it becomes formatting, a link, HTML or a new cell of a table."""
    plain = harmless(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    plain = _EMPHASIS.sub(r"\\_", _MARKDOWN.sub(r"\\\1", plain))
    return plain.replace("://", ":&sol;&sol;").replace("@", "&commat;").replace("www.", "www&period;")


def csv_text(text: object) -> str:
    """Text that a spreadsheet takes for text: a leading ``= + - @`` (or tab or return) starts no formula."""
    plain = str(text)
    return f"'{plain}" if plain[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") else plain
