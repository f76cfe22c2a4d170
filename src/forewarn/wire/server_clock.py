"""The clock of the server, estimated from the Date headers of its responses.

A Date header is the second in which a response was written, so each response bounds the offset
between the server's clock and ours, and many of them narrow it down. A response that contradicts
the bounds means that the clock was stepped or set, or that this machine was suspended. As long as
nothing contradicts it, the initial offset is kept.
"""

from __future__ import annotations

from forewarn.wire.times import parse_rfc1123

STEP = 2.0  # seconds; smaller changes are not reported as a step of the clock


class ServerClock:
    """Estimates `offset`: the seconds to add to our monotonic clock to get the server's time."""

    def __init__(self, offset: float = 0.0) -> None:
        self._low = float("-inf")
        self._high = float("inf")
        self._offset = offset
        self._has_estimate = False

    @property
    def offset(self) -> float:
        return self._offset

    def learn(self, date: str | None, sent_at: float, received_at: float) -> float:
        """Learn from a response with this Date header, sent and received at these times of ours.

        Returns by how many seconds the server's clock was stepped since the last response; 0 if it
        was not, and for the first response.
        """
        try:
            second = parse_rfc1123(date or "")
        except (ValueError, OverflowError):
            return 0.0
        low, high = second - received_at, second + 1 - sent_at
        before, had_estimate = self._offset, self._has_estimate
        self._low, self._high = max(self._low, low), min(self._high, high)
        if self._low > self._high:
            self._low, self._high = low, high
        if not self._low <= self._offset <= self._high:
            self._offset = (self._low + self._high) / 2
        self._has_estimate = True
        change = self._offset - before
        return change if had_estimate and abs(change) > STEP else 0.0
