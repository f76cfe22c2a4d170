"""Announcing events: what can be announced, with which notice, and what is refused.

Every refusal says what would have been right.
"""

from __future__ import annotations

from typing import Any

from forewarn.core import commands as c
from forewarn.core.changes import Changes, EventMoved
from forewarn.core.deciding.configurations import (
    configurations_for,
    names,
    never_open,
    opens_text,
)
from forewarn.core.deciding.returns import polling
from forewarn.core.events import (
    MAX_ACTIVE_EVENTS,
    MAX_NOTICE,
    UNKNOWN_DURATION,
    Approval,
    ApprovalKind,
    Attempt,
    Event,
    EventType,
    Source,
    Status,
    types_that,
)
from forewarn.core.fleet import GroupKind, domain_name
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move, move
from forewarn.core.refusal import Hint, Refused, conflict, invalid, unknown
from forewarn.core.time import SECOND, Duration, Time, ceil_second
from forewarn.core.windows.openings import last_opening, next_open
from forewarn.core.world import World
from forewarn.support.limits import MAX_DESCRIPTION, MAX_DURATION_SECONDS, MAX_TICKET
from forewarn.support.text import either_of, in_words, listing, utc

TIGHT_NOTICE: Duration = 5 * SECOND  # less is hardly enough for a client that polls every second

REPEATED_UNANNOUNCED = "it is unannounced and starts as soon as the machine is free"
REPEATED_ANNOUNCED = (
    "it was announced before the group was disabled and keeps its NotBefore;"
    " an operator's approval starts it now"
)


def announce(group: Group, command: c.Raise, now: World) -> Changes | Refused:
    problem = (
        id_problem(group, command.id)
        or machines_problem(group, command.machines)
        or _values_problem(command)
    )
    if problem:
        return problem
    not_before = _not_before(command, now)
    if isinstance(not_before, Refused):
        return not_before
    allowed_from = _allowed_from(group, command, not_before, now)
    if isinstance(allowed_from, Refused):
        return allowed_from
    notes: tuple[str, ...] = ()
    terms: dict[str, Any] = {"deadline": not_before} if command.deadline else {}
    if allowed_from != not_before:
        limits = names(configurations_for(group, command.machines, now))
        notes = (
            f"the event is announced for {utc(allowed_from)}, the next time that is allowed by"
            f" {limits}",
        )
        not_before = allowed_from
    terms["not_before"] = not_before
    if command.source is Source.USER:
        terms = _user_terms(group, command.type, not_before, now)
        if terms["approved"] is None and (limit_refusal := _limit_reached(group)):
            return limit_refusal
    event = draft(
        group,
        command,
        command.type,
        command.machines,
        now,
        source=command.source,
        description=command.description,
        duration=command.duration,
        ticket=command.ticket,
        cause=command.cause,
        host=command.host,
        joint=command.joint,
        span=command.span,
        ignore_windows=command.ignore_windows,
        moves=command.moves,
        short_notice=not_before - now.at < now.rules.from_commit(command.type.traits.notice)
        and command.short_notice,
        **terms,
    )
    raised = EventMoved(Move.RAISE, move(event, Move.RAISE), command.by)
    return Changes((raised,), event.id, (*notes, *_notes_for(group, event, now)))


def _allowed_from(group: Group, command: c.Raise, not_before: Time, now: World) -> Time | Refused:
    """Return the first time, not before `not_before`, at which configurations let the event start.

    A time that the caller has chosen is refused instead of being changed.
    """
    waits = command.source is Source.PLATFORM and command.type.traits.waits
    if not waits or command.ignore_windows:
        return not_before
    configurations = configurations_for(group, command.machines, now)
    if not configurations:
        return not_before
    if command.deadline:
        earliest = min(not_before, now.after_notice(command.type.traits.notice))
        return last_opening(configurations, earliest, not_before) or not_before
    span = next_open(configurations, not_before)
    if span is None:
        return conflict(never_open(configurations), hint=Hint.IGNORE_WINDOWS)
    if span.opens <= not_before:
        return not_before
    opens = ceil_second(span.opens)
    if command.not_before is not None or command.joint is not None or command.span is not None:
        return conflict(
            f"maintenance may not start at {utc(not_before)}; {opens_text(configurations, opens)}",
            hint=Hint.IGNORE_WINDOWS,
        )
    if opens - now.at > MAX_NOTICE:
        return conflict(
            f"{opens_text(configurations, opens)}, which is too far in the future; at most"
            f" {in_words(MAX_NOTICE)} is allowed",
            hint=Hint.IGNORE_WINDOWS,
        )
    return opens


def earliest_start(command: c.Raise, now: World) -> Time:
    """Return the NotBefore of an event with a notice, as far as its notice is concerned."""
    notice = command.type.traits.notice if command.notice is None else command.notice
    return now.after_notice(notice)


def _notes_for(group: Group, event: Event, now: World) -> tuple[str, ...]:
    """Return notes about what is allowed but may be a mistake."""
    if event.unannounced:
        return (_unannounced_note(group),)
    notes = []
    notice = event.not_before - now.at
    machines = group.named(event.resources).values()
    if notice < TIGHT_NOTICE:
        notes.append(f"the notice is only {in_words(notice)}: clients may not see it in time")
    if event.traits.spot_only and not all(machine.spot for machine in machines):
        regular = listing([machine.name for machine in machines if not machine.spot])
        notes.append(f"{regular} is not a spot machine; in a cloud, only spot machines are evicted")
    if event.traits.scale_set_only and (
        group.kind is not GroupKind.SCALE_SET or any(machine.spot for machine in machines)
    ):
        notes.append(
            "in a cloud, only deletions of scale set members that are not spot are announced"
        )
    if event.approved:
        notes.append(_policy_note(group))
    elif (
        not group.enabled and not event.host
    ):  # for a host, `platform/hosts.py` adds one note about all groups
        notes.append(
            f"group '{group.name}' is not enabled yet; it will see the event after its first poll"
        )
    return tuple(notes)


def fail(group: Group, command: c.Fail, now: World) -> Changes | Refused:
    problem = id_problem(group, command.id) or machines_problem(group, command.machines)
    if problem:
        return problem
    if command.type.traits.deletes:
        types = either_of([t.value for t in types_that(lambda traits: not traits.deletes)])
        return invalid(f"a failure can be a {types}, not a {command.type.value}")
    if len(command.description) > MAX_DESCRIPTION:
        return _too_long(command.description)
    event = draft(
        group,
        command,
        command.type,
        command.machines,
        now,
        source=Source.PLATFORM,
        not_before=ceil_second(now.at),
        description=command.description,
        cause=command.cause,
        host=command.host,
        failure=True,
        # its host is gone: whatever guests are shown, it comes back elsewhere
        moves=bool(command.host) and not command.type.traits.relocates,
    )
    started = move(
        event,
        Move.FAIL,
        started_at=now.at,
        attempt=Attempt(number=1, at=now.at),
        polling=polling(group, event, now),
    )
    return Changes((EventMoved(Move.FAIL, started, command.by),), event.id)


def user_maintenance(group: Group, command: c.UserMaintenance, now: World) -> Changes | Refused:
    """Announce a restart or redeploy that a user has requested, if the group is enabled."""
    if not command.type.traits.by_user:
        types = either_of([t.value for t in types_that(lambda traits: traits.by_user)])
        return invalid(f"a user can ask for a {types}, not for a {command.type.value}")
    problem = id_problem(group, command.id) or machines_problem(group, (command.machine,))
    if problem:
        return problem
    notes: tuple[str, ...] = ()
    not_before = now.after_notice(command.type.traits.notice)
    terms = _user_terms(group, command.type, not_before, now)
    approved = terms["approved"]
    for event in _pending(group):
        if event.type is command.type and event.resources == (command.machine,):
            repeated = ("it was requested before; this is the same event",)
            if event.unannounced:
                return Changes((), event.id, (*repeated, REPEATED_UNANNOUNCED))
            if not group.enabled:  # it was announced, and NotBefore is a promise
                return Changes((), event.id, (*repeated, REPEATED_ANNOUNCED))
            if approved is None or event.approved:
                return Changes((), event.id, repeated)
            after = move(event, Move.APPROVE, approved=approved)
            notes = (*repeated, _policy_note(group))
            return Changes((EventMoved(Move.APPROVE, after, command.by),), event.id, notes)
    if approved is None and (limit_refusal := _limit_reached(group)):
        return limit_refusal
    event = draft(
        group,
        command,
        command.type,
        (command.machine,),
        now,
        source=Source.USER,
        description=command.type.traits.user_description,
        cause=command.cause,
        **terms,
    )
    if event.unannounced:
        notes = (_unannounced_note(group),)
    elif approved:
        notes = (_policy_note(group),)
    return Changes((EventMoved(Move.RAISE, move(event, Move.RAISE), command.by),), event.id, notes)


def _user_terms(group: Group, type: EventType, not_before: Time, now: World) -> dict[str, Any]:
    """Return the fields of a user's event that depend on whether the group is enabled.

    In a group that is not enabled the event happens at once and is never shown, not even if the
    group is enabled before it ends.
    """
    if group.enabled:
        return {"not_before": not_before, "approved": _by_policy(group, type, now)}
    approved = Approval("nobody: the group is not enabled", now.at, ApprovalKind.NOBODY)
    return {
        "not_before": ceil_second(now.at),
        "approved": approved,
        "unannounced": True,
        "listed": False,
    }


def _unannounced_note(group: Group) -> str:
    return (
        f"group '{group.name}' is not enabled (none of its machines has polled):"
        " this happens at once, or as soon as the machine is free, unannounced"
    )


def _policy_note(group: Group) -> str:
    return f"approved at once by the policy of group '{group.name}'"


def _pending(group: Group) -> list[Event]:
    """Return the users' events that have not started."""
    return [e for e in group.events if e.source is Source.USER and e.status is Status.SCHEDULED]


def _by_policy(group: Group, type: EventType, now: World) -> Approval | None:
    if type not in group.policy.auto_approve:
        return None
    return Approval("policy", now.at, ApprovalKind.POLICY)


def _limit_reached(group: Group) -> Refused | None:
    limit, pending = group.policy.user_event_limit, _pending(group)
    if limit is None or len(pending) < limit:
        return None
    return conflict(
        f"group '{group.name}' may have {limit} user events scheduled at a time;"
        f" pending: {listing([event.id for event in pending])}"
    )


def id_problem(group: Group, id: str) -> Refused | None:
    return conflict(f"event {id} already exists") if group.event(id) else None


def _too_long(description: str) -> Refused:
    return invalid(
        f"the description has {len(description)} characters; at most {MAX_DESCRIPTION} are allowed"
    )


def draft(
    group: Group,
    command: c.Raise | c.Fail | c.UserMaintenance | c.Evict | c.Delete,
    type: EventType,
    machines: tuple[str, ...],
    now: World,
    **fields: Any,
) -> Event:
    """Return a new event with the fields that every kind of event has. The machines are valid."""
    machine = group.machine(machines[0])
    return Event(
        id=command.id,
        group=group.name,
        type=type,
        resources=machines,
        domain=machine.domain if machine else 0,
        raised_at=now.at,
        by=command.by,
        **{"listed": group.enabled, **fields},
    )


def machines_problem(group: Group, names: tuple[str, ...]) -> Refused | None:
    if not names:
        return invalid("name at least one machine")
    if len(set(names)) != len(names):
        return invalid(f"a machine is named twice: {listing(names)}")
    domains: dict[int, str] = {}
    machines = group.named(names)
    for name in names:
        machine = machines.get(name)
        if machine is None:
            alive = listing(sorted(group.alive))
            return unknown(f"no machine '{name}' in group '{group.name}'; it has {alive}")
        if machine.gone:
            return conflict(f"machine '{name}' is gone ({machine.gone})")
        domains.setdefault(machine.domain, name)
    if len(domains) > 1:
        domain_list = listing(
            [f"'{name}' is in {domain_name(domain)}" for domain, name in sorted(domains.items())]
        )
        return invalid(
            "all machines of an event must be in one update domain;"
            f" {domain_list}: schedule one event for each domain"
        )
    for event in group.events:
        if event.status is Status.STARTED and event.traits.deletes:
            being_deleted = frozenset(event.resources)
            affected = [name for name in names if name in being_deleted]
            if affected:
                return conflict(f"{listing(affected)} is being deleted by event {event.id}")
    if len(group.events) >= MAX_ACTIVE_EVENTS:
        return conflict(
            f"group '{group.name}' has {MAX_ACTIVE_EVENTS} active events, which is the maximum"
        )
    return None


def _values_problem(command: c.Raise) -> Refused | None:
    if command.source is Source.USER and not command.type.traits.by_user:
        types = either_of([t.value for t in types_that(lambda traits: traits.by_user)])
        return invalid(
            f"a {command.type.value} always has source Platform; source User is for a {types} only"
        )
    if command.source is Source.USER and command.duration != UNKNOWN_DURATION:
        return invalid("a user's event must have duration -1 (unknown); leave the duration out")
    if not UNKNOWN_DURATION <= command.duration <= MAX_DURATION_SECONDS:
        return invalid(
            f"duration {command.duration} is not a valid duration of the impact; give whole seconds"
            f" from 0 to {MAX_DURATION_SECONDS}, or -1 for unknown"
        )
    if len(command.description) > MAX_DESCRIPTION:
        return _too_long(command.description)
    return ticket_problem(command.ticket)


def ticket_problem(ticket: str) -> Refused | None:
    if len(ticket) <= MAX_TICKET:
        return None
    return invalid(f"the ticket has {len(ticket)} characters; at most {MAX_TICKET} are allowed")


def _not_before(command: c.Raise, now: World) -> Time | Refused:
    promised = command.type.traits.notice
    if command.notice is not None and command.not_before is not None:
        return invalid("give a notice or a time, not both")
    if command.not_before is not None:
        notice = command.not_before - now.at
        not_before = ceil_second(command.not_before)
        promised = now.rules.from_commit(promised)
        if notice < 0:
            return invalid(f"that time is {in_words(-notice)} in the past; give a future time")
    else:
        notice = promised if command.notice is None else command.notice
        not_before = earliest_start(command, now)
        if notice < 0:
            return invalid("a notice cannot be negative")
    if notice > MAX_NOTICE:
        return invalid(
            f"{in_words(notice)} ahead is too far in the future; at most"
            f" {in_words(MAX_NOTICE)} is allowed"
        )
    if notice < promised and not command.short_notice:
        return invalid(
            f"a {command.type.value} needs at least {in_words(promised)} of notice,"
            f" not {in_words(notice)}",
            hint=Hint.SHORT_NOTICE,
        )
    return not_before
