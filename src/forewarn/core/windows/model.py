"""Windows, blackouts and maintenance configurations, as values.

A window recurs, in the local time of a zone: maintenance may start in it. In a blackout it may not.
When windows open and close is `openings.py`, how they are written is `syntax.py`.

A maintenance configuration has windows, one of which has to be open, and blackouts, none of which
may be. Where several configurations apply, all of them have to allow it.
"""

from __future__ import annotations

from datetime import UTC, date, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from forewarn.support.instants import Time
from forewarn.support.text import MINUTE, Duration

MAX_CONFIGURATIONS = 100  # maintenance configurations of a fleet

A_DAY = timedelta(days=1)
MINUTES_A_DAY = 24 * 60


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """The time in which an event may start, approved or not."""

    opens: Time
    closes: Time | None = None


class Window(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The days on which a window opens, and its hours. Without weekdays and days: every day."""

    text: str  # as it was written
    opens: int  # minutes after midnight
    closes: int  # likewise; on the next day if not after `opens`
    weekdays: tuple[int, ...] = ()  # Monday is 0
    which: tuple[
        int, ...
    ] = ()  # which of these weekdays in a month: 1 to 5, or -1 for the last; empty: all
    days: tuple[int, ...] = ()  # of the month
    zone: str = "UTC"

    def opens_on(self, day: date) -> bool:
        if self.days:
            return day.day in self.days
        if self.weekdays and day.weekday() not in self.weekdays:
            return False
        if not self.which:
            return True
        last = (day + 7 * A_DAY).month != day.month
        return (day.day - 1) // 7 + 1 in self.which or (last and -1 in self.which)

    @property
    def zone_known(self) -> bool:
        """Does this computer know its time zone? If not, it never opens."""
        return known_zone(self.zone) is not None

    @property
    def length(self) -> Duration:
        """Its length on a day without a change of the clocks."""
        return ((self.closes - self.opens - 1) % MINUTES_A_DAY + 1) * MINUTE


class Blackout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A time in which no maintenance starts."""

    begins: Time
    ends: Time
    text: str = ""  # as it was written


class MaintenanceConfiguration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When maintenance of some machines may start."""

    name: str
    select: str = ""  # selector of machines by their labels; empty: all
    windows: tuple[Window, ...] = ()  # empty: at any time
    blackouts: tuple[Blackout, ...] = ()

    def blackout_at(self, at: Time) -> Blackout | None:
        """Return the blackout at an instant; if there are several, the one that ends last."""
        current = [b for b in self.blackouts if b.begins <= at < b.ends]
        return max(current, key=lambda blackout: blackout.ends, default=None)

    def next_blackout(self, at: Time) -> Time | None:
        """Return when the first blackout begins after an instant."""
        return min((b.begins for b in self.blackouts if b.begins > at), default=None)

    def last_blackout(self, at: Time) -> Time:
        """Return when the last blackout before an instant has ended."""
        return max((b.ends for b in self.blackouts if b.ends <= at), default=0)

    @property
    def summary(self) -> str:
        """What it says, for the history."""
        parts = [f"for {self.select}" if self.select else "for all machines"]
        parts += [f"window {window.text}" for window in self.windows]
        parts += [f"blackout {blackout.text}" for blackout in self.blackouts]
        return "; ".join(parts)


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """Return a time zone by name. Raises ZoneInfoNotFoundError or ValueError if there is none.

    UTC does not need time zone data.
    """
    return UTC if name == "UTC" else ZoneInfo(name)


@lru_cache(maxsize=256)
def known_zone(name: str) -> tzinfo | None:
    """Return a time zone by name; None if there is none. A zone that was valid when a window was
    stored can be missing after an update of the time zone data, or on another computer."""
    try:
        return zone_of(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
