"""The library: what a name means, wherever the command is run, and what it must not reach."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT

from simkit import library
from simkit.library import find, folders, is_trusted, names
from simkit.model import UsageError


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with documents beside each other, another with a library, and an empty working folder."""
    for place in ("own/scenarios", "own/policies", "lib/policies", "lib/scenarios", "lib/traces", "cwd"):
        (tmp_path / place).mkdir(parents=True)
    for file in (
        "lib/policies/fifo.yaml",
        "lib/policies/edf.yml",
        "own/scenarios/mine.yaml",
        "own/policies/own.yaml",
        "secret.yaml",
    ):
        (tmp_path / file).write_text("name: x\n")
    (tmp_path / "lib/traces/azure.jsonl.gz").write_bytes(b"")
    (tmp_path / "lib/traces/trace.schema.json").write_bytes(b"{}")
    monkeypatch.setattr(library, "folders", lambda kind: [tmp_path / "lib" / kind])
    monkeypatch.chdir(tmp_path / "cwd")
    return tmp_path


def test_a_name_is_looked_up_in_the_library_with_its_suffix_left_out(shelf):
    assert find("policies", "fifo") == shelf / "lib/policies/fifo.yaml"
    assert find("policies", "edf") == shelf / "lib/policies/edf.yml"
    assert find("policies", "fifo.yaml") == shelf / "lib/policies/fifo.yaml"
    assert find("policies", "policies/fifo.yaml") == shelf / "lib/policies/fifo.yaml"
    assert find("traces", "azure") == shelf / "lib/traces/azure.jsonl.gz"


def test_names_are_those_of_documents_without_suffixes(shelf):
    assert names("policies") == ["edf", "fifo"]
    assert names("traces") == ["azure"]
    assert names("scenarios") == []


def test_a_person_means_the_working_folder_first(shelf):
    Path("fifo.yaml").write_text("name: other\n")
    assert find("policies", "fifo") == Path("fifo.yaml")


def test_a_document_means_the_same_wherever_the_command_is_run(shelf):
    Path("fifo.yaml").write_text("name: other\n")
    Path("mine.yaml").write_text("name: other\n")
    here = shelf / "own/scenarios"
    assert find("policies", "fifo", here) == shelf / "lib/policies/fifo.yaml"
    assert find("policies", "mine", here) == here / "mine.yaml"
    assert find("policies", "../policies/own", here).resolve() == shelf / "own/policies/own.yaml"


@pytest.mark.parametrize("name", ["../../secret.yaml", "/{shelf}/secret.yaml", "../../cwd/../secret", "link.yaml"])
def test_a_document_reaches_its_own_folder_and_those_beside_it_only(shelf, name):
    (shelf / "own/scenarios/link.yaml").symlink_to(shelf / "secret.yaml")
    with pytest.raises(UsageError, match="a document may name files below its own folder and the folders beside it"):
        find("policies", name.replace("/{shelf}", str(shelf)), shelf / "own/scenarios")


def test_a_document_near_the_root_does_not_reach_the_whole_disk(tmp_path):
    with pytest.raises(UsageError, match="leads out of '/tmp'"):
        library._refuse_escape(Path("/etc/hostname"), Path("/tmp"), "x")


def test_the_error_says_where_it_looked_and_the_nearest_name(shelf):
    with pytest.raises(UsageError) as caught:
        find("policies", "fifi", shelf / "own/scenarios")
    assert str(caught.value) == (
        f"there is no policy 'fifi', did you mean 'fifo'? (looked at {shelf}/own/scenarios/fifi, {shelf}/lib/policies/fifi)"
    )
    with pytest.raises(UsageError, match=r"there is no trace 'zzz' \(the library has azure\) \(looked at zzz, "):
        find("traces", "zzz")


@pytest.mark.parametrize("name", ["", "  ", "a\0b", ".", ".."])
def test_what_can_be_no_name_is_refused(shelf, name):
    with pytest.raises(UsageError, match=r"expected the name or the path of a scenario|there is no scenario"):
        find("scenarios", name)


def test_a_folder_of_that_name_is_no_document(shelf):
    Path("fifo").mkdir()
    assert find("policies", "fifo") == shelf / "lib/policies/fifo.yaml"


def test_the_checkout_counts_only_where_the_project_is_ours(tmp_path, monkeypatch):
    # installed in a virtual environment inside someone else's project, their folder `policies` is none of ours
    (tmp_path / "simkit").mkdir()
    (tmp_path / "policies").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"\n')
    monkeypatch.setattr(library, "_HERE", tmp_path / "simkit")
    assert folders("policies") == []
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "simkit"\n')
    assert folders("policies") == [tmp_path / "policies"]
    (tmp_path / "simkit/_library/policies").mkdir(parents=True)
    assert folders("policies") == [tmp_path / "simkit/_library/policies", tmp_path / "policies"]


def test_only_the_librarys_own_folder_is_trusted(shelf):
    assert is_trusted(shelf / "lib/policies/mine.py")
    assert not is_trusted(shelf / "lib/policies/../mine.py")
    assert not is_trusted(shelf / "own/policies/mine.py")


def test_the_checkouts_documents_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find("policies", "fifo").resolve() == ROOT / "policies/fifo.yaml"
    assert find("scenarios", "scenarios/quickstart.yaml").resolve() == ROOT / "scenarios/quickstart.yaml"
