"""What a client is told: events, what has changed about them, and a document as a whole.

Values only. How they are read off an answer is `document.py`, what counts as a change `changes.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

import msgspec

SCHEDULED = "Scheduled"  # whatever else a status is, it has started
LAST = 253_402_300_799.0  # 9999-12-31T23:59:59Z


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event, as the newest version tells it. What the version in use does not tell is as if
    nobody knew: no description, no source, no duration."""

    id: str
    type: str  # Freeze, Reboot, Redeploy, Preempt, Terminate, or what may come after them
    status: str  # Scheduled or Started
    resources: tuple[str, ...] = ()
    not_before: datetime | None = None  # None once it has started
    description: str = ""
    source: str = ""  # Platform or User
    duration: int | None = None  # seconds of impact; None: unknown

    @property
    def started(self) -> bool:
        return self.status != SCHEDULED

    def seconds_left(self, now: datetime) -> float | None:
        """Until it may start by itself; None if it has, or if nobody has said when."""
        return None if self.not_before is None else (self.not_before - now).total_seconds()


class Kind(StrEnum):
    APPEARED = "appeared"
    STARTED = "started"
    FINISHED = "finished"
    WITHDRAWN = "withdrawn"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Something has happened to an event. `event` is as it was last told: one that is over is not
    in the document any more."""

    kind: Kind
    event: Event
    at: datetime  # by the service's clock
    presumed: bool = False
    """It ended unseen: nobody was told that it had started, and the time for it had come (or
    somebody here had approved it), so it is taken for finished."""


class Document(msgspec.Struct, frozen=True):
    incarnation: int | None
    events: tuple[Event, ...] = ()


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One answer: how things stand, and what is new since the answer before."""

    document: Document
    changes: tuple[Change, ...]
    at: datetime  # by the service's clock
    hidden: frozenset[str] = frozenset()  # types that the version in use does not list


def moment(seconds: float) -> datetime:
    """Seconds since 1970 as a time; the last there is, if a clock goes beyond that."""
    return datetime.fromtimestamp(max(0.0, min(seconds, LAST)), UTC)
