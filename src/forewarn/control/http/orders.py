"""Orders of the lists of hosts, groups and machines. The place of an item in its list is what it is
ordered by, a number or a name, and its own name; names are compared as people count."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias, TypeVar

from forewarn.control.http.errors import RefusedError
from forewarn.control.http.paging import NOT_A_CURSOR
from forewarn.core import Group, Machine
from forewarn.core.fleet import Health, Host
from forewarn.service.indexes.coverage import CoverageCounts
from forewarn.service.indexes.polls import MachinePolls
from forewarn.support.text import natural_key

NEVER = -1  # before all polls

Place: TypeAlias = tuple[int | str, str]
Member: TypeAlias = tuple[Group, Machine]
T = TypeVar("T")


_HEALTHS = list(Health)  # the best first


class _Placed:
    """An item at its place. Its name is looked at only if another one is ordered by the same."""

    __slots__ = ("_key", "item", "name", "value")

    def __init__(self, item: Any, value: Any, name: str) -> None:
        self.item, self.value, self.name = item, value, name
        self._key: Any = None

    def __lt__(self, other: _Placed) -> bool:
        if self.value != other.value:
            return bool(self.value < other.value)
        return bool(self.key < other.key)

    @property
    def key(self) -> Any:
        if self._key is None:
            self._key = natural_key(self.name)
        return self._key


def in_order(
    items: Iterable[T], place: Callable[[T], Place], after: tuple[str, str] | None, most: int
) -> list[T]:
    """Return the first items after a place, at most so many. There may be hundreds of thousands:
    they are neither kept nor sorted, since that holds the interpreter, also in a thread."""
    of_name = cache(natural_key)  # of hosts, which have several machines
    last: _Placed | None = None

    def following() -> Iterator[_Placed]:
        nonlocal last
        for item in items:
            value, name = place(item)
            is_number = isinstance(value, int)
            if after is not None and last is None:
                before = _number(after[0]) if is_number else of_name(after[0])
                last = _Placed(None, before, after[1])
            placed = _Placed(item, value if is_number else of_name(value), name)
            if last is None or last < placed:
                yield placed

    return [placed.item for placed in heapq.nsmallest(most, following())]


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise RefusedError(NOT_A_CURSOR) from None


def host_place(
    order: str,
    machines: Mapping[str, Collection[object]],
    events: Mapping[str, Collection[object]],
) -> Callable[[Host], Place]:
    """Return where hosts are in their list. `machines` and `events` are those on hosts, by name."""
    value: dict[str, Callable[[Host], int]] = {
        "name": lambda _: 0,
        "health": lambda host: -_HEALTHS.index(host.health),
        "machines": lambda host: -len(machines.get(host.name, ())),
        "events": lambda host: -len(events.get(host.name, ())),
    }
    return lambda host: (value[order](host), host.name)


def group_place(
    order: str, coverage: Callable[[Group], CoverageCounts]
) -> Callable[[Group], Place]:
    """Return where groups are in their list."""

    def silent(group: Group) -> int:
        counts = coverage(group)
        return -(counts.silent + counts.never_polled)

    value: dict[str, Callable[[Group], int]] = {
        "name": lambda _: 0,
        "machines": lambda group: -len(group.machines),
        "events": lambda group: -len(group.events),
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

    def events(member: Member) -> int:
        group, machine = member
        if group.name not in of_groups:
            of_groups[group.name] = events_of(group)
        return -len(of_groups[group.name].get(machine.name, ()))

    def last_poll(member: Member) -> int:
        found = polls(member[1].name)
        return NEVER if found is None else found.last

    value: dict[str, Callable[[Member], int | str]] = {
        "name": lambda _: 0,
        "host": lambda member: member[1].host,
        "events": events,
        "last_poll": last_poll,
    }
    if order == "group":
        return None
    return lambda member: (value[order](member), member[1].name)
