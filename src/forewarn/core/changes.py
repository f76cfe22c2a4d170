"""Changes: what a decision does to a group, as values. They are what is stored.

`apply` is the only way from one state of a group to the next, so replaying all changes from the
beginning gives the stored state.
"""

from __future__ import annotations

from typing import TypeAlias, TypeGuard

import msgspec

from forewarn.core.events import Event, Status
from forewarn.core.fleet import GroupKind, Machine, Place, Policy
from forewarn.core.group import Group
from forewarn.core.lifecycle import SHOWN, Move
from forewarn.core.time import Duration, Time


class EventMoved(msgspec.Struct, frozen=True, tag="event"):
    """An event has moved. `event` is its value afterwards; if over, this is its last change."""

    what: Move
    event: Event
    by: str = ""
    note: str = ""
    output: str = ""  # of the driver
    answer: str = ""  # a JSON object with what the driver has answered


class GroupDefined(msgspec.Struct, frozen=True, tag="group"):
    kind: GroupKind
    policy: Policy
    place: Place
    labels: dict[str, str] = {}
    by: str = ""


class MachinePut(msgspec.Struct, frozen=True, tag="machine"):
    machine: Machine
    by: str = ""


class MachineRemoved(msgspec.Struct, frozen=True, tag="machine-removed"):
    name: str
    by: str = ""


class EnablingBegan(msgspec.Struct, frozen=True, tag="enabling"):
    until: Time


class Enabled(msgspec.Struct, frozen=True, tag="enabled"):
    seen: Duration


class Disabled(msgspec.Struct, frozen=True, tag="disabled"):
    why: str
    by: str = ""


class Seen(msgspec.Struct, frozen=True, tag="seen"):
    seen: Duration


class Renumbered(msgspec.Struct, frozen=True, tag="renumbered"):
    """The document got an incarnation that no guest has been shown; its contents are the same. Of a
    group without a document, the next numbers are above this one."""

    incarnation: int


Change: TypeAlias = (
    EventMoved
    | GroupDefined
    | MachinePut
    | MachineRemoved
    | EnablingBegan
    | Enabled
    | Disabled
    | Seen
    | Renumbered
)


def begins_attempt(change: Change) -> TypeGuard[EventMoved]:
    """Does this change record a new attempt?"""
    return (
        isinstance(change, EventMoved)
        and change.what in (Move.START, Move.FAIL, Move.ATTEMPT)
        and change.event.status is Status.STARTED
        and change.event.attempt is not None
        and change.event.attempt.open
    )


class Changes(msgspec.Struct, frozen=True):
    """A decision: the changes, the id of the event concerned, and notes for the caller."""

    items: tuple[Change, ...] = ()
    event: str = ""
    notes: tuple[str, ...] = ()


def apply(group: Group, items: tuple[Change, ...]) -> Group:
    """Return the group after these changes, which become visible together."""
    fields: dict[str, object] = {}
    events: dict[str, Event] | None = None  # built only if one changes: a group may have thousands
    machines: dict[str, Machine] | None = None
    enabled, incarnation, shown = group.enabled, group.incarnation, False
    for item in items:
        match item:
            case EventMoved(what=what, event=event):
                if events is None:
                    events = {active.id: active for active in group.events}
                if event.status.over:
                    events.pop(event.id, None)
                else:
                    events[event.id] = event
                shown = shown or (what in SHOWN and not event.unannounced)
            case MachinePut() | MachineRemoved():
                if machines is None:
                    machines = {machine.name: machine for machine in group.machines}
                if isinstance(item, MachinePut):
                    machines[item.machine.name] = item.machine
                else:
                    machines.pop(item.name, None)
            case GroupDefined(kind=kind, policy=policy, place=place, labels=labels):
                fields |= {"kind": kind, "policy": policy, "place": place, "labels": labels}
            case EnablingBegan(until=until):
                fields["enabling_until"] = until
            case Enabled(seen=seen):
                fields |= {"enabling_until": None, "seen": seen, "renewed": False}
                enabled, incarnation = True, group.shown + 1 if group.renewed else 1
            case Disabled():
                fields |= {"enabling_until": None, "shown": max(group.shown, incarnation)}
                enabled, incarnation = False, 0
            case Seen(seen=seen):
                fields["seen"] = seen
            case Renumbered(incarnation=number) if enabled:
                incarnation = max(incarnation, number)
            case Renumbered(incarnation=number):
                fields |= {"shown": max(group.shown, number), "renewed": True}
    if shown and group.enabled and enabled:
        incarnation += 1
    if events is not None:
        fields["events"] = tuple(events.values())
    if machines is not None:
        fields["machines"] = tuple(machines.values())
        if not machines:
            fields["renewed"] = True  # a later group of this name is another one to its guests
    return msgspec.structs.replace(group, enabled=enabled, incarnation=incarnation, **fields)
