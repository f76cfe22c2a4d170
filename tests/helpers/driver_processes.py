"""Control's driver `hosts` and driver processes in one loop, with a driver that pretends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from forewarn.core import EventType, Source
from forewarn.core.time import SECOND
from forewarn.drivers.hosts.answers import moves
from forewarn.drivers.hosts.driver import HostsDriver
from forewarn.drivers.hosts.fences import Fences
from forewarn.drivers.hosts.messages import Answer, FromDriver, ToDriver, Verb
from forewarn.drivers.hosts.process import DriverProcess
from forewarn.drivers.port import (
    Checked,
    Done,
    Driver,
    DriverContext,
    Happened,
    MachineState,
    NotYet,
    Observed,
    Ok,
    Performed,
    Seen,
    SeenMachine,
    Task,
    TaskMachine,
)
from forewarn.support import guard
from forewarn.support.message_stream import MessageStream
from helpers.waiting import LIMIT, until_async

EVENT = "4C0A5A60-0000-4000-8000-000000000001"
START = 1_800_000_000 * SECOND


def machine(name: str, host: str, target: str = "", *, failed: bool = False) -> TaskMachine:
    return TaskMachine(name, host, target=target, host_failed=failed)


def task(
    *machines: TaskMachine,
    type: EventType = EventType.REBOOT,
    event: str = EVENT,
    fence: int = 1,
    **fields: object,
) -> Task:
    plain = Task(
        event=event,
        group="web",
        type=type,
        source=Source.PLATFORM,
        machines=machines,
        known_hosts=frozenset({"h1", "h2", "h3"}),
        attempt=1,
        fence=fence,
        started_at=START,
        now=START,
    )
    return msgspec.structs.replace(plain, **fields)


class PretendingDriver(Driver):
    """Carries everything out at once, unless it has another answer, or does not `go` on."""

    works = True
    repeatable = False

    def __init__(self, done: dict[str, dict[str, str]] | None = None) -> None:
        self.calls: list[tuple[Verb, tuple[str, ...], int]] = []
        self.answers: dict[Verb, Answer | Exception] = {}
        self.done = {} if done is None else done  # hosts by machine, by event
        self.go = asyncio.Event()
        self.go.set()
        self.at_work = 0
        self.most_at_work = 0

    async def _called(self, verb: Verb, task: Task) -> Answer | None:
        self.calls.append((verb, tuple(m.name for m in task.machines), task.fence))
        self.at_work += 1
        self.most_at_work = max(self.at_work, self.most_at_work)
        try:
            if verb is not Verb.CHECK:
                await self.go.wait()
        finally:
            self.at_work -= 1
        answer = self.answers.get(verb)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def check(self, task: Task) -> Checked:
        return await self._called(Verb.CHECK, task) or Ok()  # type: ignore[return-value]

    async def perform(self, task: Task) -> Performed:
        answer = await self._called(Verb.PERFORM, task)
        if answer is not None:
            return answer  # type: ignore[return-value]
        moved = {m.name: m.target for m in task.machines if moves(task)}
        self.done.setdefault(task.event, {}).update(
            {m.name: moved.get(m.name, m.host) for m in task.machines}
        )
        return Done(moved)

    async def observe(self, task: Task) -> Observed:
        answer = await self._called(Verb.OBSERVE, task)
        if answer is not None:
            return answer  # type: ignore[return-value]
        where = self.done.get(task.event, {})
        if not all(machine.name in where for machine in task.machines):
            return NotYet()
        return Happened({m.name: where[m.name] for m in task.machines if moves(task)})

    def performed(self) -> list[tuple[str, ...]]:
        return [names for verb, names, _ in self.calls if verb is Verb.PERFORM]


def seen(*names: str, host: str = "h1", whole: bool = True, removed: tuple[str, ...] = ()) -> Seen:
    machines = tuple(SeenMachine(name=name, state=MachineState.RUNNING) for name in names)
    return Seen(host=host, machines=machines, whole=whole, removed=removed)


class WatchingDriver(PretendingDriver):
    """Reports what it is given, and raises errors that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: asyncio.Queue[Seen | Exception] = asyncio.Queue()
        self.watches = 0
        self.report: Callable[[Seen], None] | None = None  # once it watches

    async def watch(self, report: Callable[[Seen], None]) -> None:
        self.watches += 1
        self.report = report
        while True:
            given = await self.reports.get()
            if isinstance(given, Exception):
                raise given
            report(given)


class Fleet:
    """Control, and the processes that are connected to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.woken: list[str] = []
        self.progress: list[tuple[str, str]] = []
        self.tasks = guard.Tasks()
        self.term = 0
        self.cut_off: set[str] = set()  # hosts from which nothing can be dialled
        self.processes: dict[str, DriverProcess] = {}  # by their first host
        self.start_control()

    def start_control(self) -> None:
        """Start another control, as after a crash."""
        self.driver = HostsDriver(
            DriverContext(
                wake=self.woken.append,
                on_progress=lambda *progress: self.progress.append(progress),
                term=lambda: self.term,
            )
        )
        self.connections = self.driver.connections
        self.tasks.start(self.connections.watch(), "watch")

    async def dial(self, *hosts: str) -> MessageStream[ToDriver]:
        """Connect with a certificate for these hosts."""
        if self.cut_off.intersection(hosts):
            raise OSError("the network is cut")
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        _, stream = await loop.create_connection(
            lambda: MessageStream[FromDriver](FromDriver), sock=ours
        )
        self.tasks.start(self.connections.serve(stream, hosts, b""), "serving")
        _, other = await loop.create_connection(
            lambda: MessageStream[ToDriver](ToDriver), sock=theirs
        )
        return other

    @asynccontextmanager
    async def process(
        self,
        *hosts: str,
        driver: Driver | None = None,
        certificate: tuple[str, ...] = (),
        at_once: int = 16,
    ) -> AsyncIterator[PretendingDriver]:
        """Run a driver process, and return when control has accepted it."""
        driver = driver or PretendingDriver()
        with fences(self.directory / "-".join(hosts)) as kept:
            names = certificate or hosts
            dials = [lambda: self.dial(*names)]
            process = DriverProcess("pretending", driver, hosts, dials, kept, at_once)
            self.processes[hosts[0]] = process
            running = self.tasks.start(process.run(), "process")
            try:
                if not certificate:
                    await until_async(lambda: self.connections.of(hosts[0]) is not None)
                yield driver  # type: ignore[misc]
            finally:
                running.cancel()
                await asyncio.wait([running])
                if not certificate:
                    await until_async(lambda: self.connections.of(hosts[0]) is None)


@contextmanager
def fences(directory: Path) -> Iterator[Fences]:
    directory.mkdir(exist_ok=True)
    kept = Fences(directory)
    try:
        yield kept
    finally:
        kept.close()


@asynccontextmanager
async def fleet(directory: Path) -> AsyncIterator[Fleet]:
    running = Fleet(directory)
    try:
        yield running
    finally:
        await running.driver.aclose()
        await running.tasks.end()


def play(directory: Path, body: Callable[[Fleet], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT), fleet(directory) as running:
            await body(running)

    asyncio.run(limited())
