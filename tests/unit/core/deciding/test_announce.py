"""Raising events: notice, users' wishes, failures, and every refusal with its advice."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.core import (
    Durations,
    EventType,
    Policy,
    Reason,
    Source,
    Status,
    commands,
)
from forewarn.core.events import types_that
from forewarn.core.refusal import Hint
from forewarn.core.time import MINUTE, SECOND, ceil_second
from helpers.group_model import START, GroupWorld, world

FREEZE, REBOOT, REDEPLOY = EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY
PREEMPT, TERMINATE = EventType.PREEMPT, EventType.TERMINATE

MINIMUM = {
    FREEZE: 15 * MINUTE,
    REBOOT: 15 * MINUTE,
    REDEPLOY: 10 * MINUTE,
    PREEMPT: 30 * SECOND,
    TERMINATE: 5 * MINUTE,
}


def raising(w: GroupWorld, **fields: Any) -> commands.Raise:
    plain: dict[str, Any] = {"type": REBOOT, "machines": ("m0",), "by": "ops"}
    return commands.Raise(id=w.new_id(), **(plain | fields))


def restart(
    w: GroupWorld, machine: str = "m0", type: EventType = REBOOT
) -> commands.UserMaintenance:
    return commands.UserMaintenance(id=w.new_id(), type=type, machine=machine, by="ann")


# Notice.


@pytest.mark.parametrize("type", EventType)
def test_the_default_notice_is_the_promised_minimum_rounded_up(type: EventType) -> None:
    w = world()
    id = w.raised(type, "m0")
    assert w.event(id).not_before == ceil_second(START + MINIMUM[type])
    assert w.event(id).not_before % SECOND == 0
    assert w.event(id).not_before > START + MINIMUM[type]  # the clock is between two seconds


@pytest.mark.parametrize("type", EventType)
def test_nothing_starts_before_the_not_before_shown(type: EventType) -> None:
    w = world()
    id = w.raised(type, "m0")
    w.run_to(w.event(id).not_before - 1)
    assert w.status(id) is Status.SCHEDULED
    w.run(1)
    assert w.status(id) is Status.STARTED


def test_a_not_before_that_is_a_whole_second_is_taken_as_it_is() -> None:
    w = world()
    when = ceil_second(START) + 20 * MINUTE
    id = w.do(raising(w, not_before=when)).event
    assert w.event(id).not_before == when


def test_speed_divides_the_notice_and_not_the_clock() -> None:
    w = world(Durations(speed=60.0))
    id = w.raised(REBOOT, "m0")
    assert w.event(id).not_before == ceil_second(START + 15 * SECOND)


def test_a_notice_counts_from_when_all_guests_can_see_it() -> None:
    w = world(Durations(telling=7 * SECOND))
    id = w.raised(EventType.PREEMPT, "m0")
    assert w.event(id).not_before == ceil_second(START + 37 * SECOND)
    w.do(raising(w, not_before=START + 15 * MINUTE + 7 * SECOND))
    output = w.refused(raising(w, not_before=START + 15 * MINUTE))
    assert "needs at least 15 min 7 s of notice" in output.message


def test_short_notice_has_to_be_asked_for() -> None:
    w = world()
    output = w.refused(raising(w, notice=MINUTE))
    assert output.reason is Reason.INVALID
    assert "15 min" in output.message
    assert "1 min" in output.message
    assert output.hint is Hint.SHORT_NOTICE
    meant = w.do(raising(w, notice=MINUTE, short_notice=True))
    assert w.event(meant.event).not_before == ceil_second(START + MINUTE)
    assert meant.notes == ()


def test_a_notice_too_short_for_clients_is_noted() -> None:
    w = world()
    done = w.do(raising(w, notice=2 * SECOND, short_notice=True))
    assert "only" in done.notes[0]
    assert "in time" in done.notes[0]


def test_an_event_without_any_notice_appears_directly_as_started() -> None:
    w = world()
    w.at(ceil_second(START))
    id = w.do(raising(w, notice=0, short_notice=True)).event
    assert w.shown() == [(id, "Started")]


def test_evicting_a_machine_that_is_not_spot_is_noted() -> None:
    w = world()
    done = w.do(raising(w, type=PREEMPT, machines=("m0", "m1")))
    assert "m0, m1" in done.notes[0]
    assert "spot" in done.notes[0]


def test_an_event_of_a_group_that_is_not_enabled_stays_pending() -> None:
    w = world(enabled=False)
    done = w.do(raising(w))
    assert "not enabled" in done.notes[0]
    assert w.view.events == ()
    assert w.status(done.event) is Status.SCHEDULED
    assert [event.id for event in w.poll().events] == [done.event]


# Failures.


def test_a_failure_appears_directly_as_started() -> None:
    w = world()
    id = w.struck("m0", "m1")
    (shown,) = w.view.events
    assert (shown.id, shown.status, shown.not_before) == (id, Status.STARTED, None)
    assert shown.source is Source.PLATFORM
    assert shown.description == "Virtual machine has encountered a failure."


# What users ask for.


@pytest.mark.parametrize("type", [REBOOT, REDEPLOY])
def test_a_users_restart_or_redeploy_is_announced_with_its_notice(type: EventType) -> None:
    w = world()
    id = w.maintained(type, "m0")
    (shown,) = w.view.events
    assert (shown.source, shown.duration) == (Source.USER, -1)
    assert "authorized user" in shown.description
    w.run_to(ceil_second(START + MINIMUM[type]))
    assert w.status(id) is Status.STARTED


def test_a_second_restart_while_one_is_scheduled_is_the_same_event() -> None:
    w = world()
    first = w.maintained(REBOOT, "m0")
    again = w.do(restart(w))
    assert again.event == first
    assert "same event" in again.notes[0]
    assert len(w.view.events) == 1
    assert w.maintained(REBOOT, "m1") != first
    assert w.maintained(REDEPLOY, "m0") != first


def test_a_restart_while_one_has_started_is_another_event() -> None:
    w = world()
    first = w.maintained(REBOOT, "m0")
    w.approve(first)
    assert w.maintained(REBOOT, "m0") != first


def test_the_limit_of_user_events_refuses_the_next_and_names_those_pending() -> None:
    w = world(policy=Policy(user_event_limit=2))
    w.raised(REBOOT, "m3")  # the platform's do not count
    first, second = w.maintained(REBOOT, "m0"), w.maintained(REBOOT, "m1")
    output = w.refused(restart(w, "m2"))
    assert output.reason is Reason.CONFLICT
    assert "2 user events" in output.message
    assert f"{first}, {second}" in output.message
    assert w.maintained(REBOOT, "m0") == first  # the same again is not one more
    w.approve(first)
    assert w.maintained(REBOOT, "m2")  # only Scheduled ones count


def test_a_policy_that_approves_makes_the_event_appear_directly_as_started() -> None:
    w = world(policy=Policy(auto_approve=(REBOOT,)))
    before = w.view.incarnation
    done = w.do(restart(w))
    assert w.shown() == [(done.event, "Started")]
    assert w.view.incarnation == before + 1
    assert "policy" in done.notes[0]
    approved = w.event(done.event).approved
    assert approved is not None
    assert approved.by == "policy"
    asked = w.maintained(REDEPLOY, "m1")
    assert w.status(asked) is Status.SCHEDULED


def test_a_policy_does_not_approve_what_the_platform_wants() -> None:
    w = world(policy=Policy(auto_approve=(REBOOT,)))
    assert w.status(w.raised(REBOOT, "m0")) is Status.SCHEDULED


def test_maintenance_of_a_group_that_is_not_enabled_happens_at_once_and_is_noted() -> None:
    w = world(enabled=False)
    done = w.do(restart(w))
    assert w.status(done.event) is Status.STARTED
    assert "at once" in done.notes[0]
    assert "unannounced" in done.notes[0]


@pytest.mark.parametrize("type", [FREEZE, PREEMPT, TERMINATE])
def test_a_user_can_ask_for_a_restart_or_a_redeploy_only(type: EventType) -> None:
    w = world()
    output = w.refused(restart(w, type=type))
    assert output.reason is Reason.INVALID
    assert "Reboot" in output.message
    assert "Redeploy" in output.message


def test_the_promises_are_those_of_the_public_table() -> None:
    assert {type: type.traits.notice for type in EventType} == MINIMUM
    assert set(types_that(lambda traits: traits.by_user)) == {REBOOT, REDEPLOY}
    assert set(types_that(lambda traits: traits.deletes)) == {PREEMPT, TERMINATE}
