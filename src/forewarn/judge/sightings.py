"""When each event was seen as what, in all the documents there are.

Only the sightings that prove most are kept: the first as Started, the first and the last as
Scheduled. Most polls repeat a document, so documents are kept and not polls.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .document import Document
from .order import Sighting


@dataclass(slots=True)
class _Span:
    """When a document was seen: the first and last sightings, as far as they are certain."""

    seen: Sighting  # the one that was complete first
    first_asked: float
    last: Sighting  # the one that was asked for last


class Sightings:
    def __init__(self) -> None:
        self._spans: dict[Document, _Span] = {}
        self.started: dict[str, Sighting] = {}  # the one that was complete first
        self.first_scheduled: dict[str, float] = {}  # when it was asked for
        self.last_scheduled: dict[str, Sighting] = {}  # the one that was asked for last

    def note(self, sighting: Sighting) -> None:
        exchange = sighting.exchange
        span = self._spans.get(sighting.document)
        if span is None:
            self._spans[sighting.document] = _Span(sighting, exchange.asked, sighting)
            return
        if exchange.place < span.seen.exchange.place:
            span.seen = sighting
        span.first_asked = min(span.first_asked, exchange.asked)
        if _asked(span.last) < _asked(sighting):
            span.last = sighting

    def finish(self) -> None:
        for document, span in self._spans.items():
            for event in document.events or ():
                if event.started:
                    best = self.started.setdefault(event.id, span.seen)
                    if span.seen.exchange.place < best.exchange.place:
                        self.started[event.id] = span.seen
                else:
                    first = self.first_scheduled.get(event.id, math.inf)
                    self.first_scheduled[event.id] = min(first, span.first_asked)
                    last = self.last_scheduled.setdefault(event.id, span.last)
                    if _asked(last) < _asked(span.last):
                        self.last_scheduled[event.id] = span.last

    def lives(self) -> Iterator[tuple[str, float, float]]:
        """Events, each with a moment by which it was there and one at which it still was."""
        for document, span in self._spans.items():
            for id in document.ids:
                yield id, span.seen.exchange.t, span.last.exchange.asked


def _asked(sighting: Sighting) -> tuple[float, int]:
    return sighting.exchange.asked, sighting.exchange.index
