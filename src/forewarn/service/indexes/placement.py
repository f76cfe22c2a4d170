"""Where machines go: the hosts that could take one, and the target of each machine that moves.

The target is chosen in the commit that records the attempt to move the machine, and is part of that
record. The host counts the machine from then on until the event is over, so that machines which
move at the same time do not all go to the host that was the emptiest before, and no host is given
more than it can hold.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from forewarn.core import Event, Group, Machine, apply
from forewarn.core.changes import Change, EventMoved, begins_attempt
from forewarn.core.fleet import NO_CAPACITY, NO_SIZE, Capacity, Health, Host
from forewarn.core.group import replaced
from forewarn.core.registry import HostPut, Put
from forewarn.core.rollouts.model import CAUSE
from forewarn.service.indexes.unreachable_hosts import UnreachableHosts
from forewarn.store.port import States, Store

REIMAGE = "REIMAGE-"  # the beginning of the ids of rollouts that reimage machines
REIMAGES = f"{CAUSE}/{REIMAGE}"  # and of the causes of their steps
MAX_OFFERED = 50  # hosts that a machine could move to and that are named at most, the best first
SPREADS_KEPT = 64  # groups of which is kept where their machines are
RERANK = 64  # changed hosts up to which each is ranked separately instead of all again


Rank: TypeAlias = tuple[float, int, str]  # which part of a host is taken, its machines, its name


class Load(NamedTuple):
    """What machines take of a host."""

    machines: int = 0
    memory: int = 0
    cpus: int = 0

    def plus(self, other: Load, sign: int = 1) -> Load:
        return Load(
            self.machines + sign * other.machines,
            self.memory + sign * other.memory,
            self.cpus + sign * other.cpus,
        )


NOTHING = Load()


def load_of(machine: Machine | None) -> Load:
    """Return what a machine takes; nothing, if it is gone."""
    if machine is None or machine.gone:
        return NOTHING
    return Load(1, machine.size.memory, machine.size.cpus)


def room_for(load: Load, held: Load, capacity: Capacity) -> bool:
    """Can a host that holds this much take more?"""
    limits = (capacity.machines, capacity.memory, capacity.cpus)
    return all(
        limit is None or have + more <= limit
        for limit, have, more in zip(limits, held, load, strict=True)
    )


def fill(held: Load, capacity: Capacity) -> float:
    """Return which part of what limits a host is taken; 0 if nothing does."""
    limits = (capacity.machines, capacity.memory, capacity.cpus)
    return max((have / limit for limit, have in zip(limits, held, strict=True) if limit), default=0)


class Ranking:
    """Every host by what it holds: the emptiest first."""

    def __init__(self, hosts: Mapping[str, tuple[Load, Capacity]]) -> None:
        self._hosts = dict(hosts)  # what each holds, and can hold
        self._keys = {name: _key(name, *of) for name, of in hosts.items()}
        self._ranking = sorted(self._keys.values())

    def __iter__(self) -> Iterator[str]:
        return (name for _, _, name in self._ranking)

    def without(self, names: Container[str]) -> Iterator[Rank]:
        """Yield the ranks of all hosts but these."""
        return (rank for rank in self._ranking if rank[2] not in names)

    def get(self, name: str) -> tuple[Load, Capacity] | None:
        """Return what a host holds, and can hold; None: there is no such host."""
        return self._hosts.get(name)

    def put(self, name: str, held: Load, capacity: Capacity | None) -> None:
        """Rank a host by what it holds; without a capacity, there is no such host."""
        if self._hosts.pop(name, None) is not None:
            del self._ranking[bisect_left(self._ranking, self._keys.pop(name))]
        if capacity is not None:
            self._hosts[name] = held, capacity
            self._keys[name] = _key(name, held, capacity)
            insort(self._ranking, self._keys[name])

    def room_for(self, load: Load, host: Host) -> bool:
        if host.capacity is NO_CAPACITY:
            return True
        found = self.get(host.name)
        return found is not None and room_for(load, *found)


class ChangedRanking(Ranking):
    """A ranking after changes that are not committed, for which it need not be copied."""

    def __init__(self, before: Ranking) -> None:
        super().__init__({})
        self._before = before

    def __iter__(self) -> Iterator[str]:
        others = self._before.without(self._hosts)
        return (name for _, _, name in heapq.merge(self._ranking, others))

    def get(self, name: str) -> tuple[Load, Capacity] | None:
        return self._hosts.get(name) or self._before.get(name)

    def add(self, name: str, load: Load, sign: int = 1) -> None:
        """Count something more on a host, or less; an unknown host is left out."""
        if (found := self.get(name)) is not None:
            held, capacity = found
            self.put(name, held.plus(load, sign), capacity)


def _key(name: str, held: Load, capacity: Capacity) -> Rank:
    full = 0 if capacity is NO_CAPACITY else fill(held, capacity)
    return full, held.machines, name


class Placement:
    """Knows what is on every host and on its way there, as committed."""

    def __init__(
        self,
        store: Store,
        unreachable: UnreachableHosts,
        events_by_host: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._store = store
        self._unreachable = unreachable
        self._events_by_host = events_by_host
        # What is on hosts. Most machines have no size, and are only counted.
        self._machines: dict[str, int] = {}
        self._sizes: dict[str, Load] = {}
        # By host: what is on its way there, by event and machine.
        self._coming: dict[str, dict[tuple[str, str], Load]] = {}
        self._targets: dict[str, dict[str, str]] = {}  # by machine: its targets by event
        # By group: its machines, and the hosts that have some of another update domain.
        self._clashing: dict[str, tuple[tuple[Machine, ...], dict[int, frozenset[str]]]] = {}
        self._ranking = Ranking({})
        self._unranked: set[str] = set()  # hosts whose number may have changed since
        self._batch: _BatchPlacement | None = None
        # The machines that have an address: each on another host.
        self.having: Callable[[str], Iterable[Machine]] = lambda _: ()

    def host_changed(self, host: str) -> None:
        """Note that a host was added, changed or removed."""
        self._unranked.add(host)

    def machines_changed(self, gone: Iterable[Machine], come: Iterable[Machine]) -> None:
        for machines, sign in ((gone, -1), (come, 1)):
            for machine in machines:
                host = machine.host
                if host and not machine.gone:
                    self._unranked.add(host)
                    self._machines[host] = self._machines.get(host, 0) + sign
                    if machine.size is not NO_SIZE:
                        sizes = self._sizes.get(host, NOTHING)
                        load = load_of(machine)._replace(machines=0)
                        self._sizes[host] = sizes.plus(load, sign)
                for event, target in self._targets.get(machine.name, {}).items():
                    self._unranked.add(target)
                    load = load_of(machine) if sign > 0 else NOTHING
                    self._coming[target][event, machine.name] = load

    def events_changed(self, gone: Iterable[Event], come: Iterable[Event], group: Group) -> None:
        for event in gone:
            for machine, host in targets_of(event).items():
                self._unranked.add(host)
                del self._coming[host][event.id, machine]
                del self._targets[machine][event.id]
                if not self._targets[machine]:
                    del self._targets[machine]
        for event in come:
            targets = targets_of(event)
            machines = group.named(targets) if targets else {}
            for machine, host in targets.items():
                self._unranked.add(host)
                load = load_of(machines.get(machine))
                self._coming.setdefault(host, {})[event.id, machine] = load
                self._targets.setdefault(machine, {})[event.id] = host

    def free_for(self, group: str, machine: str) -> tuple[str, ...]:
        """Return the hosts that a machine could move to, the best first: healthy hosts that are not
        cordoned, can be reached, have room for it and no machine with its address, and for which
        nothing is planned; preferably without another update domain of its group, and then with
        much room and few machines."""
        found = self._store.groups[group]
        record = found.machine(machine) or Machine(name=machine)
        return self.alternatives(found, [record], MAX_OFFERED)[machine]

    def alternatives(
        self, group: Group, machines: Iterable[Machine], limit: int, without: Sequence[str] = ()
    ) -> dict[str, tuple[str, ...]]:
        """Return the hosts that each of these machines could move to, `without` some, the best
        first."""
        spread = self.spread(group)
        view = _View(self, self.ranking(), self._store.registry.hosts)
        return {
            machine.name: tuple(view.candidates(machine, spread, without, limit=limit))
            for machine in machines
        }

    def forecast(self, steps: Iterable[Iterable[tuple[str, str]]]) -> list[dict[str, str]]:
        """Return where machines, each with its group, would go now if those of each step moved
        after the step before; "" if no host could take one."""
        ranking = ChangedRanking(self.ranking())
        view = _View(self, ranking, self._store.registry.hosts)
        groups = self._store.groups
        spreads: dict[str, _Spread] = {}
        moved: dict[str, Machine] = {}
        result = []
        for step in steps:
            members: dict[str, list[str]] = {}
            for group, name in step:
                members.setdefault(group, []).append(name)
            machines = [
                (group, moved.get(name, machine))
                for group, names in members.items()
                for name, machine in groups[group].named(names).items()
                if machine.alive
            ]
            targets = {}
            for group, machine in sorted(machines, key=lambda item: _largest_first(item[1])):
                spread = spreads.setdefault(group, self.spread(groups[group]))
                best = view.candidates(machine, spread)
                targets[machine.name] = target = best[0] if best else ""
                if target:
                    ranking.add(target, load_of(machine))
                    spread.add(machine.domain, target)
                    moved[machine.name] = msgspec.structs.replace(machine, host=target)
            for _, machine in machines:
                if targets[machine.name]:
                    ranking.add(machine.host, load_of(machine), -1)
            result.append(targets)
        return result

    def choose(
        self,
        states: States,
        items: Mapping[str, Sequence[Change]],
        after: Mapping[str, Group],
        puts: Sequence[Put],
    ) -> tuple[dict[str, tuple[Change, ...]], dict[str, Group]]:
        """Return those of these changes of a commit that begin attempts to move machines, with the
        targets of the machines, and the groups after them."""
        begun: dict[str, dict[str, Event]] = {}
        for name, changes in items.items():
            for change in changes:
                if begins_attempt(change) and change.event.relocates and not in_place(change.event):
                    begun.setdefault(name, {})[change.event.id] = change.event
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
            self._ranking = Ranking({n: (self.held(n), host.capacity) for n, host in hosts.items()})
        else:
            for name in self._unranked:
                host = hosts.get(name)
                self._ranking.put(name, self.held(name), host.capacity if host else None)
        self._unranked.clear()
        return self._ranking

    def held(self, host: str) -> Load:
        """Return what is on a host and on its way there."""
        held = Load(self._machines.get(host, 0)).plus(self._sizes.get(host, NOTHING))
        for load in self._coming.get(host, {}).values():
            held = held.plus(load)
        return held

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
        return (
            host.healthy and not host.cordoned and not self._unreachable.is_unreachable(host.name)
        )

    def spread(self, group: Group) -> _Spread:
        """Return where the machines of a group are. What is found out about that is kept for a
        while: an event asks before it is announced, when it starts, and when it is carried out."""
        kept = self._clashing.get(group.name)
        if kept is None or kept[0] is not group.machines:
            if len(self._clashing) >= SPREADS_KEPT:
                self._clashing.clear()
            kept = self._clashing[group.name] = group.machines, {}
        return _Spread(group, kept[1])

    def planned(self, host: str) -> bool:
        return bool(self._events_by_host.get(host))


class _Spread:
    """The hosts of a group by update domain: where its machines are, and where they are going."""

    def __init__(self, group: Group, clashing: dict[int, frozenset[str]]) -> None:
        """`clashing` is kept for as long as the group has the same machines."""
        self._machines = group.machines
        self._clashing = clashing
        self._going = [
            (event.domain, host) for event in group.events for host in targets_of(event).values()
        ]

    def add(self, domain: int, host: str) -> None:
        self._going.append((domain, host))

    def clashing(self, domain: int) -> frozenset[str]:
        """Return the hosts that have machines of another update domain."""
        clashing = self._clashing.get(domain)
        if clashing is None:
            clashing = frozenset(
                [m.host for m in self._machines if m.domain != domain and not m.gone]
            )
            self._clashing[domain] = clashing
        going = [host for other, host in self._going if other != domain]
        return clashing.union(going) if going else clashing


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
        load = load_of(machine)
        best: list[str] = []
        less_suitable: list[str] = []
        for name in self.ranking:
            if name == machine.host or name in taken or name in without or not self.usable(name):
                continue
            if not self.ranking.room_for(load, self.hosts[name]):
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

    ranking: ChangedRanking

    def __init__(self, placement: Placement, states: States) -> None:
        self.ranking = ChangedRanking(placement.ranking())
        super().__init__(placement, self.ranking, states.registry.hosts)
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
        self.hosts = self.states.registry.hosts
        if changed := {put.host.name: put.host for put in puts if isinstance(put, HostPut)}:
            self.hosts = {**self.hosts, **changed}
        groups = {n: after.get(n) or apply(self.states[n], tuple(items[n])) for n in items}
        for name, group in (*self.states.maps[0].items(), *groups.items()):
            if self._counted.get(name) is not group:
                self._count(name, group)
        targets = {
            event.id: self._kept(groups[name], event)
            for name, events in begun.items()
            for event in events.values()
            if groups[name].event(event.id) is not None
        }
        moving = [
            (machine, groups[name], event)
            for name, events in begun.items()
            for event in events.values()
            if event.id in targets
            for machine in groups[name].concerned(event)
            if machine.name not in targets[event.id]
        ]
        spreads = {name: self._placement.spread(groups[name]) for name in begun}
        for machine, group, event in sorted(moving, key=lambda item: _largest_first(item[0])):
            spread = spreads[group.name]
            unsuitable = event.attempt.unsuitable if event.attempt else ()
            if best := self.candidates(machine, spread, unsuitable):
                targets[event.id][machine.name] = best[0]
                self.ranking.add(best[0], load_of(machine))
                spread.add(machine.domain, best[0])
        changes, chosen = {}, {}
        for name in begun:
            changes[name] = tuple(_with_targets(change, targets) for change in items[name])
            chosen[name] = self._counted[name] = apply(self.states[name], changes[name])
        return changes, chosen

    def _kept(self, group: Group, event: Event) -> dict[str, str]:
        """Return the targets that an attempt has from the one before it. They stay as long as that
        may have moved the machines there, unless the host has failed."""
        before = self.states[group.name].event(event.id)
        earlier = before.attempt if before is not None else None
        under_way = earlier is not None and not earlier.note
        concerned = {machine.name for machine in group.concerned(event)}
        kept = {}
        for name, target in targets_of(event).items():
            if name in concerned and self._stays(target, under_way=under_way):
                kept[name] = target
            else:
                self.ranking.add(target, load_of(group.machine(name)), -1)
        return kept

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
        past, events = replaced(before.events if before else (), group.events)
        if before is None or before.machines is not group.machines:
            gone, come = replaced(before.machines if before else (), group.machines)
            for machine in gone:
                self.ranking.add(machine.host, load_of(machine), -1)
            for machine in come:
                self.ranking.add(machine.host, load_of(machine))
            if before and {m.name: load_of(m) for m in gone} != {m.name: load_of(m) for m in come}:
                past, events = list(before.events), list(group.events)
        for event in past:
            self._count_targets(event, before or group, -1)
        for event in events:
            self._count_targets(event, group, 1)
            if event.host:
                self.planned.add(event.host)

    def _count_targets(self, event: Event, group: Group, sign: int) -> None:
        targets = targets_of(event)
        machines = group.named(targets) if targets else {}
        for machine, host in targets.items():
            self.ranking.add(host, load_of(machines.get(machine)), sign)


def _largest_first(machine: Machine) -> tuple[int, int]:
    """Return what machines are ordered by: the larger one is, the fewer hosts can take it."""
    return -machine.size.memory, -machine.size.cpus


def targets_of(event: Event) -> Mapping[str, str]:
    """Return the targets of the machines of an event by machine."""
    return event.attempt.targets if event.attempt is not None else {}


def in_place(event: Event) -> bool:
    """Is it a reimage, after which its machines are where they were?"""
    return event.cause.startswith(REIMAGES)


def must_move(event: Event, machine: Machine, hosts: Mapping[str, Host]) -> bool:
    """Does an event that moves machines need another host for this one? One that is on a host which
    may stay in use can also be redeployed there."""
    host = hosts.get(machine.host)
    return host is not None and (event.moves or not host.healthy) and not in_place(event)


def _with_targets(change: Change, targets: Mapping[str, Mapping[str, str]]) -> Change:
    if not isinstance(change, EventMoved) or change.event.attempt is None:
        return change
    chosen = targets.get(change.event.id)
    if chosen is None:
        return change
    attempt = msgspec.structs.replace(change.event.attempt, targets=dict(chosen))
    event = msgspec.structs.replace(change.event, attempt=attempt)
    return msgspec.structs.replace(change, event=event)
