"""The house of simkit, read from its source: who may import whom, how long things may be, what mechanisms may see."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "simkit"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "_library" not in path.parts)

# A module may import from its own rank (without a cycle) and from those above it in this list.
RANKS = (
    ("units", "model", "rng", "library", "documents", "files"),
    ("log", "log_io", "mechanisms"),
    ("policy", "trace"),
    ("scenario", "scenario_document", "stats", "catalogue"),
    ("engine", "metrics"),
    ("compare", "advice", "diagnose", "check"),
    ("sweep", "report", "gate_report"),
    ("api", "schema"),
    ("cli",),
)
RANK = {name: number for number, names in enumerate(RANKS) for name in names}

# A comparison shows itself: `Comparison.report`, `.plot` and `_repr_html_` load the report when called, and never before.
LATE_UPWARDS = {("compare", "report")}

# Each of these libraries costs start-up time or ties a room to a tool: only these rooms may know it.
ROOMS_OF = {
    "simpy": {"engine"},
    "pandas": {"trace", "metrics", "compare", "diagnose", "report", "api"},
    "scipy": {"trace", "metrics", "stats", "compare", "diagnose", "report"},
    "matplotlib": {"report"},
    "jinja2": {"report"},
    "typer": {"cli"},
    "rich": {"cli", "report"},
    "loky": {"sweep"},
    "cloudpickle": {"sweep"},
    "ruamel": {"documents"},
    "pydantic": {"documents", "units", "policy", "scenario_document", "trace", "mechanisms"},
    "pyarrow": {"trace", "log_io"},
}

# What the engine knows and a scheduler must not: true service times, defects, failures.
ORACLE = {"service_ns", "luck", "defect_p", "detect_p", "service_s"}


@dataclass(frozen=True)
class Import:
    """One import of `module` in `file`: `late` inside a function, `typing` for annotations alone."""

    file: Path
    line: int
    module: str
    late: bool
    typing: bool

    @property
    def room(self) -> str:
        return room_of(self.file)

    @property
    def target(self) -> str:
        """The room that a simkit import leads to."""
        return self.module.split(".")[1] if self.module.count(".") else ""

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


def room_of(file: Path) -> str:
    first = file.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def imports_of(file: Path) -> Iterator[Import]:
    def walk(node: ast.AST, *, late: bool, typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for_types = typing or (
                isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"
            )
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(file, child.lineno, alias.name, late, typing)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{file}:{child.lineno}: a relative import"
                module = child.module or ""
                if module in ("simkit", "simkit.cli", "simkit.report", "simkit.mechanisms", "simkit.trace"):
                    # `from simkit import api`: each name may be a module
                    for alias in child.names:
                        yield Import(file, child.lineno, f"{module}.{alias.name}", late, typing)
                else:
                    yield Import(file, child.lineno, module, late, typing)
            yield from walk(child, late=inside, typing=for_types)

    yield from walk(tree_of(file), late=False, typing=False)


IMPORTS = [item for file in FILES for item in imports_of(file)]
OWN = [item for item in IMPORTS if item.module.split(".")[0] == "simkit" and item.file.name != "__main__.py"]
OWN = [item for item in OWN if item.file != PACKAGE / "__init__.py"]  # loads names by text, when asked


def test_every_module_has_a_rank() -> None:
    rooms = {room_of(file) for file in FILES} - {"__init__", "__main__"}
    assert rooms <= set(RANK), f"without a rank: {sorted(rooms - set(RANK))}"


def test_imports_go_one_way() -> None:
    wrong = [
        str(item)
        for item in OWN
        if item.target in RANK
        and RANK[item.target] > RANK[item.room]
        and not item.typing
        and not (item.late and (item.room, item.target) in LATE_UPWARDS)
    ]
    assert not wrong


def test_engine_and_metrics_never_import_each_other() -> None:
    # the log is the only thing that passes between them
    either_way = [("engine", "metrics"), ("metrics", "engine")]
    wrong = [str(item) for item in OWN if (item.room, item.target) in either_way]
    wrong += [str(item) for item in OWN if item.room == "metrics" and item.target in ("policy", "scenario", "trace")]
    assert not wrong


def test_only_the_policy_room_up_knows_what_is_compared() -> None:
    # mechanisms are told about rows and pools: they know no trace, policy, scenario or engine
    wrong = [
        str(item)
        for item in OWN
        if item.room == "mechanisms" and item.target not in ("mechanisms", "model", "rng", "units")
    ]
    assert not wrong


def test_no_import_cycle() -> None:
    names = {module_name(file): file for file in FILES}
    edges: dict[str, set[str]] = {name: set() for name in names}
    for item in OWN:
        if item.late or item.typing:
            continue
        target = item.module
        while target and target not in names:
            target = target.rpartition(".")[0]
        here = module_name(item.file)
        if target and target not in (here, "simkit"):
            edges[here].add(target)
    assert not cycle(edges), " -> ".join(cycle(edges))


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """The first cycle found, as a path; empty when there is none."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for following in sorted(edges[node]):
            # a package's own modules load it first: that is no cycle of ours
            if following.startswith(f"{node}.") or node.startswith(f"{following}."):
                continue
            found = visit(following, [*path, node])
            if found:
                return found
        done.add(node)
        return []

    for start in sorted(edges):
        found = visit(start, [])
        if found:
            return found
    return []


def test_the_cycle_finder_finds_a_cycle() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c", "a"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_libraries_are_known_in_their_rooms_only() -> None:
    wrong = []
    for item in IMPORTS:
        rooms = ROOMS_OF.get(item.module.split(".")[0])
        if rooms is not None and item.room not in rooms and not item.typing:
            wrong.append(str(item))
    assert not wrong


def test_nothing_imports_the_documents_as_code() -> None:
    wrong = [str(item) for item in IMPORTS if item.module.split(".")[0] in ("policies", "scenarios", "traces", "tests")]
    assert not wrong


def test_functions_fit_on_a_screen_and_modules_in_a_sitting() -> None:
    long = []
    for file in FILES:
        lines = file.read_text(encoding="utf-8").count("\n")
        if lines > 500:
            long.append(f"{file.relative_to(ROOT)} has {lines} lines")
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > 70:
                    long.append(f"{file.relative_to(ROOT)}:{node.lineno} {node.name} has {length} lines")
    assert not long


def test_only_the_command_line_prints_and_exits() -> None:
    wrong = []
    for file in FILES:
        if room_of(file) in ("cli", "__main__"):
            continue
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.exit", "exit", "quit"):
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno} {ast.unparse(node.func)}")
    assert not wrong


def test_mechanisms_cannot_name_what_only_the_engine_knows() -> None:
    wrong = []
    for file in sorted((PACKAGE / "mechanisms").glob("*.py")):
        for node in ast.walk(tree_of(file)):
            named = {
                getattr(node, "attr", ""), getattr(node, "id", ""), getattr(node, "arg", ""),
                node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "",
            }  # fmt: skip
            if named & ORACLE:
                wrong.append(f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} {min(named & ORACLE)}")
    assert not wrong


def test_no_builtin_sum_of_measured_floats() -> None:
    # it differs between Python versions (3.12 compensates): math.fsum or numpy; whole nanoseconds are exact
    rooms = {"metrics", "stats", "compare", "check", "diagnose", "report", "sweep", "advice"}
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in FILES
        if room_of(file) in rooms
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "sum"
        and not re.search(r"\bns\b|_ns\b", ast.unparse(node))
    ]
    assert not wrong


def test_every_exemption_names_its_rule() -> None:
    bare = re.compile(r"#\s*type:\s*ignore(?!\[)|#\s*noqa(?!:)")
    wrong = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in FILES
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if bare.search(line)
    ]
    assert not wrong


HEAVY = ("pandas", "scipy", "matplotlib", "pydantic", "simpy", "loky", "jinja2", "numpy")


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import simkit; simkit.__version__; dir(simkit)", HEAVY),
        # the command line takes numpy for the nouns of its errors; pydantic comes with typer
        ("import sys; sys.argv = ['simkit', '--help']; from simkit.cli import main; main()", HEAVY[:3]),
        ("import sys; sys.argv = ['simkit', 'run', '--help']; from simkit.cli import main; main()", HEAVY[:3]),
    ],
)
def test_starting_is_light(code: str, heavy: tuple[str, ...]) -> None:
    script = f"""
import atexit, sys
def tell():
    loaded = [name for name in {heavy!r} if name in sys.modules]
    print("LOADED", *loaded, file=sys.stderr)
atexit.register(tell)
{code}
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stderr.splitlines()[-1] == "LOADED"
