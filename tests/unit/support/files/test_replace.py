"""Replacing a file in one step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forewarn.support.files.replace import replace


def test_a_new_file_is_private_and_another_mode_is_that_which_was_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "key"
    replace(file, b"one")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"one", 0o600)
    replace(file, b"two", mode=0o644, owner=(os.getuid(), os.getgid()))
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"two", 0o644)
    assert list(tmp_path.iterdir()) == [file]


def test_a_draft_of_a_killed_process_is_not_continued(tmp_path: Path) -> None:
    file, draft = tmp_path / "key", tmp_path / ".key.new"
    draft.write_bytes(b"longer than the new content")
    draft.chmod(0o666)
    replace(file, b"new")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o600)


def test_the_former_content_stays_if_the_new_one_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "key"
    replace(file, b"one")
    (tmp_path / ".key.new").mkdir()
    with pytest.raises(OSError, match="key"):
        replace(file, b"two")
    assert file.read_bytes() == b"one"
