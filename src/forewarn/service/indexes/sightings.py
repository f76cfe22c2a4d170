"""What drivers have seen of the machines of hosts, and where that differs from the inventory. Kept
in memory by the process that decides; a host that cannot be reached says nothing.

A machine is recognised by its `vm_id`, otherwise by its name. That it is absent is believed if
somebody has removed it from its host, or if two complete enumerations of that host were without it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import NamedTuple

import msgspec

from forewarn.core import Event, Group, Machine, Status, Time
from forewarn.drivers.port import MachineState, Seen, SeenMachine
from forewarn.service.indexes.machines import MachineIndex

BELIEVED = 2  # complete enumerations without a machine
_ACTIVE = MachineState.RUNNING, MachineState.PAUSED


class DifferenceKind(enum.StrEnum):
    ELSEWHERE = "elsewhere"  # it is on another host
    UNCLEAR = "unclear"  # it may be on several hosts
    MISSING = "missing"  # it is on no host
    UNKNOWN = "unknown"  # it is not in the inventory
    CRASHED = "crashed"
    STOPPED = "stopped"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How a machine is not as the inventory has it."""

    machine: str
    kind: DifferenceKind
    group: str = ""  # empty: it is not in the inventory
    known: str = ""  # the host that it is known to be on
    hosts: tuple[str, ...] = ()  # on which it was seen
    seen: SeenMachine | None = None  # on the first of them
    since: Time = 0


class _Absence(NamedTuple):
    """A machine was not found on the host that it is known to be on."""

    times: int  # complete enumerations without it, one after the other
    since: int  # the number of the first of them, among those of all hosts; 0: it was removed


REMOVED = _Absence(BELIEVED, 0)  # by somebody, from that host


class Sightings:
    def __init__(self, machines_on: Callable[[str], Set[str]]) -> None:
        """`machines_on` returns the names of the machines that are known to be on a host."""
        self._machines_on = machines_on
        self._machines: MachineIndex
        self._now: Callable[[], Time] | None = None  # if this process follows what is seen
        self._seen: dict[str, dict[str, SeenMachine]] = {}  # by host that is reached, by name
        self._at: dict[str, dict[str, str]] = {}  # by name and by vm_id: hosts, and the name there
        self._absent: dict[str, dict[str, _Absence]] = {}  # by host, by machine
        self._enumerations = 0  # complete ones, of all hosts
        self._enumerated: dict[str, tuple[int, int]] = {}  # by host: numbers of the last two
        self._ever: set[str] = set()  # machines of the inventory that were seen
        self._old: set[tuple[str, str]] = set()  # hosts and names: seen before the driver's word
        self._changed: set[str] = set()  # machines to be compared again
        self._differences: dict[str, Difference] = {}
        self._disputed: dict[str, Difference] = {}  # of these: it is not certain where they are
        self.on_change: Callable[[], None] = lambda: None

    @property
    def known(self) -> bool:
        return self._now is not None

    def begin(self, machines: MachineIndex, now: Callable[[], Time]) -> None:
        """Compare what is seen from now on."""
        self._machines, self._now = machines, now

    # What happens.

    def record(self, seen: Seen) -> None:
        """Note what was seen of a host."""
        before = self._seen.setdefault(seen.host, {})
        absent = self._absent.setdefault(seen.host, {})
        present = {machine.name: machine for machine in seen.machines}
        removed = set(seen.removed) - present.keys()
        names = {self._name(before[name]) if name in before else name for name in removed}
        for name in removed | (before.keys() - present if seen.whole else set()):
            self._forget(seen.host, name)
        for machine in seen.machines:
            if before.get(machine.name) != machine or (seen.host, machine.name) in self._old:
                self._put(seen.host, machine)
        counted = seen.whole or absent
        here = {self._name(machine) for machine in before.values()} if counted else set()
        for name in absent.keys() & here:
            del absent[name]
        if seen.whole:
            self._enumerations = number = self._enumerations + 1
            self._enumerated[seen.host] = self._enumerated.get(seen.host, (0, 0))[1], number
            for name in self._machines_on(seen.host) - here:
                times, since = absent.get(name, (0, number))
                absent[name] = _Absence(times + 1, since)
        absent |= dict.fromkeys(names, REMOVED)
        self._ever.update(name for name in names if self._machines.group_of(name))
        self._changed.update(absent)
        self.all()  # now, rather than all hosts at once
        self.on_change()

    def lost(self, hosts: Iterable[str]) -> None:
        """Note that these hosts cannot be reached."""
        for host in hosts:
            for name in list(self._seen.get(host, ())):
                self._forget(host, name)
            self._seen.pop(host, None)
            self._enumerated.pop(host, None)
            self._changed.update(self._absent.pop(host, ()))
        self.on_change()

    def machines_changed(self, gone: Iterable[Machine], come: Iterable[Machine]) -> None:
        """Note that the inventory has changed."""
        if not self.known:
            return
        before = {machine.name: machine for machine in gone}
        self._ever -= before.keys() - {machine.name for machine in come}
        for machine in come:
            earlier = before.get(machine.name, machine)
            if earlier.host != machine.host:
                self._outdate(machine)
        for machine in (*before.values(), *come):
            self._changed.add(machine.name)
            for key in (machine.name, machine.vm_id.lower()):
                self._changed.update(self._at.get(key, {}).values())
        self.on_change()

    def events_changed(self, past: Iterable[Event], present: Iterable[Event], group: Group) -> None:
        """Note that events of a group have begun or are over: from its start to its end, the driver
        says where the machines of an event are."""
        if not self.known:
            return
        started = [event for event in (*past, *present) if event.status is Status.STARTED]
        going_on = {event.id for event in present}
        over = {name for event in started if event.id not in going_on for name in event.resources}
        for machine in group.named(over).values() if over else ():
            self._outdate(machine)
        self._changed.update(name for event in started for name in event.resources)
        self.on_change()

    def _outdate(self, machine: Machine) -> None:
        self._old.update((host, seen.name) for host, seen in self._of(machine))
        for absent in self._absent.values():
            absent.pop(machine.name, None)

    def _put(self, host: str, machine: SeenMachine) -> None:
        self._forget(host, machine.name)
        self._seen[host][machine.name] = machine
        self._changed.add(self._name(machine))
        for key in {machine.name, machine.vm_id.lower()} - {""}:
            self._at.setdefault(key, {})[host] = machine.name

    def _forget(self, host: str, name: str) -> None:
        self._old.discard((host, name))
        machine = self._seen[host].pop(name, None)
        self._changed.add(name)
        if machine is None:
            return
        self._changed.add(self._name(machine))
        for key in {name, machine.vm_id.lower()} - {""}:
            hosts = self._at[key]
            hosts.pop(host, None)
            if not hosts:
                del self._at[key]

    def _name(self, seen: SeenMachine) -> str:
        """Return the name in the inventory of a machine that was seen, if it is there."""
        return (self._machines.with_id(seen.vm_id) if seen.vm_id else None) or seen.name

    def _of(self, machine: Machine) -> Iterator[tuple[str, SeenMachine]]:
        """Yield the hosts on which a machine was seen."""
        hosts = {**self._at.get(machine.name, {}), **self._at.get(machine.vm_id.lower(), {})}
        for host, name in hosts.items():
            seen = self._seen[host][name]
            if self._name(seen) == machine.name:
                yield host, seen

    # What differs.

    def was_seen(self, machine: str) -> bool:
        """Was a machine of the inventory seen on any host, since this process decides?"""
        return machine in self._ever

    def reaches(self, host: str) -> bool:
        """Is it known what is on a host?"""
        return host in self._seen

    def has_looked(self, host: str, missing: Difference) -> bool:
        """Is it known that a machine that is missing is not on a host? Unless somebody has removed
        it, the host was enumerated twice since it was missed: it may have gone there, and the first
        of them may have begun before that."""
        absence = self._absent.get(missing.known, {}).get(missing.machine, REMOVED)
        return self.reaches(host) and self._enumerated.get(host, (0, 0))[0] >= absence.since

    def all(self) -> Mapping[str, Difference]:
        """Return the differences by machine."""
        groups: dict[str | None, set[str]] = {}
        for name in self._changed if self.known else ():
            groups.setdefault(self._machines.group_of(name), set()).add(name)
        self._changed.clear()
        for group_name, names in groups.items():
            group = self._machines.group(group_name) if group_name else None
            machines = group.named(names) if group else {}
            for name in names:
                self._compare(name, group, machines.get(name))
        return self._differences

    def _compare(self, name: str, group: Group | None, machine: Machine | None) -> None:
        before = self._differences.pop(name, None)
        self._disputed.pop(name, None)
        after = self._compared(group, machine) if group and machine else self._unknown(name)
        if after is None:
            return
        if before is not None and _same(before, after):
            after = msgspec.structs.replace(after, since=before.since)
        self._differences[name] = after
        if after.kind in (DifferenceKind.ELSEWHERE, DifferenceKind.UNCLEAR):
            self._disputed[name] = after

    def disputed_on(self, host: str) -> Iterator[Difference]:
        """Yield the machines of which it is not certain whether they are on this host."""
        self.all()
        for found in self._disputed.values():
            if host in (found.known, *found.hosts):
                yield found

    def _unknown(self, name: str) -> Difference | None:
        hosts = sorted(self._at.get(name, {}))
        there = {host: self._seen[host][name] for host in hosts if name in self._seen[host]}
        there = {host: seen for host, seen in there.items() if self._name(seen) == name}
        return self._difference(name, DifferenceKind.UNKNOWN, there) if there else None

    def _compared(self, group: Group, machine: Machine) -> Difference | None:
        name = machine.name
        seen, known = dict(self._of(machine)), machine.host
        if seen:
            self._ever.add(name)
        if not machine.alive or _under_way(group, name):
            return None
        kind, there = _kind(seen, known)
        if kind is None:
            return None
        absence = self._absent.get(known, {}).get(name)
        believed = absence is not None and absence.times >= BELIEVED
        if kind is not DifferenceKind.MISSING:
            # Where it is active, or all that is left of it, because it is not where it was.
            active = any(of.state in _ACTIVE for of in there.values())
            believed = believed or active or kind is not DifferenceKind.ELSEWHERE
        old = len(there) == 1 and all((h, of.name) in self._old for h, of in there.items())
        if old or not believed:
            return None
        return self._difference(name, kind, there, group=group.name, known=known)

    def _difference(
        self,
        name: str,
        kind: DifferenceKind,
        there: Mapping[str, SeenMachine],
        *,
        group: str = "",
        known: str = "",
    ) -> Difference:
        assert self._now is not None
        return Difference(
            machine=name,
            kind=kind,
            group=group,
            known=known,
            hosts=tuple(there),
            seen=next(iter(there.values()), None),
            since=self._now(),
        )


def _kind(
    seen: Mapping[str, SeenMachine], known: str
) -> tuple[DifferenceKind | None, Mapping[str, SeenMachine]]:
    """Return how what was seen of a machine differs from the host that it is known to be on, and
    where. A definition that was left behind counts less than a machine that is active."""
    if not seen:
        return DifferenceKind.MISSING, {}
    for state in _ACTIVE:
        if there := {host: of for host, of in seen.items() if of.state is state}:
            if len(there) > 1:
                return DifferenceKind.UNCLEAR, there
            return None if known in there else DifferenceKind.ELSEWHERE, there
    if known not in seen:
        kind = DifferenceKind.ELSEWHERE if len(seen) == 1 else DifferenceKind.UNCLEAR
        return kind, seen
    crashed = seen[known].state is MachineState.CRASHED
    kind = DifferenceKind.CRASHED if crashed else DifferenceKind.STOPPED
    return kind, {known: seen[known]}


def _same(before: Difference, after: Difference) -> bool:
    return (before.kind, before.known, before.hosts) == (after.kind, after.known, after.hosts)


def _under_way(group: Group, machine: str) -> bool:
    """Has an event of a machine started?"""
    return any(
        event.status is Status.STARTED and machine in event.resources and machine not in event.left
        for event in group.events
    )
