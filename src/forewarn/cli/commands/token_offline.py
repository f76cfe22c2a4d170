"""`forewarn token` on the state of a stopped service, with the same requests and responses as
through the API.

Needs the server's packages; `token.py` imports it only for --state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from forewarn.cli.output import HINTS, print_notes
from forewarn.control.http.errors import RefusedError
from forewarn.control.routes.tokens import new_token
from forewarn.control.schema import tokens as t
from forewarn.control.views import tokens as views
from forewarn.core import Refused
from forewarn.core.access import Token
from forewarn.core.refusal import Hint
from forewarn.service.access.offline import opened
from forewarn.service.access.tokens import LOCAL_NAME, Tokens
from forewarn.service.engine.writer import Writer
from forewarn.store.engines import State, stored_state
from forewarn.support import guard


class Refusal(Exception):
    """A request was refused; the message is one clear line."""


class OfflineTokens:
    """The tokens of a state that no service uses."""

    def __init__(self, tokens: Tokens, writer: Writer) -> None:
        self._tokens = tokens
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def at(cls, state: State) -> AsyncIterator[OfflineTokens]:
        async with opened(state, print_notes) as (tokens, writer):
            yield cls(tokens, writer)

    async def create(self, request: t.TokenRequest) -> t.CreatedToken:
        try:
            created = _check(await self._tokens.create(new_token(request), LOCAL_NAME))
        except RefusedError as error:
            raise Refusal(_text(error.refused)) from error
        fields = msgspec.structs.asdict(self._view(created.token))
        return t.CreatedToken(**fields, token=created.secret.text, notes=list(created.notes))

    async def revoke(self, id_or_name: str, request: t.RevokeRequest) -> t.Token:
        revoked = await self._tokens.revoke(id_or_name, LOCAL_NAME, force=request.force)
        return self._view(_check(revoked))

    def _view(self, token: Token) -> t.Token:
        return views.token(token, self._writer.now().at, self._tokens.last_used(token.id))


def tokens_in(state: State) -> list[t.Token]:
    """Return all tokens in a state, without changing it."""
    now = guard.wall_us()
    return [views.token(token, now, used) for token, used in stored_state(state).tokens()]


def _check(outcome: Any) -> Any:
    """Return an outcome, or raise Refusal."""
    if isinstance(outcome, Refused):
        raise Refusal(_text(outcome))
    return outcome


def _text(refused: Refused) -> str:
    return refused.with_hint({hint: HINTS[hint.value] for hint in Hint})
