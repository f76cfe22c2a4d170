"""The session of a browser in the control API: log in with a token, and log out."""

from __future__ import annotations

from typing import Any

from litestar import Request

from forewarn.control.http.access.authorization import why_denied
from forewarn.control.http.access.session_cookie import MAX_COOKIE, set_cookie
from forewarn.control.http.context import Call, Caller, context
from forewarn.control.http.errors import RefusedError, unwrap
from forewarn.control.http.operation import route
from forewarn.control.operations import tokens as operations
from forewarn.control.operations.table import OPERATIONS
from forewarn.control.routes.login import offered
from forewarn.control.routes.status import this_node
from forewarn.control.schema import session as s
from forewarn.core.access import Session
from forewarn.core.events import TYPE_TRAITS
from forewarn.core.refusal import conflict
from forewarn.core.time import SECOND
from forewarn.service.access.sessions import SESSION_LIFE
from forewarn.support import guard
from forewarn.support.instants import to_datetime

EVENT_TYPES = [
    s.EventTypeInfo(
        name=type.value,
        by_user=traits.by_user,
        host_maintenance=traits.host_maintenance,
        relocates=traits.relocates,
        deletes=traits.deletes,
    )
    for type, traits in TYPE_TRAITS.items()
]


@route(operations.GET_SESSION)
def get_session(request: Request[Any, Any, Any]) -> s.Session:
    """The name and role of the token, or of the session of a browser; without either, both are
    empty, unless local programs need no token."""
    caller: Caller | None = request.scope["state"].get("caller")
    if caller is None:
        return s.Session(name="", role="", decides=context().decides, login=offered())
    return _session(caller, caller.session)


@route(operations.BEGIN_SESSION)
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
        return _session(caller, session)
    return _session(caller, None)


@route(operations.END_SESSION)
async def end_session(request: Request[Any, Any, Any], call: Call) -> s.Session:
    """Does nothing for a caller without a session. Answers like a request without a token."""
    if call.caller.session is not None:
        await context().sessions.end(call.caller.token, call.caller.session)
    call.headers["Set-Cookie"] = set_cookie(request.scope, "", 0)
    return s.Session(name="", role="", login=offered())


def _session(caller: Caller, session: Session | None) -> s.Session:
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
        login=offered(),
        expires_at=None if ends is None else to_datetime(ends),
        operations=[
            id
            for id, operation in OPERATIONS.items()
            if operation.changes and context().decides and not why_denied(caller, operation)
        ],
        event_types=EVENT_TYPES,
        decides=context().decides,
        leader=None if context().decides else this_node().leader,
    )
