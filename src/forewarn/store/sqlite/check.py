"""Checks a state file before it is used: is it one, is it intact, may it be written?

Nothing here writes, or leaves other files behind. A problem is one line that says what to do about
it. Rows are only checked in copies (`verify.py`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from forewarn.store.port import StoreUnusable
from forewarn.store.sqlite import schema as s
from forewarn.store.sqlite import wal_check
from forewarn.store.sqlite.lock import companion, in_use, watched

MAGIC = b"SQLite format 3\x00"

# Tables that are not in the schema: Alembic's, and those that SQLite makes itself.
_OTHER_TABLES = ("alembic_version", "sqlite_sequence", "sqlite_stat1", "sqlite_stat4")
_AUTOMATIC_INDEX = "sqlite_autoindex_"

INSTEAD = "restore a backup (forewarn restore), or move it away to begin anew"


def check_file(path: Path) -> str | None:
    """Return the schema of the file, None if there is no file yet. Raises StoreUnusable."""
    wal = companion(path, "-wal")
    if not path.exists():
        if _size(wal):
            raise StoreUnusable(
                f"{path} is not there, but its log {wal.name} is, with commits in it: put the file"
                " back under this name, or move the log away to begin anew"
            )
        return None
    if path.is_dir():
        raise StoreUnusable(f"{path} is a directory; name a file")
    _check_rights(path)
    with watched(path) as holder:
        if holder is not None:
            raise in_use(path, holder)
        check_header(path)
        wal_check.check_header(path, wal)
        try:
            with reading(path, watched_already=True) as connection:
                found = schema_of(connection, path)
                if known(found):
                    check_parts(connection, path)
                wal_check.check_frames(path, wal)
                _check_pages(connection, path)
        except sqlite3.DatabaseError as error:
            raise StoreUnusable(f"{path} is damaged ({error}): {INSTEAD}") from error
    return found


def check_schema(path: Path, found: str, *, migrate: bool) -> None:
    """Refuse a schema that this version does not have, unless it may `migrate` it."""
    if not known(found):
        raise StoreUnusable(
            f"{path} has schema {found}, which this version does not know"
            f" (it knows up to {s.SCHEMA_VERSION}); use a newer forewarn"
        )
    if found != s.SCHEMA_VERSION and not migrate:
        raise StoreUnusable(
            f"{path} has schema {found}, this version has {s.SCHEMA_VERSION}: make a backup"
            f" (forewarn backup --state {path} FILE), then bring it up to date"
            f" (forewarn upgrade --state {path})"
        )


def known(schema: str) -> bool:
    return len(schema) == 4 and schema.isdecimal() and "0001" <= schema <= s.SCHEMA_VERSION


@contextlib.contextmanager
def reading(path: Path, *, watched_already: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a connection that only reads. If no other process has the file and there is no log, the
    file is read without any lock."""
    with contextlib.ExitStack() as stack:
        alone = watched_already or stack.enter_context(watched(path)) is None
        as_is = "&immutable=1" if alone and not _size(companion(path, "-wal")) else ""
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro{as_is}", uri=True, isolation_level=None
        )
        stack.callback(connection.close)
        yield connection


def schema_of(connection: sqlite3.Connection, path: Path) -> str:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    if not {"alembic_version", "commits", "groups"} <= tables:
        raise StoreUnusable(f"{path} is a database of something else; choose another file")
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else ""


def check_parts(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file with anything that is not in the schema (the newest one also has everything
    that older ones have): a trigger, for example, would act with every commit."""
    known_parts = {("table", name) for name in _OTHER_TABLES}
    for table in s.metadata.sorted_tables:
        known_parts.add(("table", table.name))
        known_parts.update(("index", str(index.name)) for index in table.indexes)
    for kind, name in connection.execute("SELECT type, name FROM sqlite_master ORDER BY name"):
        automatic = kind == "index" and name.startswith(_AUTOMATIC_INDEX)
        if (kind, name) not in known_parts and not automatic:
            raise StoreUnusable(
                f"{path} contains {kind} '{name}', which is no part of a state: somebody has put it"
                " there; choose another file"
            )


def missing_columns(connection: sqlite3.Connection) -> list[str]:
    """Return the columns of this schema that the file does not have."""
    query = (
        "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c"
        " WHERE m.type = 'table'"
    )
    there = set(connection.execute(query))
    return [
        f"{table.name}.{column.name}"
        for table in s.metadata.sorted_tables
        for column in table.columns
        if (table.name, column.name) not in there
    ]


def _check_rights(path: Path) -> None:
    parts = [path, *(p for p in (companion(path, "-wal"), companion(path, "-shm")) if p.exists())]
    for part in parts:
        if not os.access(part, os.R_OK | os.W_OK):
            raise StoreUnusable(
                f"{part} cannot be read and written by user {os.geteuid()}: give it to that user,"
                " and see that its file system is not read-only"
            )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise StoreUnusable(
            f"{path.parent} cannot be written by user {os.geteuid()}, and SQLite keeps its log"
            " there: give the directory to that user, and see that it is not read-only"
        )


def check_header(path: Path) -> None:
    with path.open("rb") as file:
        begins = file.read(len(MAGIC))
    if not begins:
        raise StoreUnusable(f"{path} is empty, which no state is: remove it or {INSTEAD}")
    if begins != MAGIC:
        raise StoreUnusable(f"{path} cannot be used as state: it is no SQLite database")


def _check_pages(connection: sqlite3.Connection, path: Path) -> None:
    said = connection.execute("PRAGMA quick_check(1)").fetchone()
    if said is None or said[0] != "ok":
        what = " ".join(str(said[0]).split()) if said else "it cannot be read"
        raise StoreUnusable(f"{path} is damaged ({what}): {INSTEAD}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
