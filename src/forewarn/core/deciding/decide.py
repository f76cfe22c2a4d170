"""Decisions: what commands change in groups, or why they are refused.

`decide_all` decides everything that goes into one commit; `decide` is the same for one command and
one group. Pure and total: nothing here raises because of what a caller sends. Announcing events is
`announce.py`, starting them `start.py`, finishing them `finish.py`, joint maintenance of several
groups `joint.py`, and defining a group from the inventory `define.py`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, cast

import msgspec

from forewarn.core import commands as c
from forewarn.core.changes import (
    Change,
    Changes,
    Disabled,
    Enabled,
    EnablingBegan,
    EventMoved,
    GroupDefined,
    MachinePut,
    Seen,
    apply,
)
from forewarn.core.deciding.announce import announce, fail, user_maintenance
from forewarn.core.deciding.attempts import answered
from forewarn.core.deciding.define import define
from forewarn.core.deciding.finish import (
    carried_out,
    finished,
    measured,
    partly_moved,
    record_move,
    suspect_move,
)
from forewarn.core.deciding.holds import HaltedMachines, halt_holds
from forewarn.core.deciding.joint import (
    departed_joints,
    movable_joints,
    settle_joints,
    with_common_start,
)
from forewarn.core.deciding.reach import (
    UnreachableMachines,
    answer_on,
    reach_holds,
    unheard,
    with_departures,
    with_former_hosts,
)
from forewarn.core.deciding.removals import delete, evict
from forewarn.core.deciding.returns import heard
from forewarn.core.deciding.start import carried_out_jointly, settle
from forewarn.core.events import (
    IGNORES_WINDOWS,
    MAX_READY_CHANGES,
    Approval,
    ApprovalKind,
    Attempt,
    Event,
    Joint,
    Postponement,
    ReadinessChanges,
    Ready,
    Status,
)
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move, move
from forewarn.core.refusal import Hint, Refused, conflict, invalid, unknown
from forewarn.core.world import World
from forewarn.support.limits import MAX_READY_NOTE
from forewarn.support.text import listing

# Commands that announce an event or have one carried out: refused while the clock is untrusted.
IMPACTS = (c.Raise, c.Fail, c.UserMaintenance, c.Evict, c.Delete, c.Retry)


class CommitChanges(msgspec.Struct, frozen=True):
    """The changes of one commit: a decision for each command, and all changes by group."""

    decisions: tuple[Changes, ...]
    items: Mapping[str, tuple[Change, ...]]
    after: Mapping[str, Group] = {}  # the groups that exactly one decision changed


def decide_all(
    groups: Mapping[str, Group], commands: Sequence[tuple[str, c.Command]], now: World
) -> CommitChanges | Refused:
    """Decide commands one after the other, each on the state that the previous ones have left.

    Returns the first refusal if there is one. Joint events that can start as a result start too.
    """
    timed = with_common_start(groups, commands, now)
    if isinstance(timed, Refused):
        return timed
    after: dict[str, Group] = {}
    states = ChainMap(after, cast("MutableMapping[str, Group]", groups))
    items: dict[str, list[Change]] = {}
    changed_once: dict[str, Group] = {}
    decisions = []
    touched: dict[str, Joint] = {}
    for name, command in timed:
        before = states[name]
        decided = decide_and_apply(before, command, now)
        if isinstance(decided, Refused):
            return decided
        decision, group = decided
        now = with_departures(now, before, group)
        decisions.append(decision)
        touched |= movable_joints(before, now)
        if decision.items:
            # Changes that are applied together count as one (one new incarnation): if a group
            # is changed twice, its state is not that of applying one decision after the other.
            if name in items:
                changed_once.pop(name, None)
            else:
                changed_once[name] = group
            items.setdefault(name, []).extend(decision.items)
            after[name] = group
            touched |= movable_joints(group, now)
            touched |= departed_joints(before, group)
    if touched:
        now = _with_arrivals(now, groups, items)
    away = _away(timed) if touched else {}
    for name, changes in settle_joints(states, touched, now, away).items():
        changed_once.pop(name, None)
        items.setdefault(name, []).extend(changes)
    return CommitChanges(
        tuple(decisions), {name: tuple(changes) for name, changes in items.items()}, changed_once
    )


def _away(commands: Iterable[tuple[str, c.Command]]) -> Mapping[str, float]:
    """Return for how many seconds machines stood still, by what is answered in one commit."""
    away: dict[str, float] = {}
    for _, command in commands:
        if isinstance(command, c.Answer) and isinstance(command.outcome, c.Done):
            away |= command.outcome.away
    return away


def _with_arrivals(
    now: World, groups: Mapping[str, Group], items: Mapping[str, Sequence[Change]]
) -> World:
    """Return `now` with the machines that these changes put on hosts: nobody has warned them of the
    maintenance there, which must not start in the same commit."""
    arrivals: dict[str, tuple[str, ...]] = {}
    for name, changes in items.items():
        put = [change.machine for change in changes if isinstance(change, MachinePut)]
        before = {m.name: m.host for m in groups[name].machines if m.alive} if put else {}
        for machine in put:
            if machine.alive and machine.host not in ("", before.get(machine.name)):
                known = arrivals.get(machine.host) or now.uninformed.get(machine.host, ())
                arrivals[machine.host] = (*known, machine.name)
    if not arrivals:
        return now
    return msgspec.structs.replace(now, uninformed={**now.uninformed, **arrivals})


def decide(group: Group, command: c.Command, now: World) -> Changes | Refused:
    """Decide one command, and start the events that can start as a result."""
    decided = decide_and_apply(group, command, now)
    return decided if isinstance(decided, Refused) else decided[0]


def decide_and_apply(
    group: Group, command: c.Command, now: World
) -> tuple[Changes, Group] | Refused:
    """Decide one command; also return the group after it, which is computed on the way."""
    decision = _decide(group, command, now)
    if isinstance(decision, Refused):
        return decision
    if now.unreachable:
        items = with_former_hosts(group, decision.items, now)
        decision = msgspec.structs.replace(decision, items=items)
    after = apply(group, decision.items)
    now = with_departures(now, group, after)
    starts = settle(after, now)
    if (now.halts or now.unreachable) and (notes := _waiting_notes(after, decision.event, now)):
        decision = msgspec.structs.replace(decision, notes=(*decision.notes, *notes))
    if not starts:
        return decision, after
    decision = msgspec.structs.replace(decision, items=(*decision.items, *starts))
    return decision, apply(group, decision.items)  # all at once, as it becomes visible


def _waiting_notes(group: Group, id: str, now: World) -> tuple[str, ...]:
    """Return notes for the caller of a command about an event that an operator has halted, or that
    has a machine on a host that cannot be reached."""
    event = group.event(id) if id else None
    if event is None or event.status is not Status.SCHEDULED:
        return ()
    holds = halt_holds(event, HaltedMachines(group, now))
    holds += reach_holds(event, UnreachableMachines(group, now), now, agreed=True)
    return tuple(f"the event cannot start yet: {hold.message}" for hold in holds)


def _decide(group: Group, command: c.Command, now: World) -> Changes | Refused:
    if now.untrusted is not None and isinstance(command, IMPACTS):
        return conflict(now.clock_problem, hint=Hint.ACCEPT_CLOCK)
    match command:
        case c.Tick():
            return _tick(group, command, now)
        case c.Approve():
            return _approve(group, command, now)
        case c.Enable():
            return _enable(group, now)
        case c.Disable():
            if not group.enabled and group.enabling_until is None:
                return Changes(notes=(f"group '{group.name}' was not enabled",))
            return Changes((Disabled("on request", command.by),))
        case c.Raise():
            return announce(group, command, now)
        case c.Fail():
            return fail(group, command, now)
        case c.UserMaintenance():
            return user_maintenance(group, command, now)
        case c.Evict():
            return evict(group, command, now)
        case c.Delete():
            return delete(group, command, now)
        case c.SetPolicy():
            return _set_policy(group, command)
        case c.Prepare():
            return _prepare(group, command, now)
        case c.OperatorApprove():
            return _operator_approve(group, command, now)
        case c.Postpone():
            return _postpone(group, command, now)
        case c.Cancel():
            return _cancel(group, command, now)
        case c.Answer():
            return _answer(group, command, now)
        case c.Retry():
            return _retry(group, command, now)
        case c.Finish():
            return _finish(group, command, now)
        case c.Abandon():
            return _abandon(group, command, now)
        case c.Define():
            return define(group, command, now)
        case c.RecordMove():
            return record_move(group, command, now)
        case c.SuspectMove():
            return suspect_move(group, command)
        case c.AnswerOn():
            return answer_on(group, command)
        case c.Heard():
            return Changes(heard(group, command.machines))
        case c.Restore():
            return _restore(group, command)


def _tick(group: Group, command: c.Tick, now: World) -> Changes:
    items: list[Change] = []
    if group.enabling_until is not None and now.at >= group.enabling_until:
        items += _enabled(group, now)
    elif (
        group.enabled
        and now.rules.silence is not None
        and now.untrusted is None
        and not unheard(group, now)
    ):
        silence = now.rules.paced(now.rules.silence)
        seen = max(group.seen, command.seen)
        if now.served >= seen + silence:
            items.append(Disabled("no machine has asked for events"))
        elif now.served >= group.seen + silence:
            items.append(Seen(seen))
    for event in apply(group, tuple(items)).events:
        attempt = event.attempt
        if (
            attempt
            and attempt.next_at is not None
            and now.at >= attempt.next_at
            and now.untrusted is None
        ):
            items.append(_attempted(event, now))
    return Changes(tuple(items))


def _attempted(event: Event, now: World, by: str = "") -> EventMoved:
    last = event.attempt or Attempt(number=0, at=now.at)
    attempt = Attempt(
        number=last.number + 1,
        at=now.at,
        targets=last.targets,
        unsuitable=() if by else last.unsuitable,
        begun=last.begun,
    )
    return EventMoved(Move.ATTEMPT, move(event, Move.ATTEMPT, attempt=attempt), by)


def _enable(group: Group, now: World) -> Changes:
    if group.enabled or group.enabling_until is not None:
        return Changes()
    delay = now.rules.paced(now.rules.enable_delay)
    if delay:
        return Changes((EnablingBegan(now.at + delay),))
    return Changes(tuple(_enabled(group, now)))


def _enabled(group: Group, now: World) -> list[Change]:
    """Return the changes that enable the group and list its pending events."""
    items: list[Change] = [Enabled(now.served)]
    items += [
        EventMoved(Move.LIST, move(event, Move.LIST, listed=True))
        for event in group.events
        if not event.listed and not event.unannounced
    ]
    return items


def _approve(group: Group, command: c.Approve, now: World) -> Changes | Refused:
    items: list[Change] = []
    events = {event.id: event for event in group.events}
    for id in dict.fromkeys(command.ids):
        event = events.get(id)
        if event is None or not event.listed:
            if id in command.over:
                continue
            return unknown(f"no event {id} was ever listed here")
        # A group that is not enabled is shown nothing and has no vote.
        if group.enabled and event.status is Status.SCHEDULED and event.approved is None:
            items.append(_approved(event, command.by, now, ApprovalKind.GUEST))
    return Changes(tuple(items))


def _approved(event: Event, by: str, now: World, kind: ApprovalKind) -> EventMoved:
    after = move(event, Move.APPROVE, approved=Approval(by, now.at, kind))
    return EventMoved(Move.APPROVE, after, by)


def _operator_approve(group: Group, command: c.OperatorApprove, now: World) -> Changes | Refused:
    event = group.event(command.id)
    if event is None:
        return unknown(f"event {command.id} is not active")
    if event.status is Status.STARTED:
        return Changes((), event.id, ("it had already started",))
    ignored: dict[str, Any] = {}
    if command.ignore_windows and (event.span is not None or not event.ignore_windows):
        ignored = {"ignore_windows": True, "span": None}
    if event.approved is not None and not ignored:
        return Changes((), event.id, (f"it had already been approved, by {event.approved.by}",))
    approval = event.approved or Approval(command.by, now.at, ApprovalKind.OPERATOR)
    after = move(event, Move.APPROVE, approved=approval, **ignored)
    note = IGNORES_WINDOWS if ignored else ""
    return Changes((EventMoved(Move.APPROVE, after, command.by, note),), event.id)


def _postpone(group: Group, command: c.Postpone, now: World) -> Changes | Refused:
    event = group.event(command.id)
    if event is None or event.status is Status.STARTED:
        return unknown(f"event {command.id} has started, or is over, and cannot be postponed")
    if command.not_before <= event.not_before:
        return conflict(f"event {event.id} can only be postponed to a later time")
    own = command.group == group.name
    by = command.by if own else ""
    postponement = Postponement(
        by=by,
        group=command.group if own else "",
        at=now.at,
        before=event.not_before,
        after=command.not_before,
    )
    after = move(
        event,
        Move.POSTPONE,
        not_before=command.not_before,
        postponed=(*event.postponed, postponement),
    )
    return Changes((EventMoved(Move.POSTPONE, after, by),), event.id)


def _cancel(group: Group, command: c.Cancel, now: World) -> Changes | Refused:
    event = group.event(command.id)
    if event is None:
        return unknown(f"event {command.id} is not active")
    if event.status is Status.STARTED:
        return conflict(
            f"event {event.id} has started and cannot be cancelled; only a Scheduled event can"
        )
    if event.joint is not None and not command.jointly:
        return conflict(
            f"event {event.id} belongs to the maintenance of host '{event.host}', which is for"
            f" groups {listing(event.joint.groups)} together; they can only be cancelled together"
        )
    ending = f"cancelled by {command.by}" + (f": {command.why}" if command.why else "")
    over = move(event, Move.WITHDRAW, ended_at=now.at, ending=ending, cancelled_by=command.by)
    return Changes((EventMoved(Move.WITHDRAW, over, command.by),), event.id)


def _answer(group: Group, command: c.Answer, now: World) -> Changes:
    event = group.event(command.id)
    if event is None or event.attempt is None:
        return Changes()  # the event ended while its driver was at work
    attempt = event.attempt
    if attempt.number != command.attempt or not attempt.open:
        return Changes()
    outcome = command.outcome
    if isinstance(outcome, c.Done | c.Failed):
        event = measured(event, outcome.away)
    if isinstance(outcome, c.Done):
        moved = outcome.moved if event.relocates else {}
        items = carried_out(
            group, event, now, moved=moved, output=outcome.output, answer=outcome.answer
        )
        return Changes(items, event.id)
    after = move(event, Move.ANSWER, attempt=answered(attempt, command, now))
    change = EventMoved(Move.ANSWER, after, output=outcome.output, answer=outcome.answer)
    if isinstance(outcome, c.Failed) and outcome.moved and event.relocates:
        return Changes(partly_moved(group, event, now, change, outcome.moved), event.id)
    return Changes((change,), event.id)


def _retry(group: Group, command: c.Retry, now: World) -> Changes | Refused:
    event = group.event(command.id)
    if event is not None and (refused := _not_open(event)):
        return refused
    if event is None or event.attempt is None:
        return unknown(
            f"event {command.id} has not started, or is over; only a Started event can be retried"
        )
    if event.attempt.open:
        return conflict(f"event {event.id}: attempt {event.attempt.number} is still under way")
    return Changes((_attempted(event, now, command.by),), event.id)


def _finish(group: Group, command: c.Finish, now: World) -> Changes | Refused:
    event = group.event(command.id)
    if event is None or event.status is not Status.STARTED:
        return unknown(
            f"event {command.id} has not started, or is over; only a Started event can be finished"
        )
    if event.waiting is None and follows(event):
        return _lead_refusal(event)
    if not command.reason.strip():
        return invalid("a reason is required to finish an event")
    for machine in command.moved:
        if machine not in event.resources:
            return invalid(f"machine '{machine}' is not affected by event {event.id}")
    ending = f"finished by {command.by}: {command.reason}"
    relocates = event.relocates and event.waiting is None
    without_host = [name for name in event.resources if relocates and name not in command.moved]
    notes: tuple[str, ...] = ()
    if without_host:
        notes = (
            f"the new host was not given for {listing(without_host)}; each is assumed to be on the"
            " same host as before. If it has moved, record its new host",
        )
    return Changes(
        finished(
            group,
            event,
            now,
            ending=ending,
            by=command.by,
            carried_out=False,
            moved=command.moved,
        ),
        event.id,
        notes,
    )


def _abandon(group: Group, command: c.Abandon, now: World) -> Changes | Refused:
    event = group.event(command.id)
    if event is None or event.status is not Status.STARTED:
        return unknown(
            f"event {command.id} has not started, or is over; only a Started event can be abandoned"
        )
    if refused := _not_open(event):
        return refused
    if not command.reason.strip():
        return invalid("a reason is required to abandon an event")
    if event.failure:
        return invalid(f"event {event.id} reports a failure, which has happened")
    ending = f"abandoned by {command.by}, it did not happen: {command.reason}"
    items = finished(
        group, event, now, ending=ending, by=command.by, carried_out=False, abandoned=True
    )
    return Changes(items, event.id)


def follows(event: Event) -> bool:
    """Is it carried out by the lead of its joint?"""
    return carried_out_jointly(event) and event.attempt is None


def _not_open(event: Event) -> Refused | None:
    """Refuse what can only be done to an event that has not been carried out, on its lead."""
    if event.waiting is not None:
        return conflict(
            f"event {event.id} was carried out, and waits until {listing(event.waiting.machines)}"
            " have polled again; only 'finish' ends that"
        )
    return _lead_refusal(event) if follows(event) else None


def _lead_refusal(event: Event) -> Refused:
    return conflict(
        f"event {event.id} is carried out together with the others on host '{event.host}'; use the"
        " lead event instead",
        hint=Hint.EXPLAIN_HOST,
        about=event.host,
    )


def _set_policy(group: Group, command: c.SetPolicy) -> Changes:
    if group.policy == command.policy:
        return Changes(notes=("the policy is unchanged",))
    after = GroupDefined(group.kind, command.policy, group.place, group.labels, command.by)
    return Changes((after,))


def _prepare(group: Group, command: c.Prepare, now: World) -> Changes | Refused:
    event = group.event(command.id)
    if event is None or not event.listed or not group.enabled:
        if command.by:
            return conflict(f"event {command.id} is not in the document of group '{group.name}'")
        return unknown(f"no event {command.id} is listed here")
    if command.machine not in group.alive:
        return unknown(f"no machine '{command.machine}' in group '{group.name}'")
    if len(command.note) > MAX_READY_NOTE:
        return invalid(f"the note has more than {MAX_READY_NOTE} characters")
    current = next((report for report in event.ready if report.machine == command.machine), None)
    if (current is not None) == command.ready and (current is None or current.note == command.note):
        return Changes((), event.id)
    changes = {change.machine: change.times for change in event.readiness_changes}
    times = changes.get(command.machine, 0) + 1
    if times > MAX_READY_CHANGES:
        return conflict(
            f"machine '{command.machine}' has changed its readiness for event {event.id}"
            f" {MAX_READY_CHANGES} times; it stays as it is"
        )
    changes[command.machine] = times
    ready = [report for report in event.ready if report.machine != command.machine]
    if command.ready:
        ready.append(Ready(command.machine, now.at, command.note))
    counts = tuple(ReadinessChanges(*change) for change in changes.items())
    after = move(event, Move.READY, ready=tuple(ready), readiness_changes=counts)
    note = "ready" if command.ready else "not ready"
    if command.by:
        note = f"{command.machine} is {note}" + (f": {command.note}" if command.note else "")
    by = command.by or command.machine
    return Changes((EventMoved(Move.READY, after, by, note),), event.id)


def _restore(group: Group, command: c.Restore) -> Changes | Refused:
    machine = group.machine(command.machine)
    if machine is None:
        return unknown(f"no machine '{command.machine}' in group '{group.name}'")
    if machine.alive and machine.not_back is None:
        return conflict(
            f"machine '{machine.name}' exists; only a machine that was evicted or deleted, or is"
            " not back after an event, can be restored"
        )
    restored = msgspec.structs.replace(machine, gone="", not_back=None)
    return Changes((MachinePut(restored, command.by),))
