"""`Event`: one event as a test sees and changes it, and blocks in which events are Started.

Reading its properties uses the service directly and sends no poll, so the verdict does not take the
test for a client.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, TypedDict

from forewarn.core import Event as Record
from forewarn.core import EventType as CoreEventType
from forewarn.core import Source, Status, Time
from forewarn.service.engine.catch_up import POLL_PATIENCE, REACTION_TIME
from forewarn.service.platform.platform import Outcome, Outcomes
from forewarn.support.handles import MachineRef, name_of
from forewarn.support.instants import to_datetime
from forewarn.testing.durations import Duration, in_microseconds, instant, whole_seconds
from forewarn.testing.errors import RefusedError, allowed
from forewarn.testing.kit.requests import Requests
from forewarn.testing.names import EventSource, EventType
from forewarn.testing.session import in_a_loop

MAX_STEPS = 1_000  # instants at which something is due, before an event counts as endless


class Announcement(TypedDict, total=False):
    """Optional details of an event that is to be announced."""

    notice: Duration | None
    """The time until NotBefore, as seconds, a timedelta or text such as `"20m"`; by default the
    minimum of the type."""
    not_before: datetime
    """The NotBefore, as a datetime with a time zone, instead of a notice."""
    short_notice: bool
    """Whether the notice may be shorter than the type promises."""
    description: str
    """The text that documents show."""
    duration: Duration
    """The expected duration of the impact, in whole seconds or as a timedelta; -1, the default, if
    it is not known."""
    source: EventSource
    """Who causes the event: `Platform`, the default, or `User`."""


def event_type(name: str) -> CoreEventType:
    """Return the type of this name, in any case, or raise RefusedError."""
    for type in CoreEventType:
        if type.value.lower() == name.lower():
            return type
    types = ", ".join(type.value for type in CoreEventType)
    raise RefusedError(f"unknown event type '{name}'; expected one of {types}")


def event_from(session: Requests, work: Coroutine[Any, Any, Any]) -> Event:
    """Run a command of the platform and return its event, when all that follows has happened."""
    outcome: Outcome = allowed(session.run(work))
    session.settle()
    return Event(session, outcome.event)


def events_from(session: Requests, work: Coroutine[Any, Any, Any]) -> tuple[Event, ...]:
    """Run a command of the platform that returns several events."""
    outcome: Outcomes = allowed(session.run(work))
    session.settle()
    return tuple(Event(session, event) for event in outcome.events)


def schedule(
    session: Requests, type: EventType, machines: tuple[str, ...], details: Announcement
) -> Event:
    """Announce one event for these machines."""
    options: dict[str, Any] = dict(details)
    if unknown := options.keys() - Announcement.__annotations__.keys():
        known = ", ".join(Announcement.__annotations__)
        raise TypeError(f"an event has no detail '{min(unknown)}'; expected one of {known}")
    if options.get("notice") is not None:
        options["notice"] = in_microseconds(options["notice"])
    if options.get("not_before") is not None:
        options["not_before"] = instant(options["not_before"])
    if "duration" in options:
        options["duration"] = whole_seconds(options["duration"])
    if "source" in options:
        sources = {source.value.lower(): source for source in Source}
        name = options["source"]
        if name.lower() not in sources:
            raise RefusedError(f"an event's source is Platform or User, not '{name}'")
        options["source"] = sources[name.lower()]
    announce = session.node.platform.schedule
    kind = event_type(type)
    return event_from(session, announce(type=kind, machines=machines, by="test", **options))


class Event:
    """One event, as the methods that cause events return it.

    What never changes is remembered; everything else is read from the service when it is used,
    without a poll.
    """

    def __init__(self, session: Any, record: Record) -> None:  # Any: what it is, is not for users
        self._session: Requests = session
        self._raised = record

    @property
    def id(self) -> str:
        """The EventId in documents."""
        return self._raised.id

    @property
    def type(self) -> EventType:
        """The type of the event, such as `Reboot`."""
        return self._raised.type.value

    @property
    def source(self) -> EventSource:
        """Who causes the event: `Platform` or `User`."""
        return self._raised.source.value

    @property
    def group(self) -> str:
        """The name of the group whose document lists the event."""
        return self._raised.group

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of the machines that the event affects."""
        return self._raised.resources

    @property
    def description(self) -> str:
        """The description for people, as documents show it."""
        return self._raised.description

    @property
    def duration(self) -> int:
        """The expected duration of the impact in seconds, or -1 if it is not known."""
        return self._raised.duration

    @property
    def not_before(self) -> datetime:
        """The earliest time at which the event starts without an approval, in UTC."""
        return to_datetime(self._raised.not_before)

    @property
    def _record(self) -> Record:
        """The service's current record of the event."""
        record: Record = allowed(self._session.run(self._session.node.platform.event(self.id)))
        return record

    @property
    def status(self) -> str:
        """The status of the event: `Scheduled` or `Started`, as documents show it; then `Finished`
        or `Withdrawn`, when documents no longer list it."""
        return self._record.status.value

    @property
    def over(self) -> bool:
        """Whether documents no longer list the event: it is `Finished` or `Withdrawn`."""
        return self._record.status.over

    @property
    def approved_by(self) -> str | None:
        """The machine that approved the event first, or `operator`; None if nobody has."""
        approval = self._record.approved
        return approval.by if approval else None

    @property
    def started_at(self) -> datetime | None:
        """When the event started, in UTC; None if it has not."""
        at = self._record.started_at
        return to_datetime(at) if at is not None else None

    @property
    def ended_at(self) -> datetime | None:
        """When the event ended, in UTC; None if it has not."""
        at = self._record.ended_at
        return to_datetime(at) if at is not None else None

    @property
    def ready(self) -> tuple[str, ...]:
        """The machines that have reported that they are ready for the event."""
        return tuple(report.machine for report in self._record.ready)

    @property
    def seen_by(self) -> dict[str, datetime]:
        """When each machine first got a document that lists the event. Once it is over,
        this is known of its own machines, and of the first one."""
        explanation = allowed(self._session.run(self._session.node.platform.explain(self.id)))
        return {machine: to_datetime(at) for machine, at in explanation.seen_by.items()}

    def explain(self) -> str:
        """Return a sentence about what the event waits for, as `forewarn event explain` does."""
        text: str = allowed(self._session.run(self._session.node.platform.explain(self.id))).message
        return text

    def approve(self, by: MachineRef | None = None) -> Event:
        """Approve the event.

        Args:
            by: The machine that sends the POST, or its name; by default an operator approves it.

        Raises:
            RefusedError: The event is over, or the machine is not in its group.
        """
        if by is None:
            event_from(self._session, self._session.node.platform.approve(self.id, "operator"))
            return self
        machine = name_of(by)
        response = self._session.approve(machine, self)
        if response.status != 200:
            text = response.body.decode(errors="replace")
            raise RefusedError(f"machine '{machine}' was answered {response.status}: {text}")
        return self

    def cancel(self, reason: str = "") -> Event:
        """Withdraw the event, which is possible until it has started.

        Args:
            reason: The reason that the history gives.

        Raises:
            RefusedError: The event has started or is over.
        """
        event_from(self._session, self._session.node.platform.cancel(self.id, "operator", reason))
        return self

    def finish(self, reason: str = "finished by the test") -> Event:
        """End the event now, whatever the driver is doing.

        Args:
            reason: The reason that the history gives.

        Raises:
            RefusedError: The event has not started, or is over.
        """
        event_from(self._session, self._session.node.platform.finish(self.id, "operator", reason))
        return self

    def until_started(
        self,
        *,
        approve: bool = False,
        play: bool | None = None,
        timeout: Duration = POLL_PATIENCE,
        reaction_time: Duration = REACTION_TIME,
    ) -> Event:
        """Move the clock until the event starts: to its NotBefore, unless a client approves it.

        Args:
            approve: Approve the event as an operator instead of moving the clock.
            play: Let polling clients see every change, as `clock.play` does. If one of them
                approves the event, it starts earlier. By default they do, unless this is called
                inside a running event loop, which it would block.
            timeout: The real time for which a polling client is waited for at every change; by
                default 5 seconds.
            reaction_time: The real time that a machine gets for each of its own events that it
                has seen; by default 1 second.

        Raises:
            RefusedError: Something holds the event, so that it does not start, or it is over.
        """
        move = partial(self._move, _waits(play), timeout, reaction_time)
        record = self._record
        if record.status.over:
            raise RefusedError(f"{self.type} {self.id} cannot start: {self.explain()}")
        if record.status is Status.SCHEDULED and not approve:
            # A client may approve it, so that it starts before NotBefore.
            move(record.not_before, lambda: self.status != "Scheduled")
        else:
            move(self._now)  # let clients see it as it is
        if approve and self._record.status is Status.SCHEDULED:
            self._approve_unless_started()
            move(self._now)
        if self.started_at is None:
            raise RefusedError(f"{self.type} {self.id} does not start: {self.explain()}")
        return self

    def _approve_unless_started(self) -> None:
        """Approve it as an operator, unless a client is faster."""
        try:
            self.approve()
        except RefusedError:
            if self._record.status is Status.SCHEDULED:
                raise

    def until_over(
        self,
        *,
        play: bool | None = None,
        timeout: Duration = POLL_PATIENCE,
        reaction_time: Duration = REACTION_TIME,
    ) -> Event:
        """Move the clock until the event is over, so that documents no longer list it.

        Args:
            play: Let polling clients see every change, as `clock.play` does. By default they do,
                unless this is called inside a running event loop, which it would block.
            timeout: The real time for which a polling client is waited for at every change; by
                default 5 seconds.
            reaction_time: The real time that a machine gets for each of its own events that it
                has seen; by default 1 second.

        Raises:
            RefusedError: Something holds the event, so that it does not end.
        """
        move = partial(self._move, _waits(play), timeout, reaction_time)
        for _ in range(MAX_STEPS):
            if self._record.status.over:
                return self
            due = self._session.clock._next_due()
            if due is None:
                break
            move(due, lambda: self.over)
        raise RefusedError(f"{self.type} {self.id} does not end: {self.explain()}")

    @property
    def _now(self) -> Time:
        return self._session.node.writer.now().at

    def _move(
        self,
        play: bool,
        timeout: Duration,
        reaction_time: Duration,
        to: Time,
        until: Callable[[], bool] | None = None,
    ) -> None:
        ahead = timedelta(microseconds=max(0, to - self._now))
        clock = self._session.clock
        if play:
            clock.play(ahead, until=until, timeout=timeout, reaction_time=reaction_time)
        else:
            clock.advance(ahead, until=until)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        text = f"{self.type} {self.id} of {', '.join(self.resources)}"
        try:
            return f"<{text}: {self._record.status.value}>"
        except Exception:  # a service that has stopped is no reason to fail in a message
            return f"<{text}>"


def _waits(play: bool | None) -> bool:
    return not in_a_loop() if play is None else play


class During:
    """A block in which events are Started, and after which they are over: `service.during(event)`.

    If the block raises an exception, the clock is not moved any further, so that everything can be
    looked at as it was.
    """

    def __init__(
        self,
        session: Any,
        events: tuple[Event, ...],
        *,
        approve: bool,
        play: bool | None,
        timeout: Duration,
        reaction_time: Duration,
    ) -> None:
        self._session: Requests = session  # Any above: what it is, is not for users
        self._events = events
        self._approve = approve
        self._play = play
        self._timeout = timeout
        self._reaction_time = reaction_time

    def __enter__(self) -> Event:
        """Let the events start, and return the first."""
        for event in self._events:
            event.until_started(
                approve=self._approve,
                play=self._play,
                timeout=self._timeout,
                reaction_time=self._reaction_time,
            )
        for event in self._events:
            if event.over:
                last = self._events[-1]
                raise RefusedError(
                    f"{event.type} {event.id} was over before {last.type} {last.id} started:"
                    " they are never Started at the same time"
                )
        return self._events[0]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Let the events end, unless the block has failed."""
        if kind is None:
            for event in self._events:
                event.until_over(
                    play=self._play, timeout=self._timeout, reaction_time=self._reaction_time
                )

    async def __aenter__(self) -> Event:
        """Let the events start, and return the first, without blocking the event loop."""
        return await self._session.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Let the events end, unless the block has failed, without blocking the event loop."""
        await self._session.to_thread(self.__exit__, kind, value, tb)
