"""A machine and a group in a test's hands: what can happen to them, and what they can ask.

Verbs are the platform's or a user's; `get`, `post`, `document` and `approve` are the machine's
own, and count as its polls. Where a program reaches it without the kit: `url`, `env`, `asgi`,
`inside`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Unpack, overload

import msgspec

from forewarn.core import Event as Record
from forewarn.core import Group as CoreGroup
from forewarn.core import Machine as CoreMachine
from forewarn.support import guard
from forewarn.testing.kit.errors import RefusedByService, allowed
from forewarn.testing.kit.events import AnEvent, Announcement, Event, event_type, id_of
from forewarn.testing.kit.inprocess import Answer, Asgi
from forewarn.wire.extensions import READY, ReadinessReport
from forewarn.wire.instance import INSTANCE_VERSIONS

if TYPE_CHECKING:
    from forewarn.testing.kit.service import Service

NEWEST = "2020-07-01"
ASKED_WITHIN = 30.0  # real seconds in which a client that was started asks for the first time
LOOK_EVERY = 0.01  # real seconds between two looks whether it has
ENVIRONMENT = "FOREWARN_METADATA"  # where a program finds the endpoint it is to ask


class Machine:
    def __init__(self, service: Service, name: str) -> None:
        self._service = service
        self.name = name

    @property
    def record(self) -> CoreMachine:
        """All that the inventory knows of it now."""
        return self._found()[1]

    @property
    def group(self) -> str:
        return self._found()[0].name

    @property
    def host(self) -> str:
        """The host it is on now, or an empty string."""
        return self.record.host

    @property
    def address(self) -> str:
        """The loopback address that is this machine's: asking there is asking as it."""
        return self.record.addresses[0]

    @property
    def alive(self) -> bool:
        """Not evicted and not deleted."""
        return self.record.alive

    @property
    def events(self) -> list[Event]:
        """What its document lists now, without a poll that the verdict would count."""
        group = self.group
        return [
            Event(self._service, record)
            for record in self._service.call(self._service.node.platform.active)
            if record.group == group and record.listed
        ]

    # What happens to it.

    def restart(self) -> Event:
        """A user's restart: a Reboot, 15 minutes of notice."""
        return self._service.restart(self.name)

    def redeploy(self) -> Event:
        """A user's redeploy: 10 minutes of notice, then it is on another host."""
        return self._service.redeploy(self.name)

    def evict(self) -> Event:
        """A spot machine is taken back: a Preempt, 30 seconds of notice, then it is gone."""
        return self._service.did(self._service.node.removals.evict(self.name, "test"))

    def delete(self) -> Event:
        """It is deleted: a Terminate if its scale set asked to be told, else at once, unseen."""
        return self._service.did(self._service.node.removals.delete(self.name, "test"))

    def fail(self, type: str = "Redeploy") -> Event:
        """It fails without notice: the event appears as Started."""
        fail = self._service.node.removals.fail
        return self._service.did(fail(self.name, event_type(type), "test"))

    def freeze(self, **details: Unpack[Announcement]) -> Event:
        """A pause of a few seconds: 15 minutes of notice if none is said."""
        return self.schedule("Freeze", **details)

    def schedule(self, type: str, **details: Unpack[Announcement]) -> Event:
        """Any event for it, as the platform or a user would announce it: `notice="20m"`,
        `description=…`, `duration=9` and so on."""
        return self._service.schedule(type, self.name, **details)

    def restore(self) -> Machine:
        """It was evicted or deleted, and is there again."""
        allowed(self._service.run(self._service.node.platform.restore(self.name, "test")))
        self._service.settle()
        return self

    # What it asks.

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """One HTTP request as this machine, exactly as said."""
        return self._service.request(self.name, method, target, headers, body)

    def get(self, version: str = NEWEST, headers: Mapping[str, str] | None = None) -> Answer:
        return self._service.get(self.name, version, headers)

    def post(
        self, body: bytes, version: str = NEWEST, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return self._service.post(self.name, body, version, headers)

    def document(self, version: str = NEWEST) -> Any:
        """What it is shown now. It has polled then."""
        return self._json(self.get(version))

    def instance(self, path: str = "", version: str = INSTANCE_VERSIONS[-1]) -> Any:
        """Its instance metadata, or the part of it at this path: `compute`."""
        below = f"/{path.strip('/')}" if path else ""
        target = f"/metadata/instance{below}?api-version={version}&format=json"
        return self._json(self.request("GET", target, {"Metadata": "true"}))

    def approve(self, *events: AnEvent) -> Answer:
        """It says "go ahead"."""
        return self._service.approve(self.name, *events)

    def ready(self, event: AnEvent, note: str = "", *, ready: bool = True) -> None:
        """It says that it is prepared, or takes that back."""
        word = msgspec.json.encode(ReadinessReport(ready, note))
        self._json(self.request("PUT", f"{READY}/{id_of(event)}", {"Metadata": "true"}, word))

    # Where programs reach it.

    @property
    def url(self) -> str:
        """The address of its endpoint, over real sockets: they are opened when first asked for."""
        return self._service.url(self.name)

    @property
    def env(self) -> dict[str, str]:
        """What to put into a program's environment, so that it asks as this machine."""
        return {ENVIRONMENT: self.url}

    @property
    def asgi(self) -> Asgi:
        """Its endpoint as an ASGI application, without sockets, for any asyncio loop:
        `httpx.AsyncClient(transport=httpx.ASGITransport(machine.asgi))`."""
        return Asgi(self._service, self.name)

    def until_asked(self, patience: float = ASKED_WITHIN) -> Machine:
        """Wait until a client has polled as this machine, which a program that was just started
        has not: only whoever has asked is waited for by `clock.play`. Refused after so many real
        seconds."""
        node, pause, end = self._service.node, threading.Event(), guard.monotonic() + patience

        def asked() -> bool:
            if node.virtual_time is not None:
                return node.virtual_time.catch_up.heard(self.name)
            return node.poll_index.polls(self.name) is not None

        self._found()
        while not self._service.call(asked):
            if guard.monotonic() >= end:
                raise RefusedByService(
                    f"nobody has asked as '{self.name}' within {patience:g} s; is its client there,"
                    f" and does it ask at {self.url}?"
                )
            pause.wait(LOOK_EVERY)
        return self

    def inside(self) -> AbstractContextManager[Machine]:
        """In the block, this process is inside the machine: what it connects to at
        169.254.169.254 is this machine's endpoint, for clients that know no other address."""
        from forewarn.testing.kit.socket_patch import SocketPatch

        return SocketPatch(self)

    def _json(self, answer: Answer) -> Any:
        if answer.status != 200:
            said = answer.body.decode(errors="replace")
            raise RefusedByService(f"machine '{self.name}' was answered {answer.status}: {said}")
        return answer.json()

    def _found(self) -> tuple[CoreGroup, CoreMachine]:
        found = self._service.call(self._service.node.machine_index.machine, self.name)
        if found is None:
            raise RefusedByService(self._service.node.machine_index.unknown_machine(self.name))
        return found

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Machine)
            and other._service is self._service
            and other.name == self.name
        )

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<machine {self.name}>"


class Group(Sequence[Machine]):
    """The machines of a scale set, availability set, zone or cloud service, in order: by number,
    or by name."""

    def __init__(self, service: Service, name: str, machines: Sequence[str]) -> None:
        self._service = service
        self.name = name
        self._machines = tuple(Machine(service, machine) for machine in machines)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(machine.name for machine in self._machines)

    @property
    def events(self) -> list[Event]:
        """What its document lists now, without a poll; all of them if it has several."""
        node = self._service.node

        def listed() -> list[Record]:
            places = map(node.machine_index.machine, self.names)
            groups = {place[0].name for place in places if place is not None}
            return [r for r in node.platform.active() if r.group in groups and r.listed]

        return [Event(self._service, record) for record in self._service.call(listed)]

    def evict(self) -> tuple[Event, ...]:
        """Every spot machine of it: a Preempt each."""
        return self._service.did_all(self._service.node.removals.evict_all(self.name, "test"))

    def scale_in(self, count: int | None = None, *, to: int | None = None) -> tuple[Event, ...]:
        """Delete so many, or all but so many, those with the highest numbers first."""
        removals = self._service.node.removals
        return self._service.did_all(removals.scale_in(self.name, "test", count=count, to=to))

    def schedule(self, type: str, **details: Unpack[Announcement]) -> tuple[Event, ...]:
        """One event for each of its machines, as `Machine.schedule` does."""
        return tuple(machine.schedule(type, **details) for machine in self._machines)

    @overload
    def __getitem__(self, which: int | str) -> Machine: ...

    @overload
    def __getitem__(self, which: slice) -> Sequence[Machine]: ...

    def __getitem__(self, which: int | str | slice) -> Machine | Sequence[Machine]:
        if not isinstance(which, str):
            return self._machines[which]
        for machine in self._machines:
            if machine.name == which:
                return machine
        raise KeyError(f"no machine '{which}' in '{self.name}'; there are {', '.join(self.names)}")

    def __len__(self) -> int:
        return len(self._machines)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self._machines)

    def __repr__(self) -> str:
        return f"<{self.name}: {', '.join(self.names)}>"
