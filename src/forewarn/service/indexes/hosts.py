"""Index of machines and events by host, kept up to date by every commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from forewarn.core import Event, Group, Machine, Status, Time
from forewarn.core.fleet import Host
from forewarn.core.group import replaced
from forewarn.core.halts import Halt
from forewarn.core.labels import matches, parse
from forewarn.core.registry import HaltReleased, HostPut, HostRemoved
from forewarn.service.indexes.host_drivers import HostDrivers
from forewarn.service.indexes.placement import Placement
from forewarn.service.indexes.sightings import Sightings
from forewarn.service.indexes.unreachable_hosts import UnreachableHosts
from forewarn.store.port import Commit, Store


class HostIndex:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._machines_by_host: dict[
            str, dict[str, str]
        ] = {}  # by host: machines, and their groups
        self._disputed_by_host: dict[
            str, dict[str, str]
        ] = {}  # by host: machines that may be there, but are known to be elsewhere
        self._events_by_host: dict[str, dict[str, str]] = {}  # by host: events, and their groups
        self._indexed: dict[str, tuple[tuple[Machine, ...], tuple[Event, ...]]] = {}
        self._names: frozenset[str] | None = None
        self._by_label: dict[str, frozenset[str]] = {}  # by selector of halts: hosts that match
        self._changed: set[str] = set()  # hosts whose machines or events have changed
        # By host: machines that are, or may be, on it and do not know of its planned maintenance.
        self.uninformed: dict[str, tuple[str, ...]] = {}
        # By machine that polls on another host than the one it is known to be on: since when. It
        # cannot be informed.
        self.strayed: dict[str, Time] = {}
        store.on_commit(self._on_commit)
        self.unreachable = UnreachableHosts(
            store
        )  # told of commits after this index, which its listeners read
        self.drivers = HostDrivers(self.with_machines)
        self.sightings = Sightings(lambda host: self._machines_by_host.get(host, {}).keys())
        self.placement = Placement(store, self.unreachable, self._events_by_host)

    def load(self) -> None:
        for group in self._store.groups.values():
            self._index(group)
        for host in self._store.registry.hosts:
            self.placement.host_changed(host)
        self._find_uninformed()

    def names(self) -> frozenset[str]:
        """Return the names of all hosts."""
        if self._names is None:
            self._names = frozenset(self._store.registry.hosts)
        return self._names

    def halted_hosts(self, halts: Iterable[Halt]) -> dict[str, frozenset[str]]:
        """Return the hosts that match the `host_label` of each of the halts that have one."""
        return {
            halt.host_label: self._matching(halt.host_label) for halt in halts if halt.host_label
        }

    def _matching(self, label: str) -> frozenset[str]:
        if label not in self._by_label:
            selector, hosts = parse(label), self._store.registry.hosts.values()
            self._by_label[label] = frozenset(h.name for h in hosts if matches(selector, h.labels))
        return self._by_label[label]

    def groups_on(self, host: str) -> list[str]:
        """Return the groups that have machines on a host, including gone ones, sorted by name."""
        return sorted(set(self._machines_by_host.get(host, {}).values()))

    def groups_that_may_be_on(self, host: str) -> set[str]:
        """Return the groups that have machines on a host, or may have, and those whose maintenance
        is joint with theirs."""
        groups = set(self._machines_by_host.get(host, {}).values())
        groups.update(self._disputed_by_host.get(host, {}).values())
        joints = [e.joint for name in groups for e in self._store.groups[name].events if e.joint]
        return groups.union(*(joint.groups for joint in joints))

    def members_on(self, hosts: Iterable[str]) -> dict[str, list[Machine]]:
        """Return the machines on any of these hosts, including gone ones, by their group."""
        names: dict[str, set[str]] = {}
        for host in hosts:
            for machine, group in self._machines_by_host.get(host, {}).items():
                names.setdefault(group, set()).add(machine)
        groups = self._store.groups
        return {
            group: list(groups[group].named(of_group).values()) for group, of_group in names.items()
        }

    def machines_on(self, host: str) -> list[Machine]:
        """Return the machines on a host that are not gone, sorted by name."""
        return self._alive(self._machines_by_host.get(host, {}))

    def with_machines(self) -> Iterator[Host]:
        """Yield the hosts that have machines which are not gone."""
        machines = self._machines_by_host
        for host in self._store.registry.hosts.values():
            if any(True for _ in self._living(machines.get(host.name, {}))):
                yield host

    def without_node(self) -> list[str]:
        """Return the hosts that have machines, and are not expected to have a node."""
        return [host.name for host in self.with_machines() if not host.node]

    def disputed_on(self, host: str) -> list[Machine]:
        """Return the machines of which it is disputed whether they are on this host: a fleet file
        names another host than the one that they are known to have moved to, or they poll on
        another one, or were seen there."""
        claimed = self._alive(self._disputed_by_host.get(host, {}))
        claimed += [machine for machine in self.machines_on(host) if machine.disputed]
        seen = {found.machine: found.group for found in self.sightings.disputed_on(host)}
        for machine in claimed:
            seen.pop(machine.name, None)
        return claimed + self._alive(seen)

    def _alive(self, names: Mapping[str, str]) -> list[Machine]:
        return sorted(self._living(names), key=lambda machine: machine.name)

    def _living(self, names: Mapping[str, str]) -> Iterator[Machine]:
        for name, group in names.items():
            machine = self._store.groups[group].machine(name)
            if machine is not None and machine.alive:
                yield machine

    def events_about(self, host: str) -> list[Event]:
        """Return the events that are planned or under way for a host itself."""
        events = []
        for id, group in self._events_by_host.get(host, {}).items():
            event = self._store.groups[group].event(id)
            if event is not None:
                events.append(event)
        return sorted(events, key=lambda event: (event.raised_at, event.group, event.id))

    def maintenance_of(self, host: str) -> list[Event]:
        """Return the events of its maintenance as a whole, which disturbs whoever is on it."""
        return [event for event in self.events_about(host) if event.joint is not None]

    def maintained(self) -> frozenset[str]:
        """Return the hosts for which such maintenance is planned or under way."""
        return frozenset(host for host in self._events_by_host if self.maintenance_of(host))

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        for group in changed.values():
            self._index(group, commit.at)
        self._find_uninformed()
        for put in commit.puts:
            match put:
                case HostPut(host=host):
                    self.placement.host_changed(host.name)
                    self._names = None
                    self._by_label.clear()
                case HostRemoved(name=name):
                    self.placement.host_changed(name)
                    self._names = None
                    self._by_label.clear()
                case HaltReleased():
                    self._by_label.clear()

    def _index(self, group: Group, at: Time = 0) -> None:
        machines, events = self._indexed.get(group.name, ((), ()))
        if machines is not group.machines:
            gone, come = replaced(machines, group.machines)
            self.placement.machines_changed(gone, come)
            self.sightings.machines_changed(gone, come)
            if self.unreachable.hosts:
                hosts = {machine.name: machine.host for machine in come}
                for machine in gone:
                    if machine.alive and hosts.get(machine.name, machine.host) != machine.host:
                        self.unreachable.moved(machine.name, machine.host, at)
            if self.strayed or any(machine.disputed_by_poll for machine in come):
                self._note_strayed(gone, come, at)
            for machine in gone:
                self._changed |= {machine.host, machine.disputed}
                on_host = self._machines_by_host.get(machine.host)
                if on_host is not None and on_host.get(machine.name) == group.name:
                    del on_host[machine.name]
                claimed = self._disputed_by_host.get(machine.disputed, {})
                if claimed.get(machine.name) == group.name:
                    del claimed[machine.name]
            for machine in come:
                if machine.host:
                    self._changed |= {machine.host, machine.disputed}
                    self._machines_by_host.setdefault(machine.host, {})[machine.name] = group.name
                    if machine.disputed:
                        claimed = self._disputed_by_host.setdefault(machine.disputed, {})
                        claimed[machine.name] = group.name
        if events is not group.events:
            past, present = replaced(events, group.events)
            self.placement.events_changed(past, present, group)
            self.sightings.events_changed(past, present, group)
            if changed := _deleted(past) ^ _deleted(present):
                self._changed |= {machine.host for machine in group.named(changed).values()}
            for event in past:
                if event.host:
                    self._changed.add(event.host)
                    self._events_by_host[event.host].pop(event.id, None)
            for event in present:
                if event.host:
                    self._changed.add(event.host)
                    self._events_by_host.setdefault(event.host, {})[event.id] = group.name
        self._indexed[group.name] = group.machines, group.events

    def _note_strayed(self, gone: Iterable[Machine], come: Iterable[Machine], at: Time) -> None:
        """Note machines that poll elsewhere than they are known to be; and those that do not any
        more, which can be reached again since now."""
        before = {machine.name for machine in gone if machine.name in self.strayed}
        strayed = {name: since for name, since in self.strayed.items() if name not in before}
        for machine in come:
            if machine.alive and machine.disputed_by_poll:
                strayed[machine.name] = self.strayed.get(machine.name, at)
            elif machine.name in before:
                self.unreachable.informed_late(machine.name, at)
        self.strayed = strayed

    def _find_uninformed(self) -> None:
        """Look again at the hosts that have changed."""
        if not self._changed:
            return
        after = dict(self.uninformed)
        for host in self._changed:
            after.pop(host, None)
            if machines := self._uninformed_on(host):
                after[host] = machines
        self._changed.clear()
        if after != self.uninformed:
            self.uninformed = after

    def _uninformed_on(self, host: str) -> tuple[str, ...]:
        if not self._events_by_host.get(host):  # as with nearly every host
            return ()
        events = self.maintenance_of(host)
        if not events or any(event.status is not Status.SCHEDULED for event in events):
            return ()
        warned = {name for event in events for name in event.resources}
        there = self.machines_on(host) + self._alive(self._disputed_by_host.get(host, {}))
        # Maintenance that is split concerns one update domain at a time.
        domains = {event.joint.domain for event in events if event.joint is not None}
        if None not in domains:
            there = [machine for machine in there if machine.domain in domains]
        names = [machine.name for machine in there if machine.name not in warned]
        return tuple(name for name in names if not self._leaving(name, host))

    def _leaving(self, machine: str, host: str) -> bool:
        """Has the delete of a machine started?"""
        group = self._machines_by_host.get(host, {}).get(machine, "")
        return any(
            event.traits.deletes and event.status is Status.STARTED and machine in event.resources
            for event in (self._store.groups[group].events if group else ())
        )


def _deleted(events: Iterable[Event]) -> set[str]:
    """Return the machines whose delete has started."""
    deleted: set[str] = set()
    for event in events:
        if event.status is Status.STARTED and event.traits.deletes:
            deleted.update(event.resources)
    return deleted
