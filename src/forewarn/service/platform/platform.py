"""The operators' verbs, and the guests': everything that can be asked of a running service.

Finds the group a request is about and hands it a command. The faces translate what comes back;
they decide nothing, and neither does this.
"""

from __future__ import annotations

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
from forewarn.core.deciding.removals import policy_wrong
from forewarn.core.events import MAX_EVENT_MACHINES, UNKNOWN_DURATION
from forewarn.core.fleet import Health
from forewarn.core.lifecycle import Move
from forewarn.core.refusal import conflict, invalid, unknown
from forewarn.core.registry import Put
from forewarn.core.time import Duration, Time
from forewarn.service.engine.executor import Executor
from forewarn.service.engine.feed import Feed
from forewarn.service.engine.writer import Check, Plan, Writer
from forewarn.service.faults.event_faults import EventFaults
from forewarn.service.indexes.events import ActiveEvents
from forewarn.service.indexes.machines import MachineIndex
from forewarn.service.indexes.polls import PollIndex
from forewarn.service.platform.explain import Explanation, says, under_way
from forewarn.service.platform.host_health import host_of_gone, unwell
from forewarn.store.port import Key, States, Store
from forewarn.support.text import listing

MAX_MEANT = 20  # events that are over, of which the beginning of an id may say which


class Outcome(msgspec.Struct, frozen=True):
    """What a verb brought about: the event it is about, and what the caller should know."""

    event: Event
    notes: tuple[str, ...] = ()


class Outcomes(msgspec.Struct, frozen=True):
    """The same of a verb that is about several events, or none."""

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
        feed: Feed,
        poll_index: PollIndex,
        machine_index: MachineIndex,
        active: ActiveEvents,
        new_id: Callable[[], str] = new_id,
        event_faults: EventFaults | None = None,
    ) -> None:
        self._store = store
        self._event_faults = event_faults
        self._executor = executor
        self._feed = feed
        self._active = active
        self.new_id = new_id
        self.writer = writer
        self.poll_index = poll_index
        self.machine_index = machine_index

    def under(self, key: Key | None, unless: Check | None = None) -> Platform:
        """For one request, as its caller wants it: see `Writer.under`."""
        return Platform(
            self._store,
            self.writer.under(key, unless),
            self._executor,
            self._feed,
            self.poll_index,
            self.machine_index,
            self._active,
            self.new_id,
            self._event_faults,
        )

    # For guests.

    async def enable(self, group: str) -> None:
        """A machine of the group asks for the document: returns once there is one."""
        while True:
            await self.writer.submit(group, c.Enable())
            found = self._store.groups[group]
            if found.enabled:
                return
            if found.enabling_until is not None:  # else it was disabled in the same moment
                await self._feed.changed(group)

    async def approve_as(self, machine: str, group: str, ids: Sequence[str]) -> Changes | Refused:
        return await self.writer.approve(group, ids, by=machine)

    async def prepare_as(
        self, machine: str, group: str, id: str, ready: bool, note: str
    ) -> Changes | Refused:
        command = c.Prepare(id=id, machine=machine, ready=ready, note=note)
        return await self.writer.submit(group, command)

    def listed(self, group: str, id: str) -> Event | None:
        """The event, if the machines of the group are shown it now."""
        state = self._store.groups[group]
        event = state.event(id) if state.enabled else None
        return event if event is not None and event.listed else None

    # For operators.

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
        group = self.one_group(machines)
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

    async def maintain(self, machine: str, type: EventType, by: str) -> Outcome | Refused:
        group = self.one_group((machine,))
        if isinstance(group, Refused):
            return group
        command = c.UserMaintenance(id=self.new_id(), type=type, machine=machine, by=by)
        return await self.announce(group, command)

    async def set_policy(
        self, name: str, change: Callable[[Policy], Policy], by: str
    ) -> Group | Refused:
        """`change` is given the policy that is there when it is committed: two who change different
        things of it both succeed."""

        def plan(states: States) -> Plan | Refused:
            group = states[name]
            if not group.machines:
                return unknown(self.machine_index.unknown_group(name))
            policy = change(group.policy)
            if wrong := policy_wrong(group.kind, policy):
                return invalid(f"group '{name}': {wrong}")
            return Plan([(name, c.SetPolicy(policy=policy, by=by))])

        done = await self.writer.submit_planned(plan)
        return done if isinstance(done, Refused) else self._store.groups[name]

    async def restore(self, machine: str, by: str) -> tuple[str, ...] | Refused:
        """What the caller should know, if the machine is there again."""
        group = self.one_group((machine,))
        if isinstance(group, Refused):
            return group
        name = group.name
        notes: tuple[str, ...] = ()

        def plan(states: States) -> Plan | Refused:
            nonlocal notes
            host = host_of_gone(states, name, machine)
            if host is not None and host.health is Health.FAILED:
                return conflict(
                    f"machine '{machine}' would be there again on host '{host.name}', which has"
                    f" failed; repair the host (forewarn host repair {host.name}), or put the"
                    " machine on another one (forewarn apply)"
                )
            notes = () if host is None or host.healthy else (unwell(host, [machine]),)
            return Plan([(name, c.Restore(machine=machine, by=by))], notes=notes)

        done = await self.writer.submit_planned(plan)
        return done if isinstance(done, Refused) else notes

    async def approve(self, id: str, by: str) -> Outcome | Refused:
        return await self._on_event(id, lambda id: c.OperatorApprove(id=id, by=by))

    async def cancel(self, id: str, by: str, why: str = "") -> Outcome | Refused:
        """One event; those that can only go together, together."""
        event = await self.event(id)
        if isinstance(event, Refused) or event.joint is None or event.status.over:
            return await self._on_event(id, lambda id: c.Cancel(id=id, by=by, why=why))
        together = members(self._store.groups, event.joint)
        notes = (
            f"the whole maintenance of host '{event.host}' is cancelled,"
            f" for groups {listing(list(together))}",
        )
        commands = [
            (group, c.Cancel(id=one.id, by=by, why=why, jointly=True))
            for group, one in together.items()
        ]
        done = await self.writer.submit_planned(lambda _: Plan(commands, notes=notes))
        if isinstance(done, Refused):
            return done
        return _about(await self.events([event.id]), notes)

    async def retry(self, id: str, by: str) -> Outcome | Refused:
        return await self._on_event(id, lambda id: c.Retry(id=id, by=by))

    async def finish(self, id: str, by: str, reason: str) -> Outcome | Refused:
        return await self._on_event(id, lambda id: c.Finish(id=id, by=by, reason=reason))

    async def disable(self, name: str, by: str) -> Changes | Refused:
        group = self.machine_index.group(name)
        if group is None:
            return unknown(self.machine_index.unknown_group(name))
        return await self.writer.submit(name, c.Disable(by=by))

    # Looking.

    def active(self) -> list[Event]:
        return list(self._active)

    async def past(
        self, group: str | None, limit: int, before: str | None = None
    ) -> Sequence[Event]:
        return await self._store.past(group=group, limit=limit, before=before)

    async def event(self, id: str) -> Event | Refused:
        """By its id, or by the beginning of one, if that says which."""
        wanted = id.strip().upper()
        if not wanted:
            return invalid("give the id of an event, or its first characters")
        found = self._active.beginning(wanted)
        if not found:
            found = list((await self._store.records([wanted])).values())
        if not found:
            ids = await self._store.ids(wanted, MAX_MEANT)
            found = list((await self._store.records(ids)).values())
        if not found:
            active = listing([event.id for event in self.active()])
            return unknown(f"no event '{id}'; active are {active}")
        if len(found) > 1:
            return conflict(f"'{id}' could be {listing([event.id for event in found])}")
        return found[0]

    async def explain(self, id: str) -> Explanation | Refused:
        event = await self.event(id)
        if isinstance(event, Refused):
            return event
        group = self._store.groups[event.group]
        holds = self.holds(event)
        return Explanation(
            event=event,
            holds=holds,
            says=says(event, holds),
            seen_by=self.poll_index.first_sights(event.id, [m.name for m in group.machines]),
        )

    def holds(self, event: Event) -> tuple[Hold, ...]:
        """What keeps an event from starting, by the predicates that decide; or from ending."""
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
        unless: Callable[[States], Refused | None] = lambda _: None,
    ) -> Outcomes | Refused:
        """Several events in one commit, or none of them. Would they be allowed at all? Then the
        driver is asked, and only then are they announced; `unless` has the last word, and `puts`
        is read off the states it has passed."""
        if self._event_faults is None:
            return await self._announce_all(commands, notes, puts, unless)
        with self._event_faults.bending(commands) as bent:
            said = (*notes, *bent.notes)
            done = await self._announce_all(bent.commands, said, puts, unless)
            bent.stands = not isinstance(done, Refused)
            return done

    async def _announce_all(
        self,
        commands: Sequence[tuple[str, c.Command]],
        notes: tuple[str, ...],
        puts: Callable[[States], Sequence[Put]],
        unless: Callable[[States], Refused | None],
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
        if veto := await self._vetoed(raised):
            return veto
        done = await self.writer.submit_planned(
            lambda s: unless(s) or Plan(commands, puts(s), notes=notes)
        )
        if isinstance(done, Refused):
            return done
        said = dict.fromkeys((*notes, *(note for one in done for note in one.notes)))
        ids = dict.fromkeys(one.event for one in done if one.event)
        return Outcomes(tuple(await self.events(ids)), tuple(said))

    async def _vetoed(self, raised: Sequence[Event]) -> Refused | None:
        asked: set[str] = set()
        for event in raised:
            together: list[Event] = []
            if event.joint is not None:
                if event.joint.id in asked:
                    continue
                asked.add(event.joint.id)
                together = [e for e in raised if e.joint is not None and e.joint.id in asked]
            if veto := await self._executor.veto(event, together):
                names = listing(event.resources)
                return conflict(f"the driver would not carry it out for {names}: {veto}")
        return None

    async def announce(self, group: Group, command: c.Command) -> Outcome | Refused:
        done = await self.announce_all([(group.name, command)])
        return done if isinstance(done, Refused) else _about(done.events, done.notes)

    async def _on_event(self, id: str, command: Callable[[str], c.Command]) -> Outcome | Refused:
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
        return _about(await self.events([decision.event]), decision.notes)

    async def events(self, ids: Collection[str]) -> list[Event]:
        """As they are now, over or not."""
        active = {id: event for id in ids if (event := self._active.get(id)) is not None}
        missing = [id for id in ids if id not in active]
        if missing:
            active.update(await self._store.records(missing))
        return [active[id] for id in ids if id in active]

    def one_group(self, machines: tuple[str, ...]) -> Group | Refused:
        """The group that all these machines are in."""
        if len(machines) > MAX_EVENT_MACHINES:
            return invalid(
                f"an event can have at most {MAX_EVENT_MACHINES:,} machines, but this request"
                f" names {len(machines):,}; schedule several events"
            )
        found: dict[str, str] = {}
        for name in machines:
            group = self.machine_index.group_of(name)
            if group is None:
                return unknown(self.machine_index.unknown_machine(name))
            found.setdefault(group, name)
        if not found:
            return invalid("name at least one machine")
        if len(found) > 1:
            places = listing([f"'{name}' is in '{group}'" for group, name in found.items()])
            return invalid(
                f"an event's machines are of one group; {places}: schedule one event for each group"
            )
        return self._store.groups[next(iter(found))]


def _about(events: Sequence[Event], notes: tuple[str, ...]) -> Outcome | Refused:
    return Outcome(events[0], notes) if events else unknown("the event is gone already")
