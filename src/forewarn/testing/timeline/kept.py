"""What is kept of one machine and of one event while lines are heard, within bounds.

Mutable, and nobody else's: what is drawn is the value that `value` makes of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from forewarn.testing.timeline.values import (
    MAX_MARKS,
    MAX_ONLOOKERS,
    MAX_TICKS,
    EventBar,
    Impact,
    Lane,
    Mark,
    Sighting,
    Tick,
)
from forewarn.traces.documents import ListedEvent
from forewarn.traces.lines import MAX_RESOURCES


@dataclass(slots=True)
class KeptSighting:
    seen: float | None = None
    seen_as: str = ""
    approved: float | None = None
    gone: float | None = None


@dataclass(slots=True)
class KeptEvent:
    id: str
    type: str = ""
    source: str = ""
    group: str = ""
    machines: tuple[str, ...] = ()
    visible: float | None = None
    not_before: float | None = None
    approved: float | None = None
    approved_by: str = ""
    started: float | None = None
    impacts: list[Impact] = field(default_factory=list)
    over: float | None = None
    ending: str = ""
    told: bool = False  # by the service, step by step; else it is guessed from documents
    sights: dict[str, KeptSighting] = field(default_factory=dict)
    onlookers: int = 0

    def learn(self, listed: ListedEvent) -> None:
        """Fill in what is not known yet from a document."""
        self.type = self.type or listed.type
        self.source = self.source or listed.source
        self.machines = self.machines or listed.resources
        if self.not_before is None:
            self.not_before = listed.not_before

    def sight(self, machine: str) -> KeptSighting | None:
        """What this machine knows of it; None if too many onlookers are remembered already."""
        found = self.sights.get(machine)
        if found is None:
            if machine not in self.machines:
                if self.onlookers >= MAX_ONLOOKERS:
                    return None
                self.onlookers += 1
            found = self.sights[machine] = KeptSighting()
        return found

    def struck(self, impact: Impact) -> None:
        if len(self.impacts) < MAX_RESOURCES:
            self.impacts.append(impact)

    def value(self) -> EventBar:
        concerned = [name for name in self.machines if name not in self.sights]
        sights = [
            Sighting(name, name in self.machines, kept.seen, kept.seen_as, kept.approved, kept.gone)
            for name, kept in self.sights.items()
        ]
        sights += [Sighting(name, True) for name in concerned]
        order = {name: place for place, name in enumerate(self.machines)}
        sights.sort(key=lambda sight: order.get(sight.machine, len(order)))
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
            over=self.over,
            ending=self.ending,
            sights=tuple(sights),
        )


@dataclass(slots=True)
class KeptLane:
    machine: str
    group: str = ""
    domain: str = ""
    polls: int = 0
    ticks: list[Tick] = field(default_factory=list)
    width: float = 0.0  # polls so close together are one tick; grows when there are many
    marks: list[Mark] = field(default_factory=list)
    approvals: list[tuple[float, str]] = field(default_factory=list)
    answer: tuple[int, int] = (0, 0)  # length and hash of the last document, to know it again
    showing: frozenset[str] = frozenset()  # the events in it

    def poll(self, t: float) -> None:
        self.polls += 1
        last = self.ticks[-1] if self.ticks else None
        if last is not None and last.start <= t <= max(last.end, last.start + self.width):
            self.ticks[-1] = Tick(last.start, max(last.end, t), last.count + 1)
            return
        self.ticks.append(Tick(t, t, 1))
        if len(self.ticks) > MAX_TICKS:
            self._gather()

    def _gather(self) -> None:
        """Half as many ticks, of about twice the width."""
        self.ticks.sort(key=lambda tick: tick.start)
        whole = self.ticks[-1].end - self.ticks[0].start
        self.width = max(self.width * 2, whole / (MAX_TICKS / 2))
        made: list[Tick] = []
        for tick in self.ticks:
            if made and tick.end <= made[-1].start + self.width:
                last = made[-1]
                made[-1] = Tick(last.start, max(last.end, tick.end), last.count + tick.count)
            else:
                made.append(tick)
        self.ticks = made

    def mark(self, t: float, kind: str, says: str) -> None:
        """The same again, right after, is counted; where there is no room, into the last."""
        last = self.marks[-1] if self.marks else None
        same = last is not None and (last.kind, last.says) == (kind, says)
        if last is not None and (same or len(self.marks) >= MAX_MARKS):
            until = max(last.until, t)
            self.marks[-1] = Mark(last.t, until, last.kind, last.says, last.count + 1)
        else:
            self.marks.append(Mark(t, t, kind, says))

    def value(self, events: tuple[str, ...]) -> Lane:
        return Lane(
            machine=self.machine,
            group=self.group,
            domain=self.domain,
            polls=self.polls,
            ticks=tuple(self.ticks),
            marks=tuple(self.marks),
            events=events,
            approvals=tuple(self.approvals),
        )
