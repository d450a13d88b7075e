"""Commands about documents: `trace`, `policy` and `init`. Registered by `simkit.cli`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from simkit.model import UsageError

JsonOpt = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
OutArg = Annotated[Path, typer.Option("--out", "-o", help="The file to write: .jsonl, .jsonl.gz or .parquet.")]


def register(
    trace_app: typer.Typer,
    policy_app: typer.Typer,
    init_app: typer.Typer,
    *,
    print_json: Callable[[Any], None],
    say: Callable[..., None],
) -> None:
    """Put the commands on their groups."""
    _register_trace(trace_app, print_json, say)
    _register_policy(policy_app, print_json)
    _register_init(init_app, say)


# --- trace -------------------------------------------------------------------------------------------------


def _register_trace(app: typer.Typer, print_json: Callable[[Any], None], say: Callable[..., None]) -> None:
    @app.command("import")
    def import_(
        format_: Annotated[str, typer.Argument(help="azure-llm or flat.", metavar="FORMAT")],
        files: Annotated[
            list[Path], typer.Argument(help="Recorded files; several are merged by time.", metavar="FILE...")
        ],
        out: OutArg,
        map_: Annotated[
            str | None, typer.Option("--map", help="Columns: arrival=TIMESTAMP,tokens_in=ContextTokens,...")
        ] = None,
        preset: Annotated[str | None, typer.Option(help="A known column map: azure-llm, vtc.")] = None,
        time: Annotated[str, typer.Option(help="Unit of arrivals: s, ms, us, ns or iso.")] = "s",
        service_unit: Annotated[str, typer.Option(help="Unit of the service and deadline columns.")] = "s",
        overhead: Annotated[str | None, typer.Option(help="Token model: time per request, e.g. 20ms.")] = None,
        prefill: Annotated[str | None, typer.Option(help="Token model: time per token in, e.g. 350us.")] = None,
        decode: Annotated[str | None, typer.Option(help="Token model: time per token out, e.g. 43ms.")] = None,
        pool: Annotated[str, typer.Option(help="The pool that the requests queue for.")] = "model",
        tenant: Annotated[str | None, typer.Option(help="Everybody's tenant where no column names one.")] = None,
        class_: Annotated[
            str, typer.Option("--class", help="Everybody's class where no column names one.")
        ] = "default",
        json_: JsonOpt = False,
    ) -> None:
        """Turn a recorded file into a trace."""
        from simkit.trace.describe import describe
        from simkit.trace.jsonl import write

        model = _token_model(overhead, prefill, decode)
        trace = _import(
            format_, files, map_, preset, time, service_unit, model, {"pool": pool, "tenant": tenant, "cls": class_}
        )
        write(trace, out)
        if json_:
            print_json({"file": str(out), **describe(trace)})
        else:
            for what, count in trace.warnings.items():
                say(f"{what}: {count}")
            print(f"{out}: {len(trace)} runs, {trace.task_count} tasks")

    @app.command()
    def synth(
        scenario: Annotated[str, typer.Argument(help="The scenario whose workload to synthesise.", metavar="SCENARIO")],
        out: OutArg,
        replication: Annotated[int, typer.Option(min=0)] = 0,
        seed: Annotated[int | None, typer.Option(min=0)] = None,
        json_: JsonOpt = False,
    ) -> None:
        """Write a scenario's demand as a trace; replaying it gives the same results."""
        from simkit.scenario import load_scenario
        from simkit.trace.describe import describe
        from simkit.trace.jsonl import write

        trace = load_scenario(scenario).trace(replication, seed)
        write(trace, out)
        if json_:
            print_json({"file": str(out), **describe(trace)})
        else:
            print(f"{out}: {len(trace)} runs, {trace.task_count} tasks")

    @app.command()
    def info(file: Annotated[Path, typer.Argument(help="A trace file.")], json_: JsonOpt = False) -> None:
        """Describe a trace: rates, burstiness, service times, shares."""
        from simkit.trace.describe import describe
        from simkit.trace.jsonl import read_any

        facts = describe(read_any(file))
        if json_:
            print_json(facts)
            return
        for name, value in facts.items():
            if isinstance(value, dict):
                value = ", ".join(f"{key} {_short(item)}" for key, item in value.items()) or "-"
            print(f"{name:18} {_short(value)}")

    @app.command()
    def convert(
        file: Annotated[Path, typer.Argument(help="A trace file.")],
        out: OutArg,
        json_: JsonOpt = False,
    ) -> None:
        """Write a trace in another form, by suffix."""
        from simkit.trace.jsonl import read_any, write

        trace = read_any(file)
        write(trace, out)
        if json_:
            print_json({"file": str(out), "runs": len(trace), "digest": trace.digest()})
        else:
            print(f"{out}: {len(trace)} runs, digest {trace.digest()}")


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


def _import(
    format_: str,
    files: list[Path],
    map_: str | None,
    preset: str | None,
    time: str,
    service_unit: str,
    model: Any,
    options: dict[str, Any],
) -> Any:
    from simkit.documents import nearest
    from simkit.trace.importers import PRESETS, import_azure_llm, import_flat
    from simkit.trace.importers.flat import FlatFormat, parse_map, time_unit

    if format_ == "azure-llm":
        if map_ or preset:
            raise UsageError("azure-llm knows its columns: --map and --preset go with flat")
        return import_azure_llm(files, model=model, **options)
    if format_ != "flat":
        raise UsageError(
            f"there is no format {format_!r}{nearest(format_, ('azure-llm', 'flat'))} (there are azure-llm, flat)"
        )
    if (map_ is None) == (preset is None):
        raise UsageError("flat: give exactly one of --map and --preset")
    if preset is not None and preset not in PRESETS:
        raise UsageError(f"there is no preset {preset!r}{nearest(preset, PRESETS)} (there are {', '.join(PRESETS)})")
    layout = (
        PRESETS[preset]
        if preset is not None
        else FlatFormat(parse_map(map_ or ""), time_unit(time), time_unit(service_unit))
    )
    return import_flat(files, layout, model=model, **options)


# --- policy ------------------------------------------------------------------------------------------------


def _register_policy(app: typer.Typer, print_json: Callable[[Any], None]) -> None:
    @app.command("list")
    def list_(json_: JsonOpt = False) -> None:
        """The shipped policies, and every mechanism with its parameters."""
        from simkit.library import names
        from simkit.policy import all_mechanisms, load_policy, parameters

        policies = {name: load_policy(name).about for name in names("policies")}
        mechanisms = dict(sorted(all_mechanisms().items(), key=lambda item: item[0]))
        if json_:
            print_json(
                {
                    "policies": policies,
                    "mechanisms": [
                        {"slot": slot, "name": name, "parameters": parameters(cls), "about": _first_line(cls)}
                        for (slot, name), cls in mechanisms.items()
                    ],
                }
            )
            return
        print("policies")
        for name, about in policies.items():
            print(f"  {name:26} {about}")
        slot_before = ""
        for (slot, name), cls in mechanisms.items():
            if slot != slot_before:
                print(f"{slot}")
                slot_before = slot
            print(f"  {name:26} {_first_line(cls)}")
            if parameters(cls):
                print(f"  {'':26} parameters: {', '.join(parameters(cls))}")

    @app.command()
    def show(
        policy: Annotated[str, typer.Argument(help="A policy: a file, or a name from the library.")],
        json_: JsonOpt = False,
    ) -> None:
        """A policy as it was understood, and the full text of each mechanism in it."""
        import inspect
        import json

        from simkit.policy import load_policy

        loaded = load_policy(policy)
        if json_:
            print_json({**loaded.document, "digest": loaded.digest})
            return
        print(json.dumps(loaded.document, indent=2))
        print(f"digest {loaded.digest}")
        for spec in loaded.mechanisms:
            print(f"\n{spec.slot}: {spec.name}\n{inspect.cleandoc(spec.cls.__doc__ or '')}")

    @app.command()
    def diff(
        old: Annotated[str, typer.Argument(help="A policy.")],
        new: Annotated[str, typer.Argument(help="Another.")],
        json_: JsonOpt = False,
    ) -> None:
        """What changed between two policies."""
        from simkit.policy import diff as diff_of
        from simkit.policy import load_policy

        lines = diff_of(load_policy(old), load_policy(new))
        if json_:
            print_json({"changes": lines})
        else:
            print("\n".join(lines) if lines else "no difference")


def _first_line(cls: type[Any]) -> str:
    return (cls.__doc__ or "").strip().split("\n")[0]


# --- init --------------------------------------------------------------------------------------------------

_SCENARIO = """\
# yaml-language-server: $schema=scenario.schema.json
name: {name}
about: Say what question this scenario answers.
seed: 1
replications: 10
horizon: 10m
platform:
  pools:
    gpu: {{slots: 4}}
workload:
  - name: users
    class: interactive
    arrivals: {{poisson: {{rate: 1/s}}}}       # where this number comes from
    task: {{pool: gpu, service: {{lognormal: {{mean: 3s, cv: 1}}}}}}
    deadline: 30s
policies: [fifo, strict_priority, weighted_fair]
expect:
  - {{metric: success_rate, policy: fifo, at_least: 0.9}}
"""

_POLICY = """\
name: {name}
version: 1
about: Say what this policy is for.
order: {{{name}.py@{class_name}: {{}}}}
"""

_MECHANISM = '''\
"""{class_name}: say the rule in one line."""

from dataclasses import dataclass

from simkit import RankOrder, Task, mechanism


@mechanism("{name}")
@dataclass(eq=False)
class {class_name}(RankOrder):
    """Serve the smallest `rank` first. Fields of this class are the parameters in YAML."""

    patience_s: float = 60.0

    def rank(self, task: Task, now_s: float) -> float:
        return task.estimate_s + now_s / self.patience_s
'''


def _register_init(app: typer.Typer, say: Callable[..., None]) -> None:
    @app.command()
    def scenario(name: Annotated[str, typer.Argument(help="Its name; NAME.yaml is written here.")]) -> None:
        """A small scenario to start from, with its schema for editors."""
        import json

        from simkit.files import write_text
        from simkit.schema import schema

        path = _new_file(name, ".yaml")
        write_text(path, _SCENARIO.format(name=name))
        write_text("scenario.schema.json", json.dumps(schema("scenario"), indent=1, sort_keys=True) + "\n")
        print(path)
        say(f"next: simkit run {path}")

    @app.command()
    def policy(name: Annotated[str, typer.Argument(help="Its name; NAME.yaml and NAME.py are written here.")]) -> None:
        """A policy with a mechanism of one's own, in one Python file."""
        from simkit.files import write_text

        document, code = _new_file(name, ".yaml"), _new_file(name, ".py")
        class_name = "".join(part.capitalize() for part in name.split("_"))
        write_text(document, _POLICY.format(name=name, class_name=class_name))
        write_text(code, _MECHANISM.format(name=name, class_name=class_name))
        print(document)
        print(code)
        say(f"next: simkit run quickstart --policy fifo --policy {document} --allow-code")


def _new_file(name: str, suffix: str) -> Path:
    """A file name for `name`. Raises UsageError when it is no plain identifier or the file is there already."""
    if not name.isidentifier():
        raise UsageError(f"found {name!r}, expected a name of letters, digits and underscores")
    path = Path(f"{name}{suffix}")
    if path.exists():
        raise UsageError(f"{path} is there already")
    return path
