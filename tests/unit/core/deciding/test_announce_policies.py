"""What a group's owner has decided beforehand: nobody is asked who could not answer."""

from __future__ import annotations

import pytest

from forewarn.core import EventType, Machine, Policy, Status, commands
from forewarn.core.events import Approval
from forewarn.core.time import MINUTE
from helpers.group_model import GroupWorld

DOWN = "policy: all machines are down"


@pytest.fixture
def world() -> GroupWorld:
    world = GroupWorld()
    machines = (Machine(name="m0"), Machine(name="m1"))
    world.define(*machines, policy=Policy(all_instances_down=True))
    world.poll()
    return world


def approval(world: GroupWorld, id: str) -> Approval | None:
    return world.event(id).approved


def test_an_approval_that_takes_the_last_machine_down_approves_what_is_left(
    world: GroupWorld,
) -> None:
    reboots = [world.maintained(EventType.REBOOT, name) for name in ("m0", "m1")]
    waiting = world.maintained(EventType.REDEPLOY, "m0")
    world.approve(*reboots)
    found = approval(world, waiting)
    assert found is not None
    assert found.by == DOWN
    assert world.status(waiting) is Status.SCHEDULED  # its machine is busy


def test_nothing_is_approved_by_policy_while_one_machine_is_up(world: GroupWorld) -> None:
    world.struck("m0")
    waiting = world.maintained(EventType.REBOOT, "m1")
    assert approval(world, waiting) is None


def test_a_freeze_takes_no_machine_down(world: GroupWorld) -> None:
    for name in ("m0", "m1"):
        world.approve(world.raised(EventType.FREEZE, name))
    assert approval(world, world.maintained(EventType.REBOOT, "m0")) is None


def test_platform_events_are_not_approved_by_policy_when_all_machines_are_down(
    world: GroupWorld,
) -> None:
    planned = world.raised(EventType.REBOOT, "m0")
    for name in ("m0", "m1"):
        world.struck(name)
    assert approval(world, planned) is None
    world.run(15 * MINUTE)
    assert world.status(planned) is Status.SCHEDULED


def test_without_the_policy_nothing_is_approved_by_it() -> None:
    world = GroupWorld()
    world.define(Machine(name="m0"))
    world.poll()
    world.struck("m0")
    assert approval(world, world.maintained(EventType.REBOOT, "m0")) is None


def test_the_policy_can_be_changed_and_setting_it_again_is_noted(world: GroupWorld) -> None:
    same = world.do(commands.SetPolicy(policy=Policy(all_instances_down=True), by="ops"))
    assert same.items == ()
    assert same.notes
    world.do(commands.SetPolicy(policy=Policy(), by="ops"))
    assert world.group.policy == Policy()
