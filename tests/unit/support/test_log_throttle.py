"""What goes wrong all the time is told once in a while, with how often it was."""

from __future__ import annotations

from forewarn.support.log_throttle import LOG_EVERY, LogThrottle


def test_the_first_is_logged_at_once_and_the_others_are_counted() -> None:
    now = [1_000.0]
    throttle = LogThrottle(clock=lambda: now[0])
    assert [throttle.record() for _ in range(5)] == [1, 0, 0, 0, 0]
    now[0] += LOG_EVERY - 1
    assert throttle.record() == 0
    now[0] += 1
    assert [throttle.record(), throttle.record()] == [6, 0]


def test_a_reset_makes_the_next_one_the_first_again() -> None:
    throttle = LogThrottle(clock=lambda: 1_000.0)
    assert not throttle.reset()
    assert [throttle.record(), throttle.record()] == [1, 0]
    assert throttle.reset()
    assert throttle.record() == 1


def test_the_first_line_can_be_delayed_and_one_can_be_forced() -> None:
    now = [1_000.0]
    throttle = LogThrottle(30.0, first_after=5.0, clock=lambda: now[0])
    assert throttle.record() == 0
    now[0] += 5.0
    assert throttle.record() == 2
    now[0] += 29.0
    assert throttle.record() == 0
    assert throttle.record(force=True) == 2
