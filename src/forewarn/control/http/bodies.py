"""Checks of request bodies before a handler reads them.

A body is refused if the operation takes none, if JSON is expected and the bytes are not UTF-8, or
if a value is not exactly of its type. A body must never be silently ignored.
"""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import ClientException

from forewarn.control.http.errors import ProblemError, problem
from forewarn.control.http.operation import operation_of
from forewarn.control.schema import core as s


async def refuse_unread_body(request: Request[Any, Any, Any]) -> Response[s.Problem] | None:
    """Return a 400 problem for a body that this operation cannot read, or None."""
    if operation_of(request.route_handler).fleet_text:
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


async def refuse_inexact_body(request: Request[Any, Any, Any]) -> None:
    """Decode the body strictly; Litestar would read 0 as false and "5" as a number."""
    field = request.route_handler.parsed_fn_signature.parameters.get("data")
    if field is None:
        return
    try:
        msgspec.json.decode(await request.body(), type=field.annotation)
    except msgspec.MsgspecError as error:
        raise ProblemError("invalid", f"the body is not what this call takes: {error}") from error


async def _has_body(request: Request[Any, Any, Any]) -> bool:
    """Whether the request has a body. A chunked body may be empty, which counts as none."""
    if "transfer-encoding" in request.headers:
        try:
            return bool(await request.body())
        except ClientException:  # it is too large, so there is one
            return True
    return request.headers.get("content-length", "0").strip("0") != ""
