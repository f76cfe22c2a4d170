"""What workers are told, cut into pieces none of which keeps a loop busy for long: all groups as
they are, or what some commits change of them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from forewarn.core import Group, Machine, view
from forewarn.metadata.upstream import GroupNews, group_news
from forewarn.metadata.workers.messages import Changed, News, SnapshotPart

SLICE_MACHINES = 512  # machines in one message about several groups


def told(group: Group) -> GroupNews:
    """Of machines only what concerns guests: where they run and how operators call them does not,
    and may change as it likes."""
    news = group_news(group)
    return msgspec.structs.replace(news, machines=tuple(map(_to_guests, news.machines)))


def stock(groups: Mapping[str, Group]) -> Iterator[SnapshotPart]:
    """Each group as it is when its turn comes: whatever changes later is told after it."""
    gathered, machines = [], 0
    for name in list(groups):
        news = told(groups[name])
        gathered.append(news)
        machines += 1 + len(news.machines)
        if machines >= SLICE_MACHINES:
            yield SnapshotPart(tuple(gathered))
            gathered, machines = [], 0
    yield SnapshotPart(tuple(gathered))


def in_full(changes: Sequence[Changed], after: Mapping[str, Group]) -> list[Changed]:
    """The same for whoever does not know the groups yet."""
    groups = [told(after[one.view.name]) for one in changes]
    return [Changed(group.view, group.machines, group.place) for group in groups]


def news(seq: int, changes: Sequence[Changed]) -> list[News]:
    pieces: list[list[Changed]] = [[]]
    machines = 0
    for one in changes:
        if machines >= SLICE_MACHINES:
            pieces.append([])
            machines = 0
        pieces[-1].append(one)
        machines += 1 + len(one.machines or ())
    return [News(seq, tuple(piece), more=n < len(pieces)) for n, piece in enumerate(pieces, 1)]


def changed(before: Group | None, after: Group) -> Changed | None:
    """What guests, or who they are, would be told differently; None if that is not worth a word."""
    if before is None:
        news = told(after)
        return Changed(news.view, news.machines, news.place)
    machines = None
    if before.machines is not after.machines:
        machines = tuple(map(_to_guests, after.machines))
        if machines == tuple(map(_to_guests, before.machines)):
            machines = None
    place = None if before.place == after.place else after.place
    shown = view(after)
    if view(before) == shown and machines is None and place is None:
        return None
    return Changed(shown, machines, place)


def _to_guests(machine: Machine) -> Machine:
    if not machine.labels and not machine.host and not machine.moved_from:
        return machine
    return msgspec.structs.replace(machine, labels={}, host="", moved_from="")
