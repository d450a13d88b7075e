"""Writing files so that they appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from simkit.model import UsageError


@contextmanager
def write_atomically(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file beside `path` that takes its place when the block ends well and vanishes when it does not.

    Raises UsageError when the folder cannot be written to or the disk is full.
    """
    path = Path(path)
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True) if temporary else None
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_text(path: str | Path, text: str) -> None:
    """`text` as UTF-8, atomically."""
    with write_atomically(path) as file:
        file.write(text.encode())
