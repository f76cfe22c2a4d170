"""What has changed from one document to the next. Pure: documents and times in, changes out.

Events are compared by their ids and never by the incarnation, which starts over when it likes. An
event that is gone is finished or withdrawn; the document does not say which, so it is told from
what was seen of it before.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from forewarn.client.events import Change, Document, Event, Kind


class Following:
    """The last document, and what came of each event in it."""

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}  # by id in upper case, in the order they were raised
        self._approved: set[str] = set()  # by us, and still listed

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(self._events.values())

    def approved(self, id: str) -> None:
        """It was approved from here, so it may be started and over before anybody looks."""
        self._approved.add(id.upper())

    def look(self, document: Document, at: datetime) -> tuple[Change, ...]:
        """What is new: first what is over, then what came, as it stands in the document."""
        now = {event.id.upper(): event for event in document.events}
        over = [key for key in self._events if key not in now]
        changes = [self._ended(key, at) for key in over]
        for key, event in now.items():
            changes.extend(_moved(self._events.get(key), event, at))
        self._events = now
        self._approved &= now.keys()
        return tuple(changes)

    def _ended(self, key: str, at: datetime) -> Change:
        event = self._events[key]
        if event.started:
            return Change(kind=Kind.FINISHED, event=event, at=at)
        due = event.not_before is not None and event.not_before <= at
        if due or key in self._approved:
            return Change(kind=Kind.FINISHED, event=event, at=at, presumed=True)
        return Change(kind=Kind.WITHDRAWN, event=event, at=at)


def _moved(before: Event | None, event: Event, at: datetime) -> Iterator[Change]:
    """An event may be met when it has started already; it has appeared all the same."""
    if before is None:
        yield Change(kind=Kind.APPEARED, event=event, at=at)
    if event.started and (before is None or not before.started):
        yield Change(kind=Kind.STARTED, event=event, at=at)
