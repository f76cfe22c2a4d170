"""Preparation of a database: its tables are created, upgraded or refused.

The tables are those of every engine with rows, and three more: `leader`, with a single row that
says which control node decides, `control_nodes`, with a row for each (`nodes.py`), and `impacts`,
which belongs to the simulated driver.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa

from forewarn.store.port import StoreUnusable
from forewarn.store.postgres import impacts, nodes
from forewarn.store.postgres.session import connect, shares_sessions, through_pooler
from forewarn.store.sql import schema as s
from forewarn.support.logs import logger
from forewarn.support.urls import without_password

OLDEST_SERVER = 140000  # PostgreSQL 14, as the server tells its version
REPORT_AFTER = 3.0  # seconds after which it is logged what a start waits for

# The key is the term, so that a claim, which changes the key, waits for transactions that have
# locked it (FOR KEY SHARE), and a renewal does not.
_LEADER = """
CREATE TABLE leader (
  term bigint PRIMARY KEY,
  name text NOT NULL,
  machine text NOT NULL,
  address text NOT NULL,
  until timestamptz NOT NULL,
  length double precision NOT NULL
);
INSERT INTO leader VALUES (0, '', '', '', 'epoch', 0);
"""
_VERSION = "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
_LOCK = 4_919_131_752  # any number of our own: two nodes that start do not create tables at once

# By whichever node: the others wait until it has created the tables.
_WAITS_FOR_STANDBY = """
SELECT 1 FROM pg_stat_activity WHERE application_name = 'forewarn start'
   AND datname = current_database() AND wait_event = 'SyncRep'
"""
_NO_STANDBY = "the COMMIT waits for a synchronous standby, and none has confirmed it"
_SLOW = "another session changes them, or the database is slow"

# In the table `service`: the number of the oldest schema whose version can use this database, as
# written by an upgrade that only adds to it. Without it, only the version of its own schema can.
OLDEST_SCHEMA = "oldest-schema"

_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")

log = logger("forewarn")


def engine(connect: Callable[[], psycopg.Connection[Any]]) -> sa.Engine:
    """Return an engine with one connection, which is opened again after it was lost."""
    return sa.create_engine(
        "postgresql+psycopg://",
        creator=connect,
        pool_size=1,
        max_overflow=0,
    )


def prepare(url: str) -> None:
    """Create the tables if there are none, and refuse a database that cannot be used. Raises
    StoreUnusable."""
    with _reporting_if_slow(url), changing(url) as connection:
        connection.commit()


@contextmanager
def _reporting_if_slow(url: str) -> Iterator[None]:
    """Log what the database waits for, if the block takes long, and again if that changes. Nothing
    is given up: the first COMMIT of a new state waits for its standby as every other one does."""
    over = threading.Event()

    def report() -> None:
        logged = ""
        while not over.wait(REPORT_AFTER):
            why = _why_slow(url)
            if why != logged and not over.is_set():
                log.warning("the database has not prepared the tables of the state yet", why=why)
                logged = why

    threading.Thread(target=report, name="slow start", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _why_slow(url: str) -> str:
    try:
        with connect(url, "look") as connection:
            waits_for_standby = connection.execute(_WAITS_FOR_STANDBY).fetchone()
    except psycopg.Error as error:
        return first_line(error)
    return _NO_STANDBY if waits_for_standby else _SLOW


def check(url: str) -> None:
    """Refuse a database that cannot be used, and change nothing. Raises StoreUnusable."""
    with _examining(url) as connection:
        _checked_schema(connection, without_password(url))


def upgrade(url: str) -> str:
    """Bring the tables to the schema of this version. Returns the schema before."""
    with _examining(url) as connection:
        schema = schema_of(connection)
        if schema is None:
            raise StoreUnusable(f"{without_password(url)} contains no state yet")
        # There is only one schema so far.
        _checked_schema(connection, without_password(url), runs_with_older=False)
        return schema


@contextmanager
def changing(url: str) -> Iterator[sa.Connection]:
    """Open a transaction on a database that has the tables, or is given them. It is for the caller
    to commit it."""
    with _examining(url) as connection:
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if _checked_schema(connection, without_password(url)) is None:
            _create(connection)
        yield connection


@contextmanager
def _examining(url: str) -> Iterator[sa.Connection]:
    """Open a transaction on a server that can be used."""
    name = without_password(url)
    made = engine(lambda: connect(url, "start", autocommit=False, sends_much=True))
    try:
        with made.connect() as connection:
            _check_server(connection, name)
            driver: Any = connection.connection.driver_connection
            if through_pooler(driver) and shares_sessions(url):
                raise StoreUnusable(
                    f"{name} is reached through a connection pooler that gives a session to several"
                    " clients (such as PgBouncer with pool_mode = transaction): connect to the"
                    " server itself"
                )
            yield connection
    except (sa.exc.DBAPIError, psycopg.Error) as error:
        raise StoreUnusable(f"{name} cannot be used as state: {first_line(error)}") from error
    finally:
        made.dispose()


def _checked_schema(
    connection: sa.Connection, name: str, *, runs_with_older: bool = True
) -> str | None:
    """Return the schema of a database that this version can use; None if there is none yet.
    `runs_with_older`: a newer schema will do, if it says that this version can use it."""
    schema = schema_of(connection)
    if schema is not None and schema > s.SCHEMA_VERSION:
        if runs_with_older and _oldest_schema(connection) <= s.SCHEMA_VERSION:
            return schema
        raise StoreUnusable(
            f"{name} has schema {schema}, this version has {s.SCHEMA_VERSION}: it was written by a"
            " newer version of forewarn; install that"
        )
    if schema not in (None, s.SCHEMA_VERSION):
        raise StoreUnusable(
            f"{name} has schema {schema}, this version has {s.SCHEMA_VERSION}: make a backup, stop"
            " every control node, and run `forewarn upgrade`"
        )
    return schema


def schema_of(connection: sa.Connection) -> str | None:
    """Return the schema of the state in this database; None if there is none yet."""
    if connection.exec_driver_sql("SELECT to_regclass('alembic_version')").scalar() is None:
        return None
    version: str | None = connection.exec_driver_sql(
        "SELECT version_num FROM alembic_version"
    ).scalar()
    return version


def _oldest_schema(connection: sa.Connection) -> str:
    """Return the oldest schema whose version of forewarn can use this database."""
    value = connection.exec_driver_sql(
        "SELECT value FROM service WHERE key = %s", (OLDEST_SCHEMA,)
    ).scalar()
    return "9999" if value is None else f"{value:04}"


def first_line(error: Any) -> str:
    """Return what an error of the database says, without the statement."""
    text = str(getattr(error, "orig", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _create(connection: sa.Connection) -> None:
    for index, where in s.partial_indexes:
        index.dialect_options["postgresql"]["where"] = where
    s.metadata.create_all(connection)
    connection.exec_driver_sql(_VERSION)
    connection.exec_driver_sql("INSERT INTO alembic_version VALUES (%s)", (s.SCHEMA_VERSION,))
    connection.exec_driver_sql(_LEADER)
    connection.exec_driver_sql(impacts.TABLE)
    connection.exec_driver_sql(nodes.TABLE)


def _check_server(connection: sa.Connection, name: str) -> None:
    def setting(key: str) -> str:
        return str(connection.exec_driver_sql("SELECT current_setting(%s)", (key,)).scalar())

    if int(setting("server_version_num")) < OLDEST_SERVER:
        raise StoreUnusable(
            f"{name} runs PostgreSQL {setting('server_version')}; 14 is the oldest that can be used"
        )
    if setting("server_encoding") != "UTF8":
        raise StoreUnusable(
            f"{name} has the encoding {setting('server_encoding')}; create it with ENCODING 'UTF8'"
        )
    for key in _SETTINGS:
        if setting(key) in ("off", "local"):
            raise StoreUnusable(
                f"{name} has {key} = {setting(key)}: commits that were acknowledged could be lost;"
                " set it to 'on'"
            )
