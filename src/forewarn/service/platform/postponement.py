"""Postponing an event, by its machines or by people: one commit for all events that start together.

By how much and how often it may be done is decided in `core.deciding.postpone`.
"""

from __future__ import annotations

from forewarn.core import Event, Refused, World
from forewarn.core import commands as c
from forewarn.core.deciding.joint import members
from forewarn.core.deciding.postpone import postponed_until
from forewarn.core.refusal import conflict
from forewarn.core.time import Duration, Time
from forewarn.service.engine.writer import CommitPlan
from forewarn.store.port import States


def plan_postponement(
    states: States, event: Event, by: str, now: World, until: Time | None, duration: Duration = 0
) -> CommitPlan | Refused:
    """Move NotBefore until a time, or by a duration, as far as the policy of the group allows."""
    current = states[event.group].event(event.id)
    if current is None:
        return conflict(f"event {event.id} is over")
    not_before = postponed_until(states, current, until, duration, now)
    if isinstance(not_before, Refused):
        return not_before
    together = members(states, current.joint) if current.joint else {event.group: current}
    commands = [
        (group, c.Postpone(id=e.id, by=by, group=event.group, not_before=not_before))
        for group, e in together.items()
    ]
    notes = (
        (f"the whole maintenance of host '{event.host}' is postponed, for all groups on it",)
        if len(together) > 1
        else ()
    )
    return CommitPlan(commands, notes=notes)
