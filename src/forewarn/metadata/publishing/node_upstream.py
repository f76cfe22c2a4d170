"""`Upstream` for the endpoint of a node: a connection to control, and a journal of what it was
told.

While the read lease of control lasts, what is shown here is what is shown everywhere. Without it,
the node is *disconnected*: it goes on showing what it was last told. What needs control is held for
a while, and asked again on the next connection, since all of it may be repeated. A group that is
about to change shows nothing for the moment: to the endpoint it looks as if it were not enabled,
and `enable` returns when there is a document again."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import msgspec

from forewarn import __version__
from forewarn.core import Durations, Machine, Time, World
from forewarn.core.time import MAX_TIME, SECOND
from forewarn.metadata.publishing import updates
from forewarn.metadata.publishing.journal import Journal, JournalFailed, JournalMessage
from forewarn.metadata.publishing.messages import (
    MAX_IDS,
    MOST_ARRIVING,
    NODE_PROTOCOLS,
    TWO_ROUNDS,
    Answer,
    Approve,
    AskLastPoll,
    AskPrepared,
    AskToken,
    Call,
    Changed,
    Enable,
    Goodbye,
    Held,
    Hidden,
    Hide,
    Joined,
    Kept,
    LastPoll,
    News,
    NodeHello,
    Ping,
    Pong,
    Postpone,
    Prepare,
    Publication,
    ReadLease,
    Renew,
    Renewed,
    Shown,
    SnapshotEnd,
    SnapshotPart,
    ToNode,
    Unhide,
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
from forewarn.service.access.machine_tokens import MachineToken
from forewarn.service.engine.clock import Clock, FollowedClock
from forewarn.support import guard
from forewarn.support.control_follower import (
    MAX_DIAL_PAUSE,
    MIN_DIAL_PAUSE,
    QUIET,
    SILENT,
    ControlFollower,
    Dial,
    problem_of,
)
from forewarn.support.logs import logger
from forewarn.support.message_stream import BrokenConnection, MessageStream, UnknownMessage
from forewarn.support.text import GUID

CALL_TIMEOUT = 10.0  # seconds after which a call that control has not answered is sent again
HOLD_CALL = 8.0  # seconds for which what needs control is held
HOLD_ENABLE = 115.0  # likewise for a first GET, whose answer may take two minutes
# Likewise for a caller that is not known here. Control answers at once, unless it is a machine that
# is about to be told.
HOLD_UNKNOWN = 10.0
# Seconds without control, after which a group that is hidden shows its change. Control waits less
# long: nodes that have not confirmed by then that they have hidden it are disconnected.
MAX_HOLD = 12.0
MAX_PENDING_CALLS = 4_096  # calls that wait for an answer
REPORT_EVERY = 1.0  # seconds between two reports
WATCH_EVERY = 0.1  # seconds between two looks at the read lease
# Seconds between two signs of life, which also compare the clocks; with the answer, control renews
# the read lease. Half a second less is enough: they are sent when it is time for reports, too.
PULSE_EVERY = 3.0
# Reports, a second apart, after which polls that showed nothing new are reported, unless something
# is being done to the machine.
REPEAT_EVERY = 30
DRIFT = 0.17  # by which two clocks may differ in speed, while each is corrected by up to 8.3 %

AWAY = f"control could not be reached for {HOLD_CALL:g} s"

log = logger("forewarn")


class RefusedByControl(BrokenConnection):
    """Control refuses this node; the message says why."""


class NodeUpstream(ControlFollower[Welcome]):
    def __init__(self, dials: Sequence[Dial], host: str, clock: Clock, journal: Journal) -> None:
        super().__init__(dials, host)
        self._host = host
        self._clock = clock
        self._journal = journal
        self._rules = Durations()
        self._staged = StagedViews()
        self._stream: MessageStream[ToNode] | None = None  # while it is connected and knows all
        self._followed: MessageStream[ToNode] | None = None  # while it is connected
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        self._calls = 0
        # Each node has its turn: control may have very many of them.
        turn = 1 + zlib.crc32(host.encode()) % REPEAT_EVERY
        self._poll_report = PollReport(REPEAT_EVERY, turn, self._staged.disturbed)
        self._pinged = 0.0  # when the last sign of life was sent
        self.record_poll = self._poll_report.record_poll
        self.sign_of_life = self._poll_report.sign_of_life
        self.synchronized = asyncio.Event()  # set when all groups are known
        self.commit = 0  # the last one that it was told of
        self._commit_at: Time = 0  # when that was made; 0: not known
        self._ahead: tuple[float, float] | None = None  # our clock minus control's, and when known
        self._leased_until = 0.0  # until when, by our clock
        self._welcome = Welcome(protocol=1, version="", rules=Durations())
        self.on_disconnected: Callable[[bool], None] = lambda _: (
            None
        )  # True: disconnected from now on
        self.heard: float | None = None  # when control sent something last, in boot time
        self._waiting_since: float | None = None  # for a message; None while one is being taken
        self.journal_problem = ""  # why control is not followed, if the journal cannot be written
        # Why a control node's certificate is not accepted; others may fail for other reasons.
        self.certificate_problem = ""
        self._is_disconnected = True
        self._was_disconnected = True  # since it joined last
        self._joined = False  # since it has its connection
        self._may_call = asyncio.Event()  # set while it has joined, and is not disconnected

    # The port.

    def attach(self, sink: Callable[[GroupNews], None]) -> None:
        self._staged.attach(sink)

    def now(self) -> World:
        return self._clock.now(self._rules)

    async def enable(self, group: str) -> None:
        changing = self._staged.changing(group)
        if changing is None:
            await self._call(Enable(self._number(), group))
            return
        try:
            async with asyncio.timeout(HOLD_ENABLE):
                await changing.wait()
        except TimeoutError:
            message = f"a change of the group has been pending for {HOLD_ENABLE:g} s"
            raise NotDurable(message) from None

    async def approve(self, machine: str, group: str, ids: Sequence[str]) -> bool:
        if len(ids) > MAX_IDS:
            return False  # there never were as many
        return (await self._call(Approve(self._number(), machine, group, tuple(ids)))).yes

    async def prepare(
        self, machine: str, group: str, id: str, ready: bool, note: str
    ) -> Prepared | None:
        if not GUID.fullmatch(id):
            return None
        call = Prepare(self._number(), machine, group, id, ready, note)
        answer = await self._call(call)
        if not answer.yes:
            raise TooOften
        return answer.prepared

    async def postpone(self, machine: str, group: str, id: str, until: Time) -> Time | None:
        if not GUID.fullmatch(id):
            return None
        until = min(until, MAX_TIME)
        answer = await self._call(Postpone(self._number(), machine, group, id, until))
        if answer.refused:
            raise NotPostponed(answer.refused)
        return answer.not_before

    async def prepared(self, group: str, id: str) -> Prepared | None:
        if not GUID.fullmatch(id):
            return None
        return (await self._call(AskPrepared(self._number(), group, id))).prepared

    @property
    def issues_tokens(self) -> bool:
        return self._welcome.tokens

    async def token(self, machine: str, group: str, resource: str) -> MachineToken | None:
        return (await self._call(AskToken(self._number(), machine, group, resource))).token

    def unknown_caller(self, address: str) -> None:
        self._poll_report.unknown_callers.record(address, self.now().at)

    async def find(self, address: str) -> None:
        """Ask control for the machine with an address that is not known here: it may be about to
        move to this host. Returns when it is known, or will not be. Raises NotDurable."""
        await self._call(WhoIs(self._number(), address))

    def _number(self) -> int:
        self._calls += 1
        return self._calls

    # What needs control.

    async def _call(self, call: Call | WhoIs) -> Answer:
        """Ask control, again on every new connection. All calls may be repeated."""
        hold = HOLD_CALL
        if isinstance(call, Enable | WhoIs):
            hold = HOLD_ENABLE if isinstance(call, Enable) else HOLD_UNKNOWN
        try:
            async with asyncio.timeout(hold):
                while True:
                    await self._may_call.wait()
                    if not self._may_call.is_set():
                        continue  # the connection was lost again at once
                    try:
                        return await self._call_once(call)
                    except OutcomeUnknown:
                        pass  # the connection was lost before the answer
        except TimeoutError:
            if isinstance(call, Enable):  # whose caller gets no answer, and asks again
                raise OutcomeUnknown(AWAY) from None
            raise NotDurable(AWAY) from None

    async def _call_once(self, call: Call | WhoIs) -> Answer:
        """Ask control. Raises OutcomeUnknown if the connection is lost before it answers."""
        assert self._stream is not None
        if len(self._pending) >= MAX_PENDING_CALLS:
            raise NotDurable(f"{MAX_PENDING_CALLS} requests are already waiting for control")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._pending[call.id] = future
        try:
            self._stream.send(call)
            async with asyncio.timeout(CALL_TIMEOUT):
                answer = await future
        except TimeoutError:
            raise OutcomeUnknown from None
        finally:
            self._pending.pop(call.id, None)
        if answer.failed:
            raise NotDurable(answer.failed)
        return answer

    # The read lease.

    @property
    def leased_until(self) -> float:
        """Until when nothing newer is shown elsewhere, in boot time; 0: there was no read lease."""
        return self._leased_until

    @property
    def disconnected(self) -> bool:
        """Whether something newer may be shown elsewhere."""
        return guard.boottime() >= self._leased_until

    async def watch(self) -> None:
        """Notice when the read lease has run out, and give up a connection on which nothing
        comes."""
        while True:
            await guard.pause(WATCH_EVERY)
            self._note_disconnected()
            self._note_silence(self._is_silent())
            if self._followed is None or self.heard is None:
                continue
            if guard.boottime() - self.heard >= QUIET:
                self._followed.cut()

    def _is_silent(self) -> bool:
        """Return whether control may have another leader by now: nothing comes on the
        connection."""
        since = self._waiting_since
        return self.disconnected and since is not None and guard.boottime() - since >= SILENT

    def _ping(self) -> Ping:
        return Ping(guard.boottime())

    def _note_disconnected(self) -> None:
        self._was_disconnected |= self.disconnected
        if not self._joined or self.disconnected:
            self._may_call.clear()
        elif not self._may_call.is_set():
            self._may_call.set()
        if self.disconnected != self._is_disconnected:
            self._is_disconnected = self.disconnected
            self.on_disconnected(self._is_disconnected)

    def _take_read_lease(self, lease: ReadLease, stream: MessageStream[ToNode]) -> None:
        self._note_commit(lease)
        self._set_time(lease.at)
        if self._ahead is None:
            return
        ahead, known = self._ahead
        until = lease.until + ahead
        self._leased_until = until - DRIFT * max(0.0, until - known)
        if self.disconnected:  # the ping, or this, was long under way
            stream.send(self._ping())
        elif self._joined:
            self._was_disconnected = False
        self._note_disconnected()

    # The connection.

    @property
    def connected(self) -> bool:
        return self._stream is not None

    async def _until_ready(self) -> None:
        """Wait until the journal can be written."""
        pause = MIN_DIAL_PAUSE
        while self.journal_problem:
            try:
                await self._replace_journal()
                return
            except JournalFailed as error:
                self._note_failure(error)
            await guard.pause(pause)
            pause = min(2 * pause, MAX_DIAL_PAUSE)

    async def report(self) -> None:
        """Report polls regularly, ask for a new certificate when it is time, and show groups that
        were held back for too long."""
        while True:
            await guard.pause(REPORT_EVERY)
            if self._stream is not None:
                for report in self._poll_report.reports():
                    self._stream.send(report)
            if self._followed is not None:  # from the start: a silent node is disconnected
                if guard.monotonic() - self._pinged >= PULSE_EVERY - REPORT_EVERY / 2:
                    self._pinged = guard.monotonic()
                    self._followed.send(self._ping())
                if self.wants_renewal():
                    self._followed.send(Renew())
            elif groups := self._staged.show_hidden(guard.monotonic() - MAX_HOLD):
                log.warning(
                    "staged changes of groups are shown, although control has not released them",
                    host=self._host,
                    groups=groups,
                )

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
            commit=self.commit,
            commit_at=self._commit_at,
        )

    def _welcomed(self, greeting: ToNode) -> Welcome:
        match greeting:
            case Welcome(term=term, commit=commit):
                self._note_term(term)
                if 0 < commit < self.commit:
                    raise BrokenConnection(
                        f"its state went back: it ends with commit {commit}, and this node was told"
                        f" of commit {self.commit}; see 'forewarn status'"
                    )
                return greeting
            case Unwelcome(reason=reason):
                raise RefusedByControl(reason)
            case _:
                raise BrokenConnection("control did not answer the hello")

    async def _follow(self, stream: MessageStream[ToNode], welcome: Welcome) -> None:
        self._welcome = welcome
        self._rules = welcome.rules
        self._ahead, self.heard = None, guard.boottime()
        try:
            await self._replace_journal()
            self._journal.append(self._welcome)
            stream.send(self._ping())
            self._staged.begin()
            self._followed = stream
            while True:
                self._waiting_since = guard.boottime()
                message = await stream.receive()
                self._waiting_since, self.heard = None, guard.boottime()
                if isinstance(message, SnapshotPart | SnapshotEnd | News | Shown):
                    self._journal.append(message)
                await self._take(message, stream)
        finally:
            self._followed = self._waiting_since = None

    async def _take(self, message: ToNode, stream: MessageStream[ToNode]) -> None:
        match message:
            case Answer(id=id):
                future = self._pending.get(id)
                if future is not None and not future.done():
                    future.set_result(message)
            case News(publications=publications, more=more):
                # Before it has joined, what it shows may be older than anything that others show.
                hide = self._stream is None or self._welcome.protocol < TWO_ROUNDS
                for publication in publications:
                    self._staged.stage(publication.number, publication.groups, hide=hide)
                if not more:
                    await self._confirm(Held(publications[-1].number), stream)
            case Hide(numbers=numbers):
                # Not in the journal: after a restart, everything is hidden that is not shown yet.
                await self._staged.hide(frozenset(numbers))
                stream.send(Hidden(numbers))
            case Unhide(numbers=numbers):
                self._staged.unhide(frozenset(numbers))
            case Shown(numbers=numbers, at=at):
                self._note_commit(message)
                self._set_time(at)
                await self._staged.show(frozenset(numbers))
            case Joined():
                self._note_commit(message)
                await self._join(message, stream)
            case SnapshotPart(groups=groups, pending=pending):
                self._staged.add_snapshot(groups, pending)
            case SnapshotEnd(number=number):
                self._staged.end_snapshot()
                await self._confirm(Held(number, whole=True), stream)
            case Pong(sent=sent, at=at, time=time):
                # Control's clock showed `at` not before we sent the ping.
                self._ahead = sent - at, sent
                if time:
                    self._set_time(time, asked=round(sent * SECOND))
            case ReadLease():
                self._take_read_lease(message, stream)
            case Renewed():
                self.on_renewed(message)
            case AskLastPoll(machine=machine):
                stream.send(LastPoll(machine, self._poll_report.last(machine)))
            case Goodbye() | UnknownMessage():
                pass  # control is stopping, and closes the connection; or it has another version
            case _:
                raise BrokenConnection(
                    f"control sent an unexpected message: {type(message).__name__}"
                )

    async def _confirm(self, held: Held, stream: MessageStream[ToNode]) -> None:
        if self._journal.long:
            await self._replace_journal()
        else:
            await asyncio.to_thread(self._journal.sync)
        stream.send(held)

    async def _join(self, joined: Joined, stream: MessageStream[ToNode]) -> None:
        self._journal.append(joined)
        self._poll_report.begin()
        self._set_time(joined.at, reset=True)
        await self._staged.show_all(joined.pending)
        self._stream = stream
        self._unreachable.reset()
        self.synchronized.set()
        log.debug("there is a connection to control", host=self._host)
        self.problem = self.certificate_problem = ""
        self._note_disconnected()
        if not self._was_disconnected:
            stream.send(Kept())
        await self._replace_journal()
        if self.journal_problem:
            self.journal_problem = ""
            log.info("the journal can be written again", host=self._host)
        self._joined = True
        self._note_disconnected()

    def _note_commit(self, message: Welcome | Joined | Shown | ReadLease) -> None:
        if message.commit >= self.commit:
            self.commit, self._commit_at = message.commit, message.commit_at

    def _set_time(self, at: Time, *, asked: int | None = None, reset: bool = False) -> None:
        if isinstance(self._clock, FollowedClock):
            self._clock.follow(at, asked=asked, reset=reset)

    def _note_failure(self, error: Exception) -> None:
        if not isinstance(error, JournalFailed):
            self.problem = problem_of(error)
            if isinstance(error, ssl.SSLCertVerificationError):
                if self.certificate_problem != self.problem:
                    log.error(
                        "the certificate of control is not accepted",
                        host=self._host,
                        why=self.problem,
                    )
                self.certificate_problem = self.problem
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

    def _disconnected(self, why: str) -> None:
        self._joined = False
        self._may_call.clear()
        if self._stream is not None:
            # Matters to nobody if it is for a moment; `on_disconnected` tells of the others.
            log.info("the connection to control was lost", host=self._host, why=why)
        self._stream = None
        for future in self._pending.values():
            if not future.done():
                future.set_exception(OutcomeUnknown())

    # The journal.

    async def restore(self) -> None:
        """Show what the journal contains."""
        messages = self._journal.read()
        for message in messages:
            if isinstance(message, Welcome):
                self._term, self._rules = max(self._term, message.term), message.rules
                self._welcome = message
            if isinstance(message, Welcome | Joined | Shown):
                self._note_commit(message)
        last_at = await replay(messages, self._staged)
        self._set_time(max(last_at or 0, self.now().at))
        if last_at is not None:
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

    def _contents(self) -> list[JournalMessage]:
        """Return messages that lead to what is shown and staged now."""
        shown, staged = self._staged.contents()
        messages: list[JournalMessage] = [
            msgspec.structs.replace(
                self._welcome, term=self._term, commit=self.commit, commit_at=self._commit_at
            )
        ]
        if not self.synchronized.is_set():
            return messages
        messages += [SnapshotPart((news,)) for news in shown]
        messages += [SnapshotEnd(0), Joined((), self.now().at)]
        for number, name, news in staged:
            if news is None:
                change = updates.removed(name)
            else:
                change = Changed(news.view, news.machines, news.place)
            messages.append(News((Publication(number, (change,)),)))
        return messages


async def replay(messages: Iterable[JournalMessage], staged: StagedViews) -> Time | None:
    """Show what a journal contains. Returns when control told the last of it; None if it has never
    told everything."""
    last: Time | None = None
    for message in messages:
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
