"""The service under test, and machines that talk to it in raw bytes over real sockets.

One service serves a whole file of tests: every test gets a group that nobody has asked about
before, so that it can rely on its incarnations and disturb nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from forewarn.metadata.endpoint.callers import Identity
from forewarn.node import Node
from forewarn.testing import Service
from helpers.raw_http import Place, RawConnection, RawResponse, request

PATH = "/metadata/scheduledevents"
NEWEST = "2020-07-01"
VERSIONS = (
    "2017-03-01",
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
)
METADATA = "Metadata: true"
NOT_FOUND = b'{ "error": "Not found" }'
NO_METADATA_HEADER = b'{ "error": "Bad request: . Required metadata header not specified" }'
BAD_VERSION = (
    b'{"error":"Bad request. api-version is invalid or was not specified in the request.'
    b' For more information refer to aka.ms/azureimds",'
    b'"newest-versions":["2020-07-01","2019-08-01","2019-04-01"]}'
)
THROTTLED = b"Throttle Result: Too Many Requests"
REASONED = re.compile(rb'\{"error":"Bad request\. [^"]+"\}')  # a 400 with words of our own

GUID = re.compile(r"[0-9A-F]{8}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{12}")


class Caller:
    """Whoever asks an endpoint: the requests that can be made there, and what they are answered."""

    name: str  # of the machine, as the instance metadata have it

    @property
    def place(self) -> Place:
        raise NotImplementedError

    @property
    def source(self) -> str | None:
        """The address that is asked from, where that matters."""
        return None

    @property
    def untouched(self) -> bytes:
        """The newest version's document while nobody raises an event."""
        raise NotImplementedError

    def line(self) -> RawConnection:
        return RawConnection(self.place, source=self.source)

    def say(self, data: bytes, *, to_head: bool = False) -> RawResponse:
        with self.line() as line:
            line.send(data)
            return line.answer(to_head=to_head)

    def get(self, version: str = NEWEST, *headers: str) -> RawResponse:
        return self.say(request("GET", events(version), METADATA, *headers))

    def post(self, body: bytes, version: str = NEWEST, *headers: str) -> RawResponse:
        return self.say(request("POST", events(version), METADATA, *headers, body=body))

    def approve(self, *ids: str) -> RawResponse:
        return self.post(approval(*ids))

    def document(self, version: str = NEWEST) -> Any:
        answer = self.get(version)
        assert answer.status == 200, answer
        return answer.json()

    def incarnation(self) -> int:
        incarnation: int = self.document()["DocumentIncarnation"]
        return incarnation

    def events(self, version: str = NEWEST) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.document(version)["Events"]
        return listed

    def statuses(self) -> dict[str, str]:
        """The status of every event listed, by its id."""
        return {event["EventId"]: event["EventStatus"] for event in self.events()}

    def instance(self, path: str = "", query: str = "api-version=2021-02-01") -> RawResponse:
        return self.say(request("GET", f"/metadata/instance{path}?{query}", METADATA))


class RemoteCaller(Caller):
    """This machine, at an endpoint of which nothing is known but its address."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._untouched = self.get().body

    @property
    def place(self) -> Place:
        return self._place

    @property
    def untouched(self) -> bytes:
        return self._untouched

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.instance("/compute/name", "api-version=2021-02-01&format=text").text


class Guest(Caller):
    """A machine of a service under test."""

    untouched = b'{"DocumentIncarnation":1,"Events":[]}'

    def __init__(self, service: Service, name: str) -> None:
        self.service = service
        self.name = name

    @property
    def place(self) -> Place:
        """Where it asks: at an address of its own, or all at one if they are known by their
        source."""
        if self.source:
            return "127.0.0.1", port_of(self.service)
        return self.address, port_of(self.service)

    @property
    def source(self) -> str | None:
        known = self.service._session.node.config.identity is Identity.SOURCE
        return self.address if known else None

    @property
    def address(self) -> str:
        """A machine that nobody knows any more asks from where it always did."""
        node = self.service._session.node
        if located := node.machine_index.machine(self.name):
            return located[1].addresses[0]
        assert node.config.fleet is not None
        (first,) = (m for m in node.config.fleet.machines if m.name == self.name)
        return first.addresses[0]


class Group:
    """Four machines of a scale set in two update domains: 0 and 2 in the first, 1 and 3 in the
    second; 2 and 3 are spot."""

    def __init__(self, service: Service, name: str) -> None:
        self.service = service
        self.name = name
        self.guests = [Guest(service, f"{name}_{n}") for n in range(4)]

    def __getitem__(self, n: int) -> Guest:
        return self.guests[n]

    def names(self, *numbers: int) -> list[str]:
        return [self.guests[n].name for n in numbers]


class Groups:
    """A supply of groups that nobody has used."""

    def __init__(self, service: Service, count: int) -> None:
        self._service = service
        self._left: Iterator[int] = iter(range(count))

    def unpolled(self) -> Group:
        """No machine of it has ever asked for events."""
        return Group(self._service, f"web{next(self._left)}")

    def enabled(self) -> Group:
        """Enabled: its document is 1 and lists nothing."""
        group = self.unpolled()
        assert group[0].get().body == Guest.untouched
        return group


def fleet_of(count: int) -> str:
    """A fleet file with so many groups."""
    lines = ["groups:"]
    for group in range(count):
        lines += [f"  - name: web{group}", "    kind: scale-set", "    machines:"]
        for n in range(4):
            spot = "true" if n >= 2 else "false"
            lines.append(f"      - {{name: web{group}_{n}, update_domain: {n % 2}, spot: {spot}}}")
    return "\n".join(lines)


def known_by_source(service: Service) -> Service:
    """The service, not yet entered, as it runs on a fleet: a machine is who its address says."""
    config = msgspec.structs.replace(
        service._session._node.config, identity=Identity.SOURCE, speak_as=None, control=None
    )
    service._session._node = Node(config)
    return service


def port_of(service: Service) -> int:
    return int(service.url().rpartition(":")[2])


def events(version: str) -> str:
    return f"{PATH}?api-version={version}"


def approval(*ids: str) -> bytes:
    entries = ",".join(f'{{"EventId":"{id}"}}' for id in ids)
    return f'{{"StartRequests":[{entries}]}}'.encode()
