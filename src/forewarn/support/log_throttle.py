"""Limit how often something is logged that may happen a thousand times a second."""

from __future__ import annotations

from collections.abc import Callable

from forewarn.support import guard

LOG_EVERY = 60.0  # seconds of guard time between two lines in the log about the same thing


class LogThrottle:
    """Decide when an occurrence is logged: the first one, or the first one `first_after` seconds
    later, and then at most one every `every` seconds."""

    __slots__ = ("_clock", "_count", "_every", "_first_after", "_last", "_logged")

    def __init__(
        self,
        every: float = LOG_EVERY,
        *,
        first_after: float = 0.0,
        clock: Callable[[], float] = guard.monotonic,
    ) -> None:
        self._every = every
        self._first_after = first_after
        self._clock = clock
        self._last: float | None = None
        self._count = 0
        self._logged = False

    def record(self, *, force: bool = False) -> int:
        """Count one occurrence. Return how many there were since the last line if a line is due,
        or with `force`; otherwise 0."""
        self._count += 1
        now = self._clock()
        if self._last is None:
            self._last = now - self._every + self._first_after
        if now - self._last < self._every and not force:
            return 0
        count, self._count, self._last, self._logged = self._count, 0, now, True
        return count

    def reset(self) -> bool:
        """Start again, as if nothing had occurred. True if something was logged before."""
        logged, self._logged, self._last, self._count = self._logged, False, None, 0
        return logged
