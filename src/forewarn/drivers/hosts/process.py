"""A driver process: has the driver of its hosts do what control asks for.

It dials all control nodes, and works for the first that accepts it, or for another one while that
is silent. What it has begun goes on without a connection; control observes it on the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from forewarn import __version__
from forewarn.drivers.hosts.answers import refused, shortened
from forewarn.drivers.hosts.fences import Fences
from forewarn.drivers.hosts.messages import (
    ANSWERS,
    DRIVER_PROTOCOLS,
    MAX_TEXT,
    PING_EVERY,
    QUIET,
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
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger
from forewarn.support.message_stream import BrokenConnection, MessageStream

MIN_DIAL_PAUSE, MAX_DIAL_PAUSE = 0.05, 1.0  # seconds between two attempts to reach control
GREETED_WITHIN = 10.0  # seconds in which control has to answer a hello
SILENT = 4.0  # seconds without a message, after which other control nodes are dialled
WATCH_EVERY = 0.5  # seconds between two looks at the connection
# Seconds after which it is sent again that a complete enumeration has found the same machines.
ENUMERATED_EVERY = 20.0
LOG_AFTER, LOG_EVERY = 5.0, 30.0  # seconds without control before it is logged, and between records

Dial: TypeAlias = Callable[[], Awaitable[MessageStream[ToDriver]]]

log = logger("forewarn")


class DriverProcess:
    def __init__(
        self,
        name: str,
        driver: Driver,
        hosts: Sequence[str],
        dials: Sequence[Dial],
        fences: Fences,
        at_once: int,
    ) -> None:
        self._name = name
        self._driver = driver
        self._hosts = tuple(hosts)
        self._dials = dials
        self._fences = fences
        self._instance = uuid.uuid4().hex
        self._slots = asyncio.Semaphore(at_once)
        self._events: dict[str, tuple[asyncio.Lock, int]] = {}  # and how many calls use the lock
        self._tasks = guard.Tasks(_log_failed_task)
        self._greeting = asyncio.Lock()
        self._stream: MessageStream[ToDriver] | None = None  # of the control node that it works for
        self._calls: dict[str, tuple[MessageStream[ToDriver], int]] = {}  # under way, by event
        self.seen: dict[str, Seen] = {}  # by host: its machines, as far as they are known
        self._enumerated: dict[str, float] = {}  # by host: when they were sent, all of them
        self._heard = 0.0  # when control sent something last, in boot time
        self._term = 0  # the highest of a control node that it has worked for
        self._unreachable = LogThrottle(LOG_EVERY, first_after=LOG_AFTER)
        self.problem = "it has not been reached yet"  # why there is no connection; empty: there is
        self.wants_renewal: Callable[[], bool] = lambda: False  # of the certificate
        self.on_renewed: Callable[[DriverRenewed], None] = lambda _: None
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
        loops = guard.Tasks()
        self._tasks.start(keep_watching(self._driver, self._note_seen), "the driver's watch")
        try:
            running = [loops.start(self._watch(), "signs of life")]
            running += [loops.start(self._keep_connected(d), "control") for d in self._dials]
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task  # raises why it has ended
        finally:
            await loops.end()
            await self._tasks.end()

    # The connection.

    @property
    def _needs_control(self) -> bool:
        return self._stream is None or guard.boottime() - self._heard >= SILENT

    async def _keep_connected(self, dial: Dial) -> None:
        pause = MIN_DIAL_PAUSE
        while True:
            if self._needs_control:
                try:
                    stream = await dial()
                    try:
                        if await self._is_accepted(stream):
                            pause = MIN_DIAL_PAUSE
                            await self._follow(stream)
                    finally:
                        stream.cut()
                except (BrokenConnection, OSError, TimeoutError) as error:
                    self._note_failure(error)
            await guard.pause(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, MAX_DIAL_PAUSE)

    async def _is_accepted(self, stream: MessageStream[ToDriver]) -> bool:
        """Return whether to work for this control node from now on. Raises BrokenConnection."""
        async with self._greeting:  # two addresses may lead to the same control node
            if not self._needs_control:
                return False
            stream.send(
                DriverHello(
                    protocols=DRIVER_PROTOCOLS,
                    version=__version__,
                    hosts=self._hosts,
                    driver=self._name,
                    repeatable=self._driver.repeatable,
                    works=self._driver.works,
                    term=self._term,
                    instance=self._instance,
                )
            )
            async with asyncio.timeout(GREETED_WITHIN):
                greeting = await stream.receive()
            match greeting:
                case DriverWelcome(term=term) if term >= self._term:
                    self._term = term
                case DriverWelcome(term=term):
                    raise BrokenConnection(f"it is of term {term}; there was {self._term} before")
                case DriverRefused(reason=reason):
                    raise BrokenConnection(f"it refuses this process: {reason}")
                case _:
                    raise BrokenConnection("it did not answer the hello")
            if self._stream is not None:
                self._stream.cut()
            self._stream, self._heard = stream, guard.boottime()
            self._unreachable.reset()
            self._note("")
            log.info("control accepts this driver process", hosts=list(self._hosts))
            for seen in self.seen.values():
                stream.send(seen)
            return True

    async def _follow(self, stream: MessageStream[ToDriver]) -> None:
        try:
            while True:
                message = await stream.receive()
                self._heard = guard.boottime()
                match message:
                    case Ask():
                        self._tasks.start(self._take(message, stream), "a call of the driver")
                    case DriverRenewed():
                        self.on_renewed(message)
        finally:
            if self._stream is stream:
                self._stream = None

    async def _watch(self) -> None:
        """Send signs of life, and give up a connection on which nothing comes."""
        pinged = 0.0
        while True:
            await guard.pause(WATCH_EVERY)
            now = guard.boottime()
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
        if self._stream is not None:
            return
        why = getattr(error, "verify_message", "") or getattr(error, "strerror", "") or str(error)
        why = why or "it does not answer"
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
