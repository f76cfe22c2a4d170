"""A whole service in one loop, with everything that can go wrong in somebody's hands.

The disk and the pretended machines outlive the service; the service itself can be killed before
or after any commit, its driver's replies can be lost, and its clock stepped. What its guests ask
and are answered is recorded from their side.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from forewarn.core import Durations, Group
from forewarn.core.time import DAY, HOUR, SECOND, Time
from forewarn.core.windows.may_postpone import MayPostpone
from forewarn.drivers.port import (
    Again,
    Checked,
    Driver,
    Impact,
    Later,
    Observed,
    Performed,
    Running,
    Task,
)
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.metadata.endpoint.callers import Identity
from forewarn.metadata.endpoint.limits import Limits
from forewarn.node import Config, Node
from forewarn.node.dev import on_loopback, sample_fleet
from forewarn.service.engine.clock import Clock, VirtualClock
from forewarn.service.fleet.build import Fleet
from forewarn.service.telemetry.event_trace import EventTrace
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.store.port import Commit
from forewarn.testing.kit.inprocess import Response, exchange


def _with_postponing(fleet: Fleet) -> Fleet:
    """The owners of two groups may postpone what is announced to them."""
    groups = dict(fleet.groups)
    for name in ("sql", "web"):
        allowed = MayPostpone(total=2 * HOUR, times=2)
        policy = msgspec.structs.replace(groups[name].policy, may_postpone=allowed)
        groups[name] = msgspec.structs.replace(groups[name], policy=policy)
    return msgspec.structs.replace(fleet, groups=groups)


START: Time = 1_800_000_000 * SECOND
FLEET = _with_postponing(on_loopback(sample_fleet()))
MACHINES = {machine.name: machine.addresses[0] for machine in FLEET.machines}
GROUP_OF = {m.name: name for name, define in FLEET.groups.items() for m in define.machines}
RULES = Durations(silence=DAY)


class Killed(Exception):
    """The service died while it was asked."""


class Kill:
    """When to die: at which commit of a run, on which side of the disk, and how often."""

    def __init__(
        self, at_commit: int | None = None, *, before: bool = False, often: bool = False
    ) -> None:
        self.at_commit = at_commit
        self.before = before
        self._often = often

    def again(self, seq: int, chance: random.Random) -> None:
        if self._often:
            self.at_commit = seq + chance.randint(1, 12)
            self.before = chance.random() < 0.5


class MortalStore(MemoryStore):
    """A store that stops dead at a given commit; what was on disk by then stays."""

    def __init__(self, disk: Disk, kill: Kill) -> None:
        super().__init__(disk)
        self._kill = kill
        self.died = asyncio.Event()

    async def _persist(
        self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
    ) -> None:
        fatal = self._kill.at_commit is not None and commits[-1].seq >= self._kill.at_commit
        if not (fatal and self._kill.before):
            await super()._persist(commits, before, after)
        if fatal:
            self._kill.at_commit = None
            self.died.set()
            await asyncio.Event().wait()  # nobody ever hears of it


class TellingWorld(ImpactJournal):
    """Pretended machines that outlive the service, and tell what is done to them."""

    def __init__(self, note: Callable[..., None]) -> None:
        super().__init__()
        self._note = note
        # Attempts by event, since somebody last saw what has happened, and whether the reply came.
        self._unseen: dict[str, tuple[int, bool]] = {}

    def begin(self, task: Task) -> None:
        """Machines do not know what they went through: whoever acts without having looked first
        disturbs them once more."""
        attempt, replied = self._unseen.get(task.event, (0, True))
        impact = self.impact(task.event)
        if impact is not None and (attempt == task.attempt or not replied):
            self.add(impact)
        self._unseen[task.event] = task.attempt, False

    def reply(self, task: Task) -> None:
        self._unseen[task.event] = task.attempt, True

    def look(self, task: Task) -> None:
        self._unseen.pop(task.event, None)

    def add(self, impact: Impact) -> None:
        super().add(impact)
        machines = list(impact.machines)
        self._note("impact", event=impact.event, type=impact.type, machines=machines)


class LossyDriver(Driver):
    """Does what it is asked, but now and then its reply is lost, it fails first, or its connection
    is lost for up to an hour."""

    repeatable = True

    def __init__(self, world: TellingWorld, chance: random.Random) -> None:
        self._world = world
        self._inner = SimulatedDriver(world, RULES.paced)
        self._chance = chance
        self._lost_until = 0
        self._running: set[str] = set()  # events

    async def check(self, task: Task) -> Checked:
        return await self._inner.check(task)

    async def observe(self, task: Task) -> Observed:
        if task.now < self._lost_until:
            return Later(None, "the connection is lost")
        seen = await self._inner.observe(task)
        self._world.look(task)
        return seen

    async def perform(self, task: Task) -> Performed:
        fate = self._chance.random()
        if fate < 0.05:
            raise ConnectionError("could not reach the host")
        if task.event not in self._running:
            self._world.begin(task)
        self._running.discard(task.event)
        done = await self._inner.perform(task)
        if fate < 0.08:
            self._lost_until = task.now + RULES.paced(self._chance.randint(0, HOUR))
        if fate < 0.15:
            raise ConnectionError("the reply was lost")
        if isinstance(done, Again) and fate > 0.5:
            self._running.add(task.event)
            return Running(done.at - task.now, f"until {done.at}")
        self._world.reply(task)
        return done


class Simulation:
    fleet = FLEET

    def __init__(self, seed: int, kill: Kill) -> None:
        self.chance = random.Random(seed)
        self.kill = kill
        self.trace: list[dict[str, Any]] = []
        self.disk = Disk()
        self.world = TellingWorld(self.note)
        self.at = START
        self.deaths = 0
        self._ids = random.Random(seed + 1)
        self._stamps = 0
        self._reported = 0
        self.node: Node
        self.store: MortalStore

    def new_id(self) -> str:
        return str(uuid.UUID(int=self._ids.getrandbits(128), version=4)).upper()

    def stamp(self) -> float:
        """The time, and no two alike: what was done one after the other shows as such."""
        self._stamps += 1
        clock = self.node.clock
        at = clock.at if isinstance(clock, VirtualClock) else self.at
        return (max(at, self.at) + self._stamps) / SECOND

    def note(self, kind: str, **fields: Any) -> None:
        self.trace.append({"kind": kind, "t": self.stamp(), **fields})

    def _tracing(self) -> EventTrace:
        def emit(record: dict[str, Any]) -> None:
            self._stamps += 1
            self.trace.append({**record, "t": record["t"] + self._stamps / SECOND})

        return EventTrace(emit, RULES)

    def follow(self) -> None:
        """Record what the service decides without being asked over the wire."""
        trace = self._recorder = self._tracing()
        for commit in self.disk.commits[self._reported :]:  # on disk, but nobody lived to tell
            trace.on_commit(commit, self.disk.groups)
        self._reported = len(self.disk.commits)
        trace.follow(self.store, self.node.clock)
        self.store.on_commit(self._count)

    def _count(self, commit: Commit, _changed: Mapping[str, Group]) -> None:
        self._reported = commit.seq

    def make_clock(self) -> Clock:
        return VirtualClock(self.at)

    def make_driver(self) -> Driver:
        return LossyDriver(self.world, self.chance)

    async def start(self) -> None:
        while True:
            self.store = MortalStore(self.disk, self.kill)
            self.node = Node(
                Config(fleet=self.fleet, rules=RULES, identity=Identity.TARGET, limits=Limits()),
                store=self.store,
                clock=self.make_clock(),
                driver=self.make_driver(),
                new_id=self.new_id,
            )
            self.follow()
            try:
                await self.surviving(self.node.__aenter__())
                break
            except Killed:
                await self.end_processes()
        self.see_time()
        self.note("up", engine="memory")
        self._recorder.state(self.store, self.at)

    async def end_processes(self) -> None:
        """The process is gone: nothing of it runs on, and nothing is put in order."""
        self.deaths += 1
        self.kill.again(len(self.disk.commits), self.chance)
        mine = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not mine]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        """In good order: everything is put away, and everybody is told."""
        await self.surviving(self.node.__aexit__(None, None, None))
        self.note("down")

    async def restart(self, away: int) -> None:
        self.at += away
        await self.start()

    async def surviving(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result, or Killed if the service dies first."""
        loop = asyncio.get_running_loop()
        task, death = loop.create_task(work), loop.create_task(self.store.died.wait())
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            death.cancel()
            return task.result()
        raise Killed

    def see_time(self) -> None:
        clock = self.node.clock
        assert isinstance(clock, VirtualClock)
        self.at = clock.at

    async def advance(self, by: int) -> None:
        await self.surviving(self.node.advance(self.at + by))
        self.see_time()

    async def step(self, by: int) -> None:
        """The wall clock jumps."""
        clock = self.node.clock
        assert isinstance(clock, VirtualClock)
        clock.interrupt("the wall clock was stepped", by)
        self.see_time()
        await self.surviving(self.node.ledger.idle())

    async def ask(self, machine: str, method: str, version: str, body: bytes = b"") -> Any:
        """One exchange as this machine, recorded whether it is answered or not."""
        record, asking = self.request(self.node, machine, method, version, body)
        try:
            fill_in(record, await self.surviving(asking))
        finally:
            self.trace.append({**record, "t": self.stamp()})
        return record

    def request(
        self, node: Node, machine: str, method: str, version: str, body: bytes = b""
    ) -> tuple[dict[str, Any], Coroutine[Any, Any, Response]]:
        """A request to this node as this machine, and its record as long as there is no answer."""
        target = f"/metadata/scheduledevents?api-version={version}"
        record: dict[str, Any] = {
            "kind": "exchange",
            "asked": self.stamp(),
            "machine": machine,
            "from": MACHINES[machine],
            "method": method,
            "target": target,
            "headers": [["Metadata", "true"]],
            "body": body.decode(),
            "status": None,
            "answer_headers": [],
            "answer": "",
        }
        headers = {"Metadata": "true"}
        return record, exchange(node.app, MACHINES[machine], method, target, headers, body)


def fill_in(record: dict[str, Any], answer: Response) -> None:
    """Write the answer into the record of an exchange."""
    record["status"], record["answer"] = answer.status, answer.body.decode()
    record["answer_headers"] = [[n, v] for n, v in answer.headers.items()]
