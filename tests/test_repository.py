"""The repository itself: what lies where, and what none of its texts may say."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT

FOLDERS = {".ci", ".github", "notebooks", "policies", "reports", "scenarios", "simkit", "tests", "traces"}
FILES = {
    ".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "constraints.txt", "pyproject.toml",
}  # fmt: skip

# Written in pieces, so that this file may be searched too.
FORBIDDEN = {
    "a path of one machine": r"/wo" + r"rk/|/tmp/" + r"contract|/home/[a-z]+/|/ro" + r"ot/",
    "the address of a package registry": r"pypi\." + r"org|python" + r"hosted|registry\." + r"npmjs|deb\." + r"debian|extra-index" + r"-url",
    "how the text came about": r"(?i)co-authored" + r"-by|generated (?:by|with) [A-Z]|language " + r"model wrote|\bchat" + r"gpt\b|\bissue" + r" \d",
    "an unfinished place": r"\bTO" + r"DO\b|\bFIX" + r"ME\b|\bXX" + r"X\b",
}  # fmt: skip


@cache
def tracked() -> tuple[Path, ...]:
    """Every file of the repository (a copy without git: every file outside the ignored folders)."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0 and listed.stdout:
        names = [name for name in listed.stdout.split("\0") if name]
        return tuple(path for path in (ROOT / name for name in names) if path.is_file())
    hidden = {".venv", ".git", "build", "dist", "__pycache__", "simkit.egg-info"}
    found = (path for path in ROOT.rglob("*") if path.is_file() and not hidden & set(path.relative_to(ROOT).parts))
    return tuple(
        path for path in found if not re.search(r"(^|/)\.[a-z_]+(cache|marks)?/", str(path.relative_to(ROOT).parent))
    )


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in tracked():
        try:
            found.append((path.relative_to(ROOT), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue  # a compressed trace
    return found


def test_the_top_holds_what_it_should_and_nothing_else() -> None:
    top = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert top <= FOLDERS | FILES, f"unexpected: {sorted(top - FOLDERS - FILES)}"
    assert top >= FILES | {".ci", ".github", "policies", "reports", "scenarios", "simkit", "tests"}


@pytest.mark.parametrize("what", sorted(FORBIDDEN))
def test_no_text_names(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{path}:{text[: match.start()].count(chr(10)) + 1}: {match[0]}"
        for path, text in texts()
        if path.name != "LICENSE"  # not ours to word
        for match in pattern.finditer(text)
    ]
    assert not found


def test_no_file_is_large() -> None:
    assert not [
        f"{path.relative_to(ROOT)}: {path.stat().st_size}" for path in tracked() if path.stat().st_size > 1_000_000
    ]


def test_every_test_asserts_something() -> None:
    trees = {
        path: ast.parse(text)
        for path, text in texts()
        if path.parts[0] == "tests" and path.suffix == ".py" and "benchmarks" not in path.parts
    }
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    bodies = [(node.name, ast.unparse(node)) for node in functions]
    asserting: set[str] = {
        name for name, body in bodies if re.search(r"\bassert\b|raises\(|\bfail\(|benchmark\(|check=True", body)
    }
    for _ in range(3):  # a helper that calls a helper that asserts
        asserting |= {name for name, body in bodies if asserting & set(re.findall(r"(\w+)\(", body.split("\n", 1)[-1]))}
    assert not sorted(name for name, _ in bodies if name.startswith("test_") and name not in asserting)


def test_every_dependency_is_pinned_and_every_pin_is_plain() -> None:
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        name, sign, version = line.partition("==")
        assert sign, line
        assert re.fullmatch(r"[0-9][0-9a-z.]*", version), line
        pins[canonical(name)] = version
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"], "editables"]
    wanted += [item for extra in project["project"]["optional-dependencies"].values() for item in extra]
    missing = sorted({canonical(re.split(r"[<>=!~\[ ;]", item)[0]) for item in wanted} - set(pins))
    assert not missing


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_licence_is_the_whole_one() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert text.splitlines()[0].strip() == "Apache License"
    assert "9. Accepting Warranty or Additional Liability" in text
    assert len(text.splitlines()) > 190


def test_workflows_pin_what_they_use_and_may_only_read() -> None:
    from ruamel.yaml import YAML

    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        flow = YAML(typ="safe", pure=True).load(path)
        assert flow["permissions"] == {"contents": "read"}, path
        for job in flow["jobs"].values():
            for step in job["steps"]:
                assert re.search(r"@v\d+$", step["uses"]) if "uses" in step else step["run"], (path, step)


def test_the_gate_workflow_names_scenarios_that_exist() -> None:
    from ruamel.yaml import YAML

    flow = YAML(typ="safe", pure=True).load(ROOT / ".github/workflows/policy-gate.yml")
    names = flow["jobs"]["gate"]["strategy"]["matrix"]["scenario"]
    assert len(names) == 5
    assert [name for name in names if not (ROOT / f"scenarios/{name}.yaml").is_file()] == []
    assert [name for name in names if not (ROOT / f"reports/baseline/{name}.json").is_file()] == []
