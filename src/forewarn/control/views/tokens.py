"""Conversion of tokens to the type of the control API."""

from __future__ import annotations

from forewarn.control.schema import tokens as t
from forewarn.core import Time
from forewarn.core.access import Token
from forewarn.support.instants import to_datetime


def token(token: Token, now: Time, last_used: Time | None) -> t.Token:
    revoked, expires = token.revoked_at, token.expires_at
    state = "revoked" if revoked is not None else "valid" if token.valid(now) else "expired"
    return t.Token(
        id=token.id,
        name=token.name,
        role=token.role.value,
        state=state,
        created_at=to_datetime(token.created_at),
        created_by=token.created_by,
        groups=list(token.limit.groups),
        label=",".join(map(str, token.limit.labels)),
        expires_at=None if expires is None else to_datetime(expires),
        last_used=None if last_used is None else to_datetime(last_used),
        revoked_at=None if revoked is None else to_datetime(revoked),
        revoked_by=token.revoked_by,
    )
