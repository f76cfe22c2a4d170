"""The fields of instance metadata: one row per field, with the first version that shows it.

The table also determines the order of keys: the real service writes them in ascending order at
every level, and the rows are in this order. Building and reading the tree is in `instance.py`.
"""

import re
from collections.abc import Callable
from itertools import zip_longest
from typing import TypeAlias

import msgspec

Node: TypeAlias = "str | list[Node] | dict[str, Node]"
"""An element of the tree. Every leaf is a string; there are no numbers, booleans or nulls."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a machine. What is not known stays at its default."""

    name: str
    """The name in events; `{scale set}_{n}` is member n of its scale set."""
    vm_id: str = ""
    computer_name: str = ""
    location: str = ""
    zone: str = ""
    physical_zone: str = ""
    resource_group: str = ""
    subscription_id: str = ""
    scale_set: str = ""
    placement_group_id: str = ""
    update_domain: int | None = None
    fault_domain: int | None = None
    spot: bool = False
    eviction_policy: str = "Delete"
    """What an eviction does to a spot machine; shown for spot machines only."""
    tags: tuple[tuple[str, str], ...] = ()
    environment: str = "AzurePublicCloud"
    """Clients look up the endpoints of their cloud by this name, so it must not be empty."""
    vm_size: str = ""
    os_type: str = "Linux"
    admin_username: str = ""
    image_publisher: str = ""
    image_offer: str = ""
    image_sku: str = ""
    image_version: str = ""
    mac_address: str = ""
    private_ipv4: tuple[str, ...] = ()
    public_ipv4: tuple[str, ...] = ()
    """Paired with the private addresses by position."""
    private_ipv6: tuple[str, ...] = ()
    subnet: str = ""
    """Of the IPv4 addresses, as `10.1.0.0/24`."""


class Field(msgspec.Struct, frozen=True):
    """A row of the table: shown at `path` in versions from `since` on and before `until`."""

    path: str
    since: str
    shows: Callable[[Facts], Node]
    until: str = "9999"


def _domain(number: int | None) -> str:
    # A machine without a domain is in the first one, "0", never in "".
    return str(number or 0)


def _member(facts: Facts) -> str | None:
    """Return the number of a member in its scale set, if the machine is named after it."""
    match = re.fullmatch(r"(.+)_([0-9]+)", facts.name, re.DOTALL)
    if match and facts.scale_set and match[1].lower() == facts.scale_set.lower():
        return match[2]
    return None


def _compute_id(facts: Facts, tail: str) -> str:
    if not (facts.subscription_id and facts.resource_group):
        return ""
    group = f"/subscriptions/{facts.subscription_id}/resourceGroups/{facts.resource_group}"
    return f"{group}/providers/Microsoft.Compute/{tail}"


def _resource_id(facts: Facts) -> str:
    member = _member(facts)
    if member is None:
        return _compute_id(facts, f"virtualMachines/{facts.name}")
    return _compute_id(facts, f"virtualMachineScaleSets/{facts.scale_set}/virtualMachines/{member}")


def _flexible_scale_set_id(facts: Facts) -> str:
    # Only flexible scale sets are shown here, whose members have names of their own.
    if not facts.scale_set or _member(facts) is not None:
        return ""
    return _compute_id(facts, f"virtualMachineScaleSets/{facts.scale_set}")


def _tags_list(facts: Facts) -> Node:
    return [{"name": name, "value": value} for name, value in facts.tags]


def _mac(facts: Facts) -> str:
    return re.sub(r"[-:.]", "", facts.mac_address).upper()


def _address_pairs(facts: Facts) -> list[tuple[str, str]]:
    return list(zip_longest(facts.private_ipv4, facts.public_ipv4, fillvalue=""))


def _has_interface(facts: Facts) -> bool:
    return bool(facts.private_ipv4 or facts.public_ipv4 or facts.private_ipv6 or facts.mac_address)


def _interfaces(facts: Facts) -> Node:
    if not _has_interface(facts):
        return []
    address, _, prefix = facts.subnet.partition("/")
    addresses: list[Node] = [
        {"privateIpAddress": private, "publicIpAddress": public}
        for private, public in _address_pairs(facts)
    ]
    subnets: list[Node] = [{"address": address, "prefix": prefix}] if address else []
    v6: list[Node] = [{"privateIpAddress": private} for private in facts.private_ipv6]
    return [
        {
            "ipv4": {"ipAddress": addresses, "subnet": subnets},
            "ipv6": {"ipAddress": v6},
            "macAddress": _mac(facts),
        }
    ]


def _preview_interfaces(facts: Facts) -> Node:
    """Return the interfaces as in the preview, which has other keys, and name servers."""
    if not _has_interface(facts):
        return []
    address, _, prefix = facts.subnet.partition("/")
    addresses: list[Node] = [
        {"ipaddress": private, "publicip": public} for private, public in _address_pairs(facts)
    ]
    subnets: list[Node] = (
        [{"address": address, "dnsservers": [], "prefix": prefix}] if address else []
    )
    v6: list[Node] = [{"ipaddress": private} for private in facts.private_ipv6]
    return [
        {
            "ipv4": {"ipaddress": addresses, "subnet": subnets},
            "ipv6": {"ipaddress": v6},
            "mac": _mac(facts),
        }
    ]


def _empty(_: Facts) -> Node:
    return ""


def _false(_: Facts) -> Node:
    return "false"


def _empty_list(_: Facts) -> Node:
    return []


_C = "compute."
_IMAGE = "compute.storageProfile.imageReference."
_DISK = "compute.storageProfile.osDisk."
_KEYS = "compute.storageProfile.osDisk.encryptionSettings."

FIELDS: tuple[Field, ...] = (
    Field(_C + "additionalCapabilities.hibernationEnabled", "2021-11-01", _false),
    Field(_C + "azEnvironment", "2018-10-01", lambda f: f.environment),
    Field(_C + "customData", "2019-02-01", _empty),
    Field(_C + "evictionPolicy", "2020-12-01", lambda f: f.eviction_policy if f.spot else ""),
    Field(_C + "extendedLocation.name", "2021-03-01", _empty),
    Field(_C + "extendedLocation.type", "2021-03-01", _empty),
    Field(_C + "host.id", "2021-11-15", _empty),
    Field(_C + "hostGroup.id", "2021-11-15", _empty),
    Field(_C + "isHostCompatibilityLayerVm", "2020-06-01", _false),
    Field(_C + "licenseType", "2020-09-01", _empty),
    Field(_C + "location", "2017-03-01", lambda f: f.location),
    Field(_C + "name", "2017-03-01", lambda f: f.name),
    Field(_C + "offer", "2017-03-01", lambda f: f.image_offer),
    Field(_C + "osProfile.adminUsername", "2020-07-15", lambda f: f.admin_username),
    Field(_C + "osProfile.computerName", "2020-07-15", lambda f: f.computer_name),
    Field(_C + "osProfile.disablePasswordAuthentication", "2020-10-01", _empty),
    Field(_C + "osType", "2017-03-01", lambda f: f.os_type),
    Field(_C + "physicalZone", "2023-11-15", lambda f: f.physical_zone),
    Field(_C + "placementGroupId", "2017-08-01", lambda f: f.placement_group_id),
    Field(_C + "plan.name", "2018-04-02", _empty),
    Field(_C + "plan.product", "2018-04-02", _empty),
    Field(_C + "plan.publisher", "2018-04-02", _empty),
    Field(_C + "platformFaultDomain", "2017-03-01", lambda f: _domain(f.fault_domain)),
    Field(_C + "platformSubFaultDomain", "2021-10-01", _empty),
    Field(_C + "platformUpdateDomain", "2017-03-01", lambda f: _domain(f.update_domain)),
    Field(_C + "priority", "2020-12-01", lambda f: "Spot" if f.spot else ""),
    Field(_C + "provider", "2018-10-01", lambda _: "Microsoft.Compute"),
    Field(_C + "publicKeys", "2018-04-02", _empty_list),
    Field(_C + "publisher", "2017-03-01", lambda f: f.image_publisher),
    Field(_C + "resourceGroupName", "2017-08-01", lambda f: f.resource_group),
    Field(_C + "resourceId", "2019-03-11", _resource_id),
    Field(_C + "securityProfile.encryptionAtHost", "2021-11-01", _false),
    Field(_C + "securityProfile.secureBootEnabled", "2020-06-01", _false),
    Field(_C + "securityProfile.securityType", "2021-12-13", _empty),
    Field(_C + "securityProfile.virtualTpmEnabled", "2020-06-01", _false),
    Field(_C + "sku", "2017-03-01", lambda f: f.image_sku),
    Field(_C + "storageProfile.dataDisks", "2019-06-01", _empty_list),
    Field(_IMAGE + "communityGalleryImageId", "2023-07-01", _empty),
    Field(_IMAGE + "exactVersion", "2023-07-01", lambda f: f.image_version),
    Field(_IMAGE + "id", "2019-06-01", _empty),
    Field(_IMAGE + "offer", "2019-06-01", lambda f: f.image_offer),
    Field(_IMAGE + "publisher", "2019-06-01", lambda f: f.image_publisher),
    Field(_IMAGE + "sharedGalleryImageId", "2023-07-01", _empty),
    Field(_IMAGE + "sku", "2019-06-01", lambda f: f.image_sku),
    Field(_IMAGE + "version", "2019-06-01", lambda f: f.image_version),
    Field(_DISK + "caching", "2019-06-01", _empty),
    Field(_DISK + "createOption", "2019-06-01", _empty),
    Field(_DISK + "diffDiskSettings.option", "2019-06-01", _empty),
    Field(_DISK + "diskSizeGB", "2019-06-01", _empty),
    Field(_KEYS + "diskEncryptionKey.secretUrl", "2021-11-01", _empty),
    Field(_KEYS + "diskEncryptionKey.sourceVault.id", "2021-11-01", _empty),
    Field(_KEYS + "enabled", "2019-06-01", _false),
    Field(_KEYS + "keyEncryptionKey.keyUrl", "2021-11-01", _empty),
    Field(_KEYS + "keyEncryptionKey.sourceVault.id", "2021-11-01", _empty),
    Field(_DISK + "image.uri", "2019-06-01", _empty),
    Field(_DISK + "managedDisk.id", "2019-06-01", _empty),
    Field(_DISK + "managedDisk.storageAccountType", "2019-06-01", _empty),
    Field(_DISK + "name", "2019-06-01", _empty),
    Field(_DISK + "osType", "2019-06-01", lambda f: f.os_type),
    Field(_DISK + "vhd.uri", "2019-06-01", _empty),
    Field(_DISK + "writeAcceleratorEnabled", "2019-06-01", _false),
    Field(_C + "storageProfile.resourceDisk.size", "2021-02-01", lambda _: "0"),
    Field(_C + "subscriptionId", "2017-08-01", lambda f: f.subscription_id),
    Field(_C + "tags", "2017-08-01", lambda f: ";".join(f"{name}:{v}" for name, v in f.tags)),
    Field(_C + "tagsList", "2019-06-04", _tags_list),
    Field(_C + "userData", "2021-01-01", _empty),
    Field(_C + "version", "2017-03-01", lambda f: f.image_version),
    Field(_C + "virtualMachineScaleSet.id", "2021-03-01", _flexible_scale_set_id),
    Field(_C + "vmId", "2017-03-01", lambda f: f.vm_id),
    Field(_C + "vmScaleSetName", "2017-12-01", lambda f: f.scale_set),
    Field(_C + "vmSize", "2017-03-01", lambda f: f.vm_size),
    Field(_C + "zone", "2017-12-01", lambda f: f.zone),
    Field("network.interface", "2017-03-01", _preview_interfaces, until="2017-04-02"),
    Field("network.interface", "2017-04-02", _interfaces),
)
