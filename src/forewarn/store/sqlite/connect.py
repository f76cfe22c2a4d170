"""Prepares a state file for use: creates it, upgrades it, or refuses it.

A file is refused before anything is changed. A new file gets its name when it is complete, and an
older one is copied before it is migrated, in one transaction.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from forewarn.core import Time
from forewarn.store.port import StoreUnusable
from forewarn.store.sqlite import check, copy, durability
from forewarn.store.sqlite import schema as s
from forewarn.store.sqlite.lock import Lock, locked
from forewarn.support.logs import logger

OnUpgrade = Callable[[str, str, Path], None]

MIGRATIONS = Path(__file__).parent / "migrations"

log = logger("forewarn")


def open_file(path: Path, *, migrate: bool, on_upgrade: OnUpgrade) -> Lock:
    """Return the lock on the file, which exists and has the current schema then. `on_upgrade` is
    called after an upgrade: from which schema, to which, and where a copy of the old file is."""
    found = check.check_file(path)
    if found is not None:
        check.check_schema(path, found, migrate=migrate)
    lock = locked(path)
    try:
        copy.sweep(path)
        if durability.rewrite_log(path):
            log.info(
                "the state was not closed cleanly by the last process that used it; its log was"
                " written and synced again, and everything in it is kept",
                state=str(path),
            )
        if found is None and not path.exists():
            _create(path)
            lock.take_inode(path)
        else:
            _up_to_date(path, migrate=migrate, on_upgrade=on_upgrade)
        _check_columns(path)
    except BaseException:
        lock.close()
        raise
    return lock


def create_engine(path: Path) -> sa.Engine:
    made = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.StaticPool)
    sa.event.listen(made, "connect", _pragmas)
    return made


def migrate_to(connection: sa.Connection, target: str) -> None:
    """Apply the migrations from the schema that is found up to `target`, in the transaction that is
    open. Imports Alembic, which an ordinary start does not need."""
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)

    def steps(revision: tuple[str, ...], _context: object) -> object:
        return scripts._upgrade_revs(target, revision)  # type: ignore[arg-type]

    with EnvironmentContext(config, scripts, fn=steps) as environment:
        environment.configure(connection=connection)
        environment.run_migrations()


def _create(path: Path) -> None:
    with copy.temporary(path) as unfinished:
        copy.new(unfinished)
        plain = sa.create_engine(f"sqlite:///{unfinished}")
        with plain.begin() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            s.metadata.create_all(connection)
            connection.exec_driver_sql(
                "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
            )
            connection.exec_driver_sql(
                "INSERT INTO alembic_version VALUES (?)", (s.SCHEMA_VERSION,)
            )
        plain.dispose()
        copy.sync(unfinished)
        unfinished.rename(path)
        copy.sync(path.parent)


def _up_to_date(path: Path, *, migrate: bool, on_upgrade: OnUpgrade) -> None:
    with check.reading(path, watched_already=True) as connection:
        found = check.schema_of(connection, path)
        at = _ends(connection)
    check.check_schema(path, found, migrate=migrate)
    if found == s.SCHEMA_VERSION:
        return
    kept = copy.keep(path, f".schema-{found}", at)
    with contextlib.ExitStack() as stack:
        made = create_engine(path)
        stack.callback(made.dispose)
        with made.begin() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            migrate_to(connection, s.SCHEMA_VERSION)
    on_upgrade(found, s.SCHEMA_VERSION, kept)


def _ends(connection: sqlite3.Connection) -> Time:
    """Return the latest time in the file."""
    row = connection.execute(
        "SELECT max(at) FROM (SELECT max(at) AS at FROM commits UNION ALL"
        " SELECT value FROM service WHERE key = 'served_until')"
    ).fetchone()
    return row[0] or 0


def _check_columns(path: Path) -> None:
    """Refuse a file that does not have all columns of its schema: a development version may have
    written it."""
    with check.reading(path, watched_already=True) as connection:
        for lacks in check.missing_columns(connection):
            raise StoreUnusable(
                f"{path} says that it is of revision {s.SCHEMA_VERSION}, but has no {lacks}: an"
                " unfinished version has written it; choose another file"
            )


def _pragmas(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
