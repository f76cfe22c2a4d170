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
from forewarn.client.pace import Duration
from forewarn.client.rules import ClientProtocol, Readiness, ids
from forewarn.client.steps import Call, Deliver, Request, Response, Sleep, Steps
from forewarn.wire.extensions import ReadinessReport

T = TypeVar("T")


class Client:
    """A client of the Scheduled Events endpoint, on forewarn and on Azure.

        with Client() as client:
            for change in client.watch(mine=True, min_freeze=10):
                if change.kind == "appeared":
                    ...  # finish what you do, let others take over
                    client.approve(change.event)

    A client may be used by several threads: each thread that watches gets every change, other calls
    are made one after the other, and `close` ends them all.

    Args:
        endpoint: The address of the endpoint, such as `http://127.0.1.1:8169`. The default is the
            environment variable FOREWARN_METADATA, or else `http://169.254.169.254`.
        long_poll: Whether to use long-polls where the service offers them.
        interval: The time between two polls where it does not, in seconds or as a timedelta. The
            default is one second.

    Raises:
        InvalidEndpointError: The address is not that of an endpoint.
        ValueError: The interval is out of range.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        long_poll: bool = True,
        interval: Duration = pace.INTERVAL,
    ) -> None:
        self._protocol = ClientProtocol(
            discovery.configured_endpoint(endpoint),
            discovery.WELL_KNOWN,
            long_poll=long_poll,
            interval=pace.check_interval(interval),
        )
        self._connection = Connection()  # for all calls except watches
        self._lock = threading.Lock()  # of that connection
        self._watching: set[Connection] = set()
        self._closed = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # ends every rest

    def events(self, *, timeout: Duration = pace.TIMEOUT) -> tuple[Event, ...]:
        """Return the events that are listed now, of all machines of the group.

        Args:
            timeout: How long failures that may pass are retried, in seconds or as a timedelta. The
                default is 130 seconds; 0 tries once.

        Raises:
            EndpointNotFoundError: No endpoint was found.
            EndpointUnavailableError: The endpoint gave no valid answer within the timeout.
            ClientClosedError: The client was closed.
        """
        return self._run(self._protocol.events(pace.seconds(timeout, "timeout")))

    def approve(self, *events: Event | str, timeout: Duration = pace.TIMEOUT) -> None:
        """Approve events, so that they start as soon as nothing else holds them, for every machine
        that they list. An event that has started or is not listed any more needs no approval, and
        is left out.

        Args:
            events: The events, or their IDs. An ID is always sent.
            timeout: How long failures that may pass are retried, in seconds or as a timedelta. The
                default is 130 seconds; 0 tries once.

        Raises:
            ApprovalRefusedError: The service refused; none of the events is approved.
            EndpointNotFoundError: No endpoint was found.
            EndpointUnavailableError: The endpoint gave no valid answer within the timeout.
            ClientClosedError: The client was closed.
        """
        self._run(self._protocol.approve(events, pace.seconds(timeout, "timeout")))

    def watch(
        self, *, mine: bool = False, min_freeze: Duration = 0.0
    ) -> Generator[Change, None, None]:
        """Yield every change of an event as it comes, until `close` is called. Failures of the
        endpoint are outlasted; `status` shows them.

        Args:
            mine: Report only events that list this machine, not those of its whole group. The
                identity of this machine is fetched first.
            min_freeze: The shortest Freeze to report, in seconds or as a timedelta. A pause of a
                few seconds needs no preparation and no approval. A Freeze of unknown duration is
                always reported.

        Raises:
            EndpointUnavailableError: With `mine`, the endpoint lists events, but does not tell
                which machine this is.
            ValueError: `min_freeze` is negative.
        """
        snapshots = self.snapshots(mine=mine, min_freeze=min_freeze)
        return (change for snapshot in snapshots for change in snapshot.changes)

    def snapshots(
        self,
        max_wait: Callable[[], float] | None = None,
        *,
        mine: bool = False,
        min_freeze: Duration = 0.0,
    ) -> Generator[Snapshot, None, None]:
        """Yield every document, including those without changes, until `close` is called.

        Args:
            max_wait: A function that is called before each request, and returns the seconds after
                which the next document is wanted at the latest.
            mine: Report only changes of events that list this machine; see `watch`.
            min_freeze: The shortest Freeze to report; see `watch`.

        Raises:
            EndpointUnavailableError: See `watch`.
            ValueError: `min_freeze` is negative.
        """
        least = pace.seconds(min_freeze, "min_freeze")
        return self._follow(self._protocol.snapshots(max_wait, mine=mine, min_freeze=least))

    def identity(self, *, timeout: Duration = pace.TIMEOUT) -> Identity:
        """Return this machine's identity, with the name that events list, which often differs from
        the host name.

        Args:
            timeout: How long failures that may pass are retried, in seconds or as a timedelta. The
                default is 130 seconds; 0 tries once.

        Raises:
            EndpointNotFoundError: No endpoint was found.
            EndpointUnavailableError: The endpoint gave no valid answer within the timeout.
            ClientClosedError: The client was closed.
        """
        return self._run(self._protocol.identity(pace.seconds(timeout, "timeout")))

    def report_ready(
        self,
        event: Event | str,
        note: str = "",
        *,
        ready: bool = True,
        timeout: Duration = pace.TIMEOUT,
    ) -> Readiness | None:
        """Report to the other machines of the group that this machine is ready for an event, or is
        not. Returns None where that is not offered, as on Azure, or if the event is not listed.

        Args:
            event: The event, or its ID.
            note: A remark for people, of at most 1,024 characters.
            ready: Whether this machine is ready; False takes an earlier report back.
            timeout: How long failures that may pass are retried, in seconds or as a timedelta. The
                default is 130 seconds; 0 tries once.

        Raises:
            ValueError: The note is too long.
            EndpointNotFoundError: No endpoint was found.
            EndpointUnavailableError: The endpoint gave no valid answer within the timeout.
            ClientClosedError: The client was closed.
        """
        report = ReadinessReport(ready, note)
        seconds = pace.seconds(timeout, "timeout")
        return self._run(self._protocol.readiness(next(ids([event])), seconds, report))

    def readiness(
        self, event: Event | str, *, timeout: Duration = pace.TIMEOUT
    ) -> Readiness | None:
        """Return which machines are ready for an event. Returns None where that is not offered, as
        on Azure, or if the event is not listed.

        Args:
            event: The event, or its ID.
            timeout: How long failures that may pass are retried, in seconds or as a timedelta. The
                default is 130 seconds; 0 tries once.

        Raises:
            EndpointNotFoundError: No endpoint was found.
            EndpointUnavailableError: The endpoint gave no valid answer within the timeout.
            ClientClosedError: The client was closed.
        """
        seconds = pace.seconds(timeout, "timeout")
        return self._run(self._protocol.readiness(next(ids([event])), seconds))

    def now(self) -> datetime:
        """Return the time by the service's clock, with which NotBefore is to be compared. It does
        not depend on this machine's own clock."""
        return self._protocol.now()

    @property
    def status(self) -> EndpointStatus:
        """The status of the endpoint: where it is, and what is wrong, if anything is."""
        return self._protocol.status

    def close(self) -> None:
        """End all watches and calls, also those of other threads, and close the connections. May be
        called from a signal handler at any moment."""
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

    def _follow(self, steps: Steps[None]) -> Generator[Snapshot, None, None]:
        connection = Connection()
        self._watching.add(connection)
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
