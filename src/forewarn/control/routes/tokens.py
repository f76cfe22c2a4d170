"""Tokens in the control API: who may ask. A secret is in one answer only."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get, post
from litestar.params import FromPath, JSONBody

from forewarn.control.http.authorization import ADMIN
from forewarn.control.http.context import Ask, AtHand
from forewarn.control.http.errors import RefusedError, allowed, instant, length, named, selector
from forewarn.control.http.paging import MAX_PAGE, After, cut, linked, timed_mark
from forewarn.control.http.paging import Limit as PageLimit
from forewarn.control.schema import tokens as t
from forewarn.control.schema.core import time_of
from forewarn.core import Time
from forewarn.core.access import Limit, Role, Token
from forewarn.core.refusal import invalid
from forewarn.service.access.tokens import NewToken


def handlers(desk: AtHand) -> list[Any]:
    def shown(token: Token) -> t.Token:
        return view(token, desk().platform.writer.now().at, desk().tokens.last_used(token.id))

    @post("/v1/tokens", status_code=201, opt=dict(ADMIN))
    async def token_create(ask: Ask, data: JSONBody[t.TokenRequest]) -> t.CreatedToken:
        """The answer is the only one that has the token in it."""
        made = allowed(await desk().tokens.create(wanted(data), ask.by))
        fields = msgspec.structs.asdict(shown(made.token))
        ask.heads["Location"] = f"/v1/tokens/{made.token.id}"
        return t.CreatedToken(**fields, token=made.secret.text, notes=list(made.notes))

    @get("/v1/tokens", opt=dict(ADMIN), sync_to_thread=False)
    def tokens_list(
        request: Request[Any, Any, Any], ask: Ask, limit: PageLimit = MAX_PAGE, after: After = None
    ) -> list[t.Token]:
        """Those that are expired or revoked too, the newest last."""
        ends = timed_mark(after)
        behind = (
            token
            for token in desk().tokens.all()
            if ends is None or (token.created_at, token.id.upper()) > ends[1:]
        )
        page, more = cut(behind, limit)
        if more:
            last = (False, page[-1].created_at, page[-1].id.upper())
            linked(ask.heads, request.url.path, request.scope["query_string"], last)
        return [shown(token) for token in page]

    @get("/v1/tokens/{id:str}", opt=dict(ADMIN), sync_to_thread=False)
    def token_show(id: FromPath[str]) -> t.Token:
        """By its id or its name."""
        return shown(allowed(desk().tokens.find(id)))

    @post("/v1/tokens/{id:str}/revoke", status_code=200, opt=dict(ADMIN))
    async def token_revoke(ask: Ask, id: FromPath[str], data: JSONBody[t.RevokeRequest]) -> t.Token:
        return shown(allowed(await desk().tokens.revoke(id, ask.by, force=data.force)))

    return [token_create, tokens_list, token_show, token_revoke]


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
