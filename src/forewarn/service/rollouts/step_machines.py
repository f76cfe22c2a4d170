"""The machines that the steps of a rollout have now, and the groups and hosts this depends on.

The next step of a rollout has to be computed again when one of these machines is added, removed or
moved: what was read is remembered, and compared with what a commit touches.
"""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.core import Group, Status
from forewarn.core.changes import EventMoved, MachinePut, MachineRemoved
from forewarn.core.rollouts.model import Step
from forewarn.service.indexes.machines import MachineIndex
from forewarn.service.platform.hosts import Hosts
from forewarn.store.port import Commit, Store


class StepMachines:
    """The machines of steps at one moment; each group is read once."""

    def __init__(self, store: Store, hosts: Hosts, machine_index: MachineIndex) -> None:
        self._store, self._hosts, self._machine_index = store, hosts, machine_index
        self._staying: dict[str, frozenset[str]] = {}
        self._on: set[str] = set()

    def present(self, step: Step) -> Sequence[str]:
        """Return the machines that a step has now, without those that are gone or being deleted."""
        if not step.host:
            return [name for name in step.machines if self._stays(step.group, name)]
        self._on.add(step.host)
        names = [machine.name for machine in self._hosts.machines_on(step.host)]
        return [n for n in names if self._stays(self._machine_index.group_of(n) or "", n)]

    @property
    def read(self) -> Touched:
        return Touched(frozenset(self._staying), frozenset(self._on))

    def _stays(self, name: str, machine: str) -> bool:
        if name not in self._staying:
            group = self._store.groups.get(name)
            self._staying[name] = _staying(group) if group is not None else frozenset()
        return machine in self._staying[name]


class Touched:
    """Groups and hosts whose machines were read, or have changed."""

    def __init__(self, groups: frozenset[str], hosts: frozenset[str]) -> None:
        self.groups, self.hosts = groups, hosts

    def __bool__(self) -> bool:
        return bool(self.groups or self.hosts)

    def meets(self, other: Touched) -> bool:
        return not (self.groups.isdisjoint(other.groups) and self.hosts.isdisjoint(other.hosts))


def touched_by(commit: Commit) -> Touched:
    """Return the groups and hosts whose machines a commit adds, removes, moves, or begins or ceases
    to delete. The host that a machine has left is not included; but a reader of that host has
    read the machine's group as well."""
    groups, hosts = set[str](), set[str]()
    for entry in commit.entries:
        for item in entry.items:
            match item:
                case MachinePut(machine=machine):
                    groups.add(entry.group)
                    hosts.add(machine.host)
                case MachineRemoved():
                    groups.add(entry.group)
                case EventMoved(event=event) if event.traits.deletes:
                    if event.status is not Status.SCHEDULED:
                        groups.add(entry.group)
    return Touched(frozenset(groups), frozenset(hosts))


def _staying(group: Group) -> frozenset[str]:
    leaving = {
        name
        for event in group.events
        if event.traits.deletes and event.status is Status.STARTED
        for name in event.resources
    }
    return group.alive - leaving
