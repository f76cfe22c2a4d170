"""What keeps events from starting although no document shows it: halts, the windows and blackouts
of the fleet, machines on a host that its maintenance does not name, and machines that are
disconnected or that control cannot reach. What a recording does not show may hold any event.

Each is a set of times in which an event must not start. An event that waits is excused for as long
as one of them may have held it; starts in them are judged in `held_starts.py`.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeVar

from forewarn.judge.dialect import DELETING, WAITING_TYPES
from forewarn.judge.reading.disconnected_times import DisconnectedTimes
from forewarn.judge.reading.facts import Facts
from forewarn.judge.reading.fleet import RECORD_SLACK, all_hosts
from forewarn.judge.reading.order import TOLERANCE
from forewarn.judge.reading.records import (
    Configuration,
    FleetLine,
    FleetMachine,
    Gap,
    Joint,
    MaintenanceLine,
    Placement,
    RecordedEvent,
    Trace,
)

# Seconds after which control knows for certain that a machine is disconnected: the longest time for
# which it may rely on a node without hearing from it. Until then it may still start events there.
DISCONNECTED_KNOWN = 60.0


class _Timed(Protocol):
    @property
    def t(self) -> float: ...


_Line = TypeVar("_Line", bound=_Timed)


@dataclass(frozen=True, slots=True)
class HeldTime:
    """A time in which an event must not start, if that is `certain`, or else may be held."""

    begin: float
    end: float
    reason: str
    certain: bool


@dataclass(frozen=True, slots=True)
class Part:
    """One of the events that start together."""

    id: str
    group: str | None
    machines: tuple[str, ...] | None  # None: unknown


@dataclass(frozen=True, slots=True)
class Unit:
    """Events that start together: one, or those of a host maintenance."""

    parts: tuple[Part, ...]
    joint: Joint | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(part.id for part in self.parts)


@dataclass(frozen=True, slots=True)
class _Stay:
    """The time that a machine spends on a host, or on one of several."""

    machine: str
    domain: object | None
    hosts: tuple[str, ...]
    begin: float
    end: float

    @property
    def disputed(self) -> bool:
        return len(self.hosts) > 1


class StandingHolds:
    def __init__(self, trace: Trace, facts: Facts, disconnected: DisconnectedTimes) -> None:
        self._trace = trace
        self._facts = facts
        self._disconnected = disconnected
        self.margin = TOLERANCE + trace.clock_error + (0.0 if trace.complete else RECORD_SLACK)
        self._joints: dict[str, Joint] = {}
        for joint in trace.joints:  # it may be written again, then without events that are over
            for id in joint.events:
                known = self._joints.get(id)
                if known is None or len(known.events) < len(joint.events):
                    self._joints[id] = joint
        self._units: dict[str, Unit] = {}
        self._times: dict[str, list[HeldTime]] = {}  # by the first id of a unit
        self._open: dict[tuple[int, ...], list[tuple[float, float]]] = {}
        self._stays = _stays(trace)
        self._disputed = [stay for there in self._stays.values() for stay in there if stay.disputed]
        self._deleted = _deleted(trace, facts)
        self._hosts = all_hosts(trace) if trace.gaps or trace.reach else {}
        self._unreached = [*_unreached(trace), *trace.gaps]
        self.exist = bool(
            trace.halts
            or trace.maintenance
            or (self._joints and self._stays)
            or self._disputed
            or disconnected.exist
            or self._unreached
        )

    def until(self, id: str, t: float) -> float:
        """Return until when the event may have been held by what began by `t`."""
        if not self.exist:
            return -math.inf
        return max(
            (
                time.end + self.margin
                for time in self._times_of(id)
                if time.begin - self.margin <= t
            ),
            default=-math.inf,
        )

    def unit(self, id: str) -> Unit:
        """Return the event with all that start with it."""
        unit = self._units.get(id)
        if unit is None:
            joint = self._joints.get(id)
            ids = (id,) if joint is None else tuple(sorted(joint.events))
            unit = Unit(tuple(self._part(member, joint) for member in ids), joint)
            self._units.update(dict.fromkeys(ids, unit))
        return unit

    def _times_of(self, id: str) -> list[HeldTime]:
        unit = self.unit(id)
        times = self._times.get(unit.parts[0].id)
        if times is None:
            times = [
                *self.halted(unit),
                *self.closed(unit),
                *self.uninformed(unit),
                *self.disconnected(unit),
                *self._hidden(unit),
            ]
            self._times[unit.parts[0].id] = times
        return times

    def recorded(self, id: str) -> RecordedEvent:
        return self._trace.recorded.get(id) or RecordedEvent()

    def _part(self, id: str, joint: Joint | None) -> Part:
        facts, recorded = self._facts.events.get(id), self.recorded(id)
        group = joint.events[id] if joint is not None else recorded.group
        if group is None and facts is not None:
            group = min(facts.groups, default=None)
        machines = recorded.machines
        if machines is None and facts is not None:
            machines = facts.resources
        return Part(id, group, machines)

    def halted(self, unit: Unit) -> Iterator[HeldTime]:
        """Yield the times in which a halt covers one of these events."""
        reason = "while a halt stood that covers it"
        for line, end in _until_next(self._trace.halts):
            for scope in line.halts:
                applies = [scope.applies(part.group, part.machines) for part in unit.parts]
                if any(applied is not False for applied in applies):
                    yield HeldTime(line.t, end, reason, True in applies)

    def closed(self, unit: Unit) -> Iterator[HeldTime]:
        """Yield the times in which windows or blackouts do not allow these events to start."""
        lines = self._trace.maintenance
        obeys = self._obeys_windows(unit) if lines else False
        if obeys is False:
            return
        for part in unit.parts:
            ignored = self._trace.ignores_windows.get(part.id, math.inf)
            for line, following in _until_next(lines):
                end = min(following, ignored)
                certain = obeys is True
                applying: list[Configuration] = []
                for configuration in line.configurations:
                    applies = configuration.scope.applies(part.group, part.machines)
                    if applies is not False:
                        applying.append(configuration)
                        certain = certain and applies is True
                if not applying or end <= line.t:
                    continue
                reason = f"when {' and '.join(c.name for c in applying)} did not allow it"
                for begin, closed_until in self._closed_times(applying, line, end):
                    yield HeldTime(begin, closed_until, reason, certain)
                if line.until < end:  # what is after that is not known
                    yield HeldTime(line.until, end, reason, False)

    def _closed_times(
        self, configurations: Sequence[Configuration], line: MaintenanceLine, end: float
    ) -> Iterator[tuple[float, float]]:
        """Yield the times, from a line on, in which one of its configurations allows nothing."""
        key = tuple(id(configuration) for configuration in configurations)
        if key not in self._open:
            self._open[key] = _common([configuration.open for configuration in configurations])
        at, end = line.t, min(line.until, end)
        for opens, closes in self._open[key]:
            if opens >= end:
                break
            if opens > at:
                yield at, opens
            at = max(at, closes)
        if at < end:
            yield at, end

    def _obeys_windows(self, unit: Unit) -> bool | None:
        """Return whether windows hold these events; None if it is not known."""
        for id in unit.ids:
            facts, recorded = self._facts.events.get(id), self.recorded(id)
            shown = facts.facts if facts is not None else {}
            type = shown.get("type") or recorded.type
            source = shown.get("source") or recorded.source
            if (type is not None and type not in WAITING_TYPES) or source == "User":
                return False
            if type is not None and source is not None:
                return True
        return None

    def uninformed(self, unit: Unit) -> Iterator[HeldTime]:
        """Yield the times in which a machine was on their host that they do not name."""
        joint = unit.joint
        if joint is None or joint.host is None:
            return
        named = {name for part in unit.parts for name in part.machines or ()}
        all_known = all(part.machines is not None for part in unit.parts)
        for stay in self._stays.get(joint.host, ()):
            if joint.domain is not None and str(joint.domain) != str(stay.domain):
                continue
            certain = all_known and stay.machine not in named and stay.machine not in self._deleted
            certain = certain and not stay.disputed
            # One that left the host and came back may be held, too: its event may be over.
            if stay.machine not in named or stay.begin > joint.t - self.margin:
                reason = f"while {stay.machine}, which was not warned, was on host {joint.host}"
                yield HeldTime(stay.begin, stay.end, reason, certain)

    def disconnected(self, unit: Unit) -> Iterator[HeldTime]:
        """Yield the times in which a machine is disconnected that one of these events names."""
        for part in unit.parts:
            if part.machines is None:
                for time in self._disconnected.all():
                    yield HeldTime(time.begin, time.end, "", False)
            for machine in part.machines or ():
                reason = f"while {machine} was disconnected"
                for time in self._disconnected.of(machine):
                    known = min(time.begin + DISCONNECTED_KNOWN, time.end)
                    certain = time.certain and self._exists(machine, unit)
                    yield HeldTime(time.begin, known, reason, False)
                    yield HeldTime(known, time.end, reason, certain)

    def _hidden(self, unit: Unit) -> Iterator[HeldTime]:
        """Yield the times in which these events may have waited for control, for a node that
        control could not reach, or until it was known on which host a machine is."""
        machines = [name for part in unit.parts for name in part.machines or ()]
        unknown = any(part.machines is None for part in unit.parts)
        for gap in self._unreached:
            hosts = (self._hosts.get(name, ()) for name in machines)
            if gap.host is None or unknown or any(gap.host in there for there in hosts):
                yield HeldTime(gap.t, gap.unknown_until, "", False)
        for stay in self._disputed:
            if unknown or stay.machine in machines:
                yield HeldTime(stay.begin, stay.end, "", False)

    def joined(self, unit: Unit) -> Iterator[HeldTime]:
        """Yield the times in which no event of a machine starts by its NotBefore: while the machine
        is disconnected, and for a while when it has joined again."""
        grace = self._trace.grace or 0.0
        for part in unit.parts:
            for machine in part.machines or ():
                for time in self._disconnected.of(machine):
                    noticed = time.end - time.begin > DISCONNECTED_KNOWN
                    certain = noticed and time.certain and self._exists(machine, unit)
                    reason = f"just after {machine} was disconnected, without an approval"
                    known = min(time.begin + DISCONNECTED_KNOWN, time.end)
                    yield HeldTime(known, time.end + grace, reason, certain)

    def _exists(self, machine: str, unit: Unit) -> bool:
        """Return whether no other event can have deleted the machine."""
        return self._deleted.get(machine, set()).issubset(unit.ids)


def _unreached(trace: Trace) -> Iterator[Gap]:
    """Yield the times in which control could not reach the node of a host."""
    since: dict[str, float] = {}
    for line in trace.reach:
        for host in line.hosts:
            if not line.reached:
                since.setdefault(host, line.t)
            elif host in since:
                yield Gap(since.pop(host), line.t, host)
    yield from (Gap(t, host=host) for host, t in since.items())


def _until_next(lines: Sequence[_Line]) -> Iterator[tuple[_Line, float]]:
    """Yield each line with the time of the next one."""
    for line, following in pairwise((*lines, None)):
        assert line is not None
        yield line, math.inf if following is None else following.t


def _common(times: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Return the times that are in all of these lists, each of which is sorted."""
    common: Sequence[tuple[float, float]] = times[0]
    for others in times[1:]:
        both = [
            (max(opens, other_opens), min(closes, other_closes))
            for opens, closes in common
            for other_opens, other_closes in others
        ]
        common = [(opens, closes) for opens, closes in both if opens < closes]
    return sorted(common)


def _stays(trace: Trace) -> dict[str, list[_Stay]]:
    """Return which machines are, or may be, on each host, and when."""
    current: dict[str, tuple[FleetMachine, tuple[str, ...], float]] = {}
    stays: dict[str, list[_Stay]] = {}

    def move(name: str, machine: FleetMachine | None, hosts: tuple[str, ...], t: float) -> None:
        before = current.get(name)
        if before is not None:
            if machine is not None and (before[0].domain, before[1]) == (machine.domain, hosts):
                return
            stay = _Stay(name, before[0].domain, before[1], before[2], t)
            for host in stay.hosts:
                stays.setdefault(host, []).append(stay)
            del current[name]
        if machine is not None:
            current[name] = machine, hosts, t

    lines: list[FleetLine | Placement] = [*trace.fleets, *trace.placements]
    lines.sort(key=lambda line: line.t)
    for line in lines:
        if isinstance(line, Placement):
            for name, hosts in line.hosts.items():
                if name in current:
                    move(name, current[name][0], hosts, line.t)
            continue
        for name in current.keys() - line.machines.keys():
            move(name, None, (), line.t)
        for name, machine in line.machines.items():
            move(name, machine, machine.hosts, line.t)
    for name in list(current):
        move(name, None, (), math.inf)
    return stays


def _deleted(trace: Trace, facts: Facts) -> dict[str, set[str]]:
    """Return the machines that may have been deleted, and by which events: then nobody has to warn
    them."""
    deleted: dict[str, set[str]] = {}

    def add(id: str, machines: Iterable[str]) -> None:
        for name in machines:
            deleted.setdefault(name, set()).add(id)

    for line in trace.unannounced:
        add(line.event, line.machines or ())
    for id, recorded in trace.recorded.items():
        if recorded.type in DELETING:
            add(id, recorded.machines or ())
    for id, event in facts.events.items():
        if event.facts.get("type") in DELETING:
            add(id, (name for names in event.machines() for name in names))
    return deleted
