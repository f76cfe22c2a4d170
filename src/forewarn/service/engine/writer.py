"""From a command to a commit: reads the clock, decides, and waits until it is durable."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import msgspec

from forewarn.core import Changes, Command, Durations, Group, Now, Refused, Time
from forewarn.core.commands import Approve
from forewarn.core.deciding.joint import decide_together
from forewarn.core.refusal import Reason
from forewarn.core.registry import Put
from forewarn.service.engine import otel
from forewarn.service.engine.clock import Clock
from forewarn.service.engine.ledger import Ledger
from forewarn.store.port import Batch, Entry, Key, States, Store

Check: TypeAlias = Callable[[States], Refused | None]


class Decided(msgspec.Struct, frozen=True):
    """What a command brings about in a group without events, decided beforehand: it holds if
    the group is still the one it was, None being one that is not there."""

    before: Group | None
    changes: Changes
    after: Group


class Plan(msgspec.Struct, frozen=True):
    """What is to be done in one commit. A group that is in `decided` has one command only."""

    commands: Sequence[tuple[str, Command]] = ()
    puts: Sequence[Put] = ()
    decided: Mapping[str, Decided] = {}
    notes: Sequence[str] = ()  # what the caller is to be told, whatever the commands say


class Writer:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        rules: Durations,
        ledger: Ledger,
        key: Key | None = None,
        unless: Check | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ledger = ledger
        self._key = key
        self._unless = unless
        self.rules = rules

    def under(self, key: Key | None, unless: Check | None = None) -> Writer:
        """For one request: under the name that its caller has for it, which is committed with
        what it does; and only if `unless` has no objection to the state that it is done to."""
        return Writer(self._store, self._clock, self.rules, self._ledger, key, unless)

    def now(self) -> Now:
        return self._clock.now(self.rules)

    def restored(self, at: Time) -> None:
        """A copy became the state then: what was Scheduled in it waits for a while."""
        self._clock.restored(at)

    async def submit(self, group: str, command: Command) -> Changes | Refused:
        """Decide and make durable. Raises StoreFailed if it could not be; then nothing happened."""
        decisions = await self.submit_all([(group, command)])
        return decisions if isinstance(decisions, Refused) else decisions[0]

    async def submit_all(
        self, commands: Sequence[tuple[str, Command]], puts: Sequence[Put] = ()
    ) -> Sequence[Changes] | Refused:
        """Several commands, also to several groups, and what changes beside them, in one commit:
        all, or the first refusal and nothing. Each is decided after the one before it."""

        def plan(_states: States) -> Plan:
            return Plan(commands, puts)

        return await self.submit_planned(plan)

    async def submit_planned(
        self, plan: Callable[[States], Plan | Refused]
    ) -> Sequence[Changes] | Refused:
        """As `submit_all`, with what is to be done read off the states it is done to."""
        decisions: list[Changes] = []
        refusal: list[Refused] = []

        def work(states: States) -> Batch:
            decisions.clear()
            refusal.clear()
            now = self.now()
            planned = (self._unless(states) if self._unless else None) or plan(states)
            if isinstance(planned, Refused):
                refusal.append(planned)
                return Batch(now.at, now.lost)
            known = {n: d for n, d in planned.decided.items() if states.get(n) is d.before}
            commands = [(n, c) for n, c in planned.commands if n not in known]
            decided = decide_together(states, commands, now)
            if isinstance(decided, Refused):
                refusal.append(decided)
                return Batch(now.at, now.lost)
            decisions.extend(decided.decisions)
            otel.remember(span, decided.items)
            entries = [Entry(n, d.changes.items) for n, d in known.items() if d.changes.items]
            entries += [Entry(group, items) for group, items in decided.items.items()]
            after = {**decided.after, **{name: one.after for name, one in known.items()}}
            notes = (*planned.notes, *(note for one in decided.decisions for note in one.notes))
            return Batch(
                *(now.at, now.lost, tuple(entries), tuple(planned.puts), after),
                key=self._key,
                notes=tuple(dict.fromkeys(notes)),
                about=tuple(dict.fromkeys(one.event for one in decided.decisions if one.event)),
            )

        with self._ledger.hold("command"), otel.span("commit") as span:
            commit = await self._store.transact(work)
            otel.committed(span, commit, refusal)
        return refusal[0] if refusal else decisions

    async def approve(self, group: str, ids: Collection[str], by: str) -> Changes | Refused:
        """A guest's approval. An id that is not active may name an event that is over: that is
        looked up, and once more if one ended while we looked."""
        over: frozenset[str] = frozenset()
        for _ in range(2):
            decision = await self.submit(group, Approve(ids=tuple(ids), by=by, over=over))
            if not isinstance(decision, Refused) or decision.reason is not Reason.UNKNOWN:
                return decision
            records = await self._store.records(ids)
            over = frozenset(
                id for id, event in records.items() if event.group == group and event.listed
            )
        return await self.submit(group, Approve(ids=tuple(ids), by=by, over=over))
