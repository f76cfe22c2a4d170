"""Raising events: what may be announced, with which notice, and what is refused.

Every refusal says what would have been right.
"""

from __future__ import annotations

from forewarn.core import commands as c
from forewarn.core.changes import Changes, EventMoved
from forewarn.core.events import (
    MAX_ACTIVE_EVENTS,
    MAX_DESCRIPTION,
    MAX_DURATION_SECONDS,
    MAX_NOTICE,
    PROMISES,
    UNKNOWN_DURATION,
    Approval,
    Attempt,
    Event,
    EventType,
    Source,
    Status,
)
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move, move
from forewarn.core.refusal import Refused, conflict, invalid, unknown
from forewarn.core.time import SECOND, Duration, Now, Time, ceil_second
from forewarn.core.words import in_words, listing

TIGHT_NOTICE: Duration = 5 * SECOND  # below this a client that asks once a second is hard pressed

USER_DESCRIPTIONS = {
    EventType.REBOOT: "Virtual machine is going to be restarted as requested by authorized user.",
    EventType.REDEPLOY: "Virtual machine is going to be redeployed"
    " as requested by authorized user.",
}


def announce(group: Group, command: c.Raise, now: Now) -> Changes | Refused:
    wrong = _wrong_machines(group, command.machines) or _wrong_words(command)
    if wrong:
        return wrong
    when = _not_before(command, now)
    if isinstance(when, Refused):
        return when
    draft = Event(
        id=command.id,
        group=group.name,
        type=command.type,
        source=command.source,
        resources=command.machines,
        domain=_domain(group, command.machines[0]),
        not_before=when,
        raised_at=now.at,
        by=command.by,
        description=command.description,
        duration=command.duration,
        cause=command.cause,
        listed=group.enabled,
    )
    notes: tuple[str, ...] = ()
    if when - now.at < TIGHT_NOTICE:
        notes = (f"the notice is only {in_words(when - now.at)}: clients may not see it in time",)
    if command.type is EventType.PREEMPT:
        regular = [n for n in command.machines if not (m := group.machine(n)) or not m.spot]
        if regular:
            notes += (f"{listing(regular)} is not spot; in a cloud only spot machines are evicted",)
    if not group.enabled:
        notes += (f"group '{group.name}' is not listening yet; it will see the event once it asks",)
    return Changes((EventMoved(Move.RAISE, move(draft, Move.RAISE), command.by),), draft.id, notes)


def strike(group: Group, command: c.Strike, now: Now) -> Changes | Refused:
    wrong = _wrong_machines(group, command.machines)
    if wrong:
        return wrong
    draft = Event(
        id=command.id,
        group=group.name,
        type=command.type,
        source=Source.PLATFORM,
        resources=command.machines,
        domain=_domain(group, command.machines[0]),
        not_before=ceil_second(now.at),
        raised_at=now.at,
        by=command.by,
        description=command.description,
        failure=True,
        listed=group.enabled,
    )
    begun = move(draft, Move.STRIKE, started_at=now.at, attempt=Attempt(number=1, at=now.at))
    return Changes((EventMoved(Move.STRIKE, begun, command.by),), draft.id)


def maintain(group: Group, command: c.Maintain, now: Now) -> Changes | Refused:
    """A user's restart or redeploy: announced like any other, unless nobody would notice."""
    if not PROMISES[command.type].by_user:
        return invalid(f"a user can ask for a Reboot or a Redeploy, not for a {command.type.value}")
    wrong = _wrong_machines(group, (command.machine,))
    if wrong:
        return wrong
    mine = [e for e in group.events if e.source is Source.USER and e.status is Status.SCHEDULED]
    for event in mine:
        if event.type is command.type and event.resources == (command.machine,):
            return Changes((), event.id, ("it had been asked for already; this is the same event",))
    limit = group.policy.user_event_limit
    if limit is not None and len(mine) >= limit:
        return conflict(
            f"group '{group.name}' may have {limit} user events scheduled at a time;"
            f" pending: {listing([event.id for event in mine])}"
        )
    approved: Approval | None = None
    notes: tuple[str, ...] = ()
    if not group.enabled:
        approved = Approval("nobody: the group is not listening", now.at)
        notes = (
            f"group '{group.name}' is not listening (none of its machines has asked for events):"
            " this happens at once, unannounced",
        )
    elif command.type in group.policy.auto_approve:
        approved = Approval("policy", now.at)
        notes = (f"approved at once by the policy of group '{group.name}'",)
    draft = Event(
        id=command.id,
        group=group.name,
        type=command.type,
        source=Source.USER,
        resources=(command.machine,),
        domain=_domain(group, command.machine),
        not_before=ceil_second(now.at + now.rules.paced(PROMISES[command.type].notice)),
        raised_at=now.at,
        by=command.by,
        description=USER_DESCRIPTIONS[command.type],
        listed=group.enabled,
        approved=approved,
    )
    return Changes((EventMoved(Move.RAISE, move(draft, Move.RAISE), command.by),), draft.id, notes)


def _domain(group: Group, name: str) -> int:
    machine = group.machine(name)
    return machine.update_domain if machine else 0


def _wrong_machines(group: Group, names: tuple[str, ...]) -> Refused | None:
    if not names:
        return invalid("name at least one machine")
    if len(set(names)) != len(names):
        return invalid(f"a machine is named twice: {listing(names)}")
    domains: dict[int, str] = {}
    for name in names:
        machine = group.machine(name)
        if machine is None:
            here = listing(sorted(group.alive))
            return unknown(f"no machine '{name}' in group '{group.name}'; it has {here}")
        if machine.gone:
            return conflict(f"machine '{name}' is gone ({machine.gone})")
        domains.setdefault(machine.update_domain, name)
    if len(domains) > 1:
        places = listing([f"'{name}' is in {domain}" for domain, name in sorted(domains.items())])
        return invalid(
            "an event's machines lie in one update domain;"
            f" {places}: schedule one event for each domain"
        )
    for event in group.events:
        if event.promise.deletes and event.status is Status.STARTED:
            doomed = [name for name in names if name in event.resources]
            if doomed:
                return conflict(f"{listing(doomed)} is being deleted by event {event.id}")
    if len(group.events) >= MAX_ACTIVE_EVENTS:
        return conflict(f"group '{group.name}' has {MAX_ACTIVE_EVENTS} active events, the most")
    return None


def _wrong_words(command: c.Raise) -> Refused | None:
    if command.source is Source.USER and not PROMISES[command.type].by_user:
        return invalid(
            f"a {command.type.value} is always the platform's;"
            " source User goes with Reboot and Redeploy"
        )
    if command.source is Source.USER and command.duration != UNKNOWN_DURATION:
        return invalid("a user's event has duration -1 (unknown); leave the duration out")
    if not UNKNOWN_DURATION <= command.duration <= MAX_DURATION_SECONDS:
        return invalid(
            f"duration {command.duration} is not a length of impact: give whole seconds from 0"
            f" to {MAX_DURATION_SECONDS}, or -1 for unknown"
        )
    if len(command.description) > MAX_DESCRIPTION:
        return invalid(
            f"the description has {len(command.description)} characters;"
            f" at most {MAX_DESCRIPTION} are allowed"
        )
    return None


def _not_before(command: c.Raise, now: Now) -> Time | Refused:
    promised = PROMISES[command.type].notice
    if command.notice is not None and command.not_before is not None:
        return invalid("give a notice or a time, not both")
    if command.not_before is not None:
        notice = command.not_before - now.at
        when = ceil_second(command.not_before)
        if notice < 0:
            return invalid(f"that time is {in_words(-notice)} in the past; give one to come")
    else:
        notice = promised if command.notice is None else command.notice
        when = ceil_second(now.at + now.rules.paced(notice))
        if notice < 0:
            return invalid("a notice cannot be negative")
    if notice > MAX_NOTICE:
        return invalid(
            f"{in_words(notice)} ahead is too far; at most {in_words(MAX_NOTICE)} is allowed"
        )
    if notice < promised and not command.short_notice:
        return invalid(
            f"a {command.type.value} promises at least {in_words(promised)} of notice,"
            f" this is {in_words(notice)}; say that you mean it (--short-notice)"
        )
    return when
