"""An agent on a node is killed with kill -9 at every request of its hook to the API server, before
the server gets it and after it has answered, alone and with its hook; and is started again. The
event is approved, and in the end nothing of it is left on the node."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from forewarn.testing import Service
from helpers.agent_forker import pids_under
from helpers.forked_agent import AgentForks, Bench, ForkedAgent, living
from helpers.kubernetes_server import REAL, Proxy, serving
from helpers.waiting import until


class Kill(NamedTuple):
    request: int  # the first is 1
    moment: str = "asked"
    what: str = "agent"


KILLS = (Kill(0, "asked", "everything"), Kill(0, "answered", "everything"), Kill(0, "asked"))

AGENT = """
[[rule]]
hooks = ["node"]
when = "10m"
approve = "when-done"

[hook.node]
kubernetes = {{ server = "{server}", ca = "{ca}", token = "{token}", taint = "a:NoExecute" }}
timeout = "5m"
"""
RESTARTED = 1_000_000  # a life is begun again after kill -9; it does not kill itself
EVERY = 1 if REAL else 6  # requests; the fake server shows only that this test works


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
    """A node with a pod, its agent, and an event that is announced to it. At one of the requests
    of its hook the agent is killed, also with all that it runs."""

    def __init__(
        self, lives: AgentForks, service: Service, server: Proxy, directory: Path, kill: Kill
    ) -> None:
        self.name = name = f"{kill.moment}-{kill.what}-{kill.request:02}"
        self.cluster, self.requests, self.killed = server.cluster, 0, False
        self.cluster.add_node(name)
        self.cluster.add_pod(f"pod-{name}", name)
        self.proxy = server.another()
        self.proxy.arrived, self.proxy.after = self._arrived, self._answered
        self._kill = kill
        machine = service.machine(name)
        self.event = machine.schedule("Reboot")
        options = self.cluster.options | {"server": self.proxy.url}
        self.bench = Bench(directory / name, machine.url).says(AGENT.format(**options))
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

    def announced(self) -> bool:
        nodes = [event["involvedObject"]["name"] for event in self.cluster.events()]
        return self.name in nodes and bool(self.cluster.marks(self.name))

    def approved(self) -> bool:
        return self.event.status == "Started"

    def in_maintenance(self) -> bool:
        conditions = self.cluster.conditions(self.name)
        return conditions.get("forewarn/MaintenanceInProgress") == "True"

    def check(self) -> None:
        assert self.killed or not self._kill.request
        assert not self.cluster.marks(self.name)
        assert not self.cluster.cordoned(self.name)
        assert not self.cluster.taints(self.name)
        conditions = self.cluster.conditions(self.name)
        assert (len(conditions), set(conditions.values())) == (4, {"False"})
        assert f"pod-{self.name}" not in self.cluster.pods()
        nodes = [event["involvedObject"]["name"] for event in self.cluster.events()]
        assert nodes.count(self.name) == 1


def run(nodes: list[Node], service: Service) -> None:
    """From the announcement to the end."""
    for node in nodes:
        until(node.announced, f"{node.name} is announced")
    service.clock.advance("5m1s")
    for node in nodes:
        until(node.approved, f"{node.name} is approved")
    for node in nodes:
        until(node.in_maintenance, f"{node.name} is in maintenance")
        node.event.finish()
    for node in nodes:
        until(node.bench.closed, f"the case of {node.name} is closed")
        node.check()


def test_killed_at_every_request_the_event_is_approved_and_nothing_is_left(
    lives: AgentForks, service: Service, server: Proxy, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        stack.enter_context(server.cluster.kubelet())

        def node(kill: Kill) -> Node:
            node = Node(lives, service, server, tmp_path, kill)
            stack.callback(node.end)
            return node

        undisturbed = node(Kill(0))
        run([undisturbed], service)
        assert undisturbed.requests > 15
        points = range(1, undisturbed.requests + 1, EVERY)
        for kill in KILLS:
            run([node(kill._replace(request=point)) for point in points], service)
