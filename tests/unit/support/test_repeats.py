"""What is repeated is worth a line at the first, the tenth and the hundredth time."""

from __future__ import annotations

from forewarn.support.repeats import MAX_KINDS, RepeatCounter


def test_the_first_tenth_and_hundredth_repeat_are_logged() -> None:
    repeats = RepeatCounter()
    due = [count for count, line in (repeats.add("x") for _ in range(150)) if line]
    assert due == [1, 10, 100]
    assert repeats.add("y") == (1, True)


def test_repeats_added_at_once_are_logged_if_they_pass_a_power_of_ten() -> None:
    repeats = RepeatCounter()
    assert repeats.add("x", 7) == (7, True)
    assert repeats.add("x", 2) == (9, False)
    assert repeats.add("x", 400) == (409, True)
    assert repeats.add("x", 590) == (999, False)
    assert repeats.add("x") == (1000, True)


def test_beyond_the_limit_nothing_more_is_remembered() -> None:
    repeats = RepeatCounter()
    for n in range(MAX_KINDS + 5):
        repeats.add(str(n))
    assert repeats.add("0") == (2, False)
    assert repeats.add(str(MAX_KINDS + 1)) == (1, True)
