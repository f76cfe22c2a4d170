"""Replacement of a state file by a copy. The copy is checked first, the old state is kept under
another name, and the path always leads to the one or the other.

Refused while a service has the state open. The file stays marked as a copy until it is served, so
that the service can account for what happened after the copy was made.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from forewarn.core import Time
from forewarn.store.port import Contents, OutcomeUnknown, RestoreResult, StoreUnusable
from forewarn.store.sql import schema as s
from forewarn.store.sqlite import check, copy, verify
from forewarn.store.sqlite.lock import companion, take_lock

KEPT = ".before-restore"


def restore(backup: Path, state: Path, at: Time, *, force: bool = False) -> RestoreResult:
    """Replace the state by the backup. Raises StoreUnusable, and changes nothing then; raises
    OutcomeUnknown if it was replaced, but that may be lost in a crash."""
    state = state.resolve()
    contents = _verify(backup, state)
    with contextlib.closing(take_lock(state)):
        copy.give_to_owner(state, companion(state, ".lock"))
        copy.remove_leftovers(state)
        exists = _exists(state, force=force)
        with copy.temporary(state) as target:
            copy.copy(backup, target, at)
            copy.give_to_owner(state, target)
            kept = set_aside(state, KEPT) if exists else None
            target.replace(state)
            _sync_name(state)
    return RestoreResult(contents, kept, outdated=contents.schema != s.SCHEMA_VERSION)


def _sync_name(state: Path) -> None:
    try:
        copy.sync(state.parent)
    except OSError as error:
        raise OutcomeUnknown(
            f"{state} was replaced by the backup, but it is unknown whether that is on disk"
            f" ({error.strerror}); check the disk, then restore the backup again"
        ) from error


def _verify(backup: Path, state: Path) -> Contents:
    try:
        if not backup.is_file():
            raise StoreUnusable(f"{backup} is not a file; pass the path of a backup")
        if state.exists() and backup.samefile(state):
            raise StoreUnusable(f"{backup} is the state itself; pass the path of a backup")
        if state.is_dir():
            raise StoreUnusable(f"{state} is a directory; pass the path of a file")
        check.check_header(backup)
        with check.reading(backup) as connection:
            return verify.verify(connection, backup)
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(f"{backup} is damaged ({error})") from error


def _exists(state: Path, *, force: bool) -> bool:
    """Return whether there is a state already. Raises StoreUnusable if so, unless `force`."""
    if not (state.exists() or _log(state).exists()):
        return False
    if not force:
        raise StoreUnusable(
            f"{state} exists; pass --force to replace it (it is kept under another name)"
        )
    return True


def set_aside(state: Path, suffix: str) -> Path:
    """Rename the existing state, with its log: SQLite would apply the log to another file of the
    same name."""
    with contextlib.suppress(sqlite3.DatabaseError):  # a damaged one is kept as it is
        _checkpoint(state)
    _remove_other_links(state, suffix)
    kept = copy.link_beside(state, state, suffix) if state.exists() else _free_name(state)
    for suffix in ("-wal", "-journal"):
        file = companion(state, suffix)
        if file.exists():
            file.rename(companion(kept, suffix))
    companion(state, "-shm").unlink(missing_ok=True)
    copy.sync(state.parent)
    return kept


def _remove_other_links(state: Path, suffix: str) -> None:
    """Remove links to the state that a command has left which was killed."""
    if state.exists():
        for kept in state.parent.glob(f"{state.name}{suffix}*"):
            if kept.samefile(state):
                kept.unlink()


def _checkpoint(state: Path) -> None:
    """Write the log of a service that was killed into the state file."""
    if not state.exists():
        return
    uri = f"{state.as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _free_name(state: Path) -> Path:
    number = 1
    while True:
        kept = companion(state, KEPT if number == 1 else f"{KEPT}-{number}")
        if not kept.exists() and not _log(kept).exists():
            return kept
        number += 1


def _log(state: Path) -> Path:
    return companion(state, "-wal")
