"""The package as users get it: built, installed into a clean environment, used from an empty folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT

PIP = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_BUILD_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}  # fmt: skip


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**environment, **PIP},
    )


def done(*command: str | Path, cwd: Path) -> str:
    ended = run(*command, cwd=cwd)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


@dataclass(frozen=True)
class Installed:
    """A wheel and an environment with nothing but it and what it needs."""

    wheel: Path
    source: Path
    python: Path
    script: Path


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Built through the source package, so that both are tested; once for all tests."""
    folder = tmp_path_factory.mktemp("wheel")
    done(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    done(sys.executable, "-m", "venv", folder / "env", cwd=folder)
    bin_ = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    done(bin_ / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return Installed(wheel, source, bin_ / "python", bin_ / "simkit")


def test_the_wheel_brings_the_package_and_its_library_and_nothing_else(installed: Installed) -> None:
    names = zipfile.ZipFile(installed.wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"simkit", "simkit-0.1.0.dist-info"}
    shipped = {name for name in names if name.startswith("simkit/_library/")}
    for kind in ("scenarios", "policies"):
        ours = {f"simkit/_library/{kind}/{path.name}" for path in (ROOT / kind).glob("*.yaml")}
        assert ours
        assert ours <= shipped
    assert "simkit/py.typed" in names
    assert not [name for name in names if re.search(r"__pycache__|\.pyc$|(^|/)tests?/|\.venv|reports/", name)]


def test_the_source_package_holds_no_litter(installed: Installed) -> None:
    with tarfile.open(installed.source) as source:
        names = {name.split("/", 1)[1] for name in source.getnames() if "/" in name}
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names
    assert not [name for name in names if re.search(r"__pycache__|\.pyc$|\.venv|_cache|^reports/|^dist/", name)]


def test_the_main_job_runs_from_an_empty_folder(installed: Installed, folder: Path) -> None:
    ended = run(installed.script, "run", "noisy_neighbor", "--replications", "2", "--jobs", "1", cwd=folder)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert "weighted_fair" in ended.stdout
    results = json.loads((folder / "reports/noisy_neighbor/summary.json").read_text())
    assert results["replications"] == 2
    assert len(results["policies"]) == 5
    assert "<html" in (folder / "reports/noisy_neighbor/report.html").read_text()


def test_the_documents_are_no_code_of_a_users(installed: Installed, folder: Path) -> None:
    for name in ("policies", "scenarios", "traces", "tests"):
        ended = run(installed.python, "-c", f"import {name}", cwd=folder)
        assert f"No module named '{name}'" in ended.stderr


def test_the_library_is_found_and_the_checkout_is_not(installed: Installed, folder: Path) -> None:
    where = done(installed.python, "-c", "from simkit.library import find; print(find('scenarios', 'mm1'))", cwd=folder)
    assert "_library" in where
    assert str(ROOT) not in where


def test_the_environment_is_consistent(installed: Installed, folder: Path) -> None:
    assert "No broken requirements found" in done(installed.python, "-m", "pip", "check", cwd=folder)
