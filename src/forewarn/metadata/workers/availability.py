"""Has the endpoint been there? With several workers it is there while all of them answer.

A worker that is away for a moment is replaced, and its callers wait with the kernel: that is a
stall like any other. If it lasts longer, the time counts as not served, for all groups: which
machines the worker would have answered nobody can tell from here. Pure; time is handed in.
"""

from __future__ import annotations


class Availability:
    def __init__(self, expected: int, patience: float, now: float) -> None:
        self._expected = expected
        self._patience = patience  # seconds that workers may be away without its being an outage
        self._since: float | None = now  # from when on time is not accounted for; None: all there
        self._out = False  # is it an outage already?
        self._told = now  # all time up to here is accounted for

    def look(self, there: int, now: float, since: float | None = None) -> float:
        """So many answer now, the others not since then. For how many seconds, not told before,
        has the endpoint been away? Once it is an outage that is told at every look, so that no
        grace after it begins while it lasts."""
        if there >= self._expected:
            lost = now - self._since if self._out and self._since is not None else 0.0
            self._since, self._out, self._told = None, False, now
            return lost
        if self._since is None:
            self._since = now if since is None else max(min(since, now), self._told)
        if not self._out and now - self._since < self._patience:
            return 0.0
        lost, self._since, self._out = now - self._since, now, True
        return lost
