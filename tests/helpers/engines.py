"""A state in each engine, for tests of what all of them promise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from forewarn.store import MemoryStore, Store
from forewarn.store.memory import Disk
from forewarn.store.port import Member
from forewarn.store.sqlite.engine import SqliteStore
from helpers import postgres

Reopen: TypeAlias = Callable[[], Store]

ENGINES = ("memory", "sqlite", "postgres")


def state(engine: str, directory: Path) -> Reopen:
    """Return a function that opens the same state again each time it is called."""
    if engine == "memory":
        disk = Disk()
        return lambda: MemoryStore(disk)
    if engine == "sqlite":
        return lambda: SqliteStore(directory / "state.db")
    postgres.needed()
    url = postgres.shared_server().new_state()
    return lambda: _leading(url)


def _leading(url: str) -> Store:
    from forewarn.store.postgres.engine import PostgresStore

    class Leading(PostgresStore):
        async def open(self) -> None:
            await super().open()
            await self.leadership.take()

    return Leading(url, Member(name="c1", machine="m1", address="127.0.0.1:1"))
