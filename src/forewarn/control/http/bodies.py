"""Checks of request bodies before a handler reads them: a body is refused if the call takes none,
or if JSON is expected and the bytes are not UTF-8. A body must never be silently ignored."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response
from litestar.exceptions import ClientException

from forewarn.control.http.errors import problem
from forewarn.control.openapi import operations
from forewarn.control.schema import core as s


async def refuse_unread_body(request: Request[Any, Any, Any]) -> Response[s.Problem] | None:
    """Return a 400 problem for a body that this call cannot read, or None."""
    if operations.of(request).text:
        return None  # the parser of fleet files refuses it, with the line
    if "data" not in request.route_handler.parsed_fn_signature.parameters:
        if await _has_body(request):
            return problem(400, f"{request.method} {request.url.path} takes no body; send none")
        return None
    try:
        (await request.body()).decode("utf-8")
    except UnicodeDecodeError as error:
        return problem(
            400,
            f"the body is not valid UTF-8: unexpected byte 0x{error.object[error.start]:02x} at"
            f" position {error.start}; encode JSON as UTF-8",
        )
    return None


async def _has_body(request: Request[Any, Any, Any]) -> bool:
    """Whether the request has a body. A chunked body may be empty, which counts as none."""
    if "transfer-encoding" in request.headers:
        try:
            return bool(await request.body())
        except ClientException:  # it is too large, so there is one
            return True
    return request.headers.get("content-length", "0").strip("0") != ""
