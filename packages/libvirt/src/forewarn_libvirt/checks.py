"""Whether an event can be carried out, before it is announced."""

from __future__ import annotations

import contextlib
from typing import Any
from xml.etree import ElementTree

import libvirt

from forewarn.drivers.port import Checked, Ok, Task, TaskMachine, Veto
from forewarn_libvirt import disks
from forewarn_libvirt.definitions import Definitions
from forewarn_libvirt.hosts import Domain, Hosts, reaching
from forewarn_libvirt.options import LibvirtOptions

# Devices that are a part of their host.
_BOUND = ("hostdev", "interface[@type='hostdev']", "filesystem", "tpm/backend[@type='passthrough']")


def why_not(task: Task, options: LibvirtOptions, hosts: Hosts, definitions: Definitions) -> Checked:
    """Raises Unreachable."""
    if not task.machines:
        return Veto("none of its machines exists")
    for machine in task.machines:
        if why := _why_not(task, machine, options, hosts, definitions):
            return Veto(why)
    return Ok()


def _why_not(
    task: Task,
    machine: TaskMachine,
    options: LibvirtOptions,
    hosts: Hosts,
    definitions: Definitions,
) -> str:
    name, host = machine.name, machine.host
    if not host:
        return f"the fleet does not say which host {name} is on"
    if machine.host_failed:
        return _why_not_elsewhere(machine, definitions)
    domain = hosts.find(host, name, machine.vm_id)
    if domain is None:
        return f"there is no domain {name} on {host}"
    if task.type.traits.deletes:
        return ""
    definitions.keep(domain)
    if not domain.active and not task.type.traits.restarts:
        return f"{name} is not running on {host}"
    if not domain.persistent and not task.type.traits.keeps_memory:
        return f"{name} has no definition from which it could be started again (virsh define)"
    if task.moves or (task.type.traits.relocates and machine.target):
        return _why_not_moved(task, machine, domain, options, hosts)
    return ""


def _why_not_elsewhere(machine: TaskMachine, definitions: Definitions) -> str:
    if not definitions:
        return (
            f"{machine.host} has failed, and libvirt.definitions does not name a directory in which"
            f" the definition of {machine.name} was kept"
        )
    if definitions.find(machine.host, machine.name, machine.vm_id) is None:
        return f"no definition of {machine.name} on {machine.host} was kept"
    return ""


def _why_not_moved(
    task: Task, machine: TaskMachine, domain: Domain, options: LibvirtOptions, hosts: Hosts
) -> str:
    name, target = machine.name, machine.target
    if not target:
        return f"there is no host that {name} could move to"
    definition = domain.definition()
    if not (task.moves and options.copy_disks):
        local = disks.local(definition, options.shared, boot=not task.moves)
        if local:
            return f"{name} cannot leave {domain.host}: {local[0]} is on no shared storage"
    devices = ElementTree.fromstring(definition).find("devices")
    bound = [path for path in _BOUND if devices is not None and devices.find(path) is not None]
    if bound:
        kind = bound[0].partition("[")[0]
        return f"{name} cannot leave {domain.host}: it has a <{kind}> of that host"
    connection = hosts.connection(target)
    if task.moves and domain.active:
        with reaching(target):
            return _why_not_cpu(machine, domain, connection)
    return ""


def _why_not_cpu(machine: TaskMachine, domain: Domain, target: Any) -> str:
    """An emulated CPU is the same everywhere, and some hypervisors cannot compare."""
    if ElementTree.fromstring(domain.definition()).get("type") != "kvm":
        return ""
    definition = domain.handle.XMLDesc(libvirt.VIR_DOMAIN_XML_UPDATE_CPU)
    cpu = ElementTree.fromstring(definition).find("cpu")
    if cpu is not None and cpu.get("mode") == "host-passthrough":
        capabilities = ElementTree.fromstring(domain.handle.connect().getCapabilities())
        cpu = capabilities.find("host/cpu")
    compared = libvirt.VIR_CPU_COMPARE_IDENTICAL
    if cpu is not None:
        with contextlib.suppress(libvirt.libvirtError):
            compared = target.compareCPU(ElementTree.tostring(cpu, encoding="unicode"))
    if compared == libvirt.VIR_CPU_COMPARE_INCOMPATIBLE:
        return f"{machine.name} cannot run on {machine.target}: that has another CPU"
    return ""
