"""When machines are disconnected: answered by a node that control cannot reach, as the lines
`disconnected` and `joined` say.

A node stands on a host, so a machine that has come to another host, or is no longer in the fleet,
is not disconnected any more. In a gap of its recording, a node may be disconnected.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from .records import DisconnectedLine, Exchange, FleetLine, Gap, Placement, Trace, WithoutNode

_Line = FleetLine | Placement | DisconnectedLine | WithoutNode | Gap
_Position = tuple[float, int]  # a time, and the line among those of the same time


@dataclass(frozen=True, slots=True)
class DisconnectedTime:
    """A time in which a machine is disconnected. If that is not `certain`, it may have another
    node, or control need not wait for this one. In a gap it is not `known` whether the node is
    disconnected."""

    first: _Position
    last: _Position
    host: str | None
    certain: bool
    known: bool = True

    @property
    def begin(self) -> float:
        return self.first[0]

    @property
    def end(self) -> float:
        return self.last[0]


class DisconnectedTimes:
    def __init__(self, trace: Trace) -> None:
        self._clock_error = trace.clock_error
        self._by_line = trace.complete and not trace.clock_error
        self._times = _Reader().read(trace)

    @property
    def exist(self) -> bool:
        return bool(self._times)

    def of(self, machine: str) -> Sequence[DisconnectedTime]:
        return self._times.get(machine, ())

    def all(self) -> Sequence[DisconnectedTime]:
        return [time for times in self._times.values() for time in times]

    def touched(self, exchange: Exchange, machine: str | None) -> DisconnectedTime | None:
        """Return a time in which the machine may have been answered by a node that was
        disconnected."""
        for time in self.of(machine) if machine is not None else ():
            elsewhere = None not in (exchange.host, time.host) and exchange.host != time.host
            if elsewhere or self._before(exchange, time.first) or self._after(exchange, time.last):
                continue
            if not time.known and exchange.t + self._clock_error <= time.begin:
                continue  # the last line before the gap
            return time
        return None

    def within(self, exchange: Exchange, time: DisconnectedTime) -> bool:
        """Return whether the exchange was certainly begun and answered in that time."""
        return (
            time.known
            and (time.certain or (exchange.host is not None and exchange.host == time.host))
            and self._after(exchange, time.first)
            and self._before(exchange, time.last)
        )

    def _before(self, exchange: Exchange, position: _Position) -> bool:
        if exchange.t + self._clock_error < position[0]:
            return True
        return self._same_instant(exchange, position) and exchange.index < position[1]

    def _after(self, exchange: Exchange, position: _Position) -> bool:
        if position[0] + self._clock_error < exchange.asked:
            return True
        return self._same_instant(exchange, position) and exchange.index > position[1]

    def _same_instant(self, exchange: Exchange, position: _Position) -> bool:
        return self._by_line and exchange.asked == exchange.t == position[0]


class _Reader:
    """Reads the times from the lines, in their order."""

    def __init__(self) -> None:
        self._times: dict[str, list[DisconnectedTime]] = {}
        # By machine and host: since when, whether that is certain, and whether it is known.
        self._open: dict[str, dict[str | None, tuple[_Position, bool, bool]]] = {}
        self._hosts: dict[str, tuple[str, ...]] = {}
        self._in_gap: set[str] = set()  # hosts

    def read(self, trace: Trace) -> dict[str, list[DisconnectedTime]]:
        gaps = [gap for gap in trace.gaps if gap.host is not None]
        if not trace.disconnected and not gaps:
            return {}
        lines: list[_Line]
        lines = [*trace.fleets, *trace.placements, *trace.disconnected, *trace.without_node]
        for gap in gaps:
            lines += [gap, Gap(gap.unknown_until, gap.unknown_until, gap.host)]
        for line in sorted(lines, key=_position):
            at = _position(line)
            match line:
                case FleetLine():
                    for name in self._open.keys() - line.machines.keys():
                        self._close(name, at)
                    for name, machine in line.machines.items():
                        self._place(name, machine.hosts, at)
                case Placement():
                    for name, hosts in line.hosts.items():
                        self._place(name, hosts, at)
                case WithoutNode():
                    known = line.host not in self._in_gap
                    for name, spells in list(self._open.items()):
                        if line.host in spells:
                            self._close(name, at, line.host)
                            self._open.setdefault(name, {})[line.host] = at, False, known
                case Gap():
                    self._read_gap(line, at)
                case DisconnectedLine():
                    for name in line.machines:
                        if line.joined:
                            self._close(name, at, line.host)
                        else:
                            self._begin(name, line.host, at)
        for name in list(self._open):
            self._close(name, (math.inf, 0))
        for times in self._times.values():
            times.sort(key=lambda time: time.first)
        return self._times

    def _begin(self, name: str, host: str | None, at: _Position) -> None:
        hosts = self._hosts.get(name, ())
        # A node that is disconnected may think otherwise.
        if host is None or not hosts or host in hosts:
            known = host not in self._in_gap
            certain = known and (host is None or hosts in ((), (host,)))
            self._open.setdefault(name, {}).setdefault(host, (at, certain, known))

    def _read_gap(self, gap: Gap, at: _Position) -> None:
        """Read the beginning of a gap of a node, or its end, at which it has no length."""
        assert gap.host is not None
        there = {name for name, hosts in self._hosts.items() if gap.host in hosts}
        there |= {name for name, spells in self._open.items() if gap.host in spells}
        for name in there:
            self._close(name, at, gap.host)
        if gap.t == gap.until:
            self._in_gap.discard(gap.host)
            return
        self._in_gap.add(gap.host)
        for name in there:
            self._begin(name, gap.host, at)

    def _place(self, name: str, hosts: tuple[str, ...], at: _Position) -> None:
        if self._hosts.get(name) == hosts:
            return
        self._hosts[name] = hosts
        for host in {*self._open.get(name, ()), *self._in_gap.intersection(hosts)}:
            if host is not None:
                self._close(name, at, host)
                self._begin(name, host, at)

    def _close(self, name: str, at: _Position, host: str | None = None) -> None:
        """End the times of a machine, or those with a node on one host."""
        spells = self._open.get(name, {})
        for of_host in list(spells):
            if host is None or of_host in (None, host):
                begin, certain, known = spells.pop(of_host)
                time = DisconnectedTime(begin, at, of_host, certain, known)
                self._times.setdefault(name, []).append(time)
        if not spells:
            self._open.pop(name, None)


def _position(line: _Line) -> _Position:
    if isinstance(line, Gap) and line.t < line.until:
        return line.t, sys.maxsize  # after the last line before it
    return line.position if isinstance(line, DisconnectedLine) else (line.t, -1)
