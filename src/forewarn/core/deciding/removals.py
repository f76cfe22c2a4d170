"""Machines that leave for good: spot evictions and deletes.

An eviction is always announced. A delete is, if the group has asked to be told of deletes and
can be; else it happens at once, and is carried out by an event that nobody is shown.
"""

from __future__ import annotations

from forewarn.core import commands as c
from forewarn.core.changes import Changes, EventMoved
from forewarn.core.deciding.announce import draft, id_problem, machines_problem
from forewarn.core.events import (
    Approval,
    ApprovalKind,
    Event,
    EventType,
    Source,
    Status,
    types_that,
)
from forewarn.core.fleet import GroupKind, Machine, Policy
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move, move
from forewarn.core.refusal import Hint, Refused, conflict
from forewarn.core.time import MINUTE, Duration, Now, ceil_second
from forewarn.support.text import in_words, listing

MIN_TERMINATE_NOTICE: Duration = 5 * MINUTE
MAX_TERMINATE_NOTICE: Duration = 15 * MINUTE


def evict(group: Group, command: c.Evict, now: Now) -> Changes | Refused:
    machine = _leaving(group, command)
    if not isinstance(machine, Machine):
        return machine
    if not machine.spot:
        return conflict(
            f"machine '{machine.name}' is not spot, and only spot machines are evicted",
            hint=Hint.SCHEDULE_PREEMPT,
            about=machine.name,
        )
    if known := _same(group, EventType.PREEMPT, machine.name):
        return Changes((), known.id, ("it is being evicted already; this is the same event",))
    event = draft(
        group,
        command,
        EventType.PREEMPT,
        (machine.name,),
        now,
        source=Source.PLATFORM,
        not_before=_in(EventType.PREEMPT.traits.notice, now),
        cause=command.cause,
    )
    return _raised(group, event, command.by)


def delete(group: Group, command: c.Delete, now: Now) -> Changes | Refused:
    machine = _leaving(group, command)
    if not isinstance(machine, Machine):
        return machine
    if known := _same(group, EventType.TERMINATE, machine.name):
        return Changes((), known.id, ("it is being deleted already; this is the same event",))
    notice = group.policy.terminate_notice
    unannounced = _unannounced_because(group, machine)
    event = draft(
        group,
        command,
        EventType.TERMINATE,
        (machine.name,),
        now,
        source=Source.PLATFORM,
        not_before=_in(0 if unannounced else notice or 0, now),
        cause=command.cause,
        **({"unannounced": True, "listed": False} if unannounced else {}),
        approved=Approval("nobody: it is not announced", now.at, ApprovalKind.NOBODY)
        if unannounced
        else None,
    )
    if unannounced:
        raised = EventMoved(Move.RAISE, move(event, Move.RAISE), command.by)
        return Changes((raised,), event.id, (f"deleted at once, unannounced: {unannounced}",))
    return _raised(group, event, command.by)


def _unannounced_because(group: Group, machine: Machine) -> str:
    """Why the group is not told of this delete; empty if it is."""
    if group.kind is not GroupKind.SCALE_SET:
        return "only members of scale sets are told of a delete"
    if machine.spot:
        return "spot machines are not told of a delete"
    if group.policy.terminate_notice is None:
        return f"the policy of group '{group.name}' sets no terminate notice"
    return ""


def _leaving(group: Group, command: c.Evict | c.Delete) -> Machine | Refused | Changes:
    """The machine, if it can be taken; what takes it already, if something does."""
    machine = group.machine(command.machine)
    for event in group.events:
        if (
            event.traits.deletes
            and event.status is Status.STARTED
            and command.machine in event.resources
        ):
            return Changes((), event.id, ("it is being deleted already; this is the same event",))
    problem = id_problem(group, command.id) or machines_problem(group, (command.machine,))
    if problem:
        return problem
    assert machine is not None
    return machine


def _same(group: Group, type: EventType, name: str) -> Event | None:
    return next((e for e in group.events if e.type is type and e.resources == (name,)), None)


def _in(notice: Duration, now: Now) -> int:
    return ceil_second(now.at + now.rules.paced(notice))


def _raised(group: Group, event: Event, by: str) -> Changes:
    notes: tuple[str, ...] = ()
    if not group.enabled:
        notes = (f"group '{group.name}' is not listening; it will see the event once it asks",)
    raised = EventMoved(Move.RAISE, move(event, Move.RAISE), by)
    return Changes((raised,), event.id, notes)


def policy_problem(kind: GroupKind, policy: Policy) -> str:
    """What is wrong with a policy; empty if nothing is."""
    if policy.user_event_limit is not None and policy.user_event_limit < 1:
        return "user_event_limit must be at least 1, or left out for no limit"
    if wrong := [type.value for type in policy.auto_approve if not type.traits.by_user]:
        types = ", ".join(t.value for t in types_that(lambda traits: traits.by_user))
        return f"auto_approve is for users' events ({types}), not {listing(wrong)}"
    notice = policy.terminate_notice
    if notice is None:
        return ""
    if kind is not GroupKind.SCALE_SET:
        return "terminate_notice goes with kind scale-set only"
    if not MIN_TERMINATE_NOTICE <= notice <= MAX_TERMINATE_NOTICE:
        return (
            f"terminate_notice is from {in_words(MIN_TERMINATE_NOTICE)}"
            f" to {in_words(MAX_TERMINATE_NOTICE)}, not {in_words(notice)}"
        )
    return ""
