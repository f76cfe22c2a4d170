"""When each event was seen as Scheduled and as Started, in all documents.

Only the sightings that prove most are kept: the first as Started, the first and the last as
Scheduled. Most polls repeat a document, so they are kept by document.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .document import Document
from .order import Sighting


@dataclass(slots=True)
class _Span:
    """The first and the last sighting of a document."""

    first: Sighting  # the one that was complete first
    first_asked: float
    last: Sighting  # the one that was asked for last


class Sightings:
    def __init__(self) -> None:
        self._spans: dict[Document, _Span] = {}
        self.started: dict[str, Sighting] = {}  # the one that was complete first
        self.first_scheduled: dict[str, float] = {}  # when it was asked for
        self.last_scheduled: dict[str, Sighting] = {}  # the one that was asked for last

    def add(self, sighting: Sighting) -> None:
        exchange = sighting.exchange
        span = self._spans.get(sighting.document)
        if span is None:
            self._spans[sighting.document] = _Span(sighting, exchange.asked, sighting)
            return
        if exchange.position < span.first.exchange.position:
            span.first = sighting
        span.first_asked = min(span.first_asked, exchange.asked)
        if _asked_position(span.last) < _asked_position(sighting):
            span.last = sighting

    def finish(self) -> None:
        for document, span in self._spans.items():
            for event in document.events or ():
                if event.started:
                    earliest = self.started.setdefault(event.id, span.first)
                    if span.first.exchange.position < earliest.exchange.position:
                        self.started[event.id] = span.first
                else:
                    first = self.first_scheduled.get(event.id, math.inf)
                    self.first_scheduled[event.id] = min(first, span.first_asked)
                    last = self.last_scheduled.setdefault(event.id, span.last)
                    if _asked_position(last) < _asked_position(span.last):
                        self.last_scheduled[event.id] = span.last

    def lifetimes(self) -> Iterator[tuple[str, float, float]]:
        """Yield each event with a time by which it existed and one at which it still existed."""
        for document, span in self._spans.items():
            for id in document.ids:
                yield id, span.first.exchange.t, span.last.exchange.asked


def _asked_position(sighting: Sighting) -> tuple[float, int]:
    return sighting.exchange.asked, sighting.exchange.index
