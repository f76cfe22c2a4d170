"""Changes of a single group, host or machine, with the same checks as for a whole fleet. Each is a
function from the current fleet to the wanted one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from forewarn.core import Refused
from forewarn.core.refusal import conflict, unknown_name
from forewarn.service.fleet.build import Fleet
from forewarn.service.fleet.read import parse_group, parse_host
from forewarn.support.text import listing

Change: TypeAlias = Callable[[Fleet], Fleet | Refused]


def put_group(name: str, text: str) -> Change:
    def change(fleet: Fleet) -> Fleet:
        group = parse_group(text, name, fleet)
        return Fleet({**fleet.groups, name: group}, fleet.hosts)

    return change


def remove_group(name: str) -> Change:
    def change(fleet: Fleet) -> Fleet | Refused:
        if name not in fleet.groups:
            return unknown_name("group", name, list(fleet.groups))
        others = {other: define for other, define in fleet.groups.items() if other != name}
        return Fleet(others, fleet.hosts)

    return change


def put_host(name: str, text: str) -> Change:
    def change(fleet: Fleet) -> Fleet:
        new = parse_host(text, name)
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
            others = tuple(machine for machine in define.machines if machine.name != name)
            if len(others) < len(define.machines):
                if not others:
                    return remove_group(group)(fleet)
                without = msgspec.structs.replace(define, machines=others)
                return Fleet({**fleet.groups, group: without}, fleet.hosts)
        names = [machine.name for machine in fleet.machines]
        return unknown_name("machine", name, names)

    return change
