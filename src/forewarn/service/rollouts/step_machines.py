"""The machines that the steps of a rollout have now, and the lanes that depend on them.

A lane has to be computed again when one of its machines is added, removed or moved: which machines
were read for it is remembered, and compared with what a commit touches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from forewarn.core import Group, Status, World
from forewarn.core.changes import EventMoved, MachinePut, MachineRemoved
from forewarn.core.deciding.configurations import configurations_for
from forewarn.core.deciding.holds import HaltedMachines
from forewarn.core.halts import Halt
from forewarn.core.registry import HostPut
from forewarn.core.rollouts.lanes import crowding
from forewarn.core.rollouts.model import Action, Rollout, Step
from forewarn.core.rollouts.progress import Configurations, HostState
from forewarn.core.rollouts.selection import Excluded
from forewarn.service.indexes.machines import MachineIndex
from forewarn.service.platform.hosts import Hosts
from forewarn.store.port import Commit, Store


class StepMachines:
    """The machines of steps at one moment; each group is read once."""

    def __init__(
        self,
        store: Store,
        hosts: Hosts,
        machine_index: MachineIndex,
        rollout: Rollout,
        on_read: Callable[[str, Sequence[str]], None] | None = None,
    ) -> None:
        """`on_read` is told which machines were found on a host."""
        self._store, self._hosts, self._machine_index = store, hosts, machine_index
        self._rollout = rollout
        self._excluded = Excluded(rollout.exclusions) if rollout.exclusions else None
        self._on_read = on_read
        self._staying: dict[str, frozenset[str]] = {}
        self._halted: dict[str, HaltedMachines] = {}

    def present(self, step: Step) -> Sequence[str]:
        """Return the machines that a step has now, without those that are gone, being deleted or
        excluded."""
        names = self._staying_in(step)
        if self._excluded is None:
            return names
        if not step.host:
            return [name for name in names if not self._excludes(self._excluded, name)]
        return [] if self._excludes_host(self._excluded, step.host) else names

    def excluded(self, step: Step) -> bool:
        """Is the step left out, because its host, a machine on it, or all its machines are?"""
        return self._excluded is not None and (
            self._excludes_host(self._excluded, step.host)
            if step.host
            else bool(self._staying_in(step)) and not self.present(step)
        )

    def _excludes_host(self, excluded: Excluded, name: str) -> bool:
        host = self._store.registry.hosts.get(name)
        return (host is not None and excluded.host(host)) or any(
            self._excludes(excluded, machine.name) for machine in self._hosts.machines_on(name)
        )

    def _excludes(self, excluded: Excluded, name: str) -> bool:
        """Is a machine left out, or the host that it is on?"""
        known = self._machine_index.machine(name)
        if known is None:
            return False
        group, machine = known
        host = self._store.registry.hosts.get(machine.host)
        return excluded.machine(group, machine) or (host is not None and excluded.host(host))

    def _staying_in(self, step: Step) -> list[str]:
        if not step.host:
            return [name for name in step.machines if self._stays(step.group, name)]
        machines = self._hosts.machines_on(step.host)
        if self._on_read is not None:
            self._on_read(step.host, [machine.name for machine in machines])
        names = [m.name for m in machines if not step.split or m.domain == step.domain]
        staying = [n for n in names if self._stays(self._machine_index.group_of(n) or "", n)]
        if step.action is not Action.EVACUATION or self._rollout.works:
            return staying
        by_group: dict[str, dict[int, list[str]]] = {}
        for machine in machines:
            if machine.name in staying:
                group = self._machine_index.group_of(machine.name) or ""
                domains = by_group.setdefault(group, {})
                domains.setdefault(machine.domain, []).append(machine.name)
        return list(crowding(by_group))

    def on_host(self, name: str) -> HostState:
        """Return what is on a host that is being worked on, and whether it is cordoned."""
        host = self._store.registry.hosts.get(name)
        machines = [*self._hosts.machines_on(name), *self._hosts.disputed_on(name)]
        return HostState(
            machines=tuple(dict.fromkeys(machine.name for machine in machines)),
            cordoned=host is not None and bool(host.cordoned),
        )

    def configurations(self, machines: Iterable[str], now: World) -> Configurations:
        """Return the configurations that maintenance of these machines has to obey."""
        if self._rollout.ignore_windows:
            return ()
        found = (
            configurations_for(self._store.groups[name], names, now)
            for name, names in self._by_group(machines).items()
        )
        return tuple(dict.fromkeys(item for configurations in found for item in configurations))

    def halts(self, step: Step, now: World) -> tuple[Halt, ...]:
        """Return the halts because of which a step is not announced: of the whole fleet, of its
        host, or of one of its machines."""
        covering = {h.id: h for h in now.halts if not h.partial or _is_of_host(h, step.host, now)}
        if len(covering) < len(now.halts):
            for name, machines in self._by_group(self.present(step)).items():
                if name not in self._halted:
                    self._halted[name] = HaltedMachines(self._store.groups[name], now)
                covering |= {halt.id: halt for halt in self._halted[name].covering(machines)}
        return tuple(covering.values())

    def unreachable(self, step: Step, now: World) -> tuple[str, ...]:
        """Return the hosts of the step's machines that cannot be reached, so that it is not
        announced."""
        hosts = dict[str, None]()
        for name in self.present(step):
            known = self._machine_index.machine(name)
            if known is not None:
                hosts |= dict.fromkeys((known[1].host, known[1].disputed))
        return tuple(
            sorted(h for h in hosts if h in now.unreachable and now.unreachable[h] is None)
        )

    def _by_group(self, machines: Iterable[str]) -> dict[str, list[str]]:
        by_group: dict[str, list[str]] = {}
        for machine in machines:
            if group := self._machine_index.group_of(machine):
                by_group.setdefault(group, []).append(machine)
        return by_group

    def configurations_by_cause(self, rollout: Rollout, now: World) -> dict[str, Configurations]:
        """Return the configurations of all steps of a rollout that have any."""
        limited = bool(now.configurations) or any(
            group.policy.configuration for group in self._store.groups.values()
        )
        return {
            step.cause: configurations
            for step in (rollout.steps if limited else ())
            if (configurations := self.configurations(step.machines, now))
        }

    def _stays(self, name: str, machine: str) -> bool:
        if name not in self._staying:
            group = self._store.groups.get(name)
            self._staying[name] = _staying(group) if group is not None else frozenset()
        return machine in self._staying[name]


class Touched:
    """Machines that have changed, and the hosts that they have, or may have, come to."""

    def __init__(self, machines: frozenset[str], hosts: frozenset[str]) -> None:
        self.machines, self.hosts = machines, hosts

    def __bool__(self) -> bool:
        return bool(self.machines or self.hosts)


class LanesByMachine:
    """The lanes of a rollout by the machines they have, and by their hosts."""

    def __init__(self, rollout: Rollout) -> None:
        self._of_host: dict[str, int] = {}
        self._of_machine: dict[str, int] = {}
        for number, lane in enumerate(rollout.lanes):
            for step in lane.steps:
                if step.host:
                    self._of_host[step.host] = number
                else:
                    self._of_machine |= dict.fromkeys(step.machines, number)

    def read(self, host: str, machines: Sequence[str]) -> None:
        """Note the machines that were found on a host."""
        if host in self._of_host:
            self._of_machine |= dict.fromkeys(machines, self._of_host[host])

    def touched(self, touched: Touched) -> set[int]:
        lanes = {self._of_machine.get(machine) for machine in touched.machines}
        lanes |= {self._of_host.get(host) for host in touched.hosts}
        return {lane for lane in lanes if lane is not None}


def touched_by(commit: Commit) -> Touched:
    """Return the machines that a commit adds, removes, moves, relabels, or begins or ceases to
    delete, and the hosts that it changes. The host that a machine has left is not included; but a
    reader of that host has read the machine as well."""
    machines = set[str]()
    hosts = {put.host.name for put in commit.puts if isinstance(put, HostPut)}
    for entry in commit.entries:
        for item in entry.items:
            match item:
                case MachinePut(machine=machine):
                    machines.add(machine.name)
                    hosts.update({machine.host, machine.disputed} - {""})
                case MachineRemoved(name=name):
                    machines.add(name)
                case EventMoved(event=event) if event.traits.deletes:
                    if event.status is not Status.SCHEDULED:
                        machines.update(event.resources)
    return Touched(frozenset(machines), frozenset(hosts))


def _is_of_host(halt: Halt, host: str, now: World) -> bool:
    """Does a halt cover a host, whatever is on it?"""
    if halt.groups or halt.label:
        return False
    return host in now.halted_hosts.get(halt.host_label, ())


def _staying(group: Group) -> frozenset[str]:
    leaving = {
        name
        for event in group.events
        if event.traits.deletes and event.status is Status.STARTED
        for name in event.resources
    }
    return group.alive - leaving
