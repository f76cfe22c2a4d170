"""What a caller may use up: the size of a head and a body, the time to send them, connections
and, if wanted, a rate. All in guard time, and every time that one of them is reached is counted.
"""

from __future__ import annotations

import enum

import msgspec

from forewarn import guard

OPEN_FILES = "open_files"  # the system's own limit, counted among ours
STRANGER = "at "  # what the name of a caller begins with that is no machine
STRANGERS = 8  # one in so many connections, at most, is held for all of them together


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    max_head: int = 16 * 1024  # bytes of a request before its body
    max_head_lines: int = 64  # header lines of a request
    head_timeout: float = 10.0  # seconds to send it, from its first byte
    max_body: int = 64 * 1024  # bytes of a POST
    body_timeout: float = 10.0  # seconds to send it
    answer_timeout: float = 10.0  # seconds to take an answer that did not fit at once
    keep_alive: int = 120  # seconds that an idle connection is kept
    max_pipelined: int = 128  # requests sent ahead on one connection
    max_connections_per_machine: int = 32
    max_connections: int = 16_384  # of all machines together
    throttle: int = 0  # requests per machine and second; 0: as many as one likes


class Room(enum.Enum):
    """Is there room for one more connection?"""

    ENOUGH = "enough"
    NONE_FOR_THE_MACHINE = "max_connections_per_machine"
    NONE_AT_ALL = "max_connections"


class Crowd:
    """Who is connected, and how often. A caller that is no machine is known by its address."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._held: dict[str, int] = {}
        self.total = 0
        self._strangers = 0

    def room(self, who: str) -> Room:
        most = self.limits.max_connections
        share = max(1, most // STRANGERS)
        if self.total >= most or (_stranger(who) and self._strangers >= share):
            return Room.NONE_AT_ALL
        if self._held.get(who, 0) >= self.limits.max_connections_per_machine:
            return Room.NONE_FOR_THE_MACHINE
        return Room.ENOUGH

    def enter(self, who: str) -> None:
        self._held[who] = self._held.get(who, 0) + 1
        self.total += 1
        self._strangers += _stranger(who)

    def leave(self, who: str) -> None:
        left = self._held[who] - 1
        if left:
            self._held[who] = left
        else:
            del self._held[who]
        self.total -= 1
        self._strangers -= _stranger(who)


def _stranger(who: str) -> bool:
    return who.startswith(STRANGER)


class Rates:
    """One bucket per machine, filled at the rate it may ask."""

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self._buckets: dict[str, tuple[float, float]] = {}

    def admit(self, machine: str) -> bool:
        if not self.per_second:
            return True
        now = guard.monotonic()
        level, since = self._buckets.get(machine, (float(self.per_second), now))
        level = min(self.per_second, level + (now - since) * self.per_second)
        admitted = level >= 1
        self._buckets[machine] = (level - 1 if admitted else level, now)
        return admitted
