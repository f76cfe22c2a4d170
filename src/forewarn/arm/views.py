"""Machines, scale sets, availability sets and hosts as resources of Azure Resource Manager."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from forewarn.arm import inventory as i
from forewarn.arm.preconditions import machine_tag, scale_set_tag
from forewarn.arm.times import iso_duration, moment
from forewarn.control.views import azure
from forewarn.core import Event, EventType, Group, GroupKind, Machine, Policy, Source, Status
from forewarn.core.events import UNKNOWN_DURATION
from forewarn.core.fleet import Health, Host
from forewarn.core.time import SECOND, Duration, Time
from forewarn.metadata.endpoint.to_wire import VM_SIZE, computer_name
from forewarn.wire.versions import NEWEST

SUCCEEDED = "Succeeded"
PROVISIONED = "ProvisioningState/succeeded"
# Machines have no size, image or disk; clients expect them.
SIZE = VM_SIZE
IMAGE = {"publisher": "forewarn", "offer": "forewarn", "sku": "forewarn", "version": "latest"}
MANAGED_DISK = {"storageAccountType": "Premium_LRS"}
OS_DISK = {
    "osType": "Linux",
    "createOption": "FromImage",
    "caching": "ReadWrite",
    "diskSizeGB": 30,
    "managedDisk": MANAGED_DISK,
}
OS_PROFILE: dict[str, Any] = {
    "adminUsername": "azureuser",
    "linuxConfiguration": {"disablePasswordAuthentication": True, "provisionVMAgent": True},
    "secrets": [],
    "allowExtensionOperations": False,
}


def vm_id(machine: Machine) -> str:
    """Return the id of a machine; if it has none, one that is always the same."""
    return machine.vm_id or str(uuid.uuid5(uuid.NAMESPACE_DNS, machine.name))


def events_of(group: Group, machine: Machine) -> list[Event]:
    return [event for event in group.events if machine.name in event.resources]


def maintenance_of(events: Iterable[Event], *, under_way: bool = False) -> Event | None:
    """Return the planned maintenance of a machine that its user can have done early; with
    `under_way`, also if it has started."""
    for event in events:
        if (
            (under_way or event.status is Status.SCHEDULED)
            and event.source is Source.PLATFORM
            and not event.unannounced
            and not event.traits.deletes
        ):
            return event
    return None


def virtual_machine(
    group: Group, machine: Machine, now: Time, *, expand: bool = False
) -> dict[str, Any]:
    events, disk = events_of(group, machine), _disk_of(machine)
    disk_id = f"{azure.group_id(group)}/providers/Microsoft.Compute/disks/{disk}"
    properties: dict[str, Any] = {
        "vmId": vm_id(machine),
        "provisioningState": _provisioning_state(events),
        "hardwareProfile": {"vmSize": SIZE},
        "timeCreated": i.CREATED,
        "storageProfile": {
            "imageReference": IMAGE,
            "osDisk": {**OS_DISK, "name": disk, "managedDisk": {**MANAGED_DISK, "id": disk_id}},
            "dataDisks": [],
        },
        "osProfile": {"computerName": computer_name(machine, group.place), **OS_PROFILE},
        "networkProfile": {"networkInterfaces": []},
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": False}},
    }
    if machine.spot:
        properties |= {"priority": "Spot", "evictionPolicy": "Delete"}
    if azure.scale_set_of(group):
        properties["virtualMachineScaleSet"] = {"id": azure.scale_set_id(group)}
    elif group.kind is GroupKind.AVAILABILITY_SET:
        properties["availabilitySet"] = {"id": i.availability_set_id(group)}
    elif group.kind is GroupKind.STANDALONE:
        properties["scheduledEventsPolicy"] = _events_policy(group.policy)
    if machine.host:
        properties["host"] = {"id": i.host_id(machine.host)}
    if expand:
        properties["instanceView"] = instance_view(group, machine, now)
    body: dict[str, Any] = {
        "id": i.machine_id(group, machine),
        "name": machine.name,
        "type": azure.MACHINES,
        "etag": machine_tag(group, machine),
        "location": azure.location_of(group),
        "tags": machine.tags,
        "properties": properties,
    }
    if group.place.zone:
        body["zones"] = [group.place.zone]
    return body


def instance(group: Group, machine: Machine, now: Time, *, expand: bool = False) -> dict[str, Any]:
    """Return a member of a scale set; of a flexible one, it is shown as the machine that it is."""
    body = virtual_machine(group, machine, now, expand=expand)
    body["instanceId"] = i.instance_id(group, machine)
    if not i.is_uniform(group):
        return body
    body["type"] = f"{azure.SCALE_SETS}/virtualMachines"
    body["sku"] = {"name": SIZE, "tier": "Standard"}
    properties = body["properties"]
    properties.pop("virtualMachineScaleSet", None)
    properties |= {"latestModelApplied": True, "modelDefinitionApplied": "VirtualMachineScaleSet"}
    return body


def instance_view(group: Group, machine: Machine, now: Time) -> dict[str, Any]:
    events = events_of(group, machine)
    view: dict[str, Any] = {
        "platformUpdateDomain": machine.update_domain,
        "platformFaultDomain": machine.fault_domain,
        "computerName": computer_name(machine, group.place),
        "osName": "Linux",
        "hyperVGeneration": "V2",
        "disks": [{"name": _disk_of(machine), "statuses": [_provisioned(now)]}],
        "vmAgent": {"vmAgentVersion": "1.0.0", "statuses": [_provisioned(now)]},
        "statuses": [
            {**_provisioned(now), **_provisioning_status(events)},
            _power_state(events),
        ],
    }
    if machine.host:
        view["assignedHost"] = i.host_id(machine.host)
    if (status := maintenance_status(events)) is not None:
        view["maintenanceRedeployStatus"] = status
    return view


def _disk_of(machine: Machine) -> str:
    return f"{machine.name}-os"


def status_codes(group: Group, machine: Machine) -> list[str]:
    """Return the codes of the statuses in a machine's instance view."""
    events = events_of(group, machine)
    return [_provisioning_status(events)["code"], _power_state(events)["code"]]


def _provisioned(now: Time) -> dict[str, Any]:
    return {
        "code": PROVISIONED,
        "level": "Info",
        "displayStatus": "Provisioning succeeded",
        "time": moment(now),
    }


def maintenance_status(events: Iterable[Event]) -> dict[str, Any] | None:
    """Return the planned maintenance of a machine, which its user can have done early."""
    event = maintenance_of(events)
    if event is None:
        return None
    end = event.not_before + max(event.duration, 0) * SECOND
    return {
        "isCustomerInitiatedMaintenanceAllowed": event.approved is None,
        "preMaintenanceWindowStartTime": moment(event.raised_at),
        "preMaintenanceWindowEndTime": moment(event.not_before),
        "maintenanceWindowStartTime": moment(event.not_before),
        "maintenanceWindowEndTime": moment(end),
        "lastOperationResultCode": "None",
        "lastOperationMessage": event.description,
    }


def _provisioning_state(events: Iterable[Event]) -> str:
    """Return what is being done to a machine: what its user has asked for from then on, so that a
    client that waits until it is updated waits for the guest as well; all else once it begins."""
    under_way = [
        event
        for event in events
        if event.status is Status.STARTED
        or event.source is Source.USER
        or event.type is EventType.TERMINATE
    ]
    if any(event.traits.deletes for event in under_way):
        return "Deleting"
    return "Updating" if under_way else SUCCEEDED


def _provisioning_status(events: Iterable[Event]) -> dict[str, str]:
    state = _provisioning_state(events)
    shown = "Provisioning succeeded" if state == SUCCEEDED else state
    return {"code": f"ProvisioningState/{state.lower()}", "displayStatus": shown}


def _power_state(events: Iterable[Event]) -> dict[str, Any]:
    state = "running"
    for event in events:
        if event.status is Status.STARTED and event.traits.deletes:
            state = "deallocating"
        elif event.status is Status.STARTED and event.traits.restarts:
            state = "starting"
    return {"code": f"PowerState/{state}", "level": "Info", "displayStatus": f"VM {state}"}


def availability_set(group: Group) -> dict[str, Any]:
    alive = [machine for machine in group.machines if machine.alive]
    return {
        "id": i.availability_set_id(group),
        "name": group.name,
        "type": i.AVAILABILITY_SETS,
        "location": azure.location_of(group),
        "tags": {},
        "sku": {"name": "Aligned"},
        "properties": {
            "platformUpdateDomainCount": len({machine.update_domain for machine in alive}),
            "platformFaultDomainCount": len({machine.fault_domain for machine in alive}),
            "virtualMachines": [{"id": i.machine_id(group, machine)} for machine in alive],
            "scheduledEventsPolicy": _events_policy(group.policy),
        },
    }


def _events_policy(policy: Policy) -> dict[str, Any]:
    published = {"enable": policy.event_grid, "scheduledEventsApiVersion": NEWEST.name}
    return {
        "scheduledEventsAdditionalPublishingTargets": {"eventGridAndResourceGraph": published},
        "userInitiatedRedeploy": {
            "automaticallyApprove": EventType.REDEPLOY in policy.auto_approve
        },
        "userInitiatedReboot": {"automaticallyApprove": EventType.REBOOT in policy.auto_approve},
        "allInstancesDown": {"automaticallyApprove": policy.all_instances_down},
    }


def _notification(notice: Duration | None) -> dict[str, Any]:
    shown = {} if notice is None else {"notBeforeTimeout": iso_duration(notice)}
    return {"enable": notice is not None, **shown}


def scale_set(scale_set: i.ScaleSet) -> dict[str, Any]:
    group, policy = scale_set.place, scale_set.place.policy
    machines = [machine for group in scale_set.groups for machine in group.machines]
    capacity = scale_set.capacity
    updating = capacity < sum(machine.alive for machine in machines) or any(
        event.source is Source.USER for group in scale_set.groups for event in group.events
    )
    profile: dict[str, Any] = {
        "storageProfile": {"imageReference": IMAGE, "osDisk": OS_DISK, "dataDisks": []},
        "osProfile": {"computerNamePrefix": scale_set.name, **OS_PROFILE},
        "networkProfile": {"networkInterfaceConfigurations": []},
        "scheduledEventsProfile": {
            "terminateNotificationProfile": _notification(policy.terminate_notice),
            "osImageNotificationProfile": _notification(policy.image_notice),
        },
    }
    if all(machine.spot for machine in machines):
        profile |= {"priority": "Spot", "evictionPolicy": "Delete"}
    return {
        "id": azure.scale_set_id(group),
        "name": scale_set.name,
        "type": azure.SCALE_SETS,
        "etag": scale_set_tag(scale_set.groups),
        "location": azure.location_of(group),
        "tags": {},
        **({"zones": [group.place.zone]} if group.place.zone else {}),
        "sku": {"name": SIZE, "tier": "Standard", "capacity": capacity},
        "properties": {
            "provisioningState": "Updating" if updating else SUCCEEDED,
            "timeCreated": i.CREATED,
            "uniqueId": str(uuid.uuid5(uuid.NAMESPACE_DNS, azure.scale_set_id(group).lower())),
            "orchestrationMode": "Uniform" if i.is_uniform(group) else "Flexible",
            "singlePlacementGroup": len(scale_set.groups) == 1 and i.is_uniform(group),
            "platformFaultDomainCount": len({machine.fault_domain for machine in machines}),
            "overprovision": False,
            "upgradePolicy": {"mode": "Manual"},
            "scheduledEventsPolicy": _events_policy(policy),
            "virtualMachineProfile": profile,
        },
    }


def scale_set_instance_view(scale_set: i.ScaleSet, now: Time) -> dict[str, Any]:
    """Return how many members of a scale set have which state."""
    counts = Counter[str]()
    for group, machine in scale_set.members():
        events = events_of(group, machine)
        counts[_provisioning_status(events)["code"]] += 1
        counts[_power_state(events)["code"]] += 1
    return {
        "virtualMachine": {
            "statusesSummary": [
                {"code": code, "count": count} for code, count in sorted(counts.items())
            ]
        },
        "extensions": [],
        "statuses": [_provisioned(now)],
        "orchestrationServices": [],
    }


def host_group(hosts: Sequence[Host], now: Time, *, expand: bool = False) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "platformFaultDomainCount": 1,
        "supportAutomaticPlacement": False,
        "hosts": [{"id": i.host_id(host.name)} for host in hosts],
    }
    if expand:
        views = [{"name": host.name, **host_instance_view(host, now)} for host in hosts]
        properties["instanceView"] = {"hosts": views}
    return {
        "id": i.host_group_id(),
        "name": i.HOST_GROUP,
        "type": i.HOST_GROUPS,
        "location": azure.DEFAULT_LOCATION,
        "tags": {},
        "properties": properties,
    }


def host(
    host: Host,
    members: Iterable[tuple[Group, Machine]],
    events: Iterable[Event],
    now: Time,
    *,
    expand: bool = False,
) -> dict[str, Any]:
    """Return a host, with the machines on it and the events about it."""
    properties: dict[str, Any] = {
        "hostId": str(uuid.uuid5(uuid.NAMESPACE_DNS, i.host_id(host.name))),
        "platformFaultDomain": 0,
        "autoReplaceOnFailure": False,
        "provisioningState": _provisioning_state(events),
        "virtualMachines": [{"id": i.machine_id(group, machine)} for group, machine in members],
    }
    if expand:
        properties["instanceView"] = host_instance_view(host, now)
    return {
        "id": i.host_id(host.name),
        "name": host.name,
        "type": f"{i.HOST_GROUPS}/hosts",
        "location": azure.DEFAULT_LOCATION,
        "tags": host.labels,
        "sku": {"name": "Host"},
        "properties": properties,
    }


def host_instance_view(host: Host, now: Time) -> dict[str, Any]:
    state = {Health.HEALTHY: "available", Health.DEGRADED: "degraded", Health.FAILED: "unavailable"}
    health = state[host.health]
    status = {
        "code": f"HealthState/{health}",
        "level": "Info" if host.healthy else "Warning",
        "displayStatus": f"Host {health}",
    }
    return {"availableCapacity": {"allocatableVMs": []}, "statuses": [_provisioned(now), status]}


def duration_of(event: Event) -> int | None:
    return None if event.duration == UNKNOWN_DURATION else event.duration
