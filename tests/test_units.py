"""Units: documents' text to the engine's numbers, exactly, and nothing that is not meant."""

from __future__ import annotations

import math
import re
from fractions import Fraction as Exact

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from simkit import units
from simkit.model import NEVER_NS, NS_PER_S
from simkit.units import format_duration, parse_duration, seconds

EVERY_PARSER = [getattr(units, name) for name in sorted(vars(units)) if name.startswith("parse_")]
NUMBER_PARSERS = [parse for parse in EVERY_PARSER if parse is not units.parse_name]


# --- durations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("250ms", 250_000_000),
        ("30s", 30 * NS_PER_S),
        ("5m", 300 * NS_PER_S),
        ("5min", 300 * NS_PER_S),
        ("1h30m", 5400 * NS_PER_S),
        ("1h 30m", 5400 * NS_PER_S),
        ("2d", 172_800 * NS_PER_S),
        ("1.5s", 1_500_000_000),
        ("0.1s", 100_000_000),  # exactly, although 0.1 is no binary fraction
        ("7us", 7_000),
        ("3ns", 3),
        ("1_000s", 1000 * NS_PER_S),
        ("0s", 0),
        ("0", 0),
        (0, 0),
        (0.0, 0),
        (" 30 s ", 30 * NS_PER_S),
    ],
)
def test_a_duration_is_read_exactly(text, nanoseconds):
    assert parse_duration(text) == nanoseconds


@given(st.integers(min_value=0, max_value=NEVER_NS - 1))
def test_a_formatted_duration_reads_back_as_itself(nanoseconds):
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


def test_a_formatted_duration_is_short():
    assert [format_duration(n) for n in (0, 1, 1_500_000_000, 5400 * NS_PER_S)] == ["0s", "1ns", "1s500ms", "1h30m"]


@given(st.integers(min_value=0, max_value=10**6), st.integers(min_value=1, max_value=999))
def test_decimal_seconds_are_whole_milliseconds(whole, thousandths):
    assert parse_duration(f"{whole}.{thousandths:03d}s") == whole * NS_PER_S + thousandths * 10**6


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (30, "found 30 without a unit, expected a duration such as 250ms, 30s, 5m or 1h30m"),
        (0.5, "found 0.5 without a unit"),
        ("30", "found '30', expected a duration"),
        ("5 parsecs", "found '5 parsecs', expected a duration such as 250ms, 30s, 5m or 1h30m"),
        ("-5s", "found '-5s', a duration cannot be negative"),
        (-5, "found -5 without a unit"),
        ("", "found '', expected a duration"),
        ("s", "found 's', expected a duration"),
        ("1h30", "found '1h30', expected a duration"),
        (
            "30m1h",
            "found '30m1h', expected a duration",
        ),  # units must fall, so that 5m5m is a mistake and not ten minutes
        ("5m5m", "found '5m5m', expected a duration"),
        ("1e3s", "found '1e3s', expected a duration"),
        ("٣s", "found '٣s', expected a duration"),
        ("150y", "found '150y', expected a duration"),
        ("54000d", "found '54000d', longer than any simulated time (146 years)"),
        ("0.1ns", "found '0.1ns', shorter than the clock can tell (1ns)"),
        (True, "found True, expected a duration"),
        (None, "found None, expected a duration"),
        ([1], "found [1], expected a duration"),
        (math.nan, "found nan, expected a finite number"),
        (math.inf, "found inf, expected a finite number"),
    ],
)
def test_what_is_no_duration_is_refused_with_what_was_expected(value, complaint):
    with pytest.raises(ValueError, match=re.escape(complaint)):
        parse_duration(value)


def test_a_positive_duration_is_not_zero():
    assert units.parse_positive_duration("1ns") == 1
    with pytest.raises(ValueError, match="found '0s', expected a duration above 0"):
        units.parse_positive_duration("0s")


def test_seconds_are_for_people():
    assert seconds(1_500_000_000) == 1.5


# --- numbers with a unit -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parse", "value", "number"),
    [
        (units.parse_fraction, "15%", 0.15),
        (units.parse_fraction, "0.5 %", 0.005),
        (units.parse_fraction, "29%", 0.29),  # and not 0.29000000000000004
        (units.parse_fraction, 0.15, 0.15),
        (units.parse_fraction, 1, 1.0),
        (units.parse_fraction, 0, 0.0),
        (units.parse_gain, "150%", 1.5),
        (units.parse_gain, 0.2, 0.2),
        (units.parse_rate, "60/min", 1.0),
        (units.parse_rate, "10/s", 10.0),
        (units.parse_rate, "2/h", 2 / 3600),
        (units.parse_rate, "0.5/s", 0.5),
        (units.parse_rate, "100/10s", 10.0),
        (units.parse_rate, "100_000/minute", 100_000 / 60),
        (units.parse_rate, "1 / day", 1 / 86400),
        (units.parse_usd, "$50", 50.0),
        (units.parse_usd, "$0.02", 0.02),
        (units.parse_usd, "$1_000", 1000.0),
        (units.parse_usd, 50, 50.0),
        (units.parse_usd, 0, 0.0),
        (units.parse_usd_rate, "$50/day", (50.0, 86400 * NS_PER_S)),
        (units.parse_usd_rate, "5/h", (5.0, 3600 * NS_PER_S)),
        (units.parse_usd_rate, "$1/10min", (1.0, 600 * NS_PER_S)),
        (units.parse_factor, "x10", 10.0),
        (units.parse_factor, "10x", 10.0),
        (units.parse_factor, "X0.5", 0.5),
        (units.parse_factor, 10, 10.0),
        (units.parse_number, -3, -3.0),
        (units.parse_amount, 0, 0.0),
        (units.parse_count, 10_000, 10_000),
        (units.parse_count, 0, 0),
        (units.parse_positive_count, 1, 1),
        (units.parse_whole, -7, -7),
    ],
)
def test_units_are_turned_into_the_engines_numbers(parse, value, number):
    found = parse(value)
    assert found == number
    assert type(found) is type(number)


@pytest.mark.parametrize(
    ("parse", "value", "expected"),
    [
        (units.parse_fraction, "101%", "a fraction from 0 to 1 such as 15% or 0.15"),
        (units.parse_fraction, "-5%", "a fraction from 0 to 1 such as 15% or 0.15"),
        (units.parse_fraction, 1.5, "a fraction from 0 to 1 such as 15% or 0.15"),
        (units.parse_fraction, "0.15", "a fraction from 0 to 1 such as 15% or 0.15"),  # text is no number
        (units.parse_gain, "-20%", "a gain such as 20% or 0.2"),
        (units.parse_rate, 60, "a rate such as 10/s, 60/min or 2/h"),
        (units.parse_rate, "60", "a rate such as 10/s, 60/min or 2/h"),
        (units.parse_rate, "60/fortnight", "a rate such as 10/s, 60/min or 2/h"),
        (units.parse_rate, "0/s", "a rate above 0"),
        (units.parse_rate, "5/0s", "a rate above 0"),
        (units.parse_rate, "-5/s", "a rate such as 10/s, 60/min or 2/h"),
        (units.parse_rate, "9" * 400 + "/s", "a rate such as 10/s, 60/min or 2/h"),
        (units.parse_usd, -1, "an amount of dollars such as $50 or 0.02"),
        (units.parse_usd, "€5", "an amount of dollars such as $50 or 0.02"),
        (units.parse_usd, "9" * 400, "an amount of dollars such as $50 or 0.02"),
        (units.parse_usd_rate, "$50", "dollars per window such as $50/day or $5/h"),
        (units.parse_usd_rate, "$50/0s", "a window above 0 and below 146 years"),
        (units.parse_factor, 0, "a factor above 0 such as x10 or 0.5"),
        (units.parse_factor, "x0", "a factor above 0 such as x10 or 0.5"),
        (units.parse_factor, "x", "a factor above 0 such as x10 or 0.5"),
        (units.parse_factor, "x10x", "a factor above 0 such as x10 or 0.5"),
        (units.parse_number, "3", "a number"),
        (units.parse_amount, -0.1, "a number of 0 or more"),
        (units.parse_count, -1, "a whole number of 0 or more"),
        (units.parse_count, 1.0, "a whole number of 0 or more"),
        (units.parse_count, "10k", "a whole number of 0 or more"),
        (units.parse_positive_count, 0, "a whole number of 1 or more"),
        (units.parse_whole, 1.5, "a whole number"),
        (units.parse_count, 10**400, "a number below 2^63"),
        (units.parse_number, 10**400, "a number below 2^63"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_was_expected(parse, value, expected):
    with pytest.raises(ValueError, match=re.escape(f"expected {expected}")):
        parse(value)


@pytest.mark.parametrize("parse", EVERY_PARSER)
@pytest.mark.parametrize("value", [True, False, None, math.nan, math.inf, -math.inf, [], {}, b"1", "yes\x00"])
def test_truth_values_nothing_and_what_is_not_finite_are_refused_everywhere(parse, value):
    with pytest.raises(ValueError, match="found"):
        parse(value)


@pytest.mark.parametrize("parse", NUMBER_PARSERS)
@given(value=st.one_of(st.text(max_size=30), st.integers(), st.floats()))
def test_a_parser_gives_a_finite_number_or_says_what_it_found(parse, value):
    found, complaint = outcome(parse, value)
    assert complaint.startswith("found ") or all(math.isfinite(number) for number in found)


def outcome(parse, value):
    """(the numbers, "") or ((), what the parser complained of)."""
    try:
        found = parse(value)
    except ValueError as error:
        return (), str(error)
    return (found if isinstance(found, tuple) else (found,)), ""


@given(st.decimals(min_value="0", max_value="100", places=3))
def test_a_percentage_is_the_nearest_float_of_the_fraction_that_was_written(percent):
    assert units.parse_fraction(f"{percent:f}%") == float(Exact(percent) / 100)


# --- names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "no", "on", "tenant 7", "größe", "<b>bold</b>", "007", "a.b/c"])
def test_a_name_is_any_ordinary_text(name):
    assert units.parse_name(name) == name


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (True, "found True, expected a name (write it in quotes if it looks like a number or a truth value)"),
        (7, "found 7, expected a name (write it in quotes"),
        ("", "found '', expected a name that is not empty"),
        ("  ", "found '  ', expected a name that is not empty"),
        (" a", "found ' a', expected a name without control characters or blanks at its ends"),
        ("a\nb", "expected a name without control characters"),
        ("a\x7f", "expected a name without control characters"),
        ("a\u2028b", "expected a name without control characters"),
        ("a\ud800", "expected a name without control characters"),  # half a character: cannot be written to any file
    ],
)
def test_what_is_no_name_is_refused(value, complaint):
    with pytest.raises(ValueError, match=re.escape(complaint)):
        units.parse_name(value)


# --- as types of fields ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (units.Duration, ["0", "0s", "1h30m", "1h 30m", "250ms"], ["5 parsecs", "30", "1h30"]),
        (units.Fraction, ["15%", "0.5 %", "100%", 0.5, 0, 1], ["15", "101%", 1.5, -0.1]),
        (units.Gain, ["150%", 1.5], ["15", -0.1]),
        (units.Rate, ["60/min", "100/10s", "0.5/s"], [60, "60", "60/fortnight"]),
        (units.Usd, ["$50", 50, "0.02"], ["€5", -1]),
        (units.UsdRate, ["$50/day", "5/h"], ["$50", 50]),
        (units.Factor, ["x10", "10x", 10], ["ten", 0]),
        (units.Amount, [0, 2.5], [-1, "2"]),
        (units.Count, [0, 7], [-1, "7", 1.5]),
        (units.PositiveCount, [1], [0]),
        (units.Whole, [-1], [1.5]),
        (units.Name, ["a"], ["", 7]),
    ],
)
def test_the_json_schema_of_a_type_agrees_with_its_parser(kind, good, bad):
    import jsonschema

    adapter = TypeAdapter(kind)
    validator = jsonschema.Draft202012Validator(adapter.json_schema())
    for value in good:
        assert validator.is_valid(value), value
        adapter.validate_python(value)
    for value in bad:
        assert not validator.is_valid(value), value
        with pytest.raises(ValidationError):
            adapter.validate_python(value)
