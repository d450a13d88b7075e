"""Documents: plain YAML 1.2 with a place for every key and value, and what cannot stand in one."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, Field, model_validator

from simkit.documents import (
    MOST_PROBLEMS,
    Document,
    DocumentErrors,
    Misplaced,
    Problem,
    Strict,
    apply_overrides,
    canonical,
    load,
    nearest,
    validate,
)  # fmt: skip
from simkit.documents.complaints import known_keys
from simkit.units import Count, Duration, Fraction, Name, PositiveDuration


def problems(text: str, model: Any = None) -> list[str]:
    """What is wrong with a document, without its file name."""
    with pytest.raises(DocumentErrors) as caught:
        validate(load(text, name="f"), model or Anything)
    return [str(problem).removeprefix("f:") for problem in caught.value.problems]


class Anything(Strict):
    model_config = Strict.model_config | {"extra": "allow"}


# --- YAML --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("true", True),
        ("False", False),
        ("010", 10),  # ten, and not eight
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", 1000),
        ("-5", -5),
        ("+5", 5),
        ("1e5", 100_000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("1:30", "1:30"),  # and not ninety
        ("2026-01-01", "2026-01-01"),  # and no date
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("=", "="),
        ("[a, {b: 1}]", ["a", {"b": 1}]),
        ("|\n  block\n", "block\n"),
    ],
)
def test_scalars_mean_what_the_core_schema_of_yaml_1_2_says(text, value):
    found = load(f"x: {text}").data["x"]
    assert found == value
    assert type(found) is type(value)


def test_keys_that_look_like_truth_values_are_text():
    assert load("on: 1\noff: 2\ny: 3").data == {"on": 1, "off": 2, "y": 3}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "a: [1,",
            "1:7: not valid YAML: while parsing a flow node, expected the node content, but found '<stream end>'",
        ),
        ("a: 1\n b: 2", "2:3: not valid YAML: mapping values are not allowed here"),
        ("a: *nope", "1:4: not valid YAML: found undefined alias 'nope'"),
        (
            "\ta: 1",
            "1:1: not valid YAML: while scanning for the next token, found character '\\t' that cannot start any token",
        ),
        ("a: 1\nb: \x01", "2:4: not valid YAML: the character '\\x01' may not stand in a document"),
        (
            "a: 1\n---\nb: 2",
            "2:1: not valid YAML: expected a single document in the stream, but found another document",
        ),
        ("%YAML 1.1\n---\na: no", "1:1: not valid YAML: found %YAML 1.1: documents are read as YAML 1.2"),
        ("a: " + "[" * 3000, "1:1: not valid YAML: nested too deeply"),
        ("", "1:1: found nothing, expected a mapping of keys at the top"),
        ("# nothing", "1:1: found nothing, expected a mapping of keys at the top"),
        ("- 1", "1:1: found a list, expected a mapping of keys at the top"),
        ("hello", "1:1: found 'hello', expected a mapping of keys at the top"),
    ],
)
def test_what_is_no_yaml_mapping_is_refused_where_that_shows(text, complaint):
    with pytest.raises(DocumentErrors) as caught:
        load(text, name="f")
    assert str(caught.value).startswith(f"f:{complaint}")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 1\nb: 2\na: 3", "3:1: the key 'a' is given twice (first at 1:1) [a]"),
        ("x: {a: 1, b: 2, a: 3}", "1:17: the key 'a' is given twice (first at 1:5) [x.a]"),
        ("x:\n  - y: .nan", "2:8: found nan, expected a finite number [x.0.y]"),
        ("x: -.inf", "1:4: found -inf, expected a finite number [x]"),
        ("x: 1e999", "1:4: found inf, expected a finite number [x]"),
        ("5: x", "1:1: found the key 5, expected text (write it in quotes) [5]"),
        ("true: x", "1:1: found the key true, expected text (write it in quotes) [true]"),
        ("? [a, b]\n: x", "1:3: found a list or a mapping as a key, expected text"),
        (
            "x: !!python/object/apply:os.system [ls]",
            "1:4: found the tag 'python/object/apply:os.system', expected plain data",
        ),
        ("x: !secret abc", "1:4: found the tag '!secret', expected plain data: tags have no meaning here [x]"),
        ("x: !!set {a, b}", "1:4: found the tag 'set', expected plain data: tags have no meaning here [x]"),
        ("x: &r [*r]", "1:4: an anchor that contains itself [x.0]"),
        ("<<: 5\na: 1", "1:5: found something else behind '<<', expected a mapping or a list of mappings"),
        ("a:\nb: 1", "1:1: found nothing, expected a value (or no key) [a]"),
        ("a: [1, ~]", "1:8: found nothing, expected a value (or no key) [a.1]"),
    ],
)
def test_what_plain_data_cannot_say_is_refused_at_its_place(text, complaint):
    found = problems(text)
    assert found[0].startswith(complaint)
    assert len([line for line in found if "found nothing" not in line or line.startswith(complaint)]) == 1


def test_aliases_copy_and_merge_with_places_of_the_original():
    document = load("base: &b {x: 1, y: 2}\nhere: {<<: *b, y: 3}\nthere: *b\n")
    assert document.data == {"base": {"x": 1, "y": 2}, "here": {"y": 3, "x": 1}, "there": {"x": 1, "y": 2}}
    assert document.positions["here", "x"] == (1, 14)
    assert document.positions["here", "y"] == (2, 19)
    document.data["there"]["x"] = 9  # a copy: an override of one place must not change another
    assert document.data["base"]["x"] == 1


def test_of_several_merged_mappings_the_first_counts():
    assert load("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b]}").data["c"] == {"x": 1, "y": 2}


def test_aliases_cannot_multiply_beyond_measure():
    # ten anchors of nine aliases each: 9^10 = 3.5 thousand million values
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    found = problems("\n".join(lines))
    assert [line for line in found if "aliases make more than 100000 values" in line]


@given(
    st.recursive(
        st.booleans() | st.integers(-(10**9), 10**9) | st.text("abc .:#'\"-{}[]", min_size=1),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc:#", min_size=1), inner, max_size=3),
        max_leaves=12,
    )
)
def test_reading_gives_back_what_json_wrote_with_a_place_for_every_value(value):
    import json  # every JSON text is a YAML text

    document = load("x: " + json.dumps(value))
    assert document.data == {"x": value}

    def places(node: Any, loc: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
        inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        return [loc, *(place for key, item in inner for place in places(item, (*loc, key)))]

    assert set(places(document.data, ())) <= set(document.positions)


def test_a_missing_file_a_folder_and_other_encodings_are_told_in_words(tmp_path):
    with pytest.raises(DocumentErrors, match=r"gone\.yaml: cannot be read: No such file or directory"):
        load(tmp_path / "gone.yaml")
    with pytest.raises(DocumentErrors, match="cannot be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: gr\xfc\xdfe\n")
    with pytest.raises(DocumentErrors, match=r"latin\.yaml:2:6: cannot be read: it is not UTF-8 text"):
        load(tmp_path / "latin.yaml")
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert load(tmp_path / "bom.yaml").data == {"a": 1}


@settings(max_examples=150, deadline=None)
@given(
    place=st.integers(0, 400),
    drop=st.integers(0, 5),
    insert=st.text("&*!|>%@`{}[]:,?-#'\"\\ \t\n\x00\u2028ab01.~<=", max_size=4),
)
def test_whatever_text_is_read_it_is_a_document_or_a_list_of_problems(place, drop, insert):
    text = "a: &x {b: 1, c: [2, 3.5, 'x']}\nd: *x\ne:\n  - !!str 5\n  - |\n    block\n  - {f: ~, g: true}\nh: {<<: *x, b: 2}\n"
    place %= len(text)
    found, told = read_or_told(text[:place] + insert + text[place + drop :])
    assert told if found is None else isinstance(found.data, dict)


def read_or_told(text: str) -> tuple[Document | None, list[Problem]]:
    try:
        return load(text), []
    except DocumentErrors as error:
        return None, error.problems


# --- data handed over in Python ----------------------------------------------------------------------------


def test_python_data_is_copied_to_plain_data():
    import numpy as np

    given_ = {"a": (1, np.int64(2)), "b": {"c": Path("x/y")}, "d": np.float64(0.5)}
    document = load(given_)
    assert document.data == {"a": [1, 2], "b": {"c": "x/y"}, "d": 0.5}
    assert type(document.data["a"][1]) is int
    document.data["b"]["c"] = "changed"
    assert given_["b"] == {"c": Path("x/y")}


def test_python_data_is_held_to_the_same_rules():
    found = problems_of_data({"a": math.nan, 5: "x", "b": {"c": object}, "d": None})
    assert found == [
        "<data>: found the key 5, expected text [5]",
        "<data>: found nan, expected a finite number [a]",
        "<data>: found <class 'object'>, expected plain data (text, numbers, lists, mappings) [b.c]",
        "<data>: found nothing, expected a value (or no key) [d]",
    ]


def problems_of_data(data: Mapping[Any, Any]) -> list[str]:
    with pytest.raises(DocumentErrors) as caught:
        validate(load(data), Anything)
    return [str(problem) for problem in caught.value.problems]


def test_data_that_contains_itself_is_refused():
    data: dict[str, Any] = {}
    data["a"] = data
    with pytest.raises(DocumentErrors, match="nested too deeply"):
        load(data)


# --- validation --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Level:
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    enter: float
    leave: Fraction = 0.0


class Inner(Strict):
    rate: Count
    name: Name = "x"


class Outer(Strict):
    kind: Literal["poisson", "gamma"] = "poisson"
    inner: dict[Name, Inner] = Field(default_factory=dict)
    wait: PositiveDuration | Inner | None = None
    names: Name | list[Name] = "x"
    many: Inner | list[Inner] | None = None
    flag: bool = False
    size: float = 0.0
    levels: dict[str, Level] = Field(default_factory=dict)
    for_: Annotated[str, Field(alias="for")] = ""
    small: Annotated[int, AfterValidator(lambda value: value)] = Field(default=0, le=9)

    @model_validator(mode="after")
    def _placed(self) -> Outer:
        if self.size == 13:
            raise Misplaced(("size",), "bad luck")
        return self


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("knd: gamma", ["1:1: unknown key 'knd', did you mean 'kind'? [knd]"]),
        ("fro: x", ["1:1: unknown key 'fro', did you mean 'for'? [fro]"]),
        (
            "zzz: 1",
            ["1:1: unknown key 'zzz' (there are: kind, inner, wait, names, many, flag, size, levels, for, small) [zzz]"],
        ),
        ("kind: gama", ["1:7: found 'gama', expected poisson or gamma, did you mean 'gamma'? [kind]"]),
        ("inner:\n  a: {rte: 1}", ["2:3: the key 'rate' is missing [inner.a.rate]", "2:7: unknown key 'rte', did you mean 'rate'? [inner.a.rte]"]),
        ("inner: {'': {rate: 1}}", ["1:9: found '', expected a name that is not empty [inner.]"]),
        ("inner: 5", ["1:8: found 5, expected a mapping [inner]"]),
        # alternatives complain in one sentence, or as the alternative that was meant
        ("wait: 5", ["1:7: found 5 without a unit, expected a duration such as 250ms, 30s, 5m or 1h30m, or a mapping [wait]"]),
        ("wait: {rate: x}", ["1:14: found 'x', expected a whole number of 0 or more [wait.rate]"]),
        ("wait: {rte: 1}", ["1:1: the key 'rate' is missing [wait.rate]", "1:8: unknown key 'rte', did you mean 'rate'? [wait.rte]"]),
        ("names: 5", ["1:8: found 5, expected a name (write it in quotes if it looks like a number or a truth value), or a list [names]"]),
        ("names: [a, 5]", ["1:12: found 5, expected a name (write it in quotes if it looks like a number or a truth value) [names.1]"]),
        ("many: [{rate: 1}, {rate: -1}]", ["1:26: found -1, expected a whole number of 0 or more [many.1.rate]"]),
        ("many: {rate: -1}", ["1:14: found -1, expected a whole number of 0 or more [many.rate]"]),
        ("many: 5", ["1:7: found 5, expected a mapping, or a list [many]"]),
        ("flag: yes", ["1:7: found 'yes', expected true or false [flag]"]),
        ("flag: 1", ["1:7: found 1, expected true or false [flag]"]),
        ("size: true", ["1:7: found True, expected a number [size]"]),
        ("size: '3'", ["1:7: found '3', expected a number [size]"]),
        ("size: 13", ["1:7: bad luck [size]"]),
        ("small: 10", ["1:8: found 10: input should be less than or equal to 9 [small]"]),
        ("levels: {a: {enter: 1, leve: 0}}", ["1:24: unknown key 'leve', did you mean 'leave'? [levels.a.leve]"]),
        ("levels: {a: {}}", ["1:10: the key 'enter' is missing [levels.a.enter]"]),
        ("size: .nan", ["1:7: found nan, expected a finite number [size]"]),  # once, although two rules refuse it
    ],
)  # fmt: skip
def test_every_complaint_says_where_what_was_found_and_what_was_expected(text, expected):
    assert problems(text, Outer) == expected


def test_a_valid_document_becomes_its_model():
    found = validate(load("inner: {a: {rate: 1}}\nfor: x\nwait: 5s\nlevels: {a: {enter: 1}}"), Outer)
    assert (found.inner["a"].rate, found.for_, found.wait, found.levels["a"]) == (1, "x", 5 * 10**9, Level(1.0))


def test_all_kinds_of_problems_come_in_one_pass_in_order_of_place():
    text = "kind: gama\nkind: gamma\nsize: .nan\nwait: -5s\nflag: no\nnames: true\nknd: 1\nsmall:\n"
    assert problems(text, Outer) == [
        "1:7: found 'gama', expected poisson or gamma, did you mean 'gamma'? [kind]",
        "2:1: the key 'kind' is given twice (first at 1:1) [kind]",
        "3:7: found nan, expected a finite number [size]",
        "4:7: found '-5s', a duration cannot be negative [wait]",
        "5:7: found 'no', expected true or false [flag]",
        "6:8: found True, expected a name (write it in quotes if it looks like a number or a truth value), or a list [names]",
        "7:1: unknown key 'knd', did you mean 'kind'? [knd]",
        "8:1: found nothing, expected a value (or no key) [small]",
    ]


def test_many_problems_are_cut_and_counted():
    errors = DocumentErrors(Problem("f", line, 1, "bad") for line in range(1, MOST_PROBLEMS + 6))
    assert str(errors).splitlines()[-2:] == [f"f:{MOST_PROBLEMS}:1: bad", "and 5 more"]
    assert len(errors.problems) == MOST_PROBLEMS + 5


def test_problems_are_sorted_by_place_and_told_once_each():
    errors = DocumentErrors(
        [Problem("f", 9, 1, "b"), Problem("f", 10, 1, "c"), Problem("f", 9, 1, "b"), Problem("e", 99, 1, "a")]
    )
    assert str(errors) == "e:99:1: a\nf:9:1: b\nf:10:1: c"


def test_errors_travel_between_processes():
    errors = DocumentErrors([Problem("f", 1, 2, "bad", "a.b")])
    again = pickle.loads(pickle.dumps(errors))
    assert (str(again), again.problems) == ("f:1:2: bad [a.b]", errors.problems)


def test_the_nearest_name_is_offered_only_when_it_is_near():
    assert nearest("fifi", ["fifo", "lifo"]) == ", did you mean 'fifo'?"
    assert nearest("xyz", ["fifo", "lifo"]) == ""


def test_known_keys_follow_lists_mappings_unions_and_dataclasses():
    assert known_keys(Outer, ("inner", "a")) == ["rate", "name"]
    assert known_keys(Outer, ("many", "list[Inner]", 0)) == ["rate", "name"]
    assert known_keys(Outer, ("levels", "a")) == ["enter", "leave"]
    assert known_keys(Outer, ("size",)) == []


# --- overrides ---------------------------------------------------------------------------------------------

BASE = """\
inner:
  a: {rate: 1}
  gpt-4.1: {rate: 2}
many: [{rate: 1, name: first}, {rate: 2, name: second}]
wait: 5s
"""


def overridden(*texts: str) -> Document:
    document = load(BASE, name="f")
    apply_overrides(document, texts)
    return document


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("inner.a.rate=7", ("inner", "a", "rate"), 7),
        ("inner.gpt-4.1.rate=7", ("inner", "gpt-4.1", "rate"), 7),  # keys may have dots
        ("many.1.rate=7", ("many", 1, "rate"), 7),
        ("many.second.rate=7", ("many", 1, "rate"), 7),
        ("wait=1h30m", ("wait",), "1h30m"),
        ("names=[a, b]", ("names",), ["a", "b"]),  # a new key: validation judges it
        ("inner.b={rate: 3}", ("inner", "b"), {"rate": 3}),
        ("flag=true", ("flag",), True),
        ("flag = true", ("flag",), True),
        ("names=a=b", ("names",), "a=b"),
        ("names='5'", ("names",), "5"),
    ],
)
def test_an_override_sets_one_place_to_a_yaml_value(text, path, value):
    document = overridden(text)
    assert document.at(path) == value
    validate(document, Outer)


def test_later_overrides_win():
    assert overridden("inner.a.rate=7", "inner.a.rate=8").at(("inner", "a", "rate")) == 8


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("wait", "--set wait: expected key=value, such as platform.pools.gpu.slots=4"),
        ("=5", "--set =5: expected key=value"),
        ("iner.a.rate=1", "--set iner.a.rate=1: the document has no key 'iner', did you mean 'inner'?"),
        ("inner.b.rate=1", "--set inner.b.rate=1: inner has no key 'b' (there are: a, gpt-4.1)"),
        ("many.2.rate=1", "--set many.2.rate=1: many has 2 items, numbered from 0, and none called '2'"),
        ("many.secnd.rate=1", "--set many.secnd.rate=1: many has 2 items, numbered from 0, and none called 'secnd', did you mean 'second'?"),
        ("wait.x=1", "--set wait.x=1: wait is '5s': there is no 'x' in it"),
        ("wait=[1", "--set wait=[1: not valid YAML: while parsing a flow sequence"),
        ("wait=.nan", "--set wait=.nan: found nan, expected a finite number"),
        ("wait={a: 1, a: 2}", "--set wait={a: 1, a: 2}: the key 'a' is given twice"),
    ],
)  # fmt: skip
def test_an_override_that_leads_nowhere_is_refused(text, complaint):
    with pytest.raises(DocumentErrors, match=re.escape(complaint)):
        overridden(text)


def test_a_bad_value_is_reported_at_the_override_and_not_in_the_file():
    document = overridden("inner.a={rate: -1, nme: x}", "wait=7")
    with pytest.raises(DocumentErrors) as caught:
        validate(document, Outer)
    assert [str(problem) for problem in caught.value.problems] == [
        "--set inner.a={rate: -1, nme: x}: found -1, expected a whole number of 0 or more [inner.a.rate]",
        "--set inner.a={rate: -1, nme: x}: unknown key 'nme', did you mean 'name'? [inner.a.nme]",
        "--set wait=7: found 7 without a unit, expected a duration such as 250ms, 30s, 5m or 1h30m, or a mapping [wait]",
    ]


def test_all_bad_overrides_are_told_at_once():
    with pytest.raises(DocumentErrors) as caught:
        overridden("wait", "iner.a=1")
    assert len(caught.value.problems) == 2


def test_an_override_puts_a_bad_value_of_the_file_right():
    document = load("size: .nan\nwait: 5s", name="f")
    apply_overrides(document, ["size=3"])
    assert validate(document, Outer).size == 3.0


# --- digests -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spec:
    name: str
    wait: Duration = 0
    more: tuple[int, ...] = ()
    by_name: Mapping[str, float] = field(default_factory=dict)


def test_canonical_data_leaves_defaults_out_and_is_plain():
    assert canonical(Spec("a", 0, (1, 2))) == {"name": "a", "more": [1, 2], "by_name": {}}
    assert canonical([Inner(rate=1), frozenset({"b", "a"}), Path("x")]) == [{"rate": 1}, ["a", "b"], "x"]
