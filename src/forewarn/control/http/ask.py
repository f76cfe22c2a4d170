"""Where `ask` comes from: who asks (the doorway has noted it), under which key, and what the caller
expects to find."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request

from forewarn.control.http import preconditions
from forewarn.control.http.context import Asked, came_to
from forewarn.control.http.errors import ProblemError
from forewarn.control.http.idempotency import IdempotencyKeys
from forewarn.control.http.responses import heads_of


async def ask(request: Request[Any, Any, Any]) -> Asked:
    await _as_it_is(request)
    desk, state = came_to.get(), request.scope["state"]
    keys: IdempotencyKeys = state["keys"]
    key = await keys.taken(request)
    unless = await preconditions.expected(desk, request)
    asked = desk.ask(state["caller"], key, unless)
    return msgspec.structs.replace(asked, heads=heads_of(request.scope))


async def _as_it_is(request: Request[Any, Any, Any]) -> None:
    """A body is taken at its word: 0 is no false, and "5" is no number."""
    field = request.route_handler.parsed_fn_signature.parameters.get("data")
    if field is None:
        return
    try:
        msgspec.json.decode(await request.body(), type=field.annotation)
    except msgspec.MsgspecError as error:
        raise ProblemError("invalid", f"the body is not what this call takes: {error}") from error
