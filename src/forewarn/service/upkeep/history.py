"""Queries of the history, and its pruning.

A name that is not in the inventory may still have a history; only a name that never had one is
refused, with a suggestion. Records are pruned by age, but never those of events that are not over.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from forewarn.core import Event, Refused
from forewarn.core.access import forgettable
from forewarn.core.history import Record
from forewarn.core.refusal import Hint, conflict, invalid, unknown, unknown_name
from forewarn.core.registry import GroupForgotten, Put, RolloutRemoved, TokenRemoved
from forewarn.core.rollouts.model import caused
from forewarn.core.time import DAY, HOUR, Duration
from forewarn.service.engine.writer import CommitPlan, Writer
from forewarn.service.indexes.machines import MachineIndex
from forewarn.store.port import HistoryQuery, Mark, States, Store
from forewarn.support import guard
from forewarn.support.text import listing

HISTORY: Duration = 90 * DAY  # how long it is kept by default
HISTORY_LEAST: Duration = 24 * HOUR  # the shortest time that can be configured
FORGOTTEN_AT_ONCE = 200  # names of former groups that one pruning looks up
PRUNE_EVERY = 600.0  # seconds of guard time between two prunings
EXPORT_PAGE = 500  # records of an export in memory at a time
SHOWN_ID = 40  # characters of an unknown id in a message
MAX_AMBIGUOUS = 10  # events that are named if the beginning of an id is ambiguous


_ID = re.compile(r"[0-9A-F-]{1,36}", re.ASCII)  # or the beginning of one


class HistoryPage(msgspec.Struct, frozen=True):
    records: Sequence[Record]
    next: Mark | None = None  # where the next page starts; None on the last page


class History:
    def __init__(
        self,
        store: Store,
        machine_index: MachineIndex,
        writer: Writer,
        retention: Duration | None = HISTORY,
    ) -> None:
        self._store = store
        self._machine_index = machine_index
        self._writer = writer
        self.pruned = 0  # records, since the process started
        self._retention = retention
        self._forgotten_until = ""  # the last name that was looked up, in their order

    def keep(self, retention: Duration | None) -> None:
        """Change how long the history is kept; None for ever."""
        self._retention = retention

    async def page(self, query: HistoryQuery) -> HistoryPage | Refused:
        resolved = await self._resolve(query)
        if isinstance(resolved, Refused):
            return resolved
        query = resolved
        records = await self._store.history(query)
        if not records and (refused := await self._unknown_name(query)):
            return refused
        more = len(records) == query.limit
        return HistoryPage(records, (records[-1].at, records[-1].seq) if more else None)

    async def export(self, query: HistoryQuery) -> AsyncIterator[Record] | Refused:
        """Return all matching records up to now, the oldest first, read a page at a time."""
        resolved = await self._resolve(query)
        if isinstance(resolved, Refused):
            return resolved
        query = resolved
        until = self._writer.now().at + 1
        if query.until is not None:
            until = min(until, query.until)
        query = msgspec.structs.replace(
            query, until=until, newest_first=False, before=None, limit=EXPORT_PAGE
        )
        first = await self._store.history(query)
        if not first and (refused := await self._unknown_name(query)):
            return refused
        return self._pages(query, first)

    async def _pages(self, query: HistoryQuery, page: Sequence[Record]) -> AsyncIterator[Record]:
        while page:
            for record in page:
                yield record
            if len(page) < query.limit:
                return
            query = msgspec.structs.replace(query, after=(page[-1].at, page[-1].seq))
            await guard.pause(0)  # the store may have answered without yielding to the loop
            page = await self._store.history(query)

    async def prune(self) -> int:
        """Remove records that are older than the history is kept, and return how many. While the
        wall clock is untrusted, the age of records is unknown and nothing is removed."""
        if self._retention is None or self._writer.now().untrusted is not None:
            return 0
        cutoff = self._writer.now().at - self._retention
        rollouts = self._store.registry.rollouts.values()
        over = [r.id for r in rollouts if r.ended_at is not None and r.ended_at < cutoff]
        tokens = forgettable(self._store.registry.tokens.values(), self._writer.now().at)
        gone: list[Put] = [RolloutRemoved(id) for id in over]
        gone += [TokenRemoved(token.id) for since, token in tokens if since < cutoff]
        if gone:
            await self._writer.commit(CommitPlan(puts=gone))
        records = await self._store.prune(cutoff, self._keeps())
        self.pruned += records
        await self._forget_groups()
        return records

    async def _forget_groups(self) -> None:
        """Forget some of the groups that have no machines and are not in the history any more."""
        former = sorted(
            name
            for name, group in self._store.groups.items()
            if not group.machines and not group.events
        )
        start = next((n for n, name in enumerate(former) if name > self._forgotten_until), 0)
        names = former[start : start + FORGOTTEN_AT_ONCE]
        self._forgotten_until = names[-1] if names else ""
        gone = [n for n in names if not await self._store.history(HistoryQuery(group=n, limit=1))]

        def plan(states: States) -> CommitPlan:
            empty = [name for name in gone if name in states and not states[name].machines]
            return CommitPlan(puts=[GroupForgotten(name) for name in empty])

        if gone:
            await self._writer.commit(plan)

    def _keeps(self) -> Callable[[Event], bool]:
        """Return which events are kept: those from which a stored rollout reads its progress."""
        rollouts = frozenset(self._store.registry.rollouts)
        return lambda event: caused(event.cause) in rollouts

    async def _resolve(self, query: HistoryQuery) -> HistoryQuery | Refused:
        """Complete the id of an event of which only the beginning is given."""
        if query.event is None:
            return query
        prefix = query.event.strip().upper()
        if not prefix:
            return invalid("pass the ID of an event, or a prefix of it")
        ids = (
            await self._store.event_ids(prefix, MAX_AMBIGUOUS + 1) if _ID.fullmatch(prefix) else ()
        )
        if not ids:
            return unknown(
                f"no event '{query.event[:SHOWN_ID]}' in the history; what ended long ago may have"
                " been forgotten",
                hint=Hint.LIST_EVENTS,
            )
        if len(ids) > 1 and prefix not in ids:
            return conflict(f"'{query.event}' is ambiguous; it could be {listing(ids)}")
        return msgspec.structs.replace(query, event=prefix if prefix in ids else ids[0])

    async def _unknown_name(self, query: HistoryQuery) -> Refused | None:
        """Refuse a query for a name that is not in the inventory and has no history at all."""
        index = self._machine_index
        hosts = self._store.registry.hosts
        machine, group, host = query.machine, query.group, query.host
        unknown_names: list[tuple[Refused, HistoryQuery]] = []
        if machine is not None and index.machine(machine) is None:
            unknown_names.append(
                (index.unknown_machine(machine), HistoryQuery(machine=machine, limit=1))
            )
        if group is not None and index.group(group) is None:
            unknown_names.append((index.unknown_group(group), HistoryQuery(group=group, limit=1)))
        if host is not None and host not in hosts:
            refused = unknown_name("host", host, list(hosts))
            unknown_names.append((refused, HistoryQuery(host=host, limit=1)))
        for refused, name_query in unknown_names:
            if not await self._store.history(name_query):
                message = (
                    f"the history has no entries for this name, and there is {refused.message}"
                )
                return unknown(message, suggestion=refused.suggestion)
        return None
