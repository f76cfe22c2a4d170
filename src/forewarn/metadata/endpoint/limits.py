"""What a caller may use: sizes of head and body, the time to send them, connections, buffers and,
optionally, a rate of requests. All times are guard time.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from forewarn.support import guard

OPEN_FILES = "open_files"  # the system's own limit, counted among ours
UNKNOWN_CALLER = "at "  # prefix of the name of a caller that is not a known machine
MAX_REFUSED = 64  # refused connections that are being closed slowly at a time
MAX_REFUSED_PER_MACHINE = 4
HELD_SHARE = 4  # requests of a machine that wait for a decision use one in this many connections
UNKNOWN_CALLERS_SHARE = 8  # unknown callers together may hold at most one in this many connections


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits for guests, as in the settings of the same names."""

    max_head: int = 16 * 1024
    """Bytes of a request before its body."""
    max_head_lines: int = 64
    """Header lines of a request, or lines of trailers."""
    head_timeout: float = 10.0
    """Seconds to send the head of a request, from its first byte."""
    max_body: int = 64 * 1024
    """Bytes of the body of a POST."""
    body_timeout: float = 10.0
    """Seconds to send the body."""
    answer_timeout: float = 10.0
    """Seconds to take an answer that could not be sent at once."""
    keep_alive: int = 120
    """Seconds for which an idle connection is kept."""
    max_chunks: int = 128
    """Chunks of a POST."""
    max_connections_per_machine: int = 32
    """Connections of one machine."""
    max_connections: int = 16_384
    """Connections of all machines together."""
    max_buffered_per_machine: int = 512 * 1024
    """Bytes of unfinished requests and unsent answers of one machine."""
    max_buffered: int = 32 * 1024 * 1024
    """Bytes of unfinished requests and unsent answers of all machines together."""
    throttle: int = 0
    """Requests per machine and second; 0 if they are not limited."""


class ConnectionAdmission(enum.Enum):
    """Whether one more connection is admitted, or which limit it would exceed."""

    ADMITTED = "admitted"
    MACHINE_FULL = "max_connections_per_machine"
    ALL_FULL = "max_connections"


class ConnectionLimits:
    """Open connections by caller. A caller that is not a known machine is named by its address."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._held: dict[str, int] = {}
        self.total = 0
        self._unknown_callers = 0
        self._refused: Counter[str] = Counter()

    def admission(self, caller: str) -> ConnectionAdmission:
        most = self.limits.max_connections
        share = max(1, most // UNKNOWN_CALLERS_SHARE)
        if self.total >= most or (_is_unknown(caller) and self._unknown_callers >= share):
            return ConnectionAdmission.ALL_FULL
        if self._held.get(caller, 0) >= self.limits.max_connections_per_machine:
            return ConnectionAdmission.MACHINE_FULL
        return ConnectionAdmission.ADMITTED

    def refuse(self, caller: str) -> bool:
        """Return whether a refused connection may be closed slowly, so that the refusal arrives."""
        if self._refused[caller] >= MAX_REFUSED_PER_MACHINE or self._refused.total() >= MAX_REFUSED:
            return False
        self._refused[caller] += 1
        return True

    def refused_closed(self, caller: str) -> None:
        """Count a refused connection as closed."""
        self._refused[caller] -= 1
        if not self._refused[caller]:
            del self._refused[caller]

    def enter(self, caller: str) -> None:
        self._held[caller] = self._held.get(caller, 0) + 1
        self.total += 1
        self._unknown_callers += _is_unknown(caller)

    def leave(self, caller: str) -> None:
        remaining = self._held[caller] - 1
        if remaining:
            self._held[caller] = remaining
        else:
            del self._held[caller]
        self.total -= 1
        self._unknown_callers -= _is_unknown(caller)


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
        self._exempt: dict[str, object] = {}  # by caller: its one connection that does not wait

    def held(self, caller: str) -> int:
        return self._held.get(caller, 0)

    def full(self, caller: str, connection: object, holds: int) -> str:
        """Return the limit that keeps this connection, which holds `holds` bytes, from buffering
        more; empty if none does."""
        held, limits = self._held.get(caller, 0), self.limits
        share = limits.max_buffered // (len(self._held) + (caller not in self._held))
        if held >= limits.max_buffered_per_machine:
            limit = "max_buffered_per_machine"
        elif self.total >= limits.max_buffered and held >= max(1, share):
            limit = "max_buffered"
        else:
            return ""
        # If one body of each caller fits, requests are completed one after the other.
        if holds and (self.total < limits.max_buffered or share >= limits.max_body):
            exempt = self._exempt.setdefault(caller, connection)
            return "" if exempt is connection else limit
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
        if self._exempt.get(caller) is connection:
            del self._exempt[caller]
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


def share_of(caller: str) -> str:
    """Return whose share of time and memory a caller uses: each machine has its own, and all other
    callers have one together."""
    return UNKNOWN_CALLER if _is_unknown(caller) else caller


def _is_unknown(caller: str) -> bool:
    return caller.startswith(UNKNOWN_CALLER)


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


class HeldRequests:
    """Requests of each machine that wait for whoever decides. They use only a share of its
    connections, however long they are held, so that its polls are answered meanwhile."""

    def __init__(self, limits: Limits, per_second: int = 0) -> None:
        """`per_second` are the requests of a machine that are passed on; others wait for their
        turn. 0: all are passed on at once."""
        self.limits = limits
        self._held: Counter[str] = Counter()
        self._rates = RateLimits(per_second)

    def full(self, machine: str) -> bool:
        """Return whether no other request of the machine may wait."""
        most = max(1, self.limits.max_connections_per_machine // HELD_SHARE)
        return self._held[machine] >= most

    @asynccontextmanager
    async def hold(self, machine: str) -> AsyncIterator[None]:
        """Count a request as held, and wait for its turn."""
        self._held[machine] += 1
        try:
            while not self._rates.admit(machine):
                await guard.pause(1 / self._rates.per_second)
            yield
        finally:
            self._held -= Counter((machine,))
