"""A service whose driver is `hosts`, and driver processes over TLS: events, and certificates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from forewarn.core import EventType, Refused, Status
from forewarn.drivers.hosts.driver import HostsDriver
from forewarn.drivers.hosts.messages import ToDriver, Verb
from forewarn.drivers.hosts.process import DriverProcess
from forewarn.drivers.registry import HOSTS, DriverConfig
from forewarn.node import Node
from forewarn.node.listening.node_connections import make_tls_dial
from forewarn.node.listening.tls import Certificates
from forewarn.service.fleet.read import parse
from forewarn.support import guard
from helpers.driver_processes import PretendingDriver, fences
from helpers.host_nodes import Control
from helpers.waiting import LIMIT, until_async

FLEET = """
hosts: [h1, h2]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web_0, update_domain: 0, address: 10.0.0.1, host: h1}
      - {name: web_1, update_domain: 0, address: 10.0.0.2, host: h2}
"""


class HostsControl(Control):
    """A service with the driver `hosts`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.config = msgspec.structs.replace(
            self.config, driver=DriverConfig(HOSTS), fleet=parse(FLEET)
        )

    @asynccontextmanager
    async def process(
        self, *hosts: str, names: tuple[str, ...] = (), driver: PretendingDriver | None = None
    ) -> AsyncIterator[tuple[DriverProcess, PretendingDriver]]:
        """Run a driver process of hosts, with a certificate for these names."""
        names = names or tuple(f"forewarn:driver:{host}" for host in hosts)
        certificates = Certificates(
            self.authority.issue(*names), self.authority.path, of_client=True
        )
        dial = make_tls_dial(self._address(), certificates, ToDriver)
        driver, tasks = driver or PretendingDriver(), guard.Tasks()
        with fences(self.directory / "-".join(hosts)) as kept:
            process = DriverProcess("pretending", driver, hosts, [dial], kept, 16)
            tasks.start(process.run(), "process")
            try:
                yield process, driver
            finally:
                await tasks.end()


def play(directory: Path, body: Callable[[HostsControl, Node], Awaitable[None]]) -> None:
    async def limited() -> None:
        control = HostsControl(directory)
        async with asyncio.timeout(LIMIT), control() as node:
            await body(control, node)

    asyncio.run(limited())


async def reboot(node: Node, *machines: str) -> str | Refused:
    done = await node.platform.schedule(
        type=EventType.REBOOT, machines=machines, by="test", notice=0, short_notice=True
    )
    return done if isinstance(done, Refused) else done.event.id


async def connected(node: Node, *hosts: str) -> None:
    driver = node.driver
    assert isinstance(driver, HostsDriver)
    await until_async(lambda: all(map(driver.connections.of, hosts)))


async def over(node: Node, id: str) -> None:
    async def status() -> Status:
        event = await node.platform.event(id)
        assert not isinstance(event, Refused)
        return event.status

    async with asyncio.timeout(LIMIT):
        while await status() is not Status.FINISHED:
            await guard.pause(0.01)


def test_an_event_is_carried_out_by_the_processes_of_its_hosts(tmp_path: Path) -> None:
    async def body(control: HostsControl, node: Node) -> None:
        refused = await reboot(node, "web_0")
        assert isinstance(refused, Refused)
        assert "the driver process of host 'h1' is not connected" in refused.message
        async with control.process("h1") as (_, h1), control.process("h2") as (_, h2):
            await connected(node, "h1", "h2")
            id = await reboot(node, "web_0", "web_1")
            assert isinstance(id, str)
            await over(node, id)
            assert h1.performed() == [("web_0",)]
            assert h2.performed() == [("web_1",)]

    play(tmp_path, body)


def test_an_event_that_has_started_goes_on_as_soon_as_the_process_is_back(tmp_path: Path) -> None:
    async def body(control: HostsControl, node: Node) -> None:
        async with control.process("h1") as (_, h1):
            await connected(node, "h1")
            h1.go.clear()
            id = await reboot(node, "web_0")
            assert isinstance(id, str)
            await until_async(lambda: h1.at_work)
        await until_async(lambda: "not connected" in _unseen(node, id))
        seen = PretendingDriver({id: {"web_0": "h1"}})
        async with control.process("h1", driver=seen):
            await over(node, id)
            assert [verb for verb, *_ in seen.calls] == [Verb.OBSERVE]

    play(tmp_path, body)


def _unseen(node: Node, id: str) -> str:
    interim = node.executor.interim(id)
    return "" if interim is None else interim.unseen


@pytest.mark.parametrize(
    ("hosts", "names", "why"),
    [
        (("h1",), ("forewarn:driver:h2",), "its certificate is for h2, and not for host 'h1'"),
        (("h9",), ("forewarn:driver:h9",), "there is no host 'h9' in the fleet"),
        (("h1",), ("forewarn:node:h1", "forewarn:driver:h1"), "is for a node as well"),
    ],
)
def test_a_process_learns_why_its_certificate_is_refused(
    tmp_path: Path, hosts: tuple[str, ...], names: tuple[str, ...], why: str
) -> None:
    async def body(control: HostsControl, node: Node) -> None:
        async with control.process(*hosts, names=names) as (process, _):
            await until_async(lambda: why in process.problem)

    play(tmp_path, body)


def test_one_certificate_may_name_several_hosts(tmp_path: Path) -> None:
    async def body(control: HostsControl, node: Node) -> None:
        async with control.process("h1", "h2") as (_, both):
            await connected(node, "h1", "h2")
            id = await reboot(node, "web_0", "web_1")
            assert isinstance(id, str)
            await over(node, id)
            assert both.performed() == [("web_0", "web_1")]

    play(tmp_path, body)


def test_a_service_with_another_driver_says_so(tmp_path: Path) -> None:
    async def body(control: HostsControl) -> None:
        control.config = msgspec.structs.replace(control.config, driver=DriverConfig())
        async with control(), control.process("h1") as (process, _):
            await until_async(lambda: "another driver than" in process.problem)

    asyncio.run(asyncio.wait_for(body(HostsControl(tmp_path)), LIMIT))
