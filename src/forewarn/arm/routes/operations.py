"""What becomes of a long-running operation: polled by its caller."""

from __future__ import annotations

from urllib.parse import urlencode

from forewarn.arm.errors import ArmError
from forewarn.arm.operations import status_at
from forewarn.arm.request import Answer, Request
from forewarn.arm.routing import COMPUTE, SUBSCRIPTION, route

LOCATION = SUBSCRIPTION + COMPUTE + "/locations/{location}"


@route("GET", LOCATION + "/operations/{operation}")
async def get_operation(request: Request) -> Answer:
    status, headers = await status_at(request)
    return Answer(body=status, headers=headers if status["status"] == "InProgress" else {})


@route("GET", LOCATION + "/operationResults/{operation}")
async def get_operation_result(request: Request) -> Answer:
    status, headers = await status_at(request)
    if status["status"] == "InProgress":
        url = f"{request.url}?{urlencode(request.parameters)}"
        return Answer(status=202, headers={"Location": url, **headers})
    if error := status.get("error"):
        raise ArmError(409, error["code"], error["message"])
    return Answer(status=200)
