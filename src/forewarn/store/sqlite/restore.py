"""Replaces a state file by a copy: the copy is checked first, the old state is kept under another
name, and at every moment the path leads to the one or the other.

Refused while a service has the state open. The file stays marked as a copy until it is served, so
that the service can account for what happened after the copy was made.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from forewarn.core import Time
from forewarn.store.port import Contents, OutcomeUnknown, RestoreResult, StoreUnusable
from forewarn.store.sqlite import check, copy, verify
from forewarn.store.sqlite import schema as s
from forewarn.store.sqlite.lock import companion, locked

KEPT = ".before-restore"


def restore(backup: Path, state: Path, at: Time, *, force: bool = False) -> RestoreResult:
    """Replace the state by the backup. Raises StoreUnusable, and changes nothing then; raises
    OutcomeUnknown if it was replaced, but that may be lost in a crash."""
    state = state.resolve()
    found = _checked(backup, state)
    with contextlib.closing(locked(state)):
        copy.hand_over(state, companion(state, ".lock"))
        copy.sweep(state)
        replaces = _there(state, force=force)
        with copy.temporary(state) as made:
            copy.copy(backup, made, at)
            copy.hand_over(state, made)
            kept = _set_aside(state) if replaces else None
            made.replace(state)
            _sync_name(state)
    return RestoreResult(found, kept, outdated=found.schema != s.SCHEMA_VERSION)


def _sync_name(state: Path) -> None:
    try:
        copy.sync(state.parent)
    except OSError as error:
        raise OutcomeUnknown(
            f"{state} was replaced by the backup, but it is unknown whether that is on disk"
            f" ({error.strerror}); check the disk, then restore the backup again"
        ) from error


def _checked(backup: Path, state: Path) -> Contents:
    try:
        if not backup.is_file():
            raise StoreUnusable(f"{backup} is no file; name the backup")
        if state.exists() and backup.samefile(state):
            raise StoreUnusable(f"{backup} is the state itself; name a backup of it")
        if state.is_dir():
            raise StoreUnusable(f"{state} is a directory; name a file")
        check.check_header(backup)
        with check.reading(backup) as connection:
            return verify.verify(connection, backup)
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(f"{backup} is damaged ({error})") from error


def _there(state: Path, *, force: bool) -> bool:
    if not (state.exists() or _log(state).exists()):
        return False
    if not force:
        raise StoreUnusable(
            f"{state} exists; say --force to put the backup in its place (it is kept beside)"
        )
    return True


def _set_aside(state: Path) -> Path:
    """Rename the existing state, with its log: SQLite would apply the log to another file of the
    same name."""
    with contextlib.suppress(sqlite3.DatabaseError):  # a damaged one is kept as it is
        _take_in_log(state)
    _forget_second_names(state)
    kept = copy.link(state, state, KEPT) if state.exists() else _free(state)
    for ending in ("-wal", "-journal"):
        part = companion(state, ending)
        if part.exists():
            part.rename(companion(kept, ending))
    companion(state, "-shm").unlink(missing_ok=True)
    copy.sync(state.parent)
    return kept


def _forget_second_names(state: Path) -> None:
    """Remove names that a restore which was killed has given to the state."""
    if state.exists():
        for kept in state.parent.glob(f"{state.name}{KEPT}*"):
            if kept.samefile(state):
                kept.unlink()


def _take_in_log(state: Path) -> None:
    """Write the log of a service that was killed into the state file."""
    if not state.exists():
        return
    address = f"{state.as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _free(state: Path) -> Path:
    number = 1
    while True:
        kept = companion(state, KEPT if number == 1 else f"{KEPT}-{number}")
        if not kept.exists() and not _log(kept).exists():
            return kept
        number += 1


def _log(state: Path) -> Path:
    return companion(state, "-wal")
