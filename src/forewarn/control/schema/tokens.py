"""Types of tokens in the control API. Times are RFC 3339, durations seconds."""

from __future__ import annotations

from typing import Annotated

import msgspec

from forewarn.control.schema.types import Moment, doc, documented

ROLES = (
    "`viewer`, `tenant`, `operator` or `admin`; each includes the rights of the previous one. A"
    " tenant's token must be limited, an admin's cannot be."
)


class TokenRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A token to create."""

    name: Annotated[str, doc("Name of the token, which the history shows.")]
    role: Annotated[str, documented(enum="Role"), doc(f"Role: {ROLES}")]
    groups: Annotated[
        list[str] | None, doc("Limit the token to these groups; must not be empty.")
    ] = None
    label: Annotated[
        str | None,
        doc(
            "Limit the token to groups with these labels, e.g. tier=web,!canary; must not be empty."
        ),
    ] = None
    expires_in: Annotated[float | None, doc("Seconds until it expires.")] = None
    expires_at: Annotated[
        Moment | None, doc("Time at which it expires, instead of `expires_in`.")
    ] = None


class RevokeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How to revoke a token."""

    force: Annotated[
        bool, doc("Revoke the token even if it is the last one with the role admin.")
    ] = False


class Token(msgspec.Struct, kw_only=True):
    """A token, without its secret."""

    id: Annotated[str, doc("Id of the token.")]
    name: Annotated[str, doc("Name of the token, which the history shows.")]
    role: Annotated[str, doc(ROLES)]
    state: Annotated[str, doc("`valid`, `expired` or `revoked`.")]
    created_at: Annotated[Moment, doc("When it was created.")]
    created_by: Annotated[str, doc("Who created it.")]
    groups: Annotated[
        list[str], doc("Groups that it is limited to; empty: it is not limited to groups by name.")
    ] = []
    label: Annotated[
        str,
        doc("Label selector of the groups that it is limited to; empty: none."),
    ] = ""
    expires_at: Annotated[Moment | None, doc("When it expires; null: never.")] = None
    last_used: Annotated[
        Moment | None, doc("When it was last used, accurate to a few seconds.")
    ] = None
    revoked_at: Annotated[Moment | None, doc("When it was revoked; null: it was not.")] = None
    revoked_by: Annotated[str, doc("Who revoked it; empty: nobody.")] = ""


class CreatedToken(Token, kw_only=True):
    """A new token with its secret."""

    token: Annotated[str, doc("The secret, which is shown only in this response.")]
    notes: Annotated[list[str], doc("What the caller should know about the result.")] = []

    def __repr__(self) -> str:
        return f"CreatedToken(id={self.id!r}, name={self.name!r})"
