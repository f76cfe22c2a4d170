"""Removing machines: evictions of spot machines, and deletes.

An eviction is always announced. A delete is announced if the policy of the group gives notice of
deletes; otherwise it happens at once, by an event that guests are not shown.
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
from forewarn.core.time import HOUR, MINUTE, SECOND, Duration
from forewarn.core.windows.may_postpone import may_postpone_problem
from forewarn.core.world import World
from forewarn.support.limits import MAX_BLACKOUTS, MAX_WINDOWS
from forewarn.support.text import in_words, listing

MIN_TERMINATE_NOTICE: Duration = 5 * MINUTE
MAX_TERMINATE_NOTICE: Duration = 15 * MINUTE
MIN_BACK_WITHIN: Duration = 10 * SECOND  # clients may poll every few seconds
MAX_BACK_WITHIN: Duration = HOUR  # a rollout waits for as long


def evict(group: Group, command: c.Evict, now: World) -> Changes | Refused:
    machine = _removable(group, command)
    if not isinstance(machine, Machine):
        return machine
    if not machine.spot:
        return conflict(
            f"machine '{machine.name}' is not a spot machine, and only spot machines can be"
            " evicted",
            hint=Hint.SCHEDULE_PREEMPT,
            about=machine.name,
        )
    if existing := _existing_event(group, EventType.PREEMPT, machine.name):
        return Changes((), existing.id, ("it is already being evicted; this is the same event",))
    event = draft(
        group,
        command,
        EventType.PREEMPT,
        (machine.name,),
        now,
        source=Source.PLATFORM,
        not_before=now.after_notice(EventType.PREEMPT.traits.notice),
        cause=command.cause,
    )
    return _raised(group, event, command.by)


def delete(group: Group, command: c.Delete, now: World) -> Changes | Refused:
    machine = _removable(group, command)
    if not isinstance(machine, Machine):
        return machine
    if existing := _existing_event(group, EventType.TERMINATE, machine.name):
        return Changes((), existing.id, ("it is already being deleted; this is the same event",))
    notice = group.policy.terminate_notice
    reason = _unannounced_reason(group, machine)
    event = draft(
        group,
        command,
        EventType.TERMINATE,
        (machine.name,),
        now,
        source=Source.PLATFORM,
        not_before=now.after_notice(0 if reason else notice or 0),
        cause=command.cause,
        **({"unannounced": True, "listed": False} if reason else {}),
        approved=Approval("nobody: it is not announced", now.at, ApprovalKind.NOBODY)
        if reason
        else None,
    )
    if reason:
        raised = EventMoved(Move.RAISE, move(event, Move.RAISE), command.by)
        return Changes((raised,), event.id, (f"deleted at once, unannounced: {reason}",))
    return _raised(group, event, command.by)


def _unannounced_reason(group: Group, machine: Machine) -> str:
    """Return why this delete is not announced; empty if it is."""
    if group.kind is not GroupKind.SCALE_SET:
        return "only deletions of scale set members are announced"
    if machine.spot:
        return "deletions of spot machines are not announced"
    if group.policy.terminate_notice is None:
        return f"the policy of group '{group.name}' sets no terminate notice"
    return ""


def _removable(group: Group, command: c.Evict | c.Delete) -> Machine | Refused | Changes:
    """Return the machine, a refusal, or the event that is deleting the machine already."""
    machine = group.machine(command.machine)
    for event in group.events:
        if (
            event.traits.deletes
            and event.status is Status.STARTED
            and command.machine in event.resources
        ):
            return Changes((), event.id, ("it is already being deleted; this is the same event",))
    problem = id_problem(group, command.id) or machines_problem(group, (command.machine,))
    if problem:
        return problem
    assert machine is not None
    return machine


def _existing_event(group: Group, type: EventType, name: str) -> Event | None:
    return next((e for e in group.events if e.type is type and e.resources == (name,)), None)


def _raised(group: Group, event: Event, by: str) -> Changes:
    notes: tuple[str, ...] = ()
    if not group.enabled:
        notes = (f"group '{group.name}' is not enabled; it will see the event after its next poll",)
    raised = EventMoved(Move.RAISE, move(event, Move.RAISE), by)
    return Changes((raised,), event.id, notes)


def policy_problem(kind: GroupKind, policy: Policy) -> str:
    """Return what is wrong with a policy; empty if nothing is."""
    if policy.user_event_limit is not None and policy.user_event_limit < 1:
        return "user_event_limit must be at least 1, or left out for no limit"
    if refused_types := [type.value for type in policy.auto_approve if not type.traits.by_user]:
        types = ", ".join(t.value for t in types_that(lambda traits: traits.by_user))
        return f"auto_approve is for users' events ({types}), not {listing(refused_types)}"
    if problem := _times_problem(policy):
        return problem
    if (within := policy.back_within) is not None and not (
        MIN_BACK_WITHIN <= within <= MAX_BACK_WITHIN
    ):
        return (
            f"back_within must be from {in_words(MIN_BACK_WITHIN)} to {in_words(MAX_BACK_WITHIN)},"
            f" not {in_words(within)}"
        )
    return notice_problem(kind, "terminate_notice", policy.terminate_notice) or notice_problem(
        kind, "image_notice", policy.image_notice
    )


def notice_problem(kind: GroupKind, name: str, notice: Duration | None) -> str:
    """Return what is wrong with the notice that members of a scale set get before they are deleted
    or reimaged; empty if nothing is."""
    if notice is None:
        return ""
    if kind is not GroupKind.SCALE_SET:
        return f"{name} is only for groups of kind scale-set"
    if not MIN_TERMINATE_NOTICE <= notice <= MAX_TERMINATE_NOTICE:
        return (
            f"{name} must be from {in_words(MIN_TERMINATE_NOTICE)}"
            f" to {in_words(MAX_TERMINATE_NOTICE)}, not {in_words(notice)}"
        )
    return ""


def _times_problem(policy: Policy) -> str:
    if len(policy.windows) > MAX_WINDOWS:
        return f"a group can have at most {MAX_WINDOWS} windows"
    if len(policy.blackouts) > MAX_BLACKOUTS:
        return f"a group can have at most {MAX_BLACKOUTS} blackouts"
    return may_postpone_problem(policy.may_postpone) if policy.may_postpone else ""
