"""Mutable records of one machine and of one event while lines are read, bounded in size.

They are private to `TimelineMemory`; `to_value` turns each into the immutable value that is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from forewarn.testing.timeline.values import (
    MAX_MARKS,
    MAX_OUTAGES,
    MAX_TICKS,
    EventBar,
    Impact,
    Lane,
    Mark,
    Span,
)
from forewarn.traces.courses import Course
from forewarn.traces.lines import MAX_RESOURCES


class EventRecord(Course[float]):
    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.approved: float | None = None
        self.approved_by = ""
        self.impacts: list[Impact] = []
        self.seen: dict[str, float] = {}  # by machine of the event

    def add_impact(self, impact: Impact) -> None:
        if len(self.impacts) < MAX_RESOURCES:
            self.impacts.append(impact)

    def to_value(self) -> EventBar:
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
            seen=dict(self.seen),
        )


@dataclass(slots=True)
class LaneRecord:
    machine: str
    group: str = ""
    polls: int = 0
    ticks: list[Span] = field(default_factory=list)
    width: float = 0.0  # seconds that one tick may span; grows when there are many
    marks: list[Mark] = field(default_factory=list)
    approvals: list[tuple[float, str]] = field(default_factory=list)
    last_answer: tuple[int, int] = (0, 0)  # length and hash of the last document
    listed_events: frozenset[str] = frozenset()  # the ids in the last document
    disconnected: list[Span] = field(default_factory=list)
    disconnected_since: float | None = None

    def add_poll(self, t: float) -> None:
        self.polls += 1
        last = self.ticks[-1] if self.ticks else None
        if last is not None and last.start <= t <= max(last.end, last.start + self.width):
            self.ticks[-1] = Span(last.start, max(last.end, t))
            return
        self.ticks.append(Span(t, t))
        if len(self.ticks) > MAX_TICKS:
            self._merge_ticks()

    def _merge_ticks(self) -> None:
        """Halve the number of ticks by doubling the time that one may span."""
        self.ticks.sort(key=lambda tick: tick.start)
        duration = self.ticks[-1].end - self.ticks[0].start
        self.width = max(self.width * 2, duration / (MAX_TICKS / 2))
        merged: list[Span] = []
        for tick in self.ticks:
            if merged and tick.end <= merged[-1].start + self.width:
                last = merged[-1]
                merged[-1] = Span(last.start, max(last.end, tick.end))
            else:
                merged.append(tick)
        self.ticks = merged

    def add_mark(self, t: float, kind: str) -> None:
        if len(self.marks) < MAX_MARKS:
            self.marks.append(Mark(t, kind))

    def end_disconnected(self, t: float) -> None:
        if self.disconnected_since is not None and len(self.disconnected) < MAX_OUTAGES:
            self.disconnected.append(Span(self.disconnected_since, max(self.disconnected_since, t)))
        self.disconnected_since = None

    def to_value(self, events: tuple[str, ...], now: float) -> Lane:
        still = (
            ()
            if self.disconnected_since is None
            else (Span(self.disconnected_since, max(self.disconnected_since, now)),)
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
