"""What a timeline shows, as values: lanes of machines, what happened on them, and how far we see.

Times are seconds since 1970 on the service's clock, as in a trace. Nothing here hears or draws.
"""

from __future__ import annotations

import msgspec

MAX_LANES = 2_000  # machines that are remembered
MAX_EVENTS = 1_000  # events that are remembered; beyond, the oldest that is over is forgotten
MAX_ONLOOKERS = 50  # machines of an event's group, beside its own, whose sight of it is kept
MAX_TICKS = 200  # stretches into which the polls of a lane are gathered
MAX_MARKS = 100  # marks on a lane
MAX_AWAY = 100  # times that the service was away
MAX_NEWEST = 8  # sentences about what changed last

STRANGERS = "strangers"  # the lane of callers that are no machine of the fleet


class Tick(msgspec.Struct, frozen=True):
    """Polls, one or many, so close together that they are drawn as one."""

    start: float
    end: float
    count: int


class Mark(msgspec.Struct, frozen=True):
    """Something that happened to a machine beside its events; several of a kind are one."""

    t: float
    until: float
    kind: str  # fault, refused or ready
    says: str
    count: int = 1


class Impact(msgspec.Struct, frozen=True):
    t: float
    machines: tuple[str, ...]
    seconds: float


class Sighting(msgspec.Struct, frozen=True):
    """What one machine of the group knew of an event, and did about it."""

    machine: str
    concerned: bool
    seen: float | None = None
    seen_as: str = ""  # the status that it was first shown with
    approved: float | None = None
    gone: float | None = None  # when it was first shown a document without it


class EventBar(msgspec.Struct, frozen=True, kw_only=True):
    """One event, from the moment it could be seen until it was over."""

    id: str
    type: str
    source: str
    group: str
    machines: tuple[str, ...]
    visible: float | None = None  # None: nobody could see it
    not_before: float | None = None
    approved: float | None = None
    approved_by: str = ""
    started: float | None = None
    impacts: tuple[Impact, ...] = ()
    over: float | None = None
    ending: str = ""  # finished, withdrawn, or gone where nobody can tell
    sights: tuple[Sighting, ...] = ()

    @property
    def begins(self) -> float | None:
        known = [t for t in (self.visible, self.started) if t is not None]
        return min(known) if known else None

    def sight(self, machine: str) -> Sighting | None:
        return next((sight for sight in self.sights if sight.machine == machine), None)


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One machine. `events` are the ids of those that it is a Resource of."""

    machine: str
    group: str = ""
    domain: str = ""
    polls: int = 0
    ticks: tuple[Tick, ...] = ()
    marks: tuple[Mark, ...] = ()
    events: tuple[str, ...] = ()
    approvals: tuple[tuple[float, str], ...] = ()  # when, and of which event

    @property
    def quiet(self) -> bool:
        return not (self.events or self.marks or self.approvals)


class Away(msgspec.Struct, frozen=True):
    """When the service did not serve, or its clock was stepped over."""

    start: float
    end: float
    says: str


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """All of it at one moment. Lanes stand group by group, in the order of the fleet."""

    begins: float
    now: float
    ends: float  # later than now while something is still to come
    lanes: tuple[Lane, ...] = ()
    events: tuple[EventBar, ...] = ()
    away: tuple[Away, ...] = ()
    newest: tuple[tuple[float, str], ...] = ()
    forgotten: int = 0  # events that are no longer remembered
    unheard: int = 0  # machines for which there was no room
    recorded: bool = False  # has anything been heard at all?

    def event(self, id: str) -> EventBar | None:
        return self.by_id.get(id)

    @property
    def by_id(self) -> dict[str, EventBar]:
        return {event.id: event for event in self.events}

    @property
    def polls(self) -> int:
        return sum(lane.polls for lane in self.lanes)
