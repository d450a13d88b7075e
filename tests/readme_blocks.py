"""The README's examples: read them, run them, and write down what they say.

``python tests/readme_blocks.py`` runs every example and puts its output into README.md; the test then only compares.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
CUT = "..."


@dataclass
class Block:
    """A fenced block: its language, the options after it, its lines, and where it begins."""

    language: str
    options: dict[str, str]
    lines: list[str]
    at: int  # index of the first line inside the fence

    @property
    def file(self) -> str:
        """The file that the block is, from a first line such as ``# mine.yaml``; "" when it is none."""
        found = re.fullmatch(r"# (\w+\.(?:yaml|py))", self.lines[0]) if self.lines else None
        return found[1] if found else ""

    @property
    def commands(self) -> list[str]:
        return [line[2:] for line in self.lines if line.startswith("$ ")]


@dataclass
class Readme:
    lines: list[str]
    blocks: list[Block] = field(default_factory=list)


def read() -> Readme:
    readme = Readme(README.read_text(encoding="utf-8").splitlines())
    begin: tuple[int, str] | None = None
    for number, line in enumerate(readme.lines):
        if not line.startswith("```"):
            continue
        if begin is None:
            begin = (number, line[3:])
            continue
        language, *options = begin[1].split()
        inside = readme.lines[begin[0] + 1 : number]
        readme.blocks.append(Block(language, dict(option.split("=") for option in options), inside, begin[0] + 1))
        begin = None
    return readme


def spoken(block: Block, folder: Path) -> list[str]:
    """The block as a terminal would show it, run in `folder`; with ``head=N`` only the first lines."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY")
    }
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    shown: list[str] = []
    for command in block.commands:
        done = subprocess.run(
            command, shell=True, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 2), f"{command}: exit code {done.returncode}\n{done.stdout}"
        said = [line.rstrip() for line in done.stdout.replace(str(ROOT), "...").splitlines()]
        shown += [f"$ {command}", *said]
    most = int(block.options.get("head", len(shown)))
    return shown if len(shown) <= most else [*shown[:most], CUT]


def play(folder: Path) -> list[tuple[Block, list[str]]]:
    """Every block in order: files are written, commands run. Returns the console blocks with what they say."""
    found = []
    for block in read().blocks:
        if block.file:
            (folder / block.file).write_text("\n".join(block.lines) + "\n", encoding="utf-8")
        elif block.language == "console":
            found.append((block, spoken(block, folder)))
    return found


def update() -> None:
    """Put what the commands say into README.md."""
    with tempfile.TemporaryDirectory() as folder:
        played = play(Path(folder))
    lines = read().lines
    for block, shown in reversed(played):
        lines[block.at : block.at + len(block.lines)] = shown
    README.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    update()
