"""Where machines go: the hosts that could take one, and the target of each machine that moves.

The target is chosen in the commit that records the attempt to move the machine, and is part of that
record. The host counts the machine from then on until the event is over, so that machines which
move at the same time do not all go to the host that was the emptiest before.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from forewarn.core import Event, Group, Machine, apply
from forewarn.core.changes import Change, EventMoved, begins_attempt
from forewarn.core.fleet import Health, Host
from forewarn.core.group import replaced
from forewarn.core.registry import HostPut, Put
from forewarn.service.indexes.apart_hosts import ApartHosts
from forewarn.store.port import States, Store

MAX_OFFERED = 50  # hosts that a machine could move to and that are named at most, the best first
RERANK = 64  # changed hosts up to which each is ranked separately instead of all again


class Ranking:
    """Every host by what it holds: the emptiest first."""

    def __init__(self, ranked: dict[str, int], ranking: list[tuple[int, str]]) -> None:
        self._ranked = ranked  # by host: its number of machines in `_ranking`
        self._ranking = ranking

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._ranking)

    def copy(self) -> Ranking:
        return Ranking(self._ranked.copy(), self._ranking.copy())

    def put(self, name: str, count: int | None) -> None:
        """Rank a host by its number of machines; None: there is no such host."""
        if (before := self._ranked.pop(name, None)) is not None:
            del self._ranking[bisect_left(self._ranking, (before, name))]
        if count is not None:
            self._ranked[name] = count
            insort(self._ranking, (count, name))

    def add(self, name: str, machines: int) -> None:
        if name in self._ranked:
            self.put(name, self._ranked[name] + machines)


class Placement:
    """Knows what is on every host and on its way there, as committed."""

    def __init__(
        self,
        store: Store,
        apart: ApartHosts,
        machines_by_host: Mapping[str, Mapping[str, str]],
        events_by_host: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._store = store
        self._apart = apart
        self._machines_by_host = machines_by_host
        self._events_by_host = events_by_host
        self._coming: dict[str, set[tuple[str, str]]] = {}  # by host: events, and their machines
        self._targets: dict[str, dict[str, str]] = {}  # by machine: its targets by event
        self._ranking = Ranking({}, [])
        self._unranked: set[str] = set()  # hosts whose number may have changed since
        self._batch: _BatchPlacement | None = None
        # The machines that have an address: each on another host.
        self.having: Callable[[str], Iterable[Machine]] = lambda _: ()

    def changed(self, host: str) -> None:
        """Note that what is on a host has changed, or the host itself."""
        self._unranked.add(host)

    def events_changed(self, gone: Iterable[Event], come: Iterable[Event]) -> None:
        for event in gone:
            for machine, host in targets_of(event).items():
                self._unranked.add(host)
                self._coming[host].discard((event.id, machine))
                del self._targets[machine][event.id]
                if not self._targets[machine]:
                    del self._targets[machine]
        for event in come:
            for machine, host in targets_of(event).items():
                self._unranked.add(host)
                self._coming.setdefault(host, set()).add((event.id, machine))
                self._targets.setdefault(machine, {})[event.id] = host

    def coming_to(self, host: str) -> list[str]:
        """Return the machines that are on their way to a host, sorted by name."""
        return sorted({machine for _, machine in self._coming.get(host, ())})

    def free_for(self, group: str, machine: str) -> tuple[str, ...]:
        """Return the hosts that a machine could move to, the best first: healthy hosts that are not
        cordoned, can be told, have no machine with its address, and for which nothing is planned;
        preferably without another update domain of its group, and then with few machines."""
        found = self._store.groups[group]
        record = found.machine(machine) or Machine(name=machine)
        return self.alternatives(found, [record], MAX_OFFERED)[machine]

    def alternatives(
        self, group: Group, machines: Iterable[Machine], limit: int
    ) -> dict[str, tuple[str, ...]]:
        """Return the hosts that each of these machines could move to, the best first."""
        spread = _Spread(group)
        view = _View(self, self.ranking(), self._store.registry.hosts)
        return {
            machine.name: tuple(view.candidates(machine, spread, limit=limit))
            for machine in machines
        }

    def choose(
        self,
        states: States,
        items: Mapping[str, Sequence[Change]],
        after: Mapping[str, Group],
        puts: Sequence[Put],
    ) -> tuple[dict[str, tuple[Change, ...]], dict[str, Group]]:
        """Return those of these changes of a commit that begin attempts to move machines, with the
        targets of the machines, and the groups after them."""
        begun = {
            name: {
                change.event.id: change.event
                for change in changes
                if begins_attempt(change) and change.event.relocates
            }
            for name, changes in items.items()
        }
        begun = {name: events for name, events in begun.items() if events}
        if not begun:
            return {}, {}
        if self._batch is None or self._batch.states is not states:
            self._batch = _BatchPlacement(self, states)
        return self._batch.choose(begun, items, after, puts)

    def ranking(self) -> Ranking:
        """Return all hosts, with those ranked again that have changed: usually a few of
        thousands."""
        hosts = self._store.registry.hosts
        if len(self._unranked) > RERANK:
            ranked = {name: self._count(name) for name in hosts}
            ranking = sorted((count, name) for name, count in ranked.items())
            self._ranking = Ranking(ranked, ranking)
        else:
            for name in self._unranked:
                self._ranking.put(name, self._count(name) if name in hosts else None)
        self._unranked.clear()
        return self._ranking

    def _count(self, host: str) -> int:
        return len(self._machines_by_host.get(host, ())) + len(self._coming.get(host, ()))

    def taken(self, machine: Machine) -> set[str]:
        """Return the hosts that have a machine with one of its addresses, or will have."""
        taken: set[str] = set()
        for address in machine.addresses:
            for other in self.having(address):
                taken.add(other.host)
                if other.name != machine.name:
                    taken.update(self._targets.get(other.name, {}).values())
        return taken

    def usable(self, host: Host) -> bool:
        """Could a machine be moved to a host, if nothing else keeps it from that?"""
        return host.healthy and not host.cordoned and not self._apart.is_apart(host.name)

    def planned(self, host: str) -> bool:
        return bool(self._events_by_host.get(host))


class _Spread:
    """The hosts of a group by update domain: where its machines are, and where they are going."""

    def __init__(self, group: Group) -> None:
        self._hosts: dict[int, set[str]] = {}
        for machine in group.machines:
            if machine.alive:
                self.add(machine.domain, machine.host)
        for event in group.events:
            for host in targets_of(event).values():
                self.add(event.domain, host)
        self._clashing: dict[int, set[str]] = {}

    def add(self, domain: int, host: str) -> None:
        self._hosts.setdefault(domain, set()).add(host)
        self._clashing = {}

    def clashing(self, domain: int) -> set[str]:
        """Return the hosts that have machines of another update domain."""
        if domain not in self._clashing:
            others = (hosts for other, hosts in self._hosts.items() if other != domain)
            self._clashing[domain] = set().union(*others)
        return self._clashing[domain]


class _View:
    """The hosts at one moment."""

    def __init__(self, placement: Placement, ranking: Ranking, hosts: Mapping[str, Host]) -> None:
        self._placement = placement
        self.ranking = ranking
        self.hosts = hosts
        self.planned: set[str] = set()  # hosts for which something is planned in this very batch

    def candidates(
        self, machine: Machine, spread: _Spread, without: Sequence[str] = (), *, limit: int = 1
    ) -> list[str]:
        """Return the hosts that a machine could move to, the best first."""
        clashing = spread.clashing(machine.domain)
        taken = self._placement.taken(machine)
        best: list[str] = []
        less_suitable: list[str] = []
        for name in self.ranking:
            if name == machine.host or name in taken or name in without or not self.usable(name):
                continue
            (less_suitable if name in clashing else best).append(name)
            if len(best) == limit:
                break
        return (best + less_suitable)[:limit]

    def usable(self, name: str) -> bool:
        host = self.hosts.get(name)
        if host is None or name in self.planned or self._placement.planned(name):
            return False
        return self._placement.usable(host)


class _BatchPlacement(_View):
    """The hosts as the works of one batch leave them behind, before it is committed."""

    def __init__(self, placement: Placement, states: States) -> None:
        super().__init__(placement, placement.ranking().copy(), states.registry.hosts)
        self.states = states
        self._committed = states.maps[-1]
        self._counted: dict[str, Group] = {}  # groups as they are counted in `ranking`

    def choose(
        self,
        begun: Mapping[str, Mapping[str, Event]],
        items: Mapping[str, Sequence[Change]],
        after: Mapping[str, Group],
        puts: Sequence[Put],
    ) -> tuple[dict[str, tuple[Change, ...]], dict[str, Group]]:
        self.hosts = dict(self.states.registry.hosts)
        self.hosts.update({put.host.name: put.host for put in puts if isinstance(put, HostPut)})
        groups = {n: after.get(n) or apply(self.states[n], tuple(items[n])) for n in items}
        for name, group in {**self.states.maps[0], **groups}.items():
            self._count(name, group)
        changes, chosen = {}, {}
        for name, events in begun.items():
            spread = _Spread(groups[name])
            targets = {
                id: self._targets(groups[name], event, spread)
                for id, event in events.items()
                if groups[name].event(id) is not None
            }
            changes[name] = tuple(_with_targets(change, targets) for change in items[name])
            chosen[name] = self._counted[name] = apply(self.states[name], changes[name])
        return changes, chosen

    def _targets(self, group: Group, event: Event, spread: _Spread) -> dict[str, str]:
        """Return the targets of the machines of an attempt. Those of the attempt before it stay as
        long as it may have moved the machines there, unless the host has failed."""
        before = self.states[group.name].event(event.id)
        earlier = before.attempt if before is not None else None
        under_way = earlier is not None and not earlier.note
        unsuitable = event.attempt.unsuitable if event.attempt else ()
        targets: dict[str, str] = {}
        for machine in group.concerned(event):
            target = targets_of(event).get(machine.name, "")
            if target and not self._stays(target, under_way=under_way):
                self.ranking.add(target, -1)
                target = ""
            if not target and (best := self.candidates(machine, spread, unsuitable)):
                target = best[0]
                self.ranking.add(target, 1)
                spread.add(machine.domain, target)
            if target:
                targets[machine.name] = target
        return targets

    def _stays(self, target: str, *, under_way: bool) -> bool:
        host = self.hosts.get(target)
        if under_way:
            return host is not None and host.health is not Health.FAILED
        return self.usable(target)

    def _count(self, name: str, group: Group) -> None:
        before = self._counted.get(name) or self._committed.get(name)
        if before is group:
            return
        self._counted[name] = group
        gone, come = replaced(before.machines if before else (), group.machines)
        for machine in gone:
            self.ranking.add(machine.host, -1)
        for machine in come:
            self.ranking.add(machine.host, 1)
        past, events = replaced(before.events if before else (), group.events)
        for event in past:
            for host in targets_of(event).values():
                self.ranking.add(host, -1)
        for event in events:
            for host in targets_of(event).values():
                self.ranking.add(host, 1)
            if event.host:
                self.planned.add(event.host)


def targets_of(event: Event) -> Mapping[str, str]:
    """Return the targets of the machines of an event by machine."""
    return event.attempt.targets if event.attempt is not None else {}


def _with_targets(change: Change, targets: Mapping[str, Mapping[str, str]]) -> Change:
    if not isinstance(change, EventMoved) or change.event.attempt is None:
        return change
    chosen = targets.get(change.event.id)
    if chosen is None:
        return change
    attempt = msgspec.structs.replace(change.event.attempt, targets=dict(chosen))
    event = msgspec.structs.replace(change.event, attempt=attempt)
    return msgspec.structs.replace(change, event=event)
