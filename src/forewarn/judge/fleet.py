"""Who asked: from an exchange and the fleet in force to a machine and its group.

A fleet line takes effect somewhere around its time, not to the microsecond, so an exchange
close to a change is judged only where the fleets before and after agree.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .records import Exchange, Seat, Trace

# How far a line that is no exchange may stand from the moment it speaks of. A complete trace
# comes from one recorder that writes as things happen, so there it is nothing.
RECORD_SLACK = 2.0

Standing = Literal["known", "unknown", "unsure"]


@dataclass(frozen=True, slots=True)
class Caller:
    """`key` names the group for comparisons: the fleet's, or one per caller if there is none."""

    machine: str | None
    group: str | None
    key: str | None
    standing: Standing
    cloud_service: bool | None  # None: the kind of the group is not known


class Fleets:
    """All fleet lines of a trace, and what can be read off them."""

    def __init__(self, trace: Trace) -> None:
        self._lines = trace.fleets
        self._times = [line.t for line in trace.fleets]
        self._slack = (0.0 if trace.complete else RECORD_SLACK) + trace.backstep
        self._callers: dict[tuple[object, ...], Caller] = {}
        self._by_address = [_addresses(line.machines) for line in self._lines]
        self._addressed = [
            bool(line.machines) and all(seat.addresses for seat in line.machines.values())
            for line in self._lines
        ]
        self.seats: dict[str, Seat] = {}
        self.moved: set[str] = set()
        for line in self._lines:
            for name, seat in line.machines.items():
                before = self.seats.setdefault(name, seat)
                if (before.group, before.domain) != (seat.group, seat.domain):
                    self.moved.add(name)

    def caller(self, exchange: Exchange) -> Caller:
        first = bisect_right(self._times, exchange.asked - self._slack) - 1
        last = bisect_right(self._times, exchange.t + self._slack) - 1
        # Before the first line nothing is known; the first fleet may have held already.
        early = bisect_right(self._times, exchange.asked) == 0
        host = next((value for name, value in exchange.headers if name == "host"), "")
        key = (exchange.machine, exchange.source, host, max(first, 0), last, early)
        found = self._callers.get(key)
        if found is None:
            found = self._resolve(exchange, host, range(max(first, 0), last + 1), early)
            self._callers[key] = found
        return found

    def _resolve(self, exchange: Exchange, host: str, lines: range, early: bool) -> Caller:
        if not lines:
            return self._without_fleet(exchange, host)
        names = {self._name(exchange, line) for line in lines}
        if names == {None}:
            # Only a caller that the recorder did not name, whose address is no machine's while
            # every machine's address is known, is certainly a stranger.
            stranger = (
                not early
                and exchange.machine is None
                and exchange.source is not None
                and all(self._addressed[line] for line in lines)
            )
            if stranger:
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
        return self._by_address[line].get(exchange.source)

    def _without_fleet(self, exchange: Exchange, host: str) -> Caller:
        if exchange.machine is not None:
            key: str | None = f"machine {exchange.machine}"
        elif exchange.source is not None:
            # One address may ask as several machines where each has an address to be asked at.
            key = f"address {exchange.source} {host}"
        else:
            key = None
        return Caller(exchange.machine, None, key, "unsure", None)

    def domain(self, machines: tuple[str, ...]) -> frozenset[object] | None:
        """The update domains of these machines; None unless every one is known and lasting."""
        domains: set[object] = set()
        for name in machines:
            seat = self.seats.get(name)
            if seat is None or seat.domain is None or name in self.moved:
                return None
            domains.add(str(seat.domain))
        return frozenset(domains)


def _addresses(machines: Mapping[str, Seat]) -> dict[str, str]:
    return {address: name for name, seat in machines.items() for address in seat.addresses}


def bare(names: tuple[str, ...], preview: bool, cloud_service: bool | None) -> tuple[str, ...]:
    """Resources as machine names: without the underscore that the preview put in front."""
    if preview and cloud_service is False:
        return tuple(name.removeprefix("_") for name in names)
    return names
