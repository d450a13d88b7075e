"""One run as a plain record: the keys of the trace document and what each may hold.

The one table behind every reader (JSON Lines, Parquet, plain dicts) and behind the JSON Schema: a key that is not here is refused, and
what is here is checked by the same rule wherever it comes from.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral
from typing import Any

from simkit.model import NEVER_NS, NS_PER_S, UsageError
from simkit.trace.table import SCHEMA

_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_LARGEST = 2**62
_NEVER_S = NEVER_NS // NS_PER_S


class RecordErrors(UsageError):
    """Everything that is wrong with one record."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


def name(value: Any) -> str:
    """Text that is not empty and has no control characters. Raises ValueError."""
    if not isinstance(value, str) or not value:
        raise ValueError("expected text")
    if _CONTROL.search(value):
        raise ValueError("expected text without control characters")
    return value


def seconds(value: Any) -> int:
    """ns, >= 0, from whole or decimal seconds; rounded once, to the nearest ns (half to even). Raises ValueError."""
    if isinstance(value, float):
        value = Decimal(float.__repr__(value))  # the number as it would be written, not its binary neighbour
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError("expected finite seconds")
        if 0 <= value < _NEVER_S:
            return int((value * NS_PER_S).to_integral_value())
    elif not isinstance(value, Integral) or isinstance(value, bool):
        raise ValueError("expected seconds")
    if value < 0:
        raise ValueError("a time cannot be negative")
    if value >= _NEVER_S:
        raise ValueError("longer than any simulated time (146 years)")
    return int(value) * NS_PER_S


def nanoseconds(value: Any) -> int:
    """Whole ns, >= 0. Raises ValueError."""
    number = _whole(value)
    if number < 0:
        raise ValueError("a time cannot be negative")
    if number >= NEVER_NS:
        raise ValueError("longer than any simulated time (146 years)")
    return number


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError("expected a whole number")
    return int(value)


def _signed(value: Any) -> int:
    number = _whole(value)
    if abs(number) >= _LARGEST:
        raise ValueError("expected a whole number of at most 62 bits")
    return number


def _count(value: Any, below: int = _LARGEST) -> int:
    number = _whole(value)
    if not 0 <= number < below:
        raise ValueError(f"expected a whole number from 0 to {below - 1}")
    return number


def _luck(value: Any) -> int:
    return _count(value, 2**64)


def _small(value: Any) -> int:
    return _count(value, 2**31)


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError("expected a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("expected a finite number")
    return number


def _usd(value: Any) -> float:
    number = _real(value)
    if number < 0:
        raise ValueError("expected an amount of 0 or more")
    return number


def _probability(value: Any) -> float:
    number = _real(value)
    if not 0 <= number <= 1:
        raise ValueError("expected a number from 0 to 1")
    return number


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _names(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError("expected a list of task ids")
    if len(set(value)) != len(value):
        raise ValueError("names a task twice")
    return list(value)


def _demand(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise ValueError("expected pools and APIs with whole numbers")
    for place, amount in value.items():
        name(place)
        if isinstance(amount, bool) or not isinstance(amount, Integral) or not 1 <= int(amount) < 2**31:
            raise ValueError("expected names with whole numbers of 1 or more")
    return {place: int(amount) for place, amount in value.items()}


def _tasks(value: Any) -> Any:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(task, Mapping) for task in value):
        raise ValueError("expected a list of at least one task")
    return value


_TEXT = {"type": "string", "minLength": 1}
_SECONDS = {"type": "number", "minimum": 0}
_NATURAL = {"type": "integer", "minimum": 0}
_CHANCE = {"type": "number", "minimum": 0, "maximum": 1}
_BOOLEAN = {"type": "boolean"}

_Field = tuple[str, Callable[[Any], Any], dict[str, Any]]
"""Name in a checked record, check, JSON Schema."""

RUN: dict[str, _Field] = {
    "run_id": ("run_id", name, _TEXT),
    "arrival_s": ("arrival_ns", seconds, _SECONDS),
    "tenant": ("tenant", name, _TEXT),
    "class": ("class", name, _TEXT),
    "priority": ("priority", _signed, {"type": "integer"}),
    "deadline_s": ("deadline_ns", seconds, _SECONDS),
    "workflow": ("workflow", name, _TEXT),
    "session": ("session", name, _TEXT),
    "luck": ("luck", _luck, {"type": "integer"}),
    "defect_p": ("defect_p", _probability, _CHANCE),
    "detect_p": ("detect_p", _probability, _CHANCE),
    "max_rework": ("max_rework", _small, _NATURAL),
    "tasks": ("tasks", _tasks, {}),
}
TASK: dict[str, _Field] = {
    "task_id": ("task_id", name, _TEXT),
    "after": ("after", _names, {"type": "array", "items": _TEXT}),
    "pool": ("pool", name, _TEXT),
    "service_s": ("service_ns", seconds, _SECONDS),
    "estimate_s": ("estimate_ns", seconds, _SECONDS),
    "demand": ("demand", _demand, {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}),
    "tier": ("tier", name, _TEXT),
    "tokens_in": ("tokens_in", _count, _NATURAL),
    "tokens_out": ("tokens_out", _count, _NATURAL),
    "cost_usd": ("cost_usd", _usd, {"type": "number", "minimum": 0}),
    "cache_key": ("cache_key", name, _TEXT),
    "public": ("public", _flag, _BOOLEAN),
    "optional": ("optional", _flag, _BOOLEAN),
    "verifies": ("verifies", _flag, _BOOLEAN),
    "side_effect": ("side_effect", _flag, _BOOLEAN),
    "checkpointable": ("checkpointable", _flag, _BOOLEAN),
}
_RUN_NS = {f"{key}_ns": (f"{key}_ns", nanoseconds, _NATURAL) for key in ("arrival", "deadline")}
_TASK_NS = {f"{key}_ns": (f"{key}_ns", nanoseconds, _NATURAL) for key in ("service", "estimate")}


@dataclass(frozen=True)
class Keys:
    """The keys that a reader takes: files write seconds, programs may say whole ns (``arrival_ns``) instead."""

    run: Mapping[str, _Field]
    task: Mapping[str, _Field]


IN_FILES = Keys(RUN, TASK)
IN_PROGRAMS = Keys({**RUN, **_RUN_NS}, {**TASK, **_TASK_NS})


def check_run(record: Mapping[str, Any], keys: Keys, run_id: str, problems: list[str]) -> dict[str, Any]:
    """The record with times in ns and numbers as numbers; what is wrong goes to `problems`. `run_id` names it in them."""
    where = f"run {run_id!r}"
    run = _check(record, keys.run, where, problems)
    if not {"arrival_s", "arrival_ns"} & set(record):
        problems.append(f"{where}: arrival_s is missing")
    if "tasks" not in record:
        problems.append(f"{where}: tasks is missing")
    checked = []
    for number, task in enumerate(run.get("tasks", ())):
        label = task.get("task_id") if isinstance(task.get("task_id"), str) else f"t{number}"
        checked.append(_check_task(task, keys, f"{where}, task {label!r}", problems))
        checked[-1].setdefault("task_id", f"t{number}")
    run["tasks"] = checked
    if checked and not any(task.get("verifies") for task in checked):
        for key, plain in (("max_rework", 0), ("detect_p", 1.0)):
            if run.get(key, plain) != plain:
                problems.append(f"{where}: {key} has no effect without a task that verifies")
    return run


def _check_task(record: Mapping[str, Any], keys: Keys, where: str, problems: list[str]) -> dict[str, Any]:
    task = _check(record, keys.task, where, problems)
    if "pool" not in record:
        problems.append(f"{where}: pool is missing")
    if not {"service_s", "service_ns"} & set(record):
        problems.append(f"{where}: service_s is missing")
    if task.get("public") and "cache_key" not in record:
        problems.append(f"{where}: public has no effect without a cache_key")
    if task.get("verifies") and task.get("optional"):
        problems.append(f"{where}: a verification cannot be optional")
    demand = task.get("demand")
    if demand and demand.get(task.get("pool", "")) == 1:
        del demand[task["pool"]]  # one slot of the own pool is what every task needs
    return task


def _check(record: Mapping[str, Any], fields: Mapping[str, _Field], where: str, problems: list[str]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for key, value in record.items():
        field = fields.get(key)
        if field is None:
            near = difflib.get_close_matches(str(key), list(fields), n=1)
            problems.append(f"{where}: unknown key {key!r}" + (f", did you mean {near[0]!r}?" if near else ""))
            continue
        target, check, _ = field
        if target in checked:
            problems.append(f"{where}: {key} is given twice, in s and in ns")
        try:
            checked[target] = check(value)
        except ValueError as error:
            problems.append(f"{where}: {key}: found {shown(value)}, {error}")
    return checked


def shown(value: Any) -> str:
    """A value as a message shows it."""
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def trace_record_schema() -> dict[str, Any]:
    """JSON Schema of one line of a trace file: the header, or a run with its tasks."""
    task = {
        "type": "object",
        "properties": {key: schema for key, (_, _, schema) in TASK.items()},
        "required": ["pool", "service_s"],
        "additionalProperties": False,
    }
    properties = {key: schema for key, (_, _, schema) in RUN.items()}
    properties["tasks"] = {"type": "array", "minItems": 1, "items": task}
    run = {
        "type": "object",
        "properties": properties,
        "required": ["arrival_s", "tasks"],
        "additionalProperties": False,
    }
    header = {
        "type": "object",
        "properties": {
            "schema": {"const": SCHEMA},
            "source": {"type": "string"},
            "seed": {"type": "integer"},
            "warnings": {"type": "object"},
        },
        "required": ["schema"],
        "additionalProperties": False,
    }
    return {"description": "One line of a trace file: the header first, then a run per line.", "anyOf": [header, run]}
