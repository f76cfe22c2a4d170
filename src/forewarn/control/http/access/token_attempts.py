"""Failed authentication attempts, counted by address in guard time, throttled and logged.

A secret has 256 bits and cannot be guessed; this keeps the log readable and slows down a program
with a wrong token. A valid token is accepted even from an address that has to wait.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

MAX_FAILED = 20  # attempts from one address within the window; then it waits for the window's end
FAILED_WINDOW = 60.0  # seconds
MAX_FAILING = 4_096  # networks that are remembered; the least recent are dropped

log = logger("forewarn.control")


class _FailingNetwork:
    __slots__ = ("count", "log", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.count = 0
        self.log = LogThrottle()


class TokenAttempts:
    def __init__(self) -> None:
        self._failing: OrderedDict[str, _FailingNetwork] = OrderedDict()

    def wait(self, address: str) -> float:
        """Return the seconds that this address has to wait before it may try another token."""
        failing = self._failing.get(network_of(address))
        if failing is None or failing.count < MAX_FAILED:
            return 0.0
        return max(0.0, failing.since + FAILED_WINDOW - guard.monotonic())

    def failed(self, address: str, token: str) -> None:
        """Count a failed attempt; `token` is the id in the token that was sent, or empty."""
        network, now = network_of(address), guard.monotonic()
        failing = self._failing.get(network)
        if failing is None or now - failing.since >= FAILED_WINDOW:
            log_throttle = failing.log if failing else LogThrottle()
            failing = self._failing[network] = _FailingNetwork(now)
            failing.log = log_throttle
        failing.count += 1
        self._failing.move_to_end(network)
        while len(self._failing) > MAX_FAILING:
            self._failing.popitem(last=False)
        if failing.log.record(force=failing.count == MAX_FAILED):
            log.warning(
                "authentication failed: the token is unknown, wrong, expired or revoked",
                address=address,
                token=token or "not a token",
                attempts=failing.count,
            )


def network_of(address: str) -> str:
    """Return what attempts are counted by: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))
