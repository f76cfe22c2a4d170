"""What becomes of an attempt of the driver after its answer."""

from __future__ import annotations

import msgspec

from forewarn.core.commands import Again, Failed, Unclear
from forewarn.core.events import Attempt
from forewarn.core.time import MINUTE, SECOND, Duration, Now

# Before an attempt that has failed is repeated; each pause is twice as long as the one before.
MIN_BACK_OFF: Duration = 5 * SECOND
MAX_BACK_OFF: Duration = 5 * MINUTE
LEAST_PAUSE: Duration = SECOND // 4  # between two attempts, even if the driver asks for less


def answered(attempt: Attempt, outcome: Again | Failed | Unclear, now: Now) -> Attempt:
    """Return the attempt with an answer after which there is more to do."""
    closed = msgspec.structs.replace(attempt, open=False)
    match outcome:
        case Again(at=at):
            return msgspec.structs.replace(closed, next_at=max(at, now.at + LEAST_PAUSE))
        case Failed(why=note):
            pause = min(MIN_BACK_OFF << min(attempt.number - 1, 16), MAX_BACK_OFF)
            again = now.at + max(now.rules.paced(pause), LEAST_PAUSE)
            return msgspec.structs.replace(closed, next_at=again, note=note)
        case Unclear(why=note):
            return msgspec.structs.replace(closed, note=note, stuck=True)
