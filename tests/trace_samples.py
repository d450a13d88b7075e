"""The documents in traces/README.md, from which the sample traces are made. Run as a program it writes the samples again."""

import re
import sys
from pathlib import Path

from simkit.documents import load, validate
from simkit.rng import Streams
from simkit.trace.jsonl import write
from simkit.trace.synth import synthesise
from simkit.trace.table import Trace
from simkit.trace.workload import SourceSpec, WorkflowSpec, Workload

FOLDER = Path(__file__).parent.parent / "traces"


def workload(text: str) -> Workload:
    """A workload from YAML text, checked as a scenario's would be."""
    data = load(text).data
    return Workload(
        sources=[validate(load(item), SourceSpec) for item in data["workload"]],
        workflows={name: validate(load(item), WorkflowSpec) for name, item in data.get("workflows", {}).items()},
    )


def documents() -> dict[str, Workload]:
    """Sample name -> its workload, as the README gives it."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    return {
        name: workload(block)
        for name, block in re.findall(r"^## (\w+)\n.*?```yaml\n(.*?)```", text, re.MULTILINE | re.DOTALL)
    }


def sample(name: str) -> Trace:
    trace = synthesise(documents()[name], streams=Streams(1))
    trace.source = f"synthetic: {name}"
    return trace


if __name__ == "__main__":
    for each in documents():
        write(sample(each), FOLDER / f"{each}.jsonl.gz")
        sys.stdout.write(f"{each}: {len(sample(each))} runs\n")
