"""Index of machines and their groups by name, kept up to date by every commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from forewarn.core import Group, Machine
from forewarn.core.group import replaced
from forewarn.core.refusal import Refused, unknown_name
from forewarn.store.port import Commit, Store


class MachineIndex:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._group_of: dict[str, str] = {}
        self._members: dict[str, tuple[Machine, ...]] = {}
        self._at: dict[str, str] = {}  # by address: a machine that has it
        self._also_at: dict[str, set[str]] = {}  # by address: the others, which are on other hosts
        self._with_id: dict[str, str] = {}  # the same by vm_id
        store.on_commit(self._on_commit)

    def load(self) -> None:
        for group in self._store.groups.values():
            self._index(group)

    @property
    def count(self) -> int:
        return len(self._group_of)

    def group_of(self, machine: str) -> str | None:
        return self._group_of.get(machine)

    def machine(self, name: str) -> tuple[Group, Machine] | None:
        group = self._store.groups.get(self._group_of.get(name, ""))
        machine = group.machine(name) if group else None
        return (group, machine) if group and machine else None

    def at(self, address: str) -> list[Machine]:
        """Return the machines that have this address: on each host at most one."""
        if address not in self._at:
            return []
        names = [self._at[address], *sorted(self._also_at.get(address, ()))]
        return [place[1] for name in names if (place := self.machine(name))]

    def present_at(self, address: str, host: str = "") -> Machine | None:
        """Return the machine that has this address, on a host or anywhere, unless it is gone."""
        for machine in self.at(address):
            if machine.alive and host in ("", machine.host):
                return machine
        return None

    def with_id(self, vm_id: str) -> str | None:
        """Return the machine that has this id."""
        return self._with_id.get(vm_id.lower())

    def group(self, name: str) -> Group | None:
        group = self._store.groups.get(name)
        return group if group and group.machines else None

    def groups(self) -> Iterator[Group]:
        return (group for group in self._store.groups.values() if group.machines)

    def unknown_machine(self, name: str) -> Refused:
        return unknown_name("machine", name, self._group_of)

    def unknown_group(self, name: str) -> Refused:
        return unknown_name("group", name, [group.name for group in self.groups()])

    def _on_commit(self, _commit: Commit, changed: Mapping[str, Group]) -> None:
        for group in changed.values():
            self._index(group)

    def _index(self, group: Group) -> None:
        members = self._members.get(group.name, ())
        if members is group.machines:  # as with nearly every commit
            return
        gone, come = replaced(members, group.machines)
        after = {machine.name for machine in come}
        for machine in gone:
            name = machine.name
            if name not in after and self._group_of.get(name) == group.name:
                del self._group_of[name]  # else it has moved to another group
        for machine in come:
            self._group_of[machine.name] = group.name
        if group.machines:
            self._members[group.name] = group.machines
        else:
            self._members.pop(group.name, None)
        for machine in gone:
            self._forget(machine)
        for machine in come:
            self._with_id[_id_of(machine)] = machine.name
            for address in machine.addresses:
                if self._at.setdefault(address, machine.name) != machine.name:
                    self._also_at.setdefault(address, set()).add(machine.name)

    def _forget(self, machine: Machine) -> None:
        """Forget the address and id of a machine, unless it has them in another group now."""
        place = self.machine(machine.name)
        current = place[1] if place else None
        for address in machine.addresses:
            if not (current and address in current.addresses):
                self._forget_address(machine.name, address)
        vm_id = _id_of(machine)
        if self._with_id.get(vm_id) == machine.name and not (current and _id_of(current) == vm_id):
            del self._with_id[vm_id]

    def _forget_address(self, machine: str, address: str) -> None:
        others = self._also_at.get(address, set())
        others.discard(machine)
        if self._at.get(address) == machine:
            if others:
                self._at[address] = others.pop()
            else:
                del self._at[address]
        if not others:
            self._also_at.pop(address, None)


def _id_of(machine: Machine) -> str:
    """Return the id in lower case; the machine's own text if it is, which takes no more memory."""
    lower = machine.vm_id.lower()
    return machine.vm_id if machine.vm_id == lower else lower
