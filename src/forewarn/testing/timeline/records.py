"""Mutable records of one machine and of one event while lines are read, bounded in size.

They are private to `TimelineMemory`; `to_value` turns each into the immutable value that is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from forewarn.testing.timeline.values import (
    MAX_MARKS,
    MAX_OTHER_MACHINES,
    MAX_OUTAGES,
    MAX_TICKS,
    EventBar,
    Impact,
    Lane,
    Mark,
    Outage,
    Sighting,
    Tick,
)
from forewarn.traces.courses import Course
from forewarn.traces.lines import MAX_RESOURCES


@dataclass(slots=True)
class SightingRecord:
    seen: float | None = None
    approved: float | None = None


class EventRecord(Course[float]):
    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.approved: float | None = None
        self.approved_by = ""
        self.impacts: list[Impact] = []
        self.sightings: dict[str, SightingRecord] = {}
        self.other_machines = 0

    def sighting(self, machine: str) -> SightingRecord | None:
        """Return the record of this machine, which is created if needed.

        None if the record would be one more than MAX_OTHER_MACHINES.
        """
        sighting = self.sightings.get(machine)
        if sighting is None:
            if machine not in self.machines:
                if self.other_machines >= MAX_OTHER_MACHINES:
                    return None
                self.other_machines += 1
            sighting = self.sightings[machine] = SightingRecord()
        return sighting

    def add_impact(self, impact: Impact) -> None:
        if len(self.impacts) < MAX_RESOURCES:
            self.impacts.append(impact)

    def to_value(self) -> EventBar:
        unseen = [name for name in self.machines if name not in self.sightings]
        sightings = [
            Sighting(name, record.seen, record.approved) for name, record in self.sightings.items()
        ]
        sightings += [Sighting(name) for name in unseen]
        order = {name: place for place, name in enumerate(self.machines)}
        sightings.sort(key=lambda sight: order.get(sight.machine, len(order)))
        return EventBar(
            id=self.id,
            type=self.type or "Event",
            source=self.source,
            group=self.group,
            machines=self.machines,
            visible=self.visible,
            not_before=self.not_before,
            approved=self.approved,
            approved_by=self.approved_by,
            started=self.started,
            impacts=tuple(self.impacts),
            ended=self.over,
            ending=self.ending,
            sightings=tuple(sightings),
        )


@dataclass(slots=True)
class LaneRecord:
    machine: str
    group: str = ""
    polls: int = 0
    ticks: list[Tick] = field(default_factory=list)
    width: float = 0.0  # seconds that one tick may span; grows when there are many
    marks: list[Mark] = field(default_factory=list)
    approvals: list[tuple[float, str]] = field(default_factory=list)
    last_answer: tuple[int, int] = (0, 0)  # length and hash of the last document
    listed_events: frozenset[str] = frozenset()  # the ids in the last document
    disconnected: list[Outage] = field(default_factory=list)
    disconnected_since: float | None = None

    def add_poll(self, t: float) -> None:
        self.polls += 1
        last = self.ticks[-1] if self.ticks else None
        if last is not None and last.start <= t <= max(last.end, last.start + self.width):
            self.ticks[-1] = Tick(last.start, max(last.end, t), last.count + 1)
            return
        self.ticks.append(Tick(t, t, 1))
        if len(self.ticks) > MAX_TICKS:
            self._merge_ticks()

    def _merge_ticks(self) -> None:
        """Halve the number of ticks by doubling the time that one may span."""
        self.ticks.sort(key=lambda tick: tick.start)
        duration = self.ticks[-1].end - self.ticks[0].start
        self.width = max(self.width * 2, duration / (MAX_TICKS / 2))
        merged: list[Tick] = []
        for tick in self.ticks:
            if merged and tick.end <= merged[-1].start + self.width:
                last = merged[-1]
                merged[-1] = Tick(last.start, max(last.end, tick.end), last.count + tick.count)
            else:
                merged.append(tick)
        self.ticks = merged

    def add_mark(self, t: float, kind: str, message: str) -> None:
        """Add a mark, or count it in the last one if that is the same or there are too many."""
        last = self.marks[-1] if self.marks else None
        same = last is not None and (last.kind, last.message) == (kind, message)
        if last is not None and (same or len(self.marks) >= MAX_MARKS):
            until = max(last.until, t)
            self.marks[-1] = Mark(last.t, until, last.kind, last.message, last.count + 1)
        else:
            self.marks.append(Mark(t, t, kind, message))

    def end_disconnected(self, t: float) -> None:
        if self.disconnected_since is not None and len(self.disconnected) < MAX_OUTAGES:
            self.disconnected.append(_disconnected(self.disconnected_since, t))
        self.disconnected_since = None

    def to_value(self, events: tuple[str, ...], now: float) -> Lane:
        still = (
            ()
            if self.disconnected_since is None
            else (_disconnected(self.disconnected_since, now),)
        )
        return Lane(
            machine=self.machine,
            group=self.group,
            polls=self.polls,
            ticks=tuple(self.ticks),
            marks=tuple(self.marks),
            events=events,
            approvals=tuple(self.approvals),
            disconnected=(*self.disconnected, *still),
        )


def _disconnected(start: float, end: float) -> Outage:
    return Outage(start, max(start, end), "control could not reach its node")
