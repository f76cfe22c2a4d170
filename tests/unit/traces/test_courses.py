"""The course of an event, as its readers share it."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.traces.courses import FINISHED, WITHDRAWN, Course, id_of

RAISED: dict[str, Any] = {
    "kind": "event",
    "event": "a1",
    "move": "raise",
    "type": "Reboot",
    "source": "Platform",
    "group": "web",
    "machines": ["web_0"],
    "not_before": 100.0,
    "seconds": -1,
    "listed": True,
}


def course(*moves: dict[str, Any]) -> Course[float]:
    made: Course[float] = Course(id_of(moves[0]))
    for at, line in enumerate(moves, 1):
        made.move(line, float(at))
    return made


def test_a_course_has_when_it_was_listed_started_and_over() -> None:
    made = course(RAISED, RAISED | {"move": "start"}, RAISED | {"move": "finish"})
    assert (made.id, made.type, made.group, made.machines) == ("A1", "Reboot", "web", ("web_0",))
    assert (made.visible, made.started, made.over, made.ending) == (1.0, 2.0, 3.0, FINISHED)
    assert (made.not_before, made.seconds, made.sudden, made.recorded) == (100.0, -1, False, True)


def test_the_first_time_of_each_step_counts() -> None:
    again = RAISED | {"not_before": 200.0}
    made = course(RAISED, again, *[RAISED | {"move": m} for m in ("withdraw", "finish")])
    assert (made.visible, made.over, made.ending) == (1.0, 3.0, WITHDRAWN)
    assert course(RAISED, again).not_before == 200.0, "it was postponed"


def test_an_event_that_is_not_listed_is_not_visible() -> None:
    made = course(RAISED | {"listed": False}, RAISED | {"move": "strike", "listed": False})
    assert (made.visible, made.started, made.sudden) == (None, 2.0, True)
    assert course(RAISED | {"move": "finish"}).visible is None


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [1, None], float("nan"), "\x1b" * 999])
@pytest.mark.parametrize("key", sorted(RAISED))
def test_nonsense_in_a_line_changes_nothing_else(key: str, value: Any) -> None:
    made = course(RAISED, RAISED | {"event": "a1", key: value})
    assert made.visible == 1.0
    assert made.machines
