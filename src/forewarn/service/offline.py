"""What can be done to a state file while no service runs, as a service would have done it: the same
commits, the same history, and the time in which nobody served still counts as that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from forewarn.core import Rules
from forewarn.service import restoring
from forewarn.service.clock import RealClock
from forewarn.service.ledger import Ledger
from forewarn.service.tokens import Tokens
from forewarn.service.witness import Witness
from forewarn.service.writer import Writer
from forewarn.store.sqlite import SqliteStore


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[Tokens, Writer]]:
    """The tokens in a state file, which is made if there is none. Raises StoreUnusable: also if
    a service has it."""
    store = SqliteStore(path, migrate=False)
    await store.open()
    try:
        witness, clock = Witness(store), RealClock()
        sightings = await witness.load()
        served_until, lost = sightings.served_until or 0, sightings.lost
        async for commit in store.commits(max(store.seq - 1, 0)):
            if commit.at >= served_until:
                served_until, lost = commit.at, max(lost, commit.lost)
        clock.resume(served_until or None, lost, floor=served_until)
        writer = Writer(store, clock, Rules(), Ledger())
        await restoring.take_up(store, writer, sightings, served_until)
        yield Tokens(store, writer, witness), writer
    finally:
        await store.close()
