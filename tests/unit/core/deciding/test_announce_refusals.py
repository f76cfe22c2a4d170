"""What cannot be announced: every refusal names what is wrong and what would have been right."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from forewarn.core import EventType, Group, Reason, Refused, Source, commands, decide
from forewarn.core.events import MAX_ACTIVE_EVENTS
from forewarn.core.refusal import Hint
from forewarn.core.time import DAY, MINUTE, SECOND
from helpers.group_model import START, GroupWorld, world

FREEZE, REBOOT, REDEPLOY = EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY
PREEMPT, TERMINATE = EventType.PREEMPT, EventType.TERMINATE


def raising(w: GroupWorld, **fields: Any) -> commands.Raise:
    plain: dict[str, Any] = {"type": REBOOT, "machines": ("m0",), "by": "ops"}
    return commands.Raise(id=w.new_id(), **(plain | fields))


def restart(
    w: GroupWorld, machine: str = "m0", type: EventType = REBOOT
) -> commands.UserMaintenance:
    return commands.UserMaintenance(id=w.new_id(), type=type, machine=machine, by="ann")


# Machines that cannot be named.


def three_ways(w: GroupWorld, *names: str) -> list[commands.Command]:
    asked: list[commands.Command] = [
        raising(w, machines=names),
        commands.Fail(id=w.new_id(), type=REBOOT, machines=names, by="watchdog"),
    ]
    return [*asked, restart(w, names[0])] if len(names) == 1 else asked


def test_an_event_needs_a_machine() -> None:
    w = world()
    for command in three_ways(w):
        output = w.refused(command)
        assert output.reason is Reason.INVALID
        assert "at least one" in output.message


def test_a_machine_that_is_named_twice_is_refused() -> None:
    w = world()
    for command in three_ways(w, "m0", "m1", "m0"):
        output = w.refused(command)
        assert output.reason is Reason.INVALID
        assert "twice" in output.message
        assert "m0, m1, m0" in output.message


def test_an_unknown_machine_is_refused_with_the_names_there_are() -> None:
    w = world()
    for command in three_ways(w, "db"):
        output = w.refused(command)
        assert output.reason is Reason.UNKNOWN
        assert "'db'" in output.message
        assert all(name in output.message for name in ("m0", "m1", "m2", "m3"))


def test_a_machine_that_is_gone_is_refused_with_what_became_of_it() -> None:
    w = world()
    delete = w.raised(PREEMPT, "m0")
    w.approve(delete)
    w.carried_out(delete)
    for command in three_ways(w, "m0"):
        output = w.refused(command)
        assert output.reason is Reason.CONFLICT
        assert "evicted" in output.message


def test_a_machine_that_is_being_deleted_is_refused_with_the_event_that_does_it() -> None:
    w = world()
    delete = w.raised(TERMINATE, "m0")
    assert w.raised(REBOOT, "m0")  # while it is only announced, others may be
    w.approve(delete)
    for command in [*three_ways(w, "m0"), *three_ways(w, "m0", "m1")]:
        output = w.refused(command)
        assert output.reason is Reason.CONFLICT
        assert "being deleted" in output.message
        assert delete in output.message
    assert w.raised(REBOOT, "m1")


def test_machines_of_two_domains_are_refused_with_their_domains() -> None:
    w = world()
    for command in three_ways(w, "m0", "m2"):
        output = w.refused(command)
        assert output.reason is Reason.INVALID
        assert "'m0' is in 0, 'm2' is in 1" in output.message


def test_the_number_of_active_events_of_a_group_is_limited() -> None:
    w = world()
    event = w.event(w.raised(FREEZE, "m0"))
    crowd = tuple(
        msgspec.structs.replace(event, id=f"X{number}") for number in range(MAX_ACTIVE_EVENTS)
    )
    full: Group = msgspec.structs.replace(w.group, events=crowd)
    output = decide(full, raising(w), w.now)
    assert isinstance(output, Refused)
    assert output.reason is Reason.CONFLICT
    assert str(MAX_ACTIVE_EVENTS) in output.message


# Words that make no sense.


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"type": FREEZE, "source": Source.USER}, ["Freeze", "Platform", "Reboot or Redeploy"]),
        ({"type": PREEMPT, "source": Source.USER}, ["Preempt", "Platform", "Reboot or Redeploy"]),
        ({"source": Source.USER, "duration": 5}, ["-1", "leave the duration out"]),
        ({"duration": -2}, ["-2", "from 0", "-1 for unknown"]),
        ({"duration": 86_401}, ["86401", "86400", "-1 for unknown"]),
        ({"description": "x" * 1_025}, ["1025", "at most 1024"]),
        ({"notice": MINUTE, "not_before": START + DAY}, ["not both"]),
        ({"not_before": START - 90 * SECOND}, ["1 min 30 s in the past", "future time"]),
        ({"notice": -1, "short_notice": True}, ["negative"]),
        ({"notice": 91 * DAY}, ["91 d", "at most 90 d"]),
        ({"not_before": START + 91 * DAY}, ["91 d", "at most 90 d"]),
        ({"type": REDEPLOY, "notice": MINUTE}, ["Redeploy", "at least 10 min"]),
        ({"not_before": START + MINUTE}, ["Reboot", "at least 15 min"]),
    ],
)
def test_an_invalid_value_is_refused_with_what_would_be_valid(
    fields: dict[str, Any], words: list[str]
) -> None:
    w = world()
    output = w.refused(raising(w, **fields))
    assert output.reason is Reason.INVALID
    for word in words:
        assert word in output.message
    assert (output.hint is Hint.SHORT_NOTICE) == ("at least" in output.message)


@pytest.mark.parametrize(
    "fields",
    [
        {"duration": 0},
        {"duration": 86_400},
        {"description": "x" * 1_024},
        {"notice": 90 * DAY},
        {"notice": 15 * MINUTE},
        {"not_before": START + 15 * MINUTE},
        {"source": Source.USER},
        {"source": Source.USER, "type": REDEPLOY},
    ],
)
def test_values_at_the_limits_are_accepted(fields: dict[str, Any]) -> None:
    w = world()
    assert w.do(raising(w, **fields)).event


def test_a_refusal_changes_nothing_not_even_what_is_overdue() -> None:
    w = world()
    w.raised(FREEZE, "m0")
    w.later(DAY // 2)
    before = w.group
    w.refused(raising(w, machines=()))
    assert w.group == before
