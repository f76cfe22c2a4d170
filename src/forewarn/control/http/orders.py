"""Orders of the lists of hosts, groups and machines. The place of an item in its list is what it is
ordered by, and its name; both are compared as people count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from forewarn.core import Group, Machine
from forewarn.core.fleet import Health, Host
from forewarn.service.indexes.coverage import CoverageCounts
from forewarn.service.indexes.polls import MachinePolls
from forewarn.support.text import natural_key

LARGEST = 10**18  # what is counted is less

Place: TypeAlias = tuple[str, str]
Member: TypeAlias = tuple[Group, Machine]
T = TypeVar("T")


_HEALTHS = list(Health)  # the best first


def in_order(items: Iterable[T], place: Callable[[T], Place], after: Place | None) -> Iterator[T]:
    """Yield the items after a place."""
    last = None if after is None else _key(after)
    keyed = [(_key(place(item)), item) for item in items]
    following = [pair for pair in keyed if last is None or pair[0] > last]
    return (item for _, item in sorted(following, key=lambda pair: pair[0]))


def _key(place: Place) -> tuple[Any, ...]:
    return tuple(map(natural_key, place))


def _most_first(count: int) -> str:
    return str(LARGEST - count)


def host_place(
    order: str,
    machines: Mapping[str, Collection[object]],
    events: Mapping[str, Collection[object]],
) -> Callable[[Host], Place]:
    """Return where hosts are in their list. `machines` and `events` are those on hosts, by name."""
    value: dict[str, Callable[[Host], str]] = {
        "name": lambda _: "",
        "health": lambda host: _most_first(_HEALTHS.index(host.health)),
        "machines": lambda host: _most_first(len(machines.get(host.name, ()))),
        "events": lambda host: _most_first(len(events.get(host.name, ()))),
    }
    return lambda host: (value[order](host), host.name)


def group_place(
    order: str, coverage: Callable[[Group], CoverageCounts]
) -> Callable[[Group], Place]:
    """Return where groups are in their list."""

    def silent(group: Group) -> str:
        counts = coverage(group)
        return _most_first(counts.silent + counts.never_polled)

    value: dict[str, Callable[[Group], str]] = {
        "name": lambda _: "",
        "machines": lambda group: _most_first(len(group.machines)),
        "events": lambda group: _most_first(len(group.events)),
        "silent": silent,
    }
    return lambda group: (value[order](group), group.name)


def by_group(member: Member) -> Place:
    return member[0].name, member[1].name


def machine_place(
    order: str,
    polls: Callable[[str], MachinePolls | None],
    events_of: Callable[[Group], Mapping[str, Collection[object]]],
) -> Callable[[Member], Place] | None:
    """Return where machines are in their list; None: by their groups. `events_of`: the events of
    the machines of a group, by name."""
    of_groups: dict[str, Mapping[str, Collection[object]]] = {}

    def events(member: Member) -> str:
        group, machine = member
        if group.name not in of_groups:
            of_groups[group.name] = events_of(group)
        return _most_first(len(of_groups[group.name].get(machine.name, ())))

    def last_poll(member: Member) -> str:
        found = polls(member[1].name)
        return "" if found is None else str(found.last)

    value: dict[str, Callable[[Member], str]] = {
        "name": lambda _: "",
        "host": lambda member: member[1].host,
        "events": events,
        "last_poll": last_poll,
    }
    if order == "group":
        return None
    return lambda member: (value[order](member), member[1].name)
