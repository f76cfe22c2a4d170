"""`Machine` and `Group`: what can happen to them, and the requests they can send.

Methods like `restart` are the platform's or a user's; `get`, `post`, `document` and `approve` are
the machine's own requests, and count as its polls. Programs reach the machine's endpoint by `url`,
`env`, `asgi` and `inside`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Unpack, cast, overload

import msgspec

from forewarn.core import Event as Record
from forewarn.core import EventType as CoreEventType
from forewarn.core import Group as CoreGroup
from forewarn.core import Machine as CoreMachine
from forewarn.support import guard
from forewarn.support.handles import EventRef, id_of
from forewarn.support.text import counted
from forewarn.testing.durations import Duration, in_seconds
from forewarn.testing.errors import RefusedError, allowed
from forewarn.testing.impacts import Callback as ImpactCallback
from forewarn.testing.kit.documents import Document, VersionedDocument
from forewarn.testing.kit.events import (
    Announcement,
    Event,
    event_from,
    event_type,
    events_from,
    schedule,
)
from forewarn.testing.kit.inprocess import Asgi, Response
from forewarn.testing.kit.requests import NEWEST, Requests
from forewarn.testing.kit.socket_patch import SocketPatch
from forewarn.testing.names import EventType, GroupKind
from forewarn.testing.refused_requests import other_pollers, refused_requests
from forewarn.testing.session import refuse_in_a_loop
from forewarn.wire.extensions import READY, ReadinessReport
from forewarn.wire.instance import INSTANCE_VERSIONS

FIRST_POLL_WITHIN = 30.0  # real seconds in which a client that was started polls
CHECK_EVERY = 0.01  # real seconds between two checks whether it has
ENVIRONMENT = "FOREWARN_METADATA"  # environment variable with the endpoint's URL


class Machine:
    """One machine of the fleet: what can happen to it, its requests, and how programs reach its
    endpoint."""

    name: str
    """The name of the machine, as events list it."""

    def __init__(self, session: Any, name: str) -> None:  # Any: what it is, is not for users
        self._session: Requests = session
        self.name = name

    @property
    def _record(self) -> CoreMachine:
        """The inventory's current record of the machine."""
        return self._place()[1]

    @property
    def group(self) -> str:
        """The name of the machine's group."""
        return self._place()[0].name

    @property
    def host(self) -> str:
        """The name of the host that the machine is on now, or an empty string."""
        return self._record.host

    @property
    def address(self) -> str:
        """The loopback address that tells the machine apart from others. A program uses `url`,
        whose host is this address unless machines have ports instead."""
        return self._record.addresses[0]

    @property
    def alive(self) -> bool:
        """Whether the machine exists: it has not been evicted or deleted."""
        return self._record.alive

    @property
    def events(self) -> list[Event]:
        """The events that the machine's document lists now, without sending a poll."""
        group = self.group
        return [
            Event(self._session, record)
            for record in self._session.call(self._session.node.platform.active)
            if record.group == group and record.listed
        ]

    # What happens to it.

    def restart(self) -> Event:
        """Restart the machine as a user: a Reboot with 15 minutes of notice.

        Raises:
            RefusedError: The machine is gone, or its group has too many user events.
        """
        work = self._session.node.platform.user_maintenance(self.name, CoreEventType.REBOOT, "test")
        return event_from(self._session, work)

    def redeploy(self) -> Event:
        """Redeploy the machine as a user: a Redeploy with 10 minutes of notice, to another host.

        Raises:
            RefusedError: The machine is gone, or its group has too many user events.
        """
        work = self._session.node.platform.user_maintenance(
            self.name, CoreEventType.REDEPLOY, "test"
        )
        return event_from(self._session, work)

    def evict(self) -> Event:
        """Evict a spot machine: a Preempt with 30 seconds of notice, and then it is gone.

        Raises:
            RefusedError: It is not a spot machine, or it is gone.
        """
        return event_from(self._session, self._session.node.removals.evict(self.name, "test"))

    def delete(self) -> Event:
        """Delete the machine: by a Terminate if its scale set has a terminate notice, else at once.

        Raises:
            RefusedError: The machine is gone.
        """
        return event_from(self._session, self._session.node.removals.delete(self.name, "test"))

    def fail(self, type: EventType = "Redeploy") -> Event:
        """Let the machine fail without notice: the event is Started at once.

        Args:
            type: The type of the event: Freeze, Reboot or Redeploy, the default.

        Raises:
            RefusedError: The machine is gone, or this type of event cannot be a failure.
        """
        fail = self._session.node.removals.fail
        return event_from(self._session, fail(self.name, event_type(type), "test"))

    def freeze(self, **details: Unpack[Announcement]) -> Event:
        """Announce a Freeze, a pause of a few seconds, by default with 15 minutes of notice.

        Args:
            details: See `Announcement`.

        Raises:
            RefusedError: The machine is gone, or the notice is too short for a Freeze.
        """
        return self.schedule("Freeze", **details)

    def schedule(self, type: EventType, **details: Unpack[Announcement]) -> Event:
        """Announce an event for the machine: `schedule("Reboot", notice="20m", duration=9)`.

        Args:
            type: The type of the event.
            details: See `Announcement`.

        Raises:
            RefusedError: The machine is gone, or the notice is too short for the type.
        """
        return schedule(self._session, type, (self.name,), details)

    def restore(self) -> Machine:
        """Bring the machine back after it was evicted or deleted.

        Raises:
            RefusedError: The machine exists.
        """
        allowed(self._session.run(self._session.node.platform.restore(self.name, "test")))
        self._session.settle()
        return self

    # Its requests.

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Response:
        """Send one HTTP request as this machine, exactly as given.

        Args:
            method: The method, such as `GET`.
            target: The path and query.
            headers: All headers of the request.
            body: Its body.
        """
        return self._session.request(self.name, method, target, headers, body)

    def get(self, version: str = NEWEST, headers: Mapping[str, str] | None = None) -> Response:
        """Poll for events, and return the response whatever its status is.

        Args:
            version: The api-version; by default the newest.
            headers: Headers in addition to `Metadata: true`, or instead of it.
        """
        return self._session.get(self.name, version, headers)

    def post(
        self, body: bytes, version: str = NEWEST, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a POST to the endpoint of events, which is how events are approved.

        Args:
            body: The body.
            version: The api-version; by default the newest.
            headers: Headers in addition to `Metadata: true`, or instead of it.
        """
        return self._session.post(self.name, body, version, headers)

    @overload
    def document(self) -> Document: ...

    @overload
    def document(self, version: str) -> VersionedDocument: ...

    def document(self, version: str = NEWEST) -> Document | VersionedDocument:
        """Fetch the machine's document, parsed. This counts as a poll.

        Args:
            version: The api-version; by default the newest.

        Raises:
            RefusedError: The answer is not 200.
        """
        return cast(Document, self._json(self.get(version)))

    @overload
    def instance(self, *, version: str = INSTANCE_VERSIONS[-1]) -> dict[str, Any]: ...

    @overload
    def instance(self, path: str, version: str = INSTANCE_VERSIONS[-1]) -> Any: ...

    def instance(self, path: str = "", version: str = INSTANCE_VERSIONS[-1]) -> Any:
        """Fetch the machine's instance metadata, parsed.

        Args:
            path: The part to fetch, such as `compute`; by default everything.
            version: The api-version; by default the newest.

        Returns:
            A dict; or for the path of a list or of a single value, that.

        Raises:
            RefusedError: The answer is not 200.
        """
        below = f"/{path.strip('/')}" if path else ""
        target = f"/metadata/instance{below}?api-version={version}&format=json"
        return self._json(self.request("GET", target, {"Metadata": "true"}))

    def approve(self, *events: EventRef) -> Response:
        """Approve events by a POST, and return the response whatever its status is.

        Args:
            events: The events, or their ids.
        """
        return self._session.approve(self.name, *events)

    def report_ready(self, event: EventRef, note: str = "", *, ready: bool = True) -> None:
        """Report that the machine is ready for an event, or is not.

        Args:
            event: The event, or its id.
            note: A text for the other machines and for operators.
            ready: False takes an earlier report back.

        Raises:
            RefusedError: The answer is not 200; for example, the event is not listed.
        """
        body = msgspec.json.encode(ReadinessReport(ready, note))
        self._json(self.request("PUT", f"{READY}/{id_of(event)}", {"Metadata": "true"}, body))

    # How programs reach its endpoint.

    @property
    def url(self) -> str:
        """The URL of the machine's endpoint. Its socket is opened by the first use."""
        return self._session.url(self.name)

    @property
    def env(self) -> dict[str, str]:
        """Environment variables with which a program uses this machine's endpoint."""
        return {ENVIRONMENT: self.url}

    @property
    def asgi(self) -> Asgi:
        """The machine's endpoint as an ASGI application, without sockets, for any event loop:
        `httpx.AsyncClient(transport=httpx.ASGITransport(machine.asgi))`."""
        return Asgi(self._session, self.name)

    def on_impact(self, callback: ImpactCallback) -> ImpactCallback:
        """Call a function when an event is carried out on this machine, and when it is back.

        Args:
            callback: A function that gets an `Impact`; see `Service.on_impact`.

        Returns:
            The function, so that this is a decorator as well.

        Raises:
            RefusedError: The machine does not exist.
        """
        self._place()
        self._session.call(self._session.impacts.add, callback, self.name)
        return callback

    def wait_for_poll(self, timeout: Duration = FIRST_POLL_WITHIN) -> Machine:
        """Wait until a client has polled as this machine.

        `clock.play` waits only for machines that have polled before, which a program that was just
        started has not. From then on the client is expected to poll by itself: if it stops, the
        verdict says so. In an async test, use `await service.to_thread(machine.wait_for_poll)`.

        Args:
            timeout: The real time to wait, as seconds or a timedelta; by default 30 seconds.

        Raises:
            RefusedError: No client has polled in this time. The message says why, if that is known.
        """
        seconds = in_seconds(timeout)
        node, pause, end = self._session.node, threading.Event(), guard.monotonic() + seconds

        def polled() -> bool:
            if node.catch_up is not None:
                return node.catch_up.polled_by_guest(self.name)
            return node.poll_index.polls(self.name) is not None

        self._place()
        while not self._session.call(polled):
            if guard.monotonic() >= end:
                raise RefusedError(self._not_polled(seconds))
            refuse_in_a_loop("wait_for_poll()")
            pause.wait(CHECK_EVERY)
        if node.catch_up is not None:
            self._session.call(node.catch_up.expect_polls, self.name)
        return self

    def _not_polled(self, seconds: float) -> str:
        """Return why no client has polled as this machine, as far as that is known."""
        text = f"no client polled as '{self.name}' within {seconds:g} s"
        others = ""
        if self._session.node.observer is not None:
            verdict = self._session.verdict()
            if refused := refused_requests(verdict, self.name):
                return f"{text}: {refused}"
            others = other_pollers(verdict, [self.name])
        elsewhere = f" (requests came from {others})" if others else ""
        return f"{text}; is its client running, and does it use {self.url}?{elsewhere}"

    def inside(self) -> AbstractContextManager[Machine]:
        """Return a block in which this process's connections to 169.254.169.254 reach this machine.

        It is for Python clients that know no other address.
        """
        return SocketPatch(self)

    def _json(self, response: Response) -> Any:
        if response.status != 200:
            text = response.body.decode(errors="replace")
            raise RefusedError(f"machine '{self.name}' was answered {response.status}: {text}")
        return response.json()

    def _place(self) -> tuple[CoreGroup, CoreMachine]:
        place = self._session.call(self._session.node.machine_index.machine, self.name)
        if place is None:
            refused = self._session.node.machine_index.unknown_machine(self.name)
            raise RefusedError(refused.message)
        return place

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Machine)
            and other._session is self._session
            and other.name == self.name
        )

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<machine {self.name}>"


class Group(Sequence[Machine]):
    """The machines of a scale set, availability set, zone or cloud service.

    A sequence of machines that can also be indexed by their names: `web[0]`, `web["web_0"]`.
    """

    name: str
    """The name of the group."""

    def __init__(self, session: Any, name: str, machines: Sequence[str]) -> None:
        self._session: Requests = session  # Any above: what it is, is not for users
        self.name = name
        self._machines = tuple(Machine(session, machine) for machine in machines)

    @property
    def kind(self) -> GroupKind:
        """The kind of group in Azure, such as `scale-set`."""
        return self._machines[0]._place()[0].kind.value

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the group's machines."""
        return tuple(machine.name for machine in self._machines)

    @property
    def events(self) -> list[Event]:
        """The events that the group's document lists now, without sending a poll."""
        node = self._session.node

        def listed() -> list[Record]:
            places = map(node.machine_index.machine, self.names)
            groups = {place[0].name for place in places if place is not None}
            return [r for r in node.platform.active() if r.group in groups and r.listed]

        return [Event(self._session, record) for record in self._session.call(listed)]

    def evict(self) -> tuple[Event, ...]:
        """Evict all spot machines of the group: a Preempt for each.

        Raises:
            RefusedError: It has no spot machines.
        """
        return events_from(self._session, self._session.node.removals.evict_all(self.name, "test"))

    def scale_in(self, count: int | None = None, *, to: int | None = None) -> tuple[Event, ...]:
        """Delete machines, those with the highest numbers first.

        Args:
            count: How many to delete.
            to: How many to keep, instead of `count`.

        Raises:
            RefusedError: It is not a scale set, or has fewer machines.
        """
        work = self._session.node.removals.scale_in(self.name, "test", count=count, to=to)
        return events_from(self._session, work)

    def schedule(self, type: EventType, **details: Unpack[Announcement]) -> tuple[Event, ...]:
        """Announce one event for each machine of the group.

        Args:
            type: The type of the events.
            details: See `Announcement`.

        Raises:
            RefusedError: The notice is too short for the type, or a machine is gone.
        """
        return tuple(machine.schedule(type, **details) for machine in self._machines)

    @overload
    def __getitem__(self, which: int | str) -> Machine: ...

    @overload
    def __getitem__(self, which: slice) -> Sequence[Machine]: ...

    def __getitem__(self, which: int | str | slice) -> Machine | Sequence[Machine]:
        """Return a machine by its position or name, or several by a slice.

        Raises:
            KeyError: The group has no machine of this name.
        """
        if isinstance(which, int) and not -len(self) <= which < len(self):
            raise IndexError(f"'{self.name}' has {counted(len(self), 'machine')}, no [{which}]")
        if not isinstance(which, str):
            return self._machines[which]
        for machine in self._machines:
            if machine.name == which:
                return machine
        raise KeyError(
            f"no machine '{which}' in '{self.name}'; expected one of {', '.join(self.names)}"
        )

    def __len__(self) -> int:
        return len(self._machines)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self._machines)

    def __repr__(self) -> str:
        return f"<{self.name}: {', '.join(self.names)}>"
