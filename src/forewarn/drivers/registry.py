"""Drivers by name: those built in, and those that installed packages bring along.

A package offers a driver by an entry point in the group `forewarn.drivers` that leads to a
`DriverType`:

    [project.entry-points."forewarn.drivers"]
    libvirt = "forewarn_libvirt:DRIVER"

The setting `driver` selects it by that name, and its options are in the table of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from forewarn.drivers.port import Driver, DriverContext, DriverOptions
from forewarn.support.suggest import instead_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "forewarn.drivers"
SIMULATED, COMMAND, HOSTS = "simulated", "command", "hosts"
BUILT_IN = {  # imported when selected
    SIMULATED: "forewarn.drivers.simulated:DRIVER",
    COMMAND: "forewarn.drivers.command.driver:DRIVER",
    HOSTS: "forewarn.drivers.hosts.driver:DRIVER",
}
NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)  # as a key of the settings and in variables


class DriverUnusable(Exception):
    """There is no such driver, or it cannot be loaded; the message says what there is."""


class DriverType(msgspec.Struct, frozen=True):
    """A kind of driver: its options, and how one is made."""

    make: Callable[[Any, DriverContext], Driver]  # called with an instance of `options`
    options: type[DriverOptions] = DriverOptions


class DriverConfig(msgspec.Struct, frozen=True):
    """The driver that a service uses."""

    name: str = SIMULATED
    options: DriverOptions = DriverOptions()


def names() -> list[str]:
    """Return the names of all drivers; none of them is imported."""
    return [*BUILT_IN, *sorted(_installed())]


def exists(name: str) -> bool:
    return name in BUILT_IN or name in _installed()


def load(name: str) -> DriverType:
    """Import a driver. Raises DriverUnusable."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        driver_type: DriverType = getattr(import_module(module), attribute)
        return driver_type
    installed = _installed()
    if name not in installed:
        raise DriverUnusable(f"unknown driver; {instead_of(name, names())}")
    entry_point = installed[name]
    package = entry_point.dist.name if entry_point.dist else "an installed package"
    try:
        loaded = entry_point.load()
    except Exception as error:  # whatever a foreign package raises
        raise DriverUnusable(
            f"{entry_point.value} of {package} cannot be imported: {error!r}"
        ) from error
    if not isinstance(loaded, DriverType):
        raise DriverUnusable(
            f"{entry_point.value} of {package} is not a forewarn.drivers.registry.DriverType,"
            f" but {type(loaded).__name__}"
        )
    return loaded


def make(config: DriverConfig, context: DriverContext) -> Driver:
    return load(config.name).make(config.options, context)


def _installed() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # slow if many packages are installed

    return {
        entry_point.name: entry_point
        for entry_point in entry_points(group=GROUP)
        if NAME.fullmatch(entry_point.name) and entry_point.name not in BUILT_IN
    }
