"""Mechanisms that are not simkit's own: classes in a Python file that a document names, and entry points of installed packages."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from simkit.mechanisms.base import forget, registered
from simkit.model import UsageError

_GROUP = "simkit.mechanisms"


def class_in_file(path: Path, class_name: str) -> tuple[type[Any] | None, str]:
    """(the class or None, digest of the file). Runs the file, once per content; its names are not added to the registry, so that
    ``mine.py@Lottery`` is the only way to it. Raises UsageError naming what the file raised."""
    source = path.read_bytes()
    digest = hashlib.blake2b(source, digest_size=16).hexdigest()
    try:
        found = getattr(_module(path, source, digest), class_name, None)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} raised {type(error).__name__}: {error}") from error
    return (found if isinstance(found, type) else None), digest


def _module(path: Path, source: bytes, digest: str) -> ModuleType:
    name = f"simkit_policy_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        # compiled from what was read: a cached .pyc goes by the time of the last change, which two quick edits share
        exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 - loading it is what the user asked for
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        forget(name)
    return module


def class_of_entry_point(slot: str, name: str) -> type[Any] | None:
    """A mechanism that an installed package offers under the entry point group ``simkit.mechanisms``. Raises UsageError when its import fails."""
    for point in entry_points(group=_GROUP):
        if point.name == name:
            _load(point)
            found = registered(slot).get((slot, name))
            if found is not None:
                return found
    return None


def load_entry_points() -> None:
    """Import everything that installed packages offer. Raises UsageError naming the package whose import fails."""
    for point in entry_points(group=_GROUP):
        _load(point)


def _load(point: Any) -> None:
    try:
        point.load()
    except Exception as error:
        raise UsageError(
            f"the entry point {point.name!r} ({point.value}) raised {type(error).__name__}: {error}"
        ) from error


def code_digest(cls: type[Any]) -> str:
    """blake2b-128 of the source of a class that is not simkit's own (a notebook's, an installed package's); empty for simkit's own, whose
    version is recorded, and where there is no source."""
    if cls.__module__.split(".", maxsplit=1)[0] == "simkit":
        return ""
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return ""
    return hashlib.blake2b(source.encode(), digest_size=16).hexdigest()
