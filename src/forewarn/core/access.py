"""Access control as values: tokens, their roles and limits, and which addresses are local.

Only a digest of a token's secret is known here. Creating, showing and comparing secrets is the
service's task; which role a request requires is declared by the API that serves it.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterable, Mapping

import msgspec

from forewarn.core.labels import Selector, matches
from forewarn.core.time import Time


class Role(enum.Enum):
    """What a token allows. Each role includes those before it."""

    VIEWER = "viewer"  # reads
    TENANT = "tenant"  # also restarts and redeploys machines, and approves events; always limited
    OPERATOR = "operator"  # schedules, approves and cancels events; changes the fleet
    ADMIN = "admin"  # also manages tokens and backups

    def includes(self, other: Role) -> bool:
        return _ORDER[self] >= _ORDER[other]


_ORDER = {role: n for n, role in enumerate(Role)}


class Limit(msgspec.Struct, frozen=True):
    """The groups that a token is limited to: by name, or by label. Empty: no limit."""

    groups: tuple[str, ...] = ()
    labels: Selector = ()
    other_labels: tuple[Selector, ...] = ()  # groups that match any of these are allowed, too

    @property
    def none(self) -> bool:
        return not self.groups and not self.labels

    @property
    def selectors(self) -> tuple[Selector, ...]:
        return (self.labels, *self.other_labels) if self.labels else ()

    def allows(self, group: str, labels: Mapping[str, str]) -> bool:
        return (
            self.none
            or group in self.groups
            or any(matches(selector, labels) for selector in self.selectors)
        )


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A browser in which somebody has logged in with a token."""

    digest: str  # SHA-256 of its secret, in hexadecimal digits
    expires_at: Time


class Token(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str  # shown in the history
    role: Role
    digest: str  # SHA-256 of the secret, in hexadecimal digits
    created_at: Time
    created_by: str
    limit: Limit = Limit()
    expires_at: Time | None = None
    revoked_at: Time | None = None
    revoked_by: str = ""
    # In the order in which they began; they end with it. Not stored if there were never any.
    begun: tuple[Session, ...] | msgspec.UnsetType = msgspec.UNSET
    # With which access tokens that were made with its secret are verified, in hexadecimal digits.
    # Not stored if there were never any.
    public_key: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def sessions(self) -> tuple[Session, ...]:
        return () if isinstance(self.begun, msgspec.UnsetType) else self.begun

    def valid(self, now: Time) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def invalid_since(self, now: Time) -> Time | None:
        """Return since when the token is invalid; None while it is valid."""
        if self.valid(now):
            return None
        ends = [at for at in (self.revoked_at, self.expires_at) if at is not None]
        return min(ends)


def local(host: str) -> bool:
    """Is this an address or name that only this machine can reach?"""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def forgettable(tokens: Iterable[Token], now: Time) -> list[tuple[Time, Token]]:
    """Return the invalid tokens with the time since when they are, the oldest first.

    If all tokens are invalid, the last one is not returned: a service that has ever had a token
    must not become accessible without one.
    """
    all_tokens = list(tokens)
    invalid = [(at, token) for token in all_tokens if (at := token.invalid_since(now)) is not None]
    invalid.sort(key=lambda entry: (entry[0], entry[1].id))
    return invalid[:-1] if len(invalid) == len(all_tokens) else invalid
