"""What must be true of a group whatever has happened to it, read off its state alone.

What needs a memory of the group's past is in `group_checker.py`.
"""

from __future__ import annotations

from forewarn.core import Group, World, commands, view, why
from forewarn.core.events import Status
from helpers.group_rules import DELETES, held_by


def check_group(before: Group, command: commands.Command, after: Group) -> None:
    for event in after.events:
        assert event.listed or event.unannounced or not after.enabled
        assert not (event.listed and event.unannounced)
        assert (event.status is Status.STARTED) == (event.attempt is not None)
        for delete in after.events:
            if delete.type in DELETES and delete.status is Status.STARTED:
                assert delete == event or not set(event.resources) <= set(delete.resources)
    for machine in before.machines:
        then = after.machine(machine.name)
        if then is None:
            assert isinstance(command, commands.Define)
        elif machine.gone:
            back = isinstance(command, commands.Restore) and command.machine == machine.name
            assert then.gone == ("" if back else machine.gone)


def check_document(before: Group, after: Group) -> None:
    """The incarnation changes with the events shown, and with nothing else."""
    was, now = view(before), view(after)
    if not now.enabled:
        assert (now.incarnation, now.events) == (0, ())
        return
    announced_events = [event for event in after.events if not event.unannounced]
    for shown, event in zip(now.events, announced_events, strict=True):
        assert (shown.id, shown.status) == (event.id, event.status)
        announced = event.status is Status.SCHEDULED
        assert shown.not_before == (event.not_before if announced else None)
        assert (shown.type, shown.resources) == (event.type, event.resources)
        assert (shown.source, shown.duration) == (event.source, event.duration)
        assert shown.description == event.description
    if not was.enabled:
        assert now.incarnation == (before.shown + 1 if before.renewed else 1)
    elif was.events == now.events:
        assert now.incarnation == was.incarnation
    else:
        assert now.incarnation > was.incarnation


def check_waiting(after: Group, now: World) -> None:
    """A decision starts all that it sets free, and whatever still waits can say why."""
    for event in after.events:
        holds = why(after, event.id, now)
        if event.status is Status.STARTED:
            assert holds == ()
            continue
        kinds = held_by(event, after.events, now, after)
        assert kinds, event
        assert {hold.kind for hold in holds} == kinds
        for hold in holds:
            assert hold.message
            assert hold.unblocked_by
            assert hold.since <= now.at
            assert hold.until is None or hold.until > now.at
            assert all(after.event(id) not in (None, event) for id in hold.waits_for)
