"""Several control nodes in one loop, on one disk and under one clock, of which one fails.

A node that fails is killed, stands still in the middle of a commit or of a driver call and goes on
later, or does not hear what became of its commit. Each node's tasks are known by a context
variable, so that they can be ended or kept from running without disturbing those of the others.

What must never happen, and can be seen only while it does, is noted as a finding.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import enum
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from weakref import WeakSet

import msgspec

from forewarn.core import EventType, Group, Source
from forewarn.core.time import HOUR, MINUTE, SECOND
from forewarn.drivers.port import Impact, Performed, Task
from forewarn.metadata.endpoint.callers import Identity
from forewarn.metadata.endpoint.limits import Limits
from forewarn.node import Config, Node
from forewarn.service.engine.clock import Clock, VirtualClock
from forewarn.service.telemetry.event_trace import EventTrace
from forewarn.store.port import Commit, Member, NotLeading, OutcomeUnknown, Work
from forewarn.support import guard
from forewarn.testing.kit.inprocess import Response
from forewarn.wire.requests import write_approval
from forewarn.wire.versions import NEWEST
from helpers.shared_memory import MemoryLeadership, SharedDisk, SharedMemoryStore
from simulation.script import NAMES, Script
from simulation.world import (
    FLEET,
    GROUP_OF,
    RULES,
    Kill,
    Killed,
    LossyDriver,
    Simulation,
    TellingWorld,
    fill_in,
)

NODES = 3
LEASE = 600.0  # seconds of the simulated monotonic clock, which moves only when a node has failed
STANDSTILL = 3  # steps of a script until a node that stands still goes on
TURNS = 10_000  # of the loop within which something must have happened
LOOK_TURNS = 5  # of the loop, for a look at the lease
LAST_TURNS = 30  # of the loop, for what a deposed node still does until it is gone

NODE: contextvars.ContextVar[str] = contextvars.ContextVar("NODE", default="")


class Failure(enum.Enum):
    KILLED = "killed"
    PAUSED = "paused"  # in the middle of something; it goes on when another node decides
    DEAF = "deaf"  # it does not hear whether its commit has happened
    NONE = "none"  # only the clock of the database steps


class Fault(msgspec.Struct):
    """What happens to the node that makes a certain commit, before it is on disk or after, or a
    certain driver call, and which node goes on: 0 is the same one, which is possible only if it was
    deaf."""

    failure: Failure = Failure.KILLED
    at_commit: int | None = None
    before: bool = False
    successor: int = 1
    at_call: int | None = None
    clock_step: float = 0.0  # seconds by which the clock of the database steps then

    def takes(self, seq: int) -> bool:
        if self.at_commit is None or seq < self.at_commit:
            return False
        self.at_commit = None
        return True


class Finding(msgspec.Struct, frozen=True):
    """A promise of several nodes that was broken. `rule` is its name."""

    rule: str
    text: str


class Broken(Exception):
    """A life that cannot go on: see its findings."""


class NodeLoop(asyncio.SelectorEventLoop):
    """A loop that can keep the tasks of a node from running."""

    def __init__(self) -> None:
        super().__init__()
        self._paused: set[str] = set()
        self._held: list[asyncio.Handle] = []
        self.tasks: dict[str, WeakSet[asyncio.Task[Any]]] = {}

    def create_task(self, coro: Any, **settings: Any) -> Any:
        task = super().create_task(coro, **settings)
        tag = _tag(settings.get("context"))
        self.tasks.setdefault(tag, WeakSet()).add(task)
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        if self._paused and _tag(context) in self._paused:
            handle = asyncio.Handle(callback, args, self, context)
            self._held.append(handle)
            return handle
        return super().call_soon(callback, *args, context=context)

    def pause(self, tag: str) -> None:
        self._paused.add(tag)
        ready: Any = self._ready  # type: ignore[attr-defined]
        for handle in ready:
            if handle._context.get(NODE) == tag and not handle.cancelled():
                callback, args, context = handle._callback, handle._args, handle._context
                handle.cancel()  # the loop has counted it already
                self._held.append(asyncio.Handle(callback, args, self, context))

    def resume(self, tag: str) -> None:
        self._paused.discard(tag)
        mine = [h for h in self._held if h._context.get(NODE) == tag]  # type: ignore[attr-defined]
        self._held = [handle for handle in self._held if handle not in mine]
        self._ready.extend(h for h in mine if not h.cancelled())  # type: ignore[attr-defined]


def _tag(context: contextvars.Context | None) -> str:
    return NODE.get() if context is None else context.get(NODE, "")


class ClusterLeadership(MemoryLeadership):
    def __init__(self, store: ClusterStore, on_taken: Callable[[], None]) -> None:
        super().__init__(store, store.member, LEASE)
        self._on_taken = on_taken
        self.clock_error = lambda: store.sim.clock_error(store.owner.name)

    async def take(self) -> None:
        await super().take()
        self._on_taken()

    def _claim(self) -> bool:
        """Claim a lease that has run out only if it is the turn of this node: others are slower."""
        store: Any = self._store
        if store.sim.leader is not store.owner and not store.sim.somebody_has_a_lease():
            return False
        return super()._claim()


class ClusterStore(SharedMemoryStore):
    """A store whose node fails at a given commit."""

    leadership: ClusterLeadership

    def __init__(self, sim: Cluster, owner: ControlNode) -> None:
        self.member = Member(name=owner.name, machine=owner.name, address="")
        super().__init__(sim.disk, self.member)
        self.sim = sim
        self.owner = owner
        self.leadership = ClusterLeadership(self, lambda: sim.on_taken(owner))

    def _worker_context(self) -> contextvars.Context:
        return self.owner.context.copy()

    async def transact(self, work: Work) -> Commit | None:
        commit = await super().transact(work)
        if commit is not None:
            self.sim.acknowledged.append(commit)
        return commit

    async def _persist(
        self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
    ) -> None:
        fault = self.sim.fault
        self.sim.check_time(commits)
        if not fault.takes(commits[-1].seq):
            await super()._persist(commits, before, after)
            return
        self.sim.faults += 1
        if fault.before:
            self.sim.step_clock(fault.clock_step)
        else:
            await super()._persist(commits, before, after)
            self.sim.step_clock(fault.clock_step)
        await self.fail(fault)
        if fault.failure is Failure.DEAF:
            self.leadership.claim_again()
            happened = self._has_happened(commits)
        else:
            happened = not fault.before
        if not happened:
            await super()._persist(commits, before, after)

    def _has_happened(self, commits: Sequence[Commit]) -> bool:
        """Return whether a batch in doubt is in the log, which is read after a claim."""
        return bool(self.disk.commits) and self.disk.commits[-1].seq >= commits[-1].seq

    async def fail(self, fault: Fault) -> None:
        """Return if the node goes on, sooner or later."""
        match fault.failure:
            case Failure.KILLED:
                self.owner.down.set()
                await asyncio.Event().wait()
            case Failure.PAUSED:
                self.owner.down.set()
                self.sim.loop.pause(self.owner.name)
                await guard.pause(0)
            case Failure.DEAF:
                if fault.successor:
                    self.owner.down.set()
                    await self.owner.goes_on.wait()
            case Failure.NONE:
                pass


class ClusterDriver(LossyDriver):
    """The driver of a node, which may fail in the middle of a call."""

    def __init__(self, sim: Cluster, owner: ControlNode) -> None:
        super().__init__(sim.world, sim.chance)
        self._sim = sim
        self._owner = owner

    async def perform(self, task: Task) -> Performed:
        sim, fault = self._sim, self._sim.fault
        sim.calls += 1
        if not self._owner.store.leadership.held():
            sim.find("driver-without-lease", f"{self._owner.name} calls it for {task.event}")
        if sim.calls == fault.at_call:
            sim.faults += 1
            await self._owner.store.fail(fault)
        return await super().perform(task)


class ClusterWorld(TellingWorld):
    """Machines that know which node acts on them. What a deposed one does to them late, if it gets
    through, is done once more: they are rebooted whether they were before or not."""

    def __init__(self, sim: Cluster) -> None:
        super().__init__(sim.note)
        self._sim = sim
        self._last: dict[str, tuple[int, int]] = {}  # term and fence of the last call, by event

    async def has_happened(self, event: str, fence: int) -> bool:
        happened = await super().has_happened(event, fence)
        self._is_late(event, fence)
        return happened

    async def record(self, impact: Impact, fence: int) -> bool:
        added = await super().record(impact, fence)
        if self._is_late(impact.event, fence) and not added:
            self.add(impact)
        return added

    def _is_late(self, event: str, fence: int) -> bool:
        term, name = self._sim.term(NODE.get()), NODE.get()
        last, highest = self._last.get(event, (0, 0))
        if term >= last:
            self._last[event] = term, fence
            return False
        self._sim.find(
            "late-driver-call",
            f"{name} of term {term} acts on {event} with fence {fence}, after term {last} has with"
            f" fence {highest}",
        )
        return True


class ControlNode:
    def __init__(self, sim: Cluster, name: str) -> None:
        self.name = name
        self.context = contextvars.Context()
        self.context.run(NODE.set, name)
        self.down = asyncio.Event()  # for the others: it has failed, or is gone
        self.goes_on = asyncio.Event()
        self.ended = ""  # why it has to end
        self.clock = sim.make_clock_of(name)
        self.store = ClusterStore(sim, self)
        self.store.on_unknown_outcome(self._end)
        self.node = Node(
            Config(fleet=FLEET, rules=sim.rules, identity=Identity.TARGET, limits=Limits()),
            store=self.store,
            clock=self.clock,
            driver=ClusterDriver(sim, self),
            new_id=sim.new_id,
        )

    def _end(self, why: OutcomeUnknown) -> None:
        self.ended = str(why)
        self.down.set()


class Cluster(Simulation):
    loop: NodeLoop
    disk: SharedDisk
    rules = RULES

    def __init__(self, seed: int, fault: Fault) -> None:
        super().__init__(seed, Kill())
        self.disk = SharedDisk()
        self.world = ClusterWorld(self)
        self.fault = fault
        self.faults = self.calls = 0
        self.findings: list[Finding] = []
        self.acknowledged: list[Commit] = []  # by whichever node
        self.behind: ControlNode | None = None  # deposed, and does not know it yet
        self._members: dict[str, ControlNode] = {}  # all there ever were
        self._monotonic = self._stepped = 0.0
        self.disk.lease.clock = lambda: self._monotonic
        self.disk.lease.wall = lambda: self._monotonic + self._stepped
        self.nodes: list[ControlNode] = []
        self.leader: ControlNode | Any = None  # or who is to take over

    def make_clock_of(self, name: str) -> Clock:
        return VirtualClock(self.at)

    def clock_error(self, name: str) -> float:
        """Return by how many seconds the clock of a node is wrong."""
        return 0.0

    # Recording.

    def find(self, rule: str, text: str) -> None:
        self.findings.append(Finding(rule, text))

    def check_time(self, commits: Sequence[Commit]) -> None:
        """Nothing is dated by a clock that is wrong."""

    def check(self) -> None:
        if self.findings:
            raise Broken

    def on_failed_task(self, name: str, error: BaseException) -> None:
        self.find("task-failed", f"{name}: {error!r}")

    def term(self, name: str) -> int:
        """Return the last term in which a node has decided."""
        return self._members[name].store.leadership.term

    def somebody_has_a_lease(self) -> bool:
        """Return whether any node may decide, by its own clock."""
        return any(member.store.leadership.held() for member in self._members.values())

    def step_clock(self, seconds: float) -> None:
        """Step the clock of the database. Nodes that follow look before the leader renews."""
        self._stepped += seconds
        for member in self.nodes if seconds else ():
            if member is not self.leader:
                member.store.leadership.wake()

    def on_taken(self, owner: ControlNode) -> None:
        """Record what this node decides from now on, and what nobody lived to tell."""
        if owner is not self.leader:
            self.find("two-leaders", f"{owner.name} decides within the lease of {self.leader.name}")
            return
        self.node, self.store = owner.node, owner.store  # type: ignore[assignment]
        if isinstance(owner.clock, VirtualClock):
            owner.clock.set(max(self.at, owner.clock.at))
        self.follow()

    def _tracing(self) -> EventTrace:
        owner = self.leader

        def emit(record: dict[str, Any]) -> None:
            if self.leader is owner:  # what another node has done since is on record already
                self._stamps += 1
                self.trace.append({**record, "t": record["t"] + self._stamps / SECOND})

        return EventTrace(emit, self.rules)

    def _count(self, commit: Commit, _changed: Mapping[str, Group]) -> None:
        self._reported = max(self._reported, commit.seq)

    # Lives of nodes.

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()  # type: ignore[assignment]
        for _ in range(NODES):
            await self.join()
        try:
            await self.until_deciding()
        except Killed:
            await self.fail_over(0)

    async def join(self) -> None:
        """Start another node, which follows if somebody decides."""
        member = ControlNode(self, f"c{len(self._members) + 1}")
        self._members[member.name] = member
        self.nodes.append(member)
        self.leader = self.leader or member
        await self.run_as(member, member.node.__aenter__())
        member.node._tasks._on_error = self.on_failed_task

    async def run_as(self, member: ControlNode, work: Coroutine[Any, Any, Any]) -> Any:
        return await self.loop.create_task(work, context=member.context.copy())

    async def surviving(self, work: Coroutine[Any, Any, Any]) -> Any:
        leader = self.leader
        task = self.loop.create_task(work, context=leader.context.copy())
        death = self.loop.create_task(leader.down.wait(), context=contextvars.Context())
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            death.cancel()
            return task.result()
        raise Killed

    async def until_deciding(self) -> None:
        leader = self.leader
        for _ in range(TURNS):
            self.check()
            if leader.down.is_set():
                raise Killed
            if leader.node.health.deciding:
                self.see_time()
                self.note("up")
                self._recorder.state(self.store, self.at)
                return
            await guard.pause(0)
        self.find("nobody-decides", f"{leader.name} should, and does not")
        raise Broken

    async def fail_over(self, away: int) -> None:
        """The lease of a node that has failed runs out, and another one takes over."""
        failed = self.leader
        self.deaths += 1
        self.nodes.remove(failed)
        if self.fault.failure is Failure.KILLED:
            await self.end(failed)
        else:
            self.behind = failed
        await self.look()
        self._monotonic += LEASE + 1
        await self.take_over(self.nodes[(self.fault.successor - 1) % len(self.nodes)], away)
        await self.join()

    async def look(self) -> None:
        """Let the nodes that follow look at the lease, as they do twice a second."""
        for member in self.nodes:
            member.store.leadership.wake()
        for _ in range(LOOK_TURNS):
            await guard.pause(0)

    async def take_over(self, successor: ControlNode, away: int) -> None:
        self.at += away
        self.leader = successor
        successor.store.leadership.wake()
        await self.until_deciding()

    async def end(self, member: ControlNode) -> None:
        """End everything that a node does, at once."""
        self.loop.resume(member.name)
        tasks = list(self.loop.tasks.get(member.name, ()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(ValueError):
            self.disk.lease.listeners.remove(member.store.leadership.wake)
            self.disk.lease.followers.remove(member.store.leadership)

    async def go_on(self) -> None:
        """Let a node go on that was deposed meanwhile, and is asked by a guest who knows no better:
        it answers nothing, and ends."""
        member = self.behind
        if member is None:
            return
        asked = await self.ask_deposed(member)
        member.goes_on.set()
        self.loop.resume(member.name)
        for turn in range(TURNS):
            if member.ended and turn > LAST_TURNS:
                break
            await guard.pause(0)
        else:
            self.find("deposed-goes-on", f"{member.name} was deposed, and does not end")
        await self.end(member)
        self.behind = None
        for record, answer in asked:
            if not answer.cancelled() and answer.exception() is None:
                self.on_late_answer(record, answer.result())

    async def ask_deposed(
        self, member: ControlNode
    ) -> list[tuple[dict[str, Any], asyncio.Task[Response]]]:
        """Poll whoever decides, and then, as the same guest, this node. Approve an event that it
        still knows, if there is one."""
        known, groups = member.store.groups, self.disk.groups
        changed = [name for name, group in GROUP_OF.items() if known.get(group) != groups[group]]
        machine = self.chance.choice(changed or NAMES)
        await self.ask(machine, "GET", NEWEST.name)
        requests = [("GET", b"")]
        if (group := known.get(GROUP_OF[machine])) and group.events:
            requests.append(("POST", write_approval([self.chance.choice(group.events).id])))
        asked = []
        for method, body in requests:
            record, asking = self.request(member.node, machine, method, NEWEST.name, body)
            asked.append((record, self.loop.create_task(asking, context=member.context.copy())))
        return asked

    def on_late_answer(self, record: dict[str, Any], answer: Response) -> None:
        if answer.status < 500:
            fill_in(record, answer)
            self.trace.append({**record, "t": self.stamp()})
            self.find("deposed-answers", f"{record['method']} with {answer.status}")

    async def stop(self) -> None:
        """The leader ends in good order, and gives its lease back."""
        await self.surviving(self.node.__aexit__(None, None, None))
        self.nodes.remove(self.leader)
        self.note("down")

    async def restart(self, away: int) -> None:
        await self.take_over(self.nodes[0], away)
        await self.join()


class ClusterScript(Script):
    def __init__(self, seed: int, fault: Fault) -> None:
        self.sim: Cluster = self.make_cluster(seed, fault)
        self.known = {}
        self._since = 0

    def make_cluster(self, seed: int, fault: Fault) -> Cluster:
        return Cluster(seed, fault)

    async def run(self, steps: int) -> Cluster:
        sim = self.sim
        await sim.start()
        for machine in NAMES[::3]:
            await self.survive(self.poll(machine))
        for step in range(steps):
            await self.survive(self.something())
            if step % 5 == 4:
                await self.ask_a_follower()
        for _ in range(40):
            await self.survive(self.let_go())
            await self.survive(sim.advance(HOUR))
            for machine in ("jumpbox", "sql-0", "FrontEnd_IN_0", "web_0"):
                await self.survive(self.poll(machine))
            if not sim.node.platform.active():
                break
        await sim.go_on()
        sim.note("end")
        self.left_over = sim.node.platform.active()
        for _ in range(TURNS):
            if all(member.store.seq == sim.disk.commits[-1].seq for member in sim.nodes):
                break
            await guard.pause(0)
        return sim

    async def survive(self, work: Any) -> None:
        sim = self.sim
        try:
            await work
        except Killed:
            await sim.fail_over(sim.chance.choice([0, SECOND, MINUTE, 2 * HOUR]))
            self._since = 0
        self._since += 1
        if self._since == STANDSTILL:
            await sim.go_on()
        sim.check()

    async def ask_a_follower(self) -> None:
        """An operator who is at the wrong node is refused."""
        sim = self.sim
        follower = next(member for member in sim.nodes if member is not sim.leader)
        asking = follower.node.platform.schedule(
            type=EventType.REBOOT, machines=("web_0",), by="operator", source=Source.PLATFORM
        )
        try:
            outcome = await sim.run_as(follower, asking)
        except NotLeading:
            return
        except Exception as error:
            outcome = error
        sim.find("follower-decides", f"{follower.name} does not refuse an event: {outcome!r}")
