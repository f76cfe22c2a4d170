"""`Upstream` for an endpoint in a process of its own: a connection to the control process's hub.

While the connection is broken, the last known documents are still shown, and every request for a
change is refused (NotDurable). If the request was under way, its outcome is unknown
(OutcomeUnknown). A group that is about to change shows nothing for the moment: to the endpoint it
looks as if it were not enabled, and `enable` returns when there is a document again.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from forewarn import __version__
from forewarn.core import Durations, Now, Time
from forewarn.metadata.publishing.messages import (
    PROTOCOL,
    Answer,
    Approve,
    AskPrepared,
    BrokenConnection,
    Call,
    Enable,
    Goodbye,
    Held,
    Hello,
    Joined,
    LeaseIs,
    MessageStream,
    News,
    Postpone,
    Prepare,
    Pulse,
    Shown,
    SnapshotEnd,
    SnapshotPart,
    TimeIs,
    ToWorker,
    Unwelcome,
    Welcome,
    WhoIs,
)
from forewarn.metadata.publishing.poll_report import PollReport
from forewarn.metadata.publishing.staged_views import StagedViews
from forewarn.metadata.upstream import (
    GroupNews,
    NotDurable,
    NotPostponed,
    OutcomeUnknown,
    Prepared,
    TooOften,
)
from forewarn.service.engine.clock import Clock, FollowedClock
from forewarn.service.telemetry.samples import Sample
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

MIN_DIAL_PAUSE, MAX_DIAL_PAUSE = 0.05, 1.0  # seconds between two attempts to reach control
HELLO_TIMEOUT = 10.0  # seconds in which control has to answer a hello
CALL_TIMEOUT = 10.0  # seconds in which control has to answer a call
# Seconds without control, after which a group that was about to change shows the change. Longer
# than control, if it has only disconnected us, waits until no worker shows the state before.
MAX_HOLD = 12.0
MAX_PENDING_CALLS = 4_096  # calls that wait for an answer
REPORT_EVERY = 1.0  # seconds between two reports
LOG_AFTER = 5.0  # seconds without control before it is logged
LOG_EVERY = 30.0  # seconds between two log records about a control process that cannot be reached

AWAY = "the control process is not available: polls are answered, other requests are refused"
LOST = (
    "the control process was lost before it answered: it is unknown whether the request took effect"
)

UNREACHABLE = "the control process cannot be reached"
LATE = (
    f"the control process has not answered for {CALL_TIMEOUT:g} s:"
    " it is unknown whether the request took effect"
)

Dial: TypeAlias = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

log = logger("forewarn")


class NotWelcome(Exception):
    """The control process rejects this worker; the message says why."""


class RemoteUpstream:
    hold_changing = CALL_TIMEOUT  # seconds for which a request waits for a group that is changing
    pulse_every = 0.0  # seconds between two signs of life, at least: one with each report

    def __init__(
        self,
        dial: Dial,
        worker: int,
        clock: Clock,
        service: str = "",
        *,
        control_may_follow: bool = False,
    ) -> None:
        """`control_may_follow`: it accepts no workers while another control node decides."""
        self._dial = dial
        self._worker = worker
        self._service = service
        self._control_may_follow = control_may_follow
        self._clock = clock
        self._instance = uuid.uuid4().hex
        self._rules = Durations()
        self._staged = StagedViews()
        self._stream: MessageStream[ToWorker] | None = None  # while connected and synchronized
        self._followed: MessageStream[ToWorker] | None = None  # while connected
        self._broken = guard.monotonic()  # when the connection was last lost
        self._unreachable = LogThrottle(LOG_EVERY, first_after=LOG_AFTER)
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        self._calls = 0
        self._goodbye = False  # did control announce that it stops?
        self._lease_until = 0.0  # in boot time
        self._poll_report = self._new_poll_report()
        self._pulsed = 0.0  # when the last sign of life was sent
        self.record_poll = self._poll_report.record_poll
        self.sign_of_life = self._poll_report.sign_of_life
        self.readings: Callable[[], Sequence[Sample]] = tuple
        self.synchronized = asyncio.Event()  # set when all groups are known

    def _new_poll_report(self) -> PollReport:
        return PollReport()

    # The port.

    def attach(self, sink: Callable[[GroupNews], None]) -> None:
        self._staged.attach(sink)

    def now(self) -> Now:
        return self._clock.now(self._rules)

    def held(self) -> bool:
        """Return whether control has the lease on the state, as far as it has told us."""
        return guard.boottime() < self._lease_until

    async def enable(self, group: str) -> None:
        changing = self._staged.changing(group)
        if changing is not None:
            with _within(f"a change of the group has been pending for {self.hold_changing:g} s"):
                async with asyncio.timeout(self.hold_changing):
                    await changing.wait()
        else:
            await self._call(Enable(self._number(), group))

    async def approve(self, machine: str, group: str, ids: Sequence[str]) -> bool:
        return (await self._call(Approve(self._number(), machine, group, tuple(ids)))).yes

    async def prepare(
        self, machine: str, group: str, id: str, ready: bool, note: str
    ) -> Prepared | None:
        call = Prepare(self._number(), machine, group, id, ready, note)
        answer = await self._call(call)
        if not answer.yes:
            raise TooOften
        return answer.prepared

    async def postpone(self, machine: str, group: str, id: str, until: Time) -> Time | None:
        answer = await self._call(Postpone(self._number(), machine, group, id, until))
        if answer.refused:
            raise NotPostponed(answer.refused)
        return answer.not_before

    async def prepared(self, group: str, id: str) -> Prepared | None:
        return (await self._call(AskPrepared(self._number(), group, id))).prepared

    def unknown_caller(self, address: str) -> None:
        self._poll_report.unknown_callers.record(address, self.now().at)

    def _number(self) -> int:
        self._calls += 1
        return self._calls

    async def _call(self, call: Call | WhoIs) -> Answer:
        if self._stream is None:
            raise NotDurable(AWAY)
        if len(self._pending) >= MAX_PENDING_CALLS:
            raise NotDurable(
                f"{MAX_PENDING_CALLS} requests are already waiting for the control process"
            )
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._pending[call.id] = future
        try:
            self._stream.send(call)
            with _within(LATE, OutcomeUnknown):
                async with asyncio.timeout(CALL_TIMEOUT):
                    answer = await future
        finally:
            self._pending.pop(call.id, None)
        if answer.failed:
            raise NotDurable(answer.failed)
        return answer

    # The connection.

    @property
    def connected(self) -> bool:
        return self._stream is not None

    async def run(self) -> None:
        """Connect to control and follow it, again and again. Raises NotWelcome."""
        pause = MIN_DIAL_PAUSE
        while True:
            try:
                stream = await self._connect()
                pause = self._pause_after_line()
                await self._follow(stream)
            except (BrokenConnection, OSError, TimeoutError) as error:
                self._note_failure(error)
                self._disconnected(str(error))
            await guard.pause(pause)
            pause = min(2 * pause, MAX_DIAL_PAUSE)

    def _pause_after_line(self) -> float:
        """Return for how many seconds to wait if the line that was just opened is lost."""
        return MIN_DIAL_PAUSE

    async def report(self) -> None:
        """Report polls and metrics regularly, and show groups that were held back for too long."""
        while True:
            await guard.pause(REPORT_EVERY)
            if self._stream is not None:
                for report in self._poll_report.reports():
                    self._stream.send(report)
            if self._followed is not None:  # from the start: a silent worker is taken for dead
                if guard.monotonic() - self._pulsed >= self.pulse_every:
                    self._pulsed = guard.monotonic()
                    self._followed.send(self._sign_of_life())
            elif groups := self._staged.show_held(self._held_long(guard.monotonic() - MAX_HOLD)):
                log.warning(
                    "staged changes of groups are shown, although the control process has not"
                    " released them",
                    worker=self._worker,
                    groups=groups,
                )

    def _sign_of_life(self) -> msgspec.Struct:
        return Pulse(tuple(self.readings()))

    def _held_long(self, before: float) -> float:
        """Return the time by which a change must have been told to be shown without permission,
        where whatever happened `before` is long ago."""
        return math.inf if self._broken <= before else -math.inf

    async def _connect(self) -> MessageStream[ToWorker]:
        reader, writer = await self._dial()
        stream: MessageStream[ToWorker] = MessageStream(reader, writer, ToWorker)
        try:
            stream.send(self._hello())
            async with asyncio.timeout(HELLO_TIMEOUT):
                greeting = await stream.receive()
            self._greeted(greeting)
        except BaseException:
            stream.cut()
            raise
        return stream

    def _hello(self) -> msgspec.Struct:
        return Hello(
            protocol=PROTOCOL,
            version=__version__,
            worker=self._worker,
            instance=self._instance,
            serving=self.synchronized.is_set(),
            service=self._service,
        )

    def _greeted(self, greeting: ToWorker) -> None:
        match greeting:
            case Welcome(rules=rules):
                self._rules = rules
            case Unwelcome(reason=reason):
                raise NotWelcome(reason)
            case _:
                raise BrokenConnection("control did not answer the hello")

    async def _follow(self, stream: MessageStream[ToWorker]) -> None:
        staged = self._staged
        staged.begin()
        self._goodbye = False
        self._followed = stream
        try:
            while True:
                message = await stream.receive()
                self._keep(message)
                match message:
                    case Answer(id=id):
                        future = self._pending.get(id)
                        if future is not None and not future.done():
                            future.set_result(message)
                    case News(publications=publications, more=more):
                        for publication in publications:
                            staged.stage(publication.number, publication.groups)
                        if not more:
                            await self._confirm(Held(publications[-1].number), stream)
                    case Shown(numbers=numbers, at=at):
                        self._set_time(at)
                        await staged.show(numbers)
                    case Joined():
                        await self._join(message, stream)
                    case TimeIs(at=at, reset=reset):
                        self._set_time(at, reset=reset)
                    case LeaseIs(until=until):
                        self._lease_until = until
                    case SnapshotPart(groups=groups, pending=pending):
                        staged.add_snapshot(groups, pending)
                    case SnapshotEnd(number=number):
                        staged.end_snapshot()
                        await self._confirm(Held(number, whole=True), stream)
                    case Goodbye():
                        self._goodbye = True
                    case _:
                        self._take_other(message, stream)
        finally:
            self._followed, self._broken = None, guard.monotonic()
            stream.cut()

    def _keep(self, message: ToWorker) -> None:
        """Called with every message, before it has any effect."""

    async def _confirm(self, held: Held, stream: MessageStream[ToWorker]) -> None:
        stream.send(held)

    def _take_other(self, message: ToWorker, stream: MessageStream[ToWorker]) -> None:
        del stream
        raise BrokenConnection(f"control sent an unexpected message: {type(message).__name__}")

    async def _join(self, joined: Joined, stream: MessageStream[ToWorker]) -> None:
        self._set_time(joined.at, reset=True)
        await self._staged.show_all(joined.pending)
        self._stream = stream
        self._unreachable.reset()
        self.synchronized.set()
        self._log_following()

    def _log_following(self) -> None:
        log.info("following the control process", worker=self._worker)

    def _set_time(self, at: Time, *, reset: bool = False) -> None:
        if isinstance(self._clock, FollowedClock):
            self._clock.follow(at, reset=reset)

    def _note_failure(self, error: Exception) -> None:
        """Log, at most every LOG_EVERY, that control cannot be reached."""
        if self._control_may_follow and isinstance(
            error, FileNotFoundError | ConnectionRefusedError
        ):
            return
        if self._stream is None and self._unreachable.record():
            self._log(UNREACHABLE, str(error) or repr(error))

    def _log(self, message: str, why: str) -> None:
        log_line = log.info if self._goodbye else log.error
        log_line(message, worker=self._worker, why=why)

    def _disconnected(self, why: str) -> None:
        if self._stream is not None:
            self._log(AWAY, "it is stopping" if self._goodbye else why)
        self._stream = None
        for future in self._pending.values():
            if not future.done():
                future.set_exception(OutcomeUnknown(LOST))


@contextlib.contextmanager
def _within(message: str, failure: type[NotDurable] = NotDurable) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise failure(message) from None
