"""What the API's document says of answers: their shapes and headers, where they lead, and which
refusals a call knows."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter
from litestar.response import Stream

from forewarn.control.http.authorization import role_for
from forewarn.control.http.idempotency import REPLAYED
from forewarn.control.http.operation import Operation
from forewarn.control.http.problems import BY_STATUS, MEDIA_TYPE, Kind

PROBLEM = "#/components/schemas/Problem"
UNIONS = (typing.Union, types.UnionType)
GUARDED = (401, 403, 429)
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
    "description": "URL of what was created.",
    "schema": {"type": "string", "format": "uri-reference"},
    "required": True,
}
REQUEST_ID = {
    "description": "Id of this request in the service's log.",
    "schema": {"type": "string", "format": "uuid"},
}
REPLAY = {
    "description": "The request was carried out before, under the same key; this is its response.",
    "schema": {"type": "string", "enum": ["true"]},
}


def responses(
    handler: HTTPRouteHandler, operation: Operation, known: Mapping[str, Any], has_body: bool
) -> dict[str, Any]:
    headers: dict[str, Any] = {"X-Request-Id": REQUEST_ID}
    if operation.tagged:
        headers["ETag"] = ETAG
    if operation.paged:
        headers["Link"] = LINK
    if operation.status == 201:
        headers["Location"] = LOCATION
    if operation.keyed:
        headers[REPLAYED] = REPLAY
    good: dict[str, Any] = {"description": "Success.", "headers": headers}
    if operation.status == 201:
        good["description"] = "Created."
    answer = answer_of(handler)
    schema = {"type": "object"} if answer is None else known[repr(answer)]
    media = _media_type(handler)
    if media != "application/json":
        schema = {"type": "string"} if media.startswith("text/") else {}
    good["content"] = {media: {"schema": schema}}
    if operation.links:
        good["links"] = {
            link.to: {
                "operationId": link.to,
                "parameters": {f"path.{link.parameter}": link.place},
            }
            for link in operation.links
        }
    found = {str(status): good for status in (operation.status, *operation.also)}
    if operation.tagged:
        found["304"] = {"description": "Not modified.", "headers": headers}
    for status in _refusals(handler, operation, has_body):
        place = f"#/components/responses/{BY_STATUS[status].name}"
        found.setdefault(str(status), {"$ref": place})
    return found


def _refusals(handler: HTTPRouteHandler, operation: Operation, has_body: bool) -> list[int]:
    statuses = {*operation.refuses, 400, 500}  # a body or a parameter that it does not take
    signature = handler.parsed_fn_signature.parameters
    kinds = [field.kwarg_definition for field in signature.values()]
    if role_for(handler) is not None:
        statuses |= {*GUARDED, 421}
    if any(isinstance(kind, PathParameter) for kind in kinds):
        statuses |= {404}
    if has_body:
        statuses |= {413, 415}
    changes = not handler.http_methods <= {"GET"}
    if changes:
        statuses |= {503, 415}
    if operation.keyed:
        statuses |= {409, 422}
    if operation.conditional:
        statuses |= {412}
    return sorted(statuses)


def refusal(kind: Kind) -> dict[str, Any]:
    headers: dict[str, Any] = {"X-Request-Id": REQUEST_ID}
    if kind.status == 401:
        headers["WWW-Authenticate"] = {"schema": {"type": "string"}, "required": True}
    if kind.status == 429:
        headers["Retry-After"] = {"schema": {"type": "string", "pattern": "^[0-9]+$"}}
    return {
        "description": f"{kind.title}. {kind.description}",
        "headers": headers,
        "content": {MEDIA_TYPE: {"schema": {"$ref": PROBLEM}}},
    }


def answer_of(handler: HTTPRouteHandler) -> Any:
    """The shape of the answer; None if that is not said, or is no JSON."""
    spec = (handler.responses or {}).get(200)
    if spec is not None:
        return None if spec.data_container is bytes else spec.data_container
    annotation = handler.parsed_fn_signature.return_type.annotation
    if typing.get_origin(annotation) in UNIONS:
        annotation = typing.get_args(annotation)[0]
    origin = typing.get_origin(annotation) or annotation
    if isinstance(origin, type) and issubclass(origin, Response | Stream):
        shape = next(iter(typing.get_args(annotation)), None)
        return None if shape in (None, bytes, str, Any) else shape
    return None if annotation in (bytes, str) else annotation


def _media_type(handler: HTTPRouteHandler) -> str:
    spec = (handler.responses or {}).get(200)
    said = handler.media_type if spec is None else spec.media_type
    text = str(getattr(said, "value", said))
    return text.partition(";")[0] if text.partition(";")[0] else "application/json"
