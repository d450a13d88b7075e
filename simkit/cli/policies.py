"""Commands about policies: simkit policy list, show, diff."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from simkit.cli import shell
from simkit.cli.options import CodeOpt, JsonOpt

app = typer.Typer(help="Policies and the mechanisms they are made of.", no_args_is_help=True)

_PolicyArg = Annotated[str, typer.Argument(help="A policy: a file, or a name from the library.", metavar="POLICY")]


@app.command("list")
def list_(json_: JsonOpt = False) -> None:
    """The shipped policies, and every mechanism with its parameters."""
    from simkit.library import names
    from simkit.policy import all_mechanisms, load_policy, parameters

    policies = {name: load_policy(name).about.strip() for name in names("policies")}
    mechanisms: list[dict[str, Any]] = [
        {"slot": slot, "name": name, "parameters": parameters(cls), "about": _first_line(cls)}
        for (slot, name), cls in sorted(all_mechanisms().items())
    ]
    if json_:
        shell.emit_json("policies", {"policies": policies, "mechanisms": mechanisms})
        return
    lines = ["policies"]
    lines += [f"  {name:26} {about.splitlines()[0] if about else ''}".rstrip() for name, about in policies.items()]
    slot_before = ""
    for item in mechanisms:
        if item["slot"] != slot_before:
            slot_before = item["slot"]
            lines.append(f"\n{slot_before}")
        lines.append(f"  {item['name']:26} {item['about']}")
        if item["parameters"]:
            lines.append(f"  {'':26} parameters: {', '.join(item['parameters'])}")
    shell.emit("\n".join(lines) + "\n")


@app.command()
def show(policy: _PolicyArg, json_: JsonOpt = False, allow_code: CodeOpt = False) -> None:
    """A policy as it was understood, and the full text of each mechanism in it."""
    import inspect
    import json

    from simkit.policy import load_policy

    loaded = load_policy(policy, allow_code=allow_code)
    if json_:
        shell.emit_json("policy", {"policy": loaded.document, "digest": loaded.digest})
        return
    parts = [f"{json.dumps(loaded.document, indent=2)}\ndigest {loaded.digest}"]
    parts += [f"{spec.slot}: {spec.name}\n{inspect.cleandoc(spec.cls.__doc__ or '')}" for spec in loaded.mechanisms]
    shell.emit("\n\n".join(parts) + "\n")


@app.command()
def diff(old: _PolicyArg, new: _PolicyArg, json_: JsonOpt = False, allow_code: CodeOpt = False) -> None:
    """What changed from one policy to another."""
    from simkit.policy import diff as diff_of
    from simkit.policy import load_policy

    before, after = (load_policy(name, allow_code=allow_code) for name in (old, new))
    lines = diff_of(before, after)
    if json_:
        digests = {"old": before.digest, "new": after.digest}
        shell.emit_json("policy-diff", {"digests": digests, "changes": lines})
    else:
        shell.emit(("\n".join(lines) if lines else "no difference") + "\n")


def _first_line(cls: type[Any]) -> str:
    return (cls.__doc__ or "").strip().split("\n")[0]
