"""What the owner of a group may postpone, and its syntax: `2h`, `2h, twice`, `1d, 3 times`."""

from __future__ import annotations

import re

import msgspec

from forewarn.support.text import DAY, MINUTE, SECOND, Duration, in_words, parse_duration

MIN_POSTPONED: Duration = MINUTE  # that a policy may allow in total
MAX_POSTPONED: Duration = 30 * DAY
MAX_TIMES = 20  # that a policy may allow one event to be postponed

_WORDS = {"once": 1, "twice": 2}
_SYNTAX = "write a duration, and how often: '2h', '2h, twice' or '1d, 3 times'"


class MayPostpone(msgspec.Struct, frozen=True):
    """By how much the owner of a group may postpone each event, in total, and how often."""

    total: Duration
    times: int = 1

    def __str__(self) -> str:
        """Return it as in a fleet file."""
        total = in_words(self.total).replace("min", "m").replace(" ", "")
        exact = total if parse_duration(total) == self.total else f"{self.total / SECOND:g}s"
        return f"{exact}, {times_text(self.times)}"


def parse_may_postpone(text: str) -> MayPostpone:
    """Parse `2h`, `2h, twice` or `1d, 3 times`; without a number, it is once. Raises ValueError."""
    duration, comma, often = (part.strip() for part in text.partition(","))
    number = re.fullmatch(r"(\d{1,3}) times", often, re.ASCII)
    times = 1 if not comma else int(number[1]) if number else _WORDS.get(often)
    if times is None:
        raise ValueError(f"'{text[:40]}' does not say how often; {_SYNTAX}")
    try:
        total = parse_duration(duration)
    except ValueError:
        raise ValueError(f"'{text[:40]}' does not begin with a duration; {_SYNTAX}") from None
    allowed = MayPostpone(total, times)
    if problem := may_postpone_problem(allowed):
        raise ValueError(problem)
    return allowed


def may_postpone_problem(allowed: MayPostpone) -> str:
    """Return what is wrong with it; empty if nothing is."""
    if not MIN_POSTPONED <= allowed.total <= MAX_POSTPONED:
        return (
            f"an event can be postponed by {in_words(MIN_POSTPONED)} to {in_words(MAX_POSTPONED)}"
            f" in total, not {in_words(allowed.total)}"
        )
    if not 1 <= allowed.times <= MAX_TIMES:
        return f"an event can be postponed 1 to {MAX_TIMES} times, not {allowed.times}"
    return ""


def times_text(times: int) -> str:
    """Return how often, in words."""
    names = {number: word for word, number in _WORDS.items()}
    return names.get(times, f"{times} times")
