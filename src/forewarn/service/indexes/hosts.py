"""Index of machines and events by host, kept up to date by every commit."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from forewarn.core import Event, Group, Machine
from forewarn.core.registry import HostPut, HostRemoved
from forewarn.store.port import Commit, Store

MAX_OFFERED = 50  # hosts that are offered to a driver for one machine, the best first
RERANK = 64  # changed hosts up to which each is ranked separately instead of all again


class HostIndex:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._machines_by_host: dict[
            str, dict[str, str]
        ] = {}  # by host: machines, and their groups
        self._events_by_host: dict[str, dict[str, str]] = {}  # by host: events, and their groups
        self._indexed: dict[str, tuple[tuple[Machine, ...], tuple[Event, ...]]] = {}
        self._ranking: list[tuple[int, str]] = []  # every host, by its number of machines
        self._ranked: dict[str, int] = {}  # by host: its number of machines in `_ranking`
        self._unranked: set[str] = set()  # hosts whose number may have changed since
        self._names: frozenset[str] | None = None
        store.on_commit(self._on_commit)

    def load(self) -> None:
        for group in self._store.groups.values():
            self._index(group)
        self._unranked.update(self._store.registry.hosts)

    def names(self) -> frozenset[str]:
        """Return the names of all hosts."""
        if self._names is None:
            self._names = frozenset(self._store.registry.hosts)
        return self._names

    def groups_on(self, host: str) -> list[str]:
        """Return the groups that have machines on a host, including gone ones, sorted by name."""
        return sorted(set(self._machines_by_host.get(host, {}).values()))

    def machines_on(self, host: str) -> list[Machine]:
        """Return the machines on a host that are not gone, sorted by name."""
        machines = []
        for name, group in sorted(self._machines_by_host.get(host, {}).items()):
            machine = self._store.groups[group].machine(name)
            if machine is not None and machine.alive:
                machines.append(machine)
        return machines

    def events_about(self, host: str) -> list[Event]:
        """Return the events that are planned or under way for a host itself."""
        events = []
        for id, group in self._events_by_host.get(host, {}).items():
            event = self._store.groups[group].event(id)
            if event is not None:
                events.append(event)
        return sorted(events, key=lambda event: (event.raised_at, event.group, event.id))

    def free_for(self, group: str, machine: str) -> tuple[str, ...]:
        """Return the hosts that a machine could move to, the best first: healthy hosts for which
        nothing is planned; preferably without another update domain of its group, and then with
        few machines."""
        record = self._store.groups[group].machine(machine)
        domain, current = (record.update_domain, record.host) if record else (0, "")
        members = self._store.groups[group].machines
        clashing = {m.host for m in members if m.alive and m.update_domain != domain}
        hosts = self._store.registry.hosts
        best: list[str] = []
        less_suitable: list[str] = []
        self._rank()
        for _, name in self._ranking:
            if not hosts[name].healthy or name == current or self._events_by_host.get(name):
                continue
            (less_suitable if name in clashing else best).append(name)
            if len(best) == MAX_OFFERED:
                break
        return (*best, *less_suitable)[:MAX_OFFERED]

    def _rank(self) -> None:
        """Rank the hosts again that have changed: usually a few of thousands."""
        hosts = self._store.registry.hosts
        if len(self._unranked) > RERANK:
            self._ranked = {name: len(self._machines_by_host.get(name, ())) for name in hosts}
            self._ranking = sorted((count, name) for name, count in self._ranked.items())
        else:
            for name in self._unranked:
                if name in self._ranked:
                    before = self._ranked.pop(name), name
                    del self._ranking[bisect_left(self._ranking, before)]
                if name in hosts:
                    self._ranked[name] = len(self._machines_by_host.get(name, ()))
                    insort(self._ranking, (self._ranked[name], name))
        self._unranked.clear()

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        for group in changed.values():
            self._index(group)
        for put in commit.puts:
            match put:
                case HostPut(host=host):
                    self._unranked.add(host.name)
                    self._names = None
                case HostRemoved(name=name):
                    self._unranked.add(name)
                    self._names = None

    def _index(self, group: Group) -> None:
        machines, events = self._indexed.get(group.name, ((), ()))
        if machines is not group.machines:
            same = {id(machine) for machine in machines} & {
                id(machine) for machine in group.machines
            }
            for machine in machines:
                if id(machine) in same:
                    continue
                on_host = self._machines_by_host.get(machine.host)
                if on_host is not None and on_host.get(machine.name) == group.name:
                    del on_host[machine.name]
                    self._unranked.add(machine.host)
            for machine in group.machines:
                if machine.host and id(machine) not in same:
                    self._machines_by_host.setdefault(machine.host, {})[machine.name] = group.name
                    self._unranked.add(machine.host)
        if events is not group.events:
            for event in events:
                if event.host:
                    self._events_by_host[event.host].pop(event.id, None)
            for event in group.events:
                if event.host:
                    self._events_by_host.setdefault(event.host, {})[event.id] = group.name
        self._indexed[group.name] = group.machines, group.events
