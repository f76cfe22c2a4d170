"""The SQLite engine: one file, `synchronous=FULL`.

The file belongs to one process at a time; how it is prepared is `connect.py`, and what a failed
COMMIT means `durability.py`.

Before each write, and in `check`, the names of the files are compared with the files that are open.
If the log or its index was removed or replaced, its contents are still available through the open
descriptors: they are saved to the state file, and a new log is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from forewarn.core import Time
from forewarn.store.port import (
    Copy,
    OutcomeUnknown,
    StoreFailed,
    StoreUnreadable,
    StoreUnusable,
)
from forewarn.store.sql import read
from forewarn.store.sql.store import SqlStore
from forewarn.store.sqlite import connect, copy, durability
from forewarn.store.sqlite.file_identity import FileIdentity
from forewarn.store.sqlite.lock import Lock, companion
from forewarn.support.logs import logger

SET_ASIDE = "-wal.replaced"  # suffix for a file that was put in place of the log

log = logger("forewarn")


class SqliteStore(SqlStore):
    dialect = "sqlite"

    def __init__(self, path: Path, *, migrate: bool = True) -> None:
        super().__init__()
        self.path = path.resolve()  # one lock, whichever symbolic link is used
        self._migrate = migrate
        self._lock: Lock | None = None
        self._engine: sa.Engine | None = None
        self._files = FileIdentity(None, None, None)  # those that are open
        self._files_problem = ""  # what is wrong with them

    def problem(self) -> str:
        return self._outcome_unknown or self._files_problem or super().problem()

    def size(self) -> int:
        return sum(map(_size, (self.path, companion(self.path, "-wal"))))

    async def check(self) -> None:
        await self._run_write(self._check_files)

    async def copy(self, at: Time) -> Copy | None:
        try:
            await self.check()
            state_copy = await asyncio.to_thread(copy.copy_to_stream, self.path, at)
            try:
                await self.check()  # otherwise another file may have been copied
            except BaseException:
                state_copy.file.close()
                raise
        except (OSError, StoreUnusable, StoreFailed) as error:
            raise StoreUnreadable(f"no copy could be made: {error}") from error
        return state_copy

    def _error_text(self, error: Exception) -> str:
        return f"{self.path}: {getattr(error, 'orig', None) or error}"

    # In the writer's thread from here on.

    def _connection(self) -> contextlib.AbstractContextManager[sa.Connection]:
        if self._engine is None:
            raise StoreFailed(f"{self.path}: the store is closed")
        return self._engine.begin()

    @contextlib.contextmanager
    def _writing(self, changes: int = 0, at: Time = 0) -> Iterator[sa.Connection]:  # noqa: ARG002
        if self._outcome_unknown:
            raise StoreFailed(self._outcome_unknown)
        self._check_files()
        if self._engine is None:
            raise StoreFailed(f"{self.path}: the store is closed")
        with self._engine.connect() as connection:
            transaction = connection.begin()
            try:
                yield connection
            except BaseException:
                transaction.rollback()
                raise
            try:
                transaction.commit()
            except sa.exc.DBAPIError as error:
                if durability.had_no_effect(error.orig):
                    raise
                raise OutcomeUnknown(
                    f"{self._error_text(error)}: it is unknown whether the last commit is on disk;"
                    " the next start keeps whatever it finds in the log"
                ) from error
        current = FileIdentity.of(self.path)
        if self._files.unchanged(current):
            self._files = current  # with a log that has grown

    def _check_files(self) -> None:
        """Check that the open files are still found under their names; else no write is durable."""
        current = FileIdentity.of(self.path)
        if self._files.unchanged(current):
            self._files_problem = ""
            return
        try:
            self._save_log(current)
        except StoreFailed as failure:
            self._files_problem = str(failure)
            raise
        self._files_problem = ""

    def _save_log(self, current: FileIdentity) -> None:
        """Save the log to the state file, through the descriptors that are open. If the path still
        leads to that state file, start a new log."""
        if self._engine is None:
            raise StoreFailed(f"{self.path}: the store is closed")
        if self._files.same_state(current) and current.state_size < self._files.state_size:
            raise StoreFailed(
                f"{self.path}: the file was truncated while in use; restore a backup, and restart"
                " the service"
            )
        log_path = companion(self.path, "-wal")
        try:
            with self._engine.connect() as connection:
                self._checkpoint(connection)
                self._files = msgspec.structs.replace(self._files, log_size=0)
                if not self._files.same_state(current):
                    raise StoreFailed(
                        f"{self.path}: the file was removed or replaced while in use; put it back,"
                        " or restart the service"
                    )
                if current.log not in (None, self._files.log) and current.log_size:
                    log_path.replace(companion(self.path, SET_ASIDE))  # SQLite would remove it
                # SQLite refuses this while another process has the state open; it is retried.
                self._reading.submit(self._close_reader).result()
                connection.exec_driver_sql("PRAGMA journal_mode=DELETE")
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                read.last_commit(connection)  # which opens the log
            copy.sync(self.path.parent)
        except (sa.exc.DBAPIError, OSError) as error:
            raise StoreFailed(
                f"{log_path} was removed, replaced or truncated while in use, and its contents"
                f" could not be saved yet ({getattr(error, 'orig', None) or error})"
            ) from error
        self._files = FileIdentity.of(self.path)
        log.warning(
            "the log of the state was removed, replaced or truncated while in use; its contents"
            " were saved to the state file, and a new log was started",
            log_file=str(log_path),
        )

    def _checkpoint(self, connection: sa.Connection) -> None:
        row = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
        if row[0]:
            raise StoreFailed(f"{self.path}: the state is being read; the log is saved afterwards")

    def _open(self) -> None:
        try:
            self._lock = connect.open_file(
                self.path, migrate=self._migrate, on_upgrade=_log_upgrade
            )
            self._engine = connect.create_engine(self.path)
            with self._connection() as connection:
                self._load(connection)
            copy.sync(self.path.parent)  # SQLite ignores a failure of this sync
            self._files = FileIdentity.of(self.path)
        except (OSError, sqlite3.DatabaseError, sa.exc.DatabaseError, msgspec.MsgspecError) as e:
            self._close()
            reason = str(getattr(e, "orig", None) or e)
            raise StoreUnusable(f"{self.path} cannot be used as state: {reason}") from e
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # In the reading thread.

    def _make_reader(self) -> sa.Engine:
        reader = sa.create_engine(f"sqlite:///{self.path}", poolclass=sa.pool.StaticPool)
        sa.event.listen(reader, "connect", _set_query_only)
        return reader


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _set_query_only(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA query_only=ON")
    cursor.close()


def _log_upgrade(before: str, after: str, kept: Path) -> None:
    log.warning("the state was upgraded", schema=after, before=before, kept=str(kept))
