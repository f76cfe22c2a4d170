"""Whether the lease of another process is over, by the clock of this one alone.

Whoever leads writes a value that is new each time it renews its lease, which lasts for a known
length from before it did. So a value that was seen, unchanged, for that length belongs to a lease
that is over, whatever the wall clocks of the database and of the other machines show, and however
often they step. What was not looked at in between does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class LeaseWatch:
    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` must also count time in which the machine is suspended."""
        self._clock = clock
        self._value: Hashable = None
        self._since = 0.0  # when it was first seen

    def left(self, value: Hashable, length: float) -> float:
        """Return for how many seconds longer this value, which was read just now, must be seen
        until the lease of this length is over; 0 if it is."""
        now = self._clock()
        if value != self._value:
            self._value, self._since = value, now
        return max(0.0, self._since + length - now)
