"""Building a fleet from the entries of a fleet file: fills in defaults, and refuses wrong values
with their position in the file.

Update domains are spread over five by position, a machine's fault domain is the number of its
update domain, ids are derived from names. Parsing is `read.py`.
"""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from forewarn.core import GroupKind, Machine, Policy
from forewarn.core.commands import Define
from forewarn.core.deciding.removals import (
    notice_problem,
    policy_problem,
)
from forewarn.core.fleet import (
    MAX_NAME,
    NAME,
    NO_CAPACITY,
    NO_SIZE,
    Capacity,
    Host,
    Place,
    Size,
)
from forewarn.core.labels import SelectorError, labels_problem
from forewarn.core.labels import parse as parse_selector
from forewarn.core.time import Duration
from forewarn.core.windows.may_postpone import parse_may_postpone
from forewarn.core.windows.model import (
    MAX_CONFIGURATIONS,
    Blackout,
    MaintenanceConfiguration,
    Window,
)
from forewarn.core.windows.syntax import (
    parse_blackout,
    parse_window,
)
from forewarn.service.fleet import shapes as e
from forewarn.service.fleet.addresses import ANY_ADDRESS, AddressRules
from forewarn.service.fleet.shapes import MAX_ADDRESSES, MAX_DOMAIN, MAX_TAGS
from forewarn.support.limits import MAX_BLACKOUTS, MAX_WINDOWS
from forewarn.support.suggest import nearest
from forewarn.support.text import parse_duration
from forewarn.support.yaml.positions import Problems, Where, YamlError

DEFAULT_DOMAINS = 5  # over which machines without a domain are spread
MAX_PLACEMENT_GROUP = 100  # machines in one placement group of a scale set
# After the name of the scale set in the name of a member.
MEMBER = re.compile(r"_(0|[1-9]\d{0,8})", re.ASCII)
NAMESPACE = uuid.UUID("8f6c1f52-6d0e-5f6a-9d0b-3a7a2a6f3c11")  # for ids derived from names
PLACED = ("location", "resource_group", "subscription")

T = TypeVar("T")

_NAME = re.compile(NAME)
_GUID = re.compile(e.GUID)


class FleetError(YamlError):
    """A fleet that cannot be used: what is wrong, where, and what would be right.

    It is the first mistake of a file; `others` are the rest of them, in the order of their lines,
    and `uncounted` is how many more there are than these."""

    others: tuple[FleetError, ...] = ()
    uncounted = 0

    def named(self, file: str) -> str:
        """Return a line for each mistake."""
        first = super().named(file)
        lines = [first, *(YamlError.named(other, file) for other in self.others)]
        if self.uncounted:
            lines.append(f"{file}: and {self.uncounted:,} more mistakes".removeprefix(": "))
        return "\n".join(lines)


class Fleet(msgspec.Struct, frozen=True):
    groups: Mapping[str, Define]
    hosts: tuple[Host, ...] = ()
    configurations: tuple[MaintenanceConfiguration, ...] | None = None  # None: as they are

    @property
    def machines(self) -> list[Machine]:
        return [machine for define in self.groups.values() for machine in define.machines]


class FleetBuilder:
    """Builds a fleet group by group. Names, addresses and ids must be unique; what depends on later
    parts of the file (hosts, defaults) is checked at the end. What is wrong is added to `problems`,
    and left out of the fleet."""

    def __init__(
        self,
        problems: Problems,
        among: Fleet | None = None,
        *,
        without: str = "",
        addresses: AddressRules = ANY_ADDRESS,
    ) -> None:
        self._problems = problems
        self._rules = addresses
        self._groups: dict[str, tuple[e.GroupEntry, Define]] = {}
        self._hosts: dict[str, Where] = {}  # of machines, and where each is first named
        self._names: dict[str, str] = {}  # machines, and their groups
        # And their machines. If they are per host, by host and address.
        self._addresses: dict[tuple[str, str], str] = {}
        self._ids: dict[str, str] = {}
        for group, define in among.groups.items() if among else ():
            if group != without:
                for machine in define.machines:
                    self._names[machine.name] = group
                    self._ids[machine.vm_id.lower()] = machine.name
                    for address in machine.addresses:
                        self._addresses[self._scope(machine.host), address] = machine.name

    def group(
        self,
        entry: e.GroupEntry,
        at: Where,
        machine_entries: Sequence[e.MachineEntry | None] | None = None,
    ) -> None:
        """Add a group. Its machines may be given apart, with None for those that are wrong."""
        entries = entry.machines if machine_entries is None else machine_entries
        with self._problems.collected():
            check_name(entry.name, (*at, "name"))
            if entry.name in self._groups:
                raise FleetError(f"group '{entry.name}' occurs twice", (*at, "name"))
        with self._problems.collected():
            _check_labels(entry.labels, at)
        scaled = entry.kind is GroupKind.SCALE_SET
        with self._problems.collected():
            if entry.scale_set and not scaled:
                raise FleetError("is only for groups of kind scale-set", (*at, "scale_set"))
        with self._problems.collected():
            if entry.flexible and not scaled:
                raise FleetError("is only for groups of kind scale-set", (*at, "flexible"))
        with self._problems.collected():
            _check_count(entry.kind, len(entries), (*at, "machines"))
        scale_set = (entry.scale_set or entry.name) if scaled else ""
        named_after = "" if entry.flexible else scale_set
        machines: list[Machine] = []
        for index, machine in enumerate(entries):
            if machine is not None:
                where = (*at, "machines", index)
                if machine.host:
                    self._hosts.setdefault(machine.host, (*where, "host"))
                machines.append(self._machine(index, machine, entry.name, named_after, where))
        policy = _policy(entry.policy, (*at, "policy"), entry.kind, self._problems)
        place = Place(zone=entry.zone, scale_set=scale_set, flexible=entry.flexible and scaled)
        define = Define(
            kind=entry.kind,
            machines=_split(machines),
            policy=policy,
            place=place,
            labels=entry.labels,
        )
        self._groups.setdefault(entry.name, (entry, define))
        entry.machines = []  # only the other fields are needed at the end

    def finish(self, entry: e.FleetEntry, hosts: tuple[Host, ...] | None) -> Fleet:
        """Return the fleet. Without `hosts`, which could not be read, no host is checked."""
        if hosts is not None:
            self._check_hosts({host.name for host in hosts})
        groups: dict[str, Define] = {}
        for name, (group_entry, define) in self._groups.items():
            placement: dict[str, str] = {
                key: getattr(group_entry, key)
                if getattr(group_entry, key) is not None
                else getattr(entry, key)
                for key in PLACED
            }
            place = msgspec.structs.replace(define.place, **placement)
            groups[name] = msgspec.structs.replace(define, place=place)
        return Fleet(groups, hosts or (), self._configurations(entry))

    def _configurations(self, entry: e.FleetEntry) -> tuple[MaintenanceConfiguration, ...] | None:
        if entry.maintenance is None:
            return None
        with self._problems.collected():
            if len(entry.maintenance) > MAX_CONFIGURATIONS:
                raise FleetError(
                    f"a fleet can have at most {MAX_CONFIGURATIONS} maintenance configurations",
                    ("maintenance",),
                )
        built: dict[str, MaintenanceConfiguration] = {}
        for index, item in enumerate(entry.maintenance):
            at: Where = ("maintenance", index)
            with self._problems.collected():
                if item.name in built:
                    message = f"maintenance configuration '{item.name}' occurs twice"
                    raise FleetError(message, (*at, "name"))
                built[item.name] = configuration_of(item, at)
        return tuple(built.values())

    def _check_hosts(self, names: set[str]) -> None:
        for host, at in self._hosts.items():
            if host not in names:
                near = nearest(host, names) or ""
                hint = f"; did you mean '{near}'?" if near else ""
                message = f"host '{host}' is not listed under hosts{hint}"
                self._problems.add(FleetError(message, at, suggestion=near))

    def _machine(
        self, index: int, entry: e.MachineEntry, group: str, scale_set: str, at: Where
    ) -> Machine:
        with self._problems.collected():
            self._check_member(entry.name, index, group, scale_set, (*at, "name"))
        if entry.labels:
            with self._problems.collected():
                _check_labels(entry.labels, at)
        if len(entry.tags) > MAX_TAGS:
            message = f"there are {len(entry.tags)} tags; at most {MAX_TAGS} are allowed"
            self._problems.add(FleetError(message, (*at, "tags")))
        domain = self._domain(entry.update_domain, index % DEFAULT_DOMAINS, at, "update_domain")
        return Machine(
            name=entry.name,
            addresses=tuple(self._addresses_of(entry, at)),
            host=entry.host,
            spot=entry.spot,
            computer_name=entry.computer_name,
            vm_id=self._vm_id(entry, (*at, "vm_id")),
            tags=entry.tags,
            labels=entry.labels,
            size=_size(entry.size, (*at, "size")),
            update_domain=domain,
            fault_domain=self._domain(entry.fault_domain, domain, at, "fault_domain"),
        )

    def _check_member(self, name: str, index: int, group: str, scale_set: str, at: Where) -> None:
        check_name(name, at)
        if name in self._names:
            other = self._names[name]
            raise FleetError(f"machine '{name}' occurs twice: group '{other}' has it", at)
        self._names[name] = group
        if scale_set and not (
            name.startswith(scale_set) and MEMBER.fullmatch(name, len(scale_set))
        ):
            raise FleetError(
                f"'{name}': a member of scale set '{scale_set}' is named '{scale_set}_{index}'"
                " (a number below 1,000,000,000, without leading zeros), unless the group is"
                " flexible: true",
                at,
            )

    def _vm_id(self, entry: e.MachineEntry, at: Where) -> str:
        """Return the given id, or one that is derived from the machine's name."""
        if entry.vm_id and not _GUID.fullmatch(entry.vm_id):
            message = (
                f"'{entry.vm_id[:MAX_NAME]}' is not a GUID; write it like"
                " 9b1f2f0e-6c0f-4c55-8a41-2f6f6cf0a1d7, or leave it out"
            )
            self._problems.add(FleetError(message, at))
            return ""
        vm_id = entry.vm_id or str(uuid.uuid5(NAMESPACE, entry.name))
        if (other := self._ids.setdefault(vm_id.lower(), entry.name)) != entry.name:
            message = f"vm_id '{vm_id}' occurs twice: machine '{other}' has it"
            self._problems.add(FleetError(message, at))
        return vm_id

    def _domain(self, value: int | None, default: int, at: Where, key: str) -> int:
        if value is None:
            return default
        if not 0 <= value <= MAX_DOMAIN:
            message = f"must be from 0 to {MAX_DOMAIN}, not {value}"
            self._problems.add(FleetError(message, (*at, key)))
        return value

    def _addresses_of(self, entry: e.MachineEntry, at: Where) -> Iterator[str]:
        count = len(entry.addresses) + bool(entry.address)
        if count > MAX_ADDRESSES:
            message = f"there are {count} addresses; at most {MAX_ADDRESSES} are allowed"
            self._problems.add(FleetError(message, (*at, "addresses")))
            return
        addresses: list[tuple[str, Where]] = []
        if entry.address:
            addresses.append((entry.address, (*at, "address")))
        addresses += [(text, (*at, "addresses", k)) for k, text in enumerate(entry.addresses)]
        with self._problems.collected():
            for text, at_address in addresses:
                address = _address(text, at_address)
                if problem := self._rules.problem(address):
                    raise FleetError(problem, at_address)
                key = self._scope(entry.host), address
                if key in self._addresses:
                    on_host = f" on host '{key[0]}'" if key[0] else ""
                    raise FleetError(
                        f"address '{address}' occurs twice{on_host}: machine"
                        f" '{self._addresses[key]}' has it",
                        at_address,
                    )
                self._addresses[key] = entry.name
                yield address

    def _scope(self, host: str) -> str:
        """Return within what an address must be unique: a host, or all of the fleet."""
        return host if self._rules.per_host else ""


def _check_count(kind: GroupKind, count: int, at: Where) -> None:
    if kind is GroupKind.STANDALONE and count != 1:
        raise FleetError(f"a standalone group must have exactly one machine, not {count}", at)
    if kind is GroupKind.SCALE_SET and count > MAX_PLACEMENT_GROUP:
        raise FleetError(
            f"a placement group can have at most {MAX_PLACEMENT_GROUP} machines; use several"
            " groups and name the scale set in each (scale_set: …)",
            at,
        )
    if not count:
        raise FleetError("a group must have at least one machine", at)


def _policy(entry: e.PolicyEntry, at: Where, kind: GroupKind, problems: Problems) -> Policy:
    limit, notice, image, postpone, back = entry.user_event_limit, None, None, None, None
    windows: tuple[Window, ...] = ()
    blackouts: tuple[Blackout, ...] = ()
    if limit is not None and limit < 1:
        message = "must be at least 1, or left out for no limit"
        problems.add(FleetError(message, (*at, "user_event_limit")))
        limit = None
    if entry.terminate_notice is not None:
        with problems.collected():
            notice = _notice("terminate_notice", entry.terminate_notice, kind, at)
    if entry.image_notice is not None:
        with problems.collected():
            image = _notice("image_notice", entry.image_notice, kind, at)
    with problems.collected():
        windows = _windows(entry.windows, at)
    with problems.collected():
        blackouts = _blackouts(entry.blackouts, at)
    if entry.may_postpone is not None:
        with problems.collected():
            postpone = _parsed(parse_may_postpone, entry.may_postpone, (*at, "may_postpone"))
    if entry.back_within is not None:
        with problems.collected():
            back = _parsed(parse_duration, entry.back_within, (*at, "back_within"))
    policy = Policy(
        user_event_limit=limit,
        auto_approve=tuple(entry.auto_approve),
        all_instances_down=entry.all_instances_down,
        event_grid=entry.event_grid,
        terminate_notice=notice,
        image_notice=image,
        windows=windows,
        blackouts=blackouts,
        may_postpone=postpone,
        over_when=entry.over_when,
        back_within=back,
    )
    if problem := policy_problem(kind, policy):  # its other problems were noted above
        problems.add(FleetError(problem, (*at, "auto_approve")))
    return policy


def _notice(name: str, text: str, kind: GroupKind, at: Where) -> Duration:
    notice: Duration = _parsed(parse_duration, text, (*at, name))
    if problem := notice_problem(kind, name, notice):
        raise FleetError(problem.removeprefix(f"{name} "), (*at, name))
    return notice


def configuration_of(entry: e.MaintenanceEntry, at: Where) -> MaintenanceConfiguration:
    check_name(entry.name, (*at, "name"))
    try:
        select = ",".join(map(str, parse_selector(entry.select)))
    except SelectorError as error:
        raise FleetError(str(error), (*at, "select")) from error
    return MaintenanceConfiguration(
        name=entry.name,
        select=select,
        windows=_windows(entry.windows, at),
        blackouts=_blackouts(entry.blackouts, at),
    )


def _windows(texts: list[str], at: Where) -> tuple[Window, ...]:
    where = (*at, "windows")
    if len(texts) > MAX_WINDOWS:
        raise FleetError(f"there can be at most {MAX_WINDOWS} windows, not {len(texts)}", where)
    return tuple(_parsed(parse_window, text, (*where, n)) for n, text in enumerate(texts))


def _blackouts(texts: list[str], at: Where) -> tuple[Blackout, ...]:
    where = (*at, "blackouts")
    if len(texts) > MAX_BLACKOUTS:
        raise FleetError(f"there can be at most {MAX_BLACKOUTS} blackouts, not {len(texts)}", where)
    return tuple(_parsed(parse_blackout, text, (*where, n)) for n, text in enumerate(texts))


def _parsed(parse: Callable[[str], T], text: str, at: Where) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise FleetError(str(error), at) from error


def _split(machines: list[Machine]) -> tuple[Machine, ...]:
    """Mark the machines whose update domain has several fault domains, which are not disturbed
    together."""
    faults: dict[int, set[int]] = {}
    for machine in machines:
        faults.setdefault(machine.update_domain, set()).add(machine.fault_domain)
    return tuple(
        msgspec.structs.replace(machine, split=True)
        if len(faults[machine.update_domain]) > 1
        else machine
        for machine in machines
    )


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
    return Host(
        name=entry.name,
        labels=entry.labels,
        capacity=_capacity(entry.capacity, (*at, "capacity")),
        cordoned=entry.cordoned,
    )


def _size(entry: e.SizeEntry | None, at: Where) -> Size:
    if entry is None:
        return NO_SIZE
    return Size(**_amounts(entry, at))


def _capacity(entry: e.CapacityEntry | None, at: Where) -> Capacity:
    if entry is None:
        return NO_CAPACITY
    return Capacity(**_amounts(entry, at))


def _amounts(entry: e.SizeEntry | e.CapacityEntry, at: Where) -> dict[str, int]:
    """Return the amounts that are given."""
    amounts = {k: v for k, v in msgspec.structs.asdict(entry).items() if v is not None}
    for name, amount in amounts.items():
        if not 0 <= amount <= e.MAX_AMOUNT:
            message = f"{amount} is out of range; expected 0 to {e.MAX_AMOUNT}"
            raise FleetError(message, (*at, name))
    return amounts
