"""The command line: each command parses, calls one function and prints. The only place that exits.

stdout is the result, stderr is talk. Exit codes: 0 every gate passed (or none was given), 1 an expectation or a gate failed, 2 wrong usage or
input, 3 a defect or a broken law, 4 could not judge, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from simkit.cli import demand, gating, papers, policies, running, shell

app = typer.Typer(
    name="simkit", help="Decide how to schedule an AI-agent platform: replay demand against policies and compare them.",
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
)  # fmt: skip


def _print_version(wanted: bool) -> None:
    if wanted:
        from simkit import __version__

        shell.emit(f"simkit {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    del version  # its callback has answered


app.command()(running.run)
app.command()(running.compare)
app.command()(gating.check)
app.command()(running.explain)
app.command()(papers.validate)
app.command()(papers.schema)
app.add_typer(demand.app, name="trace")
app.add_typer(policies.app, name="policy")
app.add_typer(papers.init_app, name="init")


def main() -> None:
    """Entry point."""
    sys.exit(shell.run(app, sys.argv[1:]))
