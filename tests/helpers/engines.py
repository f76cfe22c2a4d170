"""A state in each engine, for tests of what all of them promise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import psycopg

from forewarn.store import MemoryStore, Store
from forewarn.store.memory import Disk
from forewarn.store.port import Member
from forewarn.store.sqlite.engine import SqliteStore
from helpers import postgres
from helpers.shared_memory import ENDED, SharedDisk, SharedMemoryStore

Reopen: TypeAlias = Callable[[], Store]

ENGINES = ("memory", "sqlite", "postgres")
SHARED = ("memory", "postgres")  # of which several processes can open the same state

Open: TypeAlias = Callable[[Member, float], Store]


def state(engine: str, directory: Path) -> Reopen:
    """Return a function that opens the same state again each time it is called."""
    if engine == "memory":
        disk = Disk()
        return lambda: MemoryStore(disk)
    if engine == "sqlite":
        return lambda: SqliteStore(directory / "state.db")
    postgres.needed()
    url = postgres.shared_server().new_state()
    return lambda: leading(url)


def live(engine: Reopen, *lives: Callable[[Store], Awaitable[None]]) -> None:
    """Run one life after the other, each with the store opened anew."""

    async def run(life: Callable[[Store], Awaitable[None]]) -> None:
        store = engine()
        await store.open()
        try:
            await life(store)
        finally:
            await store.close()

    for life in lives:
        asyncio.run(run(life))


def shared_state(engine: str) -> Open:
    """Return a function that opens the same state for each of several members, with a lease of so
    many seconds."""
    if engine == "memory":
        disk = SharedDisk()
        return lambda member, lease: SharedMemoryStore(disk, member, lease=lease)
    from forewarn.store.postgres.engine import PostgresStore

    postgres.needed()
    url = postgres.shared_server().new_state()
    return lambda member, lease: PostgresStore(url, member, lease=lease)


async def kill(store: Store) -> None:
    """End a store as kill -9 would end its process: the lease is not given back."""
    leadership = store.leadership
    assert leadership is not None
    if isinstance(store, SharedMemoryStore):
        store.leadership._term = 0
    else:
        leadership._lease.term = 0  # type: ignore[attr-defined]
    await store.close()


def expire(store: Store) -> None:
    """Let the lease on the state of this store run out, as after a long pause of who has it."""
    if isinstance(store, SharedMemoryStore):
        store.disk.lease.until = ENDED
    else:
        with psycopg.connect(store.url, autocommit=True) as connection:  # type: ignore[attr-defined]
            connection.execute("UPDATE leader SET until = 'epoch'")


def shorten(store: Store, length: float) -> None:
    """Let the lease of a store that was killed last for so many seconds."""
    if isinstance(store, SharedMemoryStore):
        store.disk.lease.length = length
    else:
        with psycopg.connect(store.url, autocommit=True) as connection:  # type: ignore[attr-defined]
            connection.execute("UPDATE leader SET length = %s", (length,))


def renew(store: Store) -> None:
    """Renew the lease of a store now."""
    if isinstance(store, SharedMemoryStore):
        store.leadership._renew()
    else:
        with psycopg.connect(store.url, autocommit=True) as connection:  # type: ignore[attr-defined]
            store._lease.renew(connection)  # type: ignore[attr-defined]


def leading(url: str) -> Store:
    from forewarn.store.postgres.engine import PostgresStore

    class Leading(PostgresStore):
        async def open(self) -> None:
            await super().open()
            await self.leadership.take()

    return Leading(url, Member(name="c1", machine="m1", address="127.0.0.1:1"))
