"""Who is on which host, and which hosts are spoken for: an index, told of every commit."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.core import Event, Group, Machine
from forewarn.store.port import Commit, Store


class Places:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._on: dict[str, dict[str, str]] = {}  # by host: machines and their groups
        self._about: dict[str, dict[str, str]] = {}  # by host: events and their groups
        self._known: dict[str, tuple[tuple[Machine, ...], tuple[Event, ...]]] = {}
        store.attach(self._told)

    def load(self) -> None:
        for group in self._store.groups.values():
            self._index(group)

    def groups_on(self, host: str) -> list[str]:
        """The groups that have machines there, gone ones included, in the order of names."""
        return sorted(set(self._on.get(host, {}).values()))

    def machines_on(self, host: str) -> list[Machine]:
        """Those that are there, by name."""
        found = []
        for name, group in sorted(self._on.get(host, {}).items()):
            machine = self._store.groups[group].machine(name)
            if machine is not None and machine.alive:
                found.append(machine)
        return found

    def events_about(self, host: str) -> list[Event]:
        """What is planned or under way for the host itself."""
        found = []
        for id, group in self._about.get(host, {}).items():
            event = self._store.groups[group].event(id)
            if event is not None:
                found.append(event)
        return sorted(found, key=lambda event: (event.raised_at, event.group, event.id))

    def free_for(self, group: str, machine: str) -> tuple[str, ...]:
        """Where the machine could go, the best first: healthy hosts for which nothing is
        planned; rather one that holds no other update domain of its group, rather an empty one."""
        found = self._store.groups[group].machine(machine)
        domain, here = (found.update_domain, found.host) if found else (0, "")
        mine = self._store.groups[group].machines
        clashing = {m.host for m in mine if m.alive and m.update_domain != domain}
        hosts = [
            host.name
            for host in self._store.registry.hosts.values()
            if host.healthy and host.name != here and not self._about.get(host.name)
        ]
        return tuple(
            sorted(hosts, key=lambda host: (host in clashing, len(self._on.get(host, ())), host))
        )

    def _told(self, _commit: Commit, changed: Mapping[str, Group]) -> None:
        for group in changed.values():
            self._index(group)

    def _index(self, group: Group) -> None:
        machines, events = self._known.get(group.name, ((), ()))
        if machines is not group.machines:
            for machine in machines:
                there = self._on.get(machine.host)
                if there is not None and there.get(machine.name) == group.name:
                    del there[machine.name]
            for machine in group.machines:
                if machine.host:
                    self._on.setdefault(machine.host, {})[machine.name] = group.name
        if events is not group.events:
            for event in events:
                if event.host:
                    self._about[event.host].pop(event.id, None)
            for event in group.events:
                if event.host:
                    self._about.setdefault(event.host, {})[event.id] = group.name
        self._known[group.name] = group.machines, group.events
