"""Conversion of tokens to the type of the control API."""

from __future__ import annotations

from forewarn.control.schema import tokens as t
from forewarn.control.views.shape import moment, view
from forewarn.core import Time
from forewarn.core.access import Token


def token(token: Token, now: Time, last_used: Time | None) -> t.Token:
    state = "valid" if token.valid(now) else "expired" if token.revoked_at is None else "revoked"
    return view(
        t.Token,
        token,
        state=state,
        groups=list(token.limit.groups),
        label=",".join(map(str, token.limit.labels)),
        last_used=moment(last_used),
    )
