"""Find documents: as given, in the shipped library, in the checkout."""

from __future__ import annotations

import difflib
from pathlib import Path

from simkit.model import UsageError

_HERE = Path(__file__).resolve().parent
_SUFFIXES = {
    "scenarios": (".yaml", ".yml"),
    "policies": (".yaml", ".yml"),
    "traces": (".jsonl.gz", ".jsonl", ".parquet", ".csv"),
}


def folders(kind: str) -> list[Path]:
    """The library's folders of one kind ("scenarios" | "policies" | "traces"): the shipped one, then the checkout's."""
    shipped = _HERE / "_library" / kind
    checkout = _HERE.parent
    found = [shipped] if shipped.is_dir() else []
    if (checkout / "pyproject.toml").is_file() and (checkout / kind).is_dir():
        found.append(checkout / kind)
    return found


def names(kind: str) -> list[str]:
    """Names of the library's documents of one kind, sorted."""
    return sorted({path.stem for folder in folders(kind) for path in folder.glob("*.y*ml")})


def find(kind: str, name: str | Path, relative_to: Path | None = None) -> Path:
    """The file that `name` means: the path as given, beside the document that names it (`relative_to` is its folder), in the library.

    The suffix may be left out. Raises UsageError that says where it looked and which name is nearest.
    """
    given = Path(name)
    places = [given]
    if relative_to is not None and not given.is_absolute():
        places.append(relative_to / given)
    if not given.is_absolute():
        # scenarios/x.yaml means the library's x.yaml where there is no such folder
        tail = Path(*given.parts[1:]) if len(given.parts) > 1 and given.parts[0] == kind else given
        places.extend(folder / tail for folder in folders(kind))
    for place in places:
        for candidate in (place, *(place.with_name(place.name + suffix) for suffix in _SUFFIXES[kind])):
            if candidate.is_file():
                return candidate
    near = difflib.get_close_matches(given.stem, names(kind), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    looked = ", ".join(str(place) for place in places)
    raise UsageError(f"{kind}: no file {str(name)!r}{hint} (looked at {looked})")


def is_trusted(path: Path) -> bool:
    """Whether `path` lies in the library: code beside library policies may be loaded without being asked for."""
    resolved = path.resolve()
    return any(resolved.is_relative_to(folder.resolve()) for folder in folders("policies"))
