"""JSON Schemas for editors and checks, made from the same models that validate.

``python -m simkit.schema`` in a checkout writes those that are kept beside the documents (`FILES`).
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from simkit.documents.complaints import nearest
from simkit.files import write_text
from simkit.mechanisms.base import SLOTS
from simkit.model import UsageError
from simkit.policy import all_mechanisms, parameter_model
from simkit.units import format_duration

FILES = {
    "scenario": "scenarios/scenario.schema.json",
    "policy": "policies/policy.schema.json",
    "trace": "traces/trace.schema.json",
}
"""The schemas that are kept in the repository, for editors: a modeline in each document names its own."""

KINDS = ("scenario", "policy", "trace", "results")
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a kind of document. Raises UsageError for an unknown kind."""
    makers = {"scenario": _scenario, "policy": _policy, "trace": _trace, "results": _results}
    if kind not in makers:
        raise UsageError(f"there is no schema {kind!r}{nearest(kind, KINDS)} (there are {', '.join(KINDS)})")
    return {"$schema": _DRAFT, "title": f"simkit {kind}", **makers[kind]()}


def text(kind: str) -> str:
    """The schema as it is kept in a file."""
    return json.dumps(schema(kind), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write_files(root: Path) -> None:
    """Write `FILES` below the root of a checkout."""
    for kind, name in FILES.items():
        write_text(root / name, text(kind))


def _scenario() -> dict[str, Any]:
    from simkit.scenario_document import ScenarioDocument
    from simkit.trace.workload import RecordedSpec, SourceSpec

    document = _of_model(ScenarioDocument)
    definitions = document.setdefault("$defs", {})
    items = []
    for model in (SourceSpec, RecordedSpec):
        part = _of_model(model)
        definitions.update(part.pop("$defs", {}))
        definitions[model.__name__] = part
        items.append({"$ref": f"#/$defs/{model.__name__}"})
    document["properties"]["workload"] = {"type": "array", "minItems": 1, "items": {"anyOf": items}}
    policy = _policy()
    definitions.update(policy.pop("$defs"))
    definitions["Policy"] = policy
    document["properties"]["policies"] = {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [{"type": "string", "minLength": 1}, {"$ref": "#/$defs/Policy"}]},
    }
    return document


def _of_model(model: Any) -> dict[str, Any]:
    """The model's schema as documents are read: nothing is null, and a bare value is a deterministic law."""
    found: dict[str, Any] = _tidied(model.model_json_schema())
    for name, definition in found.get("$defs", {}).items():
        if name.startswith("Law_"):
            found["$defs"][name] = {"anyOf": [definition["properties"]["deterministic"], definition]}
    return found


def _tidied(node: Any) -> Any:
    """Without generated titles, and without the null that stands for a key that is left out."""
    if isinstance(node, list):
        return [_tidied(item) for item in node]
    if not isinstance(node, dict):
        return node
    tidy = {
        key: _tidied(value)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str)) and not (key == "default" and value is None)
    }
    if str(tidy.get("description", "")).startswith("A duration") and "default" in tidy:
        tidy["default"] = format_duration(tidy["default"])  # an editor offers it as text to write
    if str(tidy.get("description", "")).startswith("A rate"):
        tidy.pop("default", None)
    options = tidy.get("anyOf")
    if options and {"type": "null"} in options:
        options = [option for option in options if option != {"type": "null"}]
        del tidy["anyOf"]
        tidy = {**options[0], **tidy} if len(options) == 1 else {**tidy, "anyOf": options}
    return tidy


def _policy() -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    by_slot: dict[str, list[dict[str, Any]]] = {slot: [] for slot in SLOTS}
    for (slot, name), cls in sorted(all_mechanisms().items()):
        if slot in by_slot:
            by_slot[slot].append(_mechanism(name, cls, definitions))
    for slot, options in by_slot.items():
        names = [next(iter(option["properties"])) for option in options]
        own = {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "patternProperties": {"^.+@.+$": {"type": ["object", "null"]}},
        }
        own_name = {"type": "string", "pattern": "^.+@.+$"}
        definitions[f"{slot}_mechanism"] = {
            "anyOf": [{"enum": names}, *options, own_name, {**own, "additionalProperties": False}]
        }
    one = {slot: {"$ref": f"#/$defs/{slot}_mechanism"} for slot in by_slot}
    order = {
        "anyOf": [
            one["order"],
            {
                "type": "object",
                "properties": {
                    "pools": {"type": "object", "additionalProperties": one["order"]},
                    "default": one["order"],
                },
                "required": ["pools"],
                "additionalProperties": False,
            },
        ]
    }
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "version": {"type": "integer", "minimum": 1},
            "about": {"type": "string"},
            "order": order,
            "admission": {"type": "array", "items": one["admission"]},
            "limits": {"type": "array", "items": one["limits"]},
            **{slot: one[slot] for slot in ("overload", "retry", "backfill", "coalesce")},
        },
        "required": ["name"],
        "additionalProperties": False,
        "$defs": definitions,
    }


def _mechanism(name: str, cls: type[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """``{name: {parameters}}``; the class's docstring is what an editor shows."""
    part = _of_model(parameter_model(cls))
    for key, definition in part.pop("$defs", {}).items():
        assert definitions.setdefault(key, definition) == definition, f"two parameter types are called {key}"
    required = part.get("required", [])
    parameters = {
        "type": "object" if required else ["object", "null"],
        "properties": part.get("properties", {}),
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }
    return {
        "type": "object",
        "description": inspect.cleandoc(cls.__doc__ or ""),
        "properties": {name: parameters},
        "required": [name],
        "additionalProperties": False,
    }


def _trace() -> dict[str, Any]:
    from simkit.trace.records import trace_record_schema

    return trace_record_schema()


def _results() -> dict[str, Any]:
    number = {"type": ["number", "null"]}
    interval = {"anyOf": [{"type": "null"}, {"type": "array", "items": number, "minItems": 2, "maxItems": 2}]}
    metric = {
        "type": "object",
        "properties": {"mean": number, "ci95": interval, "values": {"type": "array", "items": number}},
        "required": ["mean", "ci95", "values"],
    }
    metrics = {"type": "object", "additionalProperties": metric}
    groups = {"type": "object", "additionalProperties": metrics}
    policy = {
        "type": "object",
        "properties": {"metrics": metrics, "by_class": groups, "by_tenant": groups, "pools": groups},
        "required": ["metrics", "by_class", "by_tenant", "pools"],
    }
    difference = {
        "type": "object",
        "properties": {
            "policy": {"type": "string"}, "baseline": {"type": "string"}, "metric": {"type": "string"}, "mean": number,
            "ci95": interval, "p_holm": number, "verdict": {"type": "string"}, "ratio": number, "ratio_ci95": interval,
        },
        "required": ["policy", "baseline", "metric", "mean", "verdict"],
    }  # fmt: skip
    expectation = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "ok": {"type": "boolean"}, "value": number},
        "required": ["text", "ok", "value"],
    }
    return {
        "type": "object",
        "properties": {
            "schema": {"const": "simkit.results/1"}, "scenario": {"type": "string"}, "seed": {"type": "integer"}, "replications": {"type": "integer"}, "versions": {"type": "object"},
            "digests": {"type": "object"}, "policies": {"type": "object", "additionalProperties": policy},
            "differences": {"type": "array", "items": difference}, "ladder": {"type": "array"}, "recommendation": {"type": "object"},
            "expectations": {"type": "array", "items": expectation}, "report": {"type": ["string", "null"]},
        },
        "required": ["schema", "scenario", "seed", "replications", "versions", "policies", "differences", "expectations", "report"],
    }  # fmt: skip


if __name__ == "__main__":
    write_files(Path(__file__).resolve().parent.parent)
