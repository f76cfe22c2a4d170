"""Deletes of a group are coupled: an approved one waits for those that are due no later."""

from __future__ import annotations

from forewarn.core import EventType, Status, commands, why
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.time import MINUTE, SECOND
from helpers.group_model import GroupWorld, world

PREEMPT, TERMINATE = EventType.PREEMPT, EventType.TERMINATE
SCHEDULED, STARTED = Status.SCHEDULED, Status.STARTED


def deletes(w: GroupWorld, *minutes: int) -> list[str]:
    return [w.raised(TERMINATE, f"m{i}", notice=m * MINUTE) for i, m in enumerate(minutes)]


def test_a_lone_delete_starts_when_it_is_approved() -> None:
    w = world()
    (id,) = deletes(w, 5)
    w.approve(id)
    assert w.status(id) is STARTED


def test_an_approved_delete_waits_for_one_with_the_same_not_before() -> None:
    w = world()
    first, second = deletes(w, 5, 5)
    w.approve(first)
    (hold,) = why(w.group, first, w.now)
    assert (hold.kind, hold.waits_for) == (HoldKind.COUPLING, (second,))
    assert hold.until == w.event(first).not_before
    w.approve(second)
    assert w.status(first) is w.status(second) is STARTED


def test_an_approved_delete_waits_for_an_earlier_one() -> None:
    w = world()
    late, early = deletes(w, 6, 5)
    w.approve(late)
    assert w.holds(late) == {HoldKind.COUPLING}
    w.approve(early)
    assert w.status(late) is w.status(early) is STARTED


def test_an_approved_delete_does_not_wait_for_a_later_one() -> None:
    w = world()
    early, _late = deletes(w, 5, 6)
    w.approve(early)
    assert w.status(early) is STARTED


def test_when_the_earlier_delete_expires_the_approved_one_starts_with_it() -> None:
    w = world()
    late, early = deletes(w, 10, 5)
    w.approve(late)
    w.run_to(w.event(early).not_before - 1)
    assert w.status(late) is w.status(early) is SCHEDULED
    w.run(1)
    assert w.status(late) is w.status(early) is STARTED


def test_at_its_own_not_before_a_delete_starts_regardless() -> None:
    w = world()
    first, second = deletes(w, 5, 5)
    w.approve(first)
    w.run_to(w.event(first).not_before)
    assert w.status(first) is w.status(second) is STARTED


def test_a_cancelled_delete_holds_no_other() -> None:
    w = world()
    first, second = deletes(w, 5, 5)
    w.approve(first)
    w.do(commands.Cancel(id=second, by="ops"))
    assert w.status(first) is STARTED


def test_a_delete_that_an_eviction_withdraws_holds_no_other() -> None:
    """In the very commit in which the eviction starts: nothing that is free is left waiting."""
    w = world()
    first, second = deletes(w, 5, 5)
    eviction = w.raised(PREEMPT, "m1")
    w.approve(first)
    assert w.holds(first) == {HoldKind.COUPLING}
    w.approve(eviction)
    assert w.status(second) is Status.WITHDRAWN
    assert w.status(first) is STARTED


def test_other_events_are_not_coupled() -> None:
    w = world()
    early, late = w.raised(EventType.REBOOT, "m0"), w.raised(EventType.REBOOT, "m1")
    eviction = w.raised(PREEMPT, "m2")
    w.approve(late)
    assert w.status(late) is STARTED
    assert w.status(early) is w.status(eviction) is SCHEDULED


def test_the_delete_happens_at_the_end_of_the_notice_and_the_machine_is_gone() -> None:
    w = world()
    (id,) = deletes(w, 15)
    w.run(15 * MINUTE + SECOND)
    assert w.status(id) is STARTED
    w.carried_out(id)
    machine = w.group.machine("m0")
    assert machine is not None
    assert machine.gone == "deleted"
    assert w.shown() == []
