"""The face's port to a service in another process: `Upstream` over a line to its hub.

While the line is broken, what was last told is shown on, and nothing can be asked: whoever wants
something done is refused (NotTaken). If it was under way, its outcome is unknown
(OutcomeNotKnown). A group that is about to change shows nothing for the moment: for whoever asks
it is as if it were not enabled, and `enable` returns when there is a document again.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

from forewarn import __version__
from forewarn.core import Durations, Now, Time
from forewarn.metadata.upstream import GroupNews, NotDurable, OutcomeNotKnown, Prepared, TooOften
from forewarn.metadata.workers.messages import (
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
    MessageStream,
    News,
    Prepare,
    Pulse,
    Shown,
    SnapshotEnd,
    SnapshotPart,
    TimeIs,
    ToWorker,
    Unwelcome,
    Welcome,
)
from forewarn.metadata.workers.poll_report import PollReport
from forewarn.metadata.workers.staged_views import StagedViews
from forewarn.service.engine.clock import Clock, FollowedClock
from forewarn.service.telemetry.samples import Sample
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

DIAL_FIRST, DIAL_MOST = 0.05, 1.0  # seconds between two attempts to reach control
GREETED_WITHIN = 10.0  # seconds in which control has to answer a hello
ANSWERED_WITHIN = 10.0  # seconds in which control has to answer a call
# Seconds without control, after which a group that was about to change shows what it was told.
# Longer than control, if it has only cut us off, waits until nobody shows what was before.
HOLD_MOST = 12.0
MAX_ASKED = 4_096  # calls that wait for their answers
REPORT_EVERY = 1.0  # seconds between two reports of what was seen
TELL_FIRST = 5.0  # seconds without it, before there is a word at all
TELL_EVERY = 30.0  # seconds between two words in the log about a control that cannot be reached

AWAY = "the control process is away: polls are answered, but nothing else can be done"
LOST = "the control process went away before it answered: nobody knows whether it was done"

UNREACHABLE = "the control process cannot be reached"
LATE = (
    f"the control process has not answered for {ANSWERED_WITHIN:g} s:"
    " nobody knows whether it was done"
)
CHANGING = f"the group is about to change, and has not changed for {ANSWERED_WITHIN:g} s"

Dial: TypeAlias = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

log = logger("forewarn")


class NotWelcome(Exception):
    """Control does not talk to the likes of us; the message says why."""


class RemoteUpstream:
    def __init__(self, dial: Dial, worker: int, clock: Clock, service: str = "") -> None:
        self._dial = dial
        self._worker = worker
        self._service = service
        self._clock = clock
        self._instance = uuid.uuid4().hex
        self._rules = Durations()
        self._stage = StagedViews()
        self._line: MessageStream[ToWorker] | None = (
            None  # while control is there, and we show what it says
        )
        self._heard: MessageStream[ToWorker] | None = None  # while it is there
        self._broken = guard.monotonic()  # when we last lost it
        self._unreachable = LogThrottle(TELL_EVERY, first_after=TELL_FIRST)
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._calls = 0
        self._left_in_peace = False  # did control say goodbye?
        self._seq = 0
        self._seen = PollReport()
        self.record_poll = self._seen.record_poll
        self.sign_of_life = self._seen.sign_of_life
        self.readings: Callable[[], Sequence[Sample]] = tuple
        self.told = asyncio.Event()  # have we ever been told what there is?

    # The port.

    def attach(self, sink: Callable[[GroupNews], None]) -> None:
        self._stage.attach(sink)

    def now(self) -> Now:
        return self._clock.now(self._rules)

    async def enable(self, group: str) -> None:
        changing = self._stage.changing(group)
        if changing is not None:
            with _within(CHANGING):
                async with asyncio.timeout(ANSWERED_WITHIN):
                    await changing.wait()
        else:
            await self._ask(Enable(self._number(), group))

    async def approve(self, machine: str, group: str, ids: Sequence[str]) -> bool:
        return (await self._ask(Approve(self._number(), machine, group, tuple(ids)))).yes

    async def prepare(
        self, machine: str, group: str, id: str, ready: bool, note: str
    ) -> Prepared | None:
        call = Prepare(self._number(), machine, group, id, ready, note)
        answer = await self._ask(call)
        if not answer.yes:
            raise TooOften
        return answer.prepared

    async def prepared(self, group: str, id: str) -> Prepared | None:
        return (await self._ask(AskPrepared(self._number(), group, id))).prepared

    def _number(self) -> int:
        self._calls += 1
        return self._calls

    async def _ask(self, call: Call) -> Answer:
        if self._line is None:
            raise NotDurable(AWAY)
        if len(self._asked) >= MAX_ASKED:
            raise NotDurable(f"{MAX_ASKED} requests wait for the control process already")
        asked: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[call.id] = asked
        try:
            self._line.say(call)
            with _within(LATE, OutcomeNotKnown):
                async with asyncio.timeout(ANSWERED_WITHIN):
                    answer = await asked
        finally:
            self._asked.pop(call.id, None)
        if answer.failed:
            raise NotDurable(answer.failed)
        return answer

    # The line.

    @property
    def connected(self) -> bool:
        return self._line is not None

    async def run(self) -> None:
        """For ever: reach control, and follow it until it is gone. Raises NotWelcome."""
        pause = DIAL_FIRST
        while True:
            try:
                line = await self._reach()
                pause = DIAL_FIRST
                await self._follow(line)
            except (BrokenConnection, OSError, TimeoutError) as error:
                self._tell(error)
                self._hang_up(str(error))
            await guard.pause(pause)
            pause = min(2 * pause, DIAL_MOST)

    async def report(self) -> None:
        """For ever: tell what was seen and how we are; and show what was held back too long."""
        while True:
            await guard.pause(REPORT_EVERY)
            if self._line is not None:
                for report in self._seen.reports():
                    self._line.say(report)
            if self._heard is not None:  # from our first word on: who is silent is taken for dead
                self._heard.say(Pulse(self._seq, tuple(self.readings())))
            elif guard.monotonic() - self._broken >= HOLD_MOST and (
                late := self._stage.show_held()
            ):
                log.warning(
                    "groups are shown as they were last told of, though control has not said so",
                    worker=self._worker,
                    groups=late,
                )

    async def _reach(self) -> MessageStream[ToWorker]:
        reader, writer = await self._dial()
        line: MessageStream[ToWorker] = MessageStream(reader, writer, ToWorker)
        try:
            line.say(
                Hello(
                    protocol=PROTOCOL,
                    version=__version__,
                    worker=self._worker,
                    instance=self._instance,
                    serving=self.told.is_set(),
                    service=self._service,
                )
            )
            async with asyncio.timeout(GREETED_WITHIN):
                greeting = await line.hear()
            match greeting:
                case Welcome(rules=rules):
                    self._rules = rules
                case Unwelcome(says=says):
                    raise NotWelcome(says)
                case _:
                    raise BrokenConnection("control did not say hello")
        except BaseException:
            line.cut()
            raise
        return line

    async def _follow(self, line: MessageStream[ToWorker]) -> None:
        stage = self._stage
        stage.begin()
        self._left_in_peace = False
        self._heard = line
        try:
            while True:
                message = await line.hear()
                match message:
                    case Answer(id=id):
                        asked = self._asked.get(id)
                        if asked is not None and not asked.done():
                            asked.set_result(message)
                    case News(seq=seq, groups=changed, more=more):
                        stage.news(seq, changed)
                        if not more:
                            line.say(Held(seq))
                    case Shown():
                        await self._show(message, line)
                    case TimeIs(at=at):
                        self._set_time(at)
                    case SnapshotPart(groups=groups):
                        stage.stock(groups)
                    case SnapshotEnd(seq=seq):
                        stage.whole()
                        line.say(Held(seq, whole=True))
                    case Goodbye():
                        self._left_in_peace = True
                    case _:
                        raise BrokenConnection("control said hello again")
        finally:
            self._heard, self._broken = None, guard.monotonic()
            line.cut()

    async def _show(self, shown: Shown, line: MessageStream[ToWorker]) -> None:
        self._set_time(shown.at, reset=shown.reset)
        await self._stage.show(shown.seq)
        self._seq = shown.seq
        if self._line is None:
            self._line = line
            self._unreachable.reset()
            self.told.set()
            log.info("following the control process", worker=self._worker)

    def _set_time(self, at: Time, *, reset: bool = False) -> None:
        if isinstance(self._clock, FollowedClock):
            self._clock.follow(at, reset=reset)

    def _tell(self, error: Exception) -> None:
        """Control cannot be reached: now and then that is said, with what may be done about it."""
        if self._line is None and self._unreachable.record():
            log.error(UNREACHABLE, worker=self._worker, why=str(error) or repr(error))

    def _hang_up(self, why: str) -> None:
        if self._line is not None:
            tell = log.info if self._left_in_peace else log.error
            tell(AWAY, worker=self._worker, why="it is stopping" if self._left_in_peace else why)
        self._line = None
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(OutcomeNotKnown(LOST))


@contextlib.contextmanager
def _within(says: str, failure: type[NotDurable] = NotDurable) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise failure(says) from None
