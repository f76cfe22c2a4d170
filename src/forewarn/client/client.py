"""`Client`: the events of this machine, for programs that may block.

Which requests are sent and what the answers mean is decided in `rules.py`; this carries it out.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from forewarn.client import pace
from forewarn.client.connection import Connection
from forewarn.client.discovery import endpoint as discovery
from forewarn.client.errors import ClientClosedError
from forewarn.client.events import Change, EndpointStatus, Event, Snapshot
from forewarn.client.identity import Identity
from forewarn.client.rules import ClientProtocol, Readiness, ids
from forewarn.client.steps import Call, Deliver, Request, Response, Sleep, Steps
from forewarn.wire.extensions import ReadinessReport

T = TypeVar("T")


class Client:
    """A client of the Scheduled Events endpoint, on forewarn and on Azure.

    `endpoint` is the address of the endpoint. The default is the environment variable
    FOREWARN_METADATA; without it the endpoint is discovered. `long_poll` says whether to use
    long-polls where the server offers them; `interval` is the number of seconds between two polls
    where it does not.

    A client may be used by several threads: each thread that watches gets every change, other calls
    are made one after the other, and `close` ends them all.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        long_poll: bool = True,
        interval: float = pace.INTERVAL,
    ) -> None:
        self._protocol = ClientProtocol(
            discovery.configured_endpoint(endpoint),
            discovery.candidates,
            long_poll=long_poll,
            interval=pace.check_interval(interval),
        )
        self._connection = Connection()  # for all calls except watches
        self._lock = threading.Lock()  # of that connection
        self._watching: set[Connection] = set()
        self._closed = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # ends every rest

    def events(self, *, timeout: float = pace.TIMEOUT) -> tuple[Event, ...]:
        """Return the events that are listed now. Failures that may pass are retried until
        `timeout` seconds are over."""
        return self._run(self._protocol.events(timeout))

    def approve(self, *events: Event | str, timeout: float = pace.TIMEOUT) -> None:
        """Approve events, so that they start as soon as nothing else holds them. This approves them
        for every machine that they list."""
        if events:
            self._run(self._protocol.approve(list(ids(events)), timeout))

    def watch(self) -> Generator[Change, None, None]:
        """Yield every change until `close` is called. Failures of the endpoint are outlasted;
        `status` shows them."""
        for snapshot in self.snapshots():
            yield from snapshot.changes

    def snapshots(
        self, max_wait: Callable[[], float] | None = None
    ) -> Generator[Snapshot, None, None]:
        """Yield every document, including those without changes, until `close` is called.
        `max_wait` returns the seconds after which the next one is wanted at the latest."""
        connection = Connection()
        self._watching.add(connection)
        steps = self._protocol.snapshots(max_wait)
        outcome: Any = None
        try:
            while not self._closed:
                step = steps.send(outcome)
                outcome = None
                if isinstance(step, Request):
                    outcome = connection.send(step)
                elif isinstance(step, Sleep):
                    self._rest(step.seconds)
                elif isinstance(step, Call):
                    outcome = step.function()
                elif isinstance(step, Deliver):
                    yield step.snapshot
        finally:
            self._watching.discard(connection)
            steps.close()
            connection.close()

    def identity(self, *, timeout: float = pace.TIMEOUT) -> Identity:
        """Return this machine's identity, with the name that events list, which often differs from
        the host name."""
        return self._run(self._protocol.identity(timeout))

    def report_ready(
        self,
        event: Event | str,
        note: str = "",
        *,
        ready: bool = True,
        timeout: float = pace.TIMEOUT,
    ) -> Readiness | None:
        """Report to the other machines of the group that this machine is ready for an event, or is
        not. Returns None where that is not offered, as on Azure, or if the event is not listed."""
        report = ReadinessReport(ready, note)
        return self._run(self._protocol.readiness(next(ids([event])), timeout, report))

    def readiness(self, event: Event | str, *, timeout: float = pace.TIMEOUT) -> Readiness | None:
        """Return which machines are ready for an event; None as for `report_ready`."""
        return self._run(self._protocol.readiness(next(ids([event])), timeout))

    def now(self) -> datetime:
        """Return the time by the service's clock, with which NotBefore is to be compared. It does
        not depend on this machine's own clock."""
        return self._protocol.now()

    @property
    def status(self) -> EndpointStatus:
        """The status of the endpoint: where it is, and what is wrong, if anything is."""
        return self._protocol.status

    def close(self) -> None:
        """End all watches and calls, and close the connections. May be called from another thread,
        or from a signal handler at any moment."""
        self._closed = True
        self._wake.put(None)
        for connection in (self._connection, *self._watching):
            connection.interrupt()
        self._close_connection()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        outcome: Any = None
        while not self._closed:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result
            outcome = None
            if isinstance(step, Request):
                outcome = self._send(step)
            elif isinstance(step, Sleep):
                self._rest(step.seconds)
            elif isinstance(step, Call):
                outcome = step.function()
        raise ClientClosedError("this client is closed")

    def _send(self, request: Request) -> Response:
        try:
            with self._lock:
                return self._connection.send(request)
        finally:
            if self._closed:
                self._close_connection()

    def _close_connection(self) -> None:
        """Close the connection, unless another thread uses it, which then closes it itself."""
        if self._lock.acquire(blocking=False):
            try:
                self._connection.close()
            finally:
                self._lock.release()

    def _rest(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._wake.put(self._wake.get(timeout=seconds))  # for other threads that rest
