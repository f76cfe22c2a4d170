"""Time in the core: whole microseconds that are passed in and never read from a clock."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from forewarn.support.instants import Time as Time
from forewarn.support.text import DAY as DAY
from forewarn.support.text import HOUR as HOUR
from forewarn.support.text import LONGEST
from forewarn.support.text import MINUTE as MINUTE
from forewarn.support.text import SECOND as SECOND
from forewarn.support.text import Duration as Duration

MAX_TIME: Time = LONGEST  # 9000-01-01: a virtual clock cannot be set further
Instant: TypeAlias = Annotated[Time, Meta(ge=-MAX_TIME, le=MAX_TIME)]  # as others may send it
MIN_SPEED, MAX_SPEED = 0.01, 100_000.0


def ceil_second(at: Time) -> Time:
    """Round up to a whole second, so that the notice is never shorter than promised."""
    return -(-at // SECOND) * SECOND


class Durations(msgspec.Struct, frozen=True, kw_only=True):
    """Durations that apply to every group of a service.

    `speed` divides durations, not time: everything that somebody waits for goes through `paced`,
    while the clock, NotBefore and the history stay in wall time.
    """

    speed: float = 1.0
    silence: Duration | None = DAY  # a group is disabled after this long without a GET; None: never
    start_grace: Duration = 60 * SECOND  # how long nothing starts by its NotBefore after an outage
    enable_delay: Duration = 0  # how long a group's first GET waits for its answer
    telling: Duration = 0  # how long it may take, in wall time, until all guests are shown a change
    until_heard: bool = False  # does an event last until its machines have polled again?

    def paced(self, duration: Duration) -> Duration:
        """Return how long the duration takes at this speed."""
        return duration if self.speed == 1.0 else round(duration / self.speed)

    def from_commit(self, notice: Duration) -> Duration:
        """Return how long a notice is, counted from the commit instead of when guests see it."""
        return self.paced(notice) + self.telling if notice else 0
