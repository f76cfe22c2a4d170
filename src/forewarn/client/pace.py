"""How often to send requests, how long to wait, and when to give up: the timings of a client.

Once a second is what the service expects. An endpoint with problems is given time, but never so
much that the shortest notice there is, thirty seconds, could pass unseen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from math import inf
from typing import TypeAlias

from forewarn.client.steps import Response

Duration: TypeAlias = float | timedelta
"""A length of time: a number of seconds, or a timedelta."""

INTERVAL = 1.0  # seconds between two polls
LEAST_REST = 0.05  # seconds, even if the caller wants the next document at once
MAX_INTERVAL = 15.0  # seconds, for callers that want to poll rarely
JITTER = 0.1  # of the interval, so that a fleet does not poll at the same moment
BACK_OFF_MOST = 5.0  # seconds between two attempts, whatever goes wrong
RETRY_AFTER_MOST = 10.0  # seconds of a Retry-After that are honoured

CONNECT = 3.0  # seconds for a connection
ANSWER = 10.0  # seconds for an answer
ANSWER_LEAST = 1.0  # seconds for an answer, even if less of the timeout is left
STALL = 10.0  # seconds without another byte of an answer that has begun
LEAST = 0.001  # seconds for anything; a socket takes 0 for "do not wait"
FIRST_ANSWER = 130.0  # seconds; Azure's first answer may take two minutes
TIMEOUT = 130.0  # seconds in which a request is retried until it is given up
ABSENT = 15.0  # seconds of it if the address or this machine is unknown, as during a restart

WAIT = 10.0  # seconds that a long-poll is held
WAIT_LATE = 5.0  # seconds beyond, until it counts as lost: together half of the shortest notice
TRANSIT = 1.0  # seconds that the answer to a long-poll may take to arrive; for the clock
WAIT_LEAST = 1.0  # seconds; a shorter long-poll is not worth while
WAIT_TRIES = 3  # failures in a row until long-polls are given up for a while
WAIT_AGAIN = 600.0  # seconds until long-polls are tried again on a server without them
NEWEST_AGAIN = 60.0  # seconds until the newest version is tried again on a server without it
DOUBT = 5  # refusals in a row until older versions are tried again
LOST = 30.0  # seconds without an answer until the endpoint is discovered again


def jittered(seconds: float) -> float:
    """Return about so many seconds, different each time."""
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)


def back_off(failures: int, retry_after: str = "") -> float:
    """Return the seconds until the next attempt after so many failures in a row: longer and longer,
    and different for every machine."""
    seconds = min(BACK_OFF_MOST, INTERVAL * 2.0 ** min(failures - 1, 10))
    requested = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
    return max(seconds * random.uniform(0.5, 1.0), min(requested, RETRY_AFTER_MOST))


def seconds(duration: Duration, name: str) -> float:
    """Return the seconds of a duration. Raises ValueError if it is negative or not a number; `name`
    is what the caller calls it."""
    length = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not length >= 0:
        raise ValueError(f"{name} must be 0 or more seconds, or a timedelta, not {duration}")
    return length


def check_interval(duration: Duration) -> float:
    """Return the seconds of an interval. Raises ValueError if it is out of range."""
    interval = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not LEAST_REST <= interval <= MAX_INTERVAL:
        raise ValueError(
            f"the interval must be {LEAST_REST:g} to {MAX_INTERVAL:g} seconds, not {interval:g}:"
            " a notice may be as short as 30 s"
        )
    return interval


def is_transient(response: Response) -> bool:
    """Whether a failure is of a kind that passes by itself, as with the real service. An address
    where nothing listens, and a service that does not know this machine or the request, are not
    transient, except during a restart."""
    if response.status is None:
        return response.failure not in ("refused", "unreachable")
    return response.status in (200, 408, 410, 425, 429) or response.status >= 500


class Retries:
    """The attempts of one call: how often it has failed, how long to rest, when to give up.

    Each call has its own, so that an approval that fails does not slow down a watch.
    """

    def __init__(self, clock: Callable[[], float], timeout: float = inf) -> None:
        self._clock = clock
        self._until = clock() + timeout
        self._absent_since: float | None = None
        self._retry_after = ""
        self.failures: int = 0  # in a row

    @property
    def left(self) -> float:
        """The seconds left of the timeout."""
        return max(0.0, self._until - self._clock())

    def succeeded(self) -> None:
        """Record a success, with which counting starts over."""
        self.failures, self._retry_after, self._absent_since = 0, "", None

    def failed(self, response: Response) -> None:
        """Record a failure."""
        self.failures += 1
        self._retry_after = response.header("retry-after")
        if is_transient(response):
            self._absent_since = None
        elif self._absent_since is None:
            self._absent_since = self._clock()

    def rest(self) -> float | None:
        """Return the seconds until the next attempt; None if there is no time left for one."""
        seconds = back_off(max(1, self.failures), self._retry_after)
        until = self._until
        if self._absent_since is not None and until < inf:
            until = min(until, self._absent_since + ABSENT)
        return None if self._clock() + seconds >= until else seconds
