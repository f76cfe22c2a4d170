"""How often to ask, and how long to wait: the limits of a client, and what follows from them.

Once a second is what the service expects. Whoever is in trouble is given time, but never so much
that the shortest notice there is, thirty seconds, could pass unseen.
"""

from __future__ import annotations

import random

INTERVAL = 1.0  # seconds between two polls
LEAST_REST = 0.05  # seconds, however eager whoever watches is
MAX_INTERVAL = 15.0  # seconds, for those who want to be asked seldom
JITTER = 0.1  # of the interval, either way: a fleet that was started together does not stay so
BACK_OFF_MOST = 5.0  # seconds between two tries, whatever goes wrong
RETRY_AFTER_MOST = 10.0  # seconds that a service may ask for

CONNECT = 3.0  # seconds for a connection
ANSWER = 10.0  # seconds for an answer
ANSWER_LEAST = 1.0  # seconds for an answer, however little patience is left
STALL = 10.0  # seconds for the rest of an answer, once some of it has come
LEAST = 0.001  # seconds for anything; a socket takes none at all for "do not wait"
FIRST_ANSWER = 130.0  # the first may take two minutes; the service is being switched on
PATIENCE = 130.0  # seconds in which a question is asked again, until it is given up
NOBODY_THERE = 15.0  # seconds of it, where nobody is there, or knows us: it may be restarting

WAIT = 10.0  # seconds that a long-poll is held
WAIT_LATE = 5.0  # seconds beyond, until it is taken for lost: together half of the shortest notice
ON_ITS_WAY = 1.0  # seconds that the answer to one may take to come here; for its clock
WAIT_LEAST = 1.0  # seconds; for less it is not worth while
WAIT_TRIES = 3  # that fail in a row, until plain polls are all there is for a while
WAIT_AGAIN = 600.0  # seconds until a server that did not offer it is asked once more
NEWEST_AGAIN = 60.0  # seconds until a server that did not know the newest version is
DOUBT = 5  # refusals in a row, until a version that was known before is doubted
LOST = 30.0  # seconds without an answer, until the endpoint is looked for anew


def jittered(seconds: float) -> float:
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)


def pause(failures: int, retry_after: str = "") -> float:
    """Until the next try, after so many in a row that failed: longer and longer, and never the
    same for two machines."""
    back_off = min(BACK_OFF_MOST, INTERVAL * 2.0 ** min(failures - 1, 10))
    asked = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
    return max(back_off * random.uniform(0.5, 1.0), min(asked, RETRY_AFTER_MOST))


def checked(interval: float) -> float:
    if not LEAST_REST <= interval <= MAX_INTERVAL:
        raise ValueError(
            f"an interval has {LEAST_REST:g} to {MAX_INTERVAL:g} seconds, not {interval:g};"
            " a notice may be as short as 30 s"
        )
    return interval
