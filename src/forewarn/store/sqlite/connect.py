"""Preparation of a state file for use: it is created, upgraded or refused.

A file is refused before anything is changed. A new file gets its name when it is complete. A file
of an older schema is copied first, and then migrated in one transaction.
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
from forewarn.store.sql import schema as s
from forewarn.store.sqlite import check, copy, durability
from forewarn.store.sqlite.lock import Lock, take_lock
from forewarn.support.logs import logger

OnUpgrade = Callable[[str, str, Path], None]

MIGRATIONS = Path(__file__).parent / "migrations"

log = logger("forewarn")


def open_file(path: Path, *, migrate: bool, on_upgrade: OnUpgrade) -> Lock:
    """Lock the file, create or upgrade it if necessary, and return the lock. `on_upgrade` is called
    after an upgrade: with the schema before, the schema after, and the path of a copy of the old
    file."""
    schema = check.check_file(path)
    if schema is not None:
        check.check_schema(path, schema, migrate=migrate)
    lock = take_lock(path)
    try:
        copy.remove_leftovers(path)
        if durability.rewrite_log(path):
            log.info(
                "the state was not closed cleanly by the last process that used it; its log was"
                " written and synced again, and everything in it is kept",
                state=str(path),
            )
        if schema is None and not path.exists():
            _create(path)
            lock.take_inode(path)
        else:
            _upgrade(path, migrate=migrate, on_upgrade=on_upgrade)
        _check_columns(path)
    except BaseException:
        lock.close()
        raise
    return lock


def create_engine(path: Path) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.StaticPool)
    sa.event.listen(engine, "connect", _set_pragmas)
    return engine


def migrate_to(connection: sa.Connection, target: str) -> None:
    """Apply the migrations from the current schema of the file up to `target`, in the transaction
    that is open. Imports Alembic, which an ordinary start does not need."""
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
        copy.create_private(unfinished)
        engine = sa.create_engine(f"sqlite:///{unfinished}")
        with engine.begin() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            s.metadata.create_all(connection)
            connection.exec_driver_sql(
                "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
            )
            connection.exec_driver_sql(
                "INSERT INTO alembic_version VALUES (?)", (s.SCHEMA_VERSION,)
            )
        engine.dispose()
        copy.sync(unfinished)
        unfinished.rename(path)
        copy.sync(path.parent)


def _upgrade(path: Path, *, migrate: bool, on_upgrade: OnUpgrade) -> None:
    with check.reading(path, locked=True) as connection:
        schema = check.schema_of(connection, path)
        at = _latest_time(connection)
    check.check_schema(path, schema, migrate=migrate)
    if schema == s.SCHEMA_VERSION:
        return
    kept = copy.copy_beside(path, f".schema-{schema}", at)
    with contextlib.ExitStack() as stack:
        engine = create_engine(path)
        stack.callback(engine.dispose)
        with engine.begin() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            migrate_to(connection, s.SCHEMA_VERSION)
    on_upgrade(schema, s.SCHEMA_VERSION, kept)


def _latest_time(connection: sqlite3.Connection) -> Time:
    """Return the latest time in the file."""
    row = connection.execute(
        "SELECT max(at) FROM (SELECT max(at) AS at FROM commits UNION ALL"
        " SELECT value FROM service WHERE key = 'served_until')"
    ).fetchone()
    return row[0] or 0


def _check_columns(path: Path) -> None:
    """Refuse a file that does not have all columns of its schema: a development version may have
    written it."""
    with check.reading(path, locked=True) as connection:
        for column in check.missing_columns(connection):
            raise StoreUnusable(
                f"{path} claims to have schema {s.SCHEMA_VERSION}, but has no column {column}:"
                " it was written by a development version. Restore a backup of a release"
                " (forewarn restore), or move it away, start with a new state and apply the fleet"
                " file"
            )


def _set_pragmas(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
