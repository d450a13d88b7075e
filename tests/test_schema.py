"""JSON Schemas: kept in step with the models, and in agreement with what the loaders accept and refuse."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import ROOT, TINY
from test_policy import REFUSED as BAD_POLICIES
from test_scenario import CASES as BAD_SCENARIOS
from test_scenario import RICH, changed

from simkit import api
from simkit.documents import load
from simkit.model import UsageError
from simkit.policy import all_mechanisms, parameters
from simkit.schema import FILES, KINDS, schema, text, write_files
from simkit.trace.jsonl import write

SHIPPED = [
    (kind, path)
    for kind, folder in (("scenario", "scenarios"), ("policy", "policies"))
    for path in sorted((ROOT / folder).glob("*.yaml"))
]


def validator(kind: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_a_valid_schema_of_draft_2020_12(kind):
    found = schema(kind)
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(found)


@pytest.mark.parametrize(("kind", "name"), FILES.items())
def test_the_kept_schema_is_the_models(kind, name):
    kept = (ROOT / name).read_text(encoding="utf-8")
    assert kept == text(kind), "run: python -m simkit.schema"


def test_the_files_can_be_written_again(tmp_path):
    for name in FILES.values():
        (tmp_path / name).parent.mkdir()
    write_files(tmp_path)
    assert [(tmp_path / name).read_text() for name in FILES.values()] == [text(kind) for kind in FILES]


@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=[path.name for _, path in SHIPPED])
def test_a_shipped_document_fits_its_schema_and_names_it_in_its_first_line(kind, path):
    assert not list(validator(kind).iter_errors(load(path).data))
    first = path.read_text(encoding="utf-8").splitlines()[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert match is not None
    assert (path.parent / match[1]).resolve() == ROOT / FILES[kind]


def test_a_document_with_everything_in_it_fits(tmp_path):
    assert not list(validator("scenario").iter_errors(load(RICH).data))
    assert not list(validator("scenario").iter_errors(load(TINY).data))


# what the shape of a document says; how its parts hang together, a schema cannot say
SHAPE = re.compile(
    r"unknown key|has no parameter|is missing|not available"
    r"|expected (a name|a whole number|a duration such|a rate such|a fraction|true or false|a mapping|a list|text|a factor|an amount|error or hang|full,|tenant or)"
)


# JSON knows no difference between 1 and 1.0, a pattern does not count, and one parameter's rule is its mechanism's own
BEYOND = re.compile(r"found 1\.0|found 'x0'|for: verifies: expected")


def sayable(complaints: list[str]) -> bool:
    return all(SHAPE.search(line) and not BEYOND.search(line) for line in complaints)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [case for case in BAD_SCENARIOS if sayable(case[2])],
    ids=lambda value: str(value)[:60],
)
def test_what_the_loader_refuses_by_shape_an_editor_refuses_too(before, after, expected):
    assert list(validator("scenario").iter_errors(load(changed(before, after)).data))


@pytest.mark.parametrize(
    ("document", "expected"), [case for case in BAD_POLICIES if sayable(case[1])], ids=lambda value: str(value)[:60]
)
def test_what_the_policy_loader_refuses_by_shape_an_editor_refuses_too(document, expected):
    assert list(validator("policy").iter_errors(load(document).data))


def test_the_cases_that_a_schema_can_see_are_many():
    assert len([case for case in BAD_SCENARIOS if sayable(case[2])]) >= 15
    assert len([case for case in BAD_POLICIES if sayable(case[1])]) >= 15


def test_every_mechanism_is_in_the_schema_with_its_parameters_and_its_text():
    slots = schema("policy")["$defs"]
    for (slot, name), cls in all_mechanisms().items():
        options = slots[f"{slot}_mechanism"]["anyOf"]
        assert name in options[0]["enum"]
        entry = next(option for option in options if name in option.get("properties", {}))
        assert sorted(entry["properties"][name]["properties"]) == sorted(parameters(cls))
        assert entry["description"].startswith((cls.__doc__ or "").strip().split("\n")[0].strip())


def test_a_schema_offers_nothing_that_the_loaders_refuse_as_empty():
    def nulls(node: Any, path: str = "") -> Iterator[str]:
        if isinstance(node, dict):
            if node.get("type") == "null" or node.get("default", 0) is None:
                yield path
            for key, value in node.items():
                yield from nulls(value, f"{path}/{key}")
        elif isinstance(node, list):
            for number, item in enumerate(node):
                yield from nulls(item, f"{path}/{number}")

    assert not list(nulls(schema("scenario")))


def test_defaults_of_durations_are_shown_as_text_to_write():
    assert schema("scenario")["$defs"]["ApiDocument"]["properties"]["hang_timeout"]["default"] == "1m"


def test_a_written_trace_fits_its_schema_line_by_line(tmp_path):
    trace = api.load_scenario(load(RICH).data).trace()
    write(trace, tmp_path / "x.jsonl")
    check = validator("trace")
    lines = (tmp_path / "x.jsonl").read_text().splitlines()
    assert len(lines) == len(trace) + 1
    for line in (*lines[:20], lines[-1]):
        assert not list(check.iter_errors(json.loads(line)))


def test_results_fit_their_schema(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    comparison = api.compare(load(TINY).data, replications=2, jobs=1)
    found = comparison.to_json()
    check = validator("results")
    assert not list(check.iter_errors(found))
    broken = copy.deepcopy(found)
    broken["policies"]["fifo"]["metrics"]["success_rate"]["mean"] = "high"
    assert list(check.iter_errors(broken))


def test_an_unknown_kind_is_told_with_the_nearest():
    with pytest.raises(UsageError, match=r"there is no schema 'polcy', did you mean 'policy'\?"):
        schema("polcy")


def test_only_the_kept_kinds_are_kept():
    assert {Path(name).parts[0] for name in FILES.values()} == {"scenarios", "policies", "traces"}
