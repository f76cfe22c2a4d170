"""Postponing: by how much the owner of a group may move the NotBefore of an event.

The events of a joint maintenance start together, so all of them move. What the policy of the group
that asks allows decides; the other groups are shown the later time.
"""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.core.deciding.holds import opens_at
from forewarn.core.deciding.joint import JointState
from forewarn.core.events import Event, Status
from forewarn.core.group import Group
from forewarn.core.refusal import Refused, conflict, invalid
from forewarn.core.time import SECOND, Duration, Time, ceil_second
from forewarn.core.windows.may_postpone import times_text
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.core.windows.openings import next_open
from forewarn.core.world import World
from forewarn.support.text import in_words, utc


def postponed_until(
    groups: Mapping[str, Group], event: Event, wanted: Time | None, by: Duration, now: World
) -> Time | Refused:
    """Return the new NotBefore of an event that its group wants to postpone: until a time, or by a
    duration."""
    group = groups[event.group]
    left = may_be_postponed_by(group, event)
    if isinstance(left, Refused):
        return left
    limit = event.not_before + left
    base = max(event.not_before, now.at)
    until = ceil_second(base + by if wanted is None else wanted)
    if until <= base:
        return invalid(f"event {event.id} can only be postponed to a time after {utc(base)}")
    state = JointState(groups)
    members = state.members(event.joint) if event.joint else {group.name: event}
    configurations = state.configurations(members, now)
    opens: Time | None = until
    for member in members.values():
        opens = None if opens is None else opens_at(member, configurations, opens)
    if opens is not None and ceil_second(opens) <= limit:
        return ceil_second(opens)
    latest = _latest(members, configurations, base, limit)
    most = f"the policy of group '{group.name}' allows {in_words(left)} more"
    if latest is None:
        return conflict(
            f"event {event.id} cannot be postponed: {most}, and there is no later time within"
            " that limit at which it may start"
        )
    return conflict(
        f"event {event.id} cannot be postponed until {utc(until)}: {most}; the latest possible time"
        f" is {utc(latest)}"
    )


def may_be_postponed_by(group: Group, event: Event) -> Duration | Refused:
    """Return by how much an event may still be postponed, or why it may not be."""
    if problem := _problem(event):
        return problem
    allowed = group.policy.may_postpone
    if allowed is None:
        return conflict(
            f"the policy of group '{group.name}' does not allow events to be postponed; an operator"
            " can change that (may_postpone)"
        )
    own = [p for p in event.postponed if p.group == group.name]
    if len(own) >= allowed.times:
        return conflict(
            f"event {event.id} has been postponed {times_text(len(own))}, which is all that the"
            f" policy of group '{group.name}' allows"
        )
    return allowed.total - sum(p.after - p.before for p in own)


def _problem(event: Event) -> Refused | None:
    if event.status is not Status.SCHEDULED:
        return conflict(f"event {event.id} has started and cannot be postponed")
    if not event.waits_for_domain:
        return conflict(
            f"event {event.id} cannot be postponed: only maintenance by the platform can be, not"
            " what a user has requested, nor evictions, deletions and failures"
        )
    if event.approved is not None:
        return conflict(
            f"event {event.id} cannot be postponed: it has been approved, so it starts as soon as"
            " nothing else holds it"
        )
    return None


def _latest(
    members: Mapping[str, Event],
    configurations: tuple[MaintenanceConfiguration, ...],
    after: Time,
    limit: Time,
) -> Time | None:
    """Return the last whole second between two instants at which the events may start."""
    closes = [e.span.closes for e in members.values() if e.span and e.span.closes is not None]
    limit = min([limit, *(close - 1 for close in closes)]) // SECOND * SECOND
    latest: Time | None = None
    at = ceil_second(after + 1)
    while at <= limit:
        span = next_open(configurations, at)
        if span is None or ceil_second(span.opens) > limit:
            break
        if span.closes is None or span.closes > limit:
            return limit
        latest = (span.closes - 1) // SECOND * SECOND
        at = span.closes
    return latest
