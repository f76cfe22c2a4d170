"""What nodes are told of groups, in messages that are too small to block an event loop. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from forewarn.core import Group, Machine, view
from forewarn.core.fleet import Place
from forewarn.metadata.publishing.messages import (
    Changed,
    News,
    Publication,
)
from forewarn.metadata.upstream import GroupNews, group_news

SLICE_MACHINES = 512  # machines in one message about several groups
LARGE = 64  # machines of a group from which on they are remembered by host


def guest_news(group: Group, machines: tuple[Machine, ...] | None = None) -> GroupNews:
    """Return a group as nodes need it: of its machines, or of some of them, only what guests can
    see, not hosts and labels."""
    if machines is None:
        machines = tuple(map(to_guests, group.machines))
    return msgspec.structs.replace(group_news(group), machines=machines)


def removed(name: str) -> Changed:
    """Return a group as it is when there is none."""
    return Changed(view(Group(name=name)), (), Place(), removed=True)


def in_full(change: Changed, group: Group) -> Changed:
    """Return a change with all fields of the group as it is then."""
    if change.removed:
        return change
    news = guest_news(group)
    return Changed(news.view, news.machines, news.place)


def news(publications: Sequence[Publication]) -> list[News]:
    """Return messages about publications, of which large ones are divided."""
    pieces: list[list[Publication]] = [[]]
    machines = 0
    for publication in publications:
        part: list[Changed] = []
        for change in publication.groups:
            if machines >= SLICE_MACHINES:
                if part:
                    pieces[-1].append(Publication(publication.number, tuple(part)))
                pieces.append([])
                part, machines = [], 0
            part.append(change)
            machines += 1 + len(change.machines or ())
        pieces[-1].append(Publication(publication.number, tuple(part)))
    return [News(tuple(piece), more=n < len(pieces)) for n, piece in enumerate(pieces, 1)]


def changed(before: Group | None, after: Group) -> Changed | None:
    """Return what changes for guests, or for the nodes that answer them; None if nothing does."""
    if after == Group(name=after.name):
        return None if before is None else removed(after.name)
    if before is None:
        news = guest_news(after)
        return Changed(news.view, news.machines, news.place)
    machines = None
    if before.machines is not after.machines:
        machines = tuple(map(to_guests, after.machines))
        if machines == tuple(map(to_guests, before.machines)) and _hosts(before) == _hosts(after):
            machines = None
    place = None if before.place == after.place else after.place
    shown = view(after)
    if view(before) == shown and machines is None and place is None:
        return None
    return Changed(shown, machines, place)


def _by_host(group: Group) -> dict[str, tuple[Machine, ...]]:
    """Return the machines of a group by the host that they are on."""
    machines: dict[str, list[Machine]] = {}
    for machine in group.machines:
        machines.setdefault(machine.host, []).append(machine)
    return {host: tuple(there) for host, there in machines.items()}


class PlacedMachines:
    """The machines of groups by host. Large groups, which may be on thousands of hosts, are
    remembered by host, so that each host does not cost a look at all machines."""

    def __init__(self) -> None:
        # By group: its machines, and the same by host.
        self._large: dict[str, tuple[tuple[Machine, ...], Mapping[str, tuple[Machine, ...]]]] = {}

    def on_host(self, group: Group, host: str) -> tuple[Machine, ...]:
        """Return the machines of a group that are on a host, as its node needs them."""
        if len(group.machines) < LARGE:
            return tuple([to_guests(m) for m in group.machines if m.host == host])
        machines, placed = self._large.get(group.name, ((), {}))
        if machines is not group.machines:
            placed = _by_host(group)
            self._large[group.name] = group.machines, placed
        return tuple(map(to_guests, placed.get(host, ())))

    def forget(self, group: str) -> None:
        self._large.pop(group, None)


def _hosts(group: Group) -> list[str]:
    return [machine.host for machine in group.machines]


def to_guests(machine: Machine) -> Machine:
    """Return what guests can see of a machine."""
    if not (machine.labels or machine.host or machine.moved_from or machine.disputed):
        return machine
    return msgspec.structs.replace(
        machine,
        labels={},
        host="",
        moved_from=None,
        relocated=False,
        disputed="",
        disputed_by_poll=False,
        answered_on="",
    )


def to_next_host(machine: Machine) -> Machine:
    """Return what the node of the host needs that a machine is about to move to: it knows from the
    machine's present host that it has not arrived."""
    return msgspec.structs.replace(to_guests(machine), host=machine.host)
