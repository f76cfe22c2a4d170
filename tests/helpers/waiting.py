"""Waiting for a condition, with one generous limit that all tests share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from forewarn.support import guard

LIMIT = 300.0  # seconds until a test has failed; far more than anything takes on a busy machine
BUILD_LIMIT = 4 * LIMIT  # the same for building packages, which is much work instead of waiting
PAUSE = 0.005  # seconds between the first looks, so that others can proceed
LONGER = 0.05  # of the time waited: then they cost little, and nobody waits much longer for it
LONGEST = 0.1  # seconds between two looks

monotonic, sleep = guard.monotonic, guard.pause  # real, also where a test replaces guard time

Value = TypeVar("Value")


def until(
    condition: Callable[[], Value], what: str = "the condition", limit: float = LIMIT
) -> Value:
    """Wait until the condition is true, and return what it returned."""
    begin, pause = monotonic(), threading.Event()
    while not (value := condition()):
        pause.wait(_pause(begin, what, value, limit))
    return value


async def until_async(condition: Callable[[], Value], what: str = "the condition") -> Value:
    """Wait until the condition is true while the event loop goes on, and return its value."""
    begin = monotonic()
    while not (value := condition()):
        await sleep(_pause(begin, what, value))
    return value


def _pause(begin: float, what: str, value: object, limit: float = LIMIT) -> float:
    """Return for how long to wait for the next look."""
    waited = monotonic() - begin
    assert waited < limit, f"{what} did not come about within {limit:g} s: {value!r}"
    return min(max(PAUSE, LONGER * waited), LONGEST)
