"""A fleet on one computer: gives every simulated machine a loopback address of its own, which it
keeps until it is removed from the fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources

import msgspec

from forewarn.core import Group
from forewarn.service.fleet import read
from forewarn.service.fleet.read import Fleet, FleetError

FIRST_ADDRESS = (127 << 24) + (1 << 8) + 1  # 127.0.1.1
LAST_ADDRESS = (128 << 24) - 1

SAMPLE = resources.files("forewarn.node").joinpath("sample-fleet.yaml").read_text("utf-8")
"""The fleet file of `forewarn dev`, for `Service(SAMPLE)`."""


def sample_fleet() -> Fleet:
    return read.parse(SAMPLE)


def on_loopback(fleet: Fleet, groups: Mapping[str, Group] | None = None) -> Fleet:
    """Return the fleet with a loopback address for each machine, in place of those it had.

    Machines that are already in `groups` keep the addresses they have there."""
    names = {machine.name for define in fleet.groups.values() for machine in define.machines}
    assigned = {
        machine.name: machine.addresses[0]
        for group in (groups or {}).values()
        for machine in group.machines
        if machine.addresses and machine.name in names
    }
    addresses = _free_addresses(set(assigned.values()))
    return Fleet(
        {
            name: msgspec.structs.replace(
                define,
                machines=tuple(
                    msgspec.structs.replace(
                        machine, addresses=(assigned.get(machine.name) or next(addresses),)
                    )
                    for machine in define.machines
                ),
            )
            for name, define in fleet.groups.items()
        },
        fleet.hosts,
        fleet.configurations,
    )


def _free_addresses(taken: set[str]) -> Iterator[str]:
    for number in range(FIRST_ADDRESS, LAST_ADDRESS):
        if number & 255 not in (0, 255):
            address = f"127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
            if address not in taken:
                yield address
    raise FleetError("there are more machines than loopback addresses")
