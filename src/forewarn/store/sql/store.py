"""What the engines with rows share: one thread that writes, and one that reads what takes long.

Only the writer's thread uses the writer's connection, so that reads there wait for commits and see
them. The history and past commits, which may take long, are read in another thread and through
another connection, so that they do not delay commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, TypeVar

import msgspec
import sqlalchemy as sa

from forewarn.core import Event, Group, Time
from forewarn.core.history import Record
from forewarn.store.base import BatchingStore
from forewarn.store.port import (
    Commit,
    HistoryQuery,
    Key,
    KeyedRequest,
    MachineSighting,
    Mark,
    NotifyPosition,
    OutcomeUnknown,
    PollSightings,
    StoreFailed,
    StoreUnreadable,
)
from forewarn.store.sql import prune, read, write
from forewarn.store.sql import schema as s
from forewarn.store.sql.statements import Statements

PAGE = 256  # commits read at a time
PAGE_BYTES = 4 * 1024 * 1024  # fewer commits are read if they are larger than that together
PRUNE_SLICE = 200  # records or commits that are pruned in one transaction
SURROGATES = range(0xD800, 0xE000)

_MACHINE_SIGHTINGS = (
    "SELECT machine, polled, version, polls, ignored, answered FROM machine_sightings"
)

T = TypeVar("T")

_event = msgspec.json.Decoder(Event)
_commit = msgspec.json.Decoder(Commit)
_notify_position = msgspec.json.Decoder(NotifyPosition)


class SqlStore(BatchingStore):
    dialect: ClassVar[str]  # of SQL, by the name that SQLAlchemy has for it
    errors: ClassVar[tuple[type[Exception], ...]] = (sa.exc.SQLAlchemyError, OSError)

    def __init__(self) -> None:
        super().__init__()
        self._outcome_unknown = ""  # why the outcome of a commit is unknown
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._reader: sa.Engine | None = None

    async def open(self) -> None:
        try:
            await self._in_thread(self._open)
        except BaseException:
            self._reading.shutdown(wait=True)
            self._thread.shutdown(wait=True)
            raise

    async def close(self) -> None:
        await super().close()
        closed = asyncio.get_running_loop().run_in_executor(self._reading, self._close_reader)
        self._reading.shutdown(wait=False)  # a read that came after it would connect again
        await closed
        await self._in_thread(self._close)
        self._thread.shutdown(wait=True)

    def problem(self) -> str:
        return self._outcome_unknown or super().problem()

    async def _persist(
        self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
    ) -> None:
        before = {name: before[name] for name in after if name in before}
        await self._run_write(self._write, commits, before, after)

    async def commits(self, after: int) -> AsyncIterator[Commit]:
        until = self._seq
        while after < until:
            page = await self._run_read(self._page, after, until, thread=self._reading)
            if not page:
                return
            for commit in page:
                yield commit
            after = page[-1].seq

    async def keyed_request(self, owner: str, name: str) -> KeyedRequest | None:
        return await self._run_read(self._keyed_request, owner, name)

    async def save_answer(self, key: Key, status: int, answer: bytes) -> None:
        await self._run_write(self._save_answer, key, status, answer)

    async def ended_events(self, ids: Collection[str]) -> Mapping[str, Event]:
        among = read.is_one_of(s.events.c.id, ids, self.dialect)
        query = sa.select(s.events.c.body).where(among, s.events.c.over)
        return {event.id: event for event in await self._events(query)}

    async def past_events(
        self, *, group: str | None = None, limit: int = 100, before: str | None = None
    ) -> Sequence[Event]:
        query = sa.select(s.events.c.body).where(s.events.c.over)
        if group is not None:
            query = query.where(s.events.c.group_name == group)
        if before is not None:
            mark = sa.select(s.events.c.ordinal).where(s.events.c.id == before).scalar_subquery()
            query = query.where(s.events.c.ordinal < mark)
        return await self._events(query.order_by(s.events.c.ordinal.desc()).limit(limit))

    async def events_by_cause(self, prefix: str) -> Sequence[Event]:
        query = sa.select(s.events.c.body).where(_starts_with(s.events.c.cause, prefix))
        return await self._events(query.order_by(s.events.c.ordinal))

    async def event_ids(self, prefix: str, limit: int) -> Sequence[str]:
        id = s.events.c.id
        query = sa.select(id).where(_starts_with(id, prefix)).order_by(id).limit(limit)

        def select() -> list[str]:
            with self._connection() as connection:
                return list(connection.scalars(query))

        return await self._run_read(select)

    async def history(self, query: HistoryQuery) -> Sequence[Record]:
        statement = read.history_statement(query, self.dialect)
        return await self._run_read(self._read_history, statement, thread=self._reading)

    async def prune(self, cutoff: Time, keeps: Callable[[Event], bool]) -> int:
        removed = 0
        mark: Mark | None = (0, 0)
        while mark is not None:
            count, mark = await self._run_write(self._prune_history, cutoff, mark, keeps)
            removed += count
        needed = min(cutoff, self._oldest_needed(cutoff))
        while await self._run_write(self._prune_commits, needed, self._seq):
            pass
        return removed

    async def save(self, sightings: PollSightings) -> None:
        try:
            await self._run_write(self._save, sightings)
        except StoreFailed as failure:
            self._problem = str(failure)
            raise
        self._problem = ""

    async def sightings(self) -> PollSightings:
        return await self._run_read(self._sightings)

    async def notify_positions(self) -> Mapping[str, NotifyPosition]:
        return await self._run_read(self._notify_positions)

    async def save_notify_position(self, position: NotifyPosition) -> None:
        await self._run_write(self._save_notify_position, position)

    async def delete_notify_position(self, name: str) -> None:
        await self._run_write(self._delete_notify_position, name)

    async def _run_write(self, call: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()

        def write() -> T:
            try:
                return call(*arguments)
            except OutcomeUnknown as error:
                # Here, because the caller may have been cancelled. Runs before the caller goes on.
                self._outcome_unknown = str(error)
                loop.call_soon_threadsafe(self._on_unknown_outcome, error)
                raise

        try:
            return await self._in_thread(write)
        except self.errors as error:
            raise StoreFailed(self._error_text(error)) from error

    async def _run_read(
        self, call: Callable[..., T], *arguments: object, thread: ThreadPoolExecutor | None = None
    ) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(thread or self._thread, call, *arguments)
        except self.errors as error:
            raise StoreUnreadable(self._error_text(error)) from error
        except msgspec.MsgspecError as error:
            raise StoreUnreadable(self._error_text(error)) from error

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    @abstractmethod
    def _error_text(self, error: Exception) -> str:
        """Return a line about an error of the database that names the state."""

    # In the writer's thread from here on.

    @abstractmethod
    def _open(self) -> None:
        """Prepare the state, and load it."""

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _connection(self) -> contextlib.AbstractContextManager[sa.Connection]:
        """Return the writer's connection, to read."""

    @abstractmethod
    def _writing(
        self, changes: int = 0, at: Time = 0
    ) -> contextlib.AbstractContextManager[sa.Connection]:
        """Run the block, with so many changes, of which the latest is dated `at`, in a transaction.
        At the end of the block it is
        durable, has not happened (StoreFailed, or an error of SQLAlchemy), or has an unknown
        outcome (OutcomeUnknown)."""

    def _load(self, connection: sa.Connection) -> None:
        self._groups = read.groups(connection)
        self._registry = read.registry(connection)
        self._seq = read.last_commit(connection)

    def _write(
        self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
    ) -> None:
        with self._writing() as connection:
            self._write_batch(Statements(connection), commits, before, after)

    def _write_batch(
        self,
        statements: Statements,
        commits: Sequence[Commit],
        before: Mapping[str, Group],
        after: Mapping[str, Group],
    ) -> None:
        # The registry is still the one before: it is swapped when all this is durable.
        write.write(statements, commits, before, after, self._registry.hosts)

    def _prune_history(
        self, cutoff: Time, after: Mark, keeps: Callable[[Event], bool]
    ) -> tuple[int, Mark | None]:
        with self._writing() as connection:
            return prune.prune_history(connection, cutoff, after, keeps, PRUNE_SLICE)

    def _prune_commits(self, cutoff: Time, newest: int) -> bool:
        with self._writing() as connection:
            return prune.prune_commits(connection, cutoff, newest, PRUNE_SLICE)

    async def _events(self, query: sa.Select[Any]) -> Sequence[Event]:
        def select() -> list[Event]:
            with self._connection() as connection:
                return [_event.decode(body) for body in connection.scalars(query)]

        return await self._run_read(select)

    def _keyed_request(self, owner: str, name: str) -> KeyedRequest | None:
        k = s.keys.c
        with self._connection() as connection:
            row = connection.execute(
                sa.select(s.keys).where(k.owner == owner, k.name == name)
            ).one_or_none()
        if row is None:
            return None
        key = Key(row.owner, row.name, row.digest)
        return KeyedRequest(key, row.seq, row.at, row.status, row.answer or b"")

    def _save_answer(self, key: Key, status: int, answer: bytes) -> None:
        k = s.keys.c
        with self._writing() as connection:
            updated = connection.execute(
                s.keys.update()
                .where(k.owner == key.owner, k.name == key.name, k.digest == key.digest)
                .values(status=status, answer=answer)
            ).rowcount
        if not updated:
            raise StoreFailed(f"no request was carried out under the key '{key.name}'")

    def _save(self, sightings: PollSightings) -> None:
        changes = len(sightings.machines) + len(sightings.seen) + len(sightings.used)
        with self._writing(changes, sightings.served_until or 0) as connection:
            write.write_sightings(Statements(connection), sightings)

    def _sightings(self) -> PollSightings:
        with self._connection() as connection:
            seen = {r.group_name: r.seen for r in connection.execute(sa.select(s.sightings))}
            values = {row.key: row.value for row in connection.execute(sa.select(s.service))}
            used = {row.id: row.used for row in connection.execute(sa.select(s.token_uses))}
            shown = read.shown(connection)
            cursor = connection.exec_driver_sql(_MACHINE_SIGHTINGS).cursor
            assert cursor is not None
            rows = cursor.fetchall()  # of SQLite itself: there may be a hundred thousand
        machines = {
            name: MachineSighting(
                polled=polled, version=version, polls=polls, ignored=ignored, answered=answered
            )
            for name, polled, version, polls, ignored, answered in rows
        }
        return PollSightings(
            seen=seen,
            machines=machines,
            served_until=values.get("served_until"),
            lost=values.get("lost", 0),
            steady_since=values.get("steady_since", 0),
            used=used,
            shown=shown,
            copied=values.get(write.COPIED),
            known=values.get(write.KNOWN, 0),
            restored=values.get("restored"),
        )

    def _notify_positions(self) -> dict[str, NotifyPosition]:
        with self._connection() as connection:
            bodies = connection.scalars(sa.select(s.notify_positions.c.body))
            return {p.name: p for p in map(_notify_position.decode, bodies)}

    def _save_notify_position(self, position: NotifyPosition) -> None:
        with self._writing() as connection:
            write.write_notify_position(Statements(connection), position)

    def _delete_notify_position(self, name: str) -> None:
        with self._writing() as connection:
            connection.execute(s.notify_positions.delete().where(s.notify_positions.c.name == name))

    # In the reading thread.

    @abstractmethod
    def _make_reader(self) -> sa.Engine:
        """Make a connection next to the writer's, which sees what is committed."""

    def _read_connection(self) -> sa.Connection:
        if self._reader is None:
            self._reader = self._make_reader()
        return self._reader.connect()

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.dispose()
            self._reader = None

    def _read_history(self, statement: sa.Select[Any]) -> list[Record]:
        with self._read_connection() as connection:
            return list(read.history_records(connection.execute(statement)))

    def _page(self, after: int, until: int) -> list[Commit]:
        """Return some of the commits in the range; fewer if they are large."""
        c = s.commits.c
        query = sa.select(c.body).where(c.seq > after, c.seq <= until).order_by(c.seq).limit(PAGE)
        page: list[Commit] = []
        size = 0
        with self._read_connection() as connection:
            for body in connection.scalars(query):
                page.append(_commit.decode(body))
                size += len(body)
                if size > PAGE_BYTES:
                    break
        return page


def _starts_with(column: sa.Column[str], prefix: str) -> sa.ColumnElement[bool]:
    """Match a prefix as a range, for which an index can be used."""
    if not prefix:
        return sa.true()
    bound = _upper_bound(prefix)
    return sa.and_(column >= prefix, column < bound if bound else sa.true())


def _upper_bound(prefix: str) -> str:
    """Return the first text after all that start with `prefix`; empty if there is none."""
    start = prefix.rstrip(chr(sys.maxunicode))
    if not start:
        return ""
    code_point = ord(start[-1]) + 1
    if code_point == SURROGATES.start:  # which are no characters
        code_point = SURROGATES.stop
    return start[:-1] + chr(code_point)
