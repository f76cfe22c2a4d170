"""A state file that this process does not serve: checked, copied, replaced or upgraded.

An upgrade changes nothing else: no commit is made, so the next service finds what the last one
left, and the time in between counts as not served.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec
import sqlalchemy as sa

from forewarn.core import Group, Time
from forewarn.core.access import Token
from forewarn.core.registry import stored_windows
from forewarn.core.rollouts.model import Rollout
from forewarn.core.windows.model import MaintenanceConfiguration, Window
from forewarn.store.port import Contents, RestoreResult, StoredState, StoreUnusable, UpgradeResult
from forewarn.store.sql import read
from forewarn.store.sql import schema as s
from forewarn.store.sql.write import COPIED
from forewarn.store.sqlite import check, connect, copy, restore
from forewarn.store.sqlite.lock import Lock, companion, reader_lock

_LAST = """
SELECT coalesce(max(seq), 0),
       max(coalesce(max(at), 0),
           coalesce((SELECT value FROM service WHERE key = 'served_until'), 0))
FROM commits
"""
_MARK = "INSERT OR IGNORE INTO service (key, value) VALUES (?, ?)"
_token = msgspec.json.Decoder(Token)
_group = msgspec.json.Decoder(Group)
_rollout = msgspec.json.Decoder(Rollout)
_configuration = msgspec.json.Decoder(MaintenanceConfiguration)


class SqliteFile(StoredState):
    def __init__(self, path: Path) -> None:
        self._path = path

    def problem(self) -> str:
        """Check all of the file, as at a start, unless a service has it open: that service has
        checked it, and changes it meanwhile."""
        path = self._path
        try:
            if path.exists() and self.in_use():
                check.check_header(path)
                with check.reading(path) as connection:
                    schema: str | None = check.schema_of(connection, path)
            else:
                schema = check.check_file(path)
            if schema is not None:
                check.check_schema(path, schema, migrate=False)
        except StoreUnusable as error:
            return str(error)
        except sqlite3.DatabaseError as error:
            return f"{path} is damaged ({error}): {check.REMEDY}"
        except OSError as error:
            return f"{error.filename or path}: {error.strerror}"
        return ""

    def in_use(self) -> bool:
        with reader_lock(self._path) as holder:
            return holder is not None

    def tokens(self) -> list[tuple[Token, Time | None]]:
        with self._reading() as connection:
            bodies = connection.execute("SELECT body FROM tokens").fetchall()
            used = dict(connection.execute("SELECT id, used FROM token_uses"))
            tokens = [_token.decode(body) for (body,) in bodies]
        tokens.sort(key=lambda token: (token.created_at, token.id))
        return [(token, used.get(token.id)) for token in tokens]

    def windows(self) -> list[tuple[str, Window]]:
        with self._reading() as connection:
            groups = connection.execute("SELECT body FROM groups").fetchall()
            rollouts = connection.execute("SELECT body FROM rollouts").fetchall()
            configurations = connection.execute("SELECT body FROM configurations").fetchall()
            return list(
                stored_windows(
                    (_group.decode(body) for (body,) in groups),
                    (_rollout.decode(body) for (body,) in rollouts),
                    (_configuration.decode(body) for (body,) in configurations),
                )
            )

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        path = self._path
        check.check_header(path)
        try:
            with check.reading(path) as connection:
                check.check_schema(path, check.schema_of(connection, path), migrate=False)
                yield connection
        except (sqlite3.DatabaseError, msgspec.MsgspecError) as error:
            raise StoreUnusable(f"{path} is damaged ({error}): {check.REMEDY}") from error

    def copy(self, target: Path, at: Time) -> Contents:
        if not self._path.is_file():
            raise StoreUnusable(f"{self._path} is not a file; pass the path of a state file")
        check.check_header(self._path)
        return copy.copy(self._path.resolve(), target, at)

    def restore(self, backup: Path, at: Time, *, force: bool) -> RestoreResult:
        return restore.restore(backup, self._path, at, force=force)

    def mark_restored(self) -> int:
        """Have the state used as it is, as a copy of one of which later changes are unknown.
        Returns its last commit."""
        state = self._path.resolve()
        if not state.exists():
            raise StoreUnusable(f"{state} does not exist; pass the path of a state file")
        try:
            with closing(_opened(state)), closing(sqlite3.connect(state)) as connection, connection:
                last, ends = connection.execute(_LAST).fetchone()
                connection.execute(_MARK, (COPIED, ends))
        except (OSError, sqlite3.DatabaseError) as error:
            raise StoreUnusable(f"{state} cannot be used as state: {error}") from error
        return int(last)

    def upgrade(self) -> UpgradeResult:
        """Leave the file unchanged if StoreUnusable is raised, unless the message names a copy of
        the old file."""
        state = self._path.resolve()
        if not state.exists() and not companion(state, "-wal").exists():
            raise StoreUnusable(f"{state} does not exist; pass the path of a state file")
        result = UpgradeResult(s.SCHEMA_VERSION, s.SCHEMA_VERSION, None)

        def on_upgrade(before: str, after: str, kept: Path) -> None:
            nonlocal result
            result = UpgradeResult(before, after, kept)

        def give_files_to_owner() -> None:
            if state.exists():
                copies = [result.kept] if result.kept else []
                copy.give_to_owner(state, companion(state, ".lock"), *copies)

        try:
            with ExitStack() as stack:
                stack.callback(give_files_to_owner)
                stack.callback(connect.open_file(state, migrate=True, on_upgrade=on_upgrade).close)
                _read_all(state)
        except (OSError, sqlite3.DatabaseError, sa.exc.DatabaseError, msgspec.MsgspecError) as e:
            reason = str(getattr(e, "orig", None) or e)
            kept = f"; the old file is kept as {result.kept}" if result.kept else ""
            raise StoreUnusable(f"{state} cannot be used as state: {reason}{kept}") from e
        return result

    @contextmanager
    def keep_owner(self) -> Iterator[None]:
        suffixes = ("", ".lock", "-wal", "-shm")
        files = [companion(self._path, suffix) for suffix in suffixes]
        new = [file for file in files if not file.exists()]
        try:
            yield
        finally:
            copy.give_to_owner(self._path, *new)


def _opened(state: Path) -> Lock:
    """Lock a file of this version's schema, as a service does when it starts."""

    def on_upgrade(*_: object) -> None: ...

    return connect.open_file(state, migrate=False, on_upgrade=on_upgrade)


def _read_all(state: Path) -> None:
    """Read the state as a service does when it starts, to find problems now."""
    engine = connect.create_engine(state)
    try:
        with engine.begin() as connection:
            read.groups(connection)
            read.registry(connection)
    finally:
        engine.dispose()
