"""Units: what documents write ("30s", "60/min", "15%", "$50/day") and what the engine counts with.

Each `parse_*` function raises ValueError with what was found and what was expected. The annotated types are for fields of
document models and of mechanisms: pydantic turns the document's text into the engine's number through them.
"""

from __future__ import annotations

import math
import re
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
_NUMBER = r"\d+(?:_\d+)*(?:\.\d+)?"
_DURATION_PART = re.compile(rf"({_NUMBER})\s*(ns|us|ms|min|s|m|h|d)")
_RATE = re.compile(rf"({_NUMBER})\s*/\s*({_NUMBER})?\s*([a-z]+)")
_DURATION_HINT = "a duration such as 250ms, 30s, 5m or 1h30m"


def _plain_number(value: Any) -> float | int | None:
    """`value` as a finite number, None when it is no number; booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value):
        raise ValueError(f"found {value!r}, expected a finite number")
    return value


def parse_duration(value: Any) -> int:
    """ns, >= 0. "250ms", "30s", "1h30m"; 0 needs no unit, every other bare number is refused."""
    number = _plain_number(value)
    if number == 0:
        return 0
    if number is not None:
        raise ValueError(f"found {value!r} without a unit, expected {_DURATION_HINT}")
    if not isinstance(value, str):
        raise ValueError(f"found {value!r}, expected {_DURATION_HINT}")
    text = value.strip()
    if text == "0":
        return 0
    if text.startswith("-"):
        raise ValueError(f"found {value!r}, a duration cannot be negative")
    position, total = 0, Exact(0)
    for part in _DURATION_PART.finditer(text):
        if part.start() != position:
            break
        total += Exact(part[1].replace("_", "")) * _UNIT_NS[part[2]]
        position = part.end()
    if position != len(text) or not text:
        raise ValueError(f"found {value!r}, expected {_DURATION_HINT}")
    nanoseconds = round(total)
    if nanoseconds >= NEVER_NS:
        raise ValueError(f"found {value!r}, longer than any simulated time (146 years)")
    return nanoseconds


def parse_positive_duration(value: Any) -> int:
    """ns, > 0."""
    nanoseconds = parse_duration(value)
    if nanoseconds == 0:
        raise ValueError(f"found {value!r}, expected a duration above 0")
    return nanoseconds


def parse_fraction(value: Any) -> float:
    """0 to 1: "15%" or 0.15."""
    number = _plain_number(value)
    if number is None and isinstance(value, str) and re.fullmatch(rf"{_NUMBER}\s*%", value.strip()):
        number = float(Exact(value.strip().rstrip("%").strip().replace("_", "")) / 100)
    if number is None or not 0 <= number <= 1:
        raise ValueError(f"found {value!r}, expected a fraction from 0 to 1 such as 15% or 0.15")
    return float(number)


def parse_rate(value: Any) -> float:
    """Per second, > 0: "60/min", "10/s", "100/10s"."""
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[3] not in _PER_NS:
        raise ValueError(f"found {value!r}, expected a rate such as 10/s, 60/min or 2/h")
    period_ns = Exact((match[2] or "1").replace("_", "")) * _PER_NS[match[3]]
    amount = Exact(match[1].replace("_", ""))
    if amount <= 0 or period_ns <= 0:
        raise ValueError(f"found {value!r}, expected a rate above 0")
    return float(amount * NS_PER_S / period_ns)


def parse_usd(value: Any) -> float:
    """Dollars, >= 0: "$50", "$0.02" or 50."""
    number = _plain_number(value)
    if number is None and isinstance(value, str) and re.fullmatch(rf"\$?\s*{_NUMBER}", value.strip()):
        number = float(value.strip().lstrip("$").strip().replace("_", ""))
    if number is None or number < 0:
        raise ValueError(f"found {value!r}, expected an amount of dollars such as $50 or 0.02")
    return float(number)


def parse_factor(value: Any) -> float:
    """> 0: "x10", "10x" or 10."""
    number = _plain_number(value)
    if number is None and isinstance(value, str) and re.fullmatch(rf"[xX]?\s*{_NUMBER}\s*[xX]?", value.strip()):
        number = float(value.strip().strip("xX").strip().replace("_", ""))
    if number is None or number <= 0:
        raise ValueError(f"found {value!r}, expected a factor above 0 such as x10 or 0.5")
    return float(number)


def parse_number(value: Any) -> float:
    """Any finite number."""
    number = _plain_number(value)
    if number is None:
        raise ValueError(f"found {value!r}, expected a number")
    return float(number)


def parse_count(value: Any) -> int:
    """A whole number >= 0."""
    number = _plain_number(value)
    if number is None or not isinstance(number, int) or number < 0:
        raise ValueError(f"found {value!r}, expected a whole number of 0 or more")
    return number


def parse_positive_count(value: Any) -> int:
    """A whole number >= 1."""
    number = _plain_number(value)
    if number is None or not isinstance(number, int) or number < 1:
        raise ValueError(f"found {value!r}, expected a whole number of 1 or more")
    return number


def parse_whole(value: Any) -> int:
    """A whole number of either sign."""
    number = _plain_number(value)
    if number is None or not isinstance(number, int):
        raise ValueError(f"found {value!r}, expected a whole number")
    return number


def parse_name(value: Any) -> str:
    """A name: text that is not empty and has no control characters."""
    if not isinstance(value, str):
        raise ValueError(
            f"found {value!r}, expected a name (write it in quotes if it looks like a number or a truth value)"
        )
    if not value.strip() or any(ord(sign) < 32 or ord(sign) == 127 for sign in value):
        raise ValueError(f"found {value!r}, expected a name: not empty, without control characters")
    return value


def _typed(parse: Callable[[Any], Any], schema: dict[str, Any]) -> Any:
    return (BeforeValidator(parse), WithJsonSchema(schema))


_DURATION_SCHEMA = {
    "anyOf": [{"type": "string", "pattern": r"^(\d[\d_]*(\.\d+)?\s*(ns|us|ms|min|s|m|h|d))+$|^0$"}, {"const": 0}],
    "description": "A duration such as 250ms, 30s, 5m or 1h30m.",
}
_FRACTION_SCHEMA = {
    "anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": r"^\d[\d_]*(\.\d+)?\s*%$"}],
    "description": "A fraction such as 15% or 0.15.",
}
_RATE_SCHEMA = {"type": "string", "pattern": r"^\d[\d_]*(\.\d+)?\s*/.*[a-z]+$", "description": "A rate such as 60/min."}
_USD_SCHEMA = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^\$?\s*\d[\d_]*(\.\d+)?$"}],
    "description": "Dollars, such as $50 or 0.02.",
}
_FACTOR_SCHEMA = {
    "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": r"^[xX]?\s*\d.*$"}],
    "description": "A factor such as x10.",
}

Duration = Annotated[int, *_typed(parse_duration, _DURATION_SCHEMA)]
"""ns, >= 0."""
PositiveDuration = Annotated[int, *_typed(parse_positive_duration, _DURATION_SCHEMA)]
"""ns, > 0."""
Fraction = Annotated[float, *_typed(parse_fraction, _FRACTION_SCHEMA)]
"""0 to 1."""
Rate = Annotated[float, *_typed(parse_rate, _RATE_SCHEMA)]
"""Per second, > 0."""
Usd = Annotated[float, *_typed(parse_usd, _USD_SCHEMA)]
"""Dollars, >= 0."""
Factor = Annotated[float, *_typed(parse_factor, _FACTOR_SCHEMA)]
"""> 0."""
Number = Annotated[float, *_typed(parse_number, {"type": "number"})]
"""Finite."""
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
