"""Copies of a state file: made at one moment beside whoever writes it, whole, and marked as copies.

A copy is one SQLite file without a log. Whoever serves a state that is marked as a copy knows
that things may have happened of which it does not tell. Putting one in its place is `restore.py`.
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
    """Make the file `target` a copy of the state, on disk and checked; it must be new."""
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
    """A copy to be read once. It has no name by the time it is given, so it is never left over."""
    with temporary(state) as target:
        found = copy(state, target, at)
        file = target.open("rb")
    return Copy(file, os.fstat(file.fileno()).st_size, found)


def keep(state: Path, ending: str, at: Time) -> Path:
    """A copy beside the state that nothing will overwrite."""
    with temporary(state) as made:
        copy(state, made, at)
        return link(made, state, ending)


def link(file: Path, state: Path, ending: str) -> Path:
    """Give a file another name beside the state: the first that is free."""
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
    except OSError:  # not every file system knows second names
        new(kept)
        try:
            shutil.copyfile(file, kept)
            sync(kept)
        except BaseException:
            kept.unlink()
            raise


@contextlib.contextmanager
def temporary(state: Path) -> Iterator[Path]:
    """A name beside the state for something unfinished, which is gone in the end."""
    directory = Path(tempfile.mkdtemp(prefix=f"{state.name}{TEMPORARY}", dir=state.parent))
    try:
        yield directory / "copy"
    finally:
        _remove(directory)


def sweep(state: Path) -> None:
    """Remove what a process that was killed has left unfinished. The state has to be locked."""
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
    """For its owner alone, before there is anything in it to be read."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def sync(path: Path) -> None:
    """Until it is on disk: a file, or which files a directory names."""
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
