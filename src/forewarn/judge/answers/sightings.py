"""When each event was seen as Scheduled and as Started, in all documents.

Only the sightings that prove most are kept: the first as Started, the first and the last as
Scheduled. Most polls repeat a document, so they are kept by document. What a machine is
shown while it is disconnected was true once, but perhaps no longer, so it is never a last sighting.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from forewarn.judge.reading.document import Document
from forewarn.judge.reading.order import Sighting


@dataclass(slots=True)
class _Span:
    """The first and the last sighting of a document."""

    first: Sighting  # the one that was complete first
    first_asked: float
    last: Sighting | None  # the one that was asked for last, not by a machine that was disconnected


class Sightings:
    def __init__(self) -> None:
        self._spans: dict[Document, _Span] = {}
        self.started: dict[str, Sighting] = {}  # the one that was complete first
        self.first_scheduled: dict[str, float] = {}  # when it was asked for
        self.last_scheduled: dict[str, Sighting] = {}  # the one that was asked for last
        # Of each document, by host with a clock of its own: the first and the last one there.
        self._there: dict[Document, dict[str, tuple[Sighting, Sighting]]] = {}

    def add(self, sighting: Sighting) -> None:
        exchange = sighting.exchange
        if exchange.host is not None and exchange.real is not None and not sighting.disconnected:
            there = self._there.setdefault(sighting.document, {})
            first, latest = there.get(exchange.host, (sighting, sighting))
            if exchange.position < first.exchange.position:
                first = sighting
            there[exchange.host] = first, _later(latest, sighting)
        span = self._spans.get(sighting.document)
        if span is None:
            last = None if sighting.disconnected else sighting
            self._spans[sighting.document] = _Span(sighting, exchange.asked, last)
            return
        if exchange.position < span.first.exchange.position:
            span.first = sighting
        span.first_asked = min(span.first_asked, exchange.asked)
        if not sighting.disconnected:
            span.last = _later(span.last, sighting)

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
                    if span.last is not None:
                        last = self.last_scheduled.get(event.id)
                        self.last_scheduled[event.id] = _later(last, span.last)

    def starts(self) -> Iterator[tuple[str, Sighting, Sighting]]:
        """Yield each event with the last sighting of it as Scheduled on a host, and the first as
        Started there."""
        scheduled: dict[tuple[str, str], Sighting] = {}
        started: dict[tuple[str, str], Sighting] = {}
        for document, hosts in self._there.items():
            for host, (first, last) in hosts.items():
                for event in document.events or ():
                    key = event.id, host
                    if not event.started:
                        scheduled[key] = _later(scheduled.get(key), last)
                    elif key not in started or (
                        first.exchange.position < started[key].exchange.position
                    ):
                        started[key] = first
        for (id, host), sighting in started.items():
            if (id, host) in scheduled:
                yield id, scheduled[id, host], sighting

    def lifetimes(self) -> Iterator[tuple[str, float, float]]:
        """Yield each event with a time by which it existed and one at which it still existed."""
        for document, span in self._spans.items():
            for id in document.ids:
                last_asked = -math.inf if span.last is None else span.last.exchange.asked
                yield id, span.first.exchange.t, last_asked


def _later(first: Sighting | None, second: Sighting) -> Sighting:
    """Return the one that was asked for later."""
    if first is None or _asked_position(first) < _asked_position(second):
        return second
    return first


def _asked_position(sighting: Sighting) -> tuple[float, int]:
    return sighting.exchange.asked, sighting.exchange.index
