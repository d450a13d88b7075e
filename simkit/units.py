"""Units: what documents write ("30s", "60/min", "15%", "$50/day") and what the engine counts with.

Each `parse_*` function raises ValueError with what was found and what was expected. The annotated types are for fields of
document models and of mechanisms: pydantic turns the document's text into the engine's number through them.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction as Exact
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from simkit.model import NEVER_NS, NS_PER_S

_UNIT_NS = {
    "ns": 1, "us": 10**3, "ms": 10**6, "s": NS_PER_S, "m": 60 * NS_PER_S, "min": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S, "d": 86400 * NS_PER_S,
}  # fmt: skip
_PER_NS = {
    **_UNIT_NS, "sec": NS_PER_S, "second": NS_PER_S, "minute": 60 * NS_PER_S, "hour": 3600 * NS_PER_S, "day": 86400 * NS_PER_S,
}  # fmt: skip
_NUMBER = r"[0-9]{1,20}(?:_[0-9]{1,20}){0,9}(?:\.[0-9]{1,20})?"  # bounded: no text is turned into a number of any size
_DURATION_PART = re.compile(rf"\s*({_NUMBER})\s*(ns|us|ms|min|s|m|h|d)")
_RATE = re.compile(rf"({_NUMBER})\s*/\s*({_NUMBER})?\s*([a-z]+)")
_PERCENT = re.compile(rf"({_NUMBER})\s*%")
_USD = re.compile(rf"\$?\s*({_NUMBER})")
_USD_RATE = re.compile(rf"\$?\s*({_NUMBER})\s*/\s*({_NUMBER})?\s*([a-z]+)")
_FACTOR = re.compile(rf"[xX]\s*({_NUMBER})|({_NUMBER})\s*[xX]?")
_MOST = 2**63
_DURATION_HINT = "a duration such as 250ms, 30s, 5m or 1h30m"


def _plain_number(value: Any) -> float | int | None:
    """`value` as a finite number, None when it is no number; booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"found {value}, expected a finite number")
    if abs(value) >= _MOST:
        raise ValueError(f"found {_shown(value)}, expected a number below 2^63")
    return value


def _shown(value: Any) -> str:
    """`value` for an error message, shortened."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "a number of more than 40 digits"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _exact(digits: str) -> Exact:
    return Exact(digits.replace("_", ""))


def parse_duration(value: Any) -> int:
    """ns, >= 0. "250ms", "30s", "1h30m"; 0 needs no unit, every other bare number is refused."""
    number = _plain_number(value)
    if number == 0:
        return 0
    if number is not None:
        raise ValueError(f"found {value!r} without a unit, expected {_DURATION_HINT}")
    if not isinstance(value, str):
        raise ValueError(f"found {_shown(value)}, expected {_DURATION_HINT}")
    text = value.strip()
    if text == "0":
        return 0
    if text.startswith("-"):
        raise ValueError(f"found {_shown(value)}, a duration cannot be negative")
    position, total, smaller_than = 0, Exact(0), math.inf
    for part in _DURATION_PART.finditer(text):
        unit = _UNIT_NS[part[2]]
        if part.start() != position or unit >= smaller_than:
            break
        total += _exact(part[1]) * unit
        position, smaller_than = part.end(), unit
    if position != len(text) or not text:
        raise ValueError(f"found {_shown(value)}, expected {_DURATION_HINT}")
    nanoseconds = round(total)
    if nanoseconds >= NEVER_NS:
        raise ValueError(f"found {value!r}, longer than any simulated time (146 years)")
    if total and not nanoseconds:
        raise ValueError(f"found {value!r}, shorter than the clock can tell (1ns)")
    return nanoseconds


def parse_positive_duration(value: Any) -> int:
    """ns, > 0."""
    nanoseconds = parse_duration(value)
    if nanoseconds == 0:
        raise ValueError(f"found {value!r}, expected a duration above 0")
    return nanoseconds


def parse_fraction(value: Any) -> float:
    """0 to 1: "15%" or 0.15."""
    number = _percent(value)
    if number is None or not 0 <= number <= 1:
        raise ValueError(f"found {_shown(value)}, expected a fraction from 0 to 1 such as 15% or 0.15")
    return number


def parse_gain(value: Any) -> float:
    """A fraction that may lie above 1: "20%", "150%" or 1.5."""
    number = _percent(value)
    if number is None or number < 0:
        raise ValueError(f"found {_shown(value)}, expected a gain such as 20% or 0.2")
    return number


def _percent(value: Any) -> float | None:
    """A number, or the text of a percentage, as a float; None for anything else."""
    number = _plain_number(value)
    if number is not None:
        return float(number)
    match = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(_exact(match[1]) / 100) if match else None


def parse_rate(value: Any) -> float:
    """Per second, > 0: "60/min", "10/s", "100/10s"."""
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[3] not in _PER_NS:
        raise ValueError(f"found {_shown(value)}, expected a rate such as 10/s, 60/min or 2/h")
    amount, period_ns = _exact(match[1]), _exact(match[2] or "1") * _PER_NS[match[3]]
    if not amount or not period_ns:
        raise ValueError(f"found {value!r}, expected a rate above 0")
    return float(amount * NS_PER_S / period_ns)


def parse_usd(value: Any) -> float:
    """Dollars, >= 0: "$50", "$0.02" or 50."""
    number = _plain_number(value)
    match = _USD.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        number = float(_exact(match[1]))
    if number is None or number < 0:
        raise ValueError(f"found {_shown(value)}, expected an amount of dollars such as $50 or 0.02")
    return float(number)


def parse_usd_rate(value: Any) -> tuple[float, int]:
    """(dollars, window in ns): "$50/day", "$5/h", "$1/10min"."""
    match = _USD_RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[3] not in _PER_NS:
        raise ValueError(f"found {_shown(value)}, expected dollars per window such as $50/day or $5/h")
    window_ns = round(_exact(match[2] or "1") * _PER_NS[match[3]])
    if not 0 < window_ns < NEVER_NS:
        raise ValueError(f"found {value!r}, expected a window above 0 and below 146 years")
    return float(_exact(match[1])), window_ns


def parse_factor(value: Any) -> float:
    """> 0: "x10", "10x" or 10."""
    number = _plain_number(value)
    match = _FACTOR.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        number = float(_exact(match[1] or match[2]))
    if number is None or number <= 0:
        raise ValueError(f"found {_shown(value)}, expected a factor above 0 such as x10 or 0.5")
    return float(number)


def parse_number(value: Any) -> float:
    """Any finite number."""
    number = _plain_number(value)
    if number is None:
        raise ValueError(f"found {_shown(value)}, expected a number")
    return float(number)


def parse_amount(value: Any) -> float:
    """A finite number >= 0."""
    number = _plain_number(value)
    if number is None or number < 0:
        raise ValueError(f"found {_shown(value)}, expected a number of 0 or more")
    return float(number)


def parse_count(value: Any) -> int:
    """A whole number >= 0."""
    return _whole(value, 0, "a whole number of 0 or more")


def parse_positive_count(value: Any) -> int:
    """A whole number >= 1."""
    return _whole(value, 1, "a whole number of 1 or more")


def parse_whole(value: Any) -> int:
    """A whole number of either sign."""
    return _whole(value, -_MOST, "a whole number")


def _whole(value: Any, least: int, expected: str) -> int:
    number = _plain_number(value)
    if number is None or not isinstance(number, int) or number < least:
        raise ValueError(f"found {_shown(value)}, expected {expected}")
    return number


def parse_name(value: Any) -> str:
    """A name: text that is not empty, does not begin or end with a blank, and has no control characters, line ends or half characters."""
    if not isinstance(value, str):
        raise ValueError(
            f"found {_shown(value)}, expected a name (write it in quotes if it looks like a number or a truth value)"
        )
    if not value.strip():
        raise ValueError(f"found {value!r}, expected a name that is not empty")
    if value != value.strip() or any(unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in value):
        raise ValueError(f"found {_shown(value)}, expected a name without control characters or blanks at its ends")
    return value


def _typed(parse: Callable[[Any], Any], schema: dict[str, Any]) -> Any:
    return (BeforeValidator(parse), WithJsonSchema(schema))


_DIGITS = r"[0-9][0-9_]*(\.[0-9]+)?"
_PER = rf"\s*/\s*({_DIGITS})?\s*(ns|us|ms|s|m|h|d|sec|second|min|minute|hour|day)"
_DURATION_SCHEMA = {
    "anyOf": [{"type": "string", "pattern": rf"^(\s*{_DIGITS}\s*(ns|us|ms|min|s|m|h|d))+$|^0$"}, {"const": 0}],
    "description": "A duration such as 250ms, 30s, 5m or 1h30m.",
}
_FRACTION_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "string", "pattern": r"^(100(\.0+)?|[0-9]?[0-9](\.[0-9]+)?)\s*%$"},
    ],
    "description": "A fraction such as 15% or 0.15.",
}
_GAIN_SCHEMA = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": rf"^{_DIGITS}\s*%$"}],
    "description": "A gain such as 20% or 0.2.",
}
_RATE_SCHEMA = {"type": "string", "pattern": rf"^{_DIGITS}{_PER}$", "description": "A rate such as 60/min."}
_USD_SCHEMA = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": rf"^\$?\s*{_DIGITS}$"}],
    "description": "Dollars, such as $50 or 0.02.",
}
_USD_RATE_SCHEMA = {
    "type": "string",
    "pattern": rf"^\$?\s*{_DIGITS}{_PER}$",
    "description": "Dollars per window, such as $50/day.",
}
_FACTOR_SCHEMA = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": rf"^([xX]\s*{_DIGITS}|{_DIGITS}\s*[xX]?)$"},
    ],
    "description": "A factor such as x10.",
}

Duration = Annotated[int, *_typed(parse_duration, _DURATION_SCHEMA)]
"""ns, >= 0."""
PositiveDuration = Annotated[int, *_typed(parse_positive_duration, _DURATION_SCHEMA)]
"""ns, > 0."""
Fraction = Annotated[float, *_typed(parse_fraction, _FRACTION_SCHEMA)]
"""0 to 1."""
Gain = Annotated[float, *_typed(parse_gain, _GAIN_SCHEMA)]
"""A fraction that may lie above 1."""
Rate = Annotated[float, *_typed(parse_rate, _RATE_SCHEMA)]
"""Per second, > 0."""
Usd = Annotated[float, *_typed(parse_usd, _USD_SCHEMA)]
"""Dollars, >= 0."""
UsdRate = Annotated[tuple[float, int], *_typed(parse_usd_rate, _USD_RATE_SCHEMA)]
"""(dollars >= 0, window in ns)."""
Factor = Annotated[float, *_typed(parse_factor, _FACTOR_SCHEMA)]
"""> 0."""
Number = Annotated[float, *_typed(parse_number, {"type": "number"})]
"""Finite."""
Amount = Annotated[float, *_typed(parse_amount, {"type": "number", "minimum": 0})]
"""Finite, >= 0."""
Count = Annotated[int, *_typed(parse_count, {"type": "integer", "minimum": 0})]
"""Whole, >= 0."""
PositiveCount = Annotated[int, *_typed(parse_positive_count, {"type": "integer", "minimum": 1})]
"""Whole, >= 1."""
Whole = Annotated[int, *_typed(parse_whole, {"type": "integer"})]
"""Whole, either sign."""
Name = Annotated[str, *_typed(parse_name, {"type": "string", "minLength": 1})]
"""Text, not empty."""


def seconds(nanoseconds: int) -> float:
    """ns -> s."""
    return nanoseconds / NS_PER_S


def format_duration(nanoseconds: int) -> str:
    """The shortest exact text that `parse_duration` reads back: 5400 s -> "1h30m"."""
    if nanoseconds == 0:
        return "0s"
    parts, rest = [], nanoseconds
    for unit in ("d", "h", "m", "s", "ms", "us", "ns"):
        amount, rest = divmod(rest, _UNIT_NS[unit])
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts)
