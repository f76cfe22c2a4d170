"""The control process's side of the connections to its metadata workers.

Workers show all groups, and together they must look like one: what one of them has shown, no other
may take back. `publisher` sees to that for the workers that are connected. One that is not may
still be showing old documents; it is waited for, and killed if it does not come back.

Knows streams, not sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Mapping

import msgspec

from forewarn import __version__
from forewarn.core import Group, Time
from forewarn.core.registry import ClockAccepted
from forewarn.metadata.publishing import updates
from forewarn.metadata.publishing.availability import Availability, Fencing
from forewarn.metadata.publishing.calls import Calls
from forewarn.metadata.publishing.messages import (
    MAX_GREETING,
    PROTOCOL,
    BrokenConnection,
    Goodbye,
    Held,
    Hello,
    Joined,
    Kept,
    LeaseIs,
    MessageStream,
    NodeHello,
    Ping,
    Pulse,
    Report,
    Shown,
    SnapshotEnd,
    SnapshotPart,
    TimeIs,
    ToControl,
    Unwelcome,
    Welcome,
    WhoIs,
    frame,
)
from forewarn.metadata.publishing.metrics import WorkerMetrics, worker_samples
from forewarn.metadata.publishing.publisher import (
    Announcement,
    Member,
    PendingPublication,
    Publisher,
)
from forewarn.metadata.upstream import LocalUpstream
from forewarn.service.engine.clock import STALL, Clock
from forewarn.service.telemetry.samples import Histogram, Histograms, Sample, histogram
from forewarn.store.port import Commit, Leadership, Store
from forewarn.support import guard
from forewarn.support.logs import logger

RECONNECT_PATIENCE = 3.0  # seconds to wait for a worker that may be serving, but is not connected
CONFIRM_TIMEOUT = 5.0  # seconds in which a worker has to confirm a change; otherwise it is killed
WATCH_EVERY = 1.0  # seconds between two checks whether all workers serve
LEASE_EVERY = 0.25  # seconds between two messages about the lease; the shortest lease is 2 s
NOT_SERVING_AFTER = (
    3.0  # seconds without a message, which it sends every second, until it counts as not serving
)
KILL_AFTER = 6.0  # seconds without a message, after which a worker is killed
WAITS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
MAX_UNSENT = 128 * 1024 * 1024  # bytes queued for a worker; if there are more, it is disconnected

log = logger("forewarn")


class WorkerMember(Member):
    """A worker that is connected."""

    def __init__(self, hub: Hub, stream: MessageStream[ToControl], hello: Hello) -> None:
        super().__init__(serving=hello.serving)
        self._hub = hub
        self.stream = stream
        self.number = hello.worker
        self.instance = hello.instance
        self.calls = 0
        self.has_sent = True  # since the last check
        self.quiet = 0.0  # seconds without a message, by those checks
        self.last_message_at = guard.monotonic()

    @property
    def name(self) -> str:
        return str(self.number)

    def tell(self, news: Announcement) -> None:
        for framed in news.partial if self.whole else news.full:
            self._hub.send(self, framed)

    def show(self, numbers: Collection[int]) -> None:
        self._hub.send(self, frame(Shown(tuple(numbers), self._hub.now())))

    def late(self, publication: PendingPublication) -> bool:
        return guard.monotonic() - publication.announced_at > CONFIRM_TIMEOUT

    def fence(self, why: str) -> None:
        """Disconnect the worker and kill its process, which might be suspended and go on showing
        old documents; the supervisor replaces it."""
        self._hub.cut(self, why)
        self._hub.kill(self)


class Hub:
    def __init__(
        self,
        upstream: LocalUpstream,
        store: Store,
        clock: Clock,
        publisher: Publisher,
        tasks: guard.Tasks,
        expected: int,
        service: str = "",
    ) -> None:
        """`service` identifies this service among others on the machine."""
        self._upstream = upstream
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._expected = expected
        self._service = service
        self._members: dict[int, WorkerMember] = {}
        now = guard.monotonic()
        self._fencing = Fencing(range(expected), RECONNECT_PATIENCE, self._changed)
        self._availability = Availability(expected, STALL / 1e6, now)
        self._change = asyncio.Event()
        self._closing = False
        self._metrics = WorkerMetrics()
        self._waits = Histogram(WAITS)
        self._publisher = publisher
        publisher.absent.append(lambda _: self._fencing.left() > 0)
        publisher.on_shown = self._waits.add
        self._calls = Calls(upstream, publisher, tasks)
        store.on_own_commit(self._on_commit)

    # The state of the workers.

    @property
    def expected(self) -> int:
        return self._expected

    def expect(self, worker: int, pid: int) -> None:
        """Register the process of a worker that an earlier control process has started."""
        self._fencing.set_process(worker, pid)
        self._fencing.watch(worker)

    @property
    def serving(self) -> int:
        """Workers that serve current documents: joined, and with a recent message."""
        return sum(m.joined and m.quiet < NOT_SERVING_AFTER for m in self._members.values())

    def readings(self) -> Iterator[Sample | Histograms]:
        yield from self._metrics.readings(m.instance for m in self._members.values())
        joined = [member for member in self._members.values() if member.joined]
        yield from worker_samples(
            self._expected,
            self.serving,
            {m.number: len(m.unconfirmed) for m in joined},
            {m.number: self._metrics.polls(m.instance) for m in joined},
        )
        yield histogram(
            "forewarn_worker_wait_seconds",
            "How long it took from a commit until all workers could show what it changed",
            self._waits,
        )

    async def watch(self) -> None:
        """Check the workers regularly; time in which some were away counts as not served."""
        while True:
            await guard.pause(WATCH_EVERY)
            now = guard.monotonic()
            self.send_time()
            since = self._kill_silent(now)
            lost = self._availability.update(self.serving, now, since)
            if lost:
                away = self._expected - self.serving
                reason = (
                    f"{away} of {self._expected} workers are away" if away else "workers are back"
                )
                self._clock.unserved(reason, round(lost * 1e6))

    def now(self) -> Time:
        return self._upstream.now().at

    def send_time(self, *, reset: bool = False) -> None:
        """Send the service's time to the workers, which do not read the wall clock."""
        self._send_to_joined(TimeIs(self.now(), reset))

    def _send_to_joined(self, message: msgspec.Struct) -> None:
        framed = frame(message)
        for member in list(self._members.values()):
            if member.joined:
                self.send(member, framed)

    async def keep_sending_lease(self, leadership: Leadership) -> None:
        """Send regularly to the workers until when this process has the lease: they must not answer
        without it. Only those that have joined know the state that goes with it."""
        while True:
            self._send_to_joined(LeaseIs(leadership.until))
            await guard.pause(LEASE_EVERY)

    def _kill_silent(self, now: float) -> float | None:
        """Kill workers that have been silent for too long; return since when the first of the
        others has been. Silence is counted in checks, since messages may be waiting if this process
        was stalled."""
        for member in list(self._members.values()):
            if member.has_sent:
                member.has_sent, member.quiet, member.last_message_at = False, 0.0, now
            else:
                member.quiet += WATCH_EVERY
                if member.quiet >= KILL_AFTER:
                    member.fence(f"it has sent nothing for {KILL_AFTER:g} s")
        quiet = [
            m.last_message_at
            for m in self._members.values()
            if m.joined and m.quiet >= NOT_SERVING_AFTER
        ]
        return min(quiet, default=None)

    def _on_commit(self, commit: Commit, _changed: Mapping[str, Group]) -> None:
        if any(isinstance(put, ClockAccepted) for put in commit.puts):
            self.send_time(reset=True)

    # A connection of a worker.

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pid: int | None = None
    ) -> None:
        """Serve a worker until the connection is broken. `pid` is its process, if that is local."""
        stream: MessageStream[ToControl] = MessageStream(reader, writer, ToControl)
        member: WorkerMember | None = None
        sending: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(CONFIRM_TIMEOUT):
                hello = await stream.receive(MAX_GREETING)
            if problem := self._hello_problem(hello):
                stream.send(Unwelcome(problem))
                await stream.drain()
                raise BrokenConnection(problem)
            if self._closing:  # it would never receive a goodbye
                raise BrokenConnection("control is stopping")
            assert isinstance(hello, Hello)
            member = self._enter(stream, hello, pid)
            sending = self._tasks.start(
                self._send_snapshot(member), f"sending worker {hello.worker}"
            )
            await self._listen(member)
        except (BrokenConnection, TimeoutError) as error:
            why = str(error) or f"it has sent no hello within {CONFIRM_TIMEOUT:g} s"
            fields = {} if member is None else {"worker": member.number}
            if not self._closing:
                log.warning("a worker is no longer connected", why=why, **fields)
        finally:
            if sending is not None:
                sending.cancel()
            if member is not None:
                self._leave(member)
            stream.cut()

    def _hello_problem(self, hello: ToControl) -> str:
        if not isinstance(hello, Hello):
            return "a worker must send a hello first"
        if (hello.protocol, hello.version) != (PROTOCOL, __version__):
            return (
                f"this is forewarn {__version__} (protocol {PROTOCOL}), the worker is"
                f" {hello.version} (protocol {hello.protocol}); restart the whole service"
            )
        if hello.service != self._service:
            return (
                f"this is the service of {self._service or 'no state file'}, the worker is one of"
                f" {hello.service or 'none'}; give each service its own upstream"
            )
        if not 0 <= hello.worker < self._expected:
            return f"unexpected worker {hello.worker}; there are only {self._expected}"
        return ""

    def _enter(
        self, stream: MessageStream[ToControl], hello: Hello, pid: int | None
    ) -> WorkerMember:
        if before := self._members.get(hello.worker):
            self.cut(before, "another process has taken its place")
            if before.instance != hello.instance:
                self.kill(before)
        self._fencing.back(hello.worker, pid)
        stream.send(
            Welcome(protocol=PROTOCOL, version=__version__, rules=self._upstream.now().rules)
        )
        member = self._members[hello.worker] = WorkerMember(self, stream, hello)
        self._metrics.add(hello.instance, counted_before=hello.serving)
        self._publisher.enter(member)
        return member

    def _leave(self, member: WorkerMember) -> None:
        if self._members.get(member.number) is member:
            del self._members[member.number]
            if member.serving:
                self._fencing.lost(member.number)
            self._publisher.leave(member)
        self._changed()

    def close(self) -> None:
        self._closing = True
        for member in list(self._members.values()):
            member.stream.send(Goodbye())
            member.stream.writer.close()
        self._fencing.close()

    async def _send_snapshot(self, member: WorkerMember) -> None:
        """Send all groups, and let the worker show them once no other shows anything older."""
        stream, publisher = member.stream, self._publisher
        try:
            for groups in updates.snapshot(publisher.announced):
                pending = publisher.pending(news.view.name for news in groups)
                stream.send(SnapshotPart(groups, pending))
                await stream.drain()
                await guard.pause(0)
            stream.send(SnapshotEnd(publisher.number))
            await self._caught_up(member)
            while any(m.catching_up for m in self._members.values()):
                # Their own tasks make sure that they do.
                await self._wait_for_change(CONFIRM_TIMEOUT)
            while (left := self._fencing.left()) > 0:
                await self._wait_for_change(left)
        except BrokenConnection:
            return  # `serve` has noticed
        member.joined = member.serving = True
        self.send(member, frame(Joined(tuple(set(publisher.pending().values())), self.now())))
        log.info("a worker answers guests", worker=member.number)
        self._changed()

    async def _caught_up(self, member: WorkerMember) -> None:
        """Wait until the worker confirms the snapshot."""
        until = guard.monotonic() + CONFIRM_TIMEOUT
        while not member.whole:
            left = until - guard.monotonic()
            if left <= 0:
                reason = (
                    f"it was sent all groups, and has not confirmed them for {CONFIRM_TIMEOUT:g} s"
                )
                member.fence(reason)
                raise BrokenConnection(reason)
            await self._wait_for_change(left)

    async def _listen(self, member: WorkerMember) -> None:
        while True:
            message = await member.stream.receive()
            member.has_sent = True
            match message:
                case Held(number=number, whole=whole):
                    self._publisher.confirm(member, number, whole=whole)
                    self._changed()
                case Report():
                    self._calls.record(message)
                case Pulse(readings=readings):
                    self._metrics.update(member.instance, readings)
                    self._metrics.retain(m.instance for m in self._members.values())
                case Hello() | NodeHello() | WhoIs() | Ping() | Kept():
                    raise BrokenConnection("a message that a worker does not send")
                case _:
                    self._calls.take(member, message)

    # Helpers.

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
        self._publisher.settle()

    async def _wait_for_change(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._change.wait()

    def send(self, member: WorkerMember, framed: bytes) -> None:
        member.stream.send_frame(framed)
        if member.stream.unsent > MAX_UNSENT:
            self.cut(member, "it does not read what it is sent")

    def kill(self, member: WorkerMember) -> None:
        self._fencing.end(member.number)

    def cut(self, member: WorkerMember, why: str) -> None:
        """Disconnect a worker; it starts again with a snapshot."""
        log.warning("a worker is cut off", worker=member.number, why=why)
        self._leave(member)
        member.stream.cut()
