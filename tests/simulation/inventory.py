"""Lives of a fleet whose inventory follows: machines are moved, defined, undefined and killed
behind control's back, while events are carried out on them, hosts cannot be reached, what watches
them hangs, and control is started again.

The hypervisors are simulated, and watched as libvirt is; driver processes, control and what is
between them are real, but for the network and the time. What follows is read from the commits.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest

from forewarn.core import EventType, Group, Status
from forewarn.core.changes import MachinePut, MachineRemoved
from forewarn.core.time import SECOND
from forewarn.drivers.hosts import connections as connections_module
from forewarn.drivers.hosts import process as process_module
from forewarn.drivers.hosts.answers import moves
from forewarn.drivers.hosts.driver import HostsDriver
from forewarn.drivers.hosts.fences import Fences
from forewarn.drivers.hosts.messages import FromDriver, ToDriver
from forewarn.drivers.hosts.process import DriverProcess
from forewarn.drivers.port import (
    Checked,
    Done,
    Driver,
    Happened,
    MachineState,
    NotYet,
    Observed,
    Ok,
    Performed,
    Seen,
    SeenMachine,
    Task,
)
from forewarn.drivers.registry import DriverConfig
from forewarn.node import Config, Node
from forewarn.service.engine.clock import RealClock
from forewarn.service.fleet import follow
from forewarn.service.fleet.read import parse
from forewarn.service.fleet.removal_limit import RemovalLimit
from forewarn.service.telemetry import health
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.store.port import Commit
from forewarn.support import guard
from forewarn.support.message_stream import MessageStream
from simulation.host_lines import CANNOT_CONNECT, End, HostLoop, Link
from simulation.world import START

HOSTS = ("h1", "h2", "h3")
MACHINES = [f"web_{number}" for number in range(6)]
FLEET = parse(
    f"hosts: [{', '.join(HOSTS)}]\ngroups:\n  - name: web\n    kind: availability-set\n"
    "    machines:\n"
    + "".join(
        f"      - {{name: {name}, update_domain: {n % 2}, address: 10.0.0.{n},"
        f" host: {HOSTS[n % 3]}}}\n"
        for n, name in enumerate(MACHINES[:4])
    )
    + "  - {name: db, kind: standalone, machines: [{name: db, address: 10.0.0.9, host: h3}]}\n"
)
NAMES = [*MACHINES, "db"]
MOST_REMOVED = 2  # in an hour, which is shorter here
AN_HOUR = 200.0
ENUMERATE = 30.0  # seconds between two looks at all domains
BY = "driver of "

RUNNING, STOPPED = MachineState.RUNNING, MachineState.STOPPED
PAUSED, CRASHED = MachineState.PAUSED, MachineState.CRASHED
ACTIVE = RUNNING, PAUSED


class Hypervisor(Driver):
    """A host, the domains on it, and what watches them and carries events out."""

    repeatable = True

    def __init__(self, host: str, all: Mapping[str, Hypervisor], chance: random.Random) -> None:
        self.host = host
        self.domains: dict[str, MachineState] = {}
        self.hung_until = 0.0  # the watch, in the time of the loop
        self._all = all
        self._chance = chance
        self._changed: set[str] = set()
        self._left: set[str] = set()  # domains that have migrated away
        self._woken = asyncio.Event()
        self._known: dict[str, SeenMachine] = {}

    def set(self, name: str, state: MachineState | None, *, left: bool = False) -> None:
        """Change a domain, or remove it."""
        if state is None:
            del self.domains[name]
        else:
            self.domains[name] = state
        self._changed.add(name)
        if left:
            self._left.add(name)
        self._woken.set()

    # The watch.

    async def watch(self, report: Callable[[Seen], None]) -> None:
        enumerate_at = 0.0
        while True:
            if guard.monotonic() >= enumerate_at:
                self._changed.clear()
                report(await self._enumerate())
                enumerate_at = guard.monotonic() + ENUMERATE
            elif self._changed:
                report(await self._look())
            self._woken.clear()
            if not self._changed:
                try:
                    async with asyncio.timeout(max(enumerate_at - guard.monotonic(), 0)):
                        await self._woken.wait()
                except TimeoutError:
                    pass
            await guard.pause(0.05)

    async def _answer(self) -> dict[str, MachineState]:
        """Return the domains, late if the watch hangs: as they were then, or as they are now."""
        before = dict(self.domains)
        while guard.monotonic() < self.hung_until:
            await guard.pause(1.0)
        return before if self._chance.random() < 0.5 else dict(self.domains)

    async def _enumerate(self, removed: Collection[str] = ()) -> Seen:
        self._known = {n: seen(n, state) for n, state in (await self._answer()).items()}
        machines = tuple(self._known.values())
        return Seen(host=self.host, machines=machines, whole=True, removed=tuple(removed))

    async def _look(self) -> Seen:
        names, self._changed = self._changed, set()
        before = set(self._left)
        there = await self._answer()
        found = {name: seen(name, there[name]) for name in sorted(names & there.keys())}
        gone = {name for name in names - there.keys() if self._known.pop(name, None)}
        self._known |= found
        left = gone & self._left
        self._left -= left | {n for n, of in found.items() if of.state in ACTIVE and n in before}
        if left:
            return await self._enumerate(gone - left)
        return Seen(host=self.host, machines=tuple(found.values()), removed=tuple(sorted(gone)))

    # The events.

    async def check(self, task: Task) -> Checked:
        return Ok()

    async def observe(self, task: Task) -> Observed:
        if not moves(task):
            return Happened()
        where = {machine.name: self._where(machine.name) for machine in task.machines}
        if any(where[machine.name] in ("", machine.host) for machine in task.machines):
            return NotYet()
        return Happened(where)

    def _where(self, name: str) -> str:
        return next((h for h, of in self._all.items() if of.domains.get(name) in ACTIVE), "")

    async def perform(self, task: Task) -> Performed:
        moved = {}
        for machine in task.machines:
            name, target = machine.name, machine.target
            if name not in self.domains:
                continue
            self.set(name, STOPPED)
            await self._take_time()
            if name not in self.domains:  # somebody has removed it meanwhile
                continue
            if task.type.traits.deletes:
                self.set(name, None)
            elif moves(task) and target and name not in self._all[target].domains:
                self._all[target].set(name, RUNNING)
                self.set(name, None)
                moved[name] = target
            else:
                self.set(name, RUNNING)
            await self._take_time()
        return Done(moved)

    async def _take_time(self) -> None:
        await guard.pause(self._chance.choice([0.0, 1.0, 40.0]))


def seen(name: str, state: MachineState) -> SeenMachine:
    group = "db" if name == "db" else "web"
    address = f"10.0.0.{NAMES.index(name)}" if name != "db" else "10.0.0.9"
    return SeenMachine(name=name, state=state, group=group, addresses=(address,))


class Inventory:
    """The fleet, and what is wrong with what was made of its inventory."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        self.directory = directory
        self.findings: list[str] = []
        self.moves = self.removals = self.additions = 0
        self.hypervisors: dict[str, Hypervisor] = {}
        for host in HOSTS:
            self.hypervisors[host] = Hypervisor(host, self.hypervisors, self.chance)
        self.links = {host: Link(host, self.chance) for host in HOSTS}
        self.undefined: set[tuple[str, str]] = set()  # hosts and names, by somebody's hand
        self.node: Node
        self._disk = Disk()
        self._groups: dict[str, Group] = {}
        self._serves = False
        self._removed_at: list[float] = []
        self._tasks = guard.Tasks()

    async def life(self, steps: int) -> None:
        for define in FLEET.groups.values():
            for machine in define.machines:
                self.hypervisors[machine.host].domains[machine.name] = RUNNING
        await self._start()
        for host, driver in self.hypervisors.items():
            directory = Path(tempfile.mkdtemp(dir=self.directory))
            dials = [lambda host=host: self._dial(host)]
            fences = Fences(directory)
            process = DriverProcess("simulated", driver, (host,), dials, fences, 16)
            self._tasks.start(process.run(), host)
        await guard.pause(5.0)
        for _ in range(steps):
            await self._something()
            await guard.pause(self.chance.choice([0.0, 0.02, 0.3, 2.0, 20.0, 70.0]))
        await self._settle()
        self._compare()
        await self._tasks.end()
        await self.node.__aexit__(None, None, None)

    # Control.

    async def _start(self) -> None:
        clock = RealClock(guard.wall_us, guard.boottime_us)
        config = Config(
            fleet=FLEET if not self._disk.commits else None,
            inventory="follow",
            restart_crashed=True,
            removal_limit=RemovalLimit(machines=MOST_REMOVED),
            driver=DriverConfig("hosts"),
        )
        self.node = Node(config, store=MemoryStore(self._disk), clock=clock)
        await self.node.__aenter__()
        sightings = self.node.host_index.sightings
        self.driver.on_change = lambda hello, _: sightings.lost(hello.hosts)
        self._serves = True
        self._groups = dict(self.node.store.groups)
        self._removed_at.clear()
        self.node.store.on_commit(self._read)

    @property
    def driver(self) -> HostsDriver:
        assert isinstance(self.node.driver, HostsDriver)
        return self.node.driver

    async def _dial(self, host: str) -> MessageStream[ToDriver]:
        link = self.links[host]
        if not link.works or not self._serves:
            await guard.pause(CANNOT_CONNECT)
            raise OSError("control cannot be reached")

        def serve(end: End) -> None:
            stream: MessageStream[FromDriver] = MessageStream(FromDriver)
            end.attach(stream)
            serving = self.driver.connections.serve(stream, (host,), b"")
            self._tasks.start(serving, "serving")

        stream: MessageStream[ToDriver] = MessageStream(ToDriver)
        link.connect(serve).attach(stream)
        return stream

    # What happens.

    async def _something(self) -> None:
        chance = self.chance
        name, host = chance.choice(NAMES), self.hypervisors[chance.choice(HOSTS)]
        there = [of for of in self.hypervisors.values() if name in of.domains]
        match chance.choices(range(10), weights=[8, 7, 8, 2, 2, 4, 3, 2, 4, 1])[0]:
            case 0:
                if there and there[0].domains[name] is RUNNING and name not in host.domains:
                    await self._migrate(name, there[0], host)
            case 1:
                if there:
                    self.undefined.add((there[0].host, name))
                    there[0].set(name, None)
            case 2:
                if not there:
                    host.set(name, RUNNING)
            case 3:
                if there and there[0].domains[name] is RUNNING:
                    there[0].set(name, chance.choice([CRASHED, STOPPED]))
            case 4:
                if there and there[0].domains[name] is STOPPED:
                    there[0].set(name, RUNNING)
            case 5:
                await self._announce(name)
            case 6:
                self._cut(self.links[host.host])
            case 7:
                for link in self.links.values():
                    link.heal()
            case 8:
                host.hung_until = guard.monotonic() + chance.choice([5.0, 40.0, 200.0])
            case 9:
                self._serves = False
                await self.node.__aexit__(None, None, None)
                await self._start()

    async def _migrate(self, name: str, source: Hypervisor, target: Hypervisor) -> None:
        """In the order in which libvirt shows it."""
        target.set(name, PAUSED)
        source.set(name, PAUSED)
        await guard.pause(self.chance.choice([0.0, 0.1, 1.0]))
        if source.domains.get(name) is PAUSED and target.domains.get(name) is PAUSED:
            target.set(name, RUNNING)
            source.set(name, None, left=True)

    async def _announce(self, name: str) -> None:
        types = [EventType.REBOOT, EventType.REDEPLOY, EventType.REDEPLOY, EventType.FREEZE]
        await self.node.platform.schedule(
            type=self.chance.choice(types),
            machines=(name,),
            by="operator",
            notice=0,
            short_notice=True,
        )

    def _cut(self, link: Link) -> None:
        link.stall("up", "down")
        for line in link.lines:
            if self.chance.random() < 0.5:
                line.node.abort()

    # What comes of it.

    def _read(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        for entry in commit.entries:
            group = self._groups.get(entry.group) or Group(name=entry.group)
            for item in entry.items:
                if isinstance(item, MachineRemoved) and item.by.startswith(BY):
                    self.removals += 1
                    self._check_under_way(group, item.name)
                    self._check_removal(group, item.name)
                elif isinstance(item, MachinePut) and item.by.startswith(BY):
                    before = group.machine(item.machine.name)
                    self.additions += before is None
                    if before is not None and before.host != item.machine.host:
                        self.moves += 1
                        self._check_under_way(group, item.machine.name)
                        self._check_move(item.machine.name, before.host, item.machine.host)
        self._groups |= changed

    def _check_under_way(self, group: Group, name: str) -> None:
        for event in group.events:
            under_way = event.status is Status.STARTED and name not in event.left
            if under_way and name in event.resources:
                self.findings.append(f"{name} was followed during {event.type.value}")

    def _check_move(self, name: str, before: str, after: str) -> None:
        if self.driver.connections.of(before) is None:
            self.findings.append(f"{name} was moved from {before}, which is not reached")
        there = [host for host, of in self.hypervisors.items() if name in of.domains]
        if there == [before] and guard.monotonic() >= self.hypervisors[before].hung_until:
            self.findings.append(f"{name} was moved to {after}, and is on {before}")

    def _check_removal(self, group: Group, name: str) -> None:
        machine = group.machine(name)
        assert machine
        where = [host for host, of in self.hypervisors.items() if name in of.domains]
        if where and (machine.host, name) not in self.undefined:
            self.findings.append(f"{name} of {machine.host} was removed, and is on {where}")
        for host in HOSTS:
            if self.driver.connections.of(host) is None:
                self.findings.append(f"{name} was removed without {host}")
        if len(group.machines) == 1 and group.name != "db":
            self.findings.append(f"{name} was the last machine of {group.name}")
        now = guard.monotonic()
        self._removed_at = [at for at in self._removed_at if now - at < AN_HOUR] + [now]
        if len(self._removed_at) > MOST_REMOVED:
            self.findings.append(f"{len(self._removed_at)} machines were removed in an hour")

    async def _settle(self) -> None:
        """Let everything heal, and what is under way come to its end."""
        for host, of in self.hypervisors.items():
            self.links[host].heal()
            of.hung_until = 0.0
        await guard.pause(600.0)
        for event in self.node.platform.active():
            await self.node.platform.finish(event.id, "operator", "it has lasted too long")
        await guard.pause(len(NAMES) * AN_HOUR)

    def _compare(self) -> None:
        """Compare what the inventory has with what there is."""
        for name in NAMES:
            where = {
                h: of.domains[name] for h, of in self.hypervisors.items() if name in of.domains
            }
            found = self.node.machine_index.machine(name)
            problem = self.node.inventory.problems.get(name, "")
            if len(where) > 1 or (found and found[1].gone):
                continue
            if found and CRASHED in where.values():
                self.findings.append(f"{name} has crashed: {problem}")
            known = [found[1].host] if found else []
            if known != [*where] and not problem:
                self.findings.append(f"{name} is on {[*where]}, and known on {known}")
            elif known and where and known != [*where]:
                self.findings.append(f"{name} is on {[*where]}, and known on {known}: {problem}")


def lived(seed: int, directory: Path, steps: int = 60) -> Inventory:
    """Live one life, and return it."""

    async def life() -> Inventory:
        loop = asyncio.get_running_loop()
        inventory = Inventory(seed, directory)
        with pytest.MonkeyPatch.context() as patch:
            for name, offset in (("monotonic", 0), ("boottime", 0), ("wall", START)):
                micro = lambda offset=offset: offset + round(loop.time() * SECOND)  # noqa: E731
                patch.setattr(guard, f"{name}_us", micro)
                if not offset:
                    patch.setattr(guard, name, loop.time)
            patch.setattr(follow, "HOUR", AN_HOUR)
            patch.setattr(process_module, "WATCH_EVERY", 2.0)
            patch.setattr(connections_module, "CHECK_EVERY", 2.0)
            patch.setattr(health, "CHECK_EVERY", 60.0)
            await inventory.life(steps)
        return inventory

    with asyncio.Runner(loop_factory=HostLoop) as runner:
        return runner.run(life())
