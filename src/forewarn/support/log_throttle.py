"""What may go wrong a thousand times a second, told once a minute."""

from __future__ import annotations

from collections.abc import Callable

from forewarn.support import guard

COMPLAIN_EVERY = 60.0  # seconds of guard time between two lines in the log about the same thing


class LogThrottle:
    def __init__(self, clock: Callable[[], float] = guard.monotonic) -> None:
        self._clock = clock
        self._told = -COMPLAIN_EVERY
        self._times = 0

    def again(self) -> int:
        """It has happened again: how often since it was last told, or 0 if it is not to be told."""
        self._times += 1
        now = self._clock()
        if now - self._told < COMPLAIN_EVERY:
            return 0
        times, self._times, self._told = self._times, 0, now
        return times
