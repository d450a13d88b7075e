"""The command line: each command parses, calls one function and prints. The only place that exits.

stdout is the result, stderr is talk. Exit codes: 0 every gate passed, 1 one failed, 2 wrong usage or input, 3 a defect (or a broken law),
4 could not judge, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simkit.model import Deadlock, LawViolation, UsageError

if TYPE_CHECKING:
    from simkit.compare import Comparison
    from simkit.scenario import Scenario
    from simkit.sweep.replicate import Replication

PASSED, FAILED, USAGE, DEFECT, UNJUDGED, INTERRUPTED = 0, 1, 2, 3, 4, 130

app = typer.Typer(
    name="simkit", help="Decide how to schedule an AI-agent platform.", no_args_is_help=True, add_completion=False
)
trace_app = typer.Typer(help="Recorded and synthetic demand.", no_args_is_help=True)
policy_app = typer.Typer(help="Policies and the mechanisms they are made of.", no_args_is_help=True)
init_app = typer.Typer(help="Start a document or a mechanism of one's own.", no_args_is_help=True)
app.add_typer(trace_app, name="trace")
app.add_typer(policy_app, name="policy")
app.add_typer(init_app, name="init")

ScenarioArg = Annotated[str, typer.Argument(help="A scenario: a file, or a name from the library.", metavar="SCENARIO")]
PolicyOpt = Annotated[
    list[str] | None, typer.Option("--policy", "-p", help="Only these policies (repeat), in this order.")
]
SeedOpt = Annotated[int | None, typer.Option(help="Root seed instead of the scenario's.", min=0)]
ReplicationsOpt = Annotated[int | None, typer.Option("--replications", "-n", help="How many replications.", min=1)]
SetOpt = Annotated[
    list[str] | None, typer.Option("--set", help="Change the scenario: platform.pools.gpu.slots=4 (repeat).")
]
TraceOpt = Annotated[str | None, typer.Option("--trace", help="Replay this recorded trace instead of the workload.")]
OutOpt = Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the report (default: reports/<scenario>).")]
JsonOpt = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
QuietOpt = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no hints.")]
StrictOpt = Annotated[
    bool, typer.Option("--strict", help="Check every law on every log; intervals must meet expectations whole.")
]
JobsOpt = Annotated[int | None, typer.Option("--jobs", "-j", help="Processes (default: one per core).", min=1)]
CodeOpt = Annotated[bool, typer.Option("--allow-code", help="Load Python files that documents name.")]
PrecisionOpt = Annotated[
    str | None, typer.Option(help="Add replications until the primary metric is this precise, e.g. 5%.")
]


def main() -> None:
    """Entry point: run a command, turn what went wrong into one message and an exit code."""
    try:
        app(standalone_mode=True)
    except UsageError as error:
        _leave(str(error), USAGE)
    except LawViolation as error:
        _leave(f"a law of the model is broken, please report this with the command line: {error}", DEFECT)
    except Deadlock as error:
        _leave(str(error), UNJUDGED)
    except KeyboardInterrupt:
        _leave("interrupted", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PASSED)
    except Exception as error:  # noqa: BLE001 - the boundary: an uncaught exception would exit with 1 and look like a failed gate
        if os.environ.get("SIMKIT_DEBUG"):
            traceback.print_exc()
        _leave(f"internal error: {type(error).__name__}: {error} (set SIMKIT_DEBUG=1 for the traceback)", DEFECT)


def _leave(message: str, code: int) -> None:
    print(f"simkit: {message}" if "\n" not in message else message, file=sys.stderr)
    sys.exit(code)


def _say(message: str, *, quiet: bool = False) -> None:
    if not quiet:
        print(message, file=sys.stderr)


def _print_json(value: Any) -> None:
    from simkit.compare import clean

    print(json.dumps(clean(value), indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False))


@contextmanager
def _progress(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr where there is a terminal, nothing elsewhere."""
    if quiet or not sys.stderr.isatty() or os.environ.get("CI"):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        number = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(number, completed=done, total=total)


def _load(
    scenario: str, overrides: list[str] | None, trace: str | None, policies: list[str] | None, *, allow_code: bool
) -> Scenario:
    from simkit.api import pick
    from simkit.scenario import load_scenario

    loaded = load_scenario(scenario, overrides=overrides or (), trace=trace, allow_code=allow_code)
    if policies:
        loaded = loaded.with_policies([pick(loaded, name, allow_code=allow_code) for name in policies])
    return loaded


def _compare(
    scenario: Scenario,
    *,
    seed: int | None,
    replications: int | None,
    jobs: int | None,
    precision: str | None,
    strict: bool,
    quiet: bool,
) -> Comparison:
    """The comparison; on Ctrl-C what is finished is shown before leaving."""
    from simkit import api
    from simkit.units import parse_fraction

    finished: list[Replication] = []
    try:
        wanted = None if precision is None else parse_fraction(precision)
    except ValueError as error:
        raise UsageError(f"--precision: {error}") from None
    try:
        with _progress(f"{scenario.name}: replications", quiet=quiet) as progress:
            return api.compare(
                scenario,
                replications=replications,
                seed=seed,
                jobs=jobs,
                precision=wanted,
                strict=strict,
                progress=progress,
                finished=finished,
            )
    except KeyboardInterrupt:
        total = replications or scenario.replications
        if finished:
            _show(api.assemble(scenario, sorted(finished, key=lambda item: item.number), seed, strict=strict))
        _leave(
            f"interrupted: {len(finished)} of {total} replications are finished"
            + (" and shown above" if finished else ""),
            INTERRUPTED,
        )
        raise


def _show(comparison: Comparison) -> None:
    from simkit.report.terminal import show

    show(comparison)


@app.command()
def run(
    scenario: ScenarioArg,
    policy: PolicyOpt = None,
    seed: SeedOpt = None,
    replications: ReplicationsOpt = None,
    set_: SetOpt = None,
    trace: TraceOpt = None,
    out: OutOpt = None,
    jobs: JobsOpt = None,
    precision: PrecisionOpt = None,
    json_: JsonOpt = False,
    quiet: QuietOpt = False,
    strict: StrictOpt = False,
    allow_code: CodeOpt = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no files.")] = False,
) -> None:
    """Run a scenario's policies on the same demand, compare them, write the report, check what is expected."""
    loaded = _load(scenario, set_, trace, policy, allow_code=allow_code)
    comparison = _compare(
        loaded,
        seed=seed,
        replications=replications,
        jobs=jobs,
        precision=precision,
        strict=strict,
        quiet=quiet or json_,
    )
    if not no_report:
        from simkit.report import write_report

        folder = out if out is not None else Path("reports") / _file_name(loaded.name)
        comparison.details["report"] = str(write_report(comparison, folder))
    if json_:
        _print_json(comparison.to_json())
    else:
        _show(comparison)
        if not no_report:
            _say(f"report: {comparison.details['report']}", quiet=quiet)
    raise typer.Exit(_verdict_code(comparison, strict=strict))


def _file_name(name: str) -> str:
    """A scenario's name as one folder name: paths from files do not escape."""
    kept = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in name)
    return kept.lstrip(".") or "scenario"


def _verdict_code(comparison: Comparison, *, strict: bool) -> int:
    if any(not item.ok for item in comparison.expectations):
        return FAILED
    if strict and any(item.ci95 is None and item.kind == "expectation" for item in comparison.expectations):
        return UNJUDGED
    return PASSED


@app.command()
def compare(
    scenario: ScenarioArg,
    policy: PolicyOpt = None,
    baseline: Annotated[str | None, typer.Option(help="The policy that the others are compared with.")] = None,
    seed: SeedOpt = None,
    replications: ReplicationsOpt = None,
    set_: SetOpt = None,
    trace: TraceOpt = None,
    jobs: JobsOpt = None,
    precision: PrecisionOpt = None,
    json_: JsonOpt = False,
    quiet: QuietOpt = False,
    strict: StrictOpt = False,
    allow_code: CodeOpt = False,
) -> None:
    """Compare policies without writing files or judging expectations: every difference with its interval and verdict."""
    from dataclasses import replace

    from simkit.report.terminal import show_differences

    loaded = replace(_load(scenario, set_, trace, policy, allow_code=allow_code), expect=(), control=())
    if baseline is not None:
        loaded = replace(loaded, baseline=loaded.policy(baseline).name)
    comparison = _compare(
        loaded,
        seed=seed,
        replications=replications,
        jobs=jobs,
        precision=precision,
        strict=strict,
        quiet=quiet or json_,
    )
    if json_:
        _print_json(comparison.to_json())
    else:
        show_differences(comparison)


@app.command()
def check(
    scenario: ScenarioArg,
    baseline: Annotated[Path | None, typer.Option(help="Stored results to compare with.")] = None,
    update: Annotated[bool, typer.Option("--update", help="Store these results as the baseline.")] = False,
    require_baseline: Annotated[
        bool, typer.Option("--require-baseline", help="Exit with 4 when there is none.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write the result as JUnit XML.")] = None,
    policy: PolicyOpt = None,
    seed: SeedOpt = None,
    replications: ReplicationsOpt = None,
    jobs: JobsOpt = None,
    json_: JsonOpt = False,
    quiet: QuietOpt = False,
    strict: StrictOpt = False,
    allow_code: CodeOpt = False,
) -> None:
    """Gate a change: the scenario's expectations and controls, and every metric against a stored baseline."""
    from simkit import gate_report
    from simkit.check import NotComparable, gate, read_baseline, write_baseline

    loaded = _load(scenario, None, None, policy, allow_code=allow_code)
    path = baseline or Path("reports/baseline") / f"{_file_name(loaded.name)}.json"
    stored = None if update or not path.is_file() else read_baseline(path)
    comparison = _compare(
        loaded, seed=seed, replications=replications, jobs=jobs, precision=None, strict=strict, quiet=quiet or json_
    )
    lines, note = [], ""
    try:
        lines = gate(comparison, stored) if stored is not None else []
    except NotComparable as error:
        note = str(error)
    if update:
        write_baseline(comparison, path)
        _say(f"baseline written: {path}", quiet=quiet)
    elif stored is None:
        _say(f"there is no baseline {path}: store one with --update", quiet=quiet)
    result = gate_report.GateResult(comparison, lines, note, str(path), missing=stored is None and not update)
    if junit is not None:
        gate_report.write_junit(result, junit, loaded.path)
    gate_report.append_step_summary(result)
    if json_:
        _print_json(gate_report.as_json(result))
    else:
        print(gate_report.as_text(result), end="")
    raise typer.Exit(gate_report.exit_code(result, strict=strict, require_baseline=require_baseline))


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="Scenario, policy and trace files.", metavar="FILE...")],
    json_: JsonOpt = False,
    allow_code: CodeOpt = False,
) -> None:
    """Check documents without running them."""
    problems: dict[str, list[str]] = {}
    for path in files:
        try:
            kind = _validate_one(path, allow_code=allow_code)
            problems[str(path)] = []
            if not json_:
                print(f"{path}: a valid {kind}")
        except UsageError as error:
            problems[str(path)] = str(error).split("\n")
            if not json_:
                print(str(error), file=sys.stderr)
    if json_:
        _print_json({"files": {path: {"ok": not found, "problems": found} for path, found in problems.items()}})
    raise typer.Exit(USAGE if any(problems.values()) else PASSED)


def _validate_one(path: Path, *, allow_code: bool) -> str:
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    if path.suffix not in (".yaml", ".yml"):
        from simkit.trace.jsonl import read_any

        read_any(path)
        return "trace"
    from simkit.documents import load

    if "platform" in load(path).data or "workload" in load(path).data:
        from simkit.scenario import load_scenario

        load_scenario(path, allow_code=allow_code)
        return "scenario"
    from simkit.policy import load_policy

    load_policy(path, allow_code=allow_code)
    return "policy"


@app.command()
def schema(kind: Annotated[str, typer.Argument(help="scenario, policy, trace or results.")]) -> None:
    """Print the JSON Schema of a kind of document."""
    from simkit.schema import schema as schema_of

    _print_json(schema_of(kind))


@app.command()
def explain(
    run_id: Annotated[str, typer.Argument(help="The run's id.", metavar="RUN_ID")],
    scenario: Annotated[str | None, typer.Option(help="Simulate this scenario ...")] = None,
    policy: Annotated[str | None, typer.Option(help="... under this policy (default: its last).")] = None,
    replication: Annotated[int, typer.Option(help="... in this replication.", min=0)] = 0,
    log: Annotated[Path | None, typer.Option(help="Or read this log file.")] = None,
    seed: SeedOpt = None,
    json_: JsonOpt = False,
    allow_code: CodeOpt = False,
) -> None:
    """Tell the story of one run: what it waited for, what went wrong, why it ended as it did."""
    from simkit.diagnose import explain as explain_run

    if (scenario is None) == (log is None):
        raise UsageError("explain: give exactly one of --scenario and --log")
    if log is not None:
        from simkit.log_io import read

        found = read(log)
    else:
        from simkit.api import run as run_one

        assert scenario is not None
        found = run_one(scenario, policy, seed, replication=replication, allow_code=allow_code).log
    story = explain_run(found, run_id)
    if json_:
        _print_json({"run_id": run_id, "policy": found.header["policy"], "story": story.split("\n")})
    else:
        print(story)


# The subcommands of `trace`, `policy` and `init` register themselves.
from simkit import cli_documents as _documents  # noqa: E402

_documents.register(trace_app, policy_app, init_app, print_json=_print_json, say=_say)
