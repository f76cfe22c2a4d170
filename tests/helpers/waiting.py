"""Waiting for a condition, with one generous limit that all tests share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from forewarn.support import guard

LIMIT = 300.0  # seconds until a test has failed; far more than anything takes on a busy machine
PAUSE = 0.005  # seconds between two looks, so that others can proceed

monotonic, sleep = guard.monotonic, guard.pause  # real, also where a test replaces guard time

Value = TypeVar("Value")


def until(condition: Callable[[], Value], what: str = "the condition") -> Value:
    """Wait until the condition is true, and return what it returned."""
    end, pause = monotonic() + LIMIT, threading.Event()
    while not (value := condition()):
        assert monotonic() < end, f"{what} did not come about within {LIMIT:g} s: {value!r}"
        pause.wait(PAUSE)
    return value


async def until_async(condition: Callable[[], Value], what: str = "the condition") -> Value:
    """Wait until the condition is true while the event loop goes on, and return its value."""
    end = monotonic() + LIMIT
    while not (value := condition()):
        assert monotonic() < end, f"{what} did not come about within {LIMIT:g} s: {value!r}"
        await sleep(PAUSE)
    return value
