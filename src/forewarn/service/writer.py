"""From a command to a commit: reads the clock, decides, and waits until it is durable."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from forewarn.core import Change, Changes, Command, Now, Refused, Rules, apply, decide
from forewarn.core.commands import Approve
from forewarn.core.joint import settle_jointly
from forewarn.core.refusal import Reason
from forewarn.core.registry import Put
from forewarn.service.clock import Clock
from forewarn.service.ledger import Ledger
from forewarn.store.port import Batch, Entry, States, Store


class Plan(msgspec.Struct, frozen=True):
    """What is to be done in one commit."""

    commands: Sequence[tuple[str, Command]] = ()
    puts: Sequence[Put] = ()


class Writer:
    def __init__(self, store: Store, clock: Clock, rules: Rules, ledger: Ledger) -> None:
        self._store = store
        self._clock = clock
        self._ledger = ledger
        self.rules = rules

    def now(self) -> Now:
        return self._clock.now(self.rules)

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
            planned = plan(states)
            if isinstance(planned, Refused):
                refusal.append(planned)
                return Batch(now.at, now.lost)
            after = States({}, *states.maps, registry=states.registry)
            items: dict[str, list[Change]] = {}
            for group, command in planned.commands:
                decision = decide(after[group], command, now)
                if isinstance(decision, Refused):
                    refusal.append(decision)
                    return Batch(now.at, now.lost)
                decisions.append(decision)
                items.setdefault(group, []).extend(decision.items)
                if decision.items:
                    after[group] = apply(after[group], decision.items)
            for group, more in settle_jointly(after, items, now).items():
                items.setdefault(group, []).extend(more)
            entries = tuple(Entry(group, tuple(some)) for group, some in items.items() if some)
            return Batch(now.at, now.lost, entries, tuple(planned.puts))

        with self._ledger.hold("command"):
            await self._store.transact(work)
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
