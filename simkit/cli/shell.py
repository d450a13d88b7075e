"""How the command line talks and leaves: the result goes to stdout, everything else to stderr, and every end has one exit code.

With ``--json`` stdout carries exactly one document, also when something went wrong: ``{"schema": "simkit.<kind>/1", ...}``.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from simkit.model import Deadlock, LawViolation, SimkitError, UsageError

PASSED, FAILED, USAGE, DEFECT, UNJUDGED, INTERRUPTED = 0, 1, 2, 3, 4, 130


class Stopped(SimkitError):
    """Work ended before it was done: Ctrl-C, or workers that died every time. The message says what is finished and what is kept."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


_documents_printed = 0


def say(message: str, *, quiet: bool = False) -> None:
    """A line for people, on stderr."""
    if not quiet:
        print(message, file=sys.stderr)


def emit(text: str) -> None:
    """The result, on stdout. A reader that has gone (``| head``) is no error: what is left is dropped and the verdict still decides."""
    with tolerant_stdout():
        sys.stdout.write(text)


@contextmanager
def tolerant_stdout() -> Iterator[None]:
    """Write to stdout inside; a closed pipe ends the writing and nothing else."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
    except SystemExit:
        # rich answers a closed pipe by leaving with 1, which would look like a failed gate
        _drop_stdout()


def _drop_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - lives as long as the process


def emit_json(kind: str, value: dict[str, Any]) -> None:
    """One document of schema ``simkit.<kind>/1`` (a document that names its own schema keeps it)."""
    global _documents_printed  # noqa: PLW0603 - a process has one stdout
    from simkit.compare import clean

    document = {"schema": f"simkit.{kind}/1", **clean(value)}
    _documents_printed += 1
    emit(json.dumps(document, indent=2, allow_nan=False) + "\n")


def run(app: Callable[..., Any], arguments: Sequence[str]) -> int:
    """Run a command line and turn what went wrong into one message and an exit code."""
    global _documents_printed  # noqa: PLW0603
    _documents_printed = 0
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a sign does not end the run
    as_json, verbose = "--json" in arguments, "--verbose" in arguments or bool(os.environ.get("SIMKIT_DEBUG"))
    try:
        code = app(list(arguments), prog_name="simkit", standalone_mode=False)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else PASSED
    except BaseException as error:  # noqa: BLE001 - the boundary: an uncaught error would exit with 1 and look like a failed gate
        if verbose and not isinstance(error, UsageError | Stopped):
            traceback.print_exc()
        end = _end_of(error, arguments)
    else:
        if code != INTERRUPTED:
            return code if isinstance(code, int) else PASSED
        end = _end_of(KeyboardInterrupt(), arguments)  # typer has made an exit code of Ctrl-C
    if end.message:
        say(end.usage + (end.message if "\n" in end.message else f"simkit: {end.message}"))
    if as_json and not _documents_printed:
        emit_json("error", {"kind": end.kind, "exit_code": end.code, "problems": end.problems})
    return end.code


@dataclass(frozen=True)
class _End:
    """How a command ended badly."""

    kind: str
    code: int
    message: str
    usage: str = ""
    places: tuple[Any, ...] = ()

    @property
    def problems(self) -> list[dict[str, Any]]:
        names = ("path", "line", "column", "message", "dotted")
        found = [{name: getattr(place, name) for name in names} for place in self.places]
        return found or [{"message": self.message}]


def _end_of(error: BaseException, arguments: Sequence[str]) -> _End:
    if isinstance(error, UsageError):
        return _End("usage", USAGE, str(error), places=tuple(getattr(error, "problems", ())))
    if isinstance(error, Stopped):
        return _End("interrupted" if error.code == INTERRUPTED else "unfinished", error.code, str(error))
    if isinstance(error, KeyboardInterrupt):
        return _End("interrupted", INTERRUPTED, "interrupted: nothing is kept")
    if isinstance(error, Deadlock):
        return _End("deadlock", UNJUDGED, str(error))
    if isinstance(error, LawViolation):
        return _End("law", DEFECT, _paragraph(f"a law of the model is broken: {error}", error, arguments))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        _drop_stdout()
        return _End("output", DEFECT, f"cannot write the result: {error.strerror}")
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # typer's own: an unknown option and the like
        context = getattr(error, "ctx", None)
        usage = f"{context.get_usage()}\n" if context is not None and error.format_message() else ""
        return _End("usage", USAGE, error.format_message(), usage)
    return _End("defect", DEFECT, _paragraph(f"internal error: {type(error).__name__}: {error}", error, arguments))


def _paragraph(what: str, error: BaseException, arguments: Sequence[str]) -> str:
    """What happened, where, and how to see it again, in one paragraph."""
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    again = shlex.join(["simkit", *arguments, *(flag for flag in ("--verbose",) if flag not in arguments)])
    return ". ".join(
        [
            what.rstrip("."),
            *(note.rstrip(".") for note in notes),
            f"This is a defect of simkit or of a mechanism, not of your input. See it again, with the traceback, by: {again}",
        ]
    )
