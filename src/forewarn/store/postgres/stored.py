"""A state in PostgreSQL that this process does not serve: checked, read or upgraded.

Copies are the database's own business: `pg_dump`, base backups, archived logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import sqlalchemy as sa

from forewarn.core import Time
from forewarn.core.access import Token
from forewarn.core.registry import stored_windows
from forewarn.core.windows.model import Window
from forewarn.store.port import Contents, RestoreResult, StoredState, StoreUnusable, UpgradeResult
from forewarn.store.postgres import database, examine, lease
from forewarn.store.postgres.mirror import WENT_BACK
from forewarn.store.postgres.session import connect
from forewarn.store.sql import read
from forewarn.store.sql import schema as s
from forewarn.store.sql.write import COPIED, KNOWN
from forewarn.support.urls import without_password

TERMS_LOST = 1_000_000  # more than can have begun in what was lost
_MARKED = "SELECT value FROM service WHERE key = %s"
_ENDS = """
SELECT greatest((SELECT max(at) FROM commits),
                (SELECT value FROM service WHERE key = 'served_until'))
"""
_MARK = "INSERT INTO service (key, value) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_KNOWN = """
INSERT INTO service (key, value) SELECT %s, value FROM service WHERE key = %s
ON CONFLICT (key) DO UPDATE SET value = greatest(service.value, excluded.value)
"""
_SKIP_TERMS = "UPDATE leader SET term = term + %s, until = 'epoch'"
_BACKUP = "use the backups of the database itself, for example pg_dump or a base backup"


class PostgresState(StoredState):
    def __init__(self, url: str) -> None:
        self._url = url
        self._name = without_password(url)

    def problem(self) -> str:
        try:
            database.check(self._url)
        except StoreUnusable as error:
            return str(error)
        return ""

    def warnings(self, *, managed: bool) -> list[str]:
        try:
            with connect(self._url, "look") as connection:
                return list(examine.warnings(connection, managed=managed))
        except psycopg.Error as error:
            raise self._unusable(error) from error

    def in_use(self) -> bool:
        try:
            with connect(self._url, "look") as connection:
                row = lease.look(connection)
        except psycopg.errors.UndefinedTable:
            return False
        except psycopg.Error as error:
            raise self._unusable(error) from error
        return row.held

    def tokens(self) -> list[tuple[Token, Time | None]]:
        with self._reading() as connection:
            if connection is None:
                return []
            used = {row.id: row.used for row in connection.execute(sa.select(s.token_uses))}
            tokens = read.registry(connection).tokens.values()
        return [(token, used.get(token.id)) for token in sorted(tokens, key=_made)]

    def windows(self) -> list[tuple[str, Window]]:
        with self._reading() as connection:
            if connection is None:
                return []
            groups, registry = read.groups(connection), read.registry(connection)
        return list(
            stored_windows(
                groups.values(), registry.rollouts.values(), registry.configurations.values()
            )
        )

    def copy(self, target: Path, at: Time) -> Contents:  # noqa: ARG002
        raise StoreUnusable(f"{self._name} is not copied by forewarn: {_BACKUP}")

    def restore(self, backup: Path, at: Time, *, force: bool) -> RestoreResult:  # noqa: ARG002
        raise StoreUnusable(f"{self._name} is not restored by forewarn: {_BACKUP}")

    def upgrade(self) -> UpgradeResult:
        before = database.upgrade(self._url)
        return UpgradeResult(before=before, after=s.SCHEMA_VERSION, kept=None)

    def lost(self) -> tuple[int, int]:
        """Return the last commit, and the highest that was known before the database lost some; 0
        if no control node has noticed that it did."""
        with self._reading() as connection:
            if connection is None:
                raise StoreUnusable(f"{self._name} contains no state yet")
            marked = connection.exec_driver_sql(_MARKED, (WENT_BACK,)).scalar()
            return read.last_commit(connection), marked or 0

    def mark_restored(self) -> None:
        """Have the state used as it is, as a copy of one of which later changes are unknown."""
        with database.changing(self._url) as connection:
            driver: Any = connection.connection.driver_connection
            if leader := lease.lock_if_over(driver):
                raise StoreUnusable(
                    f"control node '{leader.name}' decides with {self._name}: stop all control"
                    " nodes first"
                )
            ends = connection.exec_driver_sql(_ENDS).scalar() or 0
            connection.exec_driver_sql(_MARK, (COPIED, ends))
            connection.exec_driver_sql(_KNOWN, (KNOWN, WENT_BACK))
            connection.exec_driver_sql("DELETE FROM service WHERE key = %s", (WENT_BACK,))
            connection.exec_driver_sql(_SKIP_TERMS, (TERMS_LOST,))
            connection.commit()

    def keep_owner(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection | None]:
        """Yield a connection, or None if there is no state in the database yet."""
        engine = database.engine(lambda: connect(self._url, "look", autocommit=False))
        try:
            with engine.connect() as connection:
                exists = database.schema_of(connection) is not None
                yield connection if exists else None
        except (sa.exc.DBAPIError, psycopg.Error, msgspec.MsgspecError) as error:
            raise self._unusable(error) from error
        finally:
            engine.dispose()

    def _unusable(self, error: Exception) -> StoreUnusable:
        return StoreUnusable(f"{self._name} cannot be read: {database.first_line(error)}")


def _made(token: Token) -> Time:
    return token.created_at
