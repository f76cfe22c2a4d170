"""Copies of a state file: complete, as of one moment, also while it is in use, and marked as such.

A copy is one SQLite file without a log. A service that starts with a file that is marked as a copy
knows that more may have happened than the file contains. `restore.py` puts a copy in place.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from forewarn.core import Time
from forewarn.store.port import Contents, Copy, StoreUnusable
from forewarn.store.sqlite import check, verify
from forewarn.store.sqlite.lock import companion
from forewarn.store.sqlite.write import COPIED

TEMPORARY = ".unfinished-"  # in the names of copies that are being made
_MARK = "INSERT OR IGNORE INTO service (key, value) VALUES (?, ?)"


def copy(state: Path, target: Path, at: Time) -> Contents:
    """Write a copy of the state to the new file `target`, check it, and sync it."""
    try:
        with check.reading(state) as source:
            check.schema_of(source, state)
            new(target)
            source.execute("VACUUM INTO ?", (str(target),))
        with contextlib.closing(sqlite3.connect(target)) as made, made:
            made.execute(_MARK, (COPIED, at))
        with check.reading(target) as made:
            verify.check_pages(made, target)
            found = verify.contents(made, target)
        sync(target)
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(f"{state} could not be copied: {error}") from error
    return found


def stream(state: Path, at: Time) -> Copy:
    """Return a copy to be read once, in a file without a name, which cannot be left over."""
    with temporary(state) as target:
        found = copy(state, target, at)
        file = target.open("rb")
    return Copy(file, os.fstat(file.fileno()).st_size, found)


def keep(state: Path, ending: str, at: Time) -> Path:
    """Make a copy next to the state, under a name that is free."""
    with temporary(state) as made:
        copy(state, made, at)
        return link(made, state, ending)


def link(file: Path, state: Path, ending: str) -> Path:
    """Link a file next to the state, under the first name that is free."""
    number = 1
    while True:
        kept = companion(state, ending if number == 1 else f"{ending}-{number}")
        try:
            _second_name(file, kept)
        except FileExistsError:
            number += 1
        else:
            sync(state.parent)
            return kept


def _second_name(file: Path, kept: Path) -> None:
    try:
        os.link(file, kept)
    except FileExistsError:
        raise
    except OSError:  # not every file system has hard links
        new(kept)
        try:
            shutil.copyfile(file, kept)
            sync(kept)
        except BaseException:
            kept.unlink()
            raise


@contextlib.contextmanager
def temporary(state: Path) -> Iterator[Path]:
    """Yield the path of a temporary file next to the state, which is removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix=f"{state.name}{TEMPORARY}", dir=state.parent))
    try:
        yield directory / "copy"
    finally:
        _remove(directory)


def sweep(state: Path) -> None:
    """Remove temporary files of processes that were killed. The state has to be locked."""
    for directory in state.parent.glob(f"{state.name}{TEMPORARY}*"):
        _remove(directory)


def hand_over(state: Path, *files: Path) -> None:
    """Give new files that root has made to the owner of the state, or, if the state itself is one
    of them or does not exist, to the owner of its directory."""
    made = [file for file in files if file.exists()]
    if os.geteuid() != 0 or not made:
        return
    owner = (state if state not in files and state.exists() else state.parent).stat()
    for file in made:
        os.chown(file, owner.st_uid, owner.st_gid, follow_symlinks=False)


def new(target: Path) -> None:
    """Create an empty file that only its owner can read."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def sync(path: Path) -> None:
    """Sync a file or a directory to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(directory: Path) -> None:
    with contextlib.suppress(OSError):
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()
