"""Deployments of templates, by which `az` makes resources. Nothing is made: each deployment fails
when its caller asks what has become of it. If it were refused at once, `az` would end with a
traceback of its own instead of the reason."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from forewarn.arm.errors import error_body
from forewarn.arm.request import Answer, Request
from forewarn.arm.routing import RESOURCE_GROUP, route

DEPLOYMENT = RESOURCE_GROUP + "/providers/Microsoft.Resources/deployments/{deployment}"
STATUS = "/operationStatuses/failed"
ERROR = error_body(
    "OperationNotAllowed",
    "forewarn makes nothing from templates: machines, scale sets, availability sets and hosts come"
    " from the fleet file.",
)


@route("PUT", DEPLOYMENT)
@route("POST", DEPLOYMENT + "/validate")
@route("POST", DEPLOYMENT + "/whatIf")
async def deploy(request: Request) -> Answer:
    deployment = "/".join(request.path.split("/")[: DEPLOYMENT.count("/") + 1])
    query = urlencode({"api-version": request.api_version})
    url = f"{request.base_url}{quote(deployment)}{STATUS}?{query}"
    return Answer(
        status=201 if request.method == "PUT" else 202,
        headers={"Azure-AsyncOperation": url, "Location": url, "Retry-After": "1"},
        body={
            "id": deployment,
            "name": request.names["deployment"],
            "type": "Microsoft.Resources/deployments",
            "properties": {"provisioningState": "Failed", "error": ERROR},
        },
    )


@route("GET", DEPLOYMENT + STATUS)
async def get_deployment_status(request: Request) -> Answer:
    return Answer(body={"name": request.names["deployment"], "status": "Failed", "error": ERROR})
