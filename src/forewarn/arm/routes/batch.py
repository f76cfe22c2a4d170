"""Several requests in one, all of which only read: as Ansible's inventory asks for machines."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import urlsplit

import msgspec

from forewarn.arm.errors import ArmError, invalid_parameter
from forewarn.arm.request import Answer, Request
from forewarn.arm.routing import route
from forewarn.service.access.secret import hidden

MAX_REQUESTS = 100  # in one
MAX_BYTES = 16 * 1024 * 1024  # of all answers in one, a hundred times of what Ansible asks for


@route("POST", "/batch")
async def answer_batch(request: Request) -> Answer:
    requests = request.body().get("requests")
    if not isinstance(requests, list) or not all(isinstance(each, dict) for each in requests):
        raise invalid_parameter("requests must be a list of objects with httpMethod, url and name.")
    if len(requests) > MAX_REQUESTS:
        raise invalid_parameter(
            f"A batch has at most {MAX_REQUESTS} requests, and this one has more."
        )
    targets = [_target(request, each) for each in requests]
    responses, size = [], 0
    for each, (path, query) in zip(requests, targets, strict=True):
        answer = await request.read(path, query)
        content = msgspec.json.encode(answer.body)
        size += len(content)
        if size > MAX_BYTES:
            raise ArmError(
                400,
                "ResponsePayloadTooLarge",
                f"The answers to this batch have more than {MAX_BYTES:,} bytes. Send fewer requests"
                " in one batch, or ask for shorter pages with $top.",
            )
        responses.append(
            {
                "name": each.get("name") or str(uuid.uuid4()),
                "httpStatusCode": answer.status,
                "headers": answer.headers,
                "content": msgspec.Raw(content),
            }
        )
    return Answer(body={"responses": responses})


def _target(request: Request, item: dict[str, Any]) -> tuple[str, str]:
    """Return the path and the query of a request in a batch. Raises ArmError."""
    method, url = item.get("httpMethod"), item.get("url")
    if method != "GET":
        raise invalid_parameter(
            f"A batch can only have requests with GET, not {hidden(str(method)[:20])}."
        )
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
    except ValueError:
        parts = urlsplit("")
    place = f"{parts.scheme}://{parts.netloc}" if parts.netloc else request.base_url
    if place.lower() != request.base_url.lower() or not parts.path.startswith("/"):
        raise invalid_parameter(f"'{hidden(str(url)[:200])}' is not a URL of this API.")
    return parts.path, parts.query
