"""From a command to a commit: read the clock, decide, and wait until the decision is durable and
guests are shown it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from forewarn.core import Changes, Command, Durations, Group, Refused, Time, World
from forewarn.core.deciding.decide import decide_all
from forewarn.core.deciding.reach import with_departures
from forewarn.core.halts import Halt
from forewarn.core.registry import Put, Registry
from forewarn.core.world import LastPoll
from forewarn.service.engine import otel
from forewarn.service.engine.clock import Clock
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.publishing import Publishing
from forewarn.service.indexes.hosts import HostIndex
from forewarn.store.port import Batch, Entry, Key, States, Store

Check: TypeAlias = Callable[[States], Refused | None]


class RequestContext(msgspec.Struct, frozen=True):
    """What the caller of one request attaches to whatever the request commits."""

    key: Key | None = None  # its idempotency key, stored in the same commit
    precondition: Check | None = None  # checked on the states that the commit would change


NO_CONTEXT = RequestContext()  # of what the service does by itself, and of guests


class Decided(msgspec.Struct, frozen=True):
    """The changes of a command to a group without events, decided before the commit. Valid only
    while the group is still `before`; None stands for a group that does not exist."""

    before: Group | None
    changes: Changes
    after: Group


class CommitPlan(msgspec.Struct, frozen=True):
    """The contents of one commit. A group in `decided` has exactly one command."""

    commands: Sequence[tuple[str, Command]] = ()  # each for a group, decided in this order
    puts: Sequence[Put] = ()
    decided: Mapping[str, Decided] = {}
    notes: Sequence[str] = ()  # for the caller, in addition to the notes of the commands


class Writer:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        rules: Durations,
        ledger: Ledger,
        host_index: HostIndex,
        publishing: Publishing | None = None,
        request: RequestContext = NO_CONTEXT,
    ) -> None:
        """Without `publishing`, whoever commits does not wait until guests are shown it."""
        self._store = store
        self._clock = clock
        self._ledger = ledger
        self._host_index = host_index
        self._publishing = publishing
        self._request = request
        # These are shared with all writers that are made from this one.
        self._rules = [rules]
        self._defined_above = [0]
        self._polls: list[dict[str, Any]] = []  # fields of `World`

    @property
    def rules(self) -> Durations:
        return self._rules[0]

    @rules.setter
    def rules(self, rules: Durations) -> None:
        self._rules[0] = rules

    @property
    def defined_above(self) -> int:
        """`World.defined_above`; 0 if the state was never restored."""
        return self._defined_above[0]

    @defined_above.setter
    def defined_above(self, number: int) -> None:
        self._defined_above[0] = number

    def follow_polls(
        self,
        polls: Mapping[str, LastPoll],
        heard: Mapping[str, Time],
        not_back: Mapping[str, Mapping[str, Time]],
    ) -> None:
        """Let decisions know of polls: these fields of `World` change as they come."""
        self._polls[:] = [{"polls": polls, "heard": heard, "not_back": not_back}]

    def for_request(self, request: RequestContext) -> Writer:
        """Return a writer whose commits carry the key and the precondition of one request."""
        return self._bound(self._publishing, request)

    def in_background(self) -> Writer:
        """Return a writer for what the service does by itself: nobody is told the result, so it
        goes on before guests are shown it."""
        return self._bound(None, self._request)

    def _bound(self, publishing: Publishing | None, request: RequestContext) -> Writer:
        bound = Writer(
            *(self._store, self._clock, self.rules, self._ledger, self._host_index),
            publishing,
            request,
        )
        bound._rules = self._rules
        bound._defined_above = self._defined_above
        bound._polls = self._polls
        return bound

    def now(self) -> World:
        return self._now(self._store.registry)

    def instant(self) -> World:
        """Return the time alone, without what decisions look at beside it."""
        return self._clock.now(self._rules[0])

    def now_with(self, halt: Halt) -> World:
        """Return the time as if only this halt were in effect."""
        hosts = self._host_index.halted_hosts((halt,))
        return msgspec.structs.replace(self.now(), halts=(halt,), halted_hosts=hosts)

    def _now(self, registry: Registry) -> World:
        now = self.instant()
        uninformed, reach = self._host_index.uninformed, self._host_index.unreachable
        strayed = self._host_index.strayed
        held = uninformed or reach.hosts or reach.left or strayed
        for fields in self._polls:
            now = msgspec.structs.replace(now, **fields)
        if not (registry.halts or registry.configurations or held or self.defined_above):
            return now
        unreachable, unreachable_since, left_unreachable = reach.at(now)
        return msgspec.structs.replace(
            now,
            halts=tuple(registry.halts.values()),
            halted_hosts=self._host_index.halted_hosts(registry.halts.values()),
            configurations=tuple(registry.configurations.values()),
            uninformed=uninformed,
            unreachable=unreachable,
            unreachable_since=unreachable_since,
            left_unreachable=left_unreachable,
            strayed=strayed,
            defined_above=self.defined_above,
        )

    def _with_departures(self, now: World, states: States) -> World:
        """Return `now` with the machines that have left hosts that are unreachable in this very
        batch, of which the index does not know yet."""
        for name, group in states.maps[0].items():
            if (before := self._store.groups.get(name)) is not None:
                now = with_departures(now, before, group)
        return now

    def restored(self, at: Time) -> None:
        """Note that a backup was restored at this time: its Scheduled events wait for a while."""
        self._clock.restored(at)

    async def submit(self, group: str, command: Command) -> Changes | Refused:
        """Decide one command and make it durable. If StoreFailed is raised, nothing happened."""
        decisions = await self.commit(CommitPlan([(group, command)]))
        return decisions if isinstance(decisions, Refused) else decisions[0]

    async def commit(
        self, plan: CommitPlan | Callable[[States], CommitPlan | Refused]
    ) -> Sequence[Changes] | Refused:
        """Make all of a plan durable in one commit, or return the first refusal and change
        nothing. Each command is decided on the states that the one before it leaves behind.

        A function is called with the states that the commit would change.
        """
        return (await self.commit_numbered(plan))[0]

    async def commit_numbered(
        self, plan: CommitPlan | Callable[[States], CommitPlan | Refused]
    ) -> tuple[Sequence[Changes] | Refused, int]:
        """Do the same, and also return the number of the commit; 0 if nothing has changed."""
        decisions: list[Changes] = []
        refusal: list[Refused] = []
        precondition = self._request.precondition

        def work(states: States) -> Batch:
            decisions.clear()
            refusal.clear()
            now = self._now(states.registry)
            if now.unreachable:
                now = self._with_departures(now, states)
            refused = precondition(states) if precondition else None
            planned = refused or (plan if isinstance(plan, CommitPlan) else plan(states))
            if isinstance(planned, Refused):
                refusal.append(planned)
                return Batch(now.at, now.lost)
            valid = {n: d for n, d in planned.decided.items() if states.get(n) is d.before}
            commands = [(n, c) for n, c in planned.commands if n not in valid]
            decision = decide_all(states, commands, now)
            if isinstance(decision, Refused):
                refusal.append(decision)
                return Batch(now.at, now.lost)
            decisions.extend(decision.decisions)
            placed, moving = self._host_index.placement.choose(
                states, decision.items, decision.after, planned.puts
            )
            items = {**decision.items, **placed}
            otel.remember(span, items)
            entries = [Entry(n, d.changes.items) for n, d in valid.items() if d.changes.items]
            entries += [Entry(group, changes) for group, changes in items.items()]
            after = {**decision.after, **moving, **{n: d.after for n, d in valid.items()}}
            notes = [*planned.notes, *(note for changes in decisions for note in changes.notes)]
            events = [changes.event for changes in decisions if changes.event]
            return Batch(
                *(now.at, now.lost, tuple(entries), tuple(planned.puts), after),
                key=self._request.key,
                notes=tuple(dict.fromkeys(notes)),
                about=tuple(dict.fromkeys(events)),
            )

        with self._ledger.hold("command"), otel.span("commit") as span:
            commit = await self._store.transact(work)
            otel.committed(span, commit, refusal)
        if commit is not None and self._publishing is not None:
            await self._publishing.shown([entry.group for entry in commit.entries])
        return refusal[0] if refusal else decisions, commit.seq if commit else 0
