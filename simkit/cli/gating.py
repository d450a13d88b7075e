"""The gate: simkit check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simkit.cli import running, shell
from simkit.cli.options import (
    CodeOpt,
    JobsOpt,
    JsonOpt,
    PolicyOpt,
    QuietOpt,
    ReplicationsOpt,
    ScenarioArg,
    SeedOpt,
    SetOpt,
    StrictOpt,
    VerboseOpt,
)
from simkit.model import UsageError

if TYPE_CHECKING:
    from simkit.gate_report import GateResult


def check(
    scenario: ScenarioArg,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", help="Stored results (default: reports/baseline/<scenario>.json).", metavar="FILE"),
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Store these results as the baseline.")] = False,
    require_baseline: Annotated[
        bool, typer.Option("--require-baseline", help="Exit with 4 when there is no baseline.")
    ] = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Write the result as JUnit XML.", metavar="FILE")
    ] = None,
    policy: PolicyOpt = None,
    seed: SeedOpt = None,
    replications: ReplicationsOpt = None,
    set_: SetOpt = None,
    jobs: JobsOpt = None,
    json_: JsonOpt = False,
    quiet: QuietOpt = False,
    verbose: VerboseOpt = False,
    strict: StrictOpt = False,
    allow_code: CodeOpt = False,
) -> None:
    """Gate a change: the scenario's expectations and controls, and every metric against a stored baseline."""
    from simkit import gate_report

    quiet = quiet or json_
    loaded = running.load(scenario, set_, None, policy, allow_code=allow_code, quiet=quiet)
    path = baseline or Path("reports/baseline") / f"{running.file_name(loaded.name)}.json"
    plan = running.Plan(loaded, seed, replications, jobs, None, strict, quiet, verbose)
    try:
        result = _gated(plan, path, update=update)
    except Exception as error:
        if junit is not None:
            gate_report.write_junit_error(loaded.name, str(error), junit)
        raise
    if require_baseline and result.missing:
        result = replace(result, not_comparable="there is no baseline, and one is required")
    if junit is not None:
        gate_report.write_junit(result, junit, loaded.path)
    gate_report.append_step_summary(result)
    for line in gate_report.workflow_errors(result, loaded.path):
        shell.say(line)
    if json_:
        shell.emit_json("gate", gate_report.as_json(result))
    else:
        shell.emit(gate_report.as_text(result))
    if update:
        shell.say(f"baseline written: {path}", quiet=quiet)
    elif result.missing:
        shell.say(f"there is no baseline {path}: store one with {_how(scenario, baseline)}", quiet=quiet)
    raise typer.Exit(gate_report.exit_code(result, strict=strict, require_baseline=require_baseline))


def _how(scenario: str, baseline: Path | None) -> str:
    return f"`simkit check {scenario}{'' if baseline is None else f' --baseline {baseline}'} --update`"


def _gated(plan: running.Plan, path: Path, *, update: bool) -> GateResult:
    """Run, judge, and compare with what is stored; with `update` store the result."""
    from simkit.check import NotComparable, gate, write_baseline
    from simkit.gate_report import GateResult

    stored = _stored(path, update=update)
    if update:
        running.writable_folder(path.parent)
    try:
        comparison = plan.compared()
    except running.Partial as stop:
        done = f"{len(stop.finished)} of {plan.wanted} replications are finished"
        raise shell.Stopped(f"{stop.reason}: {done}, nothing is judged", stop.code) from stop
    found, why_not = None, ""
    if stored is not None:
        try:
            found = gate(comparison, plan.scenario, stored)
        except NotComparable as error:
            why_not = str(error)
    if update:
        write_baseline(comparison, plan.scenario, path)
    return GateResult(comparison, found, why_not, str(path), missing=stored is None and not update, updated=update)


def _stored(path: Path, *, update: bool) -> dict[str, Any] | None:
    """The baseline, if there is one; what is about to be replaced need not be readable."""
    from simkit.check import read_baseline

    if not path.exists():
        return None
    try:
        return read_baseline(path)
    except UsageError:
        if update:
            return None
        raise
