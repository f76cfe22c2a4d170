"""A machine's word on an event: it may change it, but every change is kept, so not without end."""

from __future__ import annotations

from forewarn.core import EventType, Group, Reason, apply, commands
from forewarn.core.changes import Change
from forewarn.core.events import MAX_READY_CHANGES
from helpers.group_model import world


def prepare(id: str, note: str = "", ready: bool = True, machine: str = "m0") -> commands.Prepare:
    return commands.Prepare(id=id, machine=machine, ready=ready, note=note)


def test_the_number_of_readiness_changes_of_a_machine_is_limited() -> None:
    w = world()
    w.poll()
    id = w.raised(EventType.REBOOT, "m0")
    for n in range(MAX_READY_CHANGES):
        assert w.do(prepare(id, f"{n}")).items
    refused = w.refused(prepare(id, "once more"))
    assert refused.reason is Reason.CONFLICT
    assert f"{MAX_READY_CHANGES} times" in refused.message
    event = w.group.event(id)
    assert event is not None
    assert [ready.note for ready in event.ready] == [f"{MAX_READY_CHANGES - 1}"]


def test_withdrawing_readiness_counts_as_a_change() -> None:
    w = world()
    w.poll()
    id = w.raised(EventType.REBOOT, "m0")
    for n in range(MAX_READY_CHANGES):
        assert w.do(prepare(id, ready=n % 2 == 0)).items
    w.refused(prepare(id))


def test_reporting_the_same_readiness_does_not_count() -> None:
    w = world()
    w.poll()
    id = w.raised(EventType.REBOOT, "m0")
    for _ in range(3 * MAX_READY_CHANGES):
        w.do(prepare(id, "well"))
        assert w.do(prepare(id, "well")).items == ()
        assert w.do(prepare(id, ready=False, machine="m1")).items == ()
    for n in range(MAX_READY_CHANGES - 1):
        assert w.do(prepare(id, f"{n}")).items


def test_readiness_changes_are_counted_per_machine_and_event() -> None:
    w = world()
    w.poll()
    first = w.raised(EventType.REBOOT, "m0")
    for n in range(MAX_READY_CHANGES):
        w.do(prepare(first, f"{n}"))
    w.refused(prepare(first))
    assert w.do(prepare(first, machine="m1")).items
    second = w.raised(EventType.FREEZE, "m0")
    assert w.do(prepare(second)).items


def test_the_count_of_readiness_changes_is_part_of_the_commit() -> None:
    """Whoever plays the changes again knows it too."""
    w = world()
    w.poll()
    id = w.raised(EventType.REBOOT, "m0")
    for n in range(MAX_READY_CHANGES):
        w.do(prepare(id, f"{n}"))
    every: list[Change] = [item for items in w.history for item in items]
    again = apply(Group(name=w.group.name), tuple(every))
    assert again.event(id) == w.group.event(id)
