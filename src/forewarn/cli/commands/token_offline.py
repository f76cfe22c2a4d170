"""The verbs of `forewarn token` on a state file: the same shapes in and out as through the API.

Needs the server's packages; `token.py` imports it when a state file is named.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from forewarn.cli.output import HINTS
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
from forewarn.store.engines import stored_state
from forewarn.support import guard


class Refusal(Exception):
    """The message is one clear line."""


class OfflineTokens:
    def __init__(self, tokens: Tokens, writer: Writer) -> None:
        self._tokens = tokens
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def at(cls, state: Path) -> AsyncIterator[OfflineTokens]:
        async with opened(state) as (tokens, writer):
            yield cls(tokens, writer)

    async def create(self, request: t.TokenRequest) -> t.CreatedToken:
        try:
            made = _allowed(await self._tokens.create(new_token(request), LOCAL_NAME))
        except RefusedError as error:
            raise Refusal(_text(error.refused)) from error
        fields = msgspec.structs.asdict(self._shown(made.token))
        return t.CreatedToken(**fields, token=made.secret.text, notes=list(made.notes))

    async def revoke(self, said: str, request: t.RevokeRequest) -> t.Token:
        return self._shown(
            _allowed(await self._tokens.revoke(said, LOCAL_NAME, force=request.force))
        )

    def _shown(self, token: Token) -> t.Token:
        return views.token(token, self._writer.now().at, self._tokens.last_used(token.id))


def listed(state: Path) -> list[t.Token]:
    """All there are in a state file, which is only looked at."""
    now = guard.wall_us()
    return [views.token(token, now, used) for token, used in stored_state(state).tokens()]


def _allowed(done: Any) -> Any:
    if isinstance(done, Refused):
        raise Refusal(_text(done))
    return done


def _text(refused: Refused) -> str:
    return refused.in_words({hint: HINTS[hint.value] for hint in Hint})
