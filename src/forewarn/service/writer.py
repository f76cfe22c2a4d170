"""From a command to a commit: reads the clock, decides, and waits until it is durable."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from forewarn.core import Changes, Command, Now, Refused, Rules, decide
from forewarn.core.commands import Approve
from forewarn.core.refusal import Reason
from forewarn.service.clock import Clock
from forewarn.service.ledger import Ledger
from forewarn.store.port import Batch, Entry, States, Store


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
        decisions = await self.submit_all({group: command})
        return decisions if isinstance(decisions, Refused) else decisions[group]

    async def submit_all(self, commands: Mapping[str, Command]) -> Mapping[str, Changes] | Refused:
        """Several groups in one commit: all, or the first refusal and nothing."""
        decisions: dict[str, Changes] = {}
        refusal: list[Refused] = []

        def work(states: States) -> Batch:
            decisions.clear()
            refusal.clear()
            now = self.now()
            for group, command in commands.items():
                decision = decide(states[group], command, now)
                if isinstance(decision, Refused):
                    refusal.append(decision)
                    return Batch(now.at, now.lost)
                decisions[group] = decision
            return Batch(
                now.at,
                now.lost,
                tuple(Entry(group, d.items) for group, d in decisions.items() if d.items),
            )

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
