"""Building a fleet from the entries of a fleet file: fills in defaults, and refuses wrong values
with their position in the file.

Update domains are spread over five by position, ids are derived from names. Parsing is `read.py`.
"""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Iterator, Mapping

import msgspec

from forewarn.core import GroupKind, Machine, Policy
from forewarn.core.commands import Define
from forewarn.core.deciding.removals import (
    MAX_TERMINATE_NOTICE,
    MIN_TERMINATE_NOTICE,
    policy_problem,
)
from forewarn.core.fleet import MAX_NAME, NAME, Host, Place
from forewarn.core.labels import labels_problem
from forewarn.service.fleet import shapes as e
from forewarn.service.fleet.shapes import MAX_ADDRESSES, MAX_DOMAIN, MAX_TAGS
from forewarn.support.text import in_words, parse_duration
from forewarn.support.yaml_positions import Where, YamlError

DEFAULT_DOMAINS = 5  # over which machines without a domain are spread
MAX_PLACEMENT_GROUP = 100  # machines in one placement group of a scale set
# After the name of the scale set in the name of a member.
MEMBER = re.compile(r"_(0|[1-9]\d{0,8})", re.ASCII)
NAMESPACE = uuid.UUID("8f6c1f52-6d0e-5f6a-9d0b-3a7a2a6f3c11")  # for ids derived from names
PLACED = ("location", "resource_group", "subscription")

_NAME = re.compile(NAME)
_GUID = re.compile(e.GUID)


class FleetError(YamlError):
    """A fleet that cannot be used: what is wrong, where, and what would be right."""


class Fleet(msgspec.Struct, frozen=True):
    groups: Mapping[str, Define]
    hosts: tuple[Host, ...] = ()

    @property
    def machines(self) -> list[Machine]:
        return [machine for define in self.groups.values() for machine in define.machines]


class FleetBuilder:
    """Builds a fleet group by group. Names, addresses and ids must be unique; what depends on later
    parts of the file (hosts, defaults) is checked at the end."""

    def __init__(self, among: Fleet | None = None, *, without: str = "") -> None:
        self._groups: dict[str, tuple[e.GroupEntry, Define]] = {}
        self._names: dict[str, str] = {}  # machines, and their groups
        self._addresses: dict[str, str] = {}  # and their machines
        self._ids: dict[str, str] = {}
        for group, define in among.groups.items() if among else ():
            if group != without:
                for machine in define.machines:
                    self._names[machine.name] = group
                    self._ids[machine.vm_id.lower()] = machine.name
                    self._addresses |= dict.fromkeys(machine.addresses, machine.name)

    def group(self, entry: e.GroupEntry, at: Where) -> None:
        check_name(entry.name, (*at, "name"))
        if entry.name in self._groups:
            raise FleetError(f"group '{entry.name}' occurs twice", (*at, "name"))
        _check_labels(entry.labels, at)
        scaled = entry.kind is GroupKind.SCALE_SET
        count = len(entry.machines)
        if entry.kind is GroupKind.STANDALONE and count != 1:
            raise FleetError(
                f"a standalone group must have exactly one machine, not {count}", (*at, "machines")
            )
        if entry.scale_set and not scaled:
            raise FleetError("is only for groups of kind scale-set", (*at, "scale_set"))
        if scaled and count > MAX_PLACEMENT_GROUP:
            raise FleetError(
                f"a placement group can have at most {MAX_PLACEMENT_GROUP} machines; use several"
                " groups and name the scale set in each (scale_set: …)",
                (*at, "machines"),
            )
        scale_set = (entry.scale_set or entry.name) if scaled else ""
        machines = tuple(
            self._machine(index, machine, entry.name, scale_set, (*at, "machines", index))
            for index, machine in enumerate(entry.machines)
        )
        policy = _policy(entry.policy, (*at, "policy"), entry.kind)
        if not machines:
            raise FleetError("a group must have at least one machine", (*at, "machines"))
        place = Place(zone=entry.zone, scale_set=scale_set)
        self._groups[entry.name] = (
            entry,
            Define(
                kind=entry.kind, machines=machines, policy=policy, place=place, labels=entry.labels
            ),
        )
        entry.machines = []  # only the other fields are needed at the end

    def finish(
        self,
        entry: e.FleetEntry,
        hosts: tuple[Host, ...],
        at: Where = (),
    ) -> Fleet:
        """Return the fleet. `at` is the position of the groups, if there are several."""
        host_names = {host.name for host in hosts}
        groups: dict[str, Define] = {}
        for number, (name, (group_entry, define)) in enumerate(self._groups.items()):
            for index, machine in enumerate(define.machines):
                if machine.host and machine.host not in host_names:
                    raise FleetError(
                        f"host '{machine.host}' is not listed under hosts",
                        (*at, *([number] if at else []), "machines", index, "host"),
                    )
            placement: dict[str, str] = {
                key: getattr(group_entry, key)
                if getattr(group_entry, key) is not None
                else getattr(entry, key)
                for key in PLACED
            }
            place = msgspec.structs.replace(define.place, **placement)
            groups[name] = msgspec.structs.replace(define, place=place)
        return Fleet(groups, hosts)

    def _machine(
        self, index: int, entry: e.MachineEntry, group: str, scale_set: str, at: Where
    ) -> Machine:
        name = entry.name
        check_name(name, (*at, "name"))
        if name in self._names:
            other = self._names[name]
            raise FleetError(
                f"machine '{name}' occurs twice: group '{other}' has it", (*at, "name")
            )
        self._names[name] = group
        if scale_set and not (
            name.startswith(scale_set) and MEMBER.fullmatch(name, len(scale_set))
        ):
            raise FleetError(
                f"'{name}': a member of scale set '{scale_set}' is named '{scale_set}_{index}'"
                " (a number below 1,000,000,000, without leading zeros)",
                (*at, "name"),
            )
        if entry.labels:
            _check_labels(entry.labels, at)
        if entry.vm_id and not _GUID.fullmatch(entry.vm_id):
            raise FleetError(
                f"'{entry.vm_id[:MAX_NAME]}' is not a GUID; write it like"
                " 9b1f2f0e-6c0f-4c55-8a41-2f6f6cf0a1d7, or leave it out",
                (*at, "vm_id"),
            )
        if len(entry.tags) > MAX_TAGS:
            raise FleetError(
                f"there are {len(entry.tags)} tags; at most {MAX_TAGS} are allowed", (*at, "tags")
            )
        vm_id = entry.vm_id or str(uuid.uuid5(NAMESPACE, name))
        if (other := self._ids.setdefault(vm_id.lower(), name)) != name:
            raise FleetError(
                f"vm_id '{vm_id}' occurs twice: machine '{other}' has it", (*at, "vm_id")
            )
        return Machine(
            name=name,
            addresses=tuple(self._addressed(entry, at)),
            host=entry.host,
            spot=entry.spot,
            computer_name=entry.computer_name,
            vm_id=vm_id,
            tags=entry.tags,
            labels=entry.labels,
            update_domain=_domain(entry.update_domain, index, at, "update_domain"),
            fault_domain=_domain(entry.fault_domain, index, at, "fault_domain"),
        )

    def _addressed(self, entry: e.MachineEntry, at: Where) -> Iterator[str]:
        count = len(entry.addresses) + bool(entry.address)
        if count > MAX_ADDRESSES:
            raise FleetError(
                f"there are {count} addresses; at most {MAX_ADDRESSES} are allowed",
                (*at, "addresses"),
            )
        addresses: list[tuple[str, Where]] = []
        if entry.address:
            addresses.append((entry.address, (*at, "address")))
        addresses += [(text, (*at, "addresses", k)) for k, text in enumerate(entry.addresses)]
        for text, at_address in addresses:
            address = _address(text, at_address)
            if address in self._addresses:
                other = self._addresses[address]
                raise FleetError(
                    f"address '{address}' occurs twice: machine '{other}' has it", at_address
                )
            self._addresses[address] = entry.name
            yield address


def _domain(value: int | None, index: int, at: Where, key: str) -> int:
    """Return the given domain, or one by position, so that machines are spread over domains."""
    if value is None:
        return index % DEFAULT_DOMAINS
    if not 0 <= value <= MAX_DOMAIN:
        raise FleetError(f"must be from 0 to {MAX_DOMAIN}, not {value}", (*at, key))
    return value


def _policy(entry: e.PolicyEntry, at: Where, kind: GroupKind) -> Policy:
    limit = entry.user_event_limit
    if limit is not None and limit < 1:
        raise FleetError("must be at least 1, or left out for no limit", (*at, "user_event_limit"))
    notice = None
    if entry.terminate_notice is not None:
        where = (*at, "terminate_notice")
        if kind is not GroupKind.SCALE_SET:
            raise FleetError(
                "is only for groups of kind scale-set: deletions in other groups are not announced",
                where,
            )
        try:
            notice = parse_duration(entry.terminate_notice)
        except ValueError as error:
            raise FleetError(str(error), where) from error
        if not MIN_TERMINATE_NOTICE <= notice <= MAX_TERMINATE_NOTICE:
            raise FleetError(
                f"must be from {in_words(MIN_TERMINATE_NOTICE)} to"
                f" {in_words(MAX_TERMINATE_NOTICE)}, not {in_words(notice)}",
                where,
            )
    policy = Policy(
        user_event_limit=limit,
        auto_approve=tuple(entry.auto_approve),
        all_instances_down=entry.all_instances_down,
        terminate_notice=notice,
    )
    if problem := policy_problem(kind, policy):  # its other problems were refused above
        raise FleetError(problem, (*at, "auto_approve"))
    return policy


def check_name(name: str, at: Where) -> None:
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise FleetError(
            f"'{name[:MAX_NAME]}' is not a valid name: use 1 to {MAX_NAME} letters, digits, '.',"
            " '_' or '-', beginning with a letter or digit and ending with a letter, digit or '_'",
            at,
        )


def _check_labels(labels: dict[str, str], at: Where) -> None:
    if problem := labels_problem(labels):
        name, message = problem
        raise FleetError(message, (*at, "labels", *([name] if name else [])))


def _address(text: str, at: Where) -> str:
    """Return an address in the form that is compared with the source of requests."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise FleetError(f"'{text[:MAX_NAME]}' is not an IP address", at) from None
    if address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255":
        raise FleetError(
            f"'{text}' is not the address of a single machine; no request can come from it", at
        )
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise FleetError(f"'{text}': leave out the interface after the %", at)
        return str(address.ipv4_mapped or address)
    return str(address)


def host_of(entry: e.HostEntry, at: Where) -> Host:
    check_name(entry.name, (*at, "name"))
    _check_labels(entry.labels, at)
    return Host(name=entry.name, labels=entry.labels)
