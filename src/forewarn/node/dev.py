"""A fleet on one machine: every pretended machine gets a loopback address of its own."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from importlib import resources

import msgspec

from forewarn.service import fleetfile
from forewarn.service.fleetfile import Fleet

FIRST_ADDRESS = ipaddress.IPv4Address("127.0.1.1")


def sample_fleet() -> Fleet:
    text = resources.files("forewarn.node").joinpath("sample-fleet.yaml").read_text("utf-8")
    return fleetfile.parse(text)


def on_loopback(fleet: Fleet) -> Fleet:
    """The fleet with addresses that can be asked from here; those it had stay its own affair."""
    addresses = _addresses()
    return Fleet(
        {
            name: msgspec.structs.replace(
                define,
                machines=tuple(
                    msgspec.structs.replace(machine, addresses=(next(addresses),))
                    for machine in define.machines
                ),
            )
            for name, define in fleet.groups.items()
        },
        fleet.hosts,
    )


def _addresses() -> Iterator[str]:
    address = FIRST_ADDRESS
    while address.is_loopback:
        if address.packed[-1] not in (0, 255):
            yield str(address)
        address += 1
