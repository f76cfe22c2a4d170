"""Files that are whole or not there, whatever dies when: the only place where the agent's state is
written. When a call returns, what it did survives a loss of power."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

PRIVATE = 0o600  # options and outputs of hooks may have secrets in them
PRIVATE_DIRECTORY = 0o700


def put(path: Path, data: bytes) -> None:
    """The file has this in it, or what it had before."""
    draft = path.with_name(f".{path.name}.new")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)
    finally:
        os.close(file)
    draft.replace(path)
    _settle(path.parent)


def make(directory: Path) -> None:
    """With whatever is missing above it."""
    if directory.is_dir():
        return
    make(directory.parent)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(PRIVATE_DIRECTORY)
    _settle(directory.parent)


def open_to(directory: Path) -> str:
    """Why others than we and root could write there: what is in it is run, as we are."""
    if os.name == "nt":
        return ""
    found = directory.stat()
    if found.st_uid not in (0, os.geteuid()):
        return f"{directory} belongs to another user, who could have the agent run anything"
    if found.st_mode & stat.S_IWOTH:
        return (
            f"{directory} can be written by anybody, and what is in it is run: chmod o-w, or name a"
            " directory within it, which the agent makes for itself ([agent] state)"
        )
    return ""


def drop(path: Path) -> None:
    """The file is gone, also if it never was there."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
        _settle(path.parent)


def clear(directory: Path) -> None:
    """The directory is gone with all that is in it. What resists stays, for the next time."""
    shutil.rmtree(directory, ignore_errors=True)


def _settle(directory: Path) -> None:
    if os.name == "nt":  # a directory cannot be opened there; the file system keeps its own order
        return
    file = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
