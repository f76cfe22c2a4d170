"""Tokens in the control API: who may ask. A secret is in one answer only."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get, post
from litestar.params import JSONBody

from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import RefusedError, allowed, instant, length, named, selector
from forewarn.control.http.operation import REPEATABLE, Operation, links_to
from forewarn.control.http.paging import MAX_PAGE, TimedAfter, cut, linked, timed_mark
from forewarn.control.http.paging import Limit as PageLimit
from forewarn.control.http.parameters import Name
from forewarn.control.schema import tokens as t
from forewarn.control.schema.core import time_of
from forewarn.core import Time
from forewarn.core.access import Limit, Role, Token
from forewarn.core.refusal import invalid
from forewarn.service.access.tokens import NewToken


def shown(token: Token) -> t.Token:
    return view(token, context().platform.writer.now().at, context().tokens.last_used(token.id))


@post(
    "/v1/tokens",
    **Operation(
        id="createToken",
        tag="tokens",
        summary="Create a token; only this response contains it",
        status=201,
        role=Role.ADMIN,
        keyless="its answer has a secret in it and is kept nowhere; revoke a token that was lost",
        refuses=(404, 409),
        links=links_to("getToken", "revokeToken", parameter="id", place="id"),
        commands=("token create",),
        command_example="token create alice --role operator",
        example={"name": "alice", "role": "operator"},
    ).options,
)
async def create_token(call: Call, data: JSONBody[t.TokenRequest]) -> t.CreatedToken:
    """The answer is the only one that has the token in it."""
    made = allowed(await context().tokens.create(wanted(data), call.by))
    fields = msgspec.structs.asdict(shown(made.token))
    call.headers["Location"] = f"/v1/tokens/{made.token.id}"
    return t.CreatedToken(**fields, token=made.secret.text, notes=list(made.notes))


@get(
    "/v1/tokens",
    sync_to_thread=False,
    **Operation(
        id="listTokens",
        tag="tokens",
        summary="List tokens",
        role=Role.ADMIN,
        paged=True,
        links=links_to("getToken", parameter="id", place="0/id"),
        commands=("token list",),
        command_example="token list",
    ).options,
)
def list_tokens(
    request: Request[Any, Any, Any],
    call: Call,
    limit: PageLimit = MAX_PAGE,
    after: TimedAfter = None,
) -> list[t.Token]:
    """Those that are expired or revoked too, the newest last."""
    ends = timed_mark(after)
    behind = (
        token
        for token in context().tokens.all()
        if ends is None or (token.created_at, token.id.upper()) > ends[1:]
    )
    page, more = cut(behind, limit)
    if more:
        last = (False, page[-1].created_at, page[-1].id.upper())
        linked(call.headers, request.url.path, request.scope["query_string"], last)
    return [shown(token) for token in page]


@get(
    "/v1/tokens/{id:str}",
    sync_to_thread=False,
    **Operation(
        id="getToken",
        tag="tokens",
        summary="Get a token",
        role=Role.ADMIN,
        refuses=(409,),
        command_example="token list",
    ).options,
)
def get_token(id: Name) -> t.Token:
    """By its id or its name."""
    return shown(allowed(context().tokens.find(id)))


@post(
    "/v1/tokens/{id:str}/revoke",
    **Operation(
        id="revokeToken",
        tag="tokens",
        summary="Revoke a token",
        role=Role.ADMIN,
        keyless=REPEATABLE,
        refuses=(409,),
        links=links_to("getToken", parameter="id", place="id"),
        commands=("token revoke",),
        command_example="token revoke alice",
        example={},
    ).options,
)
async def revoke_token(call: Call, id: Name, data: JSONBody[t.RevokeRequest]) -> t.Token:
    return shown(allowed(await context().tokens.revoke(id, call.by, force=data.force)))


def wanted(data: t.TokenRequest) -> NewToken:
    return NewToken(
        name=data.name,
        role=named(Role, "role", data.role),
        limit=_limit(data),
        lasts=None if data.expires_in is None else length("expires_in", data.expires_in),
        expires_at=None if data.expires_at is None else instant(data.expires_at),
    )


def _limit(data: t.TokenRequest) -> Limit:
    """A limit that was said and is empty is a slip, perhaps a variable that nobody has set: what
    comes of it must not be a token without any limit."""
    labels = selector(data.label)
    if labels is not None and not labels:
        raise RefusedError(
            invalid(
                "the label that the token is to be limited by is empty; name one, as in tier=web,"
                " or leave it out for a token without that limit"
            )
        )
    if data.groups is not None and not data.groups:
        raise RefusedError(
            invalid(
                "the list of groups that the token is to be limited to is empty; name one, or leave"
                " it out for a token without that limit"
            )
        )
    return Limit(groups=tuple(dict.fromkeys(data.groups or ())), labels=labels or ())


def view(token: Token, now: Time, last_used: Time | None) -> t.Token:
    revoked, expires = token.revoked_at, token.expires_at
    state = "revoked" if revoked is not None else "valid" if token.valid(now) else "expired"
    return t.Token(
        id=token.id,
        name=token.name,
        role=token.role.value,
        state=state,
        created_at=time_of(token.created_at),
        created_by=token.created_by,
        groups=list(token.limit.groups),
        label=",".join(map(str, token.limit.labels)),
        expires_at=None if expires is None else time_of(expires),
        last_used=None if last_used is None else time_of(last_used),
        revoked_at=None if revoked is None else time_of(revoked),
        revoked_by=token.revoked_by,
    )
