"""Moving a state from an SQLite file to a PostgreSQL database: all of it, in one transaction.

The file is locked meanwhile, and kept under another name. In its place is left a line that says
where the state is now, so that no service starts from the file, or without a state, by accident.
"""

from __future__ import annotations

import contextlib
import operator
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import sqlalchemy as sa

from forewarn.store.port import Contents, StoreUnusable
from forewarn.store.postgres import database, lease
from forewarn.store.sql import schema as s
from forewarn.store.sqlite import check, connect, copy, restore, verify
from forewarn.store.sqlite.lock import companion
from forewarn.support.text import storable
from forewarn.support.urls import without_password

KEPT = ".moved"

# Tables whose rows the database numbers, the column, and the highest number that was ever used.
_NUMBERED = {
    "machines": ("ordinal", "SELECT max(ordinal) FROM machines"),
    "events": ("ordinal", "SELECT max(ordinal) FROM events"),
    "history": ("seq", "SELECT max(seq) FROM sqlite_sequence WHERE name = 'history'"),
}
_LAST = "SELECT seq, body FROM commits ORDER BY seq DESC LIMIT 1"
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")  # in JSON


class Moved(msgspec.Struct, frozen=True):
    contents: Contents
    kept: Path  # where the file is now
    changed: int  # values with characters that PostgreSQL cannot store, which were replaced


def move(file: Path, url: str) -> Moved:
    """Move the state of a file to a database without one. Raises StoreUnusable; then the file is as
    it was, and the database too, unless the message says that this is unknown."""
    file = file.resolve()
    if not file.is_file():
        raise StoreUnusable(f"{file} does not exist; pass the path of a state file")
    try:
        with contextlib.closing(connect.open_file(file, migrate=False, on_upgrade=_no_upgrade)):
            with check.reading(file, locked=True) as source:
                contents = verify.verify(source, file)
                changed = _fill(source, file, url)
            return Moved(contents, _leave_note(file, url), changed)
    except (OSError, sqlite3.DatabaseError) as error:
        raise StoreUnusable(f"{file} cannot be moved: {error}") from error


def _no_upgrade(before: str, after: str, kept: Path) -> None:
    raise AssertionError(before, after, kept)


def _fill(source: sqlite3.Connection, file: Path, url: str) -> int:
    """Returns how many values had to be changed."""
    name = without_password(url)
    with database.changing(url) as connection:
        last = connection.exec_driver_sql(_LAST).one_or_none()
        if last is not None:
            if tuple(last) == tuple(map(_storable, source.execute(_LAST).fetchone() or ())):
                return 0  # by a move that did not get as far as to rename the file
            raise StoreUnusable(
                f"{name} has a state already, up to commit {last[0]}; pass a database without one"
            )
        driver: Any = connection.connection.driver_connection
        if leader := lease.lock_if_over(driver):
            raise StoreUnusable(
                f"control node '{leader.name}' decides with {name}: stop all control nodes first"
            )
        changed = sum(_copy_table(source, driver, table) for table in s.metadata.sorted_tables)
        for table_name, (column, highest) in _NUMBERED.items():
            (number,) = source.execute(highest).fetchone()
            if number is not None:
                sequence = "SELECT setval(pg_get_serial_sequence(%s, %s), %s)"
                driver.execute(sequence, (table_name, column, number))
        driver.execute("ANALYZE")
        try:
            connection.commit()
        except sa.exc.DBAPIError as error:
            raise StoreUnusable(
                f"it is unknown whether the state has reached {name}"
                f" ({database.first_line(error)}): run the same command again, which finds out; do"
                f" not start a service with {file} before"
            ) from error
    return changed


def _copy_table(
    source: sqlite3.Connection, target: psycopg.Connection[Any], table: sa.Table
) -> int:
    """Returns how many values had to be changed."""
    columns = ", ".join(column.name for column in table.columns)
    flags = [isinstance(column.type, sa.Boolean) for column in table.columns]
    changed = 0
    rows = source.execute(f"SELECT {columns} FROM {table.name}")
    with (
        target.cursor() as cursor,
        cursor.copy(f"COPY {table.name} ({columns}) FROM STDIN") as copying,
    ):
        for row in rows:
            values = [_storable(value) for value in row]
            changed += sum(map(operator.ne, row, values))
            copying.write_row(
                [bool(v) if flag else v for v, flag in zip(values, flags, strict=True)]
            )
    return changed


def _storable(value: Any) -> Any:
    """Replace what PostgreSQL cannot store in a text, also in JSON, from where it may get into a
    text later."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, bytes) and b"\\u0000" in value:
        return _NUL.sub(rb"\1\\ufffd", value)
    return value


def _leave_note(file: Path, url: str) -> Path:
    """Keep the file under another name, and leave a line in its place."""
    kept = restore.set_aside(file, KEPT)
    line = f"{check.MOVED}{without_password(url)}; the file is kept as {kept.name}\n"
    with copy.temporary(file) as note:
        copy.create_private(note)
        note.write_text(line, "utf-8")
        copy.sync(note)
        status = kept.stat()
        if os.name == "posix" and os.geteuid() == 0:
            os.chown(note, status.st_uid, status.st_gid)
        note.replace(file)
    companion(file, "-wal").unlink(missing_ok=True)
    copy.sync(file.parent)
    return kept
