"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ScenarioArg = Annotated[str, typer.Argument(help="A scenario: a file, or a name from the library.", metavar="SCENARIO")]
PolicyOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", "-p", help="Only these policies (repeat), in this order: names or files.", metavar="POLICY"
    ),
]
SeedOpt = Annotated[int | None, typer.Option("--seed", help="Root seed instead of the scenario's.", min=0)]
ReplicationsOpt = Annotated[int | None, typer.Option("--replications", "-n", help="How many replications.", min=1)]
SetOpt = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change the scenario: platform.pools.gpu.slots=4 (repeat).", metavar="KEY=VALUE"),
]
TraceOpt = Annotated[
    str | None, typer.Option("--trace", help="Replay this recorded trace instead of the workload.", metavar="FILE")
]
OutOpt = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder of the report (default: reports/<scenario>).", metavar="DIR")
]
JsonOpt = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
QuietOpt = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no hints.")]
VerboseOpt = Annotated[bool, typer.Option("--verbose", help="Say more on stderr; show the traceback of a defect.")]
StrictOpt = Annotated[
    bool,
    typer.Option("--strict", help="Check every law on every log; expectations must hold for the whole interval."),
]
JobsOpt = Annotated[int | None, typer.Option("--jobs", "-j", help="Processes (default: one per core).", min=1)]
CodeOpt = Annotated[bool, typer.Option("--allow-code", help="Load Python files that documents name.")]
PrecisionOpt = Annotated[
    str | None,
    typer.Option("--precision", help="Add replications until the primary metric is this precise.", metavar="5%"),
]
