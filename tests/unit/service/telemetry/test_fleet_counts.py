"""Numbers that are kept along with commits are those that a look at everything would give."""

from __future__ import annotations

import random
from typing import Any

import pytest

from forewarn.core import Changes, Group, Machine, Policy, Refused, World, apply, decide
from forewarn.core import commands as c
from forewarn.core.events import EventType
from forewarn.core.time import HOUR
from forewarn.service.telemetry.fleet_counts import FleetCounts
from forewarn.service.telemetry.metrics import overdue
from forewarn.service.telemetry.samples import Histogram, Histograms, Sample
from forewarn.testing import SAMPLE, Service
from helpers.times import START

ID = "28512AF7-C957-4500-9BC4-842D6FB531E4"
AUTO = Policy(auto_approve=(EventType.REBOOT,))
RESTART = c.UserMaintenance(id=ID, type=EventType.REBOOT, machine="m", by="x")
MACHINES = ("web_0", "web_1", "web_2", "sql-0", "sql-1", "jumpbox")
ABSENT = (  # while there is nothing that they could be about
    "forewarn_notice_left_seconds",
    "forewarn_control_requests",
    "forewarn_certificate_expiry_timestamp_seconds",
    "forewarn_token_expiry_timestamp_seconds",
    "forewarn_drivers_disconnected",
    "forewarn_machines_differing",
)
STATE = (
    "forewarn_machine_coverage",
    "forewarn_machines_never_approving",
    "forewarn_started_overdue_seconds",
    "forewarn_rollouts_self_paused",
    "forewarn_groups",
    "forewarn_machines",
    "forewarn_callers",
    "forewarn_hosts",
    "forewarn_hosts_cordoned",
    "forewarn_halts",
    "forewarn_rollouts",
    "forewarn_events",
    "forewarn_events_held",
    "forewarn_notice_left_seconds",
)


def numbers(fleet_counts: FleetCounts, now: int) -> dict[str, Any]:
    return {
        reading.name: sorted((labels, value) for labels, value in reading.samples if value)
        for reading in fleet_counts.readings(now)
        if isinstance(reading, Sample) and reading.name in STATE
    }


@pytest.mark.parametrize("seed", range(6))
def test_running_counts_equal_a_fresh_count(seed: int) -> None:
    chance = random.Random(seed)
    with Service(SAMPLE) as service:
        node = service._session.node
        for _ in range(40):
            machine = chance.choice(MACHINES)
            group = node.machine_index.group_of(machine) or ""
            match chance.randrange(9):
                case 0:
                    service.get(machine)
                case 1:
                    kind = chance.choice([EventType.REBOOT, EventType.FREEZE])
                    service._session.run(
                        node.platform.schedule(type=kind, machines=(machine,), by="test")
                    )
                case 2:
                    service._session.run(
                        node.platform.user_maintenance(machine, EventType.REDEPLOY, "test")
                    )
                case 3:
                    for event in node.platform.active()[:2]:
                        service.approve(machine, event)
                case 4:
                    for event in node.platform.active()[:1]:
                        service._session.run(node.platform.cancel(event.id, "test"))
                case 5:
                    service.clock.advance(f"{chance.randrange(1, 40)}m")
                case 6:
                    name = chance.choice(["host-a", "host-b", "host-c"])
                    verb = chance.choice(["degrade", "fail", "repair"])
                    service._session.run(getattr(node.hosts, verb)(name, "test"))
                case 7:
                    evict = c.Evict(id=node.platform.new_id(), machine=machine, by="test")
                    service._session.run(node.writer.submit(group, evict))
                case 8:
                    service._session.run(node.platform.restore(machine, "test"))
            service._session.settle()

        async def counted() -> tuple[dict[str, Any], dict[str, Any]]:
            now = node.writer.now().at
            anew = FleetCounts(node.store, node.poll_index)
            anew.load()
            return numbers(node.metrics.fleet_counts, now), numbers(anew, now)

        along, anew = service._session.run(counted())
        assert along == anew
        assert along["forewarn_events"] or along["forewarn_machines"]


def test_loading_twice_counts_nothing_twice() -> None:
    with Service(SAMPLE) as service:
        service.schedule("Reboot", "web_0")
        fleet_counts = service._session.node.metrics.fleet_counts
        before = numbers(fleet_counts, START)
        fleet_counts.load()
        assert numbers(fleet_counts, START) == before


def test_the_first_deadline_counts_and_goes_when_its_event_starts() -> None:
    with Service(SAMPLE) as service:
        fleet_counts = service._session.node.metrics.fleet_counts
        for machine in ("web_0", "sql-0"):
            service.get(machine)
        late = service.schedule("Reboot", "web_0", notice="2h")
        early = service.schedule("Reboot", "sql-0", notice="1h")
        assert dict(fleet_counts.notice_left(START)) == {"Reboot": 3_600}
        service.cancel(early)
        assert dict(fleet_counts.notice_left(START)) == {"Reboot": 7_200}
        service.approve("web_1", late)
        assert dict(fleet_counts.notice_left(START)) == {}


def test_a_postponed_deadline_counts_as_it_is_now() -> None:
    fleet = """
groups:
  - {name: web, kind: availability-set, policy: {may_postpone: "2h"}, machines: [{name: web_0}]}
  - {name: sql, kind: availability-set, machines: [{name: sql-0}]}
"""
    with Service(fleet) as service:
        node = service._session.node
        early = service.schedule("Reboot", "web_0", notice="1h")
        service.schedule("Reboot", "sql-0", notice="2h")
        done = service._session.run(node.platform.postpone(early.id, "test", duration=2 * HOUR))
        assert not isinstance(done, Refused), done.message
        notice_left = node.metrics.fleet_counts.notice_left
        assert dict(notice_left(START)) == {"Reboot": 7_200}
        assert dict(notice_left(START + 3 * HOUR)) == {"Reboot": -3_600}


def test_a_spread_counts_by_the_first_bound_that_is_not_exceeded() -> None:
    spread = Histogram((1, 5))
    for value in (0.5, 1, 1.1, 5, 99):
        spread.add(value)
    assert spread.up_to() == [(1, 2), (5, 4), (float("inf"), 5)]
    assert spread.sum == 106.6


def test_what_is_due_later_is_not_overdue() -> None:
    with Service(SAMPLE) as service:
        now: World = service._session.node.writer.now()
        assert overdue(None, now) == 0
        assert overdue(now.at + 5, now) == 0
        assert overdue(now.at - 2_000_000, now) == 2


def test_every_reading_has_all_its_samples_before_anything_has_happened() -> None:
    """So that a rate can be had from the first event on."""
    with Service(SAMPLE) as service:
        for reading in service._session.node._samples():
            if reading.name in ABSENT:
                continue
            assert reading.samples, reading.name
            assert isinstance(reading, Sample | Histograms)


@pytest.mark.parametrize(
    ("command", "policy", "enabled", "counted"),
    [
        (
            c.UserMaintenance(id=ID, type=EventType.REBOOT, machine="m", by="x"),
            AUTO,
            True,
            "policy",
        ),
        (
            c.UserMaintenance(id=ID, type=EventType.REBOOT, machine="m", by="x"),
            None,
            False,
            "nobody",
        ),
        (c.Delete(id=ID, machine="m", by="x"), None, True, "nobody"),
        (c.Approve(ids=(ID,), by="policy-server"), None, True, "guest"),
        (c.Approve(ids=(ID,), by="nobody: 2"), None, True, "guest"),
        (c.OperatorApprove(id=ID, by="policymaker"), None, True, "operator"),
        (c.OperatorApprove(id=ID, by="policy"), None, True, "operator"),
    ],
)
def test_approvals_are_counted_by_kind_of_approver_whatever_its_name(
    command: c.Command, policy: Policy | None, enabled: bool, counted: str
) -> None:
    group = Group(
        name="g", machines=(Machine(name="m"),), enabled=enabled, policy=policy or Policy()
    )
    now = World(at=0)
    if isinstance(command, c.Approve | c.OperatorApprove):
        announced = c.Raise(id=ID, type=EventType.REBOOT, machines=("m",), by="x")
        group = _decided(group, announced, now)
    event = _decided(group, command, now).event(ID)
    assert event is not None
    assert event.approved is not None
    assert event.approved.kind.value == counted


def _decided(group: Group, command: c.Command, now: World) -> Group:
    decided = decide(group, command, now)
    assert isinstance(decided, Changes)
    return apply(group, decided.items)
