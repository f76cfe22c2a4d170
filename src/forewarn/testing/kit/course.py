"""The course of an event in a test: to its start, while it is Started, and to its end.

Winds the clock, or plays it where clients are to follow. An event that does not start or end is
refused in the words that explain it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING

from forewarn.core import Status, Time
from forewarn.testing.kit.errors import RefusedByService

if TYPE_CHECKING:
    from forewarn.testing.kit.events import Event
    from forewarn.testing.kit.service import Service

MAX_STEPS = 1_000  # instants at which something is due, before an event is said not to end


class During:
    """A block in which the events are Started; when it has been left, they are over.

    If the block fails nothing is wound: things stay as they were, for whoever looks.
    """

    def __init__(
        self, service: Service, events: tuple[Event, ...], *, approve: bool, play: bool
    ) -> None:
        self._service = service
        self._events = events
        self._approve = approve
        self._play = play

    def __enter__(self) -> Event:
        for event in self._events:
            to_start(self._service, event, approve=self._approve, play=self._play)
        for event in self._events:
            if event.over:
                last = self._events[-1]
                raise RefusedByService(
                    f"{event.type} {event.id} was over before {last.type} {last.id} started:"
                    " there is no time at which all of them are"
                )
        return self._events[0]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if kind is None:
            for event in self._events:
                to_end(self._service, event, play=self._play)

    async def __aenter__(self) -> Event:
        return await self._service.aio(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._service.aio(self.__exit__, kind, value, tb)


def to_start(service: Service, event: Event, *, approve: bool = False, play: bool = False) -> None:
    record = event.record
    if record.status.over:
        raise RefusedByService(f"{event.type} {event.id} cannot start: {event.explain()}")
    waits = record.status is Status.SCHEDULED
    if waits and approve:
        event.approve()
    elif waits:  # be it that somebody approves it, and is quicker than its notice
        _wind(service, record.not_before, play=play, until=lambda: event.status != "Scheduled")
    if play and (approve or not waits):  # it is Started already, and to be seen so
        _wind(service, service.node.writer.now().at, play=True)
    if event.record.status is not Status.STARTED:
        raise RefusedByService(f"{event.type} {event.id} does not start: {event.explain()}")


def to_end(service: Service, event: Event, *, play: bool = False) -> None:
    for _ in range(MAX_STEPS):
        if event.record.status.over:
            return
        due = service.call(service.node.scheduler.next_due)
        if due is None:
            break
        _wind(service, due, play=play)
    raise RefusedByService(f"{event.type} {event.id} does not end: {event.explain()}")


def _wind(
    service: Service, to: Time, *, play: bool, until: Callable[[], bool] | None = None
) -> None:
    ahead = max(0, to - service.node.writer.now().at)
    by = timedelta(microseconds=ahead)
    wind = service.clock.play if play else service.clock.advance
    wind(by, until=until)
