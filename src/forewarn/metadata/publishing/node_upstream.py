"""`Upstream` for the endpoint of a node: a line to control, and a journal of what it was told.

While the promise of control lasts, what is shown here is what is shown everywhere. Without it, the
node is *apart*: it goes on showing what it was last told. What needs control is held for a while,
and asked again on the next line, since all of it may be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice

import msgspec

from forewarn import __version__
from forewarn.core import Durations, Machine, Time
from forewarn.metadata.publishing import updates
from forewarn.metadata.publishing.journal import Journal, JournalFailed, Told
from forewarn.metadata.publishing.messages import (
    NODE_PROTOCOLS,
    Answer,
    BrokenConnection,
    Call,
    Changed,
    Enable,
    Held,
    Joined,
    Kept,
    MessageStream,
    News,
    NodeHello,
    Ping,
    Pong,
    Promise,
    Publication,
    Shown,
    SnapshotEnd,
    SnapshotPart,
    ToWorker,
    Unwelcome,
    Welcome,
    WhoIs,
)
from forewarn.metadata.publishing.poll_report import PollReport
from forewarn.metadata.publishing.remote_upstream import (
    MAX_DIAL_PAUSE,
    Dial,
    RemoteUpstream,
)
from forewarn.metadata.publishing.staged_views import StagedViews
from forewarn.metadata.upstream import NotDurable, OutcomeUnknown
from forewarn.service.engine.clock import Clock
from forewarn.support import guard
from forewarn.support.logs import logger

HOLD_CALL = 8.0  # seconds for which what needs control is held
HOLD_ENABLE = 115.0  # likewise for a first GET, whose answer may take two minutes
# Likewise for a caller that is not known here. Control answers at once, unless it is a machine that
# is about to be told.
HOLD_UNKNOWN = 10.0
WATCH_EVERY = 0.1  # seconds between two looks at the promise
AT_ONCE = 1.0  # seconds between two lines, after which the next one is waited for
PULSE_EVERY = 4.0  # seconds between two signs of life, which also compare the clocks
REPEAT_EVERY = 30  # reports, a second apart, after which polls that showed nothing new are reported
QUIET = 10.0  # seconds without a message, after which a line is given up: promises are sent on it
MOST_ARRIVING = 256  # machines that a hello names; others are asked for again
DRIFT = 0.17  # by which two clocks may differ in speed, while each is corrected by up to 8.3 %

AWAY = f"control could not be reached for {HOLD_CALL:g} s"

log = logger("forewarn")


class RefusedByControl(BrokenConnection):
    """Control refuses this node; the message says why."""


class NodeUpstream(RemoteUpstream):
    hold_changing = HOLD_ENABLE
    pulse_every = PULSE_EVERY

    def __init__(self, dials: Sequence[Dial], host: str, clock: Clock, journal: Journal) -> None:
        self._host = host
        self._journal = journal
        self._dials = cycle(dials)
        super().__init__(self._dial_next, 0, clock)
        self._term = 0  # the highest that it has followed
        self._ahead: tuple[float, float] | None = None  # our clock minus control's, and when known
        self._promised = 0.0  # until when, by our clock
        self._welcome = Welcome(protocol=1, version="", rules=Durations())
        self.on_apart: Callable[[bool], None] = lambda _: None  # True: apart from now on
        self.heard: float | None = None  # when control sent something last, in boot time
        self.journal_problem = ""  # why control is not followed, if the journal cannot be written
        self._opened = float("-inf")  # when the last line was opened
        self.problem = ""  # why there is no line, or why the last one was lost
        self._is_apart = True
        self._was_apart = True  # since it joined last
        self._joined = asyncio.Event()  # set while it may call

    def _new_poll_report(self) -> PollReport:
        # Each node has its turn: control may have very many of them.
        return PollReport(REPEAT_EVERY, 1 + zlib.crc32(self._host.encode()) % REPEAT_EVERY)

    async def _dial_next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await next(self._dials)()

    # What needs control.

    async def _call(self, call: Call | WhoIs) -> Answer:
        """Ask control, again on every new line. All calls may be repeated."""
        hold = HOLD_CALL
        if isinstance(call, Enable | WhoIs):
            hold = HOLD_ENABLE if isinstance(call, Enable) else HOLD_UNKNOWN
        try:
            async with asyncio.timeout(hold):
                while True:
                    await self._joined.wait()
                    if not self._joined.is_set():
                        continue  # the line was lost again at once
                    try:
                        return await super()._call(call)
                    except OutcomeUnknown:
                        pass  # the line was lost before the answer
        except TimeoutError:
            if isinstance(call, Enable):  # whose caller gets no answer, and asks again
                raise OutcomeUnknown(AWAY) from None
            raise NotDurable(AWAY) from None

    async def find(self, address: str) -> None:
        """Ask control for the machine with an address that is not known here: it may be about to
        move to this host. Returns when it is known, or will not be."""
        with contextlib.suppress(NotDurable):
            await self._call(WhoIs(self._number(), address))

    def _held_long(self, before: float) -> float:
        # Control waits less long: nodes that have not confirmed the change by then are apart.
        return before

    def _disconnected(self, why: str) -> None:
        self._joined.clear()
        super()._disconnected(why)

    def _log_following(self) -> None:
        log.debug("there is a line to control", host=self._host)

    def _log(self, message: str, why: str) -> None:
        """A line that is lost for a moment matters to nobody; `on_apart` tells of the others."""
        del message
        log.info("the line to control was lost", host=self._host, why=why)

    # The promise.

    @property
    def promised(self) -> float:
        """Until when nothing newer is shown elsewhere, in boot time; 0: there was no promise."""
        return self._promised

    @property
    def apart(self) -> bool:
        """Whether something newer may be shown elsewhere."""
        return guard.boottime() >= self._promised

    async def watch(self) -> None:
        """Notice when the promise has run out, and give up a line on which nothing comes."""
        while True:
            await guard.pause(WATCH_EVERY)
            self._note_apart()
            if self._followed is None or self.heard is None:
                continue
            if guard.boottime() - self.heard >= QUIET:
                self._followed.cut()

    def _sign_of_life(self) -> Ping:
        return Ping(guard.boottime())

    def _note_apart(self) -> None:
        self._was_apart |= self.apart
        if self.apart != self._is_apart:
            self._is_apart = self.apart
            self.on_apart(self._is_apart)

    def _take_other(self, message: ToWorker, stream: MessageStream[ToWorker]) -> None:
        match message:
            case Pong(sent=sent, at=at):
                # Control's clock showed `at` not before we sent the ping.
                self._ahead = sent - at, sent
            case Promise(until=until, at=at):
                self._set_time(at)
                if self._ahead is not None:
                    ahead, known = self._ahead
                    self._promised = until + ahead - DRIFT * max(0.0, until + ahead - known)
                    if self.apart:  # the ping, or this, was long under way
                        stream.send(self._sign_of_life())
                    elif self._joined.is_set():
                        self._was_apart = False
                    self._note_apart()
            case _:
                super()._take_other(message, stream)

    # The line.

    async def _connect(self) -> MessageStream[ToWorker]:
        if self.journal_problem:
            await self._replace_journal()  # control need not be asked before that is possible
        return await super()._connect()

    def _pause_after_line(self) -> float:
        before, self._opened = self._opened, guard.monotonic()
        # Another node with the same certificate may be taking its place, and it that of the other.
        at_once = self._opened - before < AT_ONCE
        return MAX_DIAL_PAUSE if self.journal_problem or at_once else super()._pause_after_line()

    def _note_failure(self, error: Exception) -> None:
        if not isinstance(error, JournalFailed):
            self.problem = _reason(error)
            if self._stream is None and self._unreachable.record():
                refused = isinstance(error, RefusedByControl)
                message = "control refuses this node" if refused else "control cannot be reached"
                log.warning(message, host=self._host, why=self.problem)
            return
        if not self.journal_problem:
            log.error(
                "the journal cannot be written, so this node does not follow control: guests are"
                " shown what it was told, and whatever else they ask for waits",
                host=self._host,
                why=str(error),
            )
        self.journal_problem = str(error)

    def _hello(self) -> msgspec.Struct:
        shown, _ = self._staged.contents()
        arriving = ((m.name, news.view.name) for news in shown for m in news.machines if m.host)
        return NodeHello(
            protocols=NODE_PROTOCOLS,
            version=__version__,
            host=self._host,
            instance=self._instance,
            serving=self.synchronized.is_set(),
            term=self._term,
            arriving=dict(islice(arriving, MOST_ARRIVING)),
        )

    def _greeted(self, greeting: ToWorker) -> None:
        match greeting:
            case Welcome(rules=rules, term=term):
                if term < self._term:
                    raise BrokenConnection(f"it is of term {term}; this node has seen {self._term}")
                self._rules, self._term, self._welcome = rules, term, greeting
                self._ahead = None
                self.heard = guard.boottime()
            case Unwelcome(reason=reason):
                raise RefusedByControl(reason)
            case _:
                raise BrokenConnection("control did not answer the hello")

    def _keep(self, message: ToWorker) -> None:
        self.heard = guard.boottime()
        if isinstance(message, SnapshotPart | SnapshotEnd | News | Shown):
            self._journal.append(message)

    async def _confirm(self, held: Held, stream: MessageStream[ToWorker]) -> None:
        if self._journal.long:
            await self._replace_journal()
        else:
            await asyncio.to_thread(self._journal.sync)
        stream.send(held)

    async def _follow(self, stream: MessageStream[ToWorker]) -> None:
        try:
            await self._replace_journal()
            self._journal.append(self._welcome)
            stream.send(self._sign_of_life())
            await super()._follow(stream)
        except JournalFailed:
            stream.cut()
            raise

    async def _join(self, joined: Joined, stream: MessageStream[ToWorker]) -> None:
        self._journal.append(joined)
        self._poll_report.begin()
        await super()._join(joined, stream)
        self.problem = ""
        self._note_apart()
        if not self._was_apart:
            stream.send(Kept())
        await self._replace_journal()
        if self.journal_problem:
            self.journal_problem = ""
            log.info("the journal can be written again", host=self._host)
        self._joined.set()

    # The journal.

    async def restore(self) -> None:
        """Show what the journal contains."""
        told = self._journal.read()
        for message in told:
            if isinstance(message, Welcome):
                self._term, self._rules = max(self._term, message.term), message.rules
                self._welcome = message
        told_at = await replay(told, self._staged)
        self._set_time(max(told_at or 0, self.now().at))
        if told_at is not None:
            self.synchronized.set()
        try:
            await self._replace_journal()
        except JournalFailed as error:  # guests are answered nevertheless
            self._note_failure(error)

    def machines(self) -> list[tuple[str, Machine]]:
        """Return the machines that are answered, each with its group."""
        return self._staged.machines()

    async def _replace_journal(self) -> None:
        await asyncio.to_thread(self._journal.replace, self._contents())

    def _contents(self) -> list[Told]:
        """Return messages that lead to what is shown and staged now."""
        shown, staged = self._staged.contents()
        told: list[Told] = [msgspec.structs.replace(self._welcome, term=self._term)]
        if not self.synchronized.is_set():
            return told
        told += [SnapshotPart((news,)) for news in shown]
        told += [SnapshotEnd(0), Joined((), self.now().at)]
        for number, name, news in staged:
            if news is None:
                change = updates.removed(name)
            else:
                change = Changed(news.view, news.machines, news.place)
            told.append(News((Publication(number, (change,)),)))
        return told


async def replay(told: Iterable[Told], staged: StagedViews) -> Time | None:
    """Show what a journal contains. Returns when control told the last of it; None if it has never
    told everything."""
    last: Time | None = None
    for message in told:
        match message:
            case Welcome():
                staged.begin()
            case SnapshotPart(groups=groups, pending=pending):
                staged.add_snapshot(groups, pending)
            case SnapshotEnd():
                staged.end_snapshot()
            case News(publications=publications):
                for publication in publications:
                    staged.stage(publication.number, publication.groups)
            case Joined(pending=pending, at=at):
                await staged.show_all(pending)
                last = at
            case Shown(numbers=numbers, at=at):
                await staged.show(numbers)
                last = at if last is not None else None
    return last


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "it does not answer"
    return getattr(error, "verify_message", "") or getattr(error, "strerror", "") or str(error)
