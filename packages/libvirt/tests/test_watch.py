"""What is reported of the domains of a host, on libvirt's own test driver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import libvirt
import pytest

from forewarn.drivers.port import DriverContext, MachineState, Seen, SeenMachine
from forewarn.support import guard
from forewarn_libvirt import events, machines, watch
from forewarn_libvirt.driver import LibvirtDriver
from forewarn_libvirt.hosts import Hosts
from forewarn_libvirt.options import LibvirtOptions
from helpers.waiting import LIMIT, until_async

NODE = "<node><cpu><mhz>6000</mhz></cpu><memory>1048576</memory></node>"
DOMAIN = """
<domain type='test'><name>{name}</name><memory unit='MiB'>64</memory><vcpu>2</vcpu>
<metadata>{metadata}</metadata><os><type>hvm</type></os><devices>
<interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'/>
<target dev='tap-{name}'/></interface></devices></domain>
"""
MACHINE = "<machine xmlns='urn:forewarn:machine:1' {}/>"


class Place:
    """A host whose libvirt outlives the driver, and what is known of it."""

    def __init__(self, directory: Path) -> None:
        events.run()
        (file := directory / "h1.xml").write_text(NODE)
        self.uri = f"test://{file}"
        self.connection = libvirt.open(self.uri)
        self.history = [Seen(host="h1")]  # what is known after each report
        self.reports: list[Seen] = []
        self.reachable = True
        self.refused = 0
        self.places = directory / "machines.toml"

    def define(self, name: str, metadata: str = "") -> Any:
        return self.connection.defineXML(DOMAIN.format(name=name, metadata=metadata))

    def note(self, seen: Seen) -> None:
        self.reports.append(seen)
        self.history.append(seen.after(self.seen))

    @property
    def seen(self) -> Seen:
        return self.history[-1]

    def open(self, _uri: str) -> Any:
        if not self.reachable:
            self.refused += 1
            return libvirt.open("test+unix:///default?socket=/nowhere")
        return self.connection

    def machine(self, name: str) -> SeenMachine | None:
        return next((m for m in self.seen.machines if m.name == name), None)

    async def until_state(self, name: str, state: MachineState, reason: str = "") -> None:
        def is_it() -> bool:
            machine = self.machine(name)
            return machine is not None and (machine.state, machine.reason) == (state, reason)

        await until_async(is_it, f"{name} as {state}, {reason}")

    def play(self, body: Callable[[], Awaitable[None]]) -> None:
        async def watch() -> None:
            context = DriverContext(hosts=("h1",))
            options = LibvirtOptions(
                uri=self.uri, machines=str(self.places) if self.places.exists() else ""
            )
            driver = LibvirtDriver(options, context, self.open)
            tasks = guard.Tasks()
            tasks.start(driver.watch(self.note), "watch")
            try:
                async with asyncio.timeout(LIMIT):
                    await body()
            finally:
                await tasks.end()
                await driver.aclose()

        asyncio.run(watch())

    async def whole(self) -> None:
        await until_async(lambda: self.seen.whole, "an enumeration")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_all_domains_are_reported_with_what_the_inventory_wants_to_know(place: Place) -> None:
    place.define("idle")
    described = "group='web' update_domain='2' address='10.0.0.1 fd00::1' spot='true'"
    running = place.define("web-0", MACHINE.format(described))
    running.create()

    async def body() -> None:
        await place.whole()

    place.play(body)
    idle, web = place.seen.machines
    assert (idle.name, idle.state, idle.group) == ("idle", MachineState.STOPPED, "")
    assert web == SeenMachine(
        name="web-0",
        vm_id=running.UUIDString(),
        state=MachineState.RUNNING,
        addresses=("10.0.0.1", "fd00::1"),
        ports={"tap-web-0": "52:54:00:00:00:01"},
        memory=64 << 20,
        cpus=2,
        group="web",
        update_domain=2,
        spot=True,
    )


def test_a_file_says_where_machines_belong_by_their_name_or_uuid(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again with all domains, and precedes the metadata of a domain."""
    monkeypatch.setattr(watch, "ENUMERATE", 0.1)
    first = place.define("web-0", MACHINE.format("group='other' spot='true'"))
    place.define("web-1", MACHINE.format("group='web' update_domain='one'"))  # not a number
    table = "[{}]\ngroup = 'web'\nupdate_domain = 1\naddress = '10.0.0.1'\n"
    place.places.write_text(table.format(first.UUIDString()))

    def described(name: str) -> object:
        machine = place.machine(name)
        assert machine
        return machine.group, machine.update_domain, machine.addresses, machine.spot

    async def body() -> None:
        await place.whole()
        assert described("web-0") == ("web", 1, ("10.0.0.1",), False)
        assert described("web-1") == ("", None, (), False)
        place.places.write_text("[web-0")
        reports = len(place.reports)
        await until_async(lambda: len(place.reports) > reports + 1, "enumerations")
        assert described("web-0") == ("web", 1, ("10.0.0.1",), False)  # as it was
        place.places.write_text(table.format("web-1"))
        await until_async(lambda: described("web-1") == ("web", 1, ("10.0.0.1",), False))
        assert described("web-0") == ("other", None, (), True)

    place.play(body)


def test_what_somebody_does_to_a_domain_is_reported(place: Place, tmp_path: Path) -> None:
    async def body() -> None:
        await place.whole()
        domain = place.define("web-0")
        await place.until_state("web-0", MachineState.STOPPED, "unknown")
        domain.create()
        await place.until_state("web-0", MachineState.RUNNING)
        domain.suspend()
        await place.until_state("web-0", MachineState.PAUSED, "user")
        domain.coreDump(str(tmp_path / "core"), libvirt.VIR_DUMP_CRASH)
        await place.until_state("web-0", MachineState.CRASHED, "crashed")
        domain.undefine()
        await until_async(lambda: place.seen.removed == ("web-0",), "its removal")
        assert place.machine("web-0") is None

    place.play(body)


def test_a_domain_that_is_renamed_is_never_absent(place: Place) -> None:
    domain = place.define("web-0")
    identity = domain.UUIDString()

    async def body() -> None:
        await place.whole()
        domain.rename("web-1")
        await until_async(lambda: place.machine("web-1") is not None, "its new name")

    place.play(body)
    assert place.machine("web-0") is None
    for seen in place.history[1:]:
        assert identity in {machine.vm_id for machine in seen.machines}


def test_a_running_domain_without_a_definition_is_not_removed(place: Place) -> None:
    domain = place.define("web-0")
    domain.create()

    async def body() -> None:
        await place.whole()
        domain.undefine()
        place.define("later")
        await until_async(lambda: place.machine("later") is not None)
        assert place.machine("web-0") is not None
        domain.destroy()
        await until_async(lambda: place.seen.removed == ("web-0",), "its removal")

    place.play(body)


def test_a_domain_that_leaves_while_it_is_looked_at_was_not_removed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = place.define("web-0")
    domain.create()

    async def body() -> None:
        hosts = Hosts(lambda _: place.uri, place.open)
        with ThreadPoolExecutor() as threads:
            watching = watch.Watch("h1", hosts, dict, threads, place.note)
        watching._connect()
        watching._enumerate()
        look = machines.seen

        def leave(*args: Any) -> SeenMachine:
            found = look(*args)
            watching._note("web-0", left=True)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(machines, "seen", leave)
            assert [machine.name for machine in watching._look({"web-0"}).machines] == ["web-0"]
        domain.destroy()
        domain.undefine()
        assert watching._look({"web-0"}) == Seen(host="h1", whole=True)

    asyncio.run(body())


def test_nothing_is_reported_of_a_host_that_cannot_be_reached(place: Place) -> None:
    place.define("web-0")
    place.reachable = False

    async def body() -> None:
        await until_async(lambda: place.refused >= 2, "attempts to reach it")
        assert place.seen == Seen(host="h1")
        place.reachable = True
        await place.whole()

    place.play(body)
    assert place.machine("web-0") is not None


def test_a_change_of_one_of_many_is_reported_alone(place: Place) -> None:
    domains = [place.define(f"web-{number}") for number in range(500)]

    async def body() -> None:
        await place.whole()
        assert len(place.seen.machines) == len(domains)
        domains[7].create()
        await place.until_state("web-7", MachineState.RUNNING)
        assert [machine.name for machine in place.reports[-1].machines] == ["web-7"]

    place.play(body)
