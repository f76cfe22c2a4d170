"""Files that are whole or not there, whatever dies when: the only place where the agent's state is
written. When a call returns, what it did survives a loss of power."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable
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


def own(directory: Path, root: Path) -> None:
    """Make sure that `directory`, and each one between it and `root`, is a directory that we can
    use: create what is missing, replace what is not a directory, and restore our permissions."""
    below = directory.relative_to(root)
    for path in (root, *(root / level for level in reversed(below.parents[:-1])), directory):
        try:
            mode = path.stat().st_mode if path == root else path.lstat().st_mode
        except FileNotFoundError:
            make(path)
            continue
        if not stat.S_ISDIR(mode):
            path.unlink()
            make(path)
        elif mode & PRIVATE_DIRECTORY != PRIVATE_DIRECTORY:
            path.chmod(PRIVATE_DIRECTORY)


def end_of(path: Path, size: int) -> bytes:
    """Return the last `size` bytes of a regular file, without following links or blocking; nothing
    for any other kind of file."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return b""
        os.lseek(file, max(0, found.st_size - size), os.SEEK_SET)
        return os.read(file, size)
    finally:
        os.close(file)


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
    with contextlib.suppress(OSError):
        if directory.is_symlink() or directory.is_file():
            directory.unlink()

    def ours(function: Callable[[str], object], path: str, _error: object) -> None:
        """Restore our permissions on a directory that we own, and try again."""
        with contextlib.suppress(OSError):
            for one in (Path(path).parent, Path(path)):
                if one.is_relative_to(directory) and one.is_dir():
                    one.chmod(PRIVATE_DIRECTORY)
            if function in (os.unlink, os.rmdir):
                function(path)
            elif not Path(path).is_symlink():
                shutil.rmtree(path, ignore_errors=True)

    shutil.rmtree(directory, onerror=ours)
    shutil.rmtree(directory, ignore_errors=True)


def _settle(directory: Path) -> None:
    if os.name == "nt":  # a directory cannot be opened there; the file system keeps its own order
        return
    file = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
