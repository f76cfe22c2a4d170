"""What a driver sees of machines, and how the inventory follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from forewarn.control.client.client import ControlClient
from forewarn.control.schema import core as s
from forewarn.core import Event, EventType, Refused, Status
from forewarn.drivers.port import MachineState, Seen, SeenMachine
from forewarn.node import Config, Node
from forewarn.node.config import Address
from forewarn.service.fleet import follow
from forewarn.service.fleet.read import parse
from forewarn.service.fleet.removal_limit import RemovalLimit
from forewarn.service.indexes.sightings import DifferenceKind
from forewarn.service.platform.hosts import LIVE_MIGRATION
from helpers.driver_processes import WatchingDriver
from helpers.waiting import LIMIT, until_async

FLEET = """
hosts: [h1, h2]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web_0, update_domain: 0, address: 10.0.0.1, host: h1, vm_id: %s}
      - {name: web_1, update_domain: 1, address: 10.0.0.2, host: h2}
""" % (ID := "4f1c0d7e-0000-4000-8000-000000000001")
THIRD = "      - {name: web_2, update_domain: 1, address: 10.0.0.3, host: h2}\n"
STANDALONE = """
  - name: db
    kind: standalone
    machines: [{name: db_0, address: 10.0.0.7, host: h1}]
"""
RUNNING, STOPPED = MachineState.RUNNING, MachineState.STOPPED
PAUSED, CRASHED = MachineState.PAUSED, MachineState.CRASHED


def vm(name: str, state: MachineState = RUNNING, **fields: object) -> SeenMachine:
    return msgspec.structs.replace(SeenMachine(name=name, state=state), **fields)


class Fleet:
    """A service, and a driver that reports what it is to see."""

    def __init__(self, node: Node, driver: WatchingDriver) -> None:
        self.node = node
        self.driver = driver

    def see(
        self, host: str, *machines: SeenMachine, whole: bool = False, removed: tuple[str, ...] = ()
    ) -> None:
        """Have the driver report."""
        assert self.driver.report
        self.driver.report(Seen(host=host, machines=machines, whole=whole, removed=removed))

    def see_all(self) -> None:
        """Have the driver see every machine where it is known to be."""
        self.see("h1", vm("web_0"), whole=True)
        self.see("h2", vm("web_1"), whole=True)
        assert self.drift() == {}

    def drift(self) -> dict[str, tuple[DifferenceKind, tuple[str, ...]]]:
        found = self.node.host_index.sightings.all()
        return {name: (difference.kind, difference.hosts) for name, difference in found.items()}

    def host_of(self, machine: str) -> str | None:
        found = self.node.machine_index.machine(machine)
        return found[1].host if found else None

    async def announce(self, machine: str, *, notice: int | None = None) -> Event:
        done = await self.node.platform.schedule(
            type=EventType.REDEPLOY,
            machines=(machine,),
            by="test",
            notice=notice,
            short_notice=notice is not None,
        )
        assert not isinstance(done, Refused)
        return done.event

    async def event(self, id: str) -> Event:
        event = await self.node.platform.event(id)
        assert not isinstance(event, Refused)
        return event

    def problem(self, machine: str) -> str:
        return self.node.inventory.problems.get(machine, "")


@asynccontextmanager
async def fleet(**config: object) -> AsyncIterator[Fleet]:
    driver = WatchingDriver()
    settings = Config(fleet=parse(FLEET), inventory="follow")
    async with Node(msgspec.structs.replace(settings, **config), driver=driver) as node:
        await until_async(lambda: driver.report)
        yield Fleet(node, driver)


@pytest.fixture(autouse=True)
def settled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "SETTLE", 0.01)
    monkeypatch.setattr(follow, "RETRY_EVERY", 0.05)


def play(body: Callable[[Fleet], Awaitable[None]], **config: object) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT), fleet(**config) as running:
            await body(running)

    asyncio.run(limited())


def test_a_report_shows_what_differs_and_changes_nothing() -> None:
    async def body(of: Fleet) -> None:
        of.see_all()
        of.see("h2", vm("db_0", group="web", addresses=("10.0.0.9",)), vm("web_0"))
        of.see("h2", vm("web_1", CRASHED))
        of.see("h1", removed=("web_0",))
        assert of.drift() == {
            "web_0": (DifferenceKind.ELSEWHERE, ("h2",)),
            "web_1": (DifferenceKind.CRASHED, ("h2",)),
            "db_0": (DifferenceKind.UNKNOWN, ("h2",)),
        }
        for host in ("h1", "h2"):
            refused = await of.node.hosts.maintain(host, LIVE_MIGRATION, "test")
            assert isinstance(refused, Refused)
            assert "web_0 (seen on: h2, known: h1)" in refused.message
        of.see("h1", vm("web_0", STOPPED))
        of.see("h2", vm("web_1"), removed=("db_0", "web_0"))
        assert of.drift() == {"web_0": (DifferenceKind.STOPPED, ("h1",))}
        assert (of.host_of("web_0"), of.host_of("db_0")) == ("h1", None)

    play(body, inventory="report")


def test_differences_are_listed_and_shown_with_their_machines() -> None:
    async def body(of: Fleet) -> None:
        of.see_all()
        of.see("h1", vm("web_0", STOPPED, reason="destroyed"), vm("plain"))
        await of.node.open_control(Address("127.0.0.1", 0))

        def ask() -> tuple[list[s.MachineDrift], list[s.Machine]]:
            client = ControlClient(of.node.control_url)
            pages = client.drift(limit="1"), client.drift(limit="1", after="plain")
            return [*pages[0], *pages[1]], list(client.machines())

        drift, machines = await asyncio.to_thread(ask)
        assert [(found.machine, found.drift, found.seen_on) for found in drift] == [
            ("plain", "unknown", ["h1"]),
            ("web_0", "stopped", ["h1"]),
        ]
        assert (drift[1].group, drift[1].reason, drift[1].problem) == ("web", "destroyed", "")
        assert {machine.name: machine.drift for machine in machines} == {
            "web_0": "stopped",
            "web_1": None,
        }
        gauges = {sample.name: dict(sample.samples) for sample in of.node._samples()}
        counted = gauges["forewarn_machines_differing"]
        assert (counted["stopped",], counted["unknown",], counted["elsewhere",]) == (1, 1, 0)

    play(body, inventory="report")


def test_a_move_by_hand_is_recorded_and_what_was_planned_for_the_old_host_is_withdrawn() -> None:
    async def body(of: Fleet) -> None:
        of.see_all()
        planned = await of.announce("web_0")
        # In the order in which libvirt shows a live migration.
        of.see("h2", vm("web_0", PAUSED))
        of.see("h1", vm("web_0", PAUSED))
        of.see("h2", vm("web_0"))
        of.see("h1", removed=("web_0",))
        await until_async(lambda: of.host_of("web_0") == "h2")
        assert (await of.event(planned.id)).status.over
        assert of.drift() == {}

    play(body)


def test_a_machine_is_recognised_by_its_id_whatever_it_is_called() -> None:
    async def body(of: Fleet) -> None:
        of.see("h1", whole=True)
        of.see("h2", vm("renamed", vm_id=ID.upper()), vm("web_1"), whole=True)
        await until_async(lambda: of.host_of("web_0") == "h2")
        assert of.drift() == {}

    play(body)


def test_what_runs_on_two_hosts_is_unclear_and_stays_where_it_was() -> None:
    async def body(of: Fleet) -> None:
        of.see_all()
        of.see("h2", vm("web_0"))
        assert of.drift() == {"web_0": (DifferenceKind.UNCLEAR, ("h1", "h2"))}
        of.see("h2", vm("db_0", group="web", addresses=("10.0.0.9",)))
        await until_async(lambda: of.host_of("db_0") == "h2")  # which is followed after it
        assert of.host_of("web_0") == "h1"

    play(body)


def test_nothing_is_concluded_from_a_host_that_cannot_be_reached() -> None:
    async def body(of: Fleet) -> None:
        of.see("h2", vm("web_0"), whole=True)
        await until_async(lambda: "h1" in of.problem("web_0"))
        assert of.host_of("web_0") == "h1"  # where it may still run
        of.see("h2", vm("web_1"), removed=("web_0",))
        assert of.drift() == {}
        of.node.host_index.sightings.lost(["h2"])
        of.see("h1", vm("web_0"), whole=True)
        of.see("h1", removed=("web_0",))
        await until_async(lambda: "h2" in of.problem("web_0"))
        assert of.drift() == {"web_0": (DifferenceKind.MISSING, ())}
        assert of.host_of("web_0") == "h1"  # it may be on h2
        await of.node.hosts.fail("h2", "test")
        await until_async(lambda: of.host_of("web_0") is None)

    play(body)


def test_absence_is_believed_after_two_complete_enumerations() -> None:
    async def body(of: Fleet) -> None:
        of.see_all()
        planned = await of.announce("web_0")
        of.see("h1", whole=True)
        assert of.drift() == {}
        of.node.host_index.sightings.lost(["h1"])
        of.see("h1", whole=True)  # perhaps the same, sent again
        of.see("h1", vm("web_9"))  # not complete
        assert "web_0" not in of.drift()
        of.see("h1", whole=True)
        assert of.drift() == {"web_0": (DifferenceKind.MISSING, ())}
        for _ in range(2):  # it may have gone there
            of.see("h2", vm("web_1"), whole=True)
        await until_async(lambda: of.host_of("web_0") is None)
        assert (await of.event(planned.id)).status.over

    play(body)


def test_a_machine_that_is_still_to_be_created_is_not_removed() -> None:
    async def body(of: Fleet) -> None:
        of.see("h2", vm("web_1"), whole=True)
        for _ in range(3):
            of.see("h1", whole=True)
        await until_async(lambda: "not seen on any host" in of.problem("web_0"))
        assert of.drift() == {"web_0": (DifferenceKind.MISSING, ())}
        of.see("h1", vm("web_0"), whole=True)
        assert of.drift() == {}
        assert of.host_of("web_0") == "h1"
        for _ in range(3):
            of.see("h1", whole=True)
            of.see("h2", vm("web_1"), whole=True)
        await until_async(lambda: of.host_of("web_0") is None)

    play(body)


def test_no_more_machines_are_removed_in_an_hour_than_one_change_may() -> None:
    async def body(of: Fleet) -> None:
        of.see_all()
        of.see("h1", removed=("web_0",))
        await until_async(lambda: of.host_of("web_0") is None)
        of.see("h2", removed=("web_1",))
        await until_async(lambda: "max_removals" in of.problem("web_1"))
        assert of.host_of("web_1") == "h2"
        of.node.fleet_apply.removal_limit = None
        await until_async(lambda: of.host_of("web_1") is None)

    play(body, removal_limit=RemovalLimit(machines=1), fleet=parse(FLEET + THIRD))


def test_the_last_machine_of_a_group_is_only_removed_if_it_stands_alone() -> None:
    """The group, and what was set for it, would go with the machine."""

    async def body(of: Fleet) -> None:
        of.see_all()
        of.see("h1", vm("db_0"))
        of.see("h1", removed=("web_0", "db_0"))
        await until_async(lambda: of.host_of("web_0") is of.host_of("db_0") is None)
        of.see("h2", removed=("web_1",))
        await until_async(lambda: "last machine" in of.problem("web_1"))
        assert of.drift() == {"web_1": (DifferenceKind.MISSING, ())}
        assert of.host_of("web_1") == "h2"

    play(body, fleet=parse(FLEET + STANDALONE))


def test_a_machine_may_have_gone_to_a_host_that_reports_nothing_although_it_is_connected() -> None:
    async def body(of: Fleet) -> None:
        of.see_all()
        for _ in range(3):
            of.see("h1", whole=True)  # it has left, and what watches h2 hangs
        await until_async(lambda: "h2" in of.problem("web_0"))
        of.see("h2", vm("web_1"), whole=True)  # which may have begun before
        await until_async(lambda: "h2" in of.problem("web_0"))
        of.see("h2", vm("web_1"), vm("web_0"), whole=True)
        await until_async(lambda: of.host_of("web_0") == "h2")
        for host, machines in (("h2", [vm("web_1")]), ("h1", [])) * 3:
            of.see(host, *machines, whole=True)
        await until_async(lambda: of.host_of("web_0") is None)

    play(body)


def test_what_is_left_of_a_machine_elsewhere_says_nothing_about_its_host() -> None:
    async def body(of: Fleet) -> None:
        of.see_all()
        of.see("h2", vm("web_1"), vm("web_0", STOPPED))
        of.see("h1", whole=True)
        assert of.drift() == {}
        of.see("h1", whole=True)
        assert of.drift() == {"web_0": (DifferenceKind.ELSEWHERE, ("h2",))}
        await until_async(lambda: of.host_of("web_0") == "h2")

    play(body)


def test_what_is_described_at_the_hypervisor_is_added() -> None:
    async def body(of: Fleet) -> None:
        of.see_all()
        new = vm("web_2", group="web", update_domain=3, spot=True, vm_id=ID[:-1] + "2")
        of.see("h2", vm("plain"), new)
        await until_async(lambda: bool(of.problem("web_2")))  # it has no address yet
        of.see("h2", msgspec.structs.replace(new, addresses=("10.0.0.9",)))
        await until_async(lambda: of.host_of("web_2") == "h2")
        found = of.node.machine_index.machine("web_2")
        assert found
        group, machine = found
        assert (group.name, machine.update_domain, machine.spot) == ("web", 3, True)
        assert machine.vm_id == ID[:-1] + "2"
        assert of.drift() == {"plain": (DifferenceKind.UNKNOWN, ("h2",))}
        of.see("h1", vm("web_3", group="wbe", addresses=("10.0.0.8",)))
        await until_async(lambda: "wbe" in of.problem("web_3"))

    play(body)


def test_machines_are_only_added_to_groups_that_are_allowed() -> None:
    async def body(of: Fleet) -> None:
        of.see_all()
        of.see("h2", vm("db_0", group="web", addresses=("10.0.0.9",)))
        await until_async(lambda: "inventory_groups" in of.problem("db_0"))
        assert of.host_of("db_0") is None
        of.see("h1", vm("web_1"))
        of.see("h2", removed=("web_1",))  # those of any group are followed
        await until_async(lambda: of.host_of("web_1") == "h1")

    play(body, inventory_groups=("w?b-*", "sql"))


def test_what_has_crashed_is_restarted_once() -> None:
    async def body(of: Fleet) -> None:
        of.see_all()
        of.see("h1", vm("web_0", CRASHED))
        await until_async(lambda: of.driver.performed() == [("web_0",)])
        await until_async(lambda: not of.node.platform.active())
        assert of.drift() == {}  # what was seen before the driver's word
        of.see("h1", vm("web_0", CRASHED, reason="again"))
        await until_async(lambda: len(of.driver.performed()) == 2)

    play(body, restart_crashed=True)


def test_a_crash_is_only_reported_unless_it_is_to_be_followed() -> None:
    async def body(of: Fleet) -> None:
        of.see_all()
        of.see("h1", vm("web_0", CRASHED))
        of.see("h2", vm("db_0", group="web", addresses=("10.0.0.9",)))
        await until_async(lambda: of.host_of("db_0") == "h2")
        assert of.drift() == {"web_0": (DifferenceKind.CRASHED, ("h1",))}
        assert not of.driver.performed()

    play(body)


def test_while_an_event_is_carried_out_the_word_of_the_driver_counts() -> None:
    async def body(of: Fleet) -> None:
        of.see_all()
        of.driver.go.clear()
        event = await of.announce("web_0", notice=0)
        await until_async(lambda: of.driver.at_work)
        of.see("h2", vm("web_0", PAUSED))
        of.see("h1", vm("web_0", CRASHED), whole=True)
        assert of.drift() == {}
        of.driver.go.set()
        await until_async(lambda: of.host_of("web_0") == "h2")
        assert (await of.event(event.id)).status is Status.FINISHED
        of.see("h1", vm("web_0", STOPPED))  # a definition that is left
        assert of.drift() == {}
        of.see("h2", vm("web_0"))
        of.see("h1", removed=("web_0",))
        assert of.drift() == {}

    play(body, restart_crashed=True)
