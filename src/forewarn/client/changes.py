"""What has changed from one document to the next. Pure: documents and times in, changes out.

Events are compared by their IDs and never by the incarnation, which may start over. An event that
is no longer listed is finished or withdrawn; the document does not say which, so that is derived
from its earlier states. An event that is listed again afterwards counts as a new one.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from forewarn.client.events import Change, ChangeKind, Document, Event


class ChangeTracker:
    """Remembers the last document, and compares the next one with it."""

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}  # by ID in upper case, in the order of the document
        self._started: set[str] = set()  # listed as started once, and still listed
        self._approved: set[str] = set()  # by this client, and still listed

    def mark_approved(self, id: str) -> None:
        """Note that this client approves an event, which may be over before the next document, or
        even before the approval is answered."""
        self._approved.add(id.upper())

    def unmark_approved(self, id: str) -> None:
        """Note that an approval was refused."""
        self._approved.discard(id.upper())

    def update(
        self, document: Document, at: datetime, hidden_types: Collection[str] = ()
    ) -> tuple[Change, ...]:
        """Return the changes: first the events that are over, then new ones, in the document's
        order. An event of one of the `hidden_types`, which this document would not list, is not
        over."""
        current = {event.id.upper(): event for event in document.events}
        changes: list[Change] = []
        for key, event in self._events.items():
            if key not in current and event.type in hidden_types:
                current[key] = event
            elif key not in current:
                changes.append(self._end(key, event, at))
        for key, event in current.items():
            before = self._events.get(key)
            if before is None:  # it may have started already
                changes.append(Change(kind=ChangeKind.APPEARED, event=event, at=at))
            elif _is_rescheduled(event, before):
                changes.append(
                    Change(
                        kind=ChangeKind.RESCHEDULED,
                        event=event,
                        at=at,
                        earlier_not_before=before.not_before,
                    )
                )
            if event.started and key not in self._started:
                changes.append(Change(kind=ChangeKind.STARTED, event=event, at=at))
                self._started.add(key)
        self._events = current
        self._started &= current.keys()
        self._approved &= current.keys()
        return tuple(changes)

    def _end(self, key: str, event: Event, at: datetime) -> Change:
        if key in self._started:
            return Change(kind=ChangeKind.FINISHED, event=event, at=at)
        due = event.not_before is not None and event.not_before <= at
        if due or key in self._approved:
            return Change(kind=ChangeKind.FINISHED, event=event, at=at, presumed=True)
        return Change(kind=ChangeKind.WITHDRAWN, event=event, at=at)


def _is_rescheduled(event: Event, before: Event) -> bool:
    times = before.not_before, event.not_before
    return not event.started and None not in times and times[0] != times[1]
