"""Commands about documents: simkit validate, schema, init."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from simkit.cli import shell
from simkit.cli.options import CodeOpt, JsonOpt
from simkit.model import UsageError

init_app = typer.Typer(help="Start a document or a mechanism of one's own.", no_args_is_help=True)


def validate(
    files: Annotated[list[Path], typer.Argument(help="Scenario, policy and trace files.", metavar="FILE...")],
    json_: JsonOpt = False,
    allow_code: CodeOpt = False,
) -> None:
    """Check documents without running them."""
    found: dict[str, dict[str, Any]] = {}
    for path in files:
        try:
            found[str(path)] = {"ok": True, "kind": _validate_one(path, allow_code=allow_code), "problems": []}
        except UsageError as error:
            found[str(path)] = {"ok": False, "kind": None, "problems": str(error).split("\n")}
            shell.say(str(error), quiet=json_)
        else:
            if not json_:
                shell.emit(f"{path}: a valid {found[str(path)]['kind']}\n")
    if json_:
        shell.emit_json("validation", {"files": found})
    raise typer.Exit(shell.PASSED if all(item["ok"] for item in found.values()) else shell.USAGE)


def _validate_one(path: Path, *, allow_code: bool) -> str:
    """The kind of a valid document. Raises UsageError with what is wrong."""
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    if path.suffix not in (".yaml", ".yml"):
        from simkit.trace.jsonl import read_any

        read_any(path)
        return "trace"
    from simkit.documents import load

    document = load(path).data
    if "platform" in document or "workload" in document:
        from simkit.check import refuse_unknown_metrics
        from simkit.scenario import load_scenario

        refuse_unknown_metrics(load_scenario(path, allow_code=allow_code))
        return "scenario"
    from simkit.policy import load_policy

    load_policy(path, allow_code=allow_code)
    return "policy"


def schema(
    kind: Annotated[str, typer.Argument(help="scenario, policy, trace or results.", metavar="KIND")],
    json_: JsonOpt = False,
) -> None:
    """Print the JSON Schema of a kind of document (with or without --json)."""
    from simkit.schema import schema as schema_of

    del json_  # a schema is JSON as it is
    shell.emit(json.dumps(schema_of(kind), indent=2, sort_keys=True) + "\n")


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
        # asked once, when the task queues: who queues `patience_s` later starts one second of work further back
        return task.estimate_s + now_s / self.patience_s
'''

_NameArg = Annotated[str, typer.Argument(help="Its name: letters, digits and underscores.", metavar="NAME")]


@init_app.command()
def scenario(name: _NameArg, json_: JsonOpt = False) -> None:
    """A small scenario to start from: NAME.yaml, with its schema for editors."""
    from simkit.schema import schema as schema_of

    texts = {_new(name, ".yaml"): _SCENARIO.format(name=name)}
    beside = Path("scenario.schema.json")
    if not beside.exists():
        texts[beside] = json.dumps(schema_of("scenario"), indent=1, sort_keys=True) + "\n"
    _write_all(texts, f"simkit run {name}.yaml", as_json=json_)


@init_app.command()
def policy(name: _NameArg, json_: JsonOpt = False) -> None:
    """A policy with a mechanism of one's own, in one Python file: NAME.yaml and NAME.py."""
    from simkit.library import names
    from simkit.policy import all_mechanisms

    if name in {*names("policies"), *(known for _, known in all_mechanisms())}:
        raise UsageError(f"{name!r} is taken: a policy or mechanism of the library has that name")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    texts = {
        _new(name, ".yaml"): _POLICY.format(name=name, class_name=class_name),
        _new(name, ".py"): _MECHANISM.format(name=name, class_name=class_name),
    }
    _write_all(texts, f"simkit run quickstart --policy fifo --policy {name}.yaml --allow-code", as_json=json_)


def _new(name: str, suffix: str) -> Path:
    """A file name for `name`. Raises UsageError when it is no plain identifier or the file is there already."""
    if not name.isidentifier() or not name.strip("_"):
        raise UsageError(f"found {name!r}, expected a name of letters, digits and underscores")
    path = Path(f"{name}{suffix}")
    if path.exists():
        raise UsageError(f"{path} is there already")
    return path


def _write_all(texts: dict[Path, str], following: str, *, as_json: bool) -> None:
    from simkit.files import write_text

    for path, text in texts.items():
        write_text(path, text)
    if as_json:
        shell.emit_json("files", {"files": [str(path) for path in texts], "next": following})
        return
    shell.emit("".join(f"{path}\n" for path in texts))
    shell.say(f"next: {following}")
