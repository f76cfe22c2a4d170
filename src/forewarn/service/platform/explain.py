"""Explanations of what an event waits for, and advice on what would help.

The holds of a Scheduled event come from the predicates that decide (core/deciding/holds.py,
core/deciding/joint.py); those of a Started event come from its attempt. Nothing is advised without
having been tried: advice is decided on a copy of the state first.
"""

from __future__ import annotations

import enum
from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import cast

import msgspec

from forewarn.core import Event, Group, Refused, Status, Time, World, apply, decide
from forewarn.core import commands as c
from forewarn.core.deciding import joint
from forewarn.core.deciding.holds import Hold, HoldKind, behind
from forewarn.core.deciding.postpone import may_be_postponed_by
from forewarn.core.deciding.reach import not_called
from forewarn.core.deciding.returns import missing, over_at
from forewarn.core.deciding.start import carried_out_jointly
from forewarn.core.events import Attempt
from forewarn.service.engine.open_attempts import Interim
from forewarn.support.text import listing

BY_IGNORING_WINDOWS = (HoldKind.WINDOW, HoldKind.BLACKOUT)  # holds that an operator can lift
BY_APPROVAL = (HoldKind.NOTICE, HoldKind.GRACE)  # holds that any machine of the group can lift


class AdviceKind(enum.Enum):
    """What an operator could do; the first three are verbs for an event."""

    APPROVE = "approve"
    RETRY = "retry"  # if it did not happen
    FINISH = "finish"  # if it did
    ACCEPT_CLOCK = "accept-clock"  # if it is right


class Verb(enum.Enum):
    """What can be done about an event."""

    APPROVE = "approve"
    POSTPONE = "postpone"
    READY = "ready"
    CANCEL = "cancel"
    RETRY = "retry"
    FINISH = "finish"
    ABANDON = "abandon"


class Advice(msgspec.Struct, frozen=True):
    kind: AdviceKind
    event: str = ""
    moved: tuple[str, ...] = ()  # machines that it moves: whoever finishes it names their new hosts


class EventExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """An event, what it waits for, and who could unblock it."""

    event: Event
    holds: tuple[Hold, ...]
    message: str
    seen_by: dict[str, Time]  # machines that were shown it, and when first
    advice: tuple[Advice, ...] = ()  # all of it together helps
    verbs: tuple[Verb, ...] = ()  # that are not refused in its state
    # Machines of a Scheduled event that do not poll any more, and when they last did; None: never.
    not_listening: dict[str, Time | None] = {}
    unheard: bool = False  # no machine of its group polls, so that nobody sees it or approves it


def under_way(
    event: Event, group: Group, unreachable: Iterable[str], interim: Interim | None, now: World
) -> tuple[Hold, ...]:
    """Return what a Started event waits for before it is over. `unreachable` are the hosts because
    of which the driver is not called yet, `interim` is what it has said so far."""
    if event.status is not Status.STARTED:
        return ()
    if holds := tuple(not_called(event, host, now) for host in unreachable):
        return holds
    if event.waiting is not None:
        machines = missing(group, event, now)
        return (
            Hold(
                kind=HoldKind.BACK,
                message=f"it was carried out, and {listing(machines)}"
                f" {'has' if len(machines) == 1 else 'have'} not polled since; after that time, the"
                " event is over without",
                since=event.waiting.since,
                until=over_at(group, event, now),
                unblocked_by="its machines, by polling, or an operator, by finishing the event",
            ),
        )
    since, attempt = event.started_at or event.raised_at, event.attempt
    if attempt is None:
        if not carried_out_jointly(event):
            return ()
        message = f"it is carried out together with the others on host '{event.host}'"
        if interim is not None and interim.unseen:
            message += f"; what has happened cannot be seen yet: {interim.unseen}"
        elif interim is not None and interim.progress:
            message += f": {interim.progress}"
        return (_driver(message, since, "the lead event"),)
    operator = "an operator, by retrying the event if it did not happen, or finishing it if it did"
    if attempt.open:
        message = f"the driver is at work (attempt {attempt.number}{_moving(attempt)})"
        ends = "the driver, or an operator, by finishing the event"
        if interim is not None and interim.unseen:
            message = f"what has happened cannot be seen yet: {interim.unseen}"
            return (_driver(message, interim.since, ends, interim.until),)
        if interim is not None and interim.progress:
            message = f"{message}: {interim.progress}"
        return (_driver(message, attempt.at, ends),)
    if attempt.stuck:
        message = (
            f"it is unknown whether it was carried out (attempt {attempt.number}: {attempt.note})"
        )
        return (_driver(message, attempt.at, operator),)
    if attempt.no_host:
        message = f"it waits for a host: {attempt.note}"
        by = "whoever adds, repairs, uncordons or empties a host; or an operator, by finishing it"
        return (_driver(message, attempt.at, by),)
    if attempt.note:
        message = f"attempt {attempt.number} failed ({attempt.note}); it is repeated automatically"
        if attempt.unsuitable:
            message += f", and moves no machine to {listing(attempt.unsuitable)}"
    else:
        message = "it is being carried out; the driver will check again whether it is done"
        message += _moving(attempt)
    return (_driver(message, attempt.at, operator, attempt.next_at),)


def _moving(attempt: Attempt) -> str:
    """Return where the machines of an attempt go, and which hosts were refused before."""
    moving = listing([f"{machine} to {host}" for machine, host in attempt.targets.items()])
    text = f"; moving {moving}" if attempt.targets else ""
    if attempt.targets and attempt.unsuitable:
        text += f", since the driver has refused {listing(attempt.unsuitable)}"
    return text


def _driver(message: str, since: Time, unblocked_by: str, until: Time | None = None) -> Hold:
    return Hold(
        kind=HoldKind.DRIVER, message=message, since=since, until=until, unblocked_by=unblocked_by
    )


def summary(event: Event, holds: tuple[Hold, ...]) -> str:
    """Return the status of an event and its holds in one line."""
    if event.status.over:
        return f"it is over: {event.ending or event.status.value.lower()}"
    if not holds:
        return "nothing holds it: it starts now"
    if event.status is Status.STARTED:
        head = "started"
    else:
        head = "approved, but waiting" if event.approved else "waiting"
    return f"{head}: {'; '.join(hold.message for hold in holds)}"


def state_hold(holds: Iterable[Hold], since: Time) -> tuple[Hold, ...]:
    """Return the holds of an event while the state cannot be written."""
    state = Hold(
        kind=HoldKind.STATE,
        message="the state cannot be written: nothing starts or ends, and no command is carried"
        " out, until it can",
        since=since,
        unblocked_by="whoever frees disk space or repairs what the service's log reports; it then"
        " continues automatically",
    )
    return behind(state, holds, "nobody before the state can be written again")


def unheard(holds: Iterable[Hold], group: str) -> tuple[Hold, ...]:
    """Return the holds of an event that no machine of the group will approve."""
    return tuple(
        msgspec.structs.replace(
            hold,
            unblocked_by="an operator, by approving it; no machine of group"
            f" '{group}' has polled in the last hour",
        )
        if hold.kind in BY_APPROVAL
        else hold
        for hold in holds
    )


def advice_for(
    event: Event, holds: Iterable[Hold], groups: Mapping[str, Group], now: World
) -> tuple[Advice, ...]:
    """Return what an operator can do about an event so that it starts or ends."""
    clock = () if now.untrusted is None else (Advice(AdviceKind.ACCEPT_CLOCK),)
    if event.status is Status.SCHEDULED:
        return clock or _approvals(event, holds, groups, now)
    if event.status is Status.STARTED:
        if any(hold.kind is HoldKind.REACH for hold in holds):
            return clock  # the driver has not been called
        return (*clock, *_for_started(event, groups, now))
    return ()


def _approvals(
    event: Event, holds: Iterable[Hold], groups: Mapping[str, Group], now: World
) -> tuple[Advice, ...]:
    """Return the approvals that start the event at once; empty if none do."""
    missing = dict.fromkeys(
        id
        for hold in holds
        if hold.kind in (HoldKind.JOINT, HoldKind.COUPLING)
        for id in hold.waits_for
    )
    ids = [id for id in {event.id: None, **missing} if id != event.id or event.approved is None]
    names = event.joint.groups if event.joint else (event.group,)
    states: ChainMap[str, Group] = ChainMap({}, cast(dict[str, Group], groups))  # a copy on write
    for id in ids:
        name = next((name for name in names if states[name].event(id)), None)
        if name is None:
            return ()
        decision = decide(states[name], c.OperatorApprove(id=id, by=""), now)
        if isinstance(decision, Refused):
            return ()
        states[name] = apply(states[name], decision.items)
    if event.joint is not None:
        joint.settle_joints(states, {event.joint.id: event.joint}, now, {})
    after = states[event.group].event(event.id)
    if after is None or after.status is Status.SCHEDULED:
        return ()
    return tuple(Advice(AdviceKind.APPROVE, id) for id in ids)


def verbs_for(event: Event, holds: Iterable[Hold], group: Group, now: World) -> tuple[Verb, ...]:
    """Return the verbs that would change something about an event as it is now. An event that was
    approved can be approved once more if that lets it ignore windows."""
    ignores = any(hold.kind in BY_IGNORING_WINDOWS for hold in holds)
    commands: dict[Verb, c.Command] = {
        Verb.APPROVE: c.OperatorApprove(id=event.id, by="", ignore_windows=ignores),
        Verb.CANCEL: c.Cancel(id=event.id, by="", jointly=True),
        Verb.RETRY: c.Retry(id=event.id, by=""),
        Verb.FINISH: c.Finish(id=event.id, by="", reason="a trial"),
        Verb.ABANDON: c.Abandon(id=event.id, by="", reason="a trial"),
    }
    verbs = [verb for verb, command in commands.items() if _changes(group, command, now)]
    if event.listed and group.enabled and not event.status.over:
        verbs.append(Verb.READY)
    if not isinstance(may_be_postponed_by(group, event), Refused):
        verbs.append(Verb.POSTPONE)
    return tuple(verb for verb in Verb if verb in verbs)


def _changes(group: Group, command: c.Command, now: World) -> bool:
    decision = decide(group, command, now)
    return not isinstance(decision, Refused) and bool(decision.items)


def _for_started(event: Event, groups: Mapping[str, Group], now: World) -> Iterable[Advice]:
    """Yield whether the event, or the one that is carried out for it, can be retried or ended."""
    if event.joint is not None:
        events = joint.members(groups, event.joint).values()
        event = next((member for member in events if member.attempt is not None), event)
    retry = c.Retry(id=event.id, by="")
    finish = c.Finish(id=event.id, by="", reason="advice")
    for kind, command in ((AdviceKind.RETRY, retry), (AdviceKind.FINISH, finish)):
        if kind is AdviceKind.RETRY and now.untrusted is not None:
            continue  # nothing is carried out
        if not isinstance(decide(groups[event.group], command, now), Refused):
            moves = kind is AdviceKind.FINISH and event.relocates
            yield Advice(kind, event.id, event.resources if moves else ())
