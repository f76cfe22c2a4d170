"""What a caller may use up: the size of a head and a body, the time to send them, and, if
wanted, a rate. All in guard time."""

from __future__ import annotations

import msgspec

from forewarn.service import guard


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    max_head: int = 16 * 1024  # bytes of a request before its body
    head_timeout: float = 10.0  # seconds to send it, from its first byte
    max_body: int = 64 * 1024  # bytes of a POST
    body_timeout: float = 10.0  # seconds to send it
    keep_alive: int = 120  # seconds that an idle connection is kept
    throttle: int = 0  # requests per machine and second; 0: as many as one likes


class Rates:
    """One bucket per machine, filled at the rate it may ask."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._buckets: dict[str, tuple[float, float]] = {}

    def admit(self, machine: str) -> bool:
        if not self._per_second:
            return True
        now = guard.monotonic()
        level, since = self._buckets.get(machine, (float(self._per_second), now))
        level = min(self._per_second, level + (now - since) * self._per_second)
        admitted = level >= 1
        self._buckets[machine] = (level - 1 if admitted else level, now)
        return admitted
