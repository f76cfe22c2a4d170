"""Control, and nodes on hosts that answer the guests there, in one loop.

Control is killed around commits, nodes are killed at any time, and lines between them break, stand
still in one direction or in both, and delay. A node that is killed loses what its disk had not
confirmed. Service time moves only as the script says; guard time passes with the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forewarn.core import EventType, Group, Machine, Source, Status
from forewarn.core.fleet import Health
from forewarn.core.time import DAY, HOUR, MINUTE, SECOND
from forewarn.drivers.port import Performed, Task
from forewarn.judge import judge
from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.metadata.endpoint.callers import Callers, Identity
from forewarn.metadata.endpoint.limits import Limits
from forewarn.metadata.publishing import (
    host_nodes,
    node_upstream,
    updates,
)
from forewarn.metadata.publishing.host_nodes import HostNodes
from forewarn.metadata.publishing.journal import JournalMessage
from forewarn.metadata.publishing.messages import ToControl, ToNode
from forewarn.metadata.publishing.node_upstream import NodeUpstream
from forewarn.metadata.upstream import NotDurable
from forewarn.node import Config, Node
from forewarn.node import node as node_module
from forewarn.node.config import Address, NodeConnections, Tls
from forewarn.service.engine.clock import FollowedClock, Interruption
from forewarn.service.engine.executor import RETRY_AFTER
from forewarn.service.indexes.placement import targets_of
from forewarn.service.telemetry import health
from forewarn.store.port import Commit
from forewarn.support import guard
from forewarn.support.message_stream import MessageStream
from forewarn.testing.kit.inprocess import exchange
from forewarn.wire.requests import write_approval
from forewarn.wire.versions import NEWEST
from simulation.cluster import NODE, Finding
from simulation.host_lines import CANNOT_CONNECT, Clocks, End, HostLoop, Link
from simulation.lives import approvals_not_in_log, wrong_log
from simulation.script import HOSTS, NAMES, Script
from simulation.world import (
    FLEET,
    GROUP_OF,
    MACHINES,
    RULES,
    START,
    Kill,
    Killed,
    LossyDriver,
    MortalStore,
    Simulation,
    fill_in,
)

LONG = 30  # records after which a journal is replaced
PATIENCE = 6.0  # seconds that a guest waits for an answer
PROMISES_OVER = 8.0  # seconds after which no node has a promise of a control that is gone
LATE = 3  # seconds that messages take to a host that is about to be cut off
HEALED_WITHIN = 60  # seconds until all nodes show what control does
LINES = NodeConnections(Address("127.0.0.1", 0), Tls(Path("none"), Path("none")), Path("none"))
UNKNOWN = "a node is disconnected, and control does not know it"  # in the ledger


class MemoryJournal:
    """A journal that loses, when its node is killed, some of what was not synced."""

    def __init__(self) -> None:
        self.records: list[JournalMessage] = []
        self.synced = 0

    def read(self) -> list[JournalMessage]:
        return list(self.records)

    def replace(self, messages: Sequence[JournalMessage]) -> None:
        self.records = list(messages)
        self.sync()

    def append(self, message: JournalMessage) -> None:
        self.records.append(message)

    def sync(self) -> None:
        self.synced = len(self.records)

    @property
    def long(self) -> bool:
        return len(self.records) > LONG

    def lose(self, kept: int) -> None:
        del self.records[max(self.synced, kept) :]

    def copy(self) -> MemoryJournal:
        copied = MemoryJournal()
        copied.records = list(self.records)
        return copied


class NoCertificates:
    expires = START + 365 * DAY

    async def watch(self) -> None:
        pass


class ControlStore(MortalStore):
    def __init__(self, sim: Hosts) -> None:
        super().__init__(sim.disk, sim.kill)
        self._context = sim.context(sim.tag)

    def _worker_context(self) -> contextvars.Context:
        return self._context.copy()


class HostNode:
    """A node, across its lives."""

    def __init__(self, sim: Hosts, host: str) -> None:
        self.sim = sim
        self.host = host
        self.link = Link(host, sim.chance)
        self.journal: Any = MemoryJournal()
        self.lives = 0
        self.alive = False
        self.died = asyncio.Event()
        self.upstream: NodeUpstream
        self.app: MetadataApp
        self.callers: Callers
        self.end: End | None = None

    @property
    def tag(self) -> str:
        return f"{self.host} {self.lives}"

    def make_upstream(self, journal: Any) -> NodeUpstream:
        dials = [partial(self.dial, n) for n in range(self.sim.addresses)]
        return NodeUpstream(dials, self.host, FollowedClock(self.sim.clocks.read_us), journal)

    async def start(self) -> None:
        self.lives += 1
        self.died = asyncio.Event()
        context = self.sim.context(self.tag)
        await self.sim.loop.create_task(self._start(), context=context)

    async def _start(self) -> None:
        upstream = self.upstream = self.make_upstream(self.journal)
        self.callers = Callers(Identity.TARGET)
        self.app = MetadataApp(upstream, self.callers, Limits())
        upstream.on_disconnected = self.note_disconnected
        await upstream.restore()
        self.alive = True
        self.note_disconnected(True)
        tasks = guard.Tasks(self.sim.on_failed_task)
        tasks.start(upstream.run(), "line")
        tasks.start(upstream.report(), "reports")
        tasks.start(upstream.watch(), "promise")

    def note_disconnected(self, disconnected: bool) -> None:
        machines = sorted(self.callers.names())
        self.sim.note(
            "disconnected" if disconnected else "joined", host=self.host, machines=machines
        )
        self.sim.compare()

    def note_time(self) -> None:
        """Let it notice at once, by its own clock, that its promise has run out."""
        self.sim.context(self.tag).run(self.upstream._note_disconnected)

    def shown(self) -> list[Any]:
        return list(self.upstream._staged._shown.values())

    async def dial(self, address: int) -> Any:
        if not self.link.works:
            await guard.pause(CANNOT_CONNECT)
            raise OSError("control cannot be reached")
        serve = self.sim.serve
        if serve is None or self.sim.lives % self.sim.addresses != address:
            raise OSError("it does not decide")
        stream: MessageStream[ToNode] = MessageStream(ToNode)
        self.end = self.link.connect(lambda end: serve(end, self.host))
        self.end.attach(stream)
        return stream

    async def kill(self, *, silent: bool) -> None:
        if not self.alive:
            return
        self.alive = False
        self.died.set()
        if self.end is not None:
            (self.end.vanish if silent else self.end.abort)()
            self.end = None
        journal, self.journal = self.journal, MemoryJournal()  # what still runs writes to no disk
        await self.sim.end_tasks(self.tag)
        journal.lose(self.sim.chance.randint(0, len(journal.records)))
        self.journal = journal
        self.sim.compare()


class HostsDriver(LossyDriver):
    """A driver that looks whether nodes were told of what it is to do."""

    def __init__(self, sim: Hosts) -> None:
        super().__init__(sim.world, sim.chance)
        self._sim = sim

    async def perform(self, task: Task) -> Performed:
        for machine in task.machines:
            await self._sim.check_informed(task, machine.name, machine.host)
        return await super().perform(task)


class Hosts(Simulation):
    loop: HostLoop
    clocks: Clocks

    def __init__(self, seed: int, kill: Kill) -> None:
        super().__init__(seed, kill)
        self.findings: list[Finding] = []
        self.nodes: dict[str, HostNode] = {}
        self.lives = 0  # of control
        self._begun = 0.0  # when the last of them did
        self.addresses = 1 + seed // 2 % 2  # of control nodes, each of which takes over in turn
        self.host_nodes: HostNodes | None = None
        self._ends: list[End] = []  # control's
        self._unknown: set[str] = set()
        self._arrived: dict[tuple[str, str], str] = {}  # by event and machine: at which host
        self._answered_on: dict[str, str] = {}  # by machine, since it has come to a host
        self._hosts: dict[str, str] = {}
        self.strayed: dict[str, str] = {}  # by machine that was moved without a report: its host
        self._warned: dict[str, set[str]] = {}  # by such a machine: the events that it was shown
        self.patience = PATIENCE
        self.moved_polls = 0  # answered on a host to which a machine is about to move
        self.aparts = 0

    def find(self, rule: str, text: str) -> None:
        self.findings.append(Finding(rule, text))

    def note(self, kind: str, **fields: Any) -> None:
        self.aparts += kind == "disconnected"
        super().note(kind, **fields)

    def _count(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        super()._count(commit, changed)
        for group in changed.values():
            for machine in group.machines:
                if self._hosts.get(machine.name) != machine.host or not machine.alive:
                    self._hosts[machine.name] = machine.host
                    self._answered_on.pop(machine.name, None)

    def on_failed_task(self, name: str, error: BaseException) -> None:
        self.find("task-failed", f"{name}: {error!r}")

    def context(self, tag: str) -> contextvars.Context:
        context = contextvars.Context()
        context.run(NODE.set, tag)
        return context

    @property
    def tag(self) -> str:
        return f"control {self.lives}"

    async def end_tasks(self, tag: str) -> None:
        tasks = [task for task in self.loop.tasks.pop(tag, ()) if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Control.

    async def start(self) -> None:
        while True:
            self.lives += 1
            self.store = ControlStore(self)
            clock, interruptions = self.make_clock(), list[Interruption]()
            clock.on_interruption(interruptions.append)
            self.node = Node(
                Config(
                    fleet=FLEET,
                    rules=RULES,
                    identity=Identity.TARGET,
                    limits=Limits(),
                    nodes=LINES,
                ),
                store=self.store,
                clock=clock,
                driver=HostsDriver(self),
                new_id=self.new_id,
            )
            self.follow()
            try:
                await self.surviving(self.node.__aenter__())
                break
            except Killed:
                await self.end_processes()
        self.node._tasks._on_error = self.on_failed_task
        self._move = self.node.platform.record_move
        self.node.platform.record_move = self.record_move  # type: ignore[method-assign]
        self.node.unreachable_hosts.on_change(self.on_reach)
        self._unknown = set()
        self.compare()
        self.see_time()
        answered = self.lives > 1 and not interruptions
        self.note("up", **({"answered": True} if answered else {}))
        self._begun = self.loop.time()
        self._recorder.state(self.store, self.at)
        disconnected = [host for host in HOSTS if self.node.unreachable_hosts.is_unreachable(host)]
        self._recorder.reach(self.at, disconnected, reached=False)

    async def record_move(self, machine: str, host: str, by: str) -> Any:
        """Nobody moves a machine to a host whose node is cut off."""
        if not self.node.unreachable_hosts.is_unreachable(host):
            await self._move(machine, host, by)

    # What a NodeListener is.

    address = Address("127.0.0.1", 1)

    def listen(self, _config: Any, _certificates: Any, nodes: HostNodes, _drivers: Any) -> Any:
        self.host_nodes = nodes
        return [self]

    def accept(self, _tasks: Any) -> None:
        pass

    def close(self) -> None:
        if self.host_nodes is not None:
            self.host_nodes.close()
        self.host_nodes = None

    @property
    def serve(self) -> Any:
        return None if self.host_nodes is None else self._serve

    def _serve(self, end: End, host: str) -> None:
        self._ends = [*(end for end in self._ends if not end.closed), end]
        nodes: Any = self.host_nodes
        stream: MessageStream[ToControl] = MessageStream(ToControl)
        context = self.context(self.tag)
        context.run(end.attach, stream)
        self.loop.create_task(nodes.serve(stream, host), context=context)

    async def restart(self, away: int) -> None:
        """Start again. Without control for long, nodes are disconnected."""
        if away < MINUTE:
            away = 0
        else:
            await guard.pause(PROMISES_OVER)
            for node in self.nodes.values():
                if node.alive:
                    node.note_time()
        await super().restart(away)

    async def advance(self, by: int) -> None:
        """The service's time passes in an instant. Minutes of it do not pass while nodes still have
        a promise of the control before, and show what was before its last commit."""
        if by >= MINUTE:
            await guard.pause(max(0.0, self._begun + PROMISES_OVER - self.loop.time()))
        await super().advance(by)

    async def end_processes(self, *, silent: bool | None = None) -> None:
        self.see_time()
        self.deaths += 1
        self.kill.again(len(self.disk.commits), self.chance)
        self.host_nodes = None
        silent = self.chance.random() < 0.3 if silent is None else silent
        for end in self._ends:
            (end.vanish if silent else end.abort)()
        await self.end_tasks(self.tag)

    async def surviving(self, work: Coroutine[Any, Any, Any]) -> Any:
        context = self.context(self.tag)
        task = self.loop.create_task(work, context=context)
        death = self.loop.create_task(self.store.died.wait())
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            death.cancel()
            return task.result()
        raise Killed

    def on_reach(self, host: str) -> None:
        """Record what control knows of a host: it may have lost a line that its node keeps."""
        if self.host_nodes is None:
            return  # it is being ended
        reached = not self.node.unreachable_hosts.is_unreachable(host)
        self._recorder.reach(self.node.writer.now().at, [host], reached=reached)
        self.compare()

    def compare(self) -> None:
        """Let service time stand still while control relies on a node that is disconnected: that
        takes seconds, not hours."""
        if self.host_nodes is None:
            return  # nobody decides
        ledger, disconnected = self.node.ledger, self.node.unreachable_hosts
        hosts = self.store.registry.hosts
        unknown = {
            name
            for name, node in self.nodes.items()
            if (not node.alive or node.upstream._is_disconnected)
            and hosts[name].node
            and not disconnected.is_unreachable(name)
        }
        for _ in unknown - self._unknown:
            ledger.take(UNKNOWN)
        for _ in self._unknown - unknown:
            ledger.release(UNKNOWN)
        self._unknown = unknown

    async def operate_reboot(self, machine: str, source: Source = Source.PLATFORM) -> None:
        work = self.node.platform.schedule(
            type=EventType.REBOOT, machines=(machine,), by="operator", source=source
        )
        await self.surviving(work)

    # Guests.

    def machine(self, name: str) -> Machine | None:
        machines = (group.machine(name) for group in self.disk.groups.values())
        return next((machine for machine in machines if machine is not None), None)

    def arriving(self, name: str) -> str | None:
        """Return the host at which a machine asks that is being moved; None: where it was."""
        for group in self.disk.groups.values():
            for event in group.events:
                moves = event.relocates and event.status is Status.STARTED
                if moves and name in event.resources:
                    target = targets_of(event).get(name, "")
                    if target and self.chance.random() < 0.5:
                        self._arrived.setdefault((event.id, name), target)
                    return self._arrived.get((event.id, name))
        return None

    async def ask(self, machine: str, method: str, version: str, body: bytes = b"") -> Any:
        """One exchange with the node of the machine's host; or of the one it may be moved to."""
        placed = self.machine(machine)
        host = placed.host if placed is not None else HOSTS[0]
        elsewhere = False
        target = self.strayed.get(machine) or self.arriving(machine)
        if placed is not None and placed.alive and target:
            elsewhere, host = target != host, target
        node = self.nodes[host]
        record, asking = self.request(self.node, machine, method, version, body)
        asking.close()
        record["host"] = host
        if node.alive:
            node.note_time()
            knew, was_disconnected = node.upstream.connected, node.upstream._is_disconnected
            answer = await self._exchange(node, machine, record, body)
            refused = record["status"] is not None and record["status"] in (404, 500, 503)
            alive = placed is not None and placed.alive and self.machine(machine) == placed
            if answer == "unknown":
                known = (knew and node.upstream.connected) or self._answered_on.get(machine) == host
                if alive and known and not elsewhere:
                    self.find("poll-refused", f"{machine} on {host}: 404")
                if method == "POST":
                    self.trace.append({**record, "t": self.stamp()})
                return {**record, "status": None}
            if refused and method == "GET" and alive:
                self.find("poll-refused", f"{machine} on {host}: {record['status']}")
            if node.alive:
                node.note_time()
            if machine in self.strayed and record["status"] == 200 and method == "GET":
                events = json.loads(record["answer"])["Events"]
                self._warned.setdefault(machine, set()).update(e["EventId"] for e in events)
            if alive and record["status"] == 200:
                self._answered_on[machine] = host
                self.moved_polls += elsewhere
            if (
                elsewhere
                and method == "GET"
                and (was_disconnected or node.upstream._is_disconnected)
            ):
                return record  # nobody but the node knows that this machine is disconnected
        self.trace.append({**record, "t": self.stamp()})
        return record

    async def _exchange(
        self, node: HostNode, machine: str, record: dict[str, Any], body: bytes
    ) -> str:
        address, method = MACHINES[machine], record["method"]

        async def work() -> Any:
            if node.callers.at(address) is None:
                with contextlib.suppress(NotDurable):
                    await node.upstream.find(address)
            if node.callers.at(address) is None:
                return None
            headers = {"Metadata": "true"}
            return await exchange(node.app, address, method, record["target"], headers, body)

        loop = self.loop
        task = loop.create_task(work(), context=self.context(node.tag))
        death = loop.create_task(node.died.wait())
        await asyncio.wait(
            [task, death], timeout=self.patience, return_when=asyncio.FIRST_COMPLETED
        )
        death.cancel()
        if not task.done() or node.died.is_set():
            task.cancel()
            return ""
        if task.result() is None:
            return "unknown"
        fill_in(record, task.result())
        return ""

    # What must be true.

    async def check_informed(self, task: Task, machine: str, host: str) -> None:
        """Whoever answers the guests of a machine knows that it is about to be disturbed."""
        if machine in self.strayed and task.event not in self._warned.get(machine, ()):
            self.find("uninformed", f"{machine} was not shown {task.event}, which is carried out")
        known = self.store.registry.hosts.get(host)
        if host not in self.nodes or known is None or known.health is Health.FAILED:
            return
        node = self.nodes[host]
        upstream = node.upstream
        if not node.alive:  # as it will be when it is started again
            upstream = node.make_upstream(node.journal.copy())
            await upstream.restore()
        for news in upstream._staged._shown.values():
            if upstream._staged.changing(news.view.name) is not None:
                continue
            for event in news.view.events:
                if event.id == task.event and event.status is Status.SCHEDULED:
                    text = f"{task.event} is carried out on {machine}; {host} shows it as Scheduled"
                    self.find("uninformed-node", text)

    def behind(self) -> list[str]:
        """Return the hosts whose node does not show what control does."""
        return [name for name, node in self.nodes.items() if not self._shows_all(node)]

    def _shows_all(self, node: HostNode) -> bool:
        if (
            not node.alive
            or node.upstream._is_disconnected
            or self.node.unreachable_hosts.is_unreachable(node.host)
        ):
            return False
        wanted = {}
        for group in self.disk.groups.values():
            machines = updates.PlacedMachines().on_host(group, node.host)
            if machines:
                wanted[group.name] = updates.guest_news(group, machines)
        return {news.view.name: news for news in node.shown()} == wanted


class HostsScript(Script):
    sim: Hosts

    def __init__(self, seed: int, kill: Kill) -> None:
        self.sim = Hosts(seed, kill)
        self.known = {}
        self.left_over = []

    async def run(self, steps: int) -> Hosts:
        sim, chance = self.sim, self.sim.chance
        await sim.start()
        for host in HOSTS:
            sim.nodes[host] = HostNode(sim, host)
            await sim.nodes[host].start()
        await guard.pause(2)
        for machine in NAMES:
            await self.survive(self.poll(machine))
        trouble = chance.choice([0.0, 0.01, 0.05])
        for node in sim.nodes.values():
            node.link.trouble = trouble
        for _ in range(steps):
            await self.survive(self.disturb())
            group = chance.choice(["sql", "shop", "web"])
            asking = [name for name in NAMES if GROUP_OF[name] == group]
            polls = asyncio.gather(*(self.later(self.poll(name)) for name in asking))
            await self.survive(self.something())
            await polls
            for name in chance.sample(asking, 2):
                await self.poll(name)
        await self.heal()
        for _ in range(40):
            await self.survive(self.let_go())
            await self.survive(self.catch_up())
            await guard.pause(RETRY_AFTER)
            await self.survive(sim.advance(HOUR))
            for machine in ("jumpbox", "sql-0", "FrontEnd_IN_0", "web_0"):
                await self.survive(self.poll(machine))
            if not sim.node.platform.active():
                break
        sim.kill.at_commit = None
        await self.survive(self.catch_up())
        await self.survive(self.catch_up())
        for host in sim.behind():
            sim.find("not-healed", f"the node of {host} does not show what control does")
        sim.note("end")
        self.left_over = sim.node.platform.active()
        return sim

    async def something(self) -> None:
        await (self.schedule() if self.sim.chance.random() < 0.4 else super().something())

    async def later(self, work: Coroutine[Any, Any, Any]) -> None:
        await guard.pause(self.sim.chance.choice([0, 0.01, 0.05, 0.3, 2]))
        await work

    async def survive(self, work: Any) -> None:
        sim = self.sim
        try:
            await work
        except Killed:
            await sim.end_processes()
            await guard.pause(sim.chance.choice([0, 1, 5, 20]))
            await sim.restart(sim.chance.choice([0, SECOND, MINUTE, 2 * HOUR]))

    async def disturb(self) -> None:
        """Let something happen to a host, or come to its end."""
        sim, chance = self.sim, self.sim.chance
        node = sim.nodes[chance.choice(HOSTS)]
        match chance.randrange(10):
            case 0:
                node.link.stall("up", "down")
            case 1:
                node.link.stall(chance.choice(["up", "down"]))
            case 2:
                await self.poll_on(node)
                await node.kill(silent=chance.random() < 0.3)
                if chance.random() < 0.5:
                    await node.start()
                    await self.poll_on(node)
            case 3:
                if node.end is not None:
                    node.end.abort()
            case 4 | 5 | 6:
                node.link.heal()
                if not node.alive:
                    await node.start()
        await guard.pause(chance.choice([0, 0, 0.1, 1, 4, 10]))
        if sim.store.died.is_set():
            raise Killed

    async def poll_on(self, node: HostNode) -> None:
        there = [name for name in NAMES if self.sim._hosts.get(name) == node.host]
        for name in there[:3]:
            await self.poll(name)

    async def heal(self) -> None:
        for node in self.sim.nodes.values():
            node.link.trouble = 0.0
            node.link.heal()
            if not node.alive:
                await node.start()

    async def catch_up(self) -> None:
        """Wait until all nodes show what control does, but not for ever."""
        sim = self.sim
        for _ in range(HEALED_WITHIN):
            if sim.store.died.is_set():
                raise Killed
            if not sim.behind():
                return
            await guard.pause(1)


def simulated_time(sim: Hosts, patch: pytest.MonkeyPatch) -> None:
    clocks = sim.clocks
    patch.setattr(guard, "monotonic", clocks.read)
    patch.setattr(guard, "boottime", clocks.read)
    patch.setattr(guard, "monotonic_us", clocks.read_us)
    patch.setattr(guard, "boottime_us", clocks.read_us)
    patch.setattr(guard, "wall_us", clocks.read_us)
    patch.setattr(node_module, "open_node_listeners", sim.listen)
    patch.setattr(node_module, "Certificates", lambda *_: NoCertificates())
    # Look less often, which is cheaper.
    patch.setattr(node_upstream, "WATCH_EVERY", 2.0)
    patch.setattr(node_upstream, "REPORT_EVERY", 3.0)
    patch.setattr(health, "CHECK_EVERY", 60.0)
    patch.setattr(host_nodes, "CHECK_EVERY", 1.0)
    patch.setattr(host_nodes, "JOIN_EVERY", 0.25)


class CutOff(HostsScript):
    """A host is cut off at the worst moment: between a promise, which arrives late, and a change,
    which does not arrive; and its node is killed."""

    async def run(self, steps: int) -> Hosts:
        sim, node = self.sim, await self.begin()
        for step in range(steps):
            await sim.operate_reboot("sql-1")
            await self.poll("sql-0", NEWEST.name)
            await node.kill(silent=False)
            node.link.stall("up", "down")
            await node.start()
            ids = await self.poll("sql-0", NEWEST.name)
            await sim.ask("sql-0", "POST", NEWEST.name, write_approval(ids[-1:]))
            await self.heal()
            await self.catch_up()
            node.link.delay = LATE
            await guard.pause(2 * LATE + step * 0.5)
            before = sim.loop.time()
            await guard.pause(1.0)
            change = asyncio.ensure_future(sim.operate_reboot("sql-2"))  # noqa: TID251
            await guard.pause(0.1)
            for line in node.link.lines:
                line.control.break_off(before)
            node.link.stall("up")
            for _ in range(3 * LATE):
                await self.poll("sql-1", NEWEST.name)
                await self.poll("sql-0", NEWEST.name)
                await guard.pause(1.0)
            await change
            node.link.delay = 0.0
            await self.heal()
            await self.catch_up()
        sim.note("end")
        return sim

    async def begin(self) -> HostNode:
        sim = self.sim
        await sim.start()
        for host in HOSTS:
            sim.nodes[host] = HostNode(sim, host)
            await sim.nodes[host].start()
        await guard.pause(2)
        await self.poll("sql-0", NEWEST.name)
        return sim.nodes["host-a"]


def live(
    seed: int, kill: Kill, steps: int, script_type: type[HostsScript] = HostsScript
) -> tuple[HostsScript, list[Finding]]:
    """A life, and everything that is wrong with it."""
    script = script_type(seed, kill)
    sim = script.sim

    async def life() -> None:
        sim.loop = asyncio.get_running_loop()  # type: ignore[assignment]
        sim.clocks = Clocks(sim.loop, sim.chance)
        with pytest.MonkeyPatch.context() as patch:
            simulated_time(sim, patch)
            try:
                await script.run(steps)
            finally:
                sim.host_nodes = None
                for tag in list(sim.loop.tasks):
                    if tag:
                        await sim.end_tasks(tag)

    with asyncio.Runner(loop_factory=HostLoop) as runner:
        runner.run(life())
    findings = [*sim.findings, *wrong_log(sim), *approvals_not_in_log(sim)]
    for event in script.left_over:
        findings.append(Finding("never-ends", f"{event.id} has not come to an end"))
    findings += [Finding(found.rule, found.render()) for found in judge(sim.trace).findings]
    return script, findings
