"""A mechanism's parameters: the fields of its dataclass, checked from their types as strictly as documents are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import PurePath
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from simkit.documents import Loc, canonical
from simkit.model import UsageError

_MODELS: dict[type[Any], type[BaseModel]] = {}
_CONVERTED = (tuple, set, frozenset, Enum, PurePath)
"""Types that YAML has no word for: a list or a text is turned into one, every other type is taken as it stands."""

_PLACES, _CHOOSERS, _MAPS = ("pool", "pools", "api", "apis"), ("for", "keep_for"), ("weights", "max", "count")
_LISTS = {"classes": "class", "tenants": "tenant", "defer": "class", "only": "class", "skip_verification": "class"}


def parameter_model(cls: type[Any]) -> type[BaseModel]:
    """The strict model of a mechanism's parameters, with the keys that documents use (``for`` for the field ``for_``).

    Raises UsageError for a class that is no dataclass, or whose field types cannot be resolved.
    """
    if cls not in _MODELS:
        if not dataclasses.is_dataclass(cls):
            raise UsageError(f"mechanism {cls.__name__} must be a dataclass: its fields are its parameters")
        try:
            hints = get_type_hints(cls, include_extras=True)
        except Exception as error:
            raise UsageError(f"the types of {cls.__name__}'s fields cannot be resolved: {error}") from error
        _refuse_unknown_keys_in(hints.values())
        fields: dict[str, Any] = {}
        for item in dataclasses.fields(cls):
            if item.init:
                options = _default(item)
                if _is_converted(hints[item.name]):
                    options["strict"] = False
                fields[f"p_{item.name}"] = (hints[item.name], Field(alias=_key(item.name), **options))
        config = ConfigDict(
            extra="forbid",
            strict=True,
            frozen=True,
            allow_inf_nan=False,
            arbitrary_types_allowed=True,
            protected_namespaces=(),
        )
        _MODELS[cls] = create_model(cls.__name__, __config__=config, **fields)
    return _MODELS[cls]


def _default(item: Any) -> dict[str, Any]:
    if item.default is not dataclasses.MISSING:
        return {"default": item.default}
    if item.default_factory is not dataclasses.MISSING:
        return {"default_factory": item.default_factory}
    return {}


def _refuse_unknown_keys_in(annotations: Iterable[Any]) -> None:
    """Parameters that are dataclasses themselves are made from mappings; unknown keys are refused there too."""
    for annotation in annotations:
        if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            inner: Any = annotation
            if "__pydantic_config__" not in vars(inner):
                inner.__pydantic_config__ = {"extra": "forbid"}
        _refuse_unknown_keys_in(get_args(annotation))


def _is_converted(annotation: Any) -> bool:
    origin = get_origin(annotation) or annotation
    if isinstance(origin, type) and issubclass(origin, _CONVERTED):
        return True
    return origin in (Union, UnionType) and any(_is_converted(member) for member in get_args(annotation))


def _key(name: str) -> str:
    """The document's key of a field: Python's keywords end in an underscore there."""
    return name.removesuffix("_")


def parameters(cls: type[Any]) -> list[str]:
    """The parameter names of a mechanism as documents write them."""
    return [_key(item.name) for item in dataclasses.fields(cls) if item.init]


def make(cls: type[Any], params: Mapping[str, Any]) -> Any:
    """A mechanism from a document's parameters.

    Raises pydantic's ValidationError for what does not fit the types, and what the class itself raises for the rest.
    """
    checked = parameter_model(cls).model_validate(dict(params))
    return cls(**{name.removeprefix("p_"): getattr(checked, name) for name in checked.model_fields_set})


def settings(cls: type[Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """What the parameters mean, as plain data in base units (ns, fractions), defaults left out: ``30s`` and ``30000ms`` are equal here."""
    checked = parameter_model(cls).model_validate(dict(params))
    fields = type(checked).model_fields
    found = {}
    for name in sorted(checked.model_fields_set):
        value = getattr(checked, name)
        if value != fields[name].get_default(call_default_factory=True):
            found[str(fields[name].alias)] = canonical(value)
    return found


def named_things(cls: type[Any], params: Mapping[str, Any]) -> Iterator[tuple[str, str, Loc]]:
    """("pool" | "tier" | "class" | "tenant", name, place within the parameters) for everything that a mechanism of simkit's names.

    It goes by the names of the parameters, which mean the same in every mechanism here. Pools and APIs are both "pool".
    """
    by = params.get("by", next((item.default for item in dataclasses.fields(cls) if item.name == "by"), None))
    counted = by[0] if isinstance(by, list) and by else by
    for key, value in params.items():
        if key in _MAPS and isinstance(value, Mapping):
            if counted in ("class", "tenant", "pool"):
                yield from ((str(counted), name, (key, name)) for name in value if name != "default")
        elif key in _CHOOSERS:
            yield from _chosen(value, (key,))
        elif key == "do" and isinstance(value, Mapping):
            for mode, actions in value.items():
                for place, action in enumerate(actions if isinstance(actions, list) else []):
                    if isinstance(action, Mapping):
                        yield from _listed(action, (key, mode, place))
    yield from _listed(params, ())


def _listed(params: Mapping[str, Any], at: Loc) -> Iterator[tuple[str, str, Loc]]:
    for key, value in params.items():
        kind = "pool" if key in _PLACES else "tier" if key == "tier" else _LISTS.get(key)
        if kind is not None:
            yield from _names(kind, value, (*at, key))


def _names(kind: str, value: Any, at: Loc) -> Iterator[tuple[str, str, Loc]]:
    if isinstance(value, str):
        yield kind, value, at
    elif isinstance(value, list):
        yield from ((kind, name, (*at, place)) for place, name in enumerate(value) if isinstance(name, str))


def _chosen(value: Any, at: Loc) -> Iterator[tuple[str, str, Loc]]:
    """``{class: a}``, ``{tenant: [a, b]}``, or a list of such."""
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from _chosen(item, (*at, place))
    elif isinstance(value, Mapping):
        for kind in ("class", "tenant"):
            yield from _names(kind, value.get(kind), (*at, kind))
