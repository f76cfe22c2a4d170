"""The steps that `rules.py` yields, one at a time, and their outcomes.

The rules are generators of steps and know no socket, no clock and no event loop; their driver
(`client.py`, `async_client.py`, a test) carries out each step and sends its outcome back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

import msgspec

from forewarn.client.events import Snapshot

FAILURES = {
    "refused": "the connection was refused",
    "unreachable": "it cannot be reached",
    "reset": "the connection broke without an answer",
    "late": "no answer came in time",
    "stalled": "the answer stalled half-way",
    "cut": "the answer was cut off",
    "not-http": "the answer is not HTTP",
    "too-long": "the answer is longer than any document",
}


class Location(msgspec.Struct, frozen=True):
    """The location of an endpoint: plain HTTP, on a host and a port."""

    host: str
    port: int = 80

    @property
    def authority(self) -> str:
        """The location as a request names it, without the interface of `fe80::1%eth0`."""
        host = self.host.partition("%")[0]
        name = f"[{host}]" if ":" in host else host
        return name if self.port == 80 else f"{name}:{self.port}"

    def __str__(self) -> str:
        return f"http://{self.authority}"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Send a request. The outcome is a `Response`, whatever happens."""

    location: Location
    method: str = "GET"
    target: str
    etag: str = ""  # for If-None-Match
    body: bytes | None = None
    connect_timeout: float  # seconds for a connection
    timeout: float  # seconds for the whole answer, once connected
    purpose: str = ""  # for the User-Agent
    close: bool = False  # the last request on this connection


class Sleep(msgspec.Struct, frozen=True):
    """Do nothing for so many seconds. The outcome is None."""

    seconds: float


class Call(msgspec.Struct, frozen=True):
    """Call a function that may block: files, other programs. The outcome is what it returns."""

    function: Callable[[], Any]


class Deliver(msgspec.Struct, frozen=True):
    """Hand a snapshot to the caller. The outcome is None."""

    snapshot: Snapshot


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a request. If the answer is not complete, `status` is None and `failure` is
    one of `FAILURES`: `refused`, `unreachable` (no route, no name, no connection in time), `reset`,
    `late` (connected, and nothing came in time), `stalled` or `cut` (only a part came), `not-http`,
    `too-long`."""

    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    failure: str = ""
    sent_at: float  # guard time
    received_at: float
    source: str = ""  # our own address on that connection

    def header(self, name: str) -> str:
        """Return the first header of this name (in lower case); empty if there is none."""
        return next((value for key, value in self.headers if key.lower() == name), "")


Step: TypeAlias = Request | Sleep | Call | Deliver
T = TypeVar("T")
Steps: TypeAlias = Generator[Step, Any, T]
