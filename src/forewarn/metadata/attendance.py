"""Has the endpoint been there? With several workers it is there while all of them answer.

A worker that is away for a moment is replaced, and its callers wait with the kernel: that is a
stall like any other. If it lasts longer, the time counts as not served, for all groups: which
machines the worker would have answered nobody can tell from here. Pure; time is handed in.
"""

from __future__ import annotations


class Attendance:
    def __init__(self, expected: int, patience: float, now: float) -> None:
        self._expected = expected
        self._patience = patience  # seconds that workers may be away without its being an outage
        self._since: float | None = now  # from when on time is not accounted for; None: all there
        self._out = False  # is it an outage already?

    def look(self, there: int, now: float) -> float:
        """So many answer now. For how many seconds, not told before, has the endpoint been away?"""
        if there >= self._expected:
            lost = now - self._since if self._out and self._since is not None else 0.0
            self._since, self._out = None, False
            return lost
        if self._since is None:
            self._since = now
        if now - self._since < self._patience:
            return 0.0
        lost, self._since, self._out = now - self._since, now, True
        return lost
