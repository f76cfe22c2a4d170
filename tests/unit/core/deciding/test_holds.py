"""Where events meet: on a machine, in an update domain, and when machines go."""

from __future__ import annotations

import msgspec
import pytest

from forewarn.core import EventType, Status, commands, why
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.time import MINUTE, SECOND
from helpers.group_model import machines, world

FREEZE, REBOOT, REDEPLOY = EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY
PREEMPT, TERMINATE = EventType.PREEMPT, EventType.TERMINATE
SCHEDULED, STARTED = Status.SCHEDULED, Status.STARTED


# One Started event per machine.


def test_a_machine_may_have_many_scheduled_events_but_only_one_started() -> None:
    w = world()
    first, second = w.raised(FREEZE, "m0"), w.raised(REBOOT, "m0")
    assert w.shown() == [(first, "Scheduled"), (second, "Scheduled")]
    w.approve(first, second)
    assert w.shown() == [(first, "Started"), (second, "Scheduled")]
    (hold,) = why(w.group, second, w.now)
    assert (hold.kind, hold.waits_for) == (HoldKind.MACHINE, (first,))
    w.carried_out(first)
    assert w.shown() == [(second, "Started")]


def test_an_event_waits_when_only_one_of_its_machines_is_busy() -> None:
    w = world()
    small, large = w.raised(REBOOT, "m0"), w.raised(REBOOT, "m0", "m1")
    w.approve(small, large)
    assert w.holds(large) == {HoldKind.MACHINE}


def test_an_event_waits_for_its_machine_beyond_its_not_before() -> None:
    w = world()
    long, late = w.raised(FREEZE, "m0"), w.raised(REBOOT, "m0")
    w.approve(long)
    w.run(60 * MINUTE)
    assert w.status(late) is SCHEDULED
    assert w.holds(late) == {HoldKind.MACHINE}
    w.carried_out(long)
    assert w.status(late) is STARTED


def test_what_waits_for_a_busy_machine_has_waited_since_a_time_that_has_passed() -> None:
    w = world()
    w.struck("m0")
    later = w.raised(REBOOT, "m0")
    assert w.holds(later) == {HoldKind.NOTICE, HoldKind.MACHINE}
    assert all(hold.since <= w.now.at for hold in why(w.group, later, w.now))


def test_a_users_event_waits_for_a_busy_machine_too() -> None:
    w = world()
    busy, mine = w.raised(FREEZE, "m0"), w.maintained(REBOOT, "m0")
    w.approve(busy, mine)
    assert w.holds(mine) == {HoldKind.MACHINE}


def test_approved_but_waiting_changes_neither_not_before_nor_incarnation() -> None:
    w = world()
    busy, waiting = w.raised(FREEZE, "m0"), w.raised(REBOOT, "m0")
    w.approve(busy)
    before = w.view
    w.approve(waiting)
    w.approve(waiting, by="m1")
    assert w.view == before
    approved = w.event(waiting).approved
    assert approved is not None
    assert approved.by == "m0"


@pytest.mark.parametrize("type", [PREEMPT, TERMINATE])
def test_a_delete_does_not_wait_for_a_busy_machine(type: EventType) -> None:
    w = world()
    busy, delete = w.raised(FREEZE, "m0", "m1"), w.raised(type, "m0")
    w.approve(busy, delete)
    assert w.shown() == [(busy, "Started"), (delete, "Started")]


def test_a_failure_does_not_wait_for_a_busy_machine() -> None:
    w = world()
    busy = w.raised(FREEZE, "m0")
    w.approve(busy)
    failure = w.struck("m0")
    assert w.shown() == [(busy, "Started"), (failure, "Started")]


# One update domain at a time.


def test_the_platform_disturbs_one_domain_of_a_group_at_a_time() -> None:
    w = world()
    here, there = w.raised(FREEZE, "m0"), w.raised(FREEZE, "m2")
    w.approve(here, there)
    assert w.shown() == [(here, "Started"), (there, "Scheduled")]
    (hold,) = why(w.group, there, w.now)
    assert (hold.kind, hold.waits_for) == (HoldKind.DOMAIN, (here,))
    w.carried_out(here)
    assert w.status(there) is STARTED


def test_events_of_one_domain_go_together() -> None:
    w = world()
    ids = w.raised(FREEZE, "m0"), w.raised(REBOOT, "m1")
    w.run(15 * MINUTE + SECOND)
    assert {w.status(id) for id in ids} == {STARTED}


def test_a_domain_is_taken_when_an_event_starts_and_never_while_it_waits() -> None:
    w = world()
    w.approve(w.maintained(REBOOT, "m2"))
    waiting = w.raised(FREEZE, "m0")
    w.approve(waiting)
    assert w.holds(waiting) == {HoldKind.DOMAIN}
    overtakes = w.raised(FREEZE, "m3")
    w.approve(overtakes)
    assert w.status(overtakes) is STARTED
    assert w.status(waiting) is SCHEDULED


def test_a_users_event_does_not_wait_for_the_domain_but_occupies_it() -> None:
    w = world()
    platform, mine = w.raised(FREEZE, "m0"), w.maintained(REBOOT, "m2")
    w.approve(platform, mine)
    assert w.shown() == [(platform, "Started"), (mine, "Started")]
    more = w.raised(FREEZE, "m1")
    w.approve(more)
    assert w.holds(more) == {HoldKind.DOMAIN}
    w.carried_out(mine)
    assert w.status(more) is STARTED


@pytest.mark.parametrize("type", [PREEMPT, TERMINATE])
def test_a_delete_does_not_wait_for_the_domain_but_occupies_it(type: EventType) -> None:
    w = world()
    w.approve(w.raised(FREEZE, "m0"))
    delete = w.raised(type, "m2")
    w.approve(delete)
    assert w.status(delete) is STARTED
    more = w.raised(FREEZE, "m1")
    w.approve(more)
    assert w.holds(more) == {HoldKind.DOMAIN}


def test_a_failure_does_not_wait_for_the_domain_but_occupies_it() -> None:
    w = world()
    w.approve(w.raised(FREEZE, "m0"))
    failure = w.struck("m2")
    assert w.status(failure) is STARTED
    more = w.raised(FREEZE, "m1")
    w.approve(more)
    assert w.holds(more) == {HoldKind.DOMAIN}


# Events that make others pointless.


def test_a_finished_redeploy_settles_what_was_planned_for_the_old_host() -> None:
    w = world()
    planned, mine = w.raised(REBOOT, "m0"), w.maintained(REBOOT, "m0")
    move = w.maintained(REDEPLOY, "m0")
    w.approve(move)
    assert w.status(planned) is SCHEDULED  # under way is not yet finished
    w.carried_out(move, m0="h7")
    assert w.status(planned) is Status.WITHDRAWN
    assert move in w.ending(planned)
    assert w.status(mine) is SCHEDULED  # a user's wish is not about the host
    moved = w.group.machine("m0")
    assert moved is not None
    assert (moved.host, moved.moved_from) == ("h7", "h0")


def test_a_redeploy_of_one_machine_leaves_an_event_to_the_others() -> None:
    w = world()
    both, other = w.raised(REBOOT, "m0", "m1"), w.raised(FREEZE, "m1")
    before = w.event(both)
    for name in ("m0", "m1"):
        move = w.maintained(REDEPLOY, name)
        w.approve(move)
        shown = w.view.events[0]
        w.carried_out(move)
        if name == "m0":
            assert w.event(both).left == ("m0",)
            assert w.event(both).resources == before.resources
            assert w.view.events[0] == shown
            assert w.status(other) is SCHEDULED
    assert w.status(both) is w.status(other) is Status.WITHDRAWN


def test_an_event_is_withdrawn_when_one_machine_has_moved_and_the_other_is_removed() -> None:
    """Whichever comes first, nobody is left whom the event is about."""
    for first in ("move", "remove"):
        w = world()
        both = w.raised(REBOOT, "m0", "m1")
        for what in (first, "remove" if first == "move" else "move"):
            if what == "move":
                move = w.maintained(REDEPLOY, "m0")
                w.approve(move)
                w.carried_out(move)
            else:
                w.define(*(m for m in w.group.machines if m.name != "m1"))
        assert w.status(both) is Status.WITHDRAWN, first


def test_a_redeploy_that_is_withdrawn_settles_nothing() -> None:
    w = world()
    planned, move = w.raised(REBOOT, "m0"), w.maintained(REDEPLOY, "m0")
    w.do(commands.Cancel(id=move, by="ann"))
    assert w.status(planned) is SCHEDULED


@pytest.mark.parametrize("type", [PREEMPT, TERMINATE])
def test_a_delete_withdraws_every_event_that_lists_only_its_machine(type: EventType) -> None:
    w = world()
    alone, both = w.raised(REBOOT, "m0"), w.raised(REBOOT, "m0", "m1")
    mine = w.maintained(REBOOT, "m0")
    delete = w.raised(type, "m0")
    assert w.status(alone) is w.status(mine) is SCHEDULED  # announced is not yet begun
    w.approve(delete)
    assert w.status(alone) is w.status(mine) is Status.WITHDRAWN
    assert delete in w.ending(alone)
    assert w.status(both) is SCHEDULED
    assert w.event(both).resources == ("m0", "m1")


def test_a_delete_ends_a_started_event_of_its_machine_and_frees_its_domain() -> None:
    w = world()
    busy, elsewhere = w.raised(FREEZE, "m0"), w.raised(FREEZE, "m3")
    w.approve(busy, elsewhere)
    delete = w.raised(PREEMPT, "m0", "m1")
    w.approve(delete)
    assert w.status(busy) is Status.FINISHED
    assert w.holds(elsewhere) == {HoldKind.DOMAIN}  # the delete itself occupies it
    w.carried_out(delete)
    assert w.status(elsewhere) is STARTED


def test_a_delete_that_ends_what_held_another_event_starts_that_in_the_same_commit() -> None:
    w = world()
    busy, waiting = w.raised(FREEZE, "m0"), w.raised(REBOOT, "m1")
    there = machines({"m0": 0, "m1": 0, "m2": 1, "m3": 1})
    w.define(*(msgspec.structs.replace(m, update_domain=1) for m in there))  # regrouped since
    elsewhere = w.raised(FREEZE, "m2")
    w.approve(busy, waiting)
    w.approve(elsewhere)
    assert w.holds(elsewhere) == {HoldKind.DOMAIN}
    w.carried_out(waiting)
    w.approve(w.raised(PREEMPT, "m0"))  # raised in domain 1, like the one that waits
    assert w.status(busy) is Status.FINISHED
    assert w.status(elsewhere) is STARTED


# Machines come and go; what is said stays said.


def test_a_removed_machine_stays_named_until_all_are_gone() -> None:
    w = world()
    both = w.raised(REBOOT, "m0", "m1")
    shown = w.view
    w.define(*machines({"m1": 0, "m2": 1}))
    assert w.view == shown
    w.define(*machines({"m2": 1}))
    assert w.status(both) is Status.WITHDRAWN
    assert w.referee.last[both].resources == ("m0", "m1")


def test_a_started_event_is_over_when_all_its_machines_are_removed() -> None:
    w = world()
    begun = w.raised(REBOOT, "m0")
    w.approve(begun)
    w.define(*machines({"m2": 1}))
    assert w.status(begun) is Status.FINISHED
    assert "gone" in w.ending(begun)


def test_an_evicted_machine_counts_as_gone() -> None:
    w = world()
    both = w.raised(REBOOT, "m0", "m1")
    for name in ("m0", "m1"):
        delete = w.raised(PREEMPT, name)
        w.approve(delete)
        assert w.status(both) is SCHEDULED
        w.carried_out(delete)
    assert w.status(both) is Status.WITHDRAWN


def test_a_new_machine_is_not_added_to_existing_events() -> None:
    w = world()
    w.raised(REBOOT, "m0", "m1")
    shown = w.view
    w.define(*machines({"m0": 0, "m1": 0, "m9": 0}))
    assert w.view == shown


def test_resources_keep_the_order_in_which_they_were_named() -> None:
    w = world()
    id = w.raised(REBOOT, "m1", "m0")
    w.define(*reversed(w.group.machines))
    assert w.view.events[0].resources == ("m1", "m0")
    w.approve(id)
    assert w.view.events[0].resources == ("m1", "m0")


def test_events_stand_in_the_order_they_were_raised_whatever_happens_to_them() -> None:
    w = world()
    ids = [w.raised(FREEZE, "m2"), w.struck("m0"), w.raised(PREEMPT, "m1"), w.raised(REBOOT, "m3")]
    w.approve(ids[2])
    w.approve(ids[0], by="m3")
    assert [id for id, _ in w.shown()] == ids
