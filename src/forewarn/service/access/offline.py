"""Changes to a state while no service runs: the same commits and the same history as those of
a service, and the time in which no service ran still counts as such.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from forewarn.core import Durations, Refused
from forewarn.service.access.tokens import Tokens
from forewarn.service.engine.clock import Clock, ClockLimits, RealClock
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.writer import Writer
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.indexes.polls import PollIndex
from forewarn.service.upkeep import after_restore
from forewarn.service.upkeep.clock_acceptance import AcceptedClock, ClockAcceptance
from forewarn.service.upkeep.resume import resume
from forewarn.store import Store
from forewarn.store.engines import State, store_for, stored_state
from forewarn.store.port import Leadership, Member, NotLeading, StoreUnusable
from forewarn.support import guard
from forewarn.support.system import machine_id

NOTE_AFTER = 1.0  # seconds without the lease after which it is noted what is waited for

Notes: TypeAlias = Callable[[Sequence[str]], None]


@asynccontextmanager
async def opened(state: State, notes: Notes) -> AsyncIterator[tuple[Tokens, Writer]]:
    """Open the tokens in a state, created if there is none. Raises StoreUnusable, also if a
    service uses the state. If that takes long to find out, `notes` is called with why."""
    async with _opened_state(state, ClockLimits(), notes) as (store, writer, _, poll_index):
        yield Tokens(store, writer, poll_index), writer


async def accept_clock(state: State, by: str, notes: Notes) -> AcceptedClock | Refused:
    """Set the time of a state to the wall clock, however far apart the two are. Raises
    StoreUnusable and StoreFailed; `notes` as in `opened`."""
    async with _opened_state(state, ClockLimits(step=0, downtime=0), notes) as (
        store,
        writer,
        clock,
        poll_index,
    ):
        return await ClockAcceptance(store, writer, clock, poll_index).accept(by)


@asynccontextmanager
async def _opened_state(
    state: State, limits: ClockLimits, notes: Notes
) -> AsyncIterator[tuple[Store, Writer, Clock, PollIndex]]:
    with stored_state(state).keep_owner():
        store = store_for(state, migrate=False, member=_member())
        await store.open()
        try:
            if store.leadership is not None:
                await _lead(store.leadership, notes)
            poll_index, clock = PollIndex(store), RealClock(limits=limits)
            sightings, served_until, _ = await resume(store, poll_index, clock)
            host_index = HostIndex(store)
            host_index.load()
            writer = Writer(store, clock, Durations(), Ledger(), host_index)
            await after_restore.take_up(store, writer, sightings, served_until)
            yield store, writer, clock, poll_index
        finally:
            await store.close()


def _member() -> Member:
    """Return this process as a control node without an address, for as long as a command takes."""
    host = socket.gethostname()
    name = f"command {os.getpid()} on {host}"
    return Member(name=name, machine=f"{machine_id()}/{host}", address="")


async def _lead(leadership: Leadership, notes: Notes) -> None:
    """Take the lease of the control nodes for a moment. Raises StoreUnusable."""
    taking = guard.Tasks().start(leadership.take_at_once(), "lease")
    leader = None
    while not taking.done() and leader is None:  # the database may take its time to say who it is
        await asyncio.wait([taking], timeout=NOTE_AFTER)
        leader = leadership.leader()
    if not taking.done() and leader is not None:
        notes(
            [f"'{leader.name}' may still decide with this state; waiting until its lease is over"]
        )
    try:
        await taking
    except NotLeading as error:
        leader = error.leader
        if leader is None or not leader.address:
            raise StoreUnusable("another command changes this state now; try again") from error
        raise StoreUnusable(
            f"control node '{leader.name}' decides with this state: use its control API instead of"
            f" --state (--url {leader.address})"
        ) from error
