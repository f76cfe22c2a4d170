"""What a host becomes, and what keeps it from that.

All of it is read off the states it is committed to: while a driver is asked a host may fail, be
removed, or be given other labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from forewarn.core import Refused
from forewarn.core.fleet import Health, Host
from forewarn.core.refusal import conflict, unknown
from forewarn.core.registry import HostPut, Put
from forewarn.core.time import Time
from forewarn.store.port import States
from forewarn.support.text import listing

Check = Callable[[States], Refused | None]


def cannot_become(host: Host, health: Health) -> Refused | None:
    match health:
        case Health.HEALTHY if host.healthy:
            return conflict(f"host '{host.name}' is healthy; there is nothing to repair")
        case Health.DEGRADED if not host.healthy:
            return conflict(f"host '{host.name}' is {host.health.value} already")
        case Health.FAILED if host.health is Health.FAILED:
            return conflict(f"host '{host.name}' has failed already")
    return None


def overtaken(name: str, health: Health) -> Check:
    """Refuses if by now the host cannot become this any more."""

    def look(states: States) -> Refused | None:
        host = states.registry.hosts.get(name)
        if host is None:
            return unknown(f"host '{name}' has been removed in this very moment")
        return cannot_become(host, health)

    return look


def another(seen: Host) -> Check:
    """Refuses if something has happened to the host since it was looked at."""

    def look(states: States) -> Refused | None:
        host = states.registry.hosts.get(seen.name)
        if host is not None and (host.health, host.since) == (seen.health, seen.since):
            return None
        return conflict(f"host '{seen.name}' has changed in this very moment; look, and try again")

    return look


def any_of(*checks: Check) -> Check:
    """The first refusal counts."""
    return lambda states: next((no for check in checks if (no := check(states))), None)


def became(
    name: str, health: Health, by: str, note: str, now: Callable[[], Time]
) -> Callable[[States], Sequence[Put]]:
    """The host as it is, but for its health."""

    def put(states: States) -> Sequence[Put]:
        host = states.registry.hosts[name]
        return (HostPut(msgspec.structs.replace(host, health=health, since=now(), note=note), by),)

    return put


def host_of_gone(states: States, group: str, machine: str) -> Host | None:
    """Where the machine would be if it were there again."""
    found = states[group].machine(machine)
    return None if found is None or found.alive else states.registry.hosts.get(found.host)


def unwell(host: Host, machines: Sequence[str]) -> str:
    """A warning for whoever puts machines there all the same."""
    state = "has failed" if host.health is Health.FAILED else f"is {host.health.value}"
    return (
        f"host '{host.name}' {state}, and no event tells {listing(machines)} so: repair the host,"
        " or put what is on it elsewhere"
    )
