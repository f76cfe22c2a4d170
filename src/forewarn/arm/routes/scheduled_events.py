"""Scheduled events of a resource, as the maintenance resource provider has them: they are listed,
and acknowledged, which approves them.

A resource is a virtual machine, a scale set or a member of one, or an availability set; its events
are those that name a machine of it. Azure publishes no operation that lists them; what is listed
here has the form in which Azure hands them to Event Grid, with the fields of the guests' document.

Several ids are acknowledged each by itself, as Azure does it: those that can be acknowledged are.
The answer is 207 if others cannot, and an error if none can, with a detail for each of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from forewarn.arm.errors import ArmError, error_body, unwrap
from forewarn.arm.options import PAGED
from forewarn.arm.paging import page
from forewarn.arm.request import Answer, Request
from forewarn.arm.routing import MAINTENANCE, route
from forewarn.arm.targets import CHILD, RESOURCE, Target, target_of
from forewarn.control.views.azure import event_resource
from forewarn.core import Event
from forewarn.core.access import Role
from forewarn.service.access.secret import hidden

EVENTS = MAINTENANCE + "/scheduledevents"
MAX_IDS = 1_000  # in one request: each is a commit
ONE = "Successfully approved scheduled event"
ALL = "Successfully approved all Scheduled Events in the list"
SOME = (
    "The operation returned different statuses for the Scheduled Events. Review each event's"
    " result for details."
)


@route("GET", RESOURCE + EVENTS, options=PAGED)
@route("GET", CHILD + EVENTS, options=PAGED)
async def list_events(request: Request) -> Answer:
    target = target_of(request)
    return page(request, target.events(), lambda event: (event.id,), lambda e: _view(target, e))


@route("GET", RESOURCE + EVENTS + "/{event}")
@route("GET", CHILD + EVENTS + "/{event}")
async def get_event(request: Request) -> Answer:
    target, id = target_of(request), request.names["event"]
    for event in target.events():
        if event.id == id.upper():
            return Answer(body=_view(target, event))
    raise _unknown(target, id)


@route("POST", RESOURCE + EVENTS + "/{event}/acknowledge", role=Role.TENANT)
@route("POST", CHILD + EVENTS + "/{event}/acknowledge", role=Role.TENANT)
async def acknowledge_event(request: Request) -> Answer:
    id = request.names["event"]
    await _acknowledge(request, target_of(request), id, await _found(request, [id]))
    return Answer(body={"value": ONE})


@route("POST", RESOURCE + EVENTS, role=Role.TENANT)
@route("POST", CHILD + EVENTS, role=Role.TENANT)
async def acknowledge_events(request: Request) -> Answer:
    target, ids = target_of(request), _ids(request)
    refused: list[tuple[str, ArmError]] = []
    found = await _found(request, ids)
    for id in ids:
        try:
            await _acknowledge(request, target, id, found)
        except ArmError as error:
            refused.append((id, error))
    if not refused:
        return Answer(body={"value": ALL})
    body = error_body("MultiStatusResponse", SOME)
    body["details"] = [
        {"target": id, "code": _phrase(why.status), "message": why.message} for id, why in refused
    ]
    status = 207 if len(refused) < len(ids) else max(why.status for _, why in refused)
    return Answer(status=status, body={"error": body})


async def _found(request: Request, ids: list[str]) -> dict[str, Event]:
    return {event.id: event for event in await request.events(ids)}


async def _acknowledge(
    request: Request, target: Target, id: str, found: Mapping[str, Event]
) -> None:
    """Approve an event of a resource. An event that is over is approved if the caller has approved
    it before, so that a request can be repeated. Raises ArmError."""
    call, event = request.call, found.get(id.upper())
    if event is None or not target.concerns(event):
        raise _unknown(target, id)
    approved = event.approved
    if event.status.over and approved is not None and approved.by == call.by:
        return
    unwrap(await call.platform.approve(event.id, call.by))


def _ids(request: Request) -> list[str]:
    ids = request.body().get("value")
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
        raise ArmError(400, "BadRequest", "'value' must be a list of ids of scheduled events.")
    if not 1 <= len(ids) <= MAX_IDS:
        raise ArmError(
            400, "BadRequest", f"'value' must have 1 to {MAX_IDS:,} ids, not {len(ids):,}."
        )
    return list(dict.fromkeys(id.strip() for id in ids))


def _unknown(target: Target, id: str) -> ArmError:
    return ArmError(
        404, "NotFound", f"There is no scheduled event '{hidden(id[:100])}' of '{target.id}'."
    )


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase.replace(" ", "")


def _view(target: Target, event: Event) -> dict[str, Any]:
    return event_resource(target.id, target.groups[event.group], event)
