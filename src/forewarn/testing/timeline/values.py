"""The contents of a timeline as immutable values: lanes of machines, events, marks and outages.

Times are seconds since 1970 on the service's clock, as in a trace. Nothing here reads
lines or draws.
"""

from __future__ import annotations

import msgspec

MAX_LANES = 2_000  # machines that are remembered
MAX_EVENTS = 1_000  # events that are remembered; beyond, the oldest one that has ended is dropped
MAX_TICKS = 200  # ticks into which the polls of a lane are merged
MAX_MARKS = 100  # marks on a lane
MAX_OUTAGES = 100  # outages of the service that are remembered, and of each machine's node
MAX_SCENARIOS = 50  # results of scenarios that are remembered
MAX_EXPECTATIONS = 1_000  # of one scenario
MAX_SENTENCE = 1_000  # characters of an expectation, or of what came of it
MAX_CHANGES = 8  # of the latest changes, described in words

UNKNOWN_CALLERS = "unknown callers"  # the lane of callers that are not machines of the fleet


class Span(msgspec.Struct, frozen=True):
    """A time: of polls that are drawn as one, or in which the service or a node was away."""

    start: float
    end: float


class Mark(msgspec.Struct, frozen=True):
    """A fault, a refused request or a readiness report."""

    t: float
    kind: str  # fault, refused or ready


class Impact(msgspec.Struct, frozen=True):
    t: float
    machines: tuple[str, ...]


class EventBar(msgspec.Struct, frozen=True, kw_only=True):
    """One event, from its announcement to its end."""

    id: str
    type: str
    source: str
    group: str
    machines: tuple[str, ...]
    visible: float | None = None  # when it was first listed; None if it never was
    not_before: float | None = None
    approved: float | None = None
    approved_by: str = ""
    started: float | None = None
    impacts: tuple[Impact, ...] = ()
    ended: float | None = None
    ending: str = ""  # finished, withdrawn, or gone if the trace does not say which
    seen: dict[str, float] = {}  # by machine of the event: when it first got it in a document

    @property
    def begins(self) -> float | None:
        times = [t for t in (self.visible, self.started) if t is not None]
        return min(times) if times else None


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to one machine. `events` are the ids of those that list it in Resources."""

    machine: str
    group: str = ""
    polls: int = 0
    ticks: tuple[Span, ...] = ()
    marks: tuple[Mark, ...] = ()
    events: tuple[str, ...] = ()
    approvals: tuple[tuple[float, str], ...] = ()  # the time and the id of the event
    disconnected: tuple[Span, ...] = ()  # when control could not reach its node

    @property
    def quiet(self) -> bool:
        return not (self.events or self.marks or self.approvals or self.disconnected)


class ScenarioExpectation(msgspec.Struct, frozen=True):
    """One expectation of a scenario, and whether it was met."""

    expected: str
    ok: bool
    message: str = ""  # the problem; or, if it is ok, what was not checked


class ScenarioOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a scenario that was played: the problems of playing it, and expectations."""

    scenario: str
    ok: bool
    problems: tuple[str, ...] = ()
    expectations: tuple[ScenarioExpectation, ...] = ()

    @property
    def failures(self) -> tuple[str, ...]:
        """Return a sentence for every problem and for every expectation that is not met."""
        return self.problems + tuple(
            f"{item.expected}: {item.message}" if item.message else item.expected
            for item in self.expectations
            if not item.ok
        )


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The whole timeline at one moment. Lanes are sorted by group, in the order of the fleet."""

    begins: float
    now: float
    ends: float  # later than now if an event is still to start
    lanes: tuple[Lane, ...] = ()
    events: tuple[EventBar, ...] = ()
    outages: tuple[Span, ...] = ()  # when the service did not serve, or its clock was stepped
    latest_changes: tuple[tuple[float, str], ...] = ()
    scenarios: tuple[ScenarioOutcome, ...] = ()  # that were played meanwhile
    dropped_events: int = 0  # events that were dropped because of MAX_EVENTS
    dropped_machines: int = 0  # machines without a lane because of MAX_LANES
    recorded: bool = False  # whether any line has been read

    def event(self, id: str) -> EventBar | None:
        return self.by_id.get(id)

    @property
    def by_id(self) -> dict[str, EventBar]:
        return {event.id: event for event in self.events}
