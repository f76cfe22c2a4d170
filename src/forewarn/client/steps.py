"""What the rules ask for, one step at a time, and what they are given back.

The rules are generators of steps and know no socket, no clock and no loop; whoever drives them
(`client.py`, `async_client.py`, a test) does what a step says and sends the outcome in.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

import msgspec

TROUBLES = {
    "refused": "the connection is refused",
    "unreachable": "it cannot be reached",
    "reset": "the connection broke without an answer",
    "late": "no answer came in time",
    "stalled": "the answer stalled half-way",
    "cut": "the answer was cut off",
    "not-http": "what answers does not speak HTTP",
    "too-long": "the answer is longer than any document",
}


class Location(msgspec.Struct, frozen=True):
    """Where to ask: plain HTTP, to a host and a port, and nothing else of an address."""

    host: str
    port: int = 80

    @property
    def authority(self) -> str:
        """As a request names it; which of our links leads there (`fe80::1%eth0`) is our affair."""
        host = self.host.partition("%")[0]
        name = f"[{host}]" if ":" in host else host
        return name if self.port == 80 else f"{name}:{self.port}"

    def __str__(self) -> str:
        return f"http://{self.authority}"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request. The outcome is an `Answer`, whatever happens."""

    place: Location
    method: str = "GET"
    target: str
    tag: str = ""  # for If-None-Match
    body: bytes | None = None
    connect: float  # seconds for a connection
    answer: float  # seconds for all of the answer, once connected
    purpose: str = ""  # told beside who asks
    last: bool = False  # no more is asked on this connection


class Sleep(msgspec.Struct, frozen=True):
    """Nothing to do for so many seconds. The outcome is nothing."""

    seconds: float


class Do(msgspec.Struct, frozen=True):
    """Something that may take its time: files, other programs. The outcome is what it answers."""

    work: Callable[[], Any]


class Tell(msgspec.Struct, frozen=True):
    """Whoever watches is to be told. The outcome is nothing."""

    what: Any


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`status` is None unless the whole answer came; then `trouble` says what came instead:
    `refused`, `unreachable` (no way, no name, no connection in time), `reset`, `late` (connected,
    and nothing came in time), `stalled` or `cut` (only a part came), `not-http`, `too-long`; in
    words in `TROUBLES`."""

    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    trouble: str = ""
    asked: float  # guard time
    answered: float
    source: str = ""  # our own address on that connection

    def header(self, name: str) -> str:
        """Empty if there is none; of several, the first."""
        return next((value for key, value in self.headers if key.lower() == name), "")


Step: TypeAlias = Ask | Sleep | Do | Tell
T = TypeVar("T")
Steps: TypeAlias = Generator[Step, Any, T]
