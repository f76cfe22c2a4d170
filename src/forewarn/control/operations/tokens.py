"""Operations of the control API on tokens and sessions."""

from __future__ import annotations

from forewarn.control.operations.operation import REPEATABLE, Operation
from forewarn.control.schema import queries as q
from forewarn.control.schema import tokens as t
from forewarn.control.schema.session import Session

CREATE_TOKEN = Operation(
    "POST /v1/tokens",
    "Create a token; only this response contains it",
    t.CreatedToken,
    takes=t.TokenRequest,
    status=201,
    role="admin",
    why_no_key="its response contains a secret and is not stored; revoke a token that was lost",
    refuses=(404, 409),
    command="token create alice --role operator",
    example={"name": "alice", "role": "operator"},
)

LIST_TOKENS = Operation(
    "GET /v1/tokens",
    "List tokens",
    list[t.Token],
    query=q.TimedPageQuery,
    role="admin",
    paged=True,
    command="token list",
)

GET_TOKEN = Operation("GET /v1/tokens/{id}", "Get a token", t.Token, role="admin", refuses=(409,))

REVOKE_TOKEN = Operation(
    "POST /v1/tokens/{id}/revoke",
    "Revoke a token",
    t.Token,
    takes=t.RevokeRequest,
    role="admin",
    why_no_key=REPEATABLE,
    refuses=(409,),
    command="token revoke alice",
    example={},
)

GET_SESSION = Operation("GET /v1/session", "Get who the caller is", Session, public=True)

BEGIN_SESSION = Operation(
    "POST /v1/session",
    "Log in: begin a session for this browser",
    Session,
    role="viewer",
    respects_limits=True,
    why_no_key="its response sets a cookie; a session that was lost ends by itself",
    refuses=(404, 409),
)

END_SESSION = Operation(
    "DELETE /v1/session",
    "Log out: end the session of this browser",
    Session,
    role="viewer",
    respects_limits=True,
)
