"""Checks of a state file before it is used: whether it is one, is intact and can be written.

Nothing here writes, or leaves other files behind. A problem is one line, which says what to do
about it. Rows are only checked in copies (`verify.py`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from forewarn.store.port import StoreUnusable
from forewarn.store.sql import schema as s
from forewarn.store.sqlite import wal_check
from forewarn.store.sqlite.lock import companion, in_use_error, reader_lock
from forewarn.support.system import user_id

MAGIC = b"SQLite format 3\x00"
MOVED = "This state was moved to "  # begins what `forewarn move` leaves in place of a file

# Tables that are not in the schema: Alembic's, and those that SQLite makes itself.
_OTHER_TABLES = ("alembic_version", "sqlite_sequence", "sqlite_stat1", "sqlite_stat4")
_AUTOMATIC_INDEX = "sqlite_autoindex_"

REMEDY = "restore a backup (forewarn restore), or move it away to start with a new state"


def check_file(path: Path) -> str | None:
    """Return the schema of the file, or None if there is no file yet. Raises StoreUnusable."""
    wal = companion(path, "-wal")
    if not path.exists():
        if _size(wal):
            raise StoreUnusable(
                f"{path} does not exist, but its log {wal.name} does, and has commits in it: put"
                " the file back under this name, or move the log away to start with a new state"
            )
        return None
    if path.is_dir():
        raise StoreUnusable(f"{path} is a directory; pass the path of a file")
    _check_rights(path)
    with reader_lock(path) as holder:
        if holder is not None:
            raise in_use_error(path, holder)
        check_header(path)
        wal_check.check_header(path, wal)
        try:
            with reading(path, locked=True) as connection:
                schema = schema_of(connection, path)
                if known(schema):
                    check_parts(connection, path)
                wal_check.check_frames(path, wal)
                _check_pages(connection, path)
        except sqlite3.DatabaseError as error:
            raise StoreUnusable(f"{path} is damaged ({error}): {REMEDY}") from error
    return schema


def check_schema(path: Path, schema: str, *, migrate: bool) -> None:
    """Refuse a newer schema, and unless `migrate` is true also an older one."""
    if not known(schema):
        raise StoreUnusable(
            f"{path} has schema {schema}, which this version does not know"
            f" (it knows up to {s.SCHEMA_VERSION}); use a newer forewarn"
        )
    if schema != s.SCHEMA_VERSION and not migrate:
        raise StoreUnusable(
            f"{path} has schema {schema}, this version has {s.SCHEMA_VERSION}: make a backup"
            f" (forewarn backup --state {path} FILE), then upgrade it"
            f" (forewarn upgrade --state {path})"
        )


def known(schema: str) -> bool:
    """Return whether this version can read the schema, or upgrade it."""
    return len(schema) == 4 and schema.isdecimal() and "0001" <= schema <= s.SCHEMA_VERSION


@contextlib.contextmanager
def reading(path: Path, *, locked: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a connection that only reads. If no other process has the file open and there is no log,
    SQLite reads the file without a lock. With `locked`, the caller has the reader lock already."""
    with contextlib.ExitStack() as stack:
        unused = locked or stack.enter_context(reader_lock(path)) is None
        immutable = "&immutable=1" if unused and not _size(companion(path, "-wal")) else ""
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro{immutable}", uri=True, isolation_level=None
        )
        stack.callback(connection.close)
        yield connection


def schema_of(connection: sqlite3.Connection, path: Path) -> str:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    if not {"alembic_version", "commits", "groups"} <= tables:
        raise StoreUnusable(f"{path} is an SQLite database of another program; choose another file")
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
                f"{path} contains {kind} '{name}', which is not part of a state file and was added"
                " by something else; choose another file"
            )


def missing_columns(connection: sqlite3.Connection) -> list[str]:
    """Return the columns of this schema that the file does not have."""
    query = (
        "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c"
        " WHERE m.type = 'table'"
    )
    columns = set(connection.execute(query))
    return [
        f"{table.name}.{column.name}"
        for table in s.metadata.sorted_tables
        for column in table.columns
        if (table.name, column.name) not in columns
    ]


def _check_rights(path: Path) -> None:
    parts = [path, *(p for p in (companion(path, "-wal"), companion(path, "-shm")) if p.exists())]
    for part in parts:
        if not os.access(part, os.R_OK | os.W_OK):
            raise StoreUnusable(
                f"{part} cannot be read and written by user {user_id()}: change its owner, and"
                " make sure that its file system is not read-only"
            )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise StoreUnusable(
            f"{path.parent} cannot be written by user {user_id()}, and SQLite keeps its log"
            " there: change its owner, and make sure that it is not read-only"
        )


def check_header(path: Path) -> None:
    with path.open("rb") as file:
        header = file.read(len(MAGIC))
    if not header:
        raise StoreUnusable(
            f"{path} is empty and therefore not a state file: remove it, or {REMEDY}"
        )
    if header == MOVED.encode()[: len(MAGIC)]:
        line = path.read_text("utf-8", "replace").partition("\n")[0]
        moved = line.removeprefix(MOVED)[:500]
        raise StoreUnusable(f"the state of {path} was moved to {moved}")
    if header != MAGIC:
        raise StoreUnusable(f"{path} cannot be used as state: it is not an SQLite database")


def _check_pages(connection: sqlite3.Connection, path: Path) -> None:
    row = connection.execute("PRAGMA quick_check(1)").fetchone()
    if row is None or row[0] != "ok":
        problem = " ".join(str(row[0]).split()) if row else "it cannot be read"
        raise StoreUnusable(f"{path} is damaged ({problem}): {REMEDY}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
