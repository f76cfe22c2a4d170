"""The operators' verbs about events and machines.

Each finds the group that a request is about and submits a command to it; what the command does is
decided in the core. Guests' verbs are `guests.py`, those about hosts `hosts.py`, those that remove
machines `removals.py`.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from forewarn.core import (
    Changes,
    Event,
    EventType,
    Group,
    Machine,
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
from forewarn.core.deciding.holds import Hold, window_open, with_clock
from forewarn.core.deciding.joint import members
from forewarn.core.deciding.removals import policy_problem
from forewarn.core.events import UNKNOWN_DURATION
from forewarn.core.fleet import Health, Host
from forewarn.core.lifecycle import Move
from forewarn.core.refusal import Hint, conflict, invalid, unknown, unknown_name
from forewarn.core.registry import Put
from forewarn.core.time import Duration, Time
from forewarn.service.engine.executor import Executor
from forewarn.service.engine.writer import Check, CommitPlan, RequestContext, Writer
from forewarn.service.faults.event_faults import EventFaults
from forewarn.service.indexes import coverage
from forewarn.service.indexes.coverage import Coverage, CoverageCounts
from forewarn.service.indexes.events import ActiveEvents, StartKey
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.indexes.machines import MachineIndex
from forewarn.service.indexes.polls import PollIndex, Shown
from forewarn.service.platform.explain import (
    EventExplanation,
    advice_for,
    state_hold,
    summary,
    under_way,
    unheard,
    verbs_for,
)
from forewarn.service.platform.host_state import (
    host_of_gone,
    unannounced_warning,
    unhealthy_warning,
)
from forewarn.service.platform.postponement import plan_postponement
from forewarn.store.port import States, Store
from forewarn.support.limits import MAX_CANCELLED, MAX_EVENT_MACHINES
from forewarn.support.text import counted, listing

MAX_PREFIX_MATCHES = 20  # events that are over and match the beginning of an id


class Outcome(msgspec.Struct, frozen=True):
    """The event that a verb was about, as it is now, and notes for the caller."""

    event: Event
    notes: tuple[str, ...] = ()


class Outcomes(msgspec.Struct, frozen=True):
    """The same for a verb about several events, or none."""

    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()


class CancelledEvents(msgspec.Struct, frozen=True):
    """The events that were cancelled, or would be, and why others are not."""

    events: tuple[Event, ...] = ()
    refused: tuple[Refused, ...] = ()
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
        host_index: HostIndex,
        active: ActiveEvents,
        new_id: Callable[[], str] = new_id,
        event_faults: EventFaults | None = None,
    ) -> None:
        self._store = store
        self._event_faults = event_faults
        self._executor = executor
        self._active = active
        self._host_index = host_index
        self.new_id = new_id
        self.writer = writer
        self.poll_index = poll_index
        self.machine_index = machine_index

    def for_request(self, request: RequestContext) -> Platform:
        """Return the same verbs, whose commits carry the context of one request."""
        return self._bound(self.writer.for_request(request))

    def in_background(self) -> Platform:
        """Return the same verbs for what the service does by itself."""
        return self._bound(self.writer.in_background())

    def _bound(self, writer: Writer) -> Platform:
        bound = copy.copy(self)
        bound.writer = writer
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
        ignore_windows: bool = False,
        description: str = "",
        duration: int = UNKNOWN_DURATION,
        ticket: str = "",
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
            ignore_windows=ignore_windows,
            description=description,
            duration=duration,
            ticket=ticket,
        )
        return await self.announce(group, command)

    async def user_maintenance_of_each(
        self, machines: Sequence[str], type: EventType, by: str, cause: str = ""
    ) -> Outcomes | Refused:
        """Announce restarts or redeploys of several machines, all in one commit or none."""
        return await self.announce_each(
            machines,
            lambda id, machine: c.UserMaintenance(
                id=id, type=type, machine=machine, by=by, cause=cause
            ),
        )

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
            notes = () if host is None else self._arrival_notes(host, machine)
            return CommitPlan([(name, c.Restore(machine=machine, by=by))], notes=notes)

        done = await self.writer.commit(plan)
        return done if isinstance(done, Refused) else notes

    async def record_move(self, machine: str, host: str, by: str) -> tuple[str, ...] | Refused:
        """Record on which host a machine is, and return notes for the caller."""
        group = self.common_group((machine,))
        if isinstance(group, Refused):
            return group
        name = group.name

        def plan(states: States) -> CommitPlan | Refused:
            if refused := _unknown_host(states, host) or self._address_taken(machine, host):
                return refused
            return CommitPlan([(name, c.RecordMove(machine=machine, host=host, by=by))])

        done = await self.writer.commit(plan)
        if isinstance(done, Refused):
            return done
        notes = [note for changes in done for note in changes.notes]
        return (*notes, *self._arrival_notes(self._store.registry.hosts[host], machine))

    async def suspect_move(self, machine: str, host: str, by: str) -> None:
        """Record that a machine may be on another host than the one that it is known to be on."""
        if group := self.machine_index.group_of(machine):
            await self.writer.submit(group, c.SuspectMove(machine=machine, host=host, by=by))

    async def answer_on(self, machine: str, *, former: str, host: str) -> None:
        """Record that a machine that has moved to a host is answered on its former one; or, if that
        is empty, only on that host."""
        if group := self.machine_index.group_of(machine):
            await self.writer.submit(group, c.AnswerOn(machine=machine, former=former, host=host))

    def _address_taken(self, machine: str, host: str) -> Refused | None:
        """Refuse a host that has another machine with the same address: nobody could tell which of
        them a request comes from."""
        found = self.machine_index.machine(machine)
        for address in found[1].addresses if found else ():
            for other in self.machine_index.at(address):
                if other.name != machine and other.host == host and other.alive:
                    return conflict(
                        f"host '{host}' already has a machine with the address {address}:"
                        f" '{other.name}'"
                    )
        return None

    def _arrival_notes(self, host: Host, machine: str) -> tuple[str, ...]:
        """Return notes for a caller who puts a machine on a host."""
        notes: list[str] = []
        planned = self._host_index.maintenance_of(host.name)
        if not host.healthy:
            notes.append(unhealthy_warning(host, [machine]))
        elif planned and not any(machine in event.resources for event in planned):
            notes.append(unannounced_warning(host.name, [machine]))
        return tuple(notes)

    async def approve(self, id: str, by: str, *, ignore_windows: bool = False) -> Outcome | Refused:
        event = await self._active_event(id)
        if isinstance(event, Refused):
            return event
        command = c.OperatorApprove(id=event.id, by=by, ignore_windows=ignore_windows)
        held: tuple[str, ...] = ()

        def plan(states: States) -> CommitPlan:
            nonlocal held
            held = self._held_by_windows_of_others(states, event) if ignore_windows else ()
            return CommitPlan([(event.group, command)], notes=held)

        done = await self.writer.commit(plan)
        if isinstance(done, Refused):
            return done
        return _outcome(await self.events([event.id]), (*held, *done[0].notes))

    async def approve_each(self, ids: Sequence[str], by: str) -> Outcomes | Refused:
        """Approve several events, all in one commit or none."""
        events: list[Event] = []
        for id in ids:
            event = await self._active_event(id)
            if isinstance(event, Refused):
                return event
            events.append(event)
        approvals = [(event.group, c.OperatorApprove(id=event.id, by=by)) for event in events]
        done = await self.writer.commit(CommitPlan(approvals))
        if isinstance(done, Refused):
            return done
        notes = dict.fromkeys(note for changes in done for note in changes.notes)
        return Outcomes(tuple(await self.events([event.id for event in events])), tuple(notes))

    def _held_by_windows_of_others(self, states: States, event: Event) -> tuple[str, ...]:
        """Return a note for an operator who lets an event of a joint ignore its windows, if those
        of other groups hold it nevertheless."""
        if event.joint is None:
            return ()
        now = self.writer.now()
        held = [
            f"'{name}' (event {other.id})"
            for name, other in members(states, event.joint).items()
            if other.id != event.id and not window_open(states[name], other, now)
        ]
        if not held:
            return ()
        return (
            f"the maintenance of host '{event.host}' starts for all its groups together, and the"
            f" windows and blackouts of {listing(held)} still hold it; to ignore those as well,"
            " approve these events in the same way",
        )

    async def postpone(
        self, id: str, by: str, *, until: Time | None = None, duration: Duration = 0
    ) -> Outcome | Refused:
        """Move the NotBefore of an event, and of those that start together with it, as far as the
        policy of its group allows."""
        event = await self._active_event(id)
        if isinstance(event, Refused):
            return event
        notes: list[str] = []

        def plan(states: States) -> CommitPlan | Refused:
            now = self.writer.now()
            planned = plan_postponement(states, event, by, now, until, duration)
            notes[:] = () if isinstance(planned, Refused) else planned.notes
            return planned

        done = await self.writer.commit(plan)
        if isinstance(done, Refused):
            return done
        return _outcome(await self.events([event.id]), tuple(notes))

    async def report_ready(
        self, id: str, by: str, machine: str, *, ready: bool, note: str
    ) -> Outcome | Refused:
        """Record whether a machine is ready for an event, as somebody else than the machine."""
        return await self._submit_for_event(
            id, lambda id: c.Prepare(id=id, machine=machine, ready=ready, note=note, by=by)
        )

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

    async def cancel_all(
        self, ids: Sequence[str], by: str, why: str = "", *, plan: bool = False
    ) -> CancelledEvents | Refused:
        """Cancel those of the events that have not started, in one commit, and with each the other
        events of its maintenance of a host. With `plan`, only return which these are."""
        found = [await self.event(id) for id in dict.fromkeys(ids)]
        events = [event for event in found if not isinstance(event, Refused)]
        unknown_ids = tuple(outcome for outcome in found if isinstance(outcome, Refused))
        to_cancel = _cancelled_with(events, self._store.groups)
        if (count := len(to_cancel.events)) > MAX_CANCELLED:
            return conflict(
                f"{count:,} events would be cancelled, but at most {MAX_CANCELLED:,} can be"
                " cancelled at once; select fewer"
            )

        def commit_plan(states: States) -> CommitPlan:
            nonlocal to_cancel
            to_cancel = _cancelled_with(events, states)
            return CommitPlan(
                [
                    (event.group, c.Cancel(id=event.id, by=by, why=why, jointly=True))
                    for event in to_cancel.events
                ]
            )

        if not plan and isinstance(done := await self.writer.commit(commit_plan), Refused):
            return done
        return msgspec.structs.replace(
            to_cancel,
            events=tuple(await self.events([event.id for event in to_cancel.events])),
            refused=unknown_ids + to_cancel.refused,
        )

    async def retry(self, id: str, by: str) -> Outcome | Refused:
        return await self._submit_for_event(id, lambda id: c.Retry(id=id, by=by))

    async def finish(
        self, id: str, by: str, reason: str, moved: Mapping[str, str] | None = None
    ) -> Outcome | Refused:
        """End a Started event. `moved` are its machines that are on other hosts by now."""
        moves = dict(moved or {})
        event = await self._active_event(id)
        if isinstance(event, Refused):
            return event
        command = c.Finish(id=event.id, by=by, reason=reason, moved=moves)

        def plan(states: States) -> CommitPlan | Refused:
            refusals = (_unknown_host(states, host) for host in moves.values())
            return next(filter(None, refusals), None) or CommitPlan([(event.group, command)])

        done = await self.writer.commit(plan)
        if isinstance(done, Refused):
            return done
        notes = tuple(note for changes in done for note in changes.notes)
        return _outcome(await self.events([event.id]), notes)

    async def abandon(self, id: str, by: str, reason: str) -> Outcome | Refused:
        """End a Started event that did not happen."""
        return await self._submit_for_event(id, lambda id: c.Abandon(id=id, by=by, reason=reason))

    async def disable(self, name: str, by: str) -> Changes | Refused:
        group = self.machine_index.group(name)
        if group is None:
            return self.machine_index.unknown_group(name)
        return await self.writer.submit(name, c.Disable(by=by))

    # Queries.

    def active(self) -> list[Event]:
        return list(self._active)

    def active_by_start(
        self, start: Time | None, end: Time | None, after: StartKey | None
    ) -> Iterator[Event]:
        """Iterate over the active events that may start in this time, the next one first."""
        return self._active.by_start(start, end, after)

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

    def coverage(self, machines: Iterable[Machine]) -> CoverageCounts:
        """Return how many of the machines poll and answer events."""
        return coverage.count(self.poll_index, machines, self.writer.now().at)

    async def explain(self, id: str) -> EventExplanation | Refused:
        event = await self.event(id)
        if isinstance(event, Refused):
            return event
        shown = await self.shown(event)
        group = self._store.groups[event.group]
        holds, groups, now = self.holds(event), self._store.groups, self.writer.now()
        visible = event.status is Status.SCHEDULED and not event.unannounced
        return EventExplanation(
            event=event,
            holds=holds,
            message=summary(event, holds),
            seen_by=shown.since,
            advice=() if self._store.problem() else advice_for(event, holds, groups, now),
            verbs=verbs_for(event, holds, group, now),
            not_listening=self.not_listening(event.resources) if visible else {},
            unheard=visible and not self._heard(group),
        )

    async def shown(self, event: Event) -> Shown:
        """Return when each machine was first shown an event, if it was."""
        group = self._store.groups.get(event.group)
        machines = [machine.name for machine in group.machines] if group else []
        names = dict.fromkeys((*machines, *event.resources))
        return await self.poll_index.when_shown(event, names)

    def _heard(self, group: Group) -> bool:
        """Does any machine of the group poll, so that it could approve an event?"""
        now = self.writer.now().at
        return any(
            coverage.coverage_of(self.poll_index.polls(m.name), now) is Coverage.LISTENING
            for m in group.machines
            if m.alive
        )

    def not_listening(self, machines: Iterable[str]) -> dict[str, Time | None]:
        """Return those of the machines that do not poll any more, and when they last did; None:
        never."""
        now = self.writer.now().at
        polls = {name: self.poll_index.polls(name) for name in machines}
        return {
            name: found.last if found else None
            for name, found in polls.items()
            if coverage.coverage_of(found, now) is not Coverage.LISTENING
        }

    def progress(self, event: Event) -> str:
        """Return how far the driver is with an event, if it has said so."""
        interim = self._executor.interim(event.id)
        return interim.progress if interim is not None else ""

    def holds(self, event: Event) -> tuple[Hold, ...]:
        """Return what keeps an event from starting, by the predicates that decide it, or from
        ending."""
        now = self.writer.now()
        group = self._store.groups[event.group]
        if event.status is not Status.SCHEDULED:
            unreachable, interim = (
                self._executor.unreachable_hosts(event),
                self._executor.interim(event.id),
            )
            holds = under_way(event, group, unreachable, interim, now)
            holds = with_clock(holds, now) if holds else ()
        elif event.joint is not None:
            holds = joint.holds(self._store.groups, event.joint, now)
        else:
            holds = why(group, event.id, now)
            if now.untrusted is None and not self._heard(group):
                holds = unheard(holds, group.name)
        if self._store.problem() and not event.status.over:
            return state_hold(holds, self.poll_index.saved_at or now.at)
        return holds

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

    async def announce_each(
        self, machines: Sequence[str], command: Callable[[str, str], c.Command]
    ) -> Outcomes | Refused:
        """Announce an event for each machine in one commit, or none of them if any is refused, with
        all refusals. `command` is given the id of the event and the machine."""
        states, now = dict[str, Group](), self.writer.now()
        commands: list[tuple[str, c.Command]] = []
        refusals: list[Refused] = []
        for index, machine in enumerate(machines):
            expected: Changes | Refused
            if (name := self.machine_index.group_of(machine)) is None:
                expected = self.machine_index.unknown_machine(machine)
            else:
                group = states.get(name) or self._store.groups[name]
                commands.append((name, command(self.new_id(), machine)))
                expected = decide(group, commands[-1][1], now)
                if not isinstance(expected, Refused):
                    states[name] = apply(group, expected.items)
            if isinstance(expected, Refused):
                message = f"{machine}: {expected.message}"
                at = f"machines[{index}]"
                refusals.append(msgspec.structs.replace(expected, message=message, field=at))
        if refusals:
            return conflict(
                "nothing was done, because the request was refused for"
                f" {len(refusals)} of {counted(len(machines), 'machine')}",
                others=tuple(refusals),
            )
        return await self.announce_all(commands)

    async def _announce_all(
        self,
        commands: Sequence[tuple[str, c.Command]],
        notes: tuple[str, ...],
        puts: Callable[[States], Sequence[Put]],
        unless: Check,
    ) -> Outcomes | Refused:
        states, now = dict[str, Group](), self.writer.now()
        raised: list[Event] = []
        timed = joint.with_common_start(self._store.groups, commands, now)
        if isinstance(timed, Refused):
            return timed
        for name, command in timed:
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
        event = await self._active_event(id)
        if isinstance(event, Refused):
            return event
        return await self._submit(event.group, command(event.id))

    async def _active_event(self, id: str) -> Event | Refused:
        event = await self.event(id)
        if isinstance(event, Refused) or not event.status.over:
            return event
        return conflict(f"event {event.id} is over ({event.ending or event.status.value})")

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


def _cancelled_with(events: Iterable[Event], groups: Mapping[str, Group]) -> CancelledEvents:
    """Return these events and those that can only be cancelled together with them."""
    refused: list[Refused] = []
    selected: dict[str, Event] = {}
    together: dict[str, Event] = {}
    for event in events:
        group = groups.get(event.group)
        current = None if group is None else group.event(event.id)
        if current is None:
            refused.append(unknown(f"event {event.id} is not active"))
        elif current.status is not Status.SCHEDULED:
            refused.append(conflict(f"event {event.id} has started"))
        else:
            selected[current.id] = current
            if current.joint is not None:
                found = members(groups, current.joint).values()
                together |= {member.id: member for member in found}
    others = [event for id, event in together.items() if id not in selected]
    names = list(dict.fromkeys(event.group for event in others))
    note = (
        f"this includes {counted(len(others), 'event')} of other groups ({listing(names)}):"
        " the maintenance of a host is cancelled as a whole"
    )
    return CancelledEvents((*selected.values(), *others), tuple(refused), (note,) if others else ())


def _unknown_host(states: States, host: str) -> Refused | None:
    hosts = states.registry.hosts
    return None if host in hosts else unknown_name("host", host, list(hosts))
