"""What becomes of a long-running operation: polled by its caller."""

from __future__ import annotations

from urllib.parse import urlencode

from forewarn.arm.errors import ArmError
from forewarn.arm.operations import events_of, retry_after, status_of
from forewarn.arm.request import Answer, Request
from forewarn.arm.routing import COMPUTE, SUBSCRIPTION, route

LOCATION = SUBSCRIPTION + COMPUTE + "/locations/{location}"


@route("GET", LOCATION + "/operations/{operation}")
async def get_operation(request: Request) -> Answer:
    id = request.names["operation"]
    events = await events_of(request, id)
    status = status_of(request, id, events)
    going_on = status["status"] == "InProgress"
    return Answer(body=status, headers=retry_after(request, events) if going_on else {})


@route("GET", LOCATION + "/operationResults/{operation}")
async def get_operation_result(request: Request) -> Answer:
    id = request.names["operation"]
    events = await events_of(request, id)
    status = status_of(request, id, events)
    if status["status"] == "InProgress":
        url = f"{request.url}?{urlencode(request.parameters)}"
        return Answer(status=202, headers={"Location": url, **retry_after(request, events)})
    if error := status.get("error"):
        raise ArmError(409, error["code"], error["message"])
    return Answer(status=200)
