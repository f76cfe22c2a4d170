"""Groups and their events as resources of Azure Resource Manager, and as Azure publishes events to
Event Grid and Azure Resource Graph."""

from __future__ import annotations

from typing import Any

import msgspec

from forewarn.core import Event, Group, GroupKind, Status
from forewarn.core.time import SECOND
from forewarn.wire import document as wire
from forewarn.wire.versions import NEWEST

DEFAULT_SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
DEFAULT_RESOURCE_GROUP = "forewarn"
DEFAULT_LOCATION = "local"
MACHINES = "Microsoft.Compute/virtualMachines"
SCALE_SETS = "Microsoft.Compute/virtualMachineScaleSets"
EVENTS = "Microsoft.Maintenance/scheduledEvents"
# Guests are not shown the last two: their document no longer lists the event.
STATUSES = {
    Status.SCHEDULED: "Scheduled",
    Status.STARTED: "Started",
    Status.FINISHED: "Completed",
    Status.WITHDRAWN: "Canceled",
}


def subscription_of(group: Group) -> str:
    return group.place.subscription or DEFAULT_SUBSCRIPTION


def resource_group_of(group: Group) -> str:
    return group.place.resource_group or DEFAULT_RESOURCE_GROUP


def location_of(group: Group) -> str:
    return group.place.location or DEFAULT_LOCATION


def scale_set_of(group: Group) -> str:
    """Return the name of the scale set that a group is, or is part of; empty if it is none."""
    if group.kind is not GroupKind.SCALE_SET:
        return ""
    return group.place.scale_set or group.name


def group_id(group: Group) -> str:
    return f"/subscriptions/{subscription_of(group)}/resourceGroups/{resource_group_of(group)}"


def scale_set_id(group: Group) -> str:
    return f"{group_id(group)}/providers/{SCALE_SETS}/{scale_set_of(group)}"


def is_published(group: Group, event: Event) -> bool:
    return group.policy.event_grid and not event.unannounced


def event_owner(group: Group, event: Event) -> str:
    """Return the id of the scale set that an event is published for, or of its first machine."""
    machine = f"{group_id(group)}/providers/{MACHINES}/{event.resources[0]}"
    return scale_set_id(group) if scale_set_of(group) else machine


def event_id(owner: str, event: Event) -> str:
    return f"{owner}/providers/{EVENTS}/{event.id}"


def event_resource(owner: str, group: Group, event: Event) -> dict[str, Any]:
    return {
        "id": event_id(owner, event),
        "name": event.id,
        "type": EVENTS,
        "location": location_of(group),
        "properties": _properties(event),
    }


def _properties(event: Event) -> dict[str, Any]:
    """Return an event as in the guests' document, with its status after that."""
    scheduled = event.status is Status.SCHEDULED
    shown = wire.Event(
        id=event.id,
        status="Canceled" if event.abandoned else STATUSES[event.status],
        type=event.type.value,
        resources=event.resources,
        not_before=event.not_before // SECOND if scheduled else None,
        description=event.description,
        source=event.source.value,
        duration=event.duration,
    )
    document = wire.render(wire.Document(0, (shown,)), NEWEST)
    properties: dict[str, Any] = msgspec.json.decode(document)["Events"][0]
    return {**properties, "ScheduledEventApiVersion": NEWEST.name}
