"""The command line: exit codes, streams, one JSON document, and what happens when things go wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, TINY

from simkit.cli import app, running, shell
from simkit.model import LawViolation, UsageError

SIMKIT = [sys.executable, "-m", "simkit"]
QUICK = ("--jobs", "1", "--no-report")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one document on stdout."""
        document: dict[str, Any] = json.loads(self.out)
        return document


Simkit = Callable[..., Ended]


@pytest.fixture
def simkit(capsys: pytest.CaptureFixture[str]) -> Simkit:
    """Run a command line in this process."""

    def call(*arguments: str | Path) -> Ended:
        capsys.readouterr()
        code = shell.run(app, [str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return call


def mechanism(folder: Path, body: str) -> Path:
    """A policy of one's own whose order does `body` for every task."""
    code = "from dataclasses import dataclass\nfrom simkit import RankOrder, Task, mechanism\n"
    code += '@mechanism("mine")\n@dataclass(eq=False)\nclass Mine(RankOrder):\n    """Mine."""\n'
    code += f"    def rank(self, task: Task, now_s: float) -> float:\n        {body}\n"
    (folder / "mine.py").write_text(code)
    (folder / "mine.yaml").write_text("name: mine\norder: {mine.py@Mine: {}}\n")
    return folder / "mine.yaml"


# --- exit codes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "No such command 'rnu'. Did you mean 'run'?"),
        (["run"], "Missing argument 'SCENARIO'"),
        (["run", "tiny", "--sede", "1"], "No such option: --sede"),
        (["run", "tiny", "--replications", "0"], "Input should be greater than or equal to 1"),
        (["run", "tiny", "--seed", "x"], "'--seed': Input should be a valid integer"),
        (["run", "tinny"], "there is no scenario 'tinny'"),
        (["run", "tiny", "--policy", "fifi"], "did you mean 'fifo'?"),
        (["run", "tiny", "--policy", "fifo", "--policy", "fifo"], "policy 'fifo' is there twice"),
        (["run", "tiny", "--set", "platform.pools.gpu"], "expected key=value"),
        (["run", "tiny", "--set", "platform.pools.gpu.slots=-1"], "--set platform.pools.gpu.slots=-1"),
        (["run", "tiny", "--precision", "lots"], "--precision: found 'lots'"),
        (["run", "tiny", "--precision", "0%"], "--precision: found 0"),
        (["compare", "tiny", "--baseline", "edf"], "the scenario has no policy 'edf'"),
        (["check", "tiny", "--set", "expect.0.metric=wiat_s"], "did you mean 'wait_s'?"),
        (["explain", "r1"], "give exactly one of --scenario and --log"),
        (["schema", "polcy"], "did you mean 'policy'?"),
        (["trace", "import", "azure", "x.csv", "-o", "t.jsonl"], "did you mean 'azure-llm'?"),
        (["trace", "import", "flat", "x.csv", "-o", "t.jsonl"], "exactly one of --map and --preset"),
        (["trace", "import", "flat", "x.csv", "-o", "t.jsonl", "--preset", "vtx"], "did you mean 'vtc'?"),
        (
            ["trace", "import", "flat", "x.csv", "-o", "t.jsonl", "--preset", "vtc", "--time", "ms"],
            "a preset knows its units",
        ),
        (["trace", "info", "gone.jsonl"], "there is no trace file 'gone.jsonl'"),
        (["policy", "show", "fifi"], "did you mean 'fifo'?"),
        (["init", "policy", "fifo"], "'fifo' is taken"),
        (["init", "scenario", "../x"], "expected a name of letters"),
        (["init", "scenario", "tiny"], "tiny.yaml is there already"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what(simkit: Simkit, tiny: Path, arguments: list[str], message: str) -> None:
    ended = simkit(*arguments)
    assert ended.code == 2
    assert message in ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err


def test_every_problem_of_a_document_is_told_with_its_place(simkit: Simkit, tiny: Path) -> None:
    tiny.write_text(TINY.replace("slots: 2", "slotz: 2").replace("at_most: 5", "at_most: soon"))
    ended = simkit("run", "tiny.yaml")
    assert ended.code == 2
    lines = ended.err.splitlines()
    assert lines[0].startswith("tiny.yaml:5:20: the key 'slots' is missing")  # columns counted by hand: of gpu, and
    assert lines[1].startswith("tiny.yaml:5:26: unknown key 'slotz', did you mean 'slots'?")
    assert any(line.startswith("tiny.yaml:12:") for line in lines)  # soon


def test_without_gates_or_with_passed_ones_a_run_ends_with_0(simkit: Simkit, tiny: Path) -> None:
    assert simkit("run", "tiny", *QUICK, "--json").code == 0
    assert simkit("run", "tiny", *QUICK, "--json", "--set", "expect=[]", "--set", "control=[]").code == 0


def test_a_failed_expectation_ends_with_1(simkit: Simkit, tiny: Path) -> None:
    ended = simkit("run", "tiny", *QUICK, "--json", "--set", "expect.0.at_most=0.001")
    assert ended.code == 1
    assert [item["ok"] for item in ended.document["expectations"]] == [False, True, True]


def test_a_control_that_passes_ends_with_1(simkit: Simkit, tiny: Path) -> None:
    ended = simkit("check", "tiny", "--jobs", "1", "--set", "control=strict_priority")
    assert ended.code == 1
    assert "FAIL control strict_priority fails as it must: fails 0 of 2" in ended.out


def test_a_deadlock_ends_with_4_and_names_pool_and_policy(simkit: Simkit, tiny: Path) -> None:
    stall = "faults=[{at: 0s, what: {pool: gpu, starts: nothing}}]"
    ended = simkit("run", "tiny", *QUICK, "--set", stall)
    assert ended.code == 4
    assert "deadlock" in ended.err
    assert "'fifo'" in ended.err
    assert "gpu" in ended.err


def test_one_replication_cannot_be_judged_strictly(simkit: Simkit, tiny: Path) -> None:
    assert simkit("run", "tiny", *QUICK, "--json", "-n", "1").code == 0
    assert simkit("run", "tiny", *QUICK, "--json", "-n", "1", "--strict").code == 4


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_defect_ends_with_3_and_says_where_and_how_to_see_it_again(simkit: Simkit, tiny: Path, jobs: str) -> None:
    mine = mechanism(tiny.parent, 'raise RuntimeError("boom")')
    command = ["run", "tiny.yaml", "--policy", str(mine), "--allow-code", "--no-report", "--jobs", jobs]
    ended = simkit(*command)
    assert ended.code == 3
    (paragraph,) = ended.err.splitlines()[1:]  # after the note on expectations that were left out
    assert "RuntimeError: boom" in paragraph
    assert "policy mine, seed 3, replication " in paragraph
    assert paragraph.endswith(f"by: simkit {' '.join(command)} --verbose")
    assert ended.out == ""


def test_the_traceback_comes_with_verbose_or_when_debugging(
    simkit: Simkit, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = mechanism(tiny.parent, 'raise RuntimeError("boom")')
    command = ["run", "tiny.yaml", "--policy", str(mine), "--allow-code", *QUICK]
    assert "Traceback" not in simkit(*command).err
    assert "in rank" in simkit(*command, "--verbose").err
    monkeypatch.setenv("SIMKIT_DEBUG", "1")
    assert "in rank" in simkit(*command).err


def test_a_broken_law_ends_with_3(simkit: Simkit, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise LawViolation("more ended than began")

    monkeypatch.setattr("simkit.api.compare", broken)
    ended = simkit("run", "tiny", *QUICK)
    assert ended.code == 3
    assert "a law of the model is broken: more ended than began" in ended.err


# --- interrupted -------------------------------------------------------------------------------------------

INTERRUPT = """
import os, signal, sys
from contextlib import contextmanager
from simkit import cli
from simkit.cli import running

@contextmanager
def progress(what, *, quiet):
    # as if someone pressed Ctrl-C when half of the simulations are done
    yield lambda done, total: os.kill(os.getpid(), signal.SIGINT) if done == total // 2 else None

running.progress = progress
cli.main()
"""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_ends_with_130_in_one_line_and_keeps_what_is_finished(tiny: Path, jobs: str) -> None:
    command = ["run", "tiny.yaml", "-n", "8", "--jobs", jobs, "--json"]
    ended = subprocess.run([sys.executable, "-c", INTERRUPT, *command], capture_output=True, text=True, check=False)
    assert ended.returncode == 130
    (line,) = ended.stderr.splitlines()
    kept = Path("reports/tiny/interrupted.json")
    document = json.loads(ended.stdout)
    finished = document["replications"]
    assert 1 <= finished < 8
    assert line == f"simkit: interrupted: {finished} of 8 replications are finished, kept in {kept}"
    assert document["stopped"] == {"reason": "interrupted", "finished": finished, "wanted": 8}
    assert json.loads(kept.read_text()) == document
    assert [path.name for path in kept.parent.iterdir()] == ["interrupted.json"]  # nothing half-written


def test_what_was_finished_before_ctrl_c_is_what_a_whole_run_says(tiny: Path, simkit: Simkit) -> None:
    command = ["run", "tiny.yaml", "-n", "8", "--jobs", "1", "--json"]
    ended = subprocess.run([sys.executable, "-c", INTERRUPT, *command], capture_output=True, text=True, check=False)
    part = json.loads(ended.stdout)
    whole = simkit("run", "tiny.yaml", *QUICK, "--json", "-n", str(part["replications"])).document
    assert part["policies"] == whole["policies"]


@pytest.mark.parametrize("command", ["run", "compare", "check"])
def test_ctrl_c_before_anything_is_finished(
    simkit: Simkit, tiny: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simkit.api.compare", interrupted)
    ended = simkit(command, "tiny", "--jobs", "1")
    assert ended.code == 130
    (line,) = ended.err.splitlines()
    assert line.startswith("simkit: interrupted: 0 of 3 replications are finished, nothing is ")
    assert ended.out == ""


def test_ctrl_c_elsewhere_is_130_too(simkit: Simkit, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simkit.policy.load_policy", interrupted)
    ended = simkit("policy", "show", "fifo")
    assert (ended.code, ended.err) == (130, "simkit: interrupted: nothing is kept\n")


def test_workers_that_die_every_time_end_with_4_and_keep_the_rest(
    simkit: Simkit, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simkit import api
    from simkit.sweep.replicate import WorkLost

    real = api.compare

    def lost(*arguments: Any, finished: list[Any], **options: Any) -> None:
        real(*arguments, finished=finished, **options)
        finished.pop()
        raise WorkLost("not finished: replications 2 of 3 (its worker process died 4 times); the others are", finished)

    monkeypatch.setattr("simkit.api.compare", lost)
    ended = simkit("run", "tiny", "--jobs", "1", "--json")
    assert ended.code == 4
    assert "replications 2 of 3" in ended.err
    assert "kept in reports/tiny/interrupted.json" in ended.err
    assert ended.document["replications"] == 2


# --- streams -----------------------------------------------------------------------------------------------


def test_every_command_prints_one_document_with_json(simkit: Simkit, tiny: Path) -> None:
    rows = "when,who,took\n0.5,a,1\n1.5,b,2\n"
    Path("rows.csv").write_text(rows)
    importing = (
        "trace",
        "import",
        "flat",
        "rows.csv",
        "--map",
        "arrival=when,tenant=who,service=took",
        "-o",
        "i.jsonl",
    )
    commands: dict[str, tuple[str, ...]] = {
        "simkit.results/1": ("run", "tiny", *QUICK),
        "simkit.gate/1": ("check", "tiny", "--jobs", "1", "--update"),
        "simkit.trace-info/1": ("trace", "synth", "tiny", "-o", "t.jsonl"),
        "simkit.validation/1": ("validate", "tiny.yaml", "t.jsonl"),
        "simkit.policies/1": ("policy", "list"),
        "simkit.policy/1": ("policy", "show", "fifo"),
        "simkit.policy-diff/1": ("policy", "diff", "fifo", "weighted_fair"),
        "simkit.story/1": ("explain", "people-0", "--scenario", "tiny"),
        "simkit.files/1": ("init", "scenario", "mine"),
    }
    found = {expected: simkit(*arguments, "--json") for expected, arguments in commands.items()}
    assert {expected: (ended.code, ended.document["schema"]) for expected, ended in found.items()} == {
        expected: (0, expected) for expected in commands
    }
    for arguments in (("compare", "tiny", "--jobs", "1"), importing, ("trace", "info", "t.jsonl"), ("trace", "convert", "t.jsonl", "-o", "t.jsonl.gz"), ("init", "policy", "own")):  # fmt: skip
        assert simkit(*arguments, "--json").document["schema"].startswith("simkit.")
    assert simkit("schema", "trace", "--json").document["title"] == "simkit trace"
    # quiet: with --json nothing but problems is said
    assert {ended.err for ended in found.values()} == {""}


@pytest.mark.parametrize(
    ("arguments", "kind", "code"),
    [
        (["run", "nowhere"], "usage", 2),
        (["run", "--nonsense"], "usage", 2),
        (["run", "tiny", *QUICK, "--set", "faults=[{at: 0s, what: {pool: gpu, starts: nothing}}]"], "deadlock", 4),
    ],
)
def test_an_error_is_one_document_too(simkit: Simkit, tiny: Path, arguments: list[str], kind: str, code: int) -> None:
    ended = simkit(*arguments, "--json")
    assert ended.code == code
    assert (ended.document["schema"], ended.document["kind"], ended.document["exit_code"]) == (
        "simkit.error/1",
        kind,
        code,
    )
    assert ended.document["problems"][0]["message"]
    assert ended.err  # for people, as ever


def test_problems_of_documents_keep_their_places_in_json(simkit: Simkit, tiny: Path) -> None:
    tiny.write_text(TINY.replace("slots: 2", "slotz: 2"))
    (_, problem) = simkit("run", "tiny.yaml", "--json").document["problems"]
    assert (problem["path"], problem["line"], problem["column"]) == ("tiny.yaml", 5, 26)
    assert problem["dotted"] == "platform.pools.gpu.slotz"


def test_nothing_is_coloured_or_animated_without_a_terminal(tiny: Path) -> None:
    done = subprocess.run(
        [*SIMKIT, "check", "tiny", "--jobs", "1", "--update"], capture_output=True, text=True, check=True
    )
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stderr.splitlines() == ["baseline written: reports/baseline/tiny.json"]


def test_a_reader_that_leaves_changes_no_exit_code(tiny: Path) -> None:
    # as in `simkit check ... | head -0`
    for extra, expected in (([], 0), (["--set", "expect.0.at_most=0.001"], 1)):
        process = subprocess.Popen(
            [*SIMKIT, "check", "tiny", "--jobs", "1", "--quiet", *extra],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        process.stderr.close()
        assert (process.wait(), said) == (expected, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_told_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*SIMKIT, "policy", "list"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "simkit: cannot write the result: No space left on device\n")


def test_signs_that_a_terminal_cannot_show_end_nothing(tiny: Path) -> None:
    tiny.write_text(TINY.replace("people", "Üser"))
    done = subprocess.run(
        [*SIMKIT, "trace", "synth", "tiny", "-o", "t.jsonl", "--json"],
        capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert "Üser" in json.loads(done.stdout)["by_tenant"]


# --- files -------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_found_out_before_the_work(
    simkit: Simkit, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("taken").write_text("a file")
    monkeypatch.setattr("simkit.api.compare", lambda *_, **__: pytest.fail("it ran"))
    ended = simkit("run", "tiny", "--out", "taken/here")
    assert ended.code == 2
    assert "cannot write to the folder taken/here" in ended.err


def test_a_disk_that_fills_up_leaves_the_result_on_stdout(
    simkit: Simkit, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise UsageError("cannot write reports/tiny/report.html: No space left on device")

    monkeypatch.setattr(running, "_write_report", full)
    ended = simkit("run", "tiny", "--jobs", "1", "--json")
    assert ended.code == 2
    assert ended.document["replications"] == 3
    assert ended.document["report"] is None
    assert ended.err == "simkit: cannot write reports/tiny/report.html: No space left on device\n"


def test_a_run_leaves_its_report_and_nothing_half_written(simkit: Simkit, tiny: Path) -> None:
    ended = simkit("run", "tiny", "--jobs", "1")
    assert ended.code == 0
    assert ended.err == "report: reports/tiny/report.html\n"
    names = {path.name for path in Path("reports/tiny").iterdir()}
    assert names >= {"report.html", "report.md", "summary.json", "summary.csv"}
    assert not [name for name in names if name.startswith(".")]
    before = {name: (Path("reports/tiny") / name).read_bytes() for name in names}
    again = simkit("run", "tiny", "--jobs", "2")  # replaced, and the same to the byte
    assert again.out == ended.out
    assert {name: (Path("reports/tiny") / name).read_bytes() for name in names} == before
    assert "simkit run tiny --seed 3 --replications 3" in (Path("reports/tiny") / "report.md").read_text()


@pytest.mark.parametrize(("name", "folder"), [("../x", "_x"), ("a/b", "a_b"), ("..", "scenario"), ("mm1", "mm1")])
def test_a_scenarios_name_is_one_folder_name(name: str, folder: str) -> None:
    assert running.file_name(name) == folder


def test_policies_that_are_not_run_take_their_expectations_with_them(simkit: Simkit, tiny: Path) -> None:
    ended = simkit("run", "tiny", *QUICK, "--policy", "fifo")
    assert ended.code == 0  # and not 1: the control has nothing left that it must fail
    assert "3 expectations and controls are about policies that are not run: left out" in ended.err


def test_the_same_seed_says_the_same_and_another_seed_something_else(simkit: Simkit, tiny: Path) -> None:
    first, again, other = (simkit("compare", "tiny", "--jobs", "1", "--json", "--seed", seed).out for seed in "445")
    assert first == again
    assert first != other


def test_precision_adds_replications_and_says_when_it_gives_up(simkit: Simkit, tiny: Path) -> None:
    reached = simkit("compare", "tiny", "--jobs", "1", "--json", "--precision", "20%")
    assert reached.document["replications"] > 3
    given_up = simkit("compare", "tiny", "--jobs", "1", "-n", "2", "--json", "--precision", "0.01%", "--strict")
    assert given_up.document["replications"] == 20  # ten times what was asked for
    assert given_up.code == 4


# --- the gate ----------------------------------------------------------------------------------------------


def test_the_gate_from_nothing_to_a_regression(simkit: Simkit, tiny: Path) -> None:
    gate = ("check", "tiny", "--jobs", "1")
    first = simkit(*gate)
    assert (first.code, first.out.splitlines()[0]) == (0, "tiny: passed")
    assert "there is no baseline reports/baseline/tiny.json: store one with `simkit check tiny --update`" in first.err
    assert "no metric is compared: there is no baseline reports/baseline/tiny.json" in first.out  # also with --quiet
    required = simkit(*gate, "--require-baseline")
    assert (required.code, required.out.splitlines()[0]) == (4, "tiny: could not be judged")
    assert simkit(*gate, "--update").code == 0
    same = simkit(*gate, "--require-baseline", "--junit", "gate.xml")
    assert same.code == 0
    assert same.out.splitlines()[-1].endswith("identical")
    assert Path("gate.xml").read_text().count("<testcase") > 10
    # strict_priority quietly becomes last come, first served: the same scenario, another policy
    Path("strict_priority.yaml").write_text("name: strict_priority\nversion: 2\norder: lifo\n")
    tiny.write_text(TINY.replace("strict_priority]", "strict_priority.yaml]"))
    changed = simkit(*gate, "--json")
    assert "changed since the baseline: strict_priority" in changed.document["notes"]
    # and another scenario is another matter
    other = simkit(*gate, "--set", "platform.pools.gpu.slots=3")
    assert other.code == 4
    assert "not comparable: the baseline is of another content of the scenario" in other.out


def test_a_gate_that_cannot_be_judged_still_writes_its_junit(simkit: Simkit, tiny: Path) -> None:
    stall = "faults=[{at: 0s, what: {pool: gpu, starts: nothing}}]"
    ended = simkit("check", "tiny", "--jobs", "1", "--set", stall, "--junit", "gate.xml")
    assert ended.code == 4
    assert 'errors="1"' in Path("gate.xml").read_text()


def test_a_baseline_that_is_none_is_refused_but_can_be_replaced(simkit: Simkit, tiny: Path) -> None:
    Path("b.json").write_text("{}")
    assert simkit("check", "tiny", "--jobs", "1", "--baseline", "b.json").code == 2
    assert simkit("check", "tiny", "--jobs", "1", "--baseline", "b.json", "--update").code == 0
    assert json.loads(Path("b.json").read_text())["schema"] == "simkit.baseline/1"


# --- documents and traces ----------------------------------------------------------------------------------


def test_demand_can_be_written_described_converted_and_replayed(simkit: Simkit, tiny: Path) -> None:
    made = simkit("trace", "synth", "tiny", "-o", "t.jsonl")
    assert made.out.startswith("t.jsonl: 80 runs, 80 tasks, digest ")
    assert simkit("trace", "convert", "t.jsonl", "-o", "t.jsonl.gz").out.split()[-1] == made.out.split()[-1]
    facts = simkit("trace", "info", "t.jsonl.gz").out
    assert "runs               80" in facts
    assert "by_class           background 60, interactive 20" in facts
    direct = simkit("compare", "tiny", "--jobs", "1", "-n", "1", "--json").document
    replayed = simkit("compare", "tiny", "--jobs", "1", "-n", "1", "--json", "--trace", "t.jsonl.gz").document
    assert replayed["digests"]["traces"] == direct["digests"]["traces"]
    assert replayed["policies"] == direct["policies"]


def test_validate_tells_good_from_bad(simkit: Simkit, tiny: Path) -> None:
    Path("bad.yaml").write_text("name: bad\norder: fifi\n")
    ended = simkit("validate", "tiny.yaml", "bad.yaml", "gone.yaml", ROOT / "policies/fifo.yaml")
    assert ended.code == 2
    assert ended.out.splitlines() == ["tiny.yaml: a valid scenario", f"{ROOT / 'policies/fifo.yaml'}: a valid policy"]
    assert ended.err.splitlines() == [
        "bad.yaml:2:8: there is no order mechanism 'fifi', did you mean 'fifo'? [order]",
        "gone.yaml: there is no such file",
    ]


def test_what_init_writes_runs_as_it_is(simkit: Simkit, folder: Path) -> None:
    assert simkit("init", "scenario", "mine").out == "mine.yaml\nscenario.schema.json\n"
    assert simkit("validate", "mine.yaml").code == 0
    assert simkit("init", "policy", "patient_first").out == "patient_first.yaml\npatient_first.py\n"
    refused = simkit("validate", "patient_first.yaml")
    assert refused.code == 2
    assert "--allow-code" in refused.err
    own = ("--policy", "fifo", "--policy", "patient_first.yaml", "--allow-code")
    ended = simkit("run", "mine.yaml", *own, *QUICK, "-n", "2", "--json")
    assert ended.code == 0
    assert list(ended.document["policies"]) == ["fifo", "patient_first"]


def test_policies_can_be_listed_shown_and_compared(simkit: Simkit) -> None:
    listed = simkit("policy", "list").out
    assert "weighted_fair" in listed
    assert "\nadmission\n" in listed
    assert "digest " in simkit("policy", "show", "fifo").out
    assert simkit("policy", "diff", "fifo", "fifo").out == "no difference\n"
    assert "+ order: strict_priority" in simkit("policy", "diff", "fifo", "strict_priority").out


def test_a_story_can_be_told_from_a_scenario(simkit: Simkit, tiny: Path) -> None:
    ended = simkit("explain", "people-0", "--scenario", "tiny", "--policy", "fifo")
    assert ended.code == 0
    assert "people-0" in ended.out
    missing = simkit("explain", "nobody", "--scenario", "tiny")
    assert missing.code == 2


def test_a_story_from_a_stored_log_is_the_same_story(simkit: Simkit, tiny: Path) -> None:
    from simkit import api, log_io

    log_io.write(api.run(tiny, "fifo", replication=1).log, "log.jsonl.gz")
    stored = simkit("explain", "people-0", "--log", "log.jsonl.gz")
    again = simkit("explain", "people-0", "--scenario", "tiny", "--policy", "fifo", "--replication", "1")
    assert (stored.code, stored.out) == (0, again.out)
    assert simkit("explain", "people-0", "--log", "gone.jsonl").code == 2


def test_verbose_says_what_runs(simkit: Simkit, tiny: Path) -> None:
    said = simkit("run", "tiny", *QUICK, "--verbose").err.splitlines()[0]
    assert "tiny (" in said
    assert "seed 3, 3 replications in 1 processes: fifo v1 (" in said


def test_the_version_is_printed(simkit: Simkit) -> None:
    import simkit as package

    assert simkit("--version").out == f"simkit {package.__version__}\n"


def test_help_names_every_command(simkit: Simkit) -> None:
    out = simkit("--help").out
    for command in ("run", "compare", "check", "explain", "validate", "schema", "trace", "policy", "init"):
        assert f"│ {command} " in out


def test_the_package_runs_as_a_module_and_as_a_script(folder: Path) -> None:
    script = shutil.which("simkit", path=str(Path(sys.executable).parent))
    assert script is not None
    for command in ([sys.executable, "-m", "simkit"], [script]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("simkit ")
