"""Hosts at bad moments: members that leave, machines that come, drivers that hesitate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from forewarn.core import EventType, Refused, Status
from forewarn.core.commands import Define
from forewarn.core.events import ApprovalKind
from forewarn.core.time import DAY, SECOND
from forewarn.drivers.port import (
    Again,
    Checked,
    Done,
    Driver,
    NotYet,
    Observed,
    Ok,
    Performed,
    Task,
)
from forewarn.service.platform.platform import Outcomes
from forewarn.testing import RefusedError, Service
from helpers.reachable_hosts import join

FLEET = """
hosts: [h1, h2, h3]
groups:
  - {name: a, kind: standalone, machines: [{name: a0, host: h1}]}
  - {name: b, kind: standalone, machines: [{name: b0, host: h1}]}
  - {name: c, kind: standalone, machines: [{name: c0, host: h3}]}
  - name: d
    kind: availability-set
    policy: {all_instances_down: true}
    machines: [{name: d0, host: h2, update_domain: 0}, {name: d1, host: h3, update_domain: 0}]
"""


class Hesitant(Driver):
    """A driver whose check takes until it is told, and whose perform says what it is told."""

    repeatable = True

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.reported = asyncio.Event()
        self.reported.set()
        self.performed: list[Task] = []
        self.answer: Performed = Done()
        self.trouble: Exception | None = None

    async def check(self, task: Task) -> Checked:
        if self.trouble is not None:
            raise self.trouble
        self.asked.set()
        await self.reported.wait()
        return Ok()

    async def observe(self, task: Task) -> Observed:
        return NotYet()

    async def perform(self, task: Task) -> Performed:
        self.performed.append(task)
        return self.answer


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        for machine in ("a0", "b0", "c0", "d0"):
            service.document(machine)
        yield service


def maintain(service: Service, host: str) -> Outcomes:
    done = service._session.run(
        service._session.node.hosts.maintain(host, EventType.REBOOT, "test")
    )
    assert isinstance(done, Outcomes), done
    return done


def test_maintenance_starts_in_time_when_a_busy_machine_has_left_the_host(service: Service) -> None:
    """The group that held them all back leaves in a commit that concerns it alone."""
    redeploy = service.redeploy("a0")
    service.approve("a0", redeploy)
    maintain(service, "h1")
    service.clock.advance("14m")
    assert service.document("a0")["Events"] == []  # moved away: no longer concerned
    assert service.document("b0")["Events"][0]["EventStatus"] == "Scheduled"
    service.clock.advance("1m")
    assert service.document("b0")["Events"][0]["EventStatus"] == "Started"


def test_a_machine_redeployed_without_a_new_host_still_gets_events_of_its_host() -> None:
    """There is nowhere to go: every other host is spoken for."""
    with Service(FLEET) as service:
        for machine in ("a0", "b0", "c0", "d0"):
            service.document(machine)
        for host in ("h1", "h2", "h3"):
            maintain(service, host)
        service._session.run(service._session.node.removals.fail("a0", EventType.REDEPLOY, "test"))
        service.clock.advance("11m")
        (planned,) = service.document("a0")["Events"]
        assert (planned["EventType"], planned["EventStatus"]) == ("Reboot", "Scheduled")
        found = service._session.node.machine_index.machine("a0")
        assert found is not None
        assert found[1].host == "h1"


def test_the_driver_is_asked_once_for_all_groups_of_a_host() -> None:
    driver = Hesitant()
    with Service(FLEET, driver=driver) as service:
        maintain(service, "h1")
        service.clock.advance("16m")
    (task,) = driver.performed
    assert task.host == "h1"
    assert [part.machines for part in task.parts] == [("a0",), ("b0",)]
    assert [machine.name for machine in task.machines] == ["a0", "b0"]


def test_a_machine_that_comes_while_the_driver_is_asked_is_not_forgotten() -> None:
    driver = Hesitant()
    with Service(FLEET, driver=driver) as service:
        node = service._session.node

        async def meanwhile() -> Outcomes | Refused:
            driver.reported.clear()
            planned = asyncio.ensure_future(  # noqa: TID251 - two at once is the point
                node.hosts.maintain("h1", EventType.REBOOT, "test")
            )
            await driver.asked.wait()
            group = node.store.groups["c"]
            moved = tuple(msgspec.structs.replace(m, host="h1") for m in group.machines)
            define = Define(kind=group.kind, machines=moved, policy=group.policy, place=group.place)
            assert not isinstance(await node.writer.submit("c", define), Refused)
            driver.reported.set()
            return await planned

        done = service._session.run(meanwhile())
    assert isinstance(done, Refused)
    assert "just been changed" in done.message


def test_one_of_two_plans_for_one_host_is_refused(service: Service) -> None:
    async def both() -> tuple[Any, Any]:
        hosts = service._session.node.hosts
        return await asyncio.gather(
            hosts.maintain("h1", EventType.REBOOT, "one"),
            hosts.maintain("h1", EventType.FREEZE, "two"),
        )

    outcomes = service._session.run(both())
    assert sorted(isinstance(done, Refused) for done in outcomes) == [False, True]
    assert len(service.document("a0")["Events"]) == 1


def test_a_machine_added_after_the_announcement_is_named_as_not_warned(service: Service) -> None:
    maintain(service, "h1")
    group = service._session.node.store.groups["c"]
    moved = tuple(msgspec.structs.replace(m, host="h1") for m in group.machines)
    define = Define(kind=group.kind, machines=moved, policy=group.policy, place=group.place)
    service._session.run(service._session.node.writer.submit("c", define))
    report = service._session.node.hosts.explain("h1")
    assert not isinstance(report, Refused)
    assert "added later: c0" in report.message


def test_other_events_of_machines_on_a_host_are_explained_with_its_maintenance(
    service: Service,
) -> None:
    maintain(service, "h1")
    restart = service.schedule("Reboot", "a0", source="User")
    service.schedule("Reboot", "c0")  # on another host
    report = service._session.node.hosts.explain("h1")
    assert not isinstance(report, Refused)
    assert [event.id for event in report.others] == [restart.id]


def test_a_machine_added_later_that_is_being_deleted_holds_nothing_back() -> None:
    driver = Hesitant()
    with Service(FLEET, driver=driver) as service:
        node = service._session.node
        driver.answer = Again(int(service.clock.now.timestamp()) * SECOND + DAY)
        maintain(service, "h1")
        service._session.run(node.platform.record_move("c0", "h1", "test"))
        service.clock.advance("20m")
        assert {e.status for e in node.hosts.events_about("h1")} == {Status.SCHEDULED}
        service._session.run(node.removals.delete("c0", "test"))
        service.clock.advance("20m")  # its delete has started, and takes as long as it likes
        assert [e.status for e in node.store.groups["c"].events] == [Status.STARTED]
        assert {e.status for e in node.hosts.events_about("h1")} == {Status.STARTED}


def test_a_machine_that_returns_to_its_host_counts_as_warned() -> None:
    two = "{name: a0, host: h1, update_domain: 0}, {name: a1, host: h1, update_domain: 0}"
    fleet = FLEET.replace("a, kind: standalone", "a, kind: availability-set")
    fleet = fleet.replace("{name: a0, host: h1}", two)
    driver = Hesitant()
    with Service(fleet, driver=driver) as service:
        maintain(service, "h1")
        record_move = service._session.node.platform.record_move
        for machine, host in (("a0", "h2"), ("a0", "h1"), ("a1", "h2")):
            service._session.run(record_move(machine, host, "test"))
        service.clock.advance("15m")
    (task,) = driver.performed
    assert [machine.name for machine in task.machines] == ["a0", "b0"]


def test_a_driver_that_cannot_be_asked_is_a_refusal() -> None:
    driver = Hesitant()
    driver.trouble = ConnectionError("no route")
    with (
        Service(FLEET, driver=driver) as service,
        pytest.raises(RefusedError, match="ConnectionError: no route"),
    ):
        service.schedule("Reboot", "a0")


def test_a_driver_that_always_says_again_now_is_not_asked_without_a_pause() -> None:
    driver = Hesitant()
    driver.answer = Again(0)
    with Service(FLEET, driver=driver) as service:
        service.document("a0")
        event = service.schedule("Reboot", "a0")
        service.approve("a0", event)
        service.clock.advance("2s")
    assert 2 < len(driver.performed) < 12


def test_a_first_poll_is_answered_though_the_group_is_disabled_in_the_same_moment(
    service: Service,
) -> None:
    platform = service._session.node.platform

    async def both() -> None:
        service_disabled = platform.disable("a", "test")
        await asyncio.wait_for(
            asyncio.gather(service._session.node.guests.enable("a"), service_disabled), 5
        )

    service.disable("a")
    service._session.run(both())
    assert service._session.node.store.groups["a"].enabled


def test_an_approval_that_takes_all_machines_down_approves_what_is_left(service: Service) -> None:
    first, second = service.restart("d0"), service.restart("d1")
    third = service.redeploy("d0")
    service.approve("d0", first, second)
    events = {event.id: event for event in service._session.node.platform.active()}
    assert events[first.id].status is events[second.id].status is Status.STARTED
    approved = events[third.id].approved
    assert approved is not None
    assert (approved.kind, approved.by[-8:]) == (ApprovalKind.POLICY, "are down")
    assert events[third.id].type is EventType.REDEPLOY


def test_the_joining_of_a_node_is_recorded_once(service: Service) -> None:
    node = service._session.node
    join(service, "h1")
    seq = node.store.seq
    join(service, "h1")
    assert node.store.seq == seq
    assert node.store.registry.hosts["h1"].node
    assert isinstance(service._session.run(node.hosts.node_joined("nowhere")), Refused)
