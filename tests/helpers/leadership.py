"""Control nodes with one state in PostgreSQL: their stores, and what happens to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import psycopg
import pytest
import sqlalchemy as sa

from forewarn.core import Machine
from forewarn.core.changes import MachinePut
from forewarn.core.fleet import Host
from forewarn.core.registry import HostPut
from forewarn.store import Batch, Commit, Entry, OutcomeUnknown, Store, StoreFailed
from forewarn.store.port import Deposed, Key, Member, States
from forewarn.store.postgres import engine, lease, session
from forewarn.store.postgres.engine import PostgresStore
from forewarn.support import guard
from helpers import postgres
from helpers.engines import expire
from helpers.waiting import LIMIT
from helpers.waiting import until_async as until

T = TypeVar("T")


def node(url: str, name: str, *, length: float = 30.0) -> PostgresStore:
    member = Member(name=name, machine=f"machine-of-{name}", address=f"{name}:8170")
    return PostgresStore(url, member, lease=length)


@contextlib.asynccontextmanager
async def opened(*stores: Any) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for store in stores:
            await store.open()
            stack.push_async_callback(store.close)
            store.leadership.follow()
        yield


async def take(store: Any) -> None:
    async with asyncio.timeout(LIMIT):
        await store.leadership.take()


async def put(store: Store, *names: str) -> Commit | None:
    return await store.transact(lambda _: Batch(1, 0, puts=hosts(names)))


def hosts(names: tuple[str, ...]) -> tuple[HostPut, ...]:
    return tuple(HostPut(Host(name=name)) for name in names)


def execute(url: str, statement: str, *values: object) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def numbers(url: str) -> list[int]:
    return [row[0] for row in execute(url, "SELECT seq FROM commits ORDER BY seq")]


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def claimed_at(statement: int) -> bool:
    """Claim the lease before this statement of a commit that another node writes. Returns False if
    it has fewer statements than that."""
    url = postgres.shared_server().new_state()
    first, second = node(url, "c1"), node(url, "c2")
    found: list[list[int]] = []
    count = 0

    def claim() -> None:
        nonlocal count
        if count == statement:
            execute(url, "UPDATE leader SET until = 'epoch'")
            with psycopg.connect(url, autocommit=True) as connection:
                assert second._lease.claim(connection, lease.look(connection))
            found.append(numbers(url))
        count += 1

    def work(_: States) -> Batch:
        machines = (MachinePut(Machine(name="web_0")),)
        key = Key("operator", "k1", "digest")
        return Batch(2, 0, (Entry("web", machines),), hosts(("h1",)), key=key)

    async with opened(first, second):
        await take(first)
        await put(first, "h0")
        with before_statements_of_writer(claim):
            try:
                await first.transact(work)
            except (OutcomeUnknown, StoreFailed):
                assert found == [[1]]
                assert numbers(url) == [1], "what was refused came into the log after a claim"
                return True
        assert not found, "a commit of a term that was over is in the log, and was acknowledged"
        return False


@contextlib.contextmanager
def before_statements_of_writer(call: Callable[[], None]) -> Iterator[None]:
    def counted(method: Any) -> Any:
        def counting(self: psycopg.Connection[Any], *arguments: Any, **named: Any) -> Any:
            name = self.info.parameter_status("application_name") or ""
            if name.startswith("forewarn writer"):
                call()
            return method(self, *arguments, **named)

        return counting

    with pytest.MonkeyPatch.context() as patch:
        for method in ("execute", "commit"):
            patch.setattr(psycopg.Connection, method, counted(getattr(psycopg.Connection, method)))
        yield


async def commit_in_doubt(url: str, happened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks just after the server has committed, or just before it was asked to."""
    first, second = node(url, "c1"), node(url, "c2")
    heard: list[int] = []
    first.on_commit(lambda commit, _: heard.append(commit.seq))
    async with opened(first, second):
        await take(first)
        await put(first, "h0")
        first.skip_numbers(1_000)  # as after a restore
        broken = break_next_commit(monkeypatch, after=happened)
        for host in ("h1", "h2"):
            with contextlib.suppress(StoreFailed, OutcomeUnknown):
                await put(first, host)
        assert broken
        assert heard == numbers(url), f"acknowledged {heard}, and in the log are {numbers(url)}"
        assert heard == [1, 1_002, 1_003]
        await until(lambda: second.seq == 1_003)
        assert first._lease.term == 2


async def commit_without_standby(
    url: str, comes_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby is away, and a COMMIT that waits for it is given up. Then the standby comes back,
    or the lease runs out first."""
    monkeypatch.setattr(engine, "WRITE_LIMIT", LIMIT)
    monkeypatch.setattr(lease, "_LOCK_PATIENCE", "20ms")
    first = node(url, "c1", length=900.0)
    async with opened(first):
        await take(first)
        with postgres.shared_server().without_standby():
            committing, before = await waiting_commit(first)
            attempts = ended_writers(monkeypatch)
            end_limits(first)
            await until(
                lambda: len(attempts) > 2 or committing.done() or waits(url, "forewarn claim %")
            )
            assert not committing.done(), "what is on one disk only was acknowledged"
            assert numbers(url) == before, "what is on one disk only can be read"
            if not comes_back:
                first._lease._until = 0.0
                await until(lambda: end_limits(first) and committing.done())
                assert isinstance(committing.exception(), Deposed)
                assert numbers(url) == before
        if comes_back:
            commit = await committing
            assert commit is not None
            assert numbers(url) == [*before, commit.seq]
            assert first._lease.term == 2
    second = node(url, "c2", length=900.0)
    expire(first)
    async with opened(second):
        await take(second)
        assert numbers(url) == [*before, second.seq]
        assert second.registry.hosts.keys() >= {LAST}


LAST = "last"  # the host in a commit that waits for its standby


async def waiting_commit(store: PostgresStore) -> tuple[asyncio.Task[Commit | None], list[int]]:
    """Return a commit that waits for its standby, and the numbers of those before it."""
    while True:
        before = numbers(store.url)
        committing = asyncio.get_running_loop().create_task(put(store, LAST))
        while not committing.done():
            if waits(store.url, "forewarn writer %"):
                return committing, before
            await guard.pause(0.01)


def waits(url: str, session: str) -> bool:
    """Return whether a session of this name waits for a standby."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    return bool(execute(url, f"{waiting} AND application_name LIKE %s", session))


def end_limits(store: PostgresStore) -> bool:
    """End the time of everything that the store is doing in the database."""
    watchdog = store._watchdog
    with watchdog._lock:
        watchdog._limits.update({key: (0.0, s) for key, (_, s) in watchdog._limits.items()})
    return True


def ended_writers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with every attempt to end the sessions of the last leader."""
    attempts: list[int] = []
    honest = psycopg.Connection.execute

    def counting(self: psycopg.Connection[Any], query: Any, *rest: Any, **named: Any) -> Any:
        if query == session._END:
            attempts.append(1)
        return honest(self, query, *rest, **named)

    monkeypatch.setattr(psycopg.Connection, "execute", counting)
    return attempts


def break_next_commit(monkeypatch: pytest.MonkeyPatch, *, after: bool) -> list[int]:
    """Break the connection of the next COMMIT; what is returned then has one item."""
    commit = sa.Connection.commit
    broken: list[int] = []

    def breaking(self: sa.Connection) -> None:
        if not broken:
            broken.append(1)
            if after:
                commit(self)
            shut(self.connection.driver_connection)  # type: ignore[arg-type]
            if after:
                self.exec_driver_sql("SELECT 1")  # which fails
        commit(self)

    monkeypatch.setattr(sa.Connection, "commit", breaking)
    return broken


def shut(connection: psycopg.Connection[Any]) -> None:
    with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
