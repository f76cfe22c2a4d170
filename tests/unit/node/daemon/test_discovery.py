"""How a service on this machine is found: by the note that it leaves."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest

from forewarn.node.daemon import discovery
from forewarn.node.daemon.discovery import Note, NotFound, find, note

GONE = 2**22 + 1  # no process has such a number


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for notes of our own, and one of the system."""
    (tmp_path / "system").mkdir(mode=0o755)
    (tmp_path / "own").mkdir()
    monkeypatch.setattr(discovery, "SYSTEM", tmp_path / "system")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "own"))
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    return tmp_path


def test_a_service_is_found_while_it_runs() -> None:
    with note("http://guests", "http://control"):
        assert find() == "http://control"
    with pytest.raises(NotFound, match="no service"):
        find()


def test_a_service_of_the_system_is_found_by_everybody(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(own / "system"))
    with note("http://guests", "http://system"):
        (left,) = (own / "system").iterdir()
        assert stat.S_IMODE(left.stat().st_mode) == 0o644
        assert list((own / "own").iterdir()) == []
        monkeypatch.delenv("RUNTIME_DIRECTORY")
        assert find() == "http://system"
    assert list((own / "system").iterdir()) == []


def test_the_note_of_another_user_is_read(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may not be asked whether it is there, but its number is in use by somebody else."""
    monkeypatch.setattr(discovery, "user_id", lambda: os.getuid() + 1)
    left = own / "system/1.json"
    left.write_bytes(msgspec.json.encode(Note(1, "http://guests", "http://control")))
    assert find() == "http://control"


def test_a_note_whose_process_is_gone_is_removed(own: Path) -> None:
    for directory in (own / "system", own / "own/forewarn"):
        directory.mkdir(exist_ok=True, mode=0o700)
        (directory / f"{GONE}.json").write_bytes(msgspec.json.encode(Note(GONE, "a", "b")))
        (directory / f"{GONE + 1}.json").write_text("nonsense")
        (directory / "y.json").write_text("not a note by its name")
    with pytest.raises(NotFound):
        find()
    assert {path.name for path in own.rglob("*.json")} == {"y.json"}


def test_a_service_in_another_network_namespace_is_not_mistaken_for_one_here(own: Path) -> None:
    """Their URLs may be equal."""
    left, pid = own / f"system/{os.getppid()}.json", os.getppid()
    left.write_bytes(msgspec.json.encode(Note(pid, "http://guests", "http://control", "net:[1]")))
    assert find() == "http://control"  # which may be reached from here as well
    with note("http://guests", "http://here"):
        assert find() == "http://here"


def test_services_in_other_network_namespaces_are_chosen_by_going_there(own: Path) -> None:
    for pid, network in ((os.getppid(), "net:[1]"), (os.getpid(), "net:[2]")):
        content = msgspec.json.encode(Note(pid, "http://guests", "http://control", network))
        (own / f"system/{pid}.json").write_bytes(content)
    with pytest.raises(NotFound, match="nsenter"):
        find()


def test_several_services_are_refused_without_a_choice(own: Path) -> None:
    left = own / f"system/{os.getppid()}.json"
    left.write_bytes(msgspec.json.encode(Note(os.getppid(), "http://guests", "http://other")))
    with (
        note("http://guests", "http://control"),
        pytest.raises(NotFound, match="several services"),
    ):
        find()
