"""Hosts that cannot be reached: nothing starts for their machines, approved or not, until their
node is back and guests there have had time to poll."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from forewarn.core import EventType, Machine, Status, World, apply, commands, due, why
from forewarn.core.deciding import joint
from forewarn.core.deciding.decide import decide_all
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.events import Joint
from forewarn.core.group import Group
from forewarn.core.refusal import Refused
from forewarn.core.time import DAY, HOUR, MINUTE, SECOND, Durations
from forewarn.support.text import utc
from helpers.group_model import START, GroupWorld, world

GRACE = 60 * SECOND


def test_no_event_starts_for_a_machine_on_an_unreachable_host_approved_or_not() -> None:
    made = world()
    reboot = made.raised(EventType.REBOOT, "m0")
    made.later(MINUTE)
    made.cut_off("h0")
    cut_off_at = made.now.at
    made.approve(reboot)
    made.run(2 * HOUR)
    assert made.shown() == [(reboot, "Scheduled")]
    assert due(made.group, made.now) == made.group.seen + DAY
    [hold] = why(made.group, reboot, made.now)
    assert (hold.kind, hold.since, hold.until) == (HoldKind.REACH, cut_off_at, None)
    assert all(value in hold.message for value in ("host h0", utc(cut_off_at), "m0"))
    assert "the node" in hold.unblocked_by
    assert "'forewarn host fail h0'" in hold.unblocked_by
    assert "'forewarn host without-node h0'" in hold.unblocked_by


def test_an_approved_event_starts_as_soon_as_the_node_is_back() -> None:
    made = world()
    reboot = made.raised(EventType.REBOOT, "m0")
    made.cut_off("h0")
    made.approve(reboot)
    made.later(HOUR)
    made.joined("h0")
    made.run(0)
    assert made.status(reboot) is Status.STARTED


def test_an_event_that_is_not_approved_waits_for_guests_to_poll_again() -> None:
    made = world()
    reboot = made.raised(EventType.REBOOT, "m0")
    made.cut_off("h0")
    made.run(HOUR)
    made.joined("h0")
    [hold] = why(made.group, reboot, made.now)
    assert (hold.kind, hold.since) == (HoldKind.REACH, made.now.at)
    assert hold.until == made.now.at + GRACE == due(made.group, made.now)
    made.run(GRACE - 1)
    assert made.status(reboot) is Status.SCHEDULED
    made.run(1)
    assert made.status(reboot) is Status.STARTED


def test_the_grace_after_joining_goes_at_the_speed_of_the_service() -> None:
    made = world(Durations(speed=60.0))
    reboot = made.raised(EventType.REBOOT, "m0")
    made.cut_off("h0")
    made.run(HOUR)
    made.joined("h0")
    assert due(made.group, made.now) == made.now.at + SECOND
    made.run(SECOND)
    assert made.status(reboot) is Status.STARTED


def test_other_hosts_and_other_machines_of_the_group_go_on() -> None:
    made = world()
    made.cut_off("h1")
    made.cut_off("elsewhere")
    reboot = made.raised(EventType.REBOOT, "m0")
    made.approve(reboot)
    assert made.status(reboot) is Status.STARTED


@pytest.mark.parametrize("type", list(EventType))
def test_every_type_of_event_is_held_beyond_its_not_before(type: EventType) -> None:
    made = world()
    made.cut_off("h0")
    event = made.raised(type, "m0")
    made.run(2 * HOUR)
    assert made.holds(event) == {HoldKind.REACH}


def test_an_unannounced_event_is_held_by_an_unreachable_host_too() -> None:
    made = world(enabled=False)
    made.cut_off("h0")
    unannounced = made.maintained(EventType.REBOOT, "m0")
    [hold] = why(made.group, unannounced, made.now)
    assert hold.kind is HoldKind.REACH
    assert hold.message.endswith("done to m0")
    made.joined("h0")
    made.tick()
    assert made.status(unannounced) is Status.STARTED


def test_a_sudden_failure_is_a_fact() -> None:
    made = world()
    made.cut_off("h0")
    assert made.status(made.struck("m0")) is Status.STARTED


def test_a_machine_that_has_moved_away_or_is_gone_holds_nothing() -> None:
    made = world()
    both = made.raised(EventType.REBOOT, "m0", "m1")
    made.cut_off("h0")
    made.approve(both)
    for name in ("m0", "m1"):
        moved = made.raised(EventType.FREEZE, name)
        assert made.holds(moved) >= {HoldKind.REACH}
    gone = made.group.machines
    made.define(
        *(msgspec.structs.replace(m, host="h9") if m.update_domain == 0 else m for m in gone)
    )
    made.tick()
    assert made.status(both) is not Status.SCHEDULED


def test_a_machine_that_has_left_has_time_to_poll_before_anything_starts_by_its_not_before() -> (
    None
):
    made = world()
    restart = made.maintained(EventType.REBOOT, "m0")
    made.cut_off("h0")
    made.run(HOUR)
    made.do(commands.RecordMove(machine="m0", host="h9", by="ops"))
    [hold] = why(made.group, restart, made.now)
    assert (hold.kind, hold.until) == (HoldKind.REACH, made.now.at + GRACE)
    assert hold.message.startswith("m0 ")
    assert utc(made.now.at) in hold.message
    assert due(made.group, made.now) == hold.until
    made.run(GRACE - 1)
    assert made.status(restart) is Status.SCHEDULED
    made.run(1)
    assert made.status(restart) is Status.STARTED


def test_a_machine_that_has_left_is_disturbed_at_once_if_that_is_approved() -> None:
    made = world()
    restart = made.maintained(EventType.REBOOT, "m0")
    made.cut_off("h0")
    made.approve(restart)
    made.do(commands.RecordMove(machine="m0", host="h9", by="ops"))
    assert made.status(restart) is Status.STARTED


def test_a_machine_that_moves_to_an_unreachable_host_is_answered_where_it_was() -> None:
    made = world()
    made.cut_off("h8")
    made.cut_off("h9")

    def answered_on(host: str) -> str:
        made.do(commands.RecordMove(machine="m0", host=host, by="ops"))
        machine = made.group.machine("m0")
        assert machine is not None
        return machine.answered_on

    assert [answered_on(host) for host in ("h8", "h9", "h0")] == ["h0", "h0", ""]
    assert [answered_on(host) for host in ("h1", "h9", "h2")] == ["", "h1", ""]


def test_a_machine_that_may_be_on_an_unreachable_host_is_held() -> None:
    made = GroupWorld()
    made.define(Machine(name="m0", host="h9", disputed="h0"))
    made.group = msgspec.structs.replace(
        made.group, machines=(Machine(name="m0", host="h9", disputed="h0"),)
    )
    made.cut_off("h0")
    event = made.raised(EventType.REBOOT, "m0")
    assert HoldKind.REACH in made.holds(event)


def test_no_event_starts_for_a_machine_that_polls_on_another_host_approved_or_not() -> None:
    made = world()
    reboot, other = made.raised(EventType.REBOOT, "m0"), made.raised(EventType.REBOOT, "m1")
    made.later(MINUTE)
    made.now = msgspec.structs.replace(made.now, strayed={"m0": made.now.at})
    strayed_at = made.now.at
    made.approve(reboot)
    made.run(2 * HOUR)
    assert (made.status(reboot), made.status(other)) == (Status.SCHEDULED, Status.STARTED)
    assert due(made.group, made.now) == made.group.seen + DAY
    hold = next(h for h in why(made.group, reboot, made.now) if h.kind is HoldKind.REACH)
    assert (hold.since, hold.until) == (strayed_at, None)
    assert hold.message.startswith("m0 ")
    assert "'forewarn machine moved m0 --to HOST'" in hold.unblocked_by
    made.now = msgspec.structs.replace(made.now, strayed={})
    made.carried_out(other)
    made.run(0)
    assert made.status(reboot) is Status.STARTED


def test_a_machine_that_polls_on_another_host_is_suspected_until_somebody_records_where_it_is() -> (
    None
):
    made = world()
    inventory = made.group.machines
    suspect = commands.SuspectMove(machine="m0", host="h9", by="node of h9")
    made.do(suspect)
    assert made.do(suspect).items == ()
    made.define(*inventory)
    [m0, *_] = made.group.machines
    assert (m0.host, m0.disputed, m0.disputed_by_poll) == ("h0", "h9", True)
    made.do(commands.RecordMove(machine="m0", host="h0", by="ops"))
    assert made.group.machines == inventory
    assert made.do(commands.SuspectMove(machine="m0", host="h0", by="node of h0")).items == ()
    made.refused(commands.SuspectMove(machine="m99", host="h9", by="node of h9"))


def test_a_machine_is_answered_on_its_former_host_unless_it_has_moved_on() -> None:
    made = world()
    m0 = made.group.machines[0]
    made.do(commands.RecordMove(machine="m0", host="h9", by="ops"))
    answer = commands.AnswerOn(machine="m0", former=m0.host, host="h9")
    made.do(answer)
    assert made.group.machines[0].answered_on == m0.host
    assert made.do(answer).items == ()
    made.do(commands.AnswerOn(machine="m0", former="", host="h9"))
    assert made.group.machines[0].answered_on == ""
    made.do(answer)
    made.do(commands.RecordMove(machine="m0", host="h8", by="ops"))
    assert made.group.machines[0].answered_on == ""
    assert made.do(answer).items == ()
    gone = commands.AnswerOn(machine="m99", former=m0.host, host="h9")
    assert made.do(gone).items == ()


def test_scheduling_an_event_on_an_unreachable_host_notes_the_host() -> None:
    made = world()
    made.cut_off("h0")
    asked = commands.UserMaintenance(id="E", type=EventType.REBOOT, machine="m0", by="ann")
    (note,) = (note for note in made.do(asked).notes if "cannot start yet" in note)
    assert "host h0" in note


def test_a_maintenance_of_several_groups_waits_for_the_host_to_be_reachable() -> None:
    together = Joint("J", ("one", "two"))
    groups = {
        name: Group(name=name, machines=(Machine(name=f"{name}-0", host="h"),))
        for name in together.groups
    }
    now = World(at=START, unreachable={"h": None}, unreachable_since={"h": START - MINUTE})
    raises = [
        (
            name,
            commands.Raise(
                id=f"E-{name}",
                type=EventType.REBOOT,
                machines=(f"{name}-0",),
                by="ops",
                host="h",
                joint=together,
            ),
        )
        for name in groups
    ]
    groups = changed(groups, raises, now)
    later = msgspec.structs.replace(now, at=START + HOUR)
    assert joint.JointsDue(groups, later).next(groups["one"]) is None
    kinds = [hold.kind for hold in joint.holds(groups, together, later)]
    assert kinds == [HoldKind.REACH] * 2  # of each group, with its machines
    ticks: list[tuple[str, commands.Command]] = [("one", commands.Tick())]
    assert changed(groups, ticks, later) == groups
    back = msgspec.structs.replace(later, unreachable={"h": later.at})
    assert joint.JointsDue(groups, back).next(groups["one"]) == later.at + GRACE
    assert {hold.until for hold in joint.holds(groups, together, back)} == {later.at + GRACE}
    assert changed(groups, ticks, back) == groups
    approvals: list[tuple[str, commands.Command]] = [
        (name, commands.OperatorApprove(id=f"E-{name}", by="ops")) for name in groups
    ]
    approved = changed(groups, approvals, back)
    assert statuses(approved) == [Status.STARTED] * 2
    over = msgspec.structs.replace(back, at=later.at + GRACE)
    assert joint.holds(groups, together, over) == ()
    assert statuses(changed(groups, ticks, over)) == [Status.STARTED] * 2


def changed(
    groups: dict[str, Group], asked: Sequence[tuple[str, commands.Command]], now: World
) -> dict[str, Group]:
    decided = decide_all(groups, asked, now)
    assert not isinstance(decided, Refused)
    return {name: apply(group, decided.items.get(name, ())) for name, group in groups.items()}


def statuses(groups: dict[str, Group]) -> list[Status]:
    return [group.events[0].status for group in groups.values()]


# Silence.


def test_silence_does_not_count_while_no_machine_of_the_group_is_reachable() -> None:
    made = world()
    made.cut_off("h0")
    made.cut_off("h1")
    assert due(made.group, made.now) is None
    made.run(3 * DAY)
    made.tick()
    assert made.view.enabled
    made.joined("h1")
    made.run(DAY - 1)
    assert made.view.enabled
    made.run(1)
    assert not made.view.enabled


def test_silence_counts_while_one_machine_of_the_group_is_reachable() -> None:
    made = world()
    made.cut_off("h0")
    made.run(DAY)
    assert not made.view.enabled


def test_an_approved_delete_waits_for_an_earlier_one_no_longer_than_its_notice() -> None:
    """Even if the earlier one does not start then, because its host cannot be reached."""
    made = world()
    early = made.raised(EventType.TERMINATE, "m0", notice=5 * MINUTE)
    late = made.raised(EventType.TERMINATE, "m2", notice=8 * MINUTE)
    made.cut_off("h0")
    made.approve(late)
    assert due(made.group, made.now) == made.event(early).not_before
    made.run(6 * MINUTE)
    assert (made.status(early), made.status(late)) == (Status.SCHEDULED, Status.STARTED)
