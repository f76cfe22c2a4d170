"""Instants: whole microseconds since 1970, as the service counts them, and `datetime`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

Time: TypeAlias = int  # microseconds since 1970-01-01T00:00:00Z


class NoZone(ValueError):
    """A time that means different instants in different places."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_datetime(at: Time) -> datetime:
    """Return an instant as a time in UTC. Raises OverflowError if `datetime` does not go so far."""
    return _EPOCH + timedelta(microseconds=at)


def parse_datetime(text: str) -> datetime:
    """Parse a time in ISO 8601. Raises ValueError if it is not one, and `NoZone` if it has no time
    zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise NoZone(f"'{text}' has no time zone; add Z for UTC, or an offset such as +01:00")
    return time


def from_datetime(time: datetime) -> Time:
    """Return a time as an instant. Raises ValueError if the time has no zone."""
    if time.tzinfo is None:
        raise ValueError("a time needs a time zone, for example a trailing Z")
    return (time - _EPOCH) // _MICROSECOND
