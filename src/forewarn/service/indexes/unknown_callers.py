"""Unknown callers: addresses that have sent requests and belong to no machine.

In memory and of limited size, however many addresses somebody has: if there are too many, those
with the fewest requests are forgotten, so that a caller that goes on asking stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from forewarn.core import Time
from forewarn.core.retiming import Correction
from forewarn.core.time import HOUR, Duration, Instant

MAX_ADDRESSES = 1_024
KEPT_ADDRESSES = 768  # when there are more: room for many new ones, so that this is done seldom
MAX_PER_HOST = 128  # addresses of one host: whoever has taken it over leaves room for others
MAX_ADDRESS = 64  # characters
MAX_REQUESTS = 2**31  # of one address, or polls of one machine, that are reported at a time
RECENT: Duration = HOUR  # since the last request of an address that counts


class UnknownCaller(msgspec.Struct):
    # A node on a host reports them, too: what it may say is limited here.
    address: Annotated[str, Meta(max_length=MAX_ADDRESS)]
    first: Instant
    last: Instant
    requests: Annotated[int, Meta(ge=0, le=MAX_REQUESTS)]
    host: str = ""  # of the node that was asked; empty: no node was


class UnknownCallers:
    def __init__(self) -> None:
        self._callers: dict[tuple[str, str], UnknownCaller] = {}  # by address and host

    def record(self, address: str, at: Time) -> None:
        """Record a request."""
        caller = self._callers.get((address, ""))
        if caller is None:
            self._add(UnknownCaller(address, at, at, 1))
        else:
            caller.last = max(caller.last, at)
            caller.requests += 1

    def add(self, calls: UnknownCaller) -> None:
        """Add the requests that another process has recorded."""
        caller = self._callers.get((calls.address, calls.host))
        if caller is None:
            self._add(calls)
        else:
            caller.first, caller.last = min(caller.first, calls.first), max(caller.last, calls.last)
            caller.requests += calls.requests

    def _add(self, caller: UnknownCaller) -> None:
        of_host = [key for key in self._callers if key[1] == caller.host] if caller.host else []
        if len(of_host) >= MAX_PER_HOST:
            del self._callers[min(of_host, key=lambda key: _weight(self._callers[key]))]
        elif len(self._callers) >= MAX_ADDRESSES:
            callers = sorted(self._callers.values(), key=_weight)
            self._callers = {(c.address, c.host): c for c in callers[-KEPT_ADDRESSES:]}
        self._callers[caller.address, caller.host] = caller

    def all(self) -> list[UnknownCaller]:
        """Return all callers, ordered by address and host."""
        return sorted(self._callers.values(), key=lambda caller: (caller.address, caller.host))

    def recent(self, now: Time) -> int:
        """Return how many addresses have sent a request within RECENT."""
        return sum(now - caller.last <= RECENT for caller in self._callers.values())

    def take(self) -> list[UnknownCaller]:
        """Return everything since the last call, and forget it."""
        callers, self._callers = list(self._callers.values()), {}
        return callers

    def forget(self, addresses: Iterable[str], host: str) -> None:
        """Forget addresses that belong to a machine on a host now."""
        for address in addresses if self._callers else ():
            self._callers.pop((address, ""), None)
            self._callers.pop((address, host), None)

    def correct(self, clock: Correction) -> None:
        """Correct times that were noted while the clock was ahead."""
        for caller in self._callers.values():
            caller.first, caller.last = clock.past(caller.first), clock.past(caller.last)


def _weight(caller: UnknownCaller) -> tuple[int, Time]:
    """Return what is smallest for the caller that is forgotten first."""
    return caller.requests, caller.last
