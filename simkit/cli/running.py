"""Commands that simulate: run, compare, explain."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli import shell
from simkit.cli.options import (
    CodeOpt,
    JobsOpt,
    JsonOpt,
    OutOpt,
    PolicyOpt,
    PrecisionOpt,
    QuietOpt,
    ReplicationsOpt,
    ScenarioArg,
    SeedOpt,
    SetOpt,
    StrictOpt,
    TraceOpt,
    VerboseOpt,
)
from simkit.model import UsageError

if TYPE_CHECKING:
    from simkit.compare import Comparison
    from simkit.scenario import Scenario
    from simkit.sweep.replicate import Replication


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
    verbose: VerboseOpt = False,
    strict: StrictOpt = False,
    allow_code: CodeOpt = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no files.")] = False,
) -> None:
    """Run a scenario's policies on the same demand, compare them, write the report, check what is expected."""
    quiet = quiet or json_
    loaded = load(scenario, set_, trace, policy, allow_code=allow_code, quiet=quiet)
    plan = Plan(loaded, seed, replications, jobs, precision, strict, quiet, verbose)
    folder = None if no_report else writable_folder(out or Path("reports") / file_name(loaded.name))
    try:
        comparison = plan.compared()
    except Partial as stop:
        raise _kept(stop, folder, as_json=json_) from stop
    comparison.details["command"] = _command(scenario, comparison, policy, set_, trace, allow_code=allow_code)
    trouble = None
    if folder is not None:
        try:
            comparison.details["report"] = str(_write_report(comparison, folder))
        except UsageError as error:
            trouble = error  # the result is shown all the same
    show(comparison, as_json=json_)
    if trouble is not None:
        raise trouble
    if folder is not None:
        shell.say(f"report: {comparison.details['report']}", quiet=quiet)
    raise typer.Exit(verdict_code(comparison, strict=strict))


def compare(
    scenario: ScenarioArg,
    policy: PolicyOpt = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="The policy that the others are compared with.", metavar="POLICY")
    ] = None,
    seed: SeedOpt = None,
    replications: ReplicationsOpt = None,
    set_: SetOpt = None,
    trace: TraceOpt = None,
    jobs: JobsOpt = None,
    precision: PrecisionOpt = None,
    json_: JsonOpt = False,
    quiet: QuietOpt = False,
    verbose: VerboseOpt = False,
    strict: StrictOpt = False,
    allow_code: CodeOpt = False,
) -> None:
    """Compare policies without writing files or judging expectations: every difference with its interval and verdict."""
    quiet = quiet or json_
    loaded = replace(load(scenario, set_, trace, policy, allow_code=allow_code, quiet=True), expect=(), control=())
    if baseline is not None:
        loaded = replace(loaded, baseline=loaded.policy(baseline).name)
    plan = Plan(loaded, seed, replications, jobs, precision, strict, quiet, verbose)
    try:
        comparison = plan.compared()
    except Partial as stop:
        raise _kept(stop, None, as_json=json_) from stop
    show(comparison, as_json=json_, differences=True)
    raise typer.Exit(verdict_code(comparison, strict=strict))


def explain(
    run_id: Annotated[str, typer.Argument(help="The run's id.", metavar="RUN_ID")],
    scenario: Annotated[
        str | None, typer.Option("--scenario", "-s", help="Simulate this scenario ...", metavar="SCENARIO")
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", "-p", help="... under this policy (default: its last).", metavar="POLICY")
    ] = None,
    replication: Annotated[int, typer.Option("--replication", help="... in this replication.", min=0)] = 0,
    log: Annotated[Path | None, typer.Option("--log", help="Or read this log file.", metavar="FILE")] = None,
    seed: SeedOpt = None,
    set_: SetOpt = None,
    trace: TraceOpt = None,
    json_: JsonOpt = False,
    allow_code: CodeOpt = False,
    verbose: VerboseOpt = False,
) -> None:
    """Tell the story of one run: what it waited for, what went wrong, why it ended as it did."""
    del verbose  # read at the boundary, where defects are told
    if (scenario is None) == (log is None):
        raise UsageError("explain: give exactly one of --scenario and --log")
    if log is not None:
        from simkit.log_io import read

        found = read(log)
    else:
        from simkit import api

        assert scenario is not None
        loaded = load(scenario, set_, trace, None, allow_code=allow_code, quiet=True)
        found = api.run(loaded, policy, seed, replication=replication, allow_code=allow_code).log
    from simkit.diagnose import explain as story_of

    story = story_of(found, run_id)
    if json_:
        names = ("scenario", "policy", "seed", "replication")
        shell.emit_json(
            "story", {"run_id": run_id, **{name: found.header.get(name) for name in names}, "story": story.split("\n")}
        )
    else:
        shell.emit(story.rstrip("\n") + "\n")


def _command(
    scenario: str,
    comparison: Comparison,
    policies: list[str] | None,
    overrides: list[str] | None,
    trace: str | None,
    *,
    allow_code: bool,
) -> str:
    """What gives these numbers again: the options that change them, and no others (so that reports do not differ by --jobs or --out)."""
    import shlex

    words = ["simkit", "run", scenario, "--seed", str(comparison.seed), "--replications", str(comparison.replications)]
    words += [word for name in policies or () for word in ("--policy", name)]
    words += [word for change in overrides or () for word in ("--set", change)]
    words += ["--trace", trace] if trace is not None else []
    return shlex.join([*words, *(["--allow-code"] if allow_code else [])])


# --- what the commands share -------------------------------------------------------------------------------


def load(
    scenario: str,
    overrides: list[str] | None,
    trace: str | None,
    policies: list[str] | None,
    *,
    allow_code: bool,
    quiet: bool,
) -> Scenario:
    """The scenario as the command line means it."""
    from simkit import api
    from simkit.scenario import load_scenario

    loaded = load_scenario(scenario, overrides=overrides or (), trace=trace, allow_code=allow_code)
    if not policies:
        return loaded
    narrowed = api.choose(loaded, policies, allow_code=allow_code)
    left_out = len(loaded.expect) - len(narrowed.expect) + len(loaded.control) - len(narrowed.control)
    if left_out:
        shell.say(f"{left_out} expectations and controls are about policies that are not run: left out", quiet=quiet)
    return narrowed


class Partial(Exception):
    """The work stopped early; `finished` is what there is."""

    def __init__(self, reason: str, code: int, finished: list[Replication], plan: Plan) -> None:
        super().__init__(reason)
        self.reason, self.code, self.finished, self.plan = reason, code, finished, plan


@dataclass(frozen=True)
class Plan:
    """A comparison to be made, with the options that say how."""

    scenario: Scenario
    seed: int | None
    replications: int | None
    jobs: int | None
    precision: str | None
    strict: bool
    quiet: bool
    verbose: bool = False

    @property
    def wanted(self) -> int:
        return self.scenario.replications if self.replications is None else self.replications

    def compared(self) -> Comparison:
        """Run it. Raises Partial when it was stopped before the end."""
        from simkit import api
        from simkit.sweep.replicate import WorkLost, default_jobs

        scenario = self.scenario
        self._say_what_runs(self.jobs or default_jobs())
        finished: list[Replication] = []
        try:
            with progress(f"{scenario.name}: simulations", quiet=self.quiet) as bar:
                comparison = api.compare(
                    scenario, replications=self.wanted, seed=self.seed, jobs=self.jobs, precision=fraction(self.precision),
                    strict=self.strict, progress=bar, finished=finished,
                )  # fmt: skip
        except KeyboardInterrupt:
            raise Partial("interrupted", shell.INTERRUPTED, finished, self) from None
        except WorkLost as error:
            raise Partial(str(error), shell.UNJUDGED, finished, self) from error
        reached = comparison.details.get("precision", {"reached": True})["reached"]
        if not reached:
            shell.say(
                f"precision {self.precision} is not reached after {comparison.replications} replications",
                quiet=self.quiet,
            )
        return comparison

    def _say_what_runs(self, jobs: int) -> None:
        if self.verbose:
            scenario, seed = self.scenario, self.scenario.seed if self.seed is None else self.seed
            names = ", ".join(f"{policy.name} v{policy.version} ({policy.digest[:8]})" for policy in scenario.policies)
            shell.say(
                f"{scenario.name} ({scenario.digest[:8]}), seed {seed}, {self.wanted} replications in {jobs} processes: {names}"
            )

    def part(self, finished: list[Replication]) -> Comparison | None:
        """The comparison of what was finished, if anything."""
        from simkit import api

        return api.assemble(self.scenario, finished, self.seed, strict=self.strict) if finished else None


def _kept(stop: Partial, folder: Path | None, *, as_json: bool) -> shell.Stopped:
    """Show what is finished and keep it; the message says both."""
    done = f"{len(stop.finished)} of {stop.plan.wanted} replications are finished"
    comparison = stop.plan.part(stop.finished)
    if comparison is None:
        return shell.Stopped(f"{stop.reason}: {done}, nothing is kept", stop.code)
    comparison.details["stopped"] = {"reason": stop.reason, "finished": len(stop.finished), "wanted": stop.plan.wanted}
    kept = "shown above"
    if folder is not None:
        import json

        from simkit.files import write_text

        path = folder / "interrupted.json"
        write_text(path, json.dumps(_document(comparison), indent=1, allow_nan=False) + "\n")
        kept = f"kept in {path}"
    show(comparison, as_json=as_json)
    return shell.Stopped(f"{stop.reason}: {done}, {kept}", stop.code)


def _document(comparison: Comparison) -> dict[str, object]:
    stopped = comparison.details.get("stopped")
    return {**comparison.to_json(), **({"stopped": stopped} if stopped else {})}


def show(comparison: Comparison, *, as_json: bool, differences: bool = False) -> None:
    """The comparison on stdout."""
    if as_json:
        shell.emit_json("results", _document(comparison))
        return
    from simkit.report import terminal

    with shell.tolerant_stdout():
        if differences:
            terminal.show_differences(comparison)
        else:
            terminal.show(comparison)


def _write_report(comparison: Comparison, folder: Path) -> Path:
    from simkit.report import write_report

    return Path(write_report(comparison, folder))


def verdict_code(comparison: Comparison, *, strict: bool) -> int:
    """0, 1 when an expectation failed; with `strict` 4 when one had no interval or the precision was not reached."""
    if any(not item.ok for item in comparison.expectations):
        return shell.FAILED
    unsure = any(item.ci95 is None and item.kind == "expectation" for item in comparison.expectations)
    if strict and (unsure or not comparison.details.get("precision", {"reached": True})["reached"]):
        return shell.UNJUDGED
    return shell.PASSED


def fraction(text: str | None) -> float | None:
    """``5%`` as 0.05. Raises UsageError."""
    from simkit.units import parse_fraction

    try:
        found = None if text is None else parse_fraction(text)
    except ValueError as error:
        raise UsageError(f"--precision: {error}") from None
    if found == 0:
        raise UsageError("--precision: found 0, expected more")
    return found


def file_name(name: str) -> str:
    """A scenario's name as one folder name: names from files do not escape."""
    kept = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in name)
    return kept.lstrip(".") or "scenario"


def writable_folder(folder: Path) -> Path:
    """`folder`, made if need be; found out before the work and not after it. Raises UsageError when it cannot be written to."""
    import tempfile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"cannot write to the folder {folder}: {error.strerror or error}") from None
    return folder


@contextmanager
def progress(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr where there is a terminal, nothing elsewhere."""
    import sys

    if quiet or not sys.stderr.isatty() or os.environ.get("CI"):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        number = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(number, completed=done, total=total)
