"""The session of a browser in the control API: log in with a token, and log out."""

from __future__ import annotations

from functools import cache
from typing import Any

from litestar import Litestar, Request, delete, get, post
from litestar.handlers import BaseRouteHandler

from forewarn.control.http.access.authorization import READ_METHODS, why_denied
from forewarn.control.http.access.session_cookie import MAX_COOKIE, set_cookie
from forewarn.control.http.context import Call, Caller, context
from forewarn.control.http.errors import RefusedError, unwrap
from forewarn.control.http.operation import REPEATABLE, Operation, operation_of
from forewarn.control.openapi.document import operations
from forewarn.control.routes.status import this_node
from forewarn.control.schema import session as s
from forewarn.core.access import Role, Session
from forewarn.core.refusal import conflict
from forewarn.core.time import SECOND
from forewarn.service.access.sessions import SESSION_LIFE
from forewarn.support import guard
from forewarn.support.instants import to_datetime


@get(
    "/v1/session",
    sync_to_thread=False,
    **Operation(
        id="getSession",
        tag="tokens",
        summary="Get who the caller is",
        public=True,
    ).options,
)
def get_session(request: Request[Any, Any, Any]) -> s.Session:
    """The name and role of the token, or of the session of a browser; without either, both are
    empty, unless local programs need no token."""
    caller: Caller | None = request.scope["state"].get("caller")
    if caller is None:
        return s.Session(name="", role="", decides=context().decides)
    return _session(request.app, caller, caller.session)


@post(
    "/v1/session",
    **Operation(
        id="beginSession",
        tag="tokens",
        summary="Log in: begin a session for this browser",
        role=Role.VIEWER,
        respects_limits=True,
        why_no_key="its response sets a cookie; a session that was lost ends by itself",
        refuses=(404, 409),
    ).options,
)
async def begin_session(request: Request[Any, Any, Any], call: Call) -> s.Session:
    """Sets a cookie that counts like the token of this request, for requests from pages of this
    service only. The session lasts 12 hours, and ends with its token."""
    caller = call.caller
    if caller.identity is not None:  # its own token, which is short-lived, serves as the cookie
        cookie = request.headers["authorization"].partition(" ")[2].strip()
        if len(cookie) > MAX_COOKIE:
            raise RefusedError(conflict("this token is too long for a cookie"))
        lasts = round((caller.identity.expires_at - guard.wall_us() / SECOND) * SECOND)
        call.headers["Set-Cookie"] = set_cookie(request.scope, cookie, max(lasts, 0))
    elif caller.token:
        session, cookie = unwrap(await context().sessions.begin(caller.token))
        call.headers["Set-Cookie"] = set_cookie(request.scope, cookie, SESSION_LIFE)
        return _session(request.app, caller, session)
    return _session(request.app, caller, None)


@delete(
    "/v1/session",
    **Operation(
        id="endSession",
        tag="tokens",
        summary="Log out: end the session of this browser",
        status=200,
        role=Role.VIEWER,
        respects_limits=True,
        why_no_key=REPEATABLE,
    ).options,
)
async def end_session(request: Request[Any, Any, Any], call: Call) -> s.Session:
    """Does nothing for a caller without a session. Answers like a request without a token."""
    if call.caller.session is not None:
        await context().sessions.end(call.caller.token, call.caller.session)
    call.headers["Set-Cookie"] = set_cookie(request.scope, "", 0)
    return s.Session(name="", role="")


def _session(app: Litestar, caller: Caller, session: Session | None) -> s.Session:
    ends = None
    if session is not None:
        ends = session.expires_at
    elif caller.identity is not None:
        ends = round(caller.identity.expires_at * SECOND)
    return s.Session(
        name=caller.name,
        role=caller.role.value,
        limited=not caller.limit.none,
        needs_token=context().tokens.needed,
        expires_at=None if ends is None else to_datetime(ends),
        operations=[
            operation_of(handler).id
            for handler in _changing(app)
            if context().decides and not why_denied(caller, handler)
        ],
        decides=context().decides,
        leader=None if context().decides else this_node().leader,
    )


@cache
def _changing(app: Litestar) -> list[BaseRouteHandler]:
    """Return the handlers of all operations that change something."""
    return [
        handler
        for name, (handler, _) in operations(app).items()
        if name.partition(" ")[0] not in READ_METHODS
    ]
