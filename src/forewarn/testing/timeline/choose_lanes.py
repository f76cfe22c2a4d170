"""Selects the lanes to draw when there are too many for a picture.

Machines with events or marks come first; the others are counted in one line.
"""

from __future__ import annotations

import msgspec

from forewarn.testing.timeline.values import Lane, Picture

MAX_ALL_DRAWN = 24  # machines; so few are all drawn, quiet or not, if there is room
MAX_DRAWN = 40  # lanes in a picture


class LaneSelection(msgspec.Struct, frozen=True):
    """The lanes to draw, and counts of the others."""

    groups: tuple[tuple[str, tuple[Lane, ...]], ...]  # by group, in drawing order
    busy: int = 0  # machines with events or marks that are not drawn
    quiet: int = 0  # machines without events and marks that are not drawn
    polls: int = 0  # of the machines that are not drawn
    dropped_machines: int = 0  # machines without a lane

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(lane for _, lanes in self.groups for lane in lanes)

    @property
    def remainder(self) -> str:
        """Describe the machines that are not drawn."""
        busy = f"{_machines(self.busy, 'more ')} with events"
        parts = [busy] if self.busy else []
        parts += [_machines(self.quiet, "quiet ")] if self.quiet else []
        polls = f" ({self.polls:,} polls)" if self.polls else ""
        text = f"… and {' and '.join(parts)}{polls}" if parts else ""
        if not self.dropped_machines:
            return text
        return (
            f"{text or '…'} and {_machines(self.dropped_machines, '')} that could not be followed"
        )


def choose(picture: Picture, at_most: int = MAX_DRAWN) -> LaneSelection:
    lanes = picture.lanes
    drawn = list(lanes)
    if len(lanes) > min(at_most, MAX_ALL_DRAWN):
        drawn = sorted((lane for lane in lanes if not lane.quiet), key=_rank)[: max(at_most, 1)]
    names = {lane.machine for lane in drawn}
    others = [lane for lane in lanes if lane.machine not in names]
    groups: dict[str, list[Lane]] = {}
    for lane in drawn:
        groups.setdefault(lane.group, []).append(lane)
    return LaneSelection(
        groups=tuple((group, tuple(members)) for group, members in groups.items()),
        busy=sum(not lane.quiet for lane in others),
        quiet=sum(lane.quiet for lane in others),
        polls=sum(lane.polls for lane in others),
        dropped_machines=picture.dropped_machines,
    )


def _rank(lane: Lane) -> tuple[bool, bool, bool]:
    """Sort machines that poll and have an event first: in a storm, most machines do not poll."""
    return not (lane.events and lane.polls), not lane.events, not lane.approvals


def _machines(count: int, adjective: str) -> str:
    return f"{count:,} {adjective}machine{'' if count == 1 else 's'}"
