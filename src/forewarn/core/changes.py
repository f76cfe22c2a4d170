"""What a decision brings about, as values: the history is made of these and nothing else.

`apply` is the only way from one state of a group to the next, so replaying all changes from
nothing gives the stored state.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from forewarn.core.events import Event
from forewarn.core.fleet import GroupKind, Machine, Place, Policy
from forewarn.core.group import Group
from forewarn.core.lifecycle import SHOWN, Move
from forewarn.core.time import Duration, Time


class EventMoved(msgspec.Struct, frozen=True, tag="event"):
    """`event` is the value after the move; if it is over, this is its last record."""

    what: Move
    event: Event
    by: str = ""
    note: str = ""  # what a driver had to say, for the history


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
    """The same document under a number that nobody has been shown."""

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


class Changes(msgspec.Struct, frozen=True):
    """A decision: what changes, which event it is about, and what the caller should know."""

    items: tuple[Change, ...] = ()
    event: str = ""
    notes: tuple[str, ...] = ()


def apply(group: Group, items: tuple[Change, ...]) -> Group:
    """The group after these changes, which belong together and become visible together."""
    fields: dict[str, object] = {}
    events: dict[str, Event] | None = None  # of these there may be many: only if they change
    machines: dict[str, Machine] | None = None
    enabled, incarnation, shown = group.enabled, group.incarnation, False
    for item in items:
        match item:
            case EventMoved(what=what, event=event):
                if events is None:
                    events = {one.id: one for one in group.events}
                if event.status.over:
                    events.pop(event.id, None)
                else:
                    events[event.id] = event
                shown = shown or (what in SHOWN and not event.unannounced)
            case MachinePut() | MachineRemoved():
                if machines is None:
                    machines = {one.name: one for one in group.machines}
                if isinstance(item, MachinePut):
                    machines[item.machine.name] = item.machine
                else:
                    machines.pop(item.name, None)
            case GroupDefined(kind=kind, policy=policy, place=place, labels=labels):
                fields |= {"kind": kind, "policy": policy, "place": place, "labels": labels}
            case EnablingBegan(until=until):
                fields["enabling_until"] = until
            case Enabled(seen=seen):
                fields |= {"enabling_until": None, "seen": seen}
                enabled, incarnation = True, 1
            case Disabled():
                fields["enabling_until"] = None
                enabled, incarnation = False, 0
            case Seen(seen=seen):
                fields["seen"] = seen
            case Renumbered(incarnation=number) if enabled:
                incarnation = max(incarnation, number)
    if shown and group.enabled and enabled:
        incarnation += 1
    if events is not None:
        fields["events"] = tuple(events.values())
    if machines is not None:
        fields["machines"] = tuple(machines.values())
    return msgspec.structs.replace(group, enabled=enabled, incarnation=incarnation, **fields)
