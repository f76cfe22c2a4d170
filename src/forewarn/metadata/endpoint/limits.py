"""What a caller may use: sizes of head and body, the time to send them, connections, buffers and,
optionally, a rate of requests. All times are guard time.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable

import msgspec

from forewarn.support import guard

OPEN_FILES = "open_files"  # the system's own limit, counted among ours
STRANGER = "at "  # prefix of the name of a caller that is no machine
MAX_REFUSED = 64  # refused connections that are being closed slowly at a time
MAX_REFUSED_PER_MACHINE = 4
STRANGERS = 8  # at most one in so many connections is held for all strangers together


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    max_head: int = 16 * 1024  # bytes of a request before its body
    max_head_lines: int = 64  # header lines of a request
    head_timeout: float = 10.0  # seconds to send it, from its first byte
    max_body: int = 64 * 1024  # bytes of a POST
    body_timeout: float = 10.0  # seconds to send it
    answer_timeout: float = 10.0  # seconds to take an answer that did not fit at once
    keep_alive: int = 120  # seconds that an idle connection is kept
    max_chunks: int = 128  # chunks of a POST
    max_connections_per_machine: int = 32
    max_connections: int = 16_384  # of all machines together
    max_buffered_per_machine: int = 512 * 1024  # bytes of unfinished requests and unsent answers
    max_buffered: int = 32 * 1024 * 1024  # of all machines together
    throttle: int = 0  # requests per machine and second; 0: unlimited


class ConnectionAdmission(enum.Enum):
    """Whether one more connection is admitted, or which limit it would exceed."""

    ADMITTED = "admitted"
    MACHINE_FULL = "max_connections_per_machine"
    ALL_FULL = "max_connections"


class ConnectionLimits:
    """Open connections by caller. A caller that is no machine is known by its address."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._held: dict[str, int] = {}
        self.total = 0
        self._strangers = 0
        self._refused: Counter[str] = Counter()

    def admission(self, who: str) -> ConnectionAdmission:
        most = self.limits.max_connections
        share = max(1, most // STRANGERS)
        if self.total >= most or (_stranger(who) and self._strangers >= share):
            return ConnectionAdmission.ALL_FULL
        if self._held.get(who, 0) >= self.limits.max_connections_per_machine:
            return ConnectionAdmission.MACHINE_FULL
        return ConnectionAdmission.ADMITTED

    def refuse(self, who: str) -> bool:
        """Return whether a refused connection may be closed slowly, so that the refusal arrives."""
        if self._refused[who] >= MAX_REFUSED_PER_MACHINE or self._refused.total() >= MAX_REFUSED:
            return False
        self._refused[who] += 1
        return True

    def refused_closed(self, who: str) -> None:
        """Count a refused connection as closed."""
        self._refused[who] -= 1
        if not self._refused[who]:
            del self._refused[who]

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


class BufferLimits:
    """Bytes buffered for callers, in incomplete requests and in answers that they have not read.

    The connections of a caller that has reached its limit are not read until some of its bytes are
    released. One of them goes on nevertheless, so that its requests are completed one after the
    other. When all callers together have reached `max_buffered`, each may still use an equal share
    of it, so that no caller waits because of others.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.total = 0
        self.peak = 0  # the largest total since it was last reset
        self._held: dict[str, int] = {}
        self._waiting: dict[str, dict[Callable[[], None], None]] = {}
        self._going_on: dict[str, object] = {}  # by caller: its one connection that need not wait

    def held(self, caller: str) -> int:
        return self._held.get(caller, 0)

    def full(self, caller: str, connection: object, holds: int) -> str:
        """Return the limit that keeps this connection, which holds `holds` bytes, from buffering
        more; empty if none does."""
        held, limits = self._held.get(caller, 0), self.limits
        part = limits.max_buffered // (len(self._held) + (caller not in self._held))
        if held >= limits.max_buffered_per_machine:
            limit = "max_buffered_per_machine"
        elif self.total >= limits.max_buffered and held >= max(1, part):
            limit = "max_buffered"
        else:
            return ""
        # Where there is room for one body of each, one after the other comes to its end.
        if holds and (self.total < limits.max_buffered or part >= limits.max_body):
            goes_on = self._going_on.setdefault(caller, connection)
            return "" if goes_on is connection else limit
        return limit

    def wait(self, caller: str, resume: Callable[[], None]) -> None:
        """Call `resume` once when the caller may be below its limit again."""
        self._waiting.setdefault(caller, {})[resume] = None

    def cancel_wait(self, caller: str, resume: Callable[[], None]) -> None:
        """Cancel a `wait`."""
        waiting = self._waiting.get(caller)
        if waiting is not None:
            waiting.pop(resume, None)
            if not waiting:
                del self._waiting[caller]

    def finish(self, caller: str, connection: object) -> None:
        """Let another connection of the caller go on, since this one holds nothing any more."""
        if self._going_on.get(caller) is connection:
            del self._going_on[caller]
            self._wake(caller)

    def change(self, caller: str, by: int) -> None:
        was_full = self.total >= self.limits.max_buffered
        held = self._held.get(caller, 0) + by
        if held:
            self._held[caller] = held
        else:
            self._held.pop(caller, None)
        self.total += by
        self.peak = max(self.peak, self.total)
        if by < 0 and self._waiting:
            if was_full and self.total < self.limits.max_buffered:
                self._wake(*self._waiting)
            elif held < self.limits.max_buffered_per_machine:
                self._wake(caller)

    def _wake(self, *callers: str) -> None:
        for caller in callers:
            for resume in self._waiting.pop(caller, ()):
                resume()


def share_of(who: str) -> str:
    """Return whose share of time and memory a caller uses: each machine has its own, and all other
    callers have one together."""
    return STRANGER if _stranger(who) else who


def _stranger(who: str) -> bool:
    return who.startswith(STRANGER)


class RateLimits:
    """A token bucket for each machine."""

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
