"""Commands about demand: simkit trace import, synth, info, convert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simkit.cli import shell
from simkit.cli.options import JsonOpt, QuietOpt, ScenarioArg, SeedOpt, SetOpt
from simkit.model import UsageError

if TYPE_CHECKING:
    from simkit.trace.table import Trace

app = typer.Typer(help="Recorded and synthetic demand.", no_args_is_help=True)

OutArg = Annotated[
    Path, typer.Option("--out", "-o", help="The file to write: .jsonl, .jsonl.gz or .parquet.", metavar="FILE")
]


@app.command("import")
def import_(
    format_: Annotated[str, typer.Argument(help="azure-llm or flat.", metavar="FORMAT")],
    files: Annotated[list[Path], typer.Argument(help="Recorded files; several are merged by time.", metavar="FILE...")],
    out: OutArg,
    map_: Annotated[
        str | None, typer.Option("--map", help="Columns: arrival=TIMESTAMP,tokens_in=ContextTokens,...")
    ] = None,
    preset: Annotated[str | None, typer.Option("--preset", help="A known column map: azure-llm, vtc.")] = None,
    time: Annotated[str, typer.Option("--time", help="Unit of arrivals: s, ms, us, ns or iso.")] = "s",
    service_unit: Annotated[
        str, typer.Option("--service-unit", help="Unit of the service and deadline columns.")
    ] = "s",
    overhead: Annotated[
        str | None, typer.Option("--overhead", help="Token model: time per request, e.g. 20ms.")
    ] = None,
    prefill: Annotated[
        str | None, typer.Option("--prefill", help="Token model: time per token in, e.g. 350us.")
    ] = None,
    decode: Annotated[str | None, typer.Option("--decode", help="Token model: time per token out, e.g. 43ms.")] = None,
    pool: Annotated[str, typer.Option("--pool", help="The pool that the requests queue for.")] = "model",
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Everybody's tenant where no column names one.")
    ] = None,
    class_: Annotated[str, typer.Option("--class", help="Everybody's class where no column names one.")] = "default",
    json_: JsonOpt = False,
    quiet: QuietOpt = False,
) -> None:
    """Turn a recorded file into a trace."""
    model = _token_model(overhead, prefill, decode)
    layout = _layout(format_, map_, preset, time, service_unit)
    from simkit.trace.importers import import_azure_llm, import_flat

    options: dict[str, Any] = {"model": model, "pool": pool, "tenant": tenant, "cls": class_}
    trace = import_azure_llm(files, **options) if layout is None else import_flat(files, layout, **options)
    for what, count in trace.warnings.items():
        shell.say(f"{what}: {count}", quiet=quiet or json_)
    _write(trace, out, as_json=json_)


@app.command()
def synth(
    scenario: ScenarioArg,
    out: OutArg,
    replication: Annotated[int, typer.Option("--replication", help="Which one.", min=0)] = 0,
    seed: SeedOpt = None,
    set_: SetOpt = None,
    json_: JsonOpt = False,
) -> None:
    """Write a scenario's demand as a trace; replaying it gives the same results."""
    from simkit.scenario import load_scenario

    _write(load_scenario(scenario, overrides=set_ or ()).trace(replication, seed), out, as_json=json_)


@app.command()
def info(file: Annotated[Path, typer.Argument(help="A trace file.", metavar="FILE")], json_: JsonOpt = False) -> None:
    """Describe a trace: rates, burstiness, service times, shares."""
    from simkit.trace.describe import describe
    from simkit.trace.jsonl import read_any

    facts = describe(read_any(file))
    if json_:
        shell.emit_json("trace-info", {"file": str(file), **facts})
        return
    lines = []
    for name, value in facts.items():
        text = (
            ", ".join(f"{key} {_short(item)}" for key, item in value.items()) or "-"
            if isinstance(value, dict)
            else _short(value)
        )
        lines.append(f"{name:18} {text}")
    shell.emit("\n".join(lines) + "\n")


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(help="A trace file.", metavar="FILE")], out: OutArg, json_: JsonOpt = False
) -> None:
    """Write a trace in another form, by suffix."""
    from simkit.trace.jsonl import read_any

    _write(read_any(file), out, as_json=json_)


def _write(trace: Trace, out: Path, *, as_json: bool) -> None:
    from simkit.trace.describe import describe
    from simkit.trace.jsonl import write

    write(trace, out)
    if as_json:
        shell.emit_json("trace-info", {"file": str(out), **describe(trace)})
    else:
        shell.emit(f"{out}: {len(trace)} runs, {trace.task_count} tasks, digest {trace.digest()}\n")


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _token_model(overhead: str | None, prefill: str | None, decode: str | None) -> Any:
    from simkit.trace.importers.flat import TokenModel
    from simkit.units import parse_duration

    if overhead is None and prefill is None and decode is None:
        return None
    try:
        parts = [0 if text is None else parse_duration(text) for text in (overhead, prefill, decode)]
    except ValueError as error:
        raise UsageError(f"token model: {error}") from None
    return TokenModel(*parts)


def _layout(format_: str, map_: str | None, preset: str | None, time: str, service_unit: str) -> Any:
    """The column map of a flat file; None for a format that knows its own. Raises UsageError."""
    from simkit.documents import nearest
    from simkit.trace.importers import PRESETS
    from simkit.trace.importers.flat import FlatFormat, parse_map, time_unit

    formats = ("azure-llm", "flat")
    if format_ not in formats:
        raise UsageError(f"there is no format {format_!r}{nearest(format_, formats)} (there are {', '.join(formats)})")
    if format_ == "azure-llm":
        if map_ is not None or preset is not None or (time, service_unit) != ("s", "s"):
            raise UsageError(
                "azure-llm knows its columns and units: --map, --preset, --time and --service-unit go with flat"
            )
        return None
    if (map_ is None) == (preset is None):
        raise UsageError("flat: give exactly one of --map and --preset")
    if map_ is not None:
        return FlatFormat(parse_map(map_), time_unit(time), time_unit(service_unit))
    assert preset is not None
    if preset not in PRESETS:
        raise UsageError(f"there is no preset {preset!r}{nearest(preset, PRESETS)} (there are {', '.join(PRESETS)})")
    if (time, service_unit) != ("s", "s"):
        raise UsageError("a preset knows its units: --time and --service-unit go with --map")
    return PRESETS[preset]
