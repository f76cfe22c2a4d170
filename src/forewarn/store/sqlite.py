"""The SQLite engine: one file, one writer thread, `synchronous=FULL`.

The thread is the only one that touches the connection, so reads queue behind commits and see
them. Only the history is read beside it, in a thread and through a connection of its own: what
may take long must not keep a commit waiting. The file belongs to one process at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
import sqlalchemy as sa

from forewarn.core import Event, Group, Machine, Time
from forewarn.core.access import Token
from forewarn.core.fleet import Host
from forewarn.core.history import Record
from forewarn.core.registry import Registry
from forewarn.core.rollout import Rollout
from forewarn.store import asking, pruning, rows
from forewarn.store import schema as s
from forewarn.store.batching import BatchingStore
from forewarn.store.locking import locked
from forewarn.store.port import (
    Commit,
    Key,
    Keyed,
    Mark,
    Sightings,
    StoreFailed,
    StoreUnusable,
    Wanted,
)

PAGE = 256  # commits read at a time
PRUNE_SLICE = 200  # records or commits that are looked at before others get their turn

SURROGATES = range(0xD800, 0xE000)

T = TypeVar("T")

_group = msgspec.json.Decoder(Group)
_machine = msgspec.json.Decoder(Machine)
_event = msgspec.json.Decoder(Event)
_commit = msgspec.json.Decoder(Commit)
_host = msgspec.json.Decoder(Host)
_rollout = msgspec.json.Decoder(Rollout)
_token = msgspec.json.Decoder(Token)


class SqliteStore(BatchingStore):
    def __init__(self, path: Path, *, migrate: bool = True) -> None:
        super().__init__()
        self.path = path.resolve()  # the lock must be one, whatever name the file goes by
        self._migrate = migrate
        self._lock: IO[str] | None = None
        self._engine: sa.Engine | None = None
        self._identity: tuple[int, int] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._reader: sa.Engine | None = None
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="history")

    async def open(self) -> None:
        try:
            await self._in_thread(self._open)
        except BaseException:
            self._reading.shutdown(wait=True)
            self._thread.shutdown(wait=True)
            raise

    async def close(self) -> None:
        await super().close()
        await asyncio.get_running_loop().run_in_executor(self._reading, self._close_reader)
        self._reading.shutdown(wait=True)
        await self._in_thread(self._close)
        self._thread.shutdown(wait=True)

    async def _persist(
        self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
    ) -> None:
        before = {name: before[name] for name in after if name in before}
        try:
            await self._in_thread(self._write, commits, before, after)
        except sa.exc.SQLAlchemyError as error:
            raise StoreFailed(self._why(error)) from error

    def _why(self, error: sa.exc.SQLAlchemyError) -> str:
        return f"{self.path}: {getattr(error, 'orig', None) or error}"

    async def commits(self, after: int) -> AsyncIterator[Commit]:
        until = self._seq
        while after < until:
            page = await self._in_thread(self._page, after, until)
            if not page:
                return
            for commit in page:
                yield commit
            after = page[-1].seq

    async def keyed(self, owner: str, name: str) -> Keyed | None:
        return await self._in_thread(self._keyed, owner, name)

    async def answered(self, key: Key, status: int, answer: bytes) -> None:
        try:
            await self._in_thread(self._answered, key, status, answer)
        except sa.exc.SQLAlchemyError as error:
            raise StoreFailed(self._why(error)) from error

    async def records(self, ids: Collection[str]) -> Mapping[str, Event]:
        query = sa.select(s.events.c.body).where(s.events.c.id.in_(ids), s.events.c.over)
        return {event.id: event for event in await self._events(query)}

    async def past(self, *, group: str | None = None, limit: int = 100) -> Sequence[Event]:
        query = sa.select(s.events.c.body).where(s.events.c.over)
        if group is not None:
            query = query.where(s.events.c.group_name == group)
        return await self._events(query.order_by(s.events.c.ordinal.desc()).limit(limit))

    async def caused_by(self, cause: str) -> Sequence[Event]:
        query = sa.select(s.events.c.body).where(s.events.c.cause == cause)
        return await self._events(query.order_by(s.events.c.ordinal))

    async def caused_under(self, prefix: str) -> Sequence[Event]:
        query = sa.select(s.events.c.body).where(_begins(s.events.c.cause, prefix))
        return await self._events(query.order_by(s.events.c.ordinal))

    async def ids(self, prefix: str, limit: int) -> Sequence[str]:
        query = sa.select(s.events.c.id).where(_begins(s.events.c.id, prefix)).limit(limit)

        def read() -> list[str]:
            with self._connection() as connection:
                return list(connection.scalars(query))

        return await self._in_thread(read)

    async def history(self, wanted: Wanted) -> Sequence[Record]:
        query = asking.statement(wanted)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reading, self._read_history, query)

    async def prune(self, cutoff: Time, keeps: Callable[[Event], bool]) -> int:
        gone = 0
        mark: Mark | None = (0, 0)
        while mark is not None:
            some, mark = await self._in_thread(self._prune_history, cutoff, mark, keeps)
            gone += some
        needed = min(cutoff, self._oldest_needed(cutoff))
        while await self._in_thread(self._prune_commits, needed, self._seq):
            pass
        return gone

    async def save(self, sightings: Sightings) -> None:
        await self._in_thread(self._save, sightings)

    async def sightings(self) -> Sightings:
        return await self._in_thread(self._sightings)

    # In the writer thread from here on.

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    def _connection(self) -> contextlib.AbstractContextManager[sa.Connection]:
        if self._engine is None:
            raise StoreFailed(f"{self.path}: the store is closed")
        return self._engine.begin()

    def _open(self) -> None:
        try:
            self._lock = locked(self.path)
            self._engine = sa.create_engine(f"sqlite:///{self.path}", poolclass=sa.pool.StaticPool)
            sa.event.listen(self._engine, "connect", _pragmas)
            with self._engine.begin() as connection:
                self._upgrade(connection)
            self._load()
            self._identity = self._on_disk()
        except (OSError, sa.exc.DatabaseError, msgspec.MsgspecError) as error:
            self._close()
            reason = str(getattr(error, "orig", None) or error)
            raise StoreUnusable(f"{self.path} cannot be used as state: {reason}") from error
        except BaseException:
            self._close()
            raise

    def _on_disk(self) -> tuple[int, int] | None:
        """Which file the path leads to."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _upgrade(self, connection: sa.Connection) -> None:
        """Create or bring up to date. Alembic is imported only when there is something to do."""
        tables = set(sa.inspect(connection).get_table_names())
        if not tables:
            s.metadata.create_all(connection)
            connection.execute(
                sa.text(
                    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
                )
            )
            connection.execute(
                sa.text("INSERT INTO alembic_version VALUES (:v)"), {"v": s.SCHEMA_VERSION}
            )
            return
        if "alembic_version" not in tables:
            raise StoreUnusable(f"{self.path} is a database of something else; choose another file")
        found = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
        if found != s.SCHEMA_VERSION:
            from forewarn.store.migrate import upgrade

            upgrade(connection, self.path, str(found), allowed=self._migrate)
        self._check(connection)

    def _check(self, connection: sa.Connection) -> None:
        """A file may say what it is and not be it: one that some unfinished version has written."""
        query = sa.text(
            "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c"
            " WHERE m.type = 'table'"
        )
        there = {(row[0], row[1]) for row in connection.execute(query)}
        for table in s.metadata.sorted_tables:
            for column in table.columns:
                if (table.name, column.name) not in there:
                    raise StoreUnusable(
                        f"{self.path} says that it is of revision {s.SCHEMA_VERSION}, but has no"
                        f" {table.name}.{column.name}: an unfinished version has written it; choose"
                        " another file"
                    )

    def _load(self) -> None:
        with self._connection() as connection:
            groups = {
                row.name: _group.decode(row.body) for row in connection.execute(sa.select(s.groups))
            }
            machines: dict[str, list[Machine]] = {}
            for row in connection.execute(sa.select(s.machines).order_by(s.machines.c.ordinal)):
                machines.setdefault(row.group_name, []).append(_machine.decode(row.body))
            events: dict[str, list[Event]] = {}
            active = sa.select(s.events).where(~s.events.c.over).order_by(s.events.c.ordinal)
            for row in connection.execute(active):
                events.setdefault(row.group_name, []).append(_event.decode(row.body))
            self._groups = {
                name: msgspec.structs.replace(
                    group,
                    machines=tuple(machines.get(name, ())),
                    events=tuple(events.get(name, ())),
                )
                for name, group in groups.items()
            }
            hosts = [_host.decode(body) for body in connection.scalars(sa.select(s.hosts.c.body))]
            rollouts = [
                _rollout.decode(body) for body in connection.scalars(sa.select(s.rollouts.c.body))
            ]
            tokens = [_token.decode(b) for b in connection.scalars(sa.select(s.tokens.c.body))]
            self._registry = Registry(
                {h.name: h for h in hosts},
                {r.id: r for r in rollouts},
                {t.id: t for t in tokens},
            )
            self._seq = connection.scalar(sa.select(sa.func.max(s.commits.c.seq))) or 0

    def _write(
        self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
    ) -> None:
        if self._on_disk() != self._identity:
            raise StoreFailed(f"{self.path}: the file was removed or replaced while in use")
        with self._connection() as connection:
            # The registry is still the one before: it is swapped when all this is durable.
            rows.write(connection, commits, before, after, self._registry.hosts)

    def _prune_history(
        self, cutoff: Time, after: Mark, keeps: Callable[[Event], bool]
    ) -> tuple[int, Mark | None]:
        with self._connection() as connection:
            return pruning.prune_history(connection, cutoff, after, keeps, PRUNE_SLICE)

    def _prune_commits(self, cutoff: Time, newest: int) -> bool:
        with self._connection() as connection:
            return pruning.prune_commits(connection, cutoff, newest, PRUNE_SLICE)

    def _page(self, after: int, until: int) -> list[Commit]:
        c = s.commits.c
        query = sa.select(c.body).where(c.seq > after, c.seq <= until).order_by(c.seq).limit(PAGE)
        with self._connection() as connection:
            return [_commit.decode(body) for body in connection.scalars(query)]

    async def _events(self, query: sa.Select[Any]) -> Sequence[Event]:
        def read() -> list[Event]:
            with self._connection() as connection:
                return [_event.decode(body) for body in connection.scalars(query)]

        return await self._in_thread(read)

    def _keyed(self, owner: str, name: str) -> Keyed | None:
        k = s.keys.c
        with self._connection() as connection:
            row = connection.execute(
                sa.select(s.keys).where(k.owner == owner, k.name == name)
            ).one_or_none()
        if row is None:
            return None
        key = Key(row.owner, row.name, row.asked)
        return Keyed(key, row.seq, row.at, row.status, row.answer or b"")

    def _answered(self, key: Key, status: int, answer: bytes) -> None:
        k = s.keys.c
        with self._connection() as connection:
            kept = connection.execute(
                s.keys.update()
                .where(k.owner == key.owner, k.name == key.name, k.asked == key.asked)
                .values(status=status, answer=answer)
            ).rowcount
        if not kept:
            raise StoreFailed(f"nothing was carried out under the key '{key.name}'")

    def _save(self, sightings: Sightings) -> None:
        with self._connection() as connection:
            rows.write_sightings(connection, sightings)

    def _sightings(self) -> Sightings:
        with self._connection() as connection:
            seen = {r.group_name: r.seen for r in connection.execute(sa.select(s.sightings))}
            values = {row.key: row.value for row in connection.execute(sa.select(s.service))}
            used = {row.id: row.used for row in connection.execute(sa.select(s.token_uses))}
        return Sightings(
            seen=seen,
            served_until=values.get("served_until"),
            lost=values.get("lost", 0),
            used=used,
        )

    # In the reading thread.

    def _read_history(self, query: sa.Select[Any]) -> list[Record]:
        if self._reader is None:
            self._reader = sa.create_engine(f"sqlite:///{self.path}", poolclass=sa.pool.StaticPool)
            sa.event.listen(self._reader, "connect", _only_reads)
        with self._reader.connect() as connection:
            return list(asking.records(connection.execute(query)))

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.dispose()
            self._reader = None


def _begins(column: sa.Column[str], prefix: str) -> sa.ColumnElement[bool]:
    """As a range, which an index can serve."""
    if not prefix:
        return sa.true()
    beyond = _beyond(prefix)
    return sa.and_(column >= prefix, column < beyond if beyond else sa.true())


def _beyond(prefix: str) -> str:
    """The first text after all that begin so; empty if there is none."""
    rest = prefix.rstrip(chr(sys.maxunicode))
    if not rest:
        return ""
    following = ord(rest[-1]) + 1
    if following == SURROGATES.start:  # which stand for no character
        following = SURROGATES.stop
    return rest[:-1] + chr(following)


def _only_reads(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA query_only=ON")
    cursor.close()


def _pragmas(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
