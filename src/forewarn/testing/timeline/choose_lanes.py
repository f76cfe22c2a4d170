"""Which lanes are drawn when there are more than anybody can look at.

Those that something happened to come first; the quiet ones become one line that counts them.
"""

from __future__ import annotations

import msgspec

from forewarn.testing.timeline.values import Lane, Picture

ROOMY = 24  # so few machines are all drawn, quiet or not, where there is room
MAX_DRAWN = 40  # lanes in a picture


class Chosen(msgspec.Struct, frozen=True):
    groups: tuple[tuple[str, tuple[Lane, ...]], ...]  # by group, in the order they are drawn in
    busy: int = 0  # machines that something happened to, and that are not drawn
    quiet: int = 0  # machines that only asked, or not even that
    polls: int = 0  # of all those that are not drawn
    unheard: int = 0  # machines of which nothing is known

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(lane for _, lanes in self.groups for lane in lanes)

    @property
    def rest(self) -> str:
        """Those that are not drawn, in words."""
        busy = f"{_machines(self.busy, 'more ')} that something happened to"
        parts = [busy] if self.busy else []
        parts += [_machines(self.quiet, "quiet ")] if self.quiet else []
        polls = f" ({self.polls:,} polls)" if self.polls else ""
        said = f"… and {' and '.join(parts)}{polls}" if parts else ""
        if not self.unheard:
            return said
        return f"{said or '…'} and {_machines(self.unheard, '')} too many to be followed"


def choose(picture: Picture, at_most: int = MAX_DRAWN) -> Chosen:
    lanes = picture.lanes
    drawn = list(lanes)
    if len(lanes) > min(at_most, ROOMY):
        drawn = sorted((lane for lane in lanes if not lane.quiet), key=_rank)[: max(at_most, 1)]
    names = {lane.machine for lane in drawn}
    left = [lane for lane in lanes if lane.machine not in names]
    groups: dict[str, list[Lane]] = {}
    for lane in drawn:
        groups.setdefault(lane.group, []).append(lane)
    return Chosen(
        groups=tuple((group, tuple(members)) for group, members in groups.items()),
        busy=sum(not lane.quiet for lane in left),
        quiet=sum(lane.quiet for lane in left),
        polls=sum(lane.polls for lane in left),
        unheard=picture.unheard,
    )


def _rank(lane: Lane) -> tuple[bool, bool, bool]:
    """Whoever asks and has an event is what one wants to see; of a storm, most do not ask."""
    return not (lane.events and lane.polls), not lane.events, not lane.approvals


def _machines(count: int, which: str) -> str:
    return f"{count:,} {which}machine{'' if count == 1 else 's'}"
