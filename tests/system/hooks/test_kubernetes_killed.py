"""An agent on a node is killed with kill -9 at every request of its hook to the API server, before
the server gets it and after it has answered, alone and with its hook; and is started again. What
becomes of the event is the same, and in the end nothing of it is left on the node."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from forewarn.testing import Service
from helpers.agent_forker import pids_under
from helpers.fake_kubernetes import Refusal
from helpers.forked_agent import AgentForks, Bench, ForkedAgent, living
from helpers.kubernetes_server import REAL, Proxy, serving
from helpers.waiting import until


class Kill(NamedTuple):
    request: int  # the first is 1
    moment: str = "asked"
    what: str = "agent"


KILLS = (Kill(0, "answered", "everything"), Kill(0, "asked", "everything"), Kill(0, "asked"))

AGENT = """
[[rule]]
hooks = ["node"]
when = "10m"
approve = "{approve}"

[hook.node]
kubernetes = {{ server = "{server}", ca = "{ca}", token = "{token}", {options} }}
timeout = "{timeout}"
"""
RESTARTED = 1_000_000  # a life is begun again after kill -9; it does not kill itself
EVERY = 1 if REAL else 12  # requests; the fake server shows only that this test works
PLANNED, DRAINING, DRAINED, IN_PROGRESS = (
    f"forewarn/{name}"
    for name in ("MaintenancePlanned", "DrainInProgress", "Drained", "MaintenanceInProgress")
)


@pytest.fixture(scope="module")
def lives() -> Iterator[AgentForks]:
    with living() as lives:
        yield lives


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with serving(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server


class Node:
    """A node with a pod, its agent, and events that are announced to it. At one of the requests of
    its hook the agent is killed, also with all that it runs."""

    def __init__(
        self,
        lives: AgentForks,
        service: Service,
        server: Proxy,
        directory: Path,
        course: Course,
        kill: Kill,
    ) -> None:
        self.name = name = f"{course.name}-{kill.moment}-{kill.what}-{kill.request:02}"
        self.cluster, self.requests, self.killed = server.cluster, 0, False
        self.cluster.add_node(name)
        self.cluster.add_pod(f"pod-{name}", name, course.owner)
        self.proxy = server.another()
        self.proxy.arrived, self.proxy.after = self._arrived, self._answered
        if course.away:
            self.proxy.before = lambda *_: Refusal(503, "ServiceUnavailable", "it is away")
        self._course, self._kill = course, kill
        machine = service.machine(name)
        self.events = [machine.schedule("Reboot") for _ in range(course.events)]
        options = self.cluster.options | {"server": self.proxy.url}
        of_course = {name: getattr(course, name) for name in ("approve", "options", "timeout")}
        text = AGENT.format(**of_course, **options)
        self.bench = Bench(directory / name, machine.url).says(text)
        self._life: ForkedAgent | None = None
        environment = {"NODE_NAME": name}
        self._life = lives.begin(self.bench.config, RESTARTED, environment=environment)

    def _arrived(self) -> None:
        self.requests += 1
        if self.requests == self._kill.request and self._kill.moment == "asked":
            self._die()

    def _answered(self) -> None:
        if self.requests == self._kill.request and self._kill.moment == "answered":
            self._die()

    def _die(self) -> None:
        until(lambda: self._life is not None, "the agent's first life")
        assert self._life is not None
        everything = self._kill.what == "everything"
        for pid in [self._life.pid, *(pids_under(self.bench.directory) if everything else ())]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.killed = True

    def end(self) -> None:
        assert self._life is not None
        self._life.end()
        self.proxy.end()

    def failed(self, stage: str) -> bool:
        """The hook has ended at this stage without success."""
        assert self._life is not None
        runs = self._life.reported("hook ended")
        return any(run["stage"] == stage and not run["ok"] for run in runs)

    def announced(self) -> bool:
        nodes = [event["involvedObject"]["name"] for event in self.cluster.events()]
        count = len(self.events)
        return nodes.count(self.name) == len(self.cluster.marks(self.name)) == count

    def condition(self, type: str) -> str:
        return self.cluster.conditions(self.name).get(type, "")

    def drained(self) -> bool:
        return self.condition(DRAINED) == "True"

    def given_up(self) -> bool:
        """The drain has failed, and everything is taken back."""
        failed = self.cluster.reasons(self.name).get(DRAINING) == "DrainFailed"
        return failed and not self.cluster.marks(self.name)

    def carry_out(self) -> None:
        """All events, one after the other, as the service does."""
        waiting = list(self.events)
        while waiting:
            until(lambda: any(event.status == "Started" for event in waiting), self.name)
            until(lambda: self.condition(IN_PROGRESS) == "True", f"{self.name} is in maintenance")
            [started] = [event for event in waiting if event.status == "Started"]
            waiting.remove(started)
            started.finish()

    def check(self) -> None:
        assert self.killed or self.requests < self._kill.request or not self._kill.request
        assert not self.cluster.marks(self.name)
        assert not self.cluster.cordoned(self.name)
        assert not self.cluster.taints(self.name)
        conditions = self.cluster.conditions(self.name)
        assert conditions == dict.fromkeys(self._course.conditions, "False")
        assert (f"pod-{self.name}" in self.cluster.pods()) == (not self._course.drained)
        nodes = [event["involvedObject"]["name"] for event in self.cluster.events()]
        assert nodes.count(self.name) == len(self.events)


class Course(NamedTuple):
    """What becomes of a node, from its announcement on."""

    name: str
    run: Callable[[list[Node], Service], None]
    conditions: tuple[str, ...] = (PLANNED, DRAINING, DRAINED, IN_PROGRESS)
    events: int = 1
    approve: str = "when-done"
    options: str = 'taint = "a:NoExecute"'
    owner: str = "ReplicaSet"
    drained: bool = True
    timeout: str = "5m"  # of the hook
    away: bool = False  # the API server, until a test brings it back
    kills: tuple[Kill, ...] = KILLS[:1]


def maintenance(nodes: list[Node], service: Service) -> None:
    service.clock.advance("5m1s")
    for node in nodes:
        node.carry_out()


def withdrawal(nodes: list[Node], service: Service) -> None:
    service.clock.advance("5m1s")
    for node in nodes:
        until(node.drained, f"{node.name} is drained")
        node.events[0].cancel()


def withdrawal_before_anything(nodes: list[Node], service: Service) -> None:
    for node in nodes:
        node.events[0].cancel()


def failed_drain(nodes: list[Node], service: Service) -> None:
    service.clock.advance("5m1s")
    for node in nodes:
        until(node.given_up, f"the drain of {node.name} has failed")
        assert node.events[0].status == "Scheduled", "not approved"
    service.clock.advance("10m")
    for node in nodes:
        node.carry_out()


COURSES = (
    Course("maintenance", maintenance, kills=KILLS),
    Course("overlapping", maintenance, events=2),
    Course("withdrawal", withdrawal, (PLANNED, DRAINING, DRAINED), approve="never"),
    Course("early-withdrawal", withdrawal_before_anything, (PLANNED,), drained=False),
    Course(
        "failed-drain",
        failed_drain,
        (PLANNED, DRAINING, IN_PROGRESS),
        options="keep_cordoned = false",
        owner="",  # no controller would start it elsewhere
        drained=False,
    ),
)


@pytest.mark.parametrize("course", COURSES, ids=[course.name for course in COURSES])
def test_killed_at_every_request_nothing_is_left(
    lives: AgentForks, service: Service, server: Proxy, tmp_path: Path, course: Course
) -> None:
    def run(kills: Iterable[Kill]) -> list[Node]:
        with ExitStack() as stack:
            nodes = []
            for kill in kills:
                nodes.append(Node(lives, service, server, tmp_path, course, kill))
                stack.callback(nodes[-1].end)
            for node in nodes:
                until(node.announced, f"{node.name} is announced")
            course.run(nodes, service)
            for node in nodes:
                until(node.bench.closed, f"the cases of {node.name} are closed")
                node.check()
        return nodes

    with server.cluster.kubelet():
        [undisturbed] = run([Kill(0)])
        assert undisturbed.requests > 5
        for kill in course.kills if REAL else KILLS[:1]:
            points = range(1, undisturbed.requests + 1, EVERY)
            run(kill._replace(request=point) for point in points)


def test_after_a_notice_without_an_api_server_nothing_is_left(
    lives: AgentForks, service: Service, server: Proxy, tmp_path: Path
) -> None:
    course = Course("away", maintenance, timeout="5s", away=True)
    node = Node(lives, service, server, tmp_path, course, Kill(0))
    [event] = node.events
    with ExitStack() as stack:
        stack.callback(node.end)
        service.clock.advance("5m1s")
        until(lambda: node.failed("prepare"), "the drain has failed")
        assert event.status == "Scheduled", "not approved"
        service.clock.advance("10m")
        assert event.status == "Started"
        until(lambda: node.failed("started"), "the server is away at the start as well")
        node.proxy.before = lambda *_: None
        event.finish()
        until(node.bench.closed, "the case is closed")
        cluster = node.cluster
        assert not cluster.marks(node.name)
        assert not cluster.conditions(node.name)
        assert not cluster.cordoned(node.name)
        assert not cluster.taints(node.name)
        assert f"pod-{node.name}" in cluster.pods()
