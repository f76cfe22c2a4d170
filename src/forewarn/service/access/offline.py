"""What can be done to a state file while no service runs, as a service would have done it: the same
commits, the same history, and the time in which nobody served still counts as that.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from forewarn.core import Durations, Refused, Time
from forewarn.core.access import Token
from forewarn.service.access.tokens import Tokens
from forewarn.service.engine.clock import Clock, ClockLimits, RealClock
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.writer import Writer
from forewarn.service.indexes.polls import PollIndex
from forewarn.service.upkeep import after_restore
from forewarn.service.upkeep.clock_acceptance import Accepted, ClockAcceptance
from forewarn.store import Store, StoreUnusable
from forewarn.store.sqlite import check
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.store.sqlite.lock import companion

_decode = msgspec.json.Decoder(Token).decode


def listed(path: Path) -> list[tuple[Token, Time | None]]:
    """The tokens in a state file, the newest last, and when each was last used. It is only read,
    also while a service has it. Raises StoreUnusable."""
    check.check_header(path)
    try:
        with check.reading(path) as connection:
            check.check_schema(path, check.schema_of(connection, path), migrate=False)
            bodies = connection.execute("SELECT body FROM tokens").fetchall()
            used = dict(connection.execute("SELECT id, used FROM token_uses"))
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(f"{path} is damaged ({error}): {check.INSTEAD}") from error
    found = [_decode(body) for (body,) in bodies]
    found.sort(key=lambda token: (token.created_at, token.id))
    return [(token, used.get(token.id)) for token in found]


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[Tokens, Writer]]:
    """The tokens in a state file, which is made if there is none. Raises StoreUnusable: also if
    a service has it."""
    async with _taken_up(path, ClockLimits()) as (store, writer, _, poll_index):
        yield Tokens(store, writer, poll_index), writer


async def accept_clock(path: Path, by: str) -> Accepted | Refused:
    """Set the time of a state file to the wall clock, however far apart the two are. Raises
    StoreUnusable and StoreFailed."""
    async with _taken_up(path, ClockLimits(step=0, downtime=0)) as (
        store,
        writer,
        clock,
        poll_index,
    ):
        return await ClockAcceptance(store, writer, clock, poll_index).accept(by)


@asynccontextmanager
async def _taken_up(
    path: Path, limits: ClockLimits
) -> AsyncIterator[tuple[Store, Writer, Clock, PollIndex]]:
    new = [part for part in _parts(path) if not part.exists()]
    store = SqliteStore(path, migrate=False)
    await store.open()
    try:
        poll_index, clock = PollIndex(store), RealClock(limits=limits)
        sightings = await poll_index.load()
        served_until, lost = sightings.served_until or 0, sightings.lost
        async for commit in store.commits(max(store.seq - 1, 0)):
            if commit.at >= served_until:
                served_until, lost = commit.at, max(lost, commit.lost)
        copied = sightings.copied is not None
        clock.resume(served_until or None, lost, floor=served_until, copied=copied)
        writer = Writer(store, clock, Durations(), Ledger())
        await after_restore.take_up(store, writer, sightings, served_until)
        yield store, writer, clock, poll_index
    finally:
        await store.close()
        _hand_over(new, path)


def _parts(path: Path) -> list[Path]:
    return [path, *(companion(path, end) for end in (".lock", "-wal", "-shm"))]


def _hand_over(made: list[Path], path: Path) -> None:
    """What root has made belongs to whoever the state belongs to, or else its directory."""
    if os.geteuid() != 0:
        return
    like = (path.parent if path in made else path).stat()
    for part in made:
        if part.exists():
            os.chown(part, like.st_uid, like.st_gid)
