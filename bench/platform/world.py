"""What is measured: a fleet of any size in a real node, on a store that counts its batches.

The machines stand in scale sets of a hundred (of ten, where there are only a thousand). What is
done to them is only written down, at once and in memory: a driver's time is not the service's.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from forewarn.core import Duration, Machine
from forewarn.core.commands import Define, Enable
from forewarn.core.fleet import GroupKind, Host
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.node import Config, Node
from forewarn.node.config import Address
from forewarn.node.daemon.run import COLLECT
from forewarn.service.fleet.build import Fleet
from forewarn.store import MemoryStore, Store, engines
from forewarn.store.port import Member
from forewarn.store.postgres.engine import PostgresStore
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.support import guard

SQLITE, MEMORY = "SQLite", "memory"
PER_HOST = 20
FIRST_ADDRESS = 1 << 16  # 127.1.0.0
AT_ONCE = 256  # groups that are enabled at a time


def per_group(machines: int) -> int:
    return 10 if machines <= 1_000 else 100


def address(number: int) -> str:
    number += FIRST_ADDRESS
    return f"127.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def fleet(machines: int, each: int) -> Fleet:
    """Scale sets on hosts, twenty machines on each."""
    hosts = [
        Host(name=f"h{n}", labels={"rack": f"r{n % 100}"}) for n in range(machines // PER_HOST)
    ]
    groups = {
        f"set{first // each}": Define(
            kind=GroupKind.SCALE_SET,
            machines=tuple(
                Machine(
                    name=f"set{first // each}_{n - first}",
                    addresses=(address(n),),
                    host=hosts[n // PER_HOST].name,
                )
                for n in range(first, first + each)
            ),
            labels={"tier": "web"},
        )
        for first in range(0, machines, each)
    }
    return Fleet(groups, tuple(hosts))


def store(kind: str, directory: Path) -> Store:
    """A store of a kind, or in the database of a URL."""
    if engines.is_url(kind):
        return PostgresStore(kind, Member(name="bench", machine="bench", address=""))
    return SqliteStore(directory / "state.db") if kind == SQLITE else MemoryStore()


@asynccontextmanager
async def running(
    machines: int, each: int, kept: Store, *, listening: bool = False
) -> AsyncIterator[Node]:
    """A node with a real clock, all of its groups listening."""
    config = Config(
        fleet=fleet(machines, each), metadata=Address("127.0.0.1", 0) if listening else None
    )
    async with started(config, kept) as node:
        yield node


@asynccontextmanager
async def started(config: Config, kept: Store) -> AsyncIterator[Node]:
    """The same, for any configuration."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    async with Node(config, store=kept, driver=SimulatedDriver(ImpactJournal(), _at_once)) as node:
        while not node.health.deciding:
            await guard.pause(0.01)
        names = list(node.store.groups)
        for first in range(0, len(names), AT_ONCE):
            some = names[first : first + AT_ONCE]
            await asyncio.gather(*(node.writer.submit(name, Enable()) for name in some))
        settle()
        yield node


def settle() -> None:
    """What `serve` does about garbage, once everything is there."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


def _at_once(_: Duration) -> Duration:
    return 0
