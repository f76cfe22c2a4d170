"""Who keeps trying tokens that are none: counted by address, in guard time, and told in the log.

A secret has 256 bits and is not guessed; this keeps the log readable and a broken program from
hammering. Whoever has a valid token is let in whatever its neighbours at that address do.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

MAX_FAILED = 20  # attempts from one address within the window; then it waits for the window's end
FAILED_WINDOW = 60.0  # seconds
MAX_FAILING = 4_096  # addresses that are remembered; the longest silent are forgotten first

log = logger("forewarn.control")


class _Failing:
    __slots__ = ("count", "log", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.count = 0
        self.log = LogThrottle()


class TokenAttempts:
    def __init__(self) -> None:
        self._failing: OrderedDict[str, _Failing] = OrderedDict()

    def wait(self, address: str) -> float:
        """How long this address has to wait before it may try another token; 0: not at all."""
        found = self._failing.get(network_of(address))
        if found is None or found.count < MAX_FAILED:
            return 0.0
        return max(0.0, found.since + FAILED_WINDOW - guard.monotonic())

    def failed(self, address: str, token: str) -> None:
        """With a token that says it is this one, if it is one at all."""
        network, now = network_of(address), guard.monotonic()
        found = self._failing.get(network)
        if found is None or now - found.since >= FAILED_WINDOW:
            log_throttle = found.log if found else LogThrottle()
            found = self._failing[network] = _Failing(now)
            found.log = log_throttle
        found.count += 1
        self._failing.move_to_end(network)
        while len(self._failing) > MAX_FAILING:
            self._failing.popitem(last=False)
        if found.log.record(force=found.count == MAX_FAILED):
            log.warning(
                "authentication failed: the token is unknown, wrong, expired or revoked",
                address=address,
                token=token or "not a token",
                attempts=found.count,
            )


def network_of(address: str) -> str:
    """One IPv6 host has more addresses than one could count: its network stands for it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))
