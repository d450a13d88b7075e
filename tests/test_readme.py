"""The README shows what really happens."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import readme_blocks
from conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[readme_blocks.Block, list[str]]]]:
    """Every example, run once, in order, in one folder."""
    folder = tmp_path_factory.mktemp("readme")
    return folder, readme_blocks.play(folder)


def test_every_example_says_what_the_readme_says(
    played: tuple[Path, list[tuple[readme_blocks.Block, list[str]]]],
) -> None:
    assert len(played[1]) >= 8
    for block, shown in played[1]:
        # another wording on purpose: run `python tests/readme_blocks.py` and read the difference
        assert shown == block.lines


def test_what_the_examples_write_is_there(played: tuple[Path, list[tuple[readme_blocks.Block, list[str]]]]) -> None:
    folder, _ = played
    assert (folder / "reports/noisy_neighbor/report.html").is_file()
    assert set(json.loads((folder / "results.json").read_text())["policies"]) == {"fifo", "shortest"}


def test_the_python_example_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (block for block in readme_blocks.read().blocks if block.language == "python" and not block.file)
    names: dict[str, object] = {}
    exec(compile("\n".join(code.lines), "README.md", "exec"), names)
    assert "questions-3" in capsys.readouterr().out
    assert list(names["comparison"].policies) == ["fifo", "weighted_fair"]  # type: ignore[attr-defined]


def test_it_opens_with_the_two_commands() -> None:
    lines = README.splitlines()
    assert [line.split()[:2] for line in lines[2:4]] == [["make", "demo"], ["make", "test"]]


def test_every_file_that_it_names_exists() -> None:
    named = set(
        re.findall(r"`((?:simkit|scenarios|policies|traces|notebooks|reports|tests|\.github)/[\w./-]*)`", README)
    )
    assert len(named) >= 8
    made = {"reports/noisy_neighbor/report.html"}  # by its first command
    assert [name for name in sorted(named - made) if not (ROOT / name).exists()] == []


def test_every_metric_that_it_names_is_measured() -> None:
    from simkit.catalogue import METRICS

    table = README.partition("| metric | meaning |")[2].partition("\n\n")[0]
    named = {name.split(".")[0] for name in re.findall(r"`([a-z_0-9.]+(?:POOL)?)`", table)}
    assert len(named) >= 18
    assert named - {"starved_after"} <= set(METRICS)


def test_every_exit_code_is_told() -> None:
    from simkit.cli import shell

    told = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert told == {shell.PASSED, shell.FAILED, shell.USAGE, shell.DEFECT, shell.UNJUDGED, shell.INTERRUPTED}
