"""Changes of a single group, host or machine, with the same checks as for a whole fleet. Each is a
function from the current fleet to the wanted one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import msgspec

from forewarn.core import Machine, Refused
from forewarn.core.commands import Define
from forewarn.core.refusal import conflict, unknown_name
from forewarn.service.fleet.addresses import ANY_ADDRESS, AddressRules
from forewarn.service.fleet.build import Fleet, FleetError
from forewarn.service.fleet.diff import declared
from forewarn.service.fleet.export import machine_entry
from forewarn.service.fleet.read import Raw, parse_group, parse_host, parse_machine
from forewarn.service.fleet.shapes import PolicyEntry
from forewarn.service.indexes.machines import MachineIndex
from forewarn.support.text import listing

POLICY_KEYS = tuple(field.name for field in msgspec.structs.fields(PolicyEntry))

Change: TypeAlias = Callable[[Fleet], Fleet | Refused]


def put_group(
    name: str,
    text: str,
    ignored: Collection[str] = (),
    addresses: AddressRules = ANY_ADDRESS,
) -> Change:
    """The keys in `ignored` tell what a group is like, and cannot be changed here. Machines can be
    given by their names, if they are to stay as they are, and the policy without its own table."""

    def change(fleet: Fleet) -> Fleet:
        current = fleet.groups.get(name)

        kept: frozenset[str] = frozenset()

        def prepare(raw: Raw) -> Raw:
            nonlocal kept
            machines = raw.get("machines")
            if isinstance(machines, list):
                kept = frozenset(machine for machine in machines if isinstance(machine, str))
            known = {machine.name: machine for machine in current.machines} if current else {}
            return _as_group(_without(raw, ignored), known)

        group = parse_group(text, name, fleet, prepare, addresses)
        group = msgspec.structs.replace(group, observed=True, kept=kept)
        return Fleet({**fleet.groups, name: group}, fleet.hosts)

    return change


def _without(raw: Raw, ignored: Collection[str]) -> Raw:
    return {key: value for key, value in raw.items() if key not in ignored}


def _as_group(raw: Raw, known: Mapping[str, Machine]) -> Raw:
    machines = raw.get("machines")
    if isinstance(machines, list):
        raw["machines"] = [
            msgspec.to_builtins(machine_entry(known[machine]))
            if isinstance(machine, str) and machine in known
            else machine
            for machine in machines
        ]
    if "policy" not in raw:
        policy = {key: raw.pop(key) for key in POLICY_KEYS if key in raw}
        for key in ("terminate_notice", "image_notice", "back_within"):
            if isinstance(policy.get(key), int | float):
                policy[key] = f"{policy[key]:g}s"
        raw["policy"] = policy
    return raw


def put_machine(
    name: str,
    text: str,
    machine_index: MachineIndex,
    *,
    ignored: Collection[str] = (),
    keep: bool = False,
    addresses: AddressRules = ANY_ADDRESS,
) -> Change:
    """Create or change one machine of a fleet that has only the groups concerned. With `keep`, keys
    that are not given stay as they are. The index knows the machines of all groups."""
    says_where = not keep

    def prepare(raw: Raw) -> Raw:
        nonlocal says_where
        raw = _without(raw, ignored)
        says_where = says_where or "host" in raw
        if (known := machine_index.machine(name)) is not None:
            group, machine = known
            if raw.get("group") is None:
                raw["group"] = group.name
            if keep:
                before = msgspec.to_builtins(machine_entry(declared(machine)))
                raw = {**before, **raw}
                raw = {key: value for key, value in raw.items() if value is not None}
            stays = raw["group"] == group.name
            if (stays or not keep) and isinstance(raw.get("labels"), dict):
                of_group = group.labels.items()  # which are shown as the machine's, too
                raw["labels"] = {
                    key: value
                    for key, value in raw["labels"].items()
                    if (key, value) not in of_group or key in machine.labels
                }
        return raw

    def change(fleet: Fleet) -> Fleet:
        group, define = parse_machine(text, name, fleet, prepare, addresses)
        if says_where:
            define = msgspec.structs.replace(define, placed=frozenset([name]))
        machine = next(machine for machine in define.machines if machine.name == name)
        found = [(f"vm_id '{machine.vm_id}'", machine_index.with_id(machine.vm_id))]
        found += [
            (f"address '{address}'", other.name)
            for address in machine.addresses
            for other in machine_index.at(address)
            if not addresses.per_host or other.host == machine.host
        ]
        for what, other_name in found:
            if other_name not in (None, name):
                raise FleetError(f"{what} occurs twice: machine '{other_name}' has it")
        groups = {
            other: _left(by_group, name) if other != group else define
            for other, by_group in fleet.groups.items()
        }
        return Fleet({n: define for n, define in groups.items() if define.machines}, fleet.hosts)

    return change


def _left(define: Define, machine: str) -> Define:
    others = tuple(other for other in define.machines if other.name != machine)
    return msgspec.structs.replace(define, machines=others)


def remove_group(name: str) -> Change:
    def change(fleet: Fleet) -> Fleet | Refused:
        if name not in fleet.groups:
            return unknown_name("group", name, list(fleet.groups))
        others = {other: define for other, define in fleet.groups.items() if other != name}
        return Fleet(others, fleet.hosts)

    return change


def put_host(name: str, text: str, ignored: Collection[str] = ()) -> Change:
    """The keys in `ignored` tell what a host is like, and cannot be changed here."""

    def change(fleet: Fleet) -> Fleet:
        new = parse_host(text, name, lambda raw: _without(raw, ignored))
        others = [host for host in fleet.hosts if host.name != name]
        return Fleet(fleet.groups, (*others, new))

    return change


def remove_host(name: str, current_host: Callable[[str], str] = lambda _: "") -> Change:
    """`current_host` returns the host that a machine is on, which may differ from the inventory."""

    def change(fleet: Fleet) -> Fleet | Refused:
        names = [host.name for host in fleet.hosts]
        if name not in names:
            return unknown_name("host", name, names)
        machines = [machine.name for machine in fleet.machines if machine.host == name]
        for machine in machines:
            if (actual := current_host(machine)) and actual != name:
                return conflict(
                    f"the inventory still puts {machine} on {name}, but it is on {actual} now;"
                    f" put it there first (host: {actual})"
                )
        if machines:
            return conflict(
                f"host '{name}' still has machines: {listing(machines)}; remove them or put them on"
                " another host first"
            )
        return Fleet(fleet.groups, tuple(host for host in fleet.hosts if host.name != name))

    return change


def remove_machine(name: str) -> Change:
    def change(fleet: Fleet) -> Fleet | Refused:
        for group, define in fleet.groups.items():
            without = _left(define, name)
            if len(without.machines) < len(define.machines):
                if not without.machines:
                    return remove_group(group)(fleet)
                return Fleet({**fleet.groups, group: without}, fleet.hosts)
        names = [machine.name for machine in fleet.machines]
        return unknown_name("machine", name, names)

    return change
