"""JSON Schemas for editors and checks, made from the same models that validate."""

from __future__ import annotations

from typing import Any

from simkit.documents import nearest
from simkit.mechanisms.base import SLOTS
from simkit.model import UsageError
from simkit.policy import adapter, all_mechanisms

KINDS = ("scenario", "policy", "trace", "results")
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a kind of document. Raises UsageError for an unknown kind."""
    makers = {"scenario": _scenario, "policy": _policy, "trace": _trace, "results": _results}
    if kind not in makers:
        raise UsageError(f"there is no schema {kind!r}{nearest(kind, KINDS)} (there are {', '.join(KINDS)})")
    return {"$schema": _DRAFT, "title": f"simkit {kind}", **makers[kind]()}


def _scenario() -> dict[str, Any]:
    from simkit.scenario_document import ScenarioDocument
    from simkit.trace.workload import RecordedSpec, SourceSpec

    document = ScenarioDocument.model_json_schema()
    definitions = document.setdefault("$defs", {})
    items = []
    for model in (SourceSpec, RecordedSpec):
        part = model.model_json_schema()
        definitions.update(part.pop("$defs", {}))
        definitions[model.__name__] = part
        items.append({"$ref": f"#/$defs/{model.__name__}"})
    document["properties"]["workload"]["items"] = {"anyOf": items}
    policy = _policy()
    definitions.update(policy.pop("$defs"))
    definitions["Policy"] = policy
    document["properties"]["policies"]["items"] = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Policy"}]}
    return document


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
    part = adapter(cls).json_schema(ref_template="#/$defs/{model}")
    definitions.update(part.pop("$defs", {}))
    properties = {
        key.rstrip("_"): {k: v for k, v in value.items() if k != "title"}
        for key, value in part.get("properties", {}).items()
    }
    parameters = {"type": ["object", "null"], "properties": properties, "additionalProperties": False}
    if part.get("required"):
        parameters["required"] = [key.rstrip("_") for key in part["required"]]
        parameters["type"] = "object"
    about = (cls.__doc__ or "").strip().split("\n")[0]
    return {
        "type": "object",
        "description": about,
        "properties": {name: parameters},
        "required": [name],
        "additionalProperties": False,
    }


def _trace() -> dict[str, Any]:
    seconds = {"type": "number", "minimum": 0}
    text = {"type": "string", "minLength": 1}
    flag = {"type": "boolean"}
    task = {
        "type": "object",
        "properties": {
            "task_id": text, "after": {"type": "array", "items": text}, "pool": text, "service_s": seconds, "estimate_s": seconds,
            "demand": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}, "tier": text,
            "tokens_in": {"type": "integer", "minimum": 0}, "tokens_out": {"type": "integer", "minimum": 0},
            "cost_usd": {"type": "number", "minimum": 0}, "cache_key": text, "public": flag, "optional": flag, "verifies": flag,
            "side_effect": flag, "checkpointable": flag,
        },
        "required": ["pool", "service_s"],
        "additionalProperties": False,
    }  # fmt: skip
    probability = {"type": "number", "minimum": 0, "maximum": 1}
    run = {
        "type": "object",
        "properties": {
            "run_id": text, "arrival_s": seconds, "tenant": text, "class": text, "priority": {"type": "integer"}, "deadline_s": seconds,
            "workflow": text, "session": text, "luck": {"type": "integer"}, "defect_p": probability, "detect_p": probability,
            "max_rework": {"type": "integer", "minimum": 0}, "tasks": {"type": "array", "minItems": 1, "items": task},
        },
        "required": ["arrival_s", "tasks"],
        "additionalProperties": False,
    }  # fmt: skip
    header = {
        "type": "object",
        "properties": {
            "schema": {"const": "simkit.trace/1"},
            "source": {"type": "string"},
            "seed": {"type": "integer"},
            "warnings": {"type": "object"},
        },
        "required": ["schema"],
        "additionalProperties": False,
    }
    return {"description": "One line of a trace file: the header first, then a run per line.", "anyOf": [header, run]}


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
            "scenario": {"type": "string"}, "seed": {"type": "integer"}, "replications": {"type": "integer"}, "versions": {"type": "object"},
            "digests": {"type": "object"}, "policies": {"type": "object", "additionalProperties": policy},
            "differences": {"type": "array", "items": difference}, "ladder": {"type": "array"}, "recommendation": {"type": "object"},
            "expectations": {"type": "array", "items": expectation}, "report": {"type": ["string", "null"]},
        },
        "required": ["scenario", "seed", "replications", "versions", "policies", "differences", "expectations", "report"],
    }  # fmt: skip
