"""What ``import simkit`` offers."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys

import pytest
from conftest import ROOT

import simkit


def test_at_most_twenty_names() -> None:
    assert len(simkit.__all__) <= 20
    assert sorted(simkit.__all__, key=str.lower) == sorted(set(simkit.__all__), key=str.lower)


@pytest.mark.parametrize("name", sorted(simkit.__all__))
def test_every_name_is_there_and_described(name: str) -> None:
    value = getattr(simkit, name)
    assert value is getattr(simkit, name)
    if name != "__version__":
        assert value.__doc__


def test_the_names_for_type_checkers_are_the_same() -> None:
    tree = ast.parse((ROOT / "simkit/__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.asname or alias.name for item in block.body if isinstance(item, ast.ImportFrom) for alias in item.names
    }
    assert typed == set(simkit.__all__) - {"__version__"}


def test_dir_lists_the_names() -> None:
    assert dir(simkit) == sorted(simkit.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'compere'"):
        _ = simkit.compere


def test_compare_is_the_function_although_a_module_has_its_name() -> None:
    # importing simkit.compare, which everything that compares does, sets the attribute `compare` of the package
    script = "import simkit.compare, simkit.api, simkit; assert simkit.compare is simkit.api.compare; from simkit import compare; compare.__call__"
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, cwd=ROOT)
    assert pickle.loads(pickle.dumps(simkit.compare)) is simkit.compare


def test_the_version_is_the_one_of_the_package() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == simkit.__version__
    assert f"## {simkit.__version__}" in (ROOT / "CHANGELOG.md").read_text()
