"""A driver process: has the driver of its hosts do what control asks for.

What it has begun goes on without a connection; control observes it on the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from forewarn import __version__
from forewarn.drivers.hosts.answers import refused, shortened
from forewarn.drivers.hosts.fences import Fences
from forewarn.drivers.hosts.messages import (
    ANSWERS,
    DRIVER_PROTOCOLS,
    MAX_TEXT,
    PING_EVERY,
    Answer,
    Answered,
    Ask,
    DriverHello,
    DriverPing,
    DriverRefused,
    DriverRenew,
    DriverRenewed,
    DriverWelcome,
    Progressed,
    Raised,
    ToDriver,
    Verb,
)
from forewarn.drivers.port import Driver, Failed, Seen, Task
from forewarn.drivers.watching import keep_watching
from forewarn.support import guard
from forewarn.support.control_follower import QUIET, SILENT, ControlFollower, Dial, problem_of
from forewarn.support.logs import logger
from forewarn.support.message_stream import BrokenConnection, MessageStream

WATCH_EVERY = 0.5  # seconds between two looks at the connection
# Seconds after which it is sent again that a complete enumeration has found the same machines.
ENUMERATED_EVERY = 20.0

log = logger("forewarn")


class DriverProcess(ControlFollower[DriverWelcome]):
    def __init__(
        self,
        name: str,
        driver: Driver,
        hosts: Sequence[str],
        dials: Sequence[Dial],
        fences: Fences,
        at_once: int,
    ) -> None:
        super().__init__(dials, ",".join(hosts))
        self.problem = "it has not been reached yet"
        self._name = name
        self._driver = driver
        self._hosts = tuple(hosts)
        self._fences = fences
        self._slots = asyncio.Semaphore(at_once)
        self._events: dict[str, tuple[asyncio.Lock, int]] = {}  # and how many calls use the lock
        self._tasks = guard.Tasks(_log_failed_task)
        self._stream: MessageStream[ToDriver] | None = None  # of the control node that it works for
        self._calls: dict[str, tuple[MessageStream[ToDriver], int]] = {}  # under way, by event
        self.seen: dict[str, Seen] = {}  # by host: its machines, as far as they are known
        self._enumerated: dict[str, float] = {}  # by host: when they were sent, all of them
        self._heard = 0.0  # when control sent something last, in boot time
        self.on_seen: Callable[[Sequence[Seen]], None] = lambda _: None  # called with all there is
        self.on_status: Callable[[], None] = lambda: None  # called when `problem` has changed

    def may_act(self) -> bool:
        """Return whether the process works for a control node at present."""
        return self._stream is not None

    def report(self, event: str, progress: str) -> None:
        """Report how far a task is that is being carried out."""
        stream, id = self._calls.get(event, (None, 0))
        if stream is not None:
            stream.send(Progressed(id, progress[:MAX_TEXT]))

    async def run(self) -> None:
        """Work for control until cancelled. The driver is open."""
        self._tasks.start(keep_watching(self._driver, self._note_seen), "the driver's watch")
        self._tasks.start(self._watch(), "signs of life")
        try:
            await super().run()
        finally:
            await self._tasks.end()

    # The connection.

    def _hello(self) -> DriverHello:
        return DriverHello(
            protocols=DRIVER_PROTOCOLS,
            version=__version__,
            hosts=self._hosts,
            driver=self._name,
            repeatable=self._driver.repeatable,
            works=self._driver.works,
            term=self._term,
            instance=self._instance,
        )

    def _welcomed(self, greeting: ToDriver) -> DriverWelcome:
        match greeting:
            case DriverWelcome(term=term):
                self._note_term(term)
                return greeting
            case DriverRefused(reason=reason):
                raise BrokenConnection(f"it refuses this process: {reason}")
            case _:
                raise BrokenConnection("it did not answer the hello")

    async def _follow(self, stream: MessageStream[ToDriver], _: DriverWelcome) -> None:
        self._stream, self._heard = stream, guard.boottime()
        self._unreachable.reset()
        self._note("")
        log.info("control accepts this driver process", hosts=list(self._hosts))
        try:
            for seen in self.seen.values():
                stream.send(seen)
            while True:
                message = await stream.receive()
                self._heard = guard.boottime()
                match message:
                    case Ask():
                        self._tasks.start(self._take(message, stream), "a call of the driver")
                    case DriverRenewed():
                        self.on_renewed(message)
        finally:
            self._stream = None

    async def _watch(self) -> None:
        """Send signs of life, and give up a connection on which nothing comes."""
        pinged = 0.0
        while True:
            await guard.pause(WATCH_EVERY)
            now = guard.boottime()
            self._note_silence(self._stream is not None and now - self._heard >= SILENT)
            if self._stream is None:
                continue
            if now - self._heard >= QUIET:
                self._stream.cut()
            elif now - pinged >= PING_EVERY:
                pinged = now
                self._stream.send(DriverPing())
                if self.wants_renewal():
                    self._stream.send(DriverRenew())

    def _note_failure(self, error: Exception) -> None:
        why = problem_of(error)
        if self._unreachable.record() or isinstance(error, ssl.SSLCertVerificationError):
            log.warning("control cannot be reached", hosts=list(self._hosts), why=why)
        self._note(why)

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self.on_status()

    # The machines.

    def _note_seen(self, seen: Seen) -> None:
        """Pass on what the driver reports. Raises ValueError if it is not about this process, and
        ValidationError if control would not accept it."""
        if seen.host not in self._hosts:
            raise ValueError(f"it reports about host '{seen.host}', {self._own_hosts}")
        msgspec.msgpack.decode(msgspec.msgpack.encode(seen), type=Seen)
        earlier, now = self.seen.get(seen.host, Seen(host=seen.host)), guard.monotonic()
        after = seen.after(earlier)
        again = self._enumerated.get(seen.host, 0.0) + ENUMERATED_EVERY
        if after == earlier and not (seen.whole and now >= again):
            return
        self.seen[seen.host] = after
        if seen.whole:
            self._enumerated[seen.host] = now
        self.on_seen(list(self.seen.values()))
        if self._stream is not None:
            self._stream.send(seen)

    # The calls.

    async def _take(self, ask: Ask, stream: MessageStream[ToDriver]) -> None:
        async with self._turn(ask), self._slots:
            if stream is not self._stream:
                return  # nobody waits for the answer
            if ask.verb is not Verb.CHECK:
                self._calls[ask.task.event] = stream, ask.id
            try:
                given = await self._answer(ask)
                if not isinstance(given, ANSWERS[ask.verb]):
                    raise TypeError(f"{ask.verb} answered {given!r}")
                answer: Answered | Raised = Answered(ask.id, shortened(given))
            except Exception as error:  # of the driver, whatever it raises
                why = f"{type(error).__name__}: {error}"
                log.warning("the driver raised an error", event_id=ask.task.event, why=why)
                answer = Raised(ask.id, why[:MAX_TEXT])
            finally:
                if self._calls.get(ask.task.event) == (stream, ask.id):
                    del self._calls[ask.task.event]
        stream.send(answer)

    @contextlib.asynccontextmanager
    async def _turn(self, ask: Ask) -> AsyncIterator[None]:
        """Wait until no other call for the event is under way; a check waits for none."""
        if ask.verb is Verb.CHECK:
            yield
            return
        event = ask.task.event
        lock, users = self._events.get(event, (asyncio.Lock(), 0))
        self._events[event] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._events.pop(event)
            if users > 1:
                self._events[event] = lock, users - 1

    async def _answer(self, ask: Ask) -> Answer:
        task = ask.task
        if problem := self._problem(task):
            return refused(ask.verb, problem)
        if ask.verb is Verb.CHECK:
            return await self._driver.check(task)
        # Work, and the maintenance of a host without machines, are about the host.
        names = [machine.name for machine in task.machines] or [f"{task.host}/"]
        try:
            higher = await self._fences.admit(task.event, names, task.fence)
        except OSError as error:
            return refused(ask.verb, f"its fence number cannot be stored: {error.strerror}")
        if ask.verb is Verb.OBSERVE:  # which is harmless, also if it is late
            return await self._driver.observe(task)
        if higher:
            return Failed(
                f"the call has the fence number {task.fence}, and one with {higher} came before it"
            )
        return await self._driver.perform(task)

    def _problem(self, task: Task) -> str:
        """Return why a task is not for this process, or ""."""
        for machine in task.machines:
            if not {machine.host, machine.target} & set(self._hosts):
                return f"machine '{machine.name}' is on host '{machine.host}', {self._own_hosts}"
        if not task.machines and task.host not in self._hosts:
            return f"the task is about host '{task.host}', {self._own_hosts}"
        if task.work and not self._driver.works:
            return f"the driver '{self._name}' does no work on empty hosts"
        return ""

    @property
    def _own_hosts(self) -> str:
        return f"and this is the driver process of {', '.join(self._hosts)}"


def _log_failed_task(name: str, error: BaseException) -> None:
    log.error("a background task failed", task=name, exc_info=error)
