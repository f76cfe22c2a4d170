"""All that is remembered of the lines heard so far: machines, events, absences, what was new.

What several kinds of lines have in common is done here; which line says what is in `exchanges` and
`steps`.
"""

from __future__ import annotations

from collections import deque

from forewarn.support.text import listing, visible
from forewarn.testing.timeline.kept import KeptEvent, KeptLane
from forewarn.testing.timeline.values import (
    MAX_AWAY,
    MAX_EVENTS,
    MAX_LANES,
    MAX_MARKS,
    MAX_NEWEST,
    Away,
)


class TimelineMemory:
    def __init__(self) -> None:
        self.lanes: dict[str, KeptLane] = {}
        self.events: dict[str, KeptEvent] = {}
        self.addresses: dict[str, str] = {}  # to the machine of each
        self.fleet = False  # has anybody said who is who?
        self.away: list[Away] = []
        self.newest: deque[tuple[float, str]] = deque(maxlen=MAX_NEWEST)
        self.changes: list[tuple[float, str]] = []  # what is new since somebody was last told
        self.begins: float | None = None
        self.now = 0.0
        self.down: float | None = None  # since when nobody serves
        self.ups = 0
        self.forgotten = 0
        self.unheard = 0

    def lane(self, name: str) -> KeptLane | None:
        found = self.lanes.get(name)
        if found is None and name:
            if len(self.lanes) >= MAX_LANES:
                # Or more: remembering who it was would be the same again. A fleet can be counted.
                self.unheard = max(self.unheard, 1)
                return None
            found = self.lanes[name] = KeptLane(name)
        return found

    def event(self, id: str) -> KeptEvent:
        found = self.events.get(id)
        if found is None:
            if len(self.events) >= MAX_EVENTS:
                over = (event.id for event in self.events.values() if event.over is not None)
                del self.events[next(over, next(iter(self.events)))]
                self.forgotten += 1
            found = self.events[id] = KeptEvent(id)
        return found

    def say(self, t: float, says: str) -> None:
        said = visible(says)
        self.newest.append((t, said))
        self.changes.append((t, said))

    def name(self, event: KeptEvent) -> str:
        return f"{event.type or 'event'} {event.id[:8]} of {listing(event.machines)}"

    def approved(self, id: str, by: str, t: float, lane: KeptLane | None) -> None:
        """`lane` is that of the machine that approved; an operator has none."""
        event = self.events.get(id)
        if event is None:
            return
        if lane is not None:
            if event.approved is not None and event.approved_by == by:
                t = min(t, event.approved)  # the service has said when; we hear of its answer
            sight = event.sight(by)
            again = sight is not None and sight.approved is not None
            if sight is not None and not again:
                sight.approved = t
            if not again and len(lane.approvals) < MAX_MARKS:
                lane.approvals.append((t, id))
        if event.approved is None:
            event.approved, event.approved_by = t, by
            self.say(t, f"{by} approved {self.name(event)}")

    def over(self, event: KeptEvent, ending: str, t: float) -> None:
        if event.over is None:
            event.over, event.ending = t, ending
            how = {"finished": "is over", "withdrawn": "was withdrawn"}.get(ending, "is gone")
            self.say(t, f"{self.name(event)} {how}")

    def gone(self, start: float, end: float, says: str) -> None:
        start = max(start, self.begins or 0.0)
        if len(self.away) < MAX_AWAY:
            self.away.append(Away(min(start, end), end, says))
        self.say(end, says)
