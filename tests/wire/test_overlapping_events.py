"""Where events meet: one machine, one update domain, deletes, and what ends with what."""

from __future__ import annotations

import pytest

from forewarn.testing import EventType, RefusedError, Service
from helpers.endpoint import Group, Groups

COUNT = 40


def waits(group: Group, id: str, service: Service) -> None:
    """Approved, but waiting: 200, still Scheduled, and the document is what it was."""
    before = group[0].get().body
    assert group[3].approve(id).status == 200
    assert group[0].get().body == before
    assert group[0].statuses()[id] == "Scheduled"


# One machine.


def test_a_machine_has_many_scheduled_events_but_one_started(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    ids = [service.schedule(type, group[0].name).id for type in ("Freeze", "Reboot", "Redeploy")]
    group[0].approve(ids[0])
    assert list(group[0].statuses().values()) == ["Started", "Scheduled", "Scheduled"]
    waits(group, ids[1], service)
    service.clock.advance("5m")  # the Freeze is over
    assert group[0].statuses() == {ids[1]: "Started", ids[2]: "Scheduled"}
    service.clock.advance("5m")  # the Redeploy's time has come, but the machine is busy
    assert group[0].statuses() == {ids[1]: "Started", ids[2]: "Scheduled"}
    service.clock.advance("5m")
    assert group[0].statuses() == {ids[2]: "Started"}


def test_one_busy_machine_holds_an_event_of_several(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    first = service.schedule("Freeze", group[0].name)
    both = service.schedule("Reboot", *group.names(2, 0))
    group[0].approve(first.id)
    waits(group, both.id, service)
    service.clock.advance("5m")
    assert group[0].statuses() == {both.id: "Started"}


def test_a_users_restart_waits_for_its_machine_too(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    first = service.schedule("Freeze", group[0].name)
    group[0].approve(first.id)
    own = service.restart(group[0].name)
    waits(group, own.id, service)
    service.clock.advance("5m")
    assert group[0].statuses() == {own.id: "Started"}


@pytest.mark.parametrize(("type", "n"), [("Preempt", 2), ("Terminate", 0)])
def test_a_delete_never_waits_and_ends_what_lists_only_that_machine(
    groups: Groups, service: Service, type: EventType, n: int
) -> None:
    group = groups.enabled()
    busy = service.schedule("Reboot", group[n].name)
    pending = service.schedule("Freeze", group[n].name)
    both = service.schedule("Reboot", *group.names(0, 2), notice="1h")
    group[0].approve(busy.id)
    delete = service.schedule(type, group[n].name)
    assert group[1].approve(delete.id).status == 200
    assert group[1].statuses() == {both.id: "Scheduled", delete.id: "Started"}
    service.clock.advance("30s")
    assert group[n].get().status == 404
    assert group[1].statuses() == {both.id: "Scheduled"}
    assert [event["Resources"] for event in group[1].events()] == [group.names(0, 2)]
    for id in (busy.id, pending.id):
        assert group[1].approve(id).status == 200


def test_when_all_its_machines_are_gone_an_event_is_withdrawn(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    both = service.schedule("Reboot", *group.names(0, 2), notice="1h")
    for n in (2, 0):
        assert both.id in group[1].statuses()
        group[1].approve(service.schedule("Terminate", group[n].name).id)
        service.clock.advance("30s")
    assert group[1].statuses() == {}


def test_a_finished_redeploy_settles_planned_maintenance_of_the_host(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    freeze = service.schedule("Freeze", group[0].name, notice="7d")
    both = service.schedule("Reboot", *group.names(0, 2), notice="7d")
    other = service.schedule("Freeze", group[2].name, notice="7d")
    own = service.redeploy(group[0].name)
    group[0].approve(own.id)
    assert group[0].statuses()[freeze.id] == "Scheduled", "not before it is finished"
    service.clock.advance("10m")
    assert group[0].statuses() == {both.id: "Scheduled", other.id: "Scheduled"}
    assert group[0].events()[0]["Resources"] == group.names(0, 2), "resources never change"


def test_a_users_own_restart_is_not_settled_by_moving(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    restart = service.restart(group[0].name)
    redeploy = service.redeploy(group[0].name)
    group[0].approve(redeploy.id)
    service.clock.advance("10m")
    assert group[0].statuses() == {restart.id: "Scheduled"}


# One update domain.


def test_one_domain_of_a_group_is_disturbed_at_a_time(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    first = service.schedule("Reboot", group[0].name)
    same_domain = service.schedule("Reboot", group[2].name)
    other_domain = service.schedule("Reboot", group[1].name)
    group[0].approve(first.id, same_domain.id)
    started = {first.id: "Started", same_domain.id: "Started", other_domain.id: "Scheduled"}
    assert group[0].statuses() == started
    waits(group, other_domain.id, service)
    service.clock.advance("9m")
    assert group[0].statuses() == started
    service.clock.advance("1m")
    assert group[0].statuses() == {other_domain.id: "Started"}


def test_an_event_whose_time_has_come_waits_for_the_domain_too(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    other_domain = service.schedule("Reboot", group[1].name, notice="15m")
    first = service.schedule("Reboot", group[0].name)
    service.clock.advance("8m")
    group[0].approve(first.id)
    before = group[0].events()[0]
    service.clock.advance("9m")
    assert group[0].events()[0] == before, "past its NotBefore, and told so as before"
    service.clock.advance("1m")
    assert group[0].statuses() == {other_domain.id: "Started"}


def test_the_slot_is_not_taken_by_waiting(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    busy = service.schedule("Freeze", group[0].name)
    waiting = service.schedule("Reboot", group[1].name)
    joins = service.schedule("Freeze", group[2].name)
    group[0].approve(busy.id)
    waits(group, waiting.id, service)
    group[0].approve(joins.id)
    assert group[0].statuses() == {
        busy.id: "Started",
        waiting.id: "Scheduled",
        joins.id: "Started",
    }


def test_users_do_not_wait_for_the_domain_but_occupy_it(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    first = service.schedule("Reboot", group[0].name)
    group[0].approve(first.id)
    own = service.restart(group[1].name)
    group[1].approve(own.id)
    assert group[0].statuses() == {first.id: "Started", own.id: "Started"}
    service.clock.advance("9m")
    third = service.schedule("Freeze", group[2].name)
    waits(group, third.id, service)
    service.clock.advance("1m")
    assert group[0].statuses() == {third.id: "Started"}


def test_a_delete_does_not_wait_for_the_domain_but_occupies_it(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    first = service.schedule("Freeze", group[0].name)
    group[0].approve(first.id)
    delete = service.schedule("Preempt", group[3].name)
    service.clock.advance("30s")
    assert group[0].statuses() == {first.id: "Started", delete.id: "Started"}
    other = service.schedule("Freeze", group[2].name)
    before = group[0].get().body
    group[0].approve(other.id)
    assert group[0].get().body == before, "the delete disturbs the other domain"
    service.clock.advance("30s")
    assert group[0].statuses() == {first.id: "Started", other.id: "Started"}


# Deletes of one group.


def test_an_approved_terminate_waits_for_those_that_are_due_no_later(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    early = service.schedule("Terminate", group[0].name, notice="5m")
    late = service.schedule("Terminate", group[1].name, notice="10m")
    waits(group, late.id, service)
    group[2].approve(early.id)
    assert group[2].statuses() == {early.id: "Started", late.id: "Started"}


def test_those_that_are_due_together_start_together(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    ids = [service.schedule("Terminate", group[n].name, notice="5m").id for n in (0, 1, 2)]
    waits(group, ids[0], service)
    waits(group, ids[2], service)
    group[3].approve(ids[1])
    assert group[3].statuses() == dict.fromkeys(ids, "Started")


def test_an_earlier_terminate_does_not_wait_for_a_later_one(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    early = service.schedule("Terminate", group[0].name, notice="5m")
    late = service.schedule("Terminate", group[1].name, notice="10m")
    group[2].approve(early.id)
    assert group[2].statuses() == {early.id: "Started", late.id: "Scheduled"}


def test_an_expired_terminate_holds_no_other_event(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    early = service.schedule("Terminate", group[0].name, notice="5m")
    late = service.schedule("Terminate", group[1].name, notice="10m")
    waits(group, late.id, service)
    service.clock.advance("5m")
    assert group[2].statuses() == {early.id: "Started", late.id: "Started"}


def test_at_its_own_time_a_terminate_starts_regardless(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    ids = [service.schedule("Terminate", group[n].name, notice="5m").id for n in (0, 1)]
    waits(group, ids[0], service)
    service.clock.advance("4m59s")
    assert group[2].statuses() == dict.fromkeys(ids, "Scheduled")
    service.clock.advance("1s")
    assert group[2].statuses() == dict.fromkeys(ids, "Started")


def test_other_deletes_and_other_groups_are_not_coupled(groups: Groups, service: Service) -> None:
    group, other = groups.enabled(), groups.enabled()
    preempt = service.schedule("Preempt", group[2].name, notice="1m")
    terminate = service.schedule("Terminate", group[0].name, notice="5m")
    elsewhere = service.schedule("Terminate", other[0].name, notice="5m")
    group[1].approve(terminate.id)
    assert group[1].statuses() == {preempt.id: "Scheduled", terminate.id: "Started"}
    assert other[1].statuses() == {elsewhere.id: "Scheduled"}


# Ends.


def test_cancelling_withdraws_what_is_scheduled_and_not_what_has_started(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    gone = service.schedule("Reboot", group[0].name)
    started = service.schedule("Reboot", group[2].name)
    group[0].approve(started.id)
    service.cancel(gone)
    assert group[0].statuses() == {started.id: "Started"}
    with pytest.raises(RefusedError):
        service.cancel(started)
    assert group[0].statuses() == {started.id: "Started"}
