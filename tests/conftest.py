"""What all tests share: a quiet environment, and a scenario that is done in a moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simkit.mechanisms import base, load_builtin

ROOT = Path(__file__).resolve().parents[1]

TINY = """\
name: tiny
about: One pool, two classes, eighty runs.
seed: 3
replications: 3
platform: {pools: {gpu: {slots: 2}}}
workload:
  - {name: people, class: interactive, priority: 5, arrivals: {poisson: {rate: 1/s}}, count: 20, task: {pool: gpu, service: {exp: {mean: 1s}}}}
  - {name: batch, class: background, arrivals: {burst: {at: 0s, count: 60}}, task: {pool: gpu, service: {exp: {mean: 1s}}}}
policies: [fifo, strict_priority]
control: fifo
expect:
  - {metric: wait_s.p95, where: {class: interactive}, policy: strict_priority, at_most: 5}
  - {metric: wait_s.p95, where: {class: interactive}, policy: strict_priority, better_than: fifo, by: 20%}
"""


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test means the same on a laptop and in a CI job."""
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS", "SIMKIT_DEBUG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    """Mechanisms that a test registers are gone after it."""
    load_builtin()
    before = dict(base._REGISTRY)
    yield
    base._REGISTRY.clear()
    base._REGISTRY.update(before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tiny(folder: Path) -> Path:
    """``tiny.yaml`` in the folder one works in."""
    path = folder / "tiny.yaml"
    path.write_text(TINY)
    return path


def plain(text: str) -> dict[str, Any]:
    """A YAML text as data."""
    from simkit.documents import load

    data: dict[str, Any] = load(text).data
    return data
