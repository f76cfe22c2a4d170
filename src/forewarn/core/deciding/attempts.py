"""What becomes of an attempt of the driver after its answer."""

from __future__ import annotations

import msgspec

from forewarn.core.commands import Again, Answer, Failed, Unclear
from forewarn.core.events import Attempt
from forewarn.core.time import MINUTE, SECOND, Duration, Time
from forewarn.core.world import World

# Before what has failed is tried again; each pause is twice as long as the one before.
MIN_BACK_OFF: Duration = 5 * SECOND
MAX_BACK_OFF: Duration = 5 * MINUTE
LEAST_PAUSE: Duration = SECOND // 4  # between two attempts, even if the driver asks for less


def back_off(times: int, now: World) -> Time:
    """Return when to try again what has failed this many times in a row."""
    pause = min(MIN_BACK_OFF << min(times - 1, 16), MAX_BACK_OFF)
    return now.at + max(now.rules.paced(pause), LEAST_PAUSE)


def answered(attempt: Attempt, answer: Answer, now: World) -> Attempt:
    """Return the attempt with an answer after which there is more to do."""
    begun = tuple(dict.fromkeys((*attempt.begun, *answer.begun)))
    closed = msgspec.structs.replace(attempt, open=False, begun=begun)
    match answer.outcome:
        case Again(at=at):
            return msgspec.structs.replace(closed, next_at=max(at, now.at + LEAST_PAUSE))
        case Failed(why=note, unsuitable=hosts, moved=moved):
            reserved = {
                machine: host
                for machine, host in attempt.targets.items()
                if host not in hosts and machine not in moved
            }
            return msgspec.structs.replace(
                closed,
                next_at=None if answer.no_host else back_off(attempt.number, now),
                note=note,
                targets=reserved,
                unsuitable=tuple(dict.fromkeys((*attempt.unsuitable, *hosts))),
                no_host=answer.no_host,
            )
        case Unclear(why=note):
            return msgspec.structs.replace(closed, note=note, stuck=True)
    return closed
