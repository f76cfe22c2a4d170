"""The control process's side of the lines to its metadata workers.

All workers together must look like one: what one of them has shown, no other may take back. So a
commit that is durable is first told to all; each stops showing what it changes, and says so. Only
then is it the state, and only then may they show it. Whoever asked for it hears last.

Knows lines, not sockets: a worker at a distance comes in by `attend` like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence

from forewarn import __version__
from forewarn.core import Group
from forewarn.core.registry import ClockAccepted
from forewarn.metadata.upstream import LocalUpstream
from forewarn.metadata.workers import updates
from forewarn.metadata.workers.availability import Availability
from forewarn.metadata.workers.calls import Calls, Member
from forewarn.metadata.workers.fencing import Fencing
from forewarn.metadata.workers.messages import (
    MAX_GREETING,
    PROTOCOL,
    BrokenConnection,
    Changed,
    Goodbye,
    Held,
    Hello,
    MessageStream,
    News,
    Pulse,
    Report,
    Shown,
    SnapshotEnd,
    TimeIs,
    ToControl,
    Unwelcome,
    Welcome,
    frame,
)
from forewarn.metadata.workers.metrics import WorkerMetrics, of_workers
from forewarn.service.engine.clock import STALL, Clock
from forewarn.service.telemetry.samples import Histogram, Histograms, Sample, histogram
from forewarn.store.port import Commit, Store
from forewarn.support import guard
from forewarn.support.logs import logger

GATHER = 3.0  # seconds that a worker which may be answering guests, but is not here, is waited for
HEARD_WITHIN = 5.0  # seconds in which a worker has to hear of a change; then it is ended
WATCH_EVERY = 1.0  # seconds between two looks whether all workers are there
QUIET = 3.0  # seconds without a word, though it has one every second: a worker does not answer
SILENT = 6.0  # seconds without a word, after which a worker is ended
WAITS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
LOOK_SLICE = 16  # groups that are compared before the loop gets its turn
MAX_UNSENT = 128 * 1024 * 1024  # bytes that a worker has not taken yet; one more and it is cut

log = logger("forewarn")


class Hub:
    def __init__(
        self,
        upstream: LocalUpstream,
        store: Store,
        clock: Clock,
        tasks: guard.Tasks,
        expected: int,
        service: str = "",
    ) -> None:
        """`service` is which this is, among others on the machine."""
        self._upstream = upstream
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._expected = expected
        self._service = service
        self._members: dict[int, Member] = {}
        now = guard.monotonic()
        self._away = Fencing(range(expected), GATHER, self._stir)
        self._attendance = Availability(expected, STALL / 1e6, now)
        self._stirring = asyncio.Event()
        self._closing = False
        self._pending: list[bytes] = []  # told to the workers, but not yet the state
        self._last = self._told_seq = store.seq
        self._tally = WorkerMetrics()
        self._waits = Histogram(WAITS)
        self._calls = Calls(upstream, tasks)
        store.before_visible(self._before_visible)
        store.attach(self._on_commit)

    # What the service is told of its workers.

    @property
    def expected(self) -> int:
        return self._expected

    def may_be_there(self, worker: int, pid: int) -> None:
        """A worker of an earlier life of ours: that is its process, though it is not here yet."""
        self._away.known(worker, pid)
        self._away.watch(worker)

    @property
    def there(self) -> int:
        """How many answer guests with what is so."""
        return sum(m.joined and m.quiet < QUIET for m in self._members.values())

    def readings(self) -> Iterator[Sample | Histograms]:
        yield from self._tally.readings(m.instance for m in self._members.values())
        joined = [member for member in self._members.values() if member.joined]
        said = {m.number: m.shown for m in joined if m.shown}
        yield from of_workers(
            self._expected,
            self.there,
            {number: max(0, self._store.seq - shown) for number, shown in said.items()},
            {m.number: self._tally.polls(m.instance) for m in joined},
        )
        yield histogram(
            "forewarn_worker_wait_seconds",
            "How long a batch that was durable waited until all workers had heard of it",
            self._waits,
        )

    async def keep_watch(self) -> None:
        """Time in which not all workers were there does not count as served."""
        while True:
            await guard.pause(WATCH_EVERY)
            now = guard.monotonic()
            self.tell_time()
            since = self._listen_around(now)
            lost = self._attendance.look(self.there, now, since)
            if lost:
                away = self._expected - self.there
                says = (
                    f"{away} of {self._expected} workers are away" if away else "workers are back"
                )
                self._clock.unserved(says, round(lost * 1e6))

    def tell_time(self) -> None:
        """Send the service's time to the workers, which do not read the wall clock."""
        time = frame(TimeIs(self._upstream.now().at))
        for member in list(self._members.values()):
            if member.joined:
                self._send(member, time)

    def _listen_around(self, now: float) -> float | None:
        """Who is still saying something? Since when has somebody been quiet? Silence is counted in
        looks: if it was us who stood still, they have been talking, and will be heard."""
        for member in list(self._members.values()):
            if member.talked:
                member.talked, member.quiet, member.talked_at = False, 0.0, now
            else:
                member.quiet += WATCH_EVERY
                if member.quiet >= SILENT:
                    self._fence(member, f"it has said nothing for {SILENT:g} s")
        quiet = [m.talked_at for m in self._members.values() if m.joined and m.quiet >= QUIET]
        return min(quiet, default=None)

    # A commit on its way.

    async def _before_visible(self, commits: Sequence[Commit], after: Mapping[str, Group]) -> None:
        self._last = commits[-1].seq
        begun = guard.monotonic()
        try:
            await self._announce(commits[-1].seq, after)
        except Exception as error:
            log.error("workers could not be told of a change", exc_info=error)
            for member in list(self._members.values()):
                self._fence(member, "it may have missed a change")
        self._waits.add(guard.monotonic() - begun)

    async def _announce(self, seq: int, after: Mapping[str, Group]) -> None:
        changed = await self._changes(after)
        if not changed:
            return
        short = await _framed(updates.news(seq, changed))
        full = await _framed(updates.news(seq, updates.in_full(changed, after)))
        self._pending = full  # from here on without a pause, or somebody would miss it
        whole = {member.number for member in self._members.values() if member.whole}
        for member in list(self._members.values()):
            for framed in short if member.number in whole else full:
                self._send(member, framed)
        await self._heard(seq)

    async def _changes(self, after: Mapping[str, Group]) -> list[Changed]:
        found = []
        for n, group in enumerate(after.values(), 1):
            one = updates.changed(self._store.groups.get(group.name), group)
            if one is not None:
                found.append(one)
            if n % LOOK_SLICE == 0:
                await guard.pause(0)
        return found

    async def _heard(self, seq: int) -> None:
        """Until nobody shows any more what was before this commit."""
        begun = guard.monotonic()
        while True:
            late = [m for m in self._members.values() if m.serving and m.heard < seq]
            left = begun + HEARD_WITHIN - guard.monotonic()
            if late and left <= 0:
                for member in late:
                    self._fence(member, f"it has not heard of a change for {HEARD_WITHIN:g} s")
                continue
            away = self._away.left()
            if not late and away <= 0:
                return
            await self._stirred(min(left if late else away, away if away > 0 else left))

    def _on_commit(self, commit: Commit, _changed: Mapping[str, Group]) -> None:
        if commit.seq < self._last:
            return  # they go together
        self._told_seq, self._pending = commit.seq, []
        accepted = any(isinstance(put, ClockAccepted) for put in commit.puts)
        shown = frame(Shown(commit.seq, commit.at, commit.lost, accepted))
        for member in list(self._members.values()):
            if member.joined:
                self._send(member, shown)

    # A worker, from its first word to its last.

    async def attend(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pid: int | None = None
    ) -> None:
        """Returns when the line is broken. `pid` is its process, if that is one of this machine."""
        line: MessageStream[ToControl] = MessageStream(reader, writer, ToControl)
        member: Member | None = None
        informing: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(HEARD_WITHIN):
                hello = await line.hear(MAX_GREETING)
            if wrong := self._unwelcome(hello):
                line.say(Unwelcome(wrong))
                await line.drain()
                raise BrokenConnection(wrong)
            if self._closing:  # it would never hear a goodbye
                raise BrokenConnection("control is stopping")
            assert isinstance(hello, Hello)
            member = self._enter(line, hello, pid)
            informing = self._tasks.start(self._inform(member), f"informing worker {hello.worker}")
            await self._listen(member)
        except (BrokenConnection, TimeoutError) as error:
            why = str(error) or f"it has not said hello within {HEARD_WITHIN:g} s"
            who = {} if member is None else {"worker": member.number}
            if not self._closing:
                log.warning("a worker is no longer connected", why=why, **who)
        finally:
            if informing is not None:
                informing.cancel()
            if member is not None:
                self._leave(member)
            line.cut()

    def _unwelcome(self, hello: ToControl) -> str:
        if not isinstance(hello, Hello):
            return "a worker says hello first"
        if (hello.protocol, hello.version) != (PROTOCOL, __version__):
            return (
                f"this is forewarn {__version__} (protocol {PROTOCOL}), the worker is"
                f" {hello.version} (protocol {hello.protocol}); restart the whole service"
            )
        if hello.service != self._service:
            return (
                f"this is the service of {self._service or 'no state file'}, the worker is one of"
                f" {hello.service or 'none'}; give each service an upstream of its own"
            )
        if not 0 <= hello.worker < self._expected:
            return f"worker {hello.worker} is one too many; there are {self._expected}"
        return ""

    def _enter(self, line: MessageStream[ToControl], hello: Hello, pid: int | None) -> Member:
        if before := self._members.get(hello.worker):
            another = before.instance != hello.instance
            (self._fence if another else self._cut)(before, "another has taken its place")
        self._away.back(hello.worker, pid)
        line.say(Welcome(protocol=PROTOCOL, version=__version__, rules=self._upstream.now().rules))
        member = self._members[hello.worker] = Member(line, hello)
        self._tally.meet(hello.instance, counted_before=hello.serving)
        for framed in self._pending:
            self._send(member, framed)
        return member

    def _leave(self, member: Member) -> None:
        if self._members.get(member.number) is member:
            del self._members[member.number]
            if member.serving:
                self._away.lost(member.number)
        self._stir()

    def close(self) -> None:
        self._closing = True
        for member in list(self._members.values()):
            member.line.say(Goodbye())
            member.line.writer.close()
        self._away.close()

    async def _inform(self, member: Member) -> None:
        """All groups, then leave to show them as soon as nobody shows anything older."""
        line = member.line
        try:
            for groups in updates.stock(self._store.groups):
                line.say(groups)
                await line.drain()
                await guard.pause(0)
            line.say(SnapshotEnd(self._told_seq))
            await self._caught_up(member)
            while any(m.catching_up for m in self._members.values()):
                await self._stirred(HEARD_WITHIN)  # whoever informs them sees to it that they are
            while (left := self._away.left()) > 0:
                await self._stirred(left)
        except BrokenConnection:
            return  # whoever listens has noticed
        member.joined = member.serving = True
        now = self._upstream.now()
        self._send(member, frame(Shown(self._told_seq, now.at, now.lost, True)))
        log.info("a worker answers guests", worker=member.number)
        self._stir()

    async def _caught_up(self, member: Member) -> None:
        """It has been told everything, and has to say that it has heard it."""
        until = guard.monotonic() + HEARD_WITHIN
        while not member.whole:
            left = until - guard.monotonic()
            if left <= 0:
                says = f"it was told all groups, and has not heard of them for {HEARD_WITHIN:g} s"
                self._fence(member, says)
                raise BrokenConnection(says)
            await self._stirred(left)

    async def _listen(self, member: Member) -> None:
        while True:
            message = await member.line.hear()
            member.talked = True
            match message:
                case Held(seq=seq, whole=whole):
                    member.heard = max(member.heard, seq)
                    member.whole |= whole
                    self._stir()
                case Report():
                    self._calls.seen(message)
                case Pulse(shown=shown, readings=readings):
                    member.shown = shown or member.shown
                    self._tally.note(member.instance, readings)
                    self._tally.keep(m.instance for m in self._members.values())
                case Hello():
                    raise BrokenConnection("a second hello")
                case _:
                    self._calls.take(member, message)

    # Waiting for one another.

    def _stir(self) -> None:
        self._stirring.set()
        self._stirring = asyncio.Event()

    async def _stirred(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._stirring.wait()

    def _send(self, member: Member, framed: bytes) -> None:
        member.line.send(framed)
        if member.line.unsent > MAX_UNSENT:
            self._cut(member, "it does not take what it is told")

    def _fence(self, member: Member, why: str) -> None:
        """It may stand still, and go on at any time with what it showed before: so it is ended,
        and another starts in its place."""
        self._cut(member, why)
        self._away.end(member.number)

    def _cut(self, member: Member, why: str) -> None:
        """It starts over, with all groups."""
        log.warning("a worker is cut off", worker=member.number, why=why)
        self._leave(member)
        member.line.cut()


async def _framed(messages: Sequence[News]) -> list[bytes]:
    made: list[bytes] = []
    for message in messages:
        if made:
            await guard.pause(0)
        made.append(frame(message))
    return made
