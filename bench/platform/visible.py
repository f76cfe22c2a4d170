"""From a decision to the poll that shows it, over real sockets, while other groups decide as well.

A machine polls on a kept connection, one poll after the other, and notes when its document is
another. Raised is what an operator raises, inside the service; approved is what the machine
approves, with a POST of its own. All processes share one clock.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench.platform import world
from bench.platform.asking import Background, Occupy, Raise, Raised, Service, service
from bench.platform.disk import Bare
from bench.platform.meter import pause, stopwatch
from bench.poll.fleet import POLL
from bench.poll.processes import Failed, waited
from forewarn.wire.requests import write_approval

MACHINES, EACH = 10_000, 10  # a thousand groups
PATIENCE = 10.0  # seconds for an answer, or for a document to change
UNREACHABLE = 0.01  # seconds between two decisions that are watched

_GET = f"GET {POLL} HTTP/1.1\r\nHost: service\r\nMetadata: true\r\n\r\n".encode()
_LENGTH = re.compile(rb"content-length: (\d+)")
_TAG = re.compile(rb'etag: ("[^"]+")')


@dataclass
class Seen:
    """Milliseconds, one for each decision that was watched."""

    store: str
    background: float = 0.0  # decisions a second, reached
    raised_shown: list[float] = field(default_factory=list)  # in the process: submitted to shown
    raised_acknowledged: list[float] = field(default_factory=list)
    raised_visible: list[float] = field(default_factory=list)  # submitted to seen in a poll
    approved_acknowledged: list[float] = field(default_factory=list)
    approved_visible: list[float] = field(default_factory=list)
    shown_visible: list[float] = field(default_factory=list)  # decided to seen in a poll
    bare: list[float] = field(default_factory=list)  # a commit of SQLite alone, in between
    waited: float = 0.0  # share of the time for which the service had to wait for its core
    missed: int = 0  # polls after an answer to an approval that did not show it


class Connection:
    """One machine's, kept for as long as the service keeps it."""

    def __init__(self, url: str, source: str) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname or "", parts.port or 80
        self._source = source, 0
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection(self._address, PATIENCE, self._source)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def poll(self) -> bytes:
        """The tag of the document."""
        found = _TAG.search(self._exchange(_GET))
        if found is None:
            raise Failed("a poll was answered without a tag")
        return found[1]

    def approve(self, event: str) -> None:
        body = write_approval([event])
        head = (
            f"POST {POLL} HTTP/1.1\r\nHost: service\r\nMetadata: true\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        answer = self._exchange(head.encode() + body)
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise Failed(f"an approval was answered {answer[:300]!r}")

    def close(self) -> None:
        self._socket.close()

    def send_poll(self) -> None:
        self._socket.sendall(_GET)

    def _exchange(self, request: bytes) -> bytes:
        self._socket.sendall(request)
        return self.take()

    def take(self) -> bytes:
        """The answer to what was sent."""
        answer = b""
        while True:
            some = self._socket.recv(65_536)
            if not some:
                raise Failed(f"the service hung up after {answer[:300]!r}")
            answer += some
            head, end, body = answer.partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            if end and len(body) >= (int(length[1]) if length else 0):
                if b"connection: close" in head:
                    self._socket.close()
                    self._open()
                return answer


class Watcher:
    """Polls in a thread of its own until the document is another."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._before = connection.poll()
        self._at: float | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        until = stopwatch() + PATIENCE
        while stopwatch() < until:
            if self._connection.poll() != self._before:
                self._at = stopwatch()
                return

    def changed(self) -> float:
        self._thread.join()
        if self._at is None:
            raise Failed(f"a decision was not to be seen within {PATIENCE:g} s")
        return self._at


def visible(samples: int, scratch: Path, stores: Sequence[str]) -> list[Seen]:
    return [_seen(store, samples, scratch) for store in stores]


def _seen(store: str, samples: int, scratch: Path) -> Seen:
    directory = scratch / f"visible-{store}"
    directory.mkdir()
    seen = Seen(store)
    arguments = (store, MACHINES, EACH, directory, True)
    with service("bench.platform.serving", *arguments, log=directory / "log") as one:
        url = one.ask(Occupy(), str)
        one.ask(Background(200), float)
        groups = MACHINES // EACH // 2  # the others are for the background
        bare = Bare(directory)
        began, waited_before = stopwatch(), waited(one.pid)
        for n in range(samples):
            sample(one, url, n % groups, seen)
            seen.bare.append(bare.commit(1) * 1e3)
            pause(UNREACHABLE)
        seen.waited = (waited(one.pid) - waited_before) / (stopwatch() - began)
        bare.close()
        seen.background = one.ask(Background(0), float)
    return seen


def sample(one: Service, url: str, group: int, seen: Seen) -> None:
    source = world.address(group * EACH)
    polling, posting = Connection(url, source), Connection(url, source)
    try:
        watcher = Watcher(polling)
        raised = one.ask(Raise(f"set{group}_0"), Raised)
        at = watcher.changed()
        seen.raised_shown.append((raised.shown - raised.submitted) * 1e3)
        seen.raised_acknowledged.append((raised.acknowledged - raised.submitted) * 1e3)
        seen.raised_visible.append((at - raised.submitted) * 1e3)
        seen.shown_visible.append((at - raised.shown) * 1e3)
        before = posting.poll()
        watcher = Watcher(polling)
        began = stopwatch()
        posting.approve(raised.event)
        answered = stopwatch()
        seen.missed += posting.poll() == before
        seen.approved_acknowledged.append((answered - began) * 1e3)
        seen.approved_visible.append((watcher.changed() - began) * 1e3)
    finally:
        polling.close()
        posting.close()
