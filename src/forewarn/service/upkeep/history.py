"""The history as people ask for it, and how long it is kept.

A name that nobody knows now may still have a history; only one that never had any is refused,
with what may have been meant. What is too old goes here as well, but never what is not over.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from forewarn.core import Event, Refused
from forewarn.core.access import forgettable
from forewarn.core.history import Record
from forewarn.core.refusal import conflict, invalid, unknown
from forewarn.core.registry import Put, RolloutRemoved, TokenRemoved
from forewarn.core.rollouts.model import caused
from forewarn.core.time import DAY, HOUR, Duration
from forewarn.service.engine.writer import CommitPlan, Writer
from forewarn.service.indexes.machines import MachineIndex
from forewarn.store.port import HistoryQuery, Mark, Store
from forewarn.support import guard
from forewarn.support.suggest import instead_of
from forewarn.support.text import listing

HISTORY: Duration = 90 * DAY  # how long it is kept, unless somebody says otherwise
HISTORY_LEAST: Duration = 24 * HOUR  # what may be said
PRUNE_EVERY = 600.0  # seconds of guard time between two looks for what is too old
EXPORT_PAGE = 500  # records of an export in memory at a time
SHOWN_ID = 40  # characters of what somebody took for an id
MEANT_AT_MOST = 10  # events that are named when an id is cut too short


_ID = re.compile(r"[0-9A-F-]{1,36}", re.ASCII)  # or the beginning of one


class HistoryPage(msgspec.Struct, frozen=True):
    records: Sequence[Record]
    next: Mark | None = None  # where the next page goes on; None: there is none


class History:
    def __init__(
        self,
        store: Store,
        machine_index: MachineIndex,
        writer: Writer,
        kept: Duration | None = HISTORY,
    ) -> None:
        self._store = store
        self._machine_index = machine_index
        self._writer = writer
        self.pruned = 0  # records, since the process began
        self._kept = kept

    def keep(self, kept: Duration | None) -> None:
        """For another time from now on; None: for ever."""
        self._kept = kept

    async def page(self, wanted: HistoryQuery) -> HistoryPage | Refused:
        found = await self._meant(wanted)
        if isinstance(found, Refused):
            return found
        records = await self._store.history(found)
        if not records and (nobody := await self._nobody(found)):
            return nobody
        more = len(records) == wanted.limit
        return HistoryPage(records, (records[-1].at, records[-1].seq) if more else None)

    async def export(self, wanted: HistoryQuery) -> AsyncIterator[Record] | Refused:
        """All that matches and has happened by now, the oldest first, a page at a time."""
        found = await self._meant(wanted)
        if isinstance(found, Refused):
            return found
        until = self._writer.now().at + 1
        if found.until is not None:
            until = min(until, found.until)
        found = msgspec.structs.replace(
            found, until=until, newest_first=False, before=None, limit=EXPORT_PAGE
        )
        first = await self._store.history(found)
        if not first and (nobody := await self._nobody(found)):
            return nobody
        return self._pages(found, first)

    async def _pages(self, wanted: HistoryQuery, page: Sequence[Record]) -> AsyncIterator[Record]:
        while page:
            for record in page:
                yield record
            if len(page) < wanted.limit:
                return
            wanted = msgspec.structs.replace(wanted, after=(page[-1].at, page[-1].seq))
            await guard.pause(0)  # the engine may not have let anybody else have a turn
            page = await self._store.history(wanted)

    async def prune(self) -> int:
        """Remove records that are older than the history is kept, and return how many. While the
        wall clock is untrusted, the age of records is unknown and nothing is removed."""
        if self._kept is None or self._writer.now().untrusted is not None:
            return 0
        cutoff = self._writer.now().at - self._kept
        rollouts = self._store.registry.rollouts.values()
        over = [r.id for r in rollouts if r.ended_at is not None and r.ended_at < cutoff]
        tokens = forgettable(self._store.registry.tokens.values(), self._writer.now().at)
        gone: list[Put] = [RolloutRemoved(id) for id in over]
        gone += [TokenRemoved(token.id) for since, token in tokens if since < cutoff]
        if gone:
            await self._writer.commit(CommitPlan(puts=gone))
        records = await self._store.prune(cutoff, self._keeps())
        self.pruned += records
        return records

    def _keeps(self) -> Callable[[Event], bool]:
        """A rollout reads its progress off the events it caused: they stay as long as it does."""
        rollouts = frozenset(self._store.registry.rollouts)
        return lambda event: caused(event.cause) in rollouts

    async def _meant(self, wanted: HistoryQuery) -> HistoryQuery | Refused:
        """With the whole id of the event of which the beginning was said."""
        if wanted.event is None:
            return wanted
        said = wanted.event.strip().upper()
        if not said:
            return invalid("give the id of an event, or its first characters")
        ids = await self._store.ids(said, MEANT_AT_MOST + 1) if _ID.fullmatch(said) else ()
        if not ids:
            return unknown(
                f"no event '{wanted.event[:SHOWN_ID]}' in the history"
                " (forewarn event list --all; what ended long ago may have been forgotten)"
            )
        if len(ids) > 1 and said not in ids:
            return conflict(f"'{wanted.event}' could be {listing(ids)}")
        return msgspec.structs.replace(wanted, event=said if said in ids else ids[0])

    async def _nobody(self, wanted: HistoryQuery) -> Refused | None:
        """Is there one among the names that is not known now and has no history at all?"""
        known = self._machine_index
        hosts = self._store.registry.hosts
        machine, group, host = wanted.machine, wanted.group, wanted.host
        doubts: list[tuple[str, HistoryQuery]] = []
        if machine is not None and known.machine(machine) is None:
            doubts.append((known.unknown_machine(machine), HistoryQuery(machine=machine, limit=1)))
        if group is not None and known.group(group) is None:
            doubts.append((known.unknown_group(group), HistoryQuery(group=group, limit=1)))
        if host is not None and host not in hosts:
            says = f"no host '{host}'; {instead_of(host, list(hosts))}"
            doubts.append((says, HistoryQuery(host=host, limit=1)))
        for says, alone in doubts:
            if not await self._store.history(alone):
                return unknown(f"nothing is in the history, and there is {says}")
        return None
