"""The values that a client returns: what type checkers are told is what the wire knows."""

from __future__ import annotations

from typing import get_args

import msgspec

from forewarn.client import EventSource, EventStatus, EventType
from forewarn.client.events import SCHEDULED, Event, is_short_freeze
from forewarn.core import events
from forewarn.wire.versions import NEWEST


def test_the_literals_are_the_words_of_the_wire() -> None:
    assert set(get_args(EventType)) == set(NEWEST.types) == {one.value for one in events.EventType}
    assert set(get_args(EventSource)) == {one.value for one in events.Source}
    assert SCHEDULED in get_args(EventStatus)


def test_values_that_came_later_are_accepted() -> None:
    event = Event(id="A", type="Hibernate", status="Waiting", source="Nobody")
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event
    assert event.started, "whatever is not Scheduled has started"


def test_only_a_freeze_of_known_duration_can_be_short() -> None:
    freeze = Event(id="A", type="Freeze", status="Scheduled", duration=5)
    assert is_short_freeze(freeze, 5.5)
    assert not is_short_freeze(freeze, 5)
    assert not is_short_freeze(msgspec.structs.replace(freeze, duration=None), 60)
    assert not is_short_freeze(msgspec.structs.replace(freeze, type="Reboot"), 60)
