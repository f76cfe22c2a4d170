"""The planned maintenance of a resource, and having it done now.

An update is an event with which the platform maintains machines of the resource. Applying updates
approves all of these events in one commit; their approval is what they have in common. The apply
update is named by the first of these events, and its status is read off them: nothing else is
stored. `default` names the latest one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from forewarn.arm import views
from forewarn.arm.errors import ArmError, not_allowed
from forewarn.arm.inventory import Inventory, machine_id
from forewarn.arm.options import PAGED
from forewarn.arm.paging import page
from forewarn.arm.request import Answer, Request
from forewarn.arm.routing import MAINTENANCE, RESOURCE_GROUP, SUBSCRIPTION, route
from forewarn.arm.targets import CHILD, RESOURCE, Target, is_maintenance, target_of
from forewarn.arm.times import moment
from forewarn.core import Event, Group, Machine, Status
from forewarn.core.access import Role
from forewarn.core.events import ApprovalKind
from forewarn.service.access.secret import hidden

UPDATES = MAINTENANCE + "/updates"
APPLY_UPDATES = MAINTENANCE + "/applyUpdates"
DEFAULT = "default"  # names the latest apply update
LATEST = 100  # events of a group that are over, among which the latest is searched


@route("GET", RESOURCE + UPDATES, options=PAGED)
@route("GET", CHILD + UPDATES, options=PAGED)
async def list_updates(request: Request) -> Answer:
    target = target_of(request, hosts=True)
    return page(
        request,
        target.maintenance(),
        lambda event: (event.id,),
        lambda event: _update(target, event),
    )


@route("PUT", RESOURCE + APPLY_UPDATES + "/{update}", role=Role.TENANT)
@route("PUT", CHILD + APPLY_UPDATES + "/{update}", role=Role.TENANT)
async def apply_updates(request: Request) -> Answer:
    target = target_of(request, hosts=True)
    _check(request)
    _, events = await request.operations.carry_out(
        request, lambda call, _: call.platform.approve_each(_to_approve(target), call.by)
    )
    # Not 201: old SDKs take only 200.
    return Answer(body=_apply_update(target.id, events[0].id, events))


def _to_approve(target: Target) -> list[str]:
    """Return the ids of the planned maintenance that has to be approved; of the first one if all is
    approved. Raises ArmError."""
    planned = target.maintenance()
    if not planned:
        raise not_allowed(f"No maintenance is planned for '{target.id}' that could be done now.")
    return [event.id for event in planned if event.approved is None] or [planned[0].id]


@route("GET", RESOURCE + APPLY_UPDATES + "/{update}")
@route("GET", CHILD + APPLY_UPDATES + "/{update}")
async def get_apply_update(request: Request) -> Answer:
    target, name = target_of(request, hosts=True), request.names["update"]
    if name.lower() == DEFAULT:
        latest = await _latest(request, target)
        if latest is None:
            return Answer(body=_apply_update(target.id, DEFAULT, ()))
        return Answer(body=_apply_update(target.id, DEFAULT, _approved_with(target, latest)))
    found = await request.events([name])
    if not found or not target.concerns(found[0]) or not is_maintenance(found[0]):
        raise ArmError(
            404,
            "NotFound",
            f"There is no apply update '{hidden(name[:100])}' for '{target.id}'.",
        )
    events = _approved_with(target, found[0])
    return Answer(body=_apply_update(target.id, found[0].id, events))


@route("GET", SUBSCRIPTION + APPLY_UPDATES, options=PAGED)
@route("GET", RESOURCE_GROUP + APPLY_UPDATES, options=PAGED)
async def list_apply_updates(request: Request) -> Answer:
    """Those that are under way, for each machine."""
    groups = Inventory(request.call).groups(*request.place)
    return await asyncio.to_thread(
        page,
        request,
        (found for group in groups for found in _under_way(group)),
        lambda found: (found[0].name, found[1].name, found[2].id),
        lambda found: _apply_update(machine_id(found[0], found[1]), found[2].id, found[2:]),
    )


def _check(request: Request) -> None:
    """Refuse what is not a request to apply updates now. Raises ArmError."""
    if request.names["update"].lower() != DEFAULT:
        raise not_allowed("Apply updates are named by the service: put 'applyUpdates/default'.")
    properties = request.body().get("properties")
    status = properties.get("status") if isinstance(properties, dict) else None
    if str(status).lower() in ("cancel", "cancelled"):
        raise not_allowed(
            "properties.status: updates cannot be cancelled here; an operator can cancel the"
            " scheduled event."
        )


def _approved_with(target: Target, event: Event) -> list[Event]:
    """Return an event, and the others of the resource that were approved with it."""
    others = [
        other
        for other in target.maintenance()
        if other.id != event.id and other.approved is not None and other.approved == event.approved
    ]
    return [event, *others]


async def _latest(request: Request, target: Target) -> Event | None:
    """Return the first event of what is planned or under way, or else the last that is over."""
    if planned := target.maintenance():
        return planned[0]
    store = request.context.store
    over = [
        event
        for name in target.groups
        for event in await store.past_events(group=name, limit=LATEST)
        if target.concerns(event) and is_maintenance(event)
    ]
    return max(over, key=lambda event: event.ended_at or 0, default=None)


def _under_way(group: Group) -> Iterator[tuple[Group, Machine, Event]]:
    for event in group.events:
        approved = event.approved
        if is_maintenance(event) and approved and approved.kind is ApprovalKind.OPERATOR:
            for machine in group.named(event.resources).values():
                yield group, machine, event


def _update(target: Target, event: Event) -> dict[str, Any]:
    update: dict[str, Any] = {
        "maintenanceScope": "Host",
        "impactType": event.traits.arm_impact or event.type.value,
        "status": _status([event]),
        "notBefore": moment(event.not_before),
        "properties": {"resourceId": target.id},
    }
    if (duration := views.duration_of(event)) is not None:
        update["impactDurationInSec"] = duration
    return update


def _apply_update(resource: str, name: str, events: Sequence[Event]) -> dict[str, Any]:
    properties = {"resourceId": resource, "status": _status(events)}
    if events:
        properties["lastUpdateTime"] = moment(max(map(_changed, events)))
    return {
        "id": f"{resource}{APPLY_UPDATES}/{name}",
        "name": name,
        "type": "Microsoft.Maintenance/applyUpdates",
        "properties": properties,
    }


def _changed(event: Event) -> int:
    approved = event.approved.at if event.approved else 0
    return max(event.raised_at, approved, event.started_at or 0, event.ended_at or 0)


def _status(events: Sequence[Event]) -> str:
    statuses = {event.status for event in events}
    if not statuses:
        return "NoUpdatesPending"
    if Status.STARTED in statuses:
        return "InProgress"
    if Status.SCHEDULED in statuses:
        return "Pending"
    return "Completed" if Status.FINISHED in statuses else "Cancelled"
