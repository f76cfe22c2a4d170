"""What needs Linux says so, and names the system that this is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from forewarn.support import system


@pytest.mark.parametrize(("platform", "name"), [("darwin", "macOS"), ("win32", "Windows")])
def test_what_needs_linux_says_so_and_what_to_use_instead(
    platform: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "ON_LINUX", False)
    monkeypatch.setattr(sys, "platform", platform)
    problem = system.linux_problem("forewarn serve", "use forewarn dev")
    assert problem == (
        f"forewarn serve needs Linux 5.3 or newer, and this is {name}; use forewarn dev"
    )


def test_on_linux_there_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "ON_LINUX", True)
    assert system.linux_problem("forewarn serve", "use forewarn dev") == ""


def test_users_without_numbers_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "geteuid", raising=False)
    assert system.user_id() is None


def test_files_and_directories_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    (tmp_path / "file").touch()
    system.sync(tmp_path / "file")
    system.sync(tmp_path)
    assert len(synced) == 2
