"""The fleet file: YAML in, commands that define groups out. Every error names the place.

Groups, their machines, addresses, update domains and hosts. What is not said is filled in:
update domains are spread over five by position, ids are derived from names.
"""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from forewarn.core import EventType, GroupKind, Machine, Policy
from forewarn.core.commands import Define
from forewarn.core.fleet import Place
from forewarn.service.suggest import helped

DEFAULT_DOMAINS = 5  # over which machines are spread that name none
MAX_DOMAIN = 999
MAX_PLACEMENT_GROUP = 100  # machines in one placement group of a scale set
MAX_NAME = 80
MAX_DEPTH = 32  # of lists and mappings within each other
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
MEMBER = r"_(0|[1-9]\d{0,8})"  # what follows the scale set's name in a member's
NAMESPACE = uuid.UUID("8f6c1f52-6d0e-5f6a-9d0b-3a7a2a6f3c11")  # for ids derived from names
_Loader = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # the same, ten times as fast where built in


class FleetError(Exception):
    """The file cannot be used; the message says where and what would be right."""


class MachineEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    address: str | None = None
    addresses: list[str] = []
    update_domain: int | None = None
    fault_domain: int | None = None
    host: str = ""
    spot: bool = False
    computer_name: str = ""
    vm_id: str = ""
    tags: dict[str, str] = {}


class PolicyEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    user_event_limit: int | None = None
    auto_approve: list[EventType] = []


class GroupEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    kind: GroupKind
    machines: list[MachineEntry]
    policy: PolicyEntry = msgspec.field(default_factory=PolicyEntry)
    scale_set: str = ""  # of which this is a placement group; the group's own name if not said
    location: str | None = None
    zone: str = ""
    resource_group: str | None = None
    subscription: str | None = None


class HostEntry(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class FleetEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    groups: list[GroupEntry]
    hosts: list[HostEntry | str] = []
    location: str = "local"
    resource_group: str = "forewarn"
    subscription: str = "00000000-0000-0000-0000-000000000000"


_KEYS = {
    field.name
    for entry in (FleetEntry, GroupEntry, MachineEntry, PolicyEntry)
    for field in msgspec.structs.fields(entry)
}


class Fleet(msgspec.Struct, frozen=True):
    groups: Mapping[str, Define]
    hosts: tuple[str, ...] = ()

    @property
    def machines(self) -> list[Machine]:
        return [machine for define in self.groups.values() for machine in define.machines]


def load(path: Path) -> Fleet:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, FleetError) as error:
        raise FleetError(f"{path}: {error}") from error


def parse(text: str) -> Fleet:
    try:
        _not_too_deep(text)
        return build(msgspec.convert(yaml.load(text, _Loader), FleetEntry))
    except yaml.YAMLError as error:
        raise FleetError(" ".join(str(error).split())) from error
    except msgspec.ValidationError as error:
        choices = EventType if "auto_approve" in str(error) else GroupKind
        names = [choice.value for choice in choices]
        raise FleetError(helped(str(error), _KEYS, names)) from error


def _not_too_deep(text: str) -> None:
    """Reading in C recurses without a guard of its own; following the events does not recurse."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise FleetError("it is nested too deeply")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def build(entry: FleetEntry) -> Fleet:
    hosts = tuple(host if isinstance(host, str) else host.name for host in entry.hosts)
    _distinct("host", hosts)
    _distinct("group", [group.name for group in entry.groups])
    _distinct("machine", [machine.name for group in entry.groups for machine in group.machines])
    groups = {group.name: _group(entry, group, hosts) for group in entry.groups}
    fleet = Fleet(groups, hosts)
    _distinct("address", [address for machine in fleet.machines for address in machine.addresses])
    _distinct("vm_id", [machine.vm_id.lower() for machine in fleet.machines])
    return fleet


def _group(fleet: FleetEntry, group: GroupEntry, hosts: tuple[str, ...]) -> Define:
    where = f"group '{group.name}'"
    _named(where, group.name)
    if group.kind is GroupKind.STANDALONE and len(group.machines) != 1:
        raise FleetError(f"{where}: a standalone group has exactly one machine")
    if group.scale_set and group.kind is not GroupKind.SCALE_SET:
        raise FleetError(f"{where}: scale_set goes with kind scale-set only")
    if group.kind is GroupKind.SCALE_SET and len(group.machines) > MAX_PLACEMENT_GROUP:
        raise FleetError(
            f"{where}: a placement group has at most {MAX_PLACEMENT_GROUP} machines; make several"
            " groups and name the scale set in each (scale_set: …)"
        )
    limit = group.policy.user_event_limit
    if limit is not None and limit < 1:
        raise FleetError(f"{where}: user_event_limit must be at least 1, or left out for no limit")
    scale_set = (group.scale_set or group.name) if group.kind is GroupKind.SCALE_SET else ""
    machines = tuple(
        _machine(where, index, machine, scale_set, hosts)
        for index, machine in enumerate(group.machines)
    )
    own: dict[str, Any] = {
        key: getattr(group, key) if getattr(group, key) is not None else getattr(fleet, key)
        for key in ("location", "resource_group", "subscription")
    }
    return Define(
        kind=group.kind,
        machines=machines,
        policy=Policy(user_event_limit=limit, auto_approve=tuple(group.policy.auto_approve)),
        place=Place(zone=group.zone, scale_set=scale_set, **own),
    )


def _machine(
    where: str, index: int, entry: MachineEntry, scale_set: str, hosts: tuple[str, ...]
) -> Machine:
    where = f"{where}, machine '{entry.name}'"
    _named(where, entry.name)
    if scale_set and not re.fullmatch(re.escape(scale_set) + MEMBER, entry.name):
        raise FleetError(
            f"{where}: a member of scale set '{scale_set}' is named '{scale_set}_{index}'"
            " (a number below a thousand million, without leading zeros)"
        )
    if entry.host and entry.host not in hosts:
        raise FleetError(f"{where}: host '{entry.host}' is not under hosts")
    domains: dict[str, int] = {}
    for key in ("update_domain", "fault_domain"):
        domain = getattr(entry, key)
        domains[key] = index % DEFAULT_DOMAINS if domain is None else domain
        if not 0 <= domains[key] <= MAX_DOMAIN:
            raise FleetError(f"{where}: {key} is from 0 to {MAX_DOMAIN}")
    addresses = ([entry.address] if entry.address else []) + entry.addresses
    return Machine(
        name=entry.name,
        addresses=tuple(_address(where, address) for address in addresses),
        host=entry.host,
        spot=entry.spot,
        computer_name=entry.computer_name,
        vm_id=entry.vm_id or str(uuid.uuid5(NAMESPACE, entry.name)),
        tags=entry.tags,
        update_domain=domains["update_domain"],
        fault_domain=domains["fault_domain"],
    )


def _named(where: str, name: str) -> None:
    if len(name) > MAX_NAME or not NAME.fullmatch(name):
        raise FleetError(
            f"{where}: a name has 1 to {MAX_NAME} letters, digits, '.', '_' or '-',"
            " and begins with a letter or digit"
        )


def _address(where: str, text: str) -> str:
    """In the one form in which it is compared with where a request comes from."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise FleetError(f"{where}: '{text}' is not an IP address") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise FleetError(f"{where}: '{text}': leave out the interface behind the %")
        return str(address.ipv4_mapped or address)
    return str(address)


def _distinct(what: str, names: Any) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise FleetError(f"{what} '{name}' stands twice")
        seen.add(name)
