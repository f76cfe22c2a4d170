"""What goes wrong all the time is told once in a while, with how often it was."""

from __future__ import annotations

from forewarn.support.log_throttle import COMPLAIN_EVERY, LogThrottle


def test_the_first_is_told_at_once_and_the_others_are_counted() -> None:
    now = [1_000.0]
    seldom = LogThrottle(lambda: now[0])
    assert [seldom.again() for _ in range(5)] == [1, 0, 0, 0, 0]
    now[0] += COMPLAIN_EVERY - 1
    assert seldom.again() == 0
    now[0] += 1
    assert [seldom.again(), seldom.again()] == [6, 0]
