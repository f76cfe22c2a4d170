"""What nodes on hosts cost: what is measured, and how often. Rounds alternate."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.cluster import hosts
from bench.cluster.control import Began, Ended, Url
from bench.cluster.hosts import ALONE, EACH, EVERYWHERE, Certificates, Layout
from bench.cluster.lines import Await
from bench.cluster.scenarios import Compared, percentile
from bench.platform.asking import Raise, Raised, Run, Service, Weigh, Weight, service
from bench.platform.decisions import Round
from bench.platform.meter import pause, stopwatch
from bench.platform.visible import Connection, Seen, sample
from bench.platform.world import address
from bench.poll.processes import LOAD_CORE, SERVER_CORE, Failed, cpu_of, running
from bench.poll.servers import free_port

CALLERS = 32
ON_EACH = 50  # machines on each of many hosts


@dataclass(frozen=True)
class HostPlan:
    rounds: int = 9
    seconds: float = 2.0  # of a round; shorter than a read lease
    samples: int = 100  # of a round, of what is raised until it is seen
    machines: int = 1_000
    nodes_per_group: int = 10  # that are sent its changes
    many_hosts: Sequence[int] = (500, 1_000, 2_000, 4_000)
    storms: int = 3
    idle: float = 10.0  # seconds


QUICK = HostPlan(
    rounds=2,
    seconds=0.5,
    samples=20,
    many_hosts=(50, 100),
    storms=1,
    idle=1.0,
)


# Polls.


@dataclass(frozen=True)
class Polls:
    """Microseconds of CPU for a poll, by round, and of idling for a second."""

    node: Sequence[float]
    alone: Sequence[float]
    idle_node: float
    idle_alone: float

    @property
    def ratios(self) -> list[float]:
        return [ours / peer for ours, peer in zip(self.node, self.alone, strict=True)]


def polls(plan: HostPlan, scratch: Path) -> Polls:
    """On the node of a host, and in a service of one process."""
    layout = Layout(plan.machines // 10, hosts=1)
    with contextlib.ExitStack() as stack:
        certificates, control, port = _control(layout, scratch, stack, core=LOAD_CORE)
        del control
        node = stack.enter_context(hosts.node("h0", certificates, port, scratch, core=SERVER_CORE))
        alone = _without_nodes(layout, scratch, stack)
        urls = {node.pid: node.url, alone.pid: alone.ask(Url(), str)}
        idle = {}
        for pid in urls:
            _poll(urls[pid], pid, layout, 0.5)  # to get warm
        for pid in urls:
            before = cpu_of(pid)
            pause(plan.idle)
            idle[pid] = (cpu_of(pid) - before) / plan.idle * 1e6
        found: dict[int, list[float]] = {pid: [] for pid in urls}
        order = list(urls)
        for _ in range(plan.rounds):
            for pid in order:
                found[pid].append(_poll(urls[pid], pid, layout, plan.seconds))
            order.reverse()
    return Polls(found[node.pid], found[alone.pid], idle[node.pid], idle[alone.pid])


def _poll(url: str, pid: int, layout: Layout, seconds: float) -> float:
    """Poll with a machine of each group, all at once, again and again: return the microseconds of
    CPU for a poll."""
    connections = [Connection(url, address(n * EACH)) for n in range(len(layout.groups))]
    try:
        for connection in connections:
            connection.poll()  # enables the group
        polled, before, until = 0, cpu_of(pid), stopwatch() + seconds
        while stopwatch() < until:
            for connection in connections:
                connection.send_poll()
            for connection in connections:
                connection.take()
            polled += len(connections)
        return (cpu_of(pid) - before) / polled * 1e6
    finally:
        for connection in connections:
            connection.close()


# A change.


@dataclass(frozen=True)
class Publishing(Compared):
    """With nodes that each change is published to, and without."""

    nodes: int

    @property
    def shares(self) -> list[float]:
        """What publishing costs, of what deciding does."""
        return [cost - 1 for cost in self.costs]


def publishing(plan: HostPlan, scratch: Path) -> Publishing:
    return _publishing(plan, scratch, CALLERS)


def publishing_one(plan: HostPlan, scratch: Path) -> Publishing:
    return _publishing(plan, scratch, 1)


def _publishing(plan: HostPlan, scratch: Path, callers: int) -> Publishing:
    """Events of groups that several nodes show, and the same in a service without nodes."""
    layout = Layout(plan.machines, plan.nodes_per_group)
    with contextlib.ExitStack() as stack:
        certificates, control, port = _control(layout, scratch, stack)
        lines = stack.enter_context(_lines(certificates, port, layout.names, scratch))
        lines.ask(Await(0.0), float)
        alone = _without_nodes(layout, scratch, stack)
        run = Run(callers, plan.seconds)
        for one in (control, alone):
            one.ask(run, Round)  # to get warm
        found: dict[Service, list[Round]] = {control: [], alone: []}
        order = [control, alone]
        for _ in range(plan.rounds):
            for one in order:
                found[one].append(one.ask(run, Round))
            order.reverse()
    return Publishing(found[control], found[alone], plan.nodes_per_group)


@dataclass(frozen=True)
class Visible:
    """Milliseconds from raised to seen, by round."""

    node: Sequence[Sequence[float]]
    alone: Sequence[Sequence[float]]

    @property
    def ratios(self) -> list[float]:
        return [
            percentile(ours, 99) / percentile(peer, 99)
            for ours, peer in zip(self.node, self.alone, strict=True)
        ]


def seen(plan: HostPlan, scratch: Path) -> Visible:
    """In a poll loop on a host, of a group that is on two hosts; and without nodes."""
    layout = Layout(plan.machines, hosts=2)
    with contextlib.ExitStack() as stack:
        certificates, control, port = _control(layout, scratch, stack)
        nodes = [
            stack.enter_context(hosts.node(name, certificates, port, scratch, core=LOAD_CORE))
            for name in layout.names
        ]
        alone = _without_nodes(layout, scratch, stack)
        urls = {control: nodes[0].url, alone: alone.ask(Url(), str)}
        found: dict[Service, list[list[float]]] = {control: [], alone: []}
        order = [control, alone]
        groups = len(layout.groups)
        for number in range(plan.rounds):
            for one in order:
                seen = Seen("")
                for n in range(plan.samples):
                    sample(one, urls[one], (number * plan.samples + n) % groups, seen)
                found[one].append(seen.raised_visible)
            order.reverse()
    return Visible(found[control], found[alone])


def silent(plan: HostPlan, scratch: Path) -> Compared:
    """Decisions for other groups while a node does not confirm a change, and without that."""
    layout = Layout(plan.machines, plan.nodes_per_group)
    beside: list[Round] = []
    without: list[Round] = []
    run = Run(CALLERS, plan.seconds)
    with contextlib.ExitStack() as stack:
        certificates, control, port = _control(layout, scratch, stack)
        others = stack.enter_context(_lines(certificates, port, layout.names, scratch))
        node = stack.enter_context(_lines(certificates, port, [ALONE], scratch))
        for lines in (others, node):
            lines.ask(Await(0.0), float)
        control.ask(run, Round)  # to get warm
        for _ in range(plan.rounds):
            with _stopped(node.pid):
                control.ask(Began(), object)
                beside.append(control.ask(run, Round))
                after = stopwatch()
            if control.ask(Ended(), float) < after:
                raise Failed("nobody has waited for the node that was stopped")
            without.append(control.ask(run, Round))
    return Compared(beside, without)


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# Many nodes.


@dataclass(frozen=True)
class Storm:
    """All nodes come back after control was killed."""

    started: float  # seconds until control was ready
    joined: float  # seconds from then until the last one had joined
    cpu: float  # seconds of control, in that time
    line: float  # bytes that control has for each of them
    resident: int  # bytes of control, afterwards
    returned: float  # seconds of control's CPU, when all came back after their lines were cut


@dataclass(frozen=True)
class ChangeCost:
    """A change of a group that is on all hosts."""

    seconds: float
    cpu: float


@dataclass(frozen=True)
class Many:
    hosts: int
    machines: int
    first: float  # seconds of control's CPU until all had joined for the first time
    storms: Sequence[Storm]
    idle: float  # share of a core
    idle_alone: float  # the same without lines
    changes: Sequence[ChangeCost]


def many(plan: HostPlan, scratch: Path) -> list[Many]:
    """For each number of hosts."""
    return [_many(hosts, plan, scratch / str(hosts)) for hosts in plan.many_hosts]


def _many(hosts: int, plan: HostPlan, scratch: Path) -> Many:
    scratch.mkdir()
    layout = Layout(hosts * ON_EACH, hosts)
    storms: list[Storm] = []
    changes: list[ChangeCost] = []
    with contextlib.ExitStack() as stack:
        certificates, control, port = _control(layout, scratch, stack)
        idle_alone = _idle(control.pid, plan.idle)
        began = cpu_of(control.pid)
        lines = stack.enter_context(_lines(certificates, port, layout.names, scratch))
        lines.ask(Await(0.0), float)
        first = cpu_of(control.pid) - began
        for _ in range(plan.storms):
            with _stopped(lines.pid):
                os.kill(control.pid, signal.SIGKILL)
                control, started = _again(layout, scratch, certificates, port, stack)
                before = control.ask(Weigh(), Weight).resident
                ready, used = stopwatch(), cpu_of(control.pid)
            joined, used = lines.ask(Await(ready), float) - ready, cpu_of(control.pid) - used
            after = control.ask(Weigh(), Weight).resident
            line, returned = (after - before) / layout.hosts, cpu_of(control.pid)
            lines.ask(Await(stopwatch(), cut=True), float)
            returned = cpu_of(control.pid) - returned
            storms.append(Storm(started, joined, used, line, after, returned))
        idle = _idle(control.pid, plan.idle)
        for n in range(plan.rounds):
            used = cpu_of(control.pid)
            raised = control.ask(Raise(f"{EVERYWHERE}_{n}"), Raised)
            changes.append(
                ChangeCost(raised.acknowledged - raised.submitted, cpu_of(control.pid) - used)
            )
    return Many(layout.hosts, layout.machines, first, storms, idle, idle_alone, changes)


def _idle(pid: int, seconds: float) -> float:
    before, began = cpu_of(pid), stopwatch()
    pause(seconds)
    return (cpu_of(pid) - before) / (stopwatch() - began)


# Processes.


def _control(
    layout: Layout, scratch: Path, stack: contextlib.ExitStack, *, core: int = SERVER_CORE
) -> tuple[Certificates, Service, int]:
    """Start control, with certificates for all nodes; and return where they connect to."""
    certificates, port = Certificates(scratch / "certificates"), free_port()
    certificates.issue([*layout.names, ALONE])
    control, _ = _again(layout, scratch, certificates, port, stack, core=core)
    return certificates, control, port


def _again(
    layout: Layout,
    scratch: Path,
    certificates: Certificates,
    port: int,
    stack: contextlib.ExitStack,
    *,
    core: int = SERVER_CORE,
) -> tuple[Service, float]:
    """Start control, and return how long it took as well."""
    room = scratch / "control"
    room.mkdir(exist_ok=True)
    arguments = (layout.machines, layout.hosts, room, certificates.directory, port)
    began = stopwatch()
    control = stack.enter_context(
        service("bench.cluster.control", *arguments, log=room / "log", core=core)
    )
    control.hear(float)
    return control, stopwatch() - began


def _without_nodes(layout: Layout, scratch: Path, stack: contextlib.ExitStack) -> Service:
    room = scratch / "alone"
    room.mkdir()
    arguments = (layout.machines, layout.hosts, room, scratch / "certificates", 0)
    alone = stack.enter_context(service("bench.cluster.control", *arguments, log=room / "log"))
    alone.hear(float)
    return alone


@contextlib.contextmanager
def _lines(
    certificates: Certificates, port: int, names: Sequence[str], scratch: Path
) -> Iterator[Service]:
    """Nodes of which only the lines are real."""
    argv = [sys.executable, "-m", "bench.cluster.lines", str(certificates.directory), str(port)]
    log = scratch / f"lines-{names[0]}.log"
    with running([*argv, *names], core=LOAD_CORE, log=log, pipes=True) as process:
        yield Service(process)
