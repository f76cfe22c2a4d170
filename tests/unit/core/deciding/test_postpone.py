"""Until when a group may postpone an event."""

from __future__ import annotations

import pytest

from forewarn.core import EventType, Policy, Refused
from forewarn.core.deciding.postpone import postponed_until
from forewarn.core.time import HOUR, MINUTE, Duration, Time, ceil_second
from forewarn.core.windows.may_postpone import MayPostpone
from helpers.group_model import GroupWorld, world


@pytest.fixture
def w() -> GroupWorld:
    return world(policy=Policy(may_postpone=MayPostpone(2 * HOUR)))


def postponed(w: GroupWorld, id: str, wanted: Time | None, by: Duration = 0) -> Time | Refused:
    return postponed_until({w.group.name: w.group}, w.event(id), wanted, by, w.now)


def test_a_duration_counts_from_not_before(w: GroupWorld) -> None:
    id = w.raised(EventType.REBOOT, "m0")
    assert postponed(w, id, None, 30 * MINUTE) == w.event(id).not_before + 30 * MINUTE


def test_the_duration_of_an_event_that_is_late_counts_from_now(w: GroupWorld) -> None:
    long, late = w.raised(EventType.FREEZE, "m0"), w.raised(EventType.REBOOT, "m0")
    w.approve(long)
    w.run(60 * MINUTE)  # the other event is still under way, so this one has not started
    assert w.event(late).not_before < w.now.at
    assert postponed(w, late, None, 30 * MINUTE) == ceil_second(w.now.at + 30 * MINUTE)


def test_an_event_that_is_late_is_not_postponed_to_a_time_that_has_passed(w: GroupWorld) -> None:
    long, late = w.raised(EventType.FREEZE, "m0"), w.raised(EventType.REBOOT, "m0")
    w.approve(long)
    w.run(60 * MINUTE)
    assert isinstance(postponed(w, late, w.event(late).not_before + MINUTE), Refused)
