"""The service's clock, as its answers show it: Date is the second in which each was given.

From many of them follows how far it is from ours, within ever narrower bounds; if one contradicts
that, the clock was stepped, or is wound by hand, or this machine stood still for a while. Where
nothing contradicts it, it is the wall clock as it was at the beginning.
"""

from __future__ import annotations

from forewarn.wire.times import parse_rfc1123

STEP = 2.0  # seconds; less than this is no step of a clock


class ServerClock:
    """`offset` are the seconds to add to a clock that nobody steps for the service's."""

    def __init__(self, offset: float = 0.0) -> None:
        self._low = float("-inf")
        self._high = float("inf")
        self._offset = offset
        self._known = False

    @property
    def offset(self) -> float:
        return self._offset

    def learn(self, date: str | None, asked: float, answered: float) -> float:
        """What this answer tells. How far the service's clock was stepped since the last: 0 if it
        was not, and for the first, which only says what it is."""
        try:
            second = parse_rfc1123(date or "")
        except (ValueError, OverflowError):
            return 0.0
        low, high = second - answered, second + 1 - asked
        before, known = self._offset, self._known
        self._low, self._high = max(self._low, low), min(self._high, high)
        if self._low > self._high:
            self._low, self._high = low, high
        if not self._low <= self._offset <= self._high:
            self._offset = (self._low + self._high) / 2
        self._known = True
        moved = self._offset - before
        return moved if known and abs(moved) > STEP else 0.0
