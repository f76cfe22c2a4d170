"""Finds the machine and group of a caller, from an exchange and the fleet at that time.

A fleet line takes effect at about its time, not to the microsecond, so an exchange close to a
change is judged only if the fleets before and after agree.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .records import Exchange, FleetLine, FleetMachine, Placement, Trace

# Seconds by which the time of a line other than an exchange may be wrong. A complete trace is
# written by one recorder as things happen, so there it is 0.
RECORD_SLACK = 2.0

Membership = Literal["known", "unknown", "unsure"]

_AMBIGUOUS = ""  # instead of a name: an address that several machines have, on different hosts


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of an exchange. `key` identifies its group: by the fleet, or one for each caller.

    `membership` says whether it is a machine of the fleet.
    """

    machine: str | None
    group: str | None
    key: str | None
    membership: Membership
    cloud_service: bool | None  # None: the kind of the group is not known


class Fleets:
    """All fleet lines of a trace, and the callers found with them."""

    def __init__(self, trace: Trace) -> None:
        self._lines = trace.fleets
        self._times = [line.t for line in trace.fleets]
        self._slack = (0.0 if trace.complete else RECORD_SLACK) + trace.clock_error
        self._gaps = [gap for gap in trace.gaps if gap.host is None]
        self._callers: dict[tuple[object, ...], Caller] = {}
        self._by_address = [_addresses(line.machines) for line in self._lines]
        self._addressed = [
            bool(line.machines) and all(machine.addresses for machine in line.machines.values())
            for line in self._lines
        ]
        self._whereabouts = _whereabouts(trace)
        self._hosts = all_hosts(trace)
        self._has_moved = {  # addresses of machines that were moved
            address
            for by_address in self._by_address
            for address, names in by_address.items()
            if not self._whereabouts.keys().isdisjoint(names)
        }
        self.machines: dict[str, FleetMachine] = {}
        self.moved: set[str] = set()
        for line in self._lines:
            for name, machine in line.machines.items():
                before = self.machines.setdefault(name, machine)
                if (before.group, before.domain) != (machine.group, machine.domain):
                    self.moved.add(name)

    def caller(self, exchange: Exchange) -> Caller:
        since, until = self._around(exchange)
        lines = self._lines_in(since, until)
        # Before the first line nothing is known; the first fleet may have held already. So may the
        # last one in a gap that does not end.
        early = bisect_right(self._times, exchange.asked) == 0 or until == math.inf
        host = next((value for name, value in exchange.headers if name == "host"), "")
        key = (exchange.machine, exchange.source, exchange.host, host, lines, early)
        caller = self._callers.get(key)
        if caller is None:
            caller = self._resolve(exchange, host, lines, early)
            if exchange.machine is not None or exchange.source not in self._has_moved:
                self._callers[key] = caller
        return caller

    def _around(self, exchange: Exchange) -> tuple[float, float]:
        """Return the time whose lines may be about the fleet at the exchange: around it, and to the
        end of a gap that it is in, where the fleet is written again."""
        since, until = exchange.asked - self._slack, exchange.t + self._slack
        for gap in self._gaps:
            if gap.overlaps(since, until):
                since, until = min(since, gap.t), max(until, gap.until + self._slack)
        return since, until

    def _lines_in(self, since: float, until: float) -> range:
        """Return the lines that are valid in a part of that time."""
        first = bisect_right(self._times, since) - 1
        return range(max(first, 0), bisect_right(self._times, until))

    def _resolve(self, exchange: Exchange, host: str, lines: range, early: bool) -> Caller:
        if not lines:
            return self._without_fleet(exchange, host)
        names = {self._name(exchange, line) for line in lines}
        if _AMBIGUOUS in names:
            return Caller(None, None, None, "unsure", None)
        if names == {None}:
            # A caller is certainly no machine of the fleet only if the recorder did not name it and
            # its address is not a machine's while the addresses of all machines are known.
            is_unknown = (
                not early
                and exchange.machine is None
                and exchange.source is not None
                and all(self._addressed[line] for line in lines)
            )
            if is_unknown:
                return Caller(None, None, None, "unknown", None)
            return self._without_fleet(exchange, host)
        name = names.pop()
        if names or name is None:
            return Caller(None, None, None, "unsure", None)
        groups = {self._lines[line].machines[name].group for line in lines}
        group = groups.pop()
        if groups:
            return Caller(name, None, None, "unsure", None)
        kinds = {self._lines[line].kinds.get(group) for line in lines}
        kind = kinds.pop()
        cloud = None if kind is None or kinds else kind == "cloud-service"
        return Caller(name, group, f"group {group}", "unsure" if early else "known", cloud)

    def _name(self, exchange: Exchange, line: int) -> str | None:
        if exchange.machine is not None:
            return exchange.machine if exchange.machine in self._lines[line].machines else None
        if exchange.source is None:
            return None
        names = self._by_address[line].get(exchange.source)
        if not names:
            return None
        if exchange.host is not None:
            if not any(self._was_ever_there(name, exchange.host) for name in names):
                return None
            names = [name for name in names if self._is_there(name, exchange, line)]
        return names[0] if len(names) == 1 else _AMBIGUOUS

    def _was_ever_there(self, name: str, host: str) -> bool:
        """Return whether a machine was on a host at any time, as far as that is known: one that is
        being moved is answered there before the move is recorded."""
        return not self._hosts.get(name) or host in self._hosts[name]

    def is_there(self, name: str, exchange: Exchange) -> bool:
        """Return whether a machine was certainly on the host of the node that answered."""
        lines = self._lines_in(*self._around(exchange))
        known = [line for line in lines if name in self._lines[line].machines]
        return exchange.host is None or all(self._is_there(name, exchange, line) for line in known)

    def _is_there(self, name: str, exchange: Exchange, line: int) -> bool:
        if name not in self._whereabouts:
            hosts = self._lines[line].machines[name].hosts
            return hosts in ((), (exchange.host,))
        times, where = self._whereabouts[name]
        since, until = self._around(exchange)
        first = max(0, bisect_right(times, since) - 1)
        last = max(first + 1, bisect_right(times, until))
        return all(there == (exchange.host,) for there in where[first:last])

    def _without_fleet(self, exchange: Exchange, host: str) -> Caller:
        if exchange.machine is not None:
            key: str | None = f"machine {exchange.machine}"
        elif exchange.source is not None:
            # One address may send requests for several machines, each at an endpoint of its own.
            key = f"address {exchange.source} {host}"
        else:
            key = None
        return Caller(exchange.machine, None, key, "unsure", None)

    def domain(self, machines: tuple[str, ...]) -> frozenset[object] | None:
        """Return the update domains of these machines; None if one is unknown or has changed."""
        domains: set[object] = set()
        for name in machines:
            machine = self.machines.get(name)
            if machine is None or machine.domain is None or name in self.moved:
                return None
            domains.add(str(machine.domain))
        return frozenset(domains)


def _whereabouts(trace: Trace) -> dict[str, tuple[list[float], list[tuple[str, ...]]]]:
    """Return where machines that were moved are, and from when on."""
    found: dict[str, tuple[list[float], list[tuple[str, ...]]]] = {
        name: ([], []) for line in trace.placements for name in line.hosts
    }
    lines: list[FleetLine | Placement] = [*trace.fleets, *trace.placements]
    for line in sorted(lines, key=lambda line: line.t):
        if isinstance(line, FleetLine):
            there = {name: line.machines[name].hosts for name in found if name in line.machines}
        else:
            there = dict(line.hosts)
        for name, hosts in there.items():
            found[name][0].append(line.t)
            found[name][1].append(hosts)
    return found


def all_hosts(trace: Trace) -> dict[str, set[str]]:
    """Return the hosts on which each machine ever was."""
    hosts: dict[str, set[str]] = {}
    for fleet in trace.fleets:
        for name, machine in fleet.machines.items():
            hosts.setdefault(name, set()).update(machine.hosts)
    for placement in trace.placements:
        for name, there in placement.hosts.items():
            hosts.setdefault(name, set()).update(there)
    return hosts


def _addresses(machines: Mapping[str, FleetMachine]) -> dict[str, list[str]]:
    by_address: dict[str, list[str]] = {}
    for name, machine in machines.items():
        for address in machine.addresses:
            by_address.setdefault(address, []).append(name)
    return by_address


def machine_names(
    names: tuple[str, ...], preview: bool, cloud_service: bool | None
) -> tuple[str, ...]:
    """Return Resources as machine names, without the leading underscore of the preview."""
    if preview and cloud_service is False:
        return tuple(name.removeprefix("_") for name in names)
    return names
