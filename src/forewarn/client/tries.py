"""One question, asked again and again: how often it has failed, how long to rest, when to give up.

Each question has its own, so that an approval in trouble does not slow down whoever watches.
"""

from __future__ import annotations

from collections.abc import Callable

from forewarn.client import pace
from forewarn.client.steps import Answer

FOREVER = float("inf")


def passes(answer: Answer) -> bool:
    """Is this the kind of trouble that is over by itself, as the real service has it? Where nobody
    listens, knows this machine, or understands the question, it is so for a short while at most."""
    if answer.status is None:
        return answer.trouble not in ("refused", "unreachable")
    return answer.status in (200, 408, 410, 425, 429) or answer.status >= 500


class Retries:
    def __init__(self, clock: Callable[[], float], patience: float = FOREVER) -> None:
        self._clock = clock
        self._until = clock() + patience
        self._hopeless: float | None = None  # since when nobody was there
        self._retry_after = ""
        self.failures = 0  # in a row

    @property
    def left(self) -> float:
        """Seconds."""
        return max(0.0, self._until - self._clock())

    def well(self) -> None:
        self.failures, self._retry_after, self._hopeless = 0, "", None

    def failed(self, answer: Answer) -> None:
        self.failures += 1
        self._retry_after = answer.header("retry-after")
        if passes(answer):
            self._hopeless = None
        elif self._hopeless is None:
            self._hopeless = self._clock()

    def rest(self) -> float | None:
        """Seconds until the next try; None if there is no time left for one."""
        seconds = pace.pause(max(1, self.failures), self._retry_after)
        until = self._until
        if self._hopeless is not None and until < FOREVER:
            until = min(until, self._hopeless + pace.NOBODY_THERE)
        return None if self._clock() + seconds >= until else seconds
