"""The notebooks: they run from any folder, and their cells show what the text between them says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import ROOT
from nbclient import NotebookClient

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 300  # one cell at most; the whole notebook takes about ten on two cores
BRIEF = 6000  # signs of plain text that a cell may leave in a saved notebook


@dataclass(frozen=True)
class Ran:
    """A notebook after all its cells ran."""

    cells: Mapping[str, Any]
    folder: Path

    def text(self, cell: str) -> str:
        """What the cell printed, then the plain text of its result."""
        outputs = self.cells[cell].outputs
        return "".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)

    def html(self, cell: str) -> str:
        return "".join(output.get("data", {}).get("text/html", "") for output in self.cells[cell].outputs)

    def line(self, cell: str, *words: str) -> str:
        """The one line with all these words."""
        (found,) = (line for line in self.text(cell).splitlines() if all(word in line.split() for word in words))
        return found

    def people(self, cell: str, metric: str) -> list[tuple[float, float]]:
        """Mean and half of the interval of this metric of the questions, policy by policy."""
        questions = self.text(cell).split("interactive", 1)[1].splitlines()
        (found,) = (line for line in questions if metric in line.split())
        return [(float(mean), float(half)) for mean, half in re.findall(r"(\d+\.\d) ±(\d+\.\d)", found)]

    def change(self, cell: str, policy: str, metric: str) -> tuple[float, str]:
        """Mean difference and verdict."""
        rows = [re.findall(r"<td>(.*?)</td>", row) for row in self.html(cell).split("<tr>")]
        ((mean, _, verdict),) = (row[2:] for row in rows if row[:2] == [policy, metric])
        return float(mean), verdict


@contextmanager
def own_jupyter(folder: Path) -> Iterator[None]:
    """Kernels, settings and start-up files of whoever runs the tests play no part: ``python3`` is this interpreter."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            patch.setenv(name, str(folder / name.lower()))
        for name in ("JUPYTER_PATH", "PYTHONPATH", "PYTHONSTARTUP"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs a notebook once, in an empty folder; raises `CellExecutionError` at the first cell that fails."""

    @cache
    def execute(path: Path) -> Ran:
        folder, jupyter = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("jupyter")
        notebook = nbformat.read(path, as_version=4)
        with own_jupyter(jupyter):
            NotebookClient(
                notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
            ).execute()
        return Ran({cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}, folder)

    return execute


def test_the_notebook_that_the_readme_names_is_there() -> None:
    assert ROOT / "notebooks/compare_policies.ipynb" in NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_holds_no_output_and_no_trace_of_a_machine(path: Path) -> None:
    plain = json.loads(path.read_text(encoding="utf-8"))
    nbformat.validate(plain)
    assert [cell["id"] for cell in plain["cells"] if cell.get("outputs") or cell.get("execution_count")] == []
    assert [cell["id"] for cell in plain["cells"] if cell["metadata"]] == []
    assert [cell["id"] for cell in plain["cells"] if not re.fullmatch(r"[a-z][a-z-]+", cell["id"])] == []
    assert plain["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"},
    }  # fmt: skip


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs_quietly_and_leaves_nothing_behind(path: Path, ran: Any) -> None:
    done = ran(path)
    outputs = [(name, output) for name, cell in done.cells.items() for output in cell.outputs]
    assert done.cells
    assert [name for name, cell in done.cells.items() if cell.execution_count is None] == []
    assert [name for name, output in outputs if output.output_type == "error" or output.get("name") == "stderr"] == []
    assert [name for name in done.cells if len(done.text(name)) > BRIEF] == []
    assert list(done.folder.iterdir()) == []


@pytest.fixture(scope="module")
def compared(ran: Any) -> Ran:
    done: Ran = ran(ROOT / "notebooks/compare_policies.ipynb")
    return done


def test_the_demand_is_a_batch_at_once_and_a_question_every_six_seconds(compared: Ran) -> None:
    assert "policies: fifo, strict_priority, weighted_fair\nreplications: 10\n" in compared.text("load")
    batch, questions = (
        [float(number) for number in compared.line("demand-by-class", name).split()[1:]]
        for name in ("background", "interactive")
    )
    assert batch[:3] == [120, 0, 0]
    assert questions[:3] == [20, 0, 19 * 6]
    # 120 exponential services of mean 3 s: mean 360 s, standard deviation sqrt(120) x 3 = 33 s
    assert abs(batch[3] - 360) < 4 * 33


def test_the_comparison_shows_its_page_and_one_short_line(compared: Ran) -> None:
    assert compared.text("compare") == (
        "<Comparison of fifo, strict_priority, weighted_fair on quickstart, 10 replications, seed 7>"
    )
    assert "strict_priority" in compared.html("compare")
    first, *judged = compared.text("recommendation").splitlines()
    assert first.startswith("Choose strict_priority: ")
    assert [line[:4] for line in judged] == ["ok  "] * 3  # two expectations and the control
    assert compared.text("ladder").splitlines() == [
        "strict_priority over fifo: mixed",
        "weighted_fair over strict_priority: no",
    ]


def test_first_come_first_served_starves_about_sixteen_questions_and_priority_none(compared: Ran) -> None:
    # A question of second t waits under fifo for what is before it: (120 x 3 s + t/6 x 2 s) / 4 slots - t = 90 s - 11/12 t, which is
    # more than 10 s up to second 87: fifteen questions. The end of the batch varies by 33 s / 4 slots, over ten replications by
    # 8.2 s / sqrt(10) = 2.6 s; two of that are 5.2 s, within which one question comes more or less.
    (mean, half), *others = compared.people("table", "starved")
    assert abs(mean - 15) <= 1
    assert round(mean) == 16  # as the text says
    assert 0 < half < 2
    assert others == [(0, 0), (0, 0)]
    assert compared.change("differences", "strict_priority", "starved") == (-mean, "better")
    cost, verdict = compared.change("differences", "strict_priority", "latency_s.p95[class=background]")
    assert (round(cost), verdict) == (9, "worse")  # "about nine seconds"


def test_the_plots_are_drawn(compared: Ran) -> None:
    for cell in ("plot-latency", "plot-backlog"):
        assert "<svg" in compared.html(cell)
        assert "strict_priority" in compared.html(cell)


def test_a_policy_of_a_cell_reaches_the_other_processes_and_does_what_its_text_says(compared: Ran) -> None:
    # Questions come at 0, 6, ... 48 s within the head start of 10 points x 5 s: nine of them are saved.
    saved, verdict = compared.change("own-differences", "head_start", "starved")
    assert (round(saved), verdict) == (-9, "better")
    fifo, own, strict = (mean for mean, _ in compared.people("own-compare", "latency_s.p95"))
    assert fifo > own > strict
    ours, _ = compared.change("own-differences", "head_start", "latency_s.p95[class=background]")
    theirs, _ = compared.change("own-differences", "strict_priority", "latency_s.p95[class=background]")
    assert ours / theirs == pytest.approx(0.5, abs=0.05)  # "about half"
    everyone, people = compared.text("own-recommendation").splitlines()
    assert everyone.startswith("All runs: Choose fifo: ")
    assert people.startswith("People: Choose strict_priority: ")


def test_the_same_question_is_told_twice(compared: Ran) -> None:
    waited = {}
    for cell, policy in (("explain", "head_start"), ("explain-strict", "strict_priority")):
        story = compared.text(cell)
        assert story.startswith("Run questions-10: verified\n")
        assert f"policy {policy} version 1" in story
        assert "60.000 s  submitted" in story  # the eleventh, one every 6 s
        waited[policy] = float(re.findall(r"after waiting (\S+) s", story)[0])
    assert waited["strict_priority"] < 10 < waited["head_start"]
    # Only those after second 50 waited for the batch; the first of them, of second 54, for the longest.
    longest = re.findall(r"questions-(\d+)", compared.text("run-tables"))
    assert longest == ["9", "10", "11", "12", "13"]


def test_results_are_one_line_in_a_prompt(folder: Path) -> None:
    import simkit

    assert repr(simkit.run("quickstart", "fifo")) == "<RunResult of quickstart under fifo, seed 7, replication 0>"
    comparison = simkit.compare("quickstart", ["fifo", "strict_priority"], 1, jobs=1)
    assert repr(comparison) == "<Comparison of fifo, strict_priority on quickstart, 1 replications, seed 7>"
    assert repr(comparison.plot.waits()) == "<Chart waits: What the waiting was for>"
