"""What libvirt knows of a domain, as the inventory wants to know it."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree

import libvirt
import msgspec

from forewarn.drivers.port import MachineState, SeenMachine
from forewarn_libvirt.hosts import Domain

# Where a machine belongs, in the metadata of its domain:
# <machine xmlns="urn:forewarn:machine:1" group="web" update_domain="0" address="10.0.0.1"/>
MACHINE = "urn:forewarn:machine:1"


class Place(msgspec.Struct, frozen=True):
    """Where a machine belongs in the inventory."""

    group: str = ""
    update_domain: int | None = None
    address: str = ""  # one or several
    spot: bool = False


Places: TypeAlias = Mapping[str, Place]  # by UUID or name of a domain

_KIB = 1 << 10
_STATES = {
    libvirt.VIR_DOMAIN_RUNNING: MachineState.RUNNING,
    libvirt.VIR_DOMAIN_BLOCKED: MachineState.RUNNING,
    libvirt.VIR_DOMAIN_SHUTDOWN: MachineState.RUNNING,
    libvirt.VIR_DOMAIN_PAUSED: MachineState.PAUSED,
    libvirt.VIR_DOMAIN_PMSUSPENDED: MachineState.PAUSED,
    libvirt.VIR_DOMAIN_CRASHED: MachineState.CRASHED,
}
_REASONS = {  # why a domain is in a state, by the names that libvirt gives them
    (state, getattr(libvirt, name)): name.removeprefix(prefix).lower().replace("_", " ")
    for state, prefix in (
        (libvirt.VIR_DOMAIN_PAUSED, "VIR_DOMAIN_PAUSED_"),
        (libvirt.VIR_DOMAIN_SHUTOFF, "VIR_DOMAIN_SHUTOFF_"),
        (libvirt.VIR_DOMAIN_CRASHED, "VIR_DOMAIN_CRASHED_"),
        (libvirt.VIR_DOMAIN_SHUTDOWN, "VIR_DOMAIN_SHUTDOWN_"),
    )
    for name in dir(libvirt)
    if name.startswith(prefix)
}
_AGENT = "devices/channel[@type='unix']/target[@name='org.qemu.guest_agent.0']"


def read_places(path: str) -> Places:
    """Read the file that says where machines belong. Raises OSError and ValueError."""
    return msgspec.toml.decode(Path(path).read_bytes(), type=dict[str, Place]) if path else {}


def seen(domain: Domain, places: Places) -> SeenMachine:
    """Raises libvirtError, also if the domain is gone meanwhile."""
    definition = ElementTree.fromstring(domain.handle.XMLDesc(0))
    _, most, _, cpus, _ = domain.handle.info()
    name, vm_id = domain.handle.name(), domain.handle.UUIDString()
    place = places.get(vm_id) or places.get(name) or _described(definition)
    return SeenMachine(
        name=name,
        vm_id=vm_id,
        state=_state(domain),
        reason=_REASONS.get((domain.state, domain.reason), ""),
        addresses=tuple(place.address.split()) or _addresses(domain, definition),
        ports=dict(_ports(definition)),
        memory=most * _KIB,
        cpus=cpus,
        group=place.group,
        update_domain=place.update_domain,
        spot=place.spot,
    )


def _described(definition: ElementTree.Element) -> Place:
    written = definition.find(f"metadata/{{{MACHINE}}}machine")
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert({} if written is None else written.attrib, Place, strict=False)
    return Place()


def _state(domain: Domain) -> MachineState:
    if (domain.state, domain.reason) == (
        libvirt.VIR_DOMAIN_SHUTOFF,
        libvirt.VIR_DOMAIN_SHUTOFF_CRASHED,
    ):
        return MachineState.CRASHED
    return _STATES.get(domain.state, MachineState.STOPPED)


def _ports(definition: ElementTree.Element) -> Iterator[tuple[str, str]]:
    for interface in definition.iterfind("devices/interface"):
        port, mac = interface.find("target"), interface.find("mac")
        if port is not None and mac is not None and port.get("dev"):
            yield port.get("dev", ""), mac.get("address", "")


def _addresses(domain: Domain, definition: ElementTree.Element) -> tuple[str, ...]:
    """Return the addresses that libvirt has leased to a domain, or those that its agent knows."""
    if not domain.active:
        return ()
    sources = []
    if definition.find("devices/interface[@type='network']") is not None:
        sources.append(libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE)
    agent = definition.find(_AGENT)
    if agent is not None and agent.get("state") == "connected":
        sources.append(libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT)
    for source in sources:
        with contextlib.suppress(libvirt.libvirtError):
            interfaces = domain.handle.interfaceAddresses(source).values()
            known = [a["addr"] for interface in interfaces for a in interface["addrs"] or ()]
            if usable := tuple(_usable(known)):
                return usable
    return ()


def _usable(addresses: Iterable[str]) -> Iterator[str]:
    for text in addresses:
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(text)
            if not address.is_loopback and not address.is_link_local:
                yield text
