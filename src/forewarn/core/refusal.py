"""Why a command was refused: a reason for programs, a sentence for people."""

from __future__ import annotations

import enum

import msgspec


class Reason(enum.Enum):
    INVALID = "invalid"  # the request itself makes no sense
    UNKNOWN = "unknown"  # it names something that is not there
    CONFLICT = "conflict"  # it makes sense, but not now
    STALE = "stale"  # it was meant for something that has changed since


class Refused(msgspec.Struct, frozen=True):
    """An answer, not an exception: the core never raises for what a caller may have said."""

    reason: Reason
    says: str


def invalid(says: str) -> Refused:
    return Refused(Reason.INVALID, says)


def unknown(says: str) -> Refused:
    return Refused(Reason.UNKNOWN, says)


def conflict(says: str) -> Refused:
    return Refused(Reason.CONFLICT, says)


def stale(says: str) -> Refused:
    return Refused(Reason.STALE, says)
