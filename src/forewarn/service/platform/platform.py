"""The operators' verbs about events and machines.

Each finds the group that a request is about and submits a command to it; what the command does is
decided in the core. Guests' verbs are `guests.py`, those about hosts `hosts.py`, those that remove
machines `removals.py`.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Collection, Sequence

import msgspec

from forewarn.core import (
    Changes,
    Event,
    EventType,
    Group,
    Policy,
    Refused,
    Source,
    Status,
    apply,
    decide,
    why,
)
from forewarn.core import commands as c
from forewarn.core.changes import EventMoved
from forewarn.core.deciding import joint
from forewarn.core.deciding.holds import Hold, with_clock
from forewarn.core.deciding.joint import members
from forewarn.core.deciding.removals import policy_problem
from forewarn.core.events import MAX_EVENT_MACHINES, UNKNOWN_DURATION
from forewarn.core.fleet import Health
from forewarn.core.lifecycle import Move
from forewarn.core.refusal import Hint, conflict, invalid, unknown
from forewarn.core.registry import Put
from forewarn.core.time import Duration, Time
from forewarn.service.engine.executor import Executor
from forewarn.service.engine.writer import Check, CommitPlan, RequestContext, Writer
from forewarn.service.faults.event_faults import EventFaults
from forewarn.service.indexes.events import ActiveEvents
from forewarn.service.indexes.machines import MachineIndex
from forewarn.service.indexes.polls import PollIndex
from forewarn.service.platform.explain import EventExplanation, summary, under_way
from forewarn.service.platform.host_state import host_of_gone, unhealthy_warning
from forewarn.store.port import States, Store
from forewarn.support.text import listing

MAX_PREFIX_MATCHES = 20  # events that are over and match the beginning of an id


class Outcome(msgspec.Struct, frozen=True):
    """The event that a verb was about, as it is now, and notes for the caller."""

    event: Event
    notes: tuple[str, ...] = ()


class Outcomes(msgspec.Struct, frozen=True):
    """The same for a verb about several events, or none."""

    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()


def new_id() -> str:
    return str(uuid.uuid4()).upper()


class Platform:
    def __init__(
        self,
        store: Store,
        writer: Writer,
        executor: Executor,
        poll_index: PollIndex,
        machine_index: MachineIndex,
        active: ActiveEvents,
        new_id: Callable[[], str] = new_id,
        event_faults: EventFaults | None = None,
    ) -> None:
        self._store = store
        self._event_faults = event_faults
        self._executor = executor
        self._active = active
        self.new_id = new_id
        self.writer = writer
        self.poll_index = poll_index
        self.machine_index = machine_index

    def for_request(self, request: RequestContext) -> Platform:
        """Return the same verbs, whose commits carry the context of one request."""
        bound = copy.copy(self)
        bound.writer = self.writer.for_request(request)
        return bound

    async def schedule(
        self,
        *,
        type: EventType,
        machines: tuple[str, ...],
        by: str,
        source: Source = Source.PLATFORM,
        notice: Duration | None = None,
        not_before: Time | None = None,
        short_notice: bool = False,
        description: str = "",
        duration: int = UNKNOWN_DURATION,
    ) -> Outcome | Refused:
        group = self.common_group(machines)
        if isinstance(group, Refused):
            return group
        command = c.Raise(
            id=self.new_id(),
            type=type,
            machines=machines,
            by=by,
            source=source,
            notice=notice,
            not_before=not_before,
            short_notice=short_notice,
            description=description,
            duration=duration,
        )
        return await self.announce(group, command)

    async def user_maintenance(self, machine: str, type: EventType, by: str) -> Outcome | Refused:
        """Announce a restart or a redeploy that a user has asked for."""
        group = self.common_group((machine,))
        if isinstance(group, Refused):
            return group
        command = c.UserMaintenance(id=self.new_id(), type=type, machine=machine, by=by)
        return await self.announce(group, command)

    async def set_policy(
        self, name: str, change: Callable[[Policy], Policy], by: str
    ) -> Group | Refused:
        """Change a group's policy. `change` is given the policy at the time of the commit, so that
        two callers who change different fields both succeed."""

        def plan(states: States) -> CommitPlan | Refused:
            group = states[name]
            if not group.machines:
                return self.machine_index.unknown_group(name)
            policy = change(group.policy)
            if problem := policy_problem(group.kind, policy):
                return invalid(f"group '{name}': {problem}")
            return CommitPlan([(name, c.SetPolicy(policy=policy, by=by))])

        done = await self.writer.commit(plan)
        return done if isinstance(done, Refused) else self._store.groups[name]

    async def restore(self, machine: str, by: str) -> tuple[str, ...] | Refused:
        """Bring a machine back that is gone, and return notes for the caller."""
        group = self.common_group((machine,))
        if isinstance(group, Refused):
            return group
        name = group.name
        notes: tuple[str, ...] = ()

        def plan(states: States) -> CommitPlan | Refused:
            nonlocal notes
            host = host_of_gone(states, name, machine)
            if host is not None and host.health is Health.FAILED:
                return conflict(
                    f"machine '{machine}' would be restored on host '{host.name}', which has"
                    " failed; repair the host, or put the machine on another one",
                    hint=Hint.REPAIR_HOST,
                    about=host.name,
                )
            notes = () if host is None or host.healthy else (unhealthy_warning(host, [machine]),)
            return CommitPlan([(name, c.Restore(machine=machine, by=by))], notes=notes)

        done = await self.writer.commit(plan)
        return done if isinstance(done, Refused) else notes

    async def approve(self, id: str, by: str) -> Outcome | Refused:
        return await self._submit_for_event(id, lambda id: c.OperatorApprove(id=id, by=by))

    async def cancel(self, id: str, by: str, why: str = "") -> Outcome | Refused:
        """Cancel an event, and with it the other groups' events of the same maintenance."""
        event = await self.event(id)
        if isinstance(event, Refused) or event.joint is None or event.status.over:
            return await self._submit_for_event(id, lambda id: c.Cancel(id=id, by=by, why=why))
        together = members(self._store.groups, event.joint)
        notes = (
            f"the whole maintenance of host '{event.host}' is cancelled,"
            f" for groups {listing(list(together))}",
        )
        commands = [
            (group, c.Cancel(id=member.id, by=by, why=why, jointly=True))
            for group, member in together.items()
        ]
        done = await self.writer.commit(CommitPlan(commands, notes=notes))
        if isinstance(done, Refused):
            return done
        return _outcome(await self.events([event.id]), notes)

    async def retry(self, id: str, by: str) -> Outcome | Refused:
        return await self._submit_for_event(id, lambda id: c.Retry(id=id, by=by))

    async def finish(self, id: str, by: str, reason: str) -> Outcome | Refused:
        return await self._submit_for_event(id, lambda id: c.Finish(id=id, by=by, reason=reason))

    async def disable(self, name: str, by: str) -> Changes | Refused:
        group = self.machine_index.group(name)
        if group is None:
            return self.machine_index.unknown_group(name)
        return await self.writer.submit(name, c.Disable(by=by))

    # Queries.

    def active(self) -> list[Event]:
        return list(self._active)

    async def past(
        self, group: str | None, limit: int, before: str | None = None
    ) -> Sequence[Event]:
        return await self._store.past_events(group=group, limit=limit, before=before)

    async def event(self, id: str) -> Event | Refused:
        """Find an event by its id, or by the beginning of its id if only one has it."""
        prefix = id.strip().upper()
        if not prefix:
            return invalid("pass the ID of an event, or a prefix of it")
        events = self._active.starting_with(prefix)
        if not events:
            events = list((await self._store.ended_events([prefix])).values())
        if not events:
            ids = await self._store.event_ids(prefix, MAX_PREFIX_MATCHES)
            events = list((await self._store.ended_events(ids)).values())
        if not events:
            active = listing([event.id for event in self.active()])
            return unknown(f"no event '{id}'; active events: {active}")
        if len(events) > 1:
            return conflict(
                f"'{id}' is ambiguous; it could be {listing([event.id for event in events])}"
            )
        return events[0]

    async def explain(self, id: str) -> EventExplanation | Refused:
        event = await self.event(id)
        if isinstance(event, Refused):
            return event
        group = self._store.groups[event.group]
        holds = self.holds(event)
        return EventExplanation(
            event=event,
            holds=holds,
            message=summary(event, holds),
            seen_by=self.poll_index.first_sights(event.id, [m.name for m in group.machines]),
        )

    def holds(self, event: Event) -> tuple[Hold, ...]:
        """Return what keeps an event from starting, by the predicates that decide it, or from
        ending."""
        now = self.writer.now()
        if event.status is not Status.SCHEDULED:
            holds = under_way(event)
            return with_clock(holds, now) if holds else ()
        if event.joint is not None:
            return joint.holds(self._store.groups, event.joint, now)
        return why(self._store.groups[event.group], event.id, now)

    async def announce_all(
        self,
        commands: Sequence[tuple[str, c.Command]],
        notes: tuple[str, ...] = (),
        puts: Callable[[States], Sequence[Put]] = lambda _: (),
        unless: Check = lambda _: None,
    ) -> Outcomes | Refused:
        """Announce several events in one commit, or none of them.

        First the commands are decided without effect, then the driver is asked whether it would
        carry the events out, and only then are they committed. `unless` is asked in the commit and
        may still refuse; `puts` is computed from the states that it has accepted.
        """
        if self._event_faults is None:
            return await self._announce_all(commands, notes, puts, unless)
        with self._event_faults.applied_to(commands) as faulted:
            all_notes = (*notes, *faulted.notes)
            outcomes = await self._announce_all(faulted.commands, all_notes, puts, unless)
            faulted.announced = not isinstance(outcomes, Refused)
            return outcomes

    async def _announce_all(
        self,
        commands: Sequence[tuple[str, c.Command]],
        notes: tuple[str, ...],
        puts: Callable[[States], Sequence[Put]],
        unless: Check,
    ) -> Outcomes | Refused:
        states, now = dict[str, Group](), self.writer.now()
        raised: list[Event] = []
        for name, command in commands:
            group = states.get(name) or self._store.groups[name]
            expected = decide(group, command, now)
            if isinstance(expected, Refused):
                return expected
            states[name] = apply(group, expected.items)
            raised += [
                item.event
                for item in expected.items
                if isinstance(item, EventMoved) and item.what is Move.RAISE
            ]
        if refused := await self._driver_refusal(raised):
            return refused
        decisions = await self.writer.commit(
            lambda s: unless(s) or CommitPlan(commands, puts(s), notes=notes)
        )
        if isinstance(decisions, Refused):
            return decisions
        all_notes = dict.fromkeys(
            (*notes, *(note for changes in decisions for note in changes.notes))
        )
        ids = dict.fromkeys(changes.event for changes in decisions if changes.event)
        return Outcomes(tuple(await self.events(ids)), tuple(all_notes))

    async def _driver_refusal(self, raised: Sequence[Event]) -> Refused | None:
        checked: set[str] = set()
        for event in raised:
            together: list[Event] = []
            if event.joint is not None:
                if event.joint.id in checked:
                    continue
                checked.add(event.joint.id)
                together = [e for e in raised if e.joint is not None and e.joint.id in checked]
            if veto := await self._executor.veto(event, together):
                names = listing(event.resources)
                return conflict(f"the driver would not carry it out for {names}: {veto}")
        return None

    async def announce(self, group: Group, command: c.Command) -> Outcome | Refused:
        done = await self.announce_all([(group.name, command)])
        return done if isinstance(done, Refused) else _outcome(done.events, done.notes)

    async def _submit_for_event(
        self, id: str, command: Callable[[str], c.Command]
    ) -> Outcome | Refused:
        event = await self.event(id)
        if isinstance(event, Refused):
            return event
        if event.status.over:
            return conflict(f"event {event.id} is over ({event.ending or event.status.value})")
        return await self._submit(event.group, command(event.id))

    async def _submit(self, group: str, command: c.Command) -> Outcome | Refused:
        decision = await self.writer.submit(group, command)
        if isinstance(decision, Refused):
            return decision
        return _outcome(await self.events([decision.event]), decision.notes)

    async def events(self, ids: Collection[str]) -> list[Event]:
        """Return the events as they are now, whether they are over or not."""
        active = {id: event for id in ids if (event := self._active.get(id)) is not None}
        missing = [id for id in ids if id not in active]
        if missing:
            active.update(await self._store.ended_events(missing))
        return [active[id] for id in ids if id in active]

    def common_group(self, machines: tuple[str, ...]) -> Group | Refused:
        """Return the group that all these machines are in."""
        if len(machines) > MAX_EVENT_MACHINES:
            return invalid(
                f"an event can have at most {MAX_EVENT_MACHINES:,} machines, but this request"
                f" names {len(machines):,}; schedule several events"
            )
        groups: dict[str, str] = {}  # by name: its first machine
        for name in machines:
            group = self.machine_index.group_of(name)
            if group is None:
                return self.machine_index.unknown_machine(name)
            groups.setdefault(group, name)
        if not groups:
            return invalid("name at least one machine")
        if len(groups) > 1:
            members = listing([f"'{name}' is in '{group}'" for group, name in groups.items()])
            return invalid(
                f"all machines of an event must be in one group; {members}: schedule one event"
                " for each group"
            )
        return self._store.groups[next(iter(groups))]


def _outcome(events: Sequence[Event], notes: tuple[str, ...]) -> Outcome | Refused:
    return (
        Outcome(events[0], notes) if events else unknown("the event is over and no longer stored")
    )
