"""Sessions of browsers: somebody has logged in with a token, and the browser keeps a secret of its
own in a cookie instead of the token.

A session is part of its token in the state, so that it ends with it, goes on after a restart, and
is known to every control node. Like a token's secret, a session's is stored as a digest only.
"""

from __future__ import annotations

import secrets

import msgspec

from forewarn.core import Refused, Time
from forewarn.core.access import Session, Token
from forewarn.core.refusal import unknown
from forewarn.core.registry import TokenPut
from forewarn.core.time import HOUR, Duration
from forewarn.service.access import secret
from forewarn.service.engine.writer import CommitPlan, Writer
from forewarn.store.port import States, Store

SESSION_LIFE: Duration = 12 * HOUR
MAX_SESSIONS = 20  # of one token; another one ends the oldest
CHANGED = "session"  # in a commit: what has changed about a token


class Sessions:
    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer

    async def begin(self, token_id: str) -> tuple[Session, str] | Refused:
        """Begin a session. Returns it, and the value of its cookie."""
        secret_text = secrets.token_hex(32)
        begun: list[Session] = []

        def plan(states: States) -> CommitPlan | Refused:
            token, now = states.registry.tokens.get(token_id), self._writer.now().at
            if token is None or not token.valid(now):
                return unknown("the token has ended")
            expires = now + SESSION_LIFE
            if token.expires_at is not None:
                expires = min(expires, token.expires_at)
            begun[:] = [Session(digest=secret.digest(secret_text), expires_at=expires)]
            others = [session for session in token.sessions if _lasts(session, now)]
            return _change(token, (*others[1 - MAX_SESSIONS :], *begun))

        outcome = await self._writer.commit(plan)
        if isinstance(outcome, Refused):
            return outcome
        return begun[0], f"{token_id}.{secret_text}"

    def find(self, cookie: str) -> tuple[Token, Session] | None:
        """Return the session of a cookie, and its token, if they have not ended."""
        token_id, _, secret_text = cookie.partition(".")
        token, now = self._store.registry.tokens.get(token_id), self._writer.now().at
        if token is None or not token.valid(now):
            return None
        for session in token.sessions:
            if secret.same(secret_text, session.digest) and _lasts(session, now):
                return token, session
        return None

    def lasts(self, token_id: str, session: Session) -> bool:
        """Has a session of a token not ended?"""
        token, now = self._store.registry.tokens.get(token_id), self._writer.now().at
        return token is not None and session in token.sessions and _lasts(session, now)

    async def end(self, token_id: str, session: Session) -> None:
        """End a session."""

        def plan(states: States) -> CommitPlan | Refused:
            token = states.registry.tokens.get(token_id)
            if token is None or session not in token.sessions:
                return CommitPlan()
            return _change(token, tuple(other for other in token.sessions if other != session))

        await self._writer.commit(plan)


def _change(token: Token, sessions: tuple[Session, ...]) -> CommitPlan:
    changed = msgspec.structs.replace(token, begun=sessions)
    return CommitPlan(puts=[TokenPut(changed, CHANGED, token.name)])


def _lasts(session: Session, now: Time) -> bool:
    # After a clock that was ahead has been set back, a session would last too long.
    return session.expires_at - SESSION_LIFE <= now < session.expires_at
