"""What is remembered of the lines read so far: machines, events, outages and the latest changes.

What several kinds of lines have in common is done here; the meaning of each kind is in `exchanges`
and `steps`.
"""

from __future__ import annotations

from collections import deque

from forewarn.support.repeats import RepeatCounter
from forewarn.support.text import listing, visible
from forewarn.testing.timeline.records import EventRecord, LaneRecord
from forewarn.testing.timeline.values import (
    MAX_CHANGES,
    MAX_EVENTS,
    MAX_LANES,
    MAX_MARKS,
    MAX_OUTAGES,
    ScenarioOutcome,
    Span,
)
from forewarn.traces.courses import FINISHED, WITHDRAWN


class TimelineMemory:
    def __init__(self) -> None:
        self.lanes: dict[str, LaneRecord] = {}
        self.events: dict[str, EventRecord] = {}
        self.addresses: dict[str, str] = {}  # address -> machine
        self.fleet_known = False  # whether a `fleet` line has been read
        self.outages: list[Span] = []
        self.scenarios: list[ScenarioOutcome] = []
        self.latest_changes: deque[tuple[float, str]] = deque(maxlen=MAX_CHANGES)
        self.changes: list[tuple[float, str]] = []  # that `on_change` has not been called with yet
        self._repeats = RepeatCounter()
        self._repeated: dict[str, tuple[float, str]] = {}  # their latest changes, by message
        self.begins: float | None = None
        self.now = 0.0
        self.down_since: float | None = None  # None while the service runs
        self.starts = 0  # of the service
        self.dropped_events = 0
        self.dropped_machines = 0

    def lane(self, name: str) -> LaneRecord | None:
        lane = self.lanes.get(name)
        if lane is None and name:
            if len(self.lanes) >= MAX_LANES:
                # At least one: counting them would mean remembering their names.
                self.dropped_machines = max(self.dropped_machines, 1)
                return None
            lane = self.lanes[name] = LaneRecord(name)
        return lane

    def event(self, id: str) -> EventRecord:
        record = self.events.get(id)
        if record is None:
            if len(self.events) >= MAX_EVENTS:
                ended = (event.id for event in self.events.values() if event.over is not None)
                del self.events[next(ended, next(iter(self.events)))]
                self.dropped_events += 1
            record = self.events[id] = EventRecord(id)
        return record

    def report(self, t: float, message: str) -> None:
        """Add a sentence to the latest changes."""
        text = visible(message)
        self.latest_changes.append((t, text))
        self.changes.append((t, text))

    def report_repeated(self, t: float, message: str, times: int) -> None:
        """Add a sentence about something that may be repeated for hours: among the latest changes
        it stands once, with a count, and as a change it counts only now and then."""
        text = visible(message)
        count, due = self._repeats.add(text, times)
        earlier = self._repeated.pop(text, None)
        if earlier is not None and earlier in self.latest_changes:
            self.latest_changes.remove(earlier)
        shown = t, text if count == 1 else f"{text} ({count:,} times)"
        if len(self._repeated) < MAX_CHANGES:
            self._repeated[text] = shown
        self.latest_changes.append(shown)
        if due:
            self.changes.append(shown)

    def describe(self, event: EventRecord) -> str:
        return f"{event.type or 'event'} {event.id[:8]} of {listing(event.machines)}"

    def record_approval(self, id: str, by: str, t: float, lane: LaneRecord | None) -> None:
        """Record an approval. `lane` is the approving machine's; None for an operator."""
        event = self.events.get(id)
        if event is None:
            return
        if lane is not None:
            if event.approved is not None and event.approved_by == by:
                t = min(t, event.approved)  # the answer is later than the approval
            again = any(approved == id for _, approved in lane.approvals)
            if not again and len(lane.approvals) < MAX_MARKS:
                lane.approvals.append((t, id))
        if event.approved is None:
            event.approved, event.approved_by = t, by
            self.report(t, f"{by} approved {self.describe(event)}")

    def record_end(self, event: EventRecord, ending: str, t: float) -> None:
        if event.over is None:
            event.end(t, ending)
            self.report_end(event, t)

    def report_end(self, event: EventRecord, t: float) -> None:
        outcomes = {FINISHED: "has ended", WITHDRAWN: "was withdrawn"}
        self.report(t, f"{self.describe(event)} {outcomes.get(event.ending, 'is gone')}")

    def record_outage(self, start: float, end: float, message: str) -> None:
        start = max(start, self.begins or 0.0)
        if len(self.outages) < MAX_OUTAGES:
            self.outages.append(Span(min(start, end), end))
        self.report(end, message)
