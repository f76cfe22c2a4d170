"""Copies of a state file: complete, taken at one moment, even while it is in use, and marked.

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
from forewarn.store.sql.write import COPIED
from forewarn.store.sqlite import check, verify
from forewarn.store.sqlite.lock import companion
from forewarn.support.system import sync as sync
from forewarn.support.system import user_id

TEMPORARY = ".unfinished-"  # in the names of copies that are being made
_MARK = "INSERT OR IGNORE INTO service (key, value) VALUES (?, ?)"


def copy(state: Path, target: Path, at: Time) -> Contents:
    """Write a copy of the state to the new file `target`, check it, and sync it."""
    try:
        with check.reading(state) as source:
            check.schema_of(source, state)
            create_private(target)
            source.execute("VACUUM INTO ?", (str(target),))
        with contextlib.closing(sqlite3.connect(target)) as connection, connection:
            connection.execute(_MARK, (COPIED, at))
        with check.reading(target) as connection:
            verify.check_pages(connection, target)
            contents = verify.contents(connection, target)
        sync(target)
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(f"{state} could not be copied: {error}") from error
    return contents


def copy_to_stream(state: Path, at: Time) -> Copy:
    """Return a copy that is read once: an open file without a name, so that none is left over."""
    with temporary(state) as target:
        contents = copy(state, target, at)
        file = target.open("rb")
    return Copy(file, os.fstat(file.fileno()).st_size, contents)


def copy_beside(state: Path, suffix: str, at: Time) -> Path:
    """Make a copy next to the state, under a name that is free."""
    with temporary(state) as target:
        copy(state, target, at)
        return link_beside(target, state, suffix)


def link_beside(file: Path, state: Path, suffix: str) -> Path:
    """Link a file next to the state, under the first name that is free."""
    number = 1
    while True:
        target = companion(state, suffix if number == 1 else f"{suffix}-{number}")
        try:
            _link(file, target)
        except FileExistsError:
            number += 1
        else:
            sync(state.parent)
            return target


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except FileExistsError:
        raise
    except OSError:  # not every file system has hard links
        create_private(target)
        try:
            shutil.copyfile(file, target)
            sync(target)
        except BaseException:
            target.unlink()
            raise


@contextlib.contextmanager
def temporary(state: Path) -> Iterator[Path]:
    """Yield the path of a temporary file next to the state, which is removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix=f"{state.name}{TEMPORARY}", dir=state.parent))
    try:
        yield directory / "copy"
    finally:
        _remove(directory)


def remove_leftovers(state: Path) -> None:
    """Remove temporary files of processes that were killed. The state has to be locked."""
    for directory in state.parent.glob(f"{state.name}{TEMPORARY}*"):
        _remove(directory)


def give_to_owner(state: Path, *files: Path) -> None:
    """Give new files that root has created to the owner of the state, or, if the state itself is
    one of them or does not exist, to the owner of its directory."""
    existing = [file for file in files if file.exists()]
    if user_id() != 0 or not existing:
        return
    owner = (state if state not in files and state.exists() else state.parent).stat()
    for file in existing:
        os.chown(file, owner.st_uid, owner.st_gid, follow_symlinks=False)


def create_private(target: Path) -> None:
    """Create an empty file that only its owner can read."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _remove(directory: Path) -> None:
    with contextlib.suppress(OSError):
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()
