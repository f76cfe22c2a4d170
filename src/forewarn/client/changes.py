"""What has changed from one document to the next. Pure: documents and times in, changes out.

Events are compared by their ids and never by the incarnation, which starts over when it likes. An
event that is gone is finished or withdrawn; the document does not say which, so it is told from
what was seen of it before. One that is listed again after it was gone begins anew.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from forewarn.client.events import Change, Document, Event, Kind


class ChangeTracker:
    """The last document, and what came of each event in it."""

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}  # by id in upper case, in the order they were raised
        self._started: set[str] = set()  # told so, and still listed; nothing ever goes back
        self._approved: set[str] = set()  # by us, and still listed

    def approved(self, id: str) -> None:
        """It is being approved from here, so it may be started and over before anybody looks, or
        hears that it was heard."""
        self._approved.add(id.upper())

    def not_approved(self, id: str) -> None:
        """It was refused."""
        self._approved.discard(id.upper())

    def look(
        self, document: Document, at: datetime, hidden: Collection[str] = ()
    ) -> tuple[Change, ...]:
        """What is new: first what is over, then what came, as it stands in the document. `hidden`
        are the types that this document would not list: what has one of them is not over."""
        now = {event.id.upper(): event for event in document.events}
        changes: list[Change] = []
        for key, event in self._events.items():
            if key not in now and event.type in hidden:
                now[key] = event
            elif key not in now:
                changes.append(self._ended(key, event, at))
        for key, event in now.items():
            if key not in self._events:  # it may be met when it has started already
                changes.append(Change(kind=Kind.APPEARED, event=event, at=at))
            if event.started and key not in self._started:
                changes.append(Change(kind=Kind.STARTED, event=event, at=at))
                self._started.add(key)
        self._events = now
        self._started &= now.keys()
        self._approved &= now.keys()
        return tuple(changes)

    def _ended(self, key: str, event: Event, at: datetime) -> Change:
        if key in self._started:
            return Change(kind=Kind.FINISHED, event=event, at=at)
        due = event.not_before is not None and event.not_before <= at
        if due or key in self._approved:
            return Change(kind=Kind.FINISHED, event=event, at=at, presumed=True)
        return Change(kind=Kind.WITHDRAWN, event=event, at=at)
