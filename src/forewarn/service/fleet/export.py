"""A fleet as the contents of a fleet file; applying that file changes nothing."""

from __future__ import annotations

import msgspec

from forewarn.core import Machine
from forewarn.core.commands import Define
from forewarn.core.fleet import NO_CAPACITY, NO_SIZE, Capacity, Host, Policy, Size
from forewarn.core.time import SECOND
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.service.fleet.build import Fleet
from forewarn.service.fleet.shapes import (
    CapacityEntry,
    FleetEntry,
    GroupEntry,
    HostEntry,
    MachineEntry,
    MaintenanceEntry,
    PolicyEntry,
    SizeEntry,
)


def entry_of(fleet: Fleet) -> FleetEntry:
    return FleetEntry(
        hosts=[host_entry(host) for host in fleet.hosts],
        groups=[group_entry(name, define) for name, define in fleet.groups.items()],
        maintenance=[configuration_entry(item) for item in fleet.configurations or ()] or None,
    )


def configuration_entry(configuration: MaintenanceConfiguration) -> MaintenanceEntry:
    return MaintenanceEntry(
        name=configuration.name,
        select=configuration.select,
        windows=[window.text for window in configuration.windows],
        blackouts=[blackout.text for blackout in configuration.blackouts],
    )


def host_entry(host: Host) -> HostEntry:
    return HostEntry(
        name=host.name,
        labels=host.labels,
        capacity=capacity_entry(host.capacity),
        cordoned=host.cordoned or None,
    )


def size_entry(size: Size) -> SizeEntry | None:
    return None if size == NO_SIZE else SizeEntry(memory=size.memory, cpus=size.cpus)


def capacity_entry(capacity: Capacity) -> CapacityEntry | None:
    return None if capacity == NO_CAPACITY else CapacityEntry(**msgspec.structs.asdict(capacity))


def group_entry(name: str, define: Define) -> GroupEntry:
    place = define.place
    return GroupEntry(
        name=name,
        kind=define.kind,
        machines=[machine_entry(machine) for machine in define.machines],
        policy=_policy(define.policy),
        labels=define.labels,
        scale_set="" if place.scale_set == name else place.scale_set,
        flexible=place.flexible,
        location=place.location,
        zone=place.zone,
        resource_group=place.resource_group,
        subscription=place.subscription,
    )


def machine_entry(machine: Machine) -> MachineEntry:
    return MachineEntry(
        name=machine.name,
        addresses=list(machine.addresses),
        update_domain=machine.update_domain,
        fault_domain=machine.fault_domain,
        host=machine.host,
        spot=machine.spot,
        computer_name=machine.computer_name,
        vm_id=machine.vm_id,
        tags=machine.tags,
        labels=machine.labels,
        size=size_entry(machine.size),
    )


def _policy(policy: Policy) -> PolicyEntry:
    notice, image, back = policy.terminate_notice, policy.image_notice, policy.back_within
    return PolicyEntry(
        user_event_limit=policy.user_event_limit,
        auto_approve=list(policy.auto_approve),
        all_instances_down=policy.all_instances_down,
        event_grid=policy.event_grid,
        terminate_notice=None if notice is None else f"{notice / SECOND:g}s",
        image_notice=None if image is None else f"{image / SECOND:g}s",
        windows=[window.text for window in policy.windows],
        blackouts=[blackout.text for blackout in policy.blackouts],
        may_postpone=None if policy.may_postpone is None else str(policy.may_postpone),
        over_when=policy.over_when,
        back_within=None if back is None else f"{back / SECOND:g}s",
    )
