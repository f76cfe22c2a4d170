"""Hosts whose driver process is connected, if the service has the driver `hosts`. Kept in memory by
whoever has the connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from forewarn.core import Time
from forewarn.core.fleet import Health, Host
from forewarn.support import guard

JOIN_WITHIN = 10.0  # seconds within which processes usually connect to one that begins to decide


class HostDriver(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the driver process of a host."""

    joined: bool
    since: Time
    name: str = ""  # of its driver; empty: it has not been connected yet
    version: str = ""  # of the process


class HostDrivers:
    def __init__(self, with_machines: Callable[[], Iterable[Host]]) -> None:
        self._with_machines = with_machines
        self._now: Callable[[], Time] | None = None  # if this is the process that knows
        self._begun: Time = 0
        self._awaited_until = 0.0  # in guard time
        self._hosts: dict[str, HostDriver] = {}

    @property
    def known(self) -> bool:
        return self._now is not None

    def begin(self, now: Callable[[], Time]) -> None:
        """Note that this process decides from now on, and that none is connected yet."""
        self._now, self._begun = now, now()
        self._awaited_until = guard.monotonic() + JOIN_WITHIN

    def changed(self, hosts: Iterable[str], name: str, version: str, *, joined: bool) -> None:
        """Note that the process of these hosts is connected, or is no longer."""
        assert self._now is not None
        at = self._now()
        for host in hosts:
            self._hosts[host] = HostDriver(joined=joined, since=at, name=name, version=version)

    def of(self, host: str) -> HostDriver:
        """Return what is known of the driver process of a host."""
        return self._hosts.get(host) or HostDriver(joined=False, since=self._begun)

    def disconnected(self) -> dict[str, Time]:
        """Return the hosts with machines whose process is not connected, and since when; without
        those that have failed."""
        if not self.known:
            return {}
        hosts = (host for host in self._with_machines() if host.health is not Health.FAILED)
        drivers = {host.name: self.of(host.name) for host in hosts}
        return {host: driver.since for host, driver in drivers.items() if not driver.joined}

    @property
    def awaited(self) -> bool:
        """Have the processes not had time to connect since this one decides?"""
        return guard.monotonic() < self._awaited_until
