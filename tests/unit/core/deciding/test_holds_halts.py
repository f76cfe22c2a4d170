"""Halts: while one stands, nothing that it covers starts, whoever has asked for it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from forewarn.core import Machine, Status, World, apply, commands, why
from forewarn.core.commands import Raise
from forewarn.core.deciding import holds, joint
from forewarn.core.deciding.decide import decide_all
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.events import EventType, Joint
from forewarn.core.group import Group
from forewarn.core.halts import Halt
from forewarn.core.refusal import Refused
from forewarn.core.time import HOUR, MINUTE
from helpers.group_model import START, GroupWorld, world


def test_an_announced_event_does_not_start_until_the_halt_is_released() -> None:
    made = world()
    reboot = made.raised(EventType.REBOOT, "m0")
    halt = made.halt(note="no network")
    made.approve(reboot)
    made.run(2 * HOUR)
    assert made.shown() == [(reboot, "Scheduled")]
    [hold] = why(made.group, reboot, made.now)
    assert hold.kind is HoldKind.HALT
    assert hold.message.endswith("halted by ops: no network")
    assert hold.unblocked_by.endswith(f"halt {halt}")
    incarnation = made.view.incarnation
    made.release(halt)
    made.tick()
    assert made.shown() == [(reboot, "Started")]
    assert made.view.incarnation == incarnation + 1


@pytest.mark.parametrize("type", list(EventType))
def test_every_type_of_event_is_held_beyond_its_not_before(type: EventType) -> None:
    made = world()
    made.halt()
    event = made.raised(type, "m0")
    made.run(2 * HOUR)
    assert made.status(event) is Status.SCHEDULED


def test_a_halt_holds_user_events_of_enabled_and_other_groups() -> None:
    made = world(enabled=False)
    made.halt()
    unannounced = made.maintained(EventType.REBOOT, "m0")
    assert made.event(unannounced).unannounced
    made.run(HOUR)
    assert made.status(unannounced) is Status.SCHEDULED
    assert made.poll().events == ()  # it is still never shown
    made.release(*[halt.id for halt in made.now.halts])
    made.tick()
    assert made.status(unannounced) is Status.STARTED


def test_a_halt_does_not_stop_started_events_and_failures() -> None:
    made = world()
    started = made.raised(EventType.REBOOT, "m0")
    made.approve(started)
    made.halt()
    struck = made.struck("m2")
    assert made.status(struck) is Status.STARTED
    made.answer(started, commands.Failed("no answer"))
    made.run(HOUR)
    made.carried_out(started)
    assert made.status(started) is Status.FINISHED


def test_after_the_release_one_domain_goes_at_a_time() -> None:
    made = world()
    first, second = made.raised(EventType.FREEZE, "m0"), made.raised(EventType.FREEZE, "m2")
    halt = made.halt()
    made.run(2 * HOUR)
    made.release(halt)
    made.tick()
    assert (made.status(first), made.status(second)) == (Status.STARTED, Status.SCHEDULED)
    assert made.holds(second) == {HoldKind.DOMAIN}
    made.carried_out(first)
    assert made.status(second) is Status.STARTED


def test_each_of_several_halts_has_to_be_released() -> None:
    made = world()
    event = made.raised(EventType.REBOOT, "m0")
    whole, group, other = (
        made.halt(),
        made.halt(groups=("web",)),
        made.halt(groups=("db",), note="not this one"),
    )
    made.approve(event)
    assert [hold.message for hold in why(made.group, event, made.now)] == [
        "the whole fleet is halted by ops",
        "it is halted by ops",
    ]
    made.release(whole)
    made.tick()
    assert made.holds(event) == {HoldKind.HALT}
    made.release(group)
    made.tick()
    assert made.status(event) is Status.STARTED
    assert [halt.id for halt in made.now.halts] == [other]


def labelled() -> GroupWorld:
    made = GroupWorld()
    made.define(
        Machine(name="a", labels={"rack": "r1"}),
        Machine(name="b", labels={"rack": "r2"}),
    )
    made.poll()
    return made


def test_a_label_covers_machines_that_have_it_and_those_that_get_it_later() -> None:
    made = labelled()
    made.halt(label="rack=r1")
    a, b = made.raised(EventType.REBOOT, "a"), made.raised(EventType.REBOOT, "b")
    both = made.raised(EventType.FREEZE, "a", "b")
    made.run(16 * MINUTE)
    assert made.status(a) is Status.SCHEDULED
    assert made.status(b) is Status.STARTED
    assert HoldKind.HALT in made.holds(both)
    made.carried_out(b)
    made.define(*made.group.machines, Machine(name="c", labels={"rack": "r1"}))
    late = made.raised(EventType.REBOOT, "c")
    made.run(16 * MINUTE)
    assert made.holds(late) == {HoldKind.HALT}


def test_a_label_and_a_group_both_have_to_match() -> None:
    made = labelled()
    a = made.raised(EventType.REBOOT, "a")
    halt = made.halt(groups=("other",), label="rack=r1")
    assert HoldKind.HALT not in made.holds(a)
    made.release(halt)
    made.halt(groups=("web",), label="rack=r1")
    assert HoldKind.HALT in made.holds(a)


def test_a_maintenance_of_several_groups_is_halted_by_one_of_them() -> None:
    together = Joint("J", ("one", "two"))
    groups = {
        name: Group(name=name, machines=(Machine(name=f"{name}-0", host="h"),))
        for name in together.groups
    }
    now = World(at=START, halts=(Halt(id="H", by="ops", at=START, groups=("two",)),))
    raises = [
        (
            name,
            Raise(
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
    [hold] = joint.holds(groups, together, later)
    assert hold.kind is HoldKind.HALT
    ticks = [("one", commands.Tick())]
    assert changed(groups, ticks, later) == groups
    released = msgspec.structs.replace(later, halts=())
    assert joint.holds(groups, together, released) == ()
    after = changed(groups, ticks, released)
    assert [group.events[0].status for group in after.values()] == [Status.STARTED] * 2


def changed(
    groups: dict[str, Group], asked: Sequence[tuple[str, commands.Command]], now: World
) -> dict[str, Group]:
    decided = decide_all(groups, asked, now)
    assert not isinstance(decided, Refused)
    return {name: apply(group, decided.items.get(name, ())) for name, group in groups.items()}


def test_scheduling_a_halted_event_notes_the_halt() -> None:
    made = world()
    made.halt(note="fire")
    asked = commands.UserMaintenance(id="E", type=EventType.REBOOT, machine="m0", by="ann")
    notes = made.do(asked).notes
    assert any(note.endswith("halted by ops: fire") for note in notes)


def test_the_machines_that_a_halt_covers_are_looked_for_once_for_all_joints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = tuple(f"m{number}" for number in range(3))
    machines = tuple(Machine(name=name, host=f"h-{name}") for name in names)
    now = World(at=START, halts=(Halt(id="H", by="ops", at=START, label="!other"),))
    raises = [
        (
            "web",
            Raise(
                id=f"E-{name}",
                type=EventType.FREEZE,
                machines=(name,),
                by="ops",
                host=f"h-{name}",
                joint=Joint(name, ("web",)),
            ),
        )
        for name in names
    ]
    groups = changed({"web": Group(name="web", machines=machines)}, raises, now)
    looked: list[str] = []

    def labels(group: Group, machine: Machine) -> dict[str, str]:
        looked.append(machine.name)
        return group.labels

    monkeypatch.setattr(holds, "labels_of", labels)
    assert joint.JointsDue(groups, now).next(groups["web"]) is None
    assert looked == list(names)


def test_no_machine_is_looked_at_while_there_is_nothing_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = world()
    made.halt(label="tier=web")
    monkeypatch.setattr(holds, "labels_of", None)
    made.run(HOUR)
