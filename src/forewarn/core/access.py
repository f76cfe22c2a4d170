"""Who may: tokens, their roles and what they are limited to; and who is on this machine. Values and
what follows from them.

Of a token's secret only a digest is known here. How it is made, shown and compared is the
service's affair; what a request needs is said by the face that serves it.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterable, Mapping

import msgspec

from forewarn.core.labels import Selector, matches
from forewarn.core.time import Time


class Role(enum.Enum):
    """Each may what those before it may."""

    VIEWER = "viewer"  # looks
    OPERATOR = "operator"  # makes things happen
    ADMIN = "admin"  # tokens, copies of the state

    def includes(self, other: Role) -> bool:
        return _ORDER[self] >= _ORDER[other]


_ORDER = {role: n for n, role in enumerate(Role)}


class Limit(msgspec.Struct, frozen=True):
    """To these groups, and to groups with these labels: what either allows. Empty: no limit."""

    groups: tuple[str, ...] = ()
    labels: Selector = ()

    @property
    def none(self) -> bool:
        return not self.groups and not self.labels

    def allows(self, group: str, labels: Mapping[str, str]) -> bool:
        return (
            self.none or group in self.groups or bool(self.labels and matches(self.labels, labels))
        )


class Token(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str  # who it is, in the history
    role: Role
    digest: str  # SHA-256 of the secret, in hexadecimal digits
    created_at: Time
    created_by: str
    limit: Limit = Limit()
    expires_at: Time | None = None
    revoked_at: Time | None = None
    revoked_by: str = ""

    def valid(self, now: Time) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def over_since(self, now: Time) -> Time | None:
        """Since when it opens nothing any more; None: it still does."""
        if self.valid(now):
            return None
        ends = [at for at in (self.revoked_at, self.expires_at) if at is not None]
        return min(ends)


def local(host: str) -> bool:
    """Is this an address, or the name of one, that only this machine can reach?"""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def forgettable(tokens: Iterable[Token], now: Time) -> list[tuple[Time, Token]]:
    """Those that open nothing any more, by when that began; but one that could be the last of all
    always stays: where a token has ever been, nobody is let in without one."""
    known = list(tokens)
    over = [(since, one) for one in known if (since := one.over_since(now)) is not None]
    over.sort(key=lambda found: (found[0], found[1].id))
    return over[:-1] if len(over) == len(known) else over
