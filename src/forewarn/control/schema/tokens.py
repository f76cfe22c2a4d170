"""The shapes of tokens in the control API. Times are RFC 3339, durations seconds."""

from __future__ import annotations

import msgspec

from forewarn.control.schema.types import Moment


class TokenRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    role: str  # viewer, operator or admin
    groups: list[str] | None = None  # that it is limited to; not empty, if it is said
    label: str | None = None  # and to groups that this selects; neither is this
    expires_in: float | None = None  # seconds from now
    expires_at: Moment | None = None  # or then


class RevokeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    force: bool = False  # also the last one of an admin


class Token(msgspec.Struct, kw_only=True):
    id: str
    name: str
    role: str
    state: str  # valid, expired or revoked
    created_at: Moment
    created_by: str
    groups: list[str] = []
    label: str = ""
    expires_at: Moment | None = None
    last_used: Moment | None = None  # to within some seconds
    revoked_at: Moment | None = None
    revoked_by: str = ""


class CreatedToken(Token, kw_only=True):
    """With the secret, which is shown this once and is kept nowhere."""

    token: str
    notes: list[str] = []

    def __repr__(self) -> str:
        return f"CreatedToken(id={self.id!r}, name={self.name!r})"
