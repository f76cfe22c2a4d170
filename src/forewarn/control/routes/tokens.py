"""Tokens in the control API. A secret is only in the response that creates it."""

from __future__ import annotations

import msgspec
from litestar.params import JSONBody

from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import RefusedError, parse_selector, unwrap
from forewarn.control.http.operation import route
from forewarn.control.http.paging import Cursor, parse_time_cursor
from forewarn.control.http.parameters import Name, Parameters
from forewarn.control.http.requests import arguments
from forewarn.control.operations import tokens as operations
from forewarn.control.schema import queries as q
from forewarn.control.schema import tokens as t
from forewarn.control.views import tokens as views
from forewarn.core.access import Limit, Token
from forewarn.core.refusal import invalid
from forewarn.service.access.tokens import NewToken


def token_view(token: Token) -> t.Token:
    return views.token(
        token, context().platform.writer.now().at, context().tokens.last_used(token.id)
    )


@route(operations.CREATE_TOKEN)
async def create_token(call: Call, data: JSONBody[t.TokenRequest]) -> t.CreatedToken:
    """The service stores only a digest of the token, so it cannot be shown again. If the response
    is lost, revoke the token and create another one."""
    created = unwrap(await context().tokens.create(new_token(data), call.by))
    fields = msgspec.structs.asdict(token_view(created.token))
    call.headers["Location"] = f"/v1/tokens/{created.token.id}"
    return t.CreatedToken(**fields, token=created.secret.text, notes=list(created.notes))


@route(operations.LIST_TOKENS)
def list_tokens(call: Call, given: Parameters[q.TimedPageQuery]) -> list[t.Token]:
    """Includes expired and revoked tokens. The newest is the last."""

    def key(token: Token) -> Cursor:
        return False, token.created_at, token.id.upper()

    after = parse_time_cursor(given.after)
    page = call.page(context().tokens.all(), given.limit, key, after)
    return [token_view(token) for token in page]


@route(operations.GET_TOKEN)
def get_token(id: Name) -> t.Token:
    """`id` is the id or the name of the token."""
    return token_view(unwrap(context().tokens.find(id)))


@route(operations.REVOKE_TOKEN)
async def revoke_token(call: Call, id: Name, data: JSONBody[t.RevokeRequest]) -> t.Token:
    """`id` is the id or the name of the token. Streams and downloads that use it end."""
    return token_view(unwrap(await context().tokens.revoke(id, call.by, force=data.force)))


def new_token(data: t.TokenRequest) -> NewToken:
    fields = arguments(data, NewToken, without=("groups", "label"))
    return NewToken(**fields, limit=_limit(data))


def _limit(data: t.TokenRequest) -> Limit:
    """Return the limit of a new token. An empty limit is refused: it is probably an unset variable,
    and must not create a token without any limit."""
    labels = parse_selector(data.label)
    if labels is not None and not labels:
        raise RefusedError(
            invalid(
                "the label selector that limits the token is empty; write for example tier=web, or"
                " leave it out for a token without that limit"
            )
        )
    if data.groups is not None and not data.groups:
        raise RefusedError(
            invalid(
                "the list of groups that the token is limited to is empty; name a group, or leave"
                " it out for a token without that limit"
            )
        )
    return Limit(groups=tuple(dict.fromkeys(data.groups or ())), labels=labels or ())
