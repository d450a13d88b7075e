"""Find documents: as given, beside the document that names them, in the shipped library, in the checkout."""

from __future__ import annotations

import difflib
from pathlib import Path

from simkit.model import UsageError

_HERE = Path(__file__).resolve().parent
_SUFFIXES = {
    "scenarios": (".yaml", ".yml"),
    "policies": (".yaml", ".yml"),
    "traces": (".jsonl.gz", ".jsonl", ".parquet"),
}
_SINGULAR = {"scenarios": "scenario", "policies": "policy", "traces": "trace"}


def folders(kind: str) -> list[Path]:
    """The library's folders of one kind ("scenarios" | "policies" | "traces"): the shipped one, then that of the checkout around
    this package (only where its pyproject.toml is ours)."""
    shipped, checkout = _HERE / "_library" / kind, _HERE.parent
    found = [shipped] if shipped.is_dir() else []
    if (checkout / kind).is_dir() and _is_ours(checkout / "pyproject.toml"):
        found.append(checkout / kind)
    return found


def _is_ours(project: Path) -> bool:
    return project.is_file() and '\nname = "simkit"\n' in project.read_text(encoding="utf-8")


def names(kind: str) -> list[str]:
    """Names of the library's documents of one kind, without their suffixes, sorted."""
    found = {
        path.name.removesuffix(suffix)
        for folder in folders(kind)
        for path in folder.iterdir()
        for suffix in _SUFFIXES[kind]
        if path.name.endswith(suffix)
    }
    return sorted(found)


def find(kind: str, name: str | Path, relative_to: Path | None = None) -> Path:
    """The file that `name` means; its suffix may be left out.

    A person's name (no `relative_to`) is a path from the working folder, or a name in the library. A name in a document, whose folder
    `relative_to` is, is a path from that folder, or a name in the library: it means the same wherever the command is run. A document
    reaches the files below its folder and below the folders beside it, no others.

    Raises UsageError that says where it looked and which name is nearest.
    """
    given = Path(name)
    if not str(name).strip() or "\0" in str(name):
        raise UsageError(f"found {str(name)!r}, expected the name or the path of a {_SINGULAR[kind]}")
    places = [given if relative_to is None else relative_to / given]
    if not given.is_absolute() and ".." not in given.parts:
        # scenarios/x.yaml means the library's x.yaml where there is no such folder
        tail = Path(*given.parts[1:]) if len(given.parts) > 1 and given.parts[0] == kind else given
        places.extend(folder / tail for folder in folders(kind))
    for place in places:
        for suffix in ("", *_SUFFIXES[kind]):
            candidate = place.with_name(place.name + suffix) if place.name else place
            if candidate.is_file():
                if relative_to is not None and place is places[0]:
                    _refuse_escape(candidate, relative_to, name)
                return candidate
    raise UsageError(_not_found(kind, given, places))


def _refuse_escape(path: Path, folder: Path, name: str | Path) -> None:
    """Raise UsageError unless `path` lies below `folder` or below a folder beside it."""
    home = folder.resolve()
    reach = home.parent if home.parent != home.parent.parent else home  # not the whole disk
    if not path.resolve().is_relative_to(reach):
        raise UsageError(
            f"{str(name)!r} leads out of {str(reach)!r}: a document may name files below its own folder and the folders beside it"
        )


def _not_found(kind: str, given: Path, places: list[Path]) -> str:
    stem = given.name
    for suffix in _SUFFIXES[kind]:
        stem = stem.removesuffix(suffix)
    known = names(kind)
    near = difflib.get_close_matches(stem, known, n=1)
    hint = f", did you mean {near[0]!r}?" if near else f" (the library has {', '.join(known) or 'none'})"
    looked = ", ".join(str(place) for place in places)
    return f"there is no {_SINGULAR[kind]} {str(given)!r}{hint} (looked at {looked})"


def is_trusted(path: Path) -> bool:
    """Whether `path` lies in the library: code beside library policies may be loaded without being asked for."""
    resolved = path.resolve()
    return any(resolved.is_relative_to(folder.resolve()) for folder in folders("policies"))
