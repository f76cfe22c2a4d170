"""The responses in the OpenAPI document: types, headers and links of success, and the problems that
an operation can answer with."""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from typing import Any

from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter

from forewarn.control.http.idempotency import REPLAYED
from forewarn.control.http.problems import BY_STATUS, MEDIA_TYPE, Kind
from forewarn.control.operations.operation import Operation
from forewarn.control.operations.table import OPERATIONS
from forewarn.control.schema import core as s
from forewarn.control.schema.core import CLOCK_HEADER, COMMIT_HEADER
from forewarn.control.schema.faults import Fault
from forewarn.control.schema.halts import Halt
from forewarn.control.schema.rollouts import Rollout
from forewarn.control.schema.tokens import Token

PROBLEM = "#/components/schemas/Problem"
AUTHENTICATION_STATUSES = (401, 403, 429)
ETAG = {
    "description": "Tag of this state, for If-Match and If-None-Match.",
    "schema": {"type": "string", "pattern": '^"[0-9a-f]{32}"$'},
    "required": True,
}
LINK = {
    "description": 'The next page, if there is one: `<…>; rel="next"`.',
    "schema": {"type": "string"},
}
LOCATION = {
    "description": "URL of the created resource.",
    "schema": {"type": "string", "format": "uri-reference"},
    "required": True,
}
REQUEST_ID = {
    "description": "Id of this request in the service's log.",
    "schema": {"type": "string", "format": "uuid"},
}
CLOCK = {
    "description": "The service's clock, if it is virtual or durations are divided: a JSON object"
    " with `now`, `virtual` and `speed`.",
    "schema": {"type": "string"},
}
COMMIT = {
    "description": "Number of a commit: the response contains everything up to it, and may contain"
    " more.",
    "schema": {"type": "integer", "minimum": 0},
}
REPLAY = {
    "description": "Present if a request with the same key was carried out before; this is its"
    " response.",
    "schema": {"type": "string", "enum": ["true"]},
}


def responses(
    handler: HTTPRouteHandler, operation: Operation[Any], known: Mapping[str, Any], has_body: bool
) -> dict[str, Any]:
    headers: dict[str, Any] = {"X-Request-Id": REQUEST_ID, COMMIT_HEADER: COMMIT}
    if not operation.public:
        headers[CLOCK_HEADER] = CLOCK
    if operation.tagged:
        headers["ETag"] = ETAG
    if operation.paged:
        headers["Link"] = LINK
    if operation.status == 201:
        headers["Location"] = LOCATION
    if operation.keyed:
        headers[REPLAYED] = REPLAY
    success: dict[str, Any] = {"description": "Success.", "headers": headers}
    if operation.status == 201:
        success["description"] = "Created."
    if operation.returns is bytes:
        media = str(handler.media_type).partition(";")[0]
        schema = {"type": "string"} if media.startswith("text/") else {}
    else:
        media, schema = "application/json", known[repr(operation.returns)]
    success["content"] = {media: {"schema": schema}}
    if linked := links(operation):
        success["links"] = linked
    described = {str(status): success for status in (operation.status, *operation.also)}
    if operation.tagged:
        described["304"] = {"description": "Not modified.", "headers": headers}
    for status in _problem_statuses(handler, operation, has_body):
        reference = f"#/components/responses/{BY_STATUS[status].name}"
        described.setdefault(str(status), {"$ref": reference})
    return described


# The path of what a response has the name or id of.
RESOURCES = {
    s.Machine: "/v1/machines/{name}",
    s.Group: "/v1/groups/{name}",
    s.Host: "/v1/hosts/{name}",
    s.Event: "/v1/events/{id}",
    Rollout: "/v1/rollouts/{id}",
    Halt: "/v1/halts/{id}",
    Token: "/v1/tokens/{id}",
    Fault: "/v1/faults/{id}",
}


def links(operation: Operation[Any]) -> dict[str, Any]:
    """Return OpenAPI links to what else can be read of what is in a response, which is an item, or
    the first item of a list."""
    place = ""
    shape: Any = operation.returns
    if typing.get_origin(shape) is list:
        (shape,), place = typing.get_args(shape), "0/"
    elif shape in (s.Outcomes, s.CancelledEvents):
        shape, place = s.Event, "events/0/"
    kinds = RESOURCES if isinstance(shape, type) else ()
    paths = [RESOURCES[kind] for kind in kinds if issubclass(shape, kind)]
    return {
        id: {
            "operationId": id,
            "parameters": {f"path.{key}": f"$response.body#/{place}{key}"},
        }
        for path in paths
        for key in re.findall(r"{(\w+)}", path)
        for id, other in OPERATIONS.items()
        if other is not operation and not other.changes and f"{other.path}/".startswith(f"{path}/")
    }


def _problem_statuses(
    handler: HTTPRouteHandler, operation: Operation[Any], has_body: bool
) -> list[int]:
    statuses = {*operation.refuses, 400, 500}  # any operation refuses unknown parameters and bodies
    signature = handler.parsed_fn_signature.parameters
    kinds = [field.kwarg_definition for field in signature.values()]
    if not operation.public:
        statuses |= {*AUTHENTICATION_STATUSES, 421}
    if any(isinstance(kind, PathParameter) for kind in kinds):
        statuses |= {404}
    if has_body:
        statuses |= {413, 415}
    if operation.changes:
        statuses |= {503, 415}
    if operation.keyed:
        statuses |= {409, 422}
    if operation.conditional:
        statuses |= {412}
    return sorted(statuses)


def problem_response(kind: Kind) -> dict[str, Any]:
    headers: dict[str, Any] = {"X-Request-Id": REQUEST_ID, COMMIT_HEADER: COMMIT}
    if kind.status == 401:
        headers["WWW-Authenticate"] = {"schema": {"type": "string"}, "required": True}
    if kind.status == 429:
        headers["Retry-After"] = {"schema": {"type": "string", "pattern": "^[0-9]+$"}}
    return {
        "description": f"{kind.title}. {kind.description}",
        "headers": headers,
        "content": {MEDIA_TYPE: {"schema": {"$ref": PROBLEM}}},
    }
