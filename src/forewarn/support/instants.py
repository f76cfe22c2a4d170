"""Instants: whole microseconds since 1970, as the service counts them, and `datetime`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_datetime(at: int) -> datetime:
    """Return an instant as a time in UTC. Raises OverflowError if `datetime` does not go so far."""
    return _EPOCH + timedelta(microseconds=at)


def from_datetime(time: datetime) -> int:
    """Return a time as an instant. Raises ValueError if the time has no zone."""
    if time.tzinfo is None:
        raise ValueError("a time needs a time zone, for example a trailing Z")
    return (time - _EPOCH) // _MICROSECOND
