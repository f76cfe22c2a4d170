"""Events as a trace tells of them, and each machine's way through one.

Told by `event` lines where the service records; where only a client does, by the documents alone.
"""

from __future__ import annotations

from forewarn.traces.exchanges import Exchange, Stamp
from forewarn.verdict.clients import Client
from forewarn.verdict.values import Course

SCHEDULED, STARTED = "Scheduled", "Started"
WITHDRAWN, FINISHED = "withdrawn", "finished"
FREEZE = "Freeze"
MAX_STATUSES = 4  # that one machine is shown of one event; there are two


class MachineCourse:
    """One machine's through one event. `asks_…` is how often it had asked by then."""

    __slots__ = (
        "approvals",
        "asks_over",
        "asks_started",
        "asks_visible",
        "attempted",
        "backing_off",
        "blind",
        "concerned",
        "gone",
        "machine",
        "prepared",
        "seen",
        "statuses",
        "told",
    )

    def __init__(self, machine: str, concerned: bool, asks: int) -> None:
        self.machine, self.concerned = machine, concerned
        self.asks_visible = asks
        self.asks_started: int | None = None
        self.asks_over: int | None = None
        self.seen: Stamp | None = None
        self.statuses: list[str] = []
        self.told: Stamp | None = None  # when it was shown the last of them
        self.gone: Stamp | None = None  # when it was shown a document without it
        self.prepared: float | None = None
        self.approvals = 0
        self.backing_off = False  # it had no usable answer when this became visible
        self.attempted: float | None = None  # to approve, and nobody knows whether it counted
        self.blind = ""  # the version it asked with, which does not show it

    def shown(self, status: str, at: Stamp) -> None:
        self.seen = self.seen or at
        if self.statuses[-1:] != [status] and len(self.statuses) < MAX_STATUSES:
            self.statuses.append(status)
            self.told = at
        self.gone = None


class EventCourse:
    """`told`: by event lines, so that what is not in them has not happened."""

    def __init__(self, id: str, group: str, *, told: bool) -> None:
        self.id, self.group, self.told = id, group, told
        self.type = self.source = ""
        self.machines: tuple[str, ...] = ()
        self.seconds: float | None = None
        self.not_before: float | None = None
        self.visible: Stamp | None = None
        self.hidden = False  # it could not be seen for a while, though it was there
        self.struck = False  # it was never Scheduled
        self.approved: float | None = None
        self.approved_by = ""
        self.started: Stamp | None = None
        self.impact: float | None = None
        self.over: Stamp | None = None
        self.ending = ""
        self.ways: dict[str, MachineCourse] = {}

    @property
    def notice(self) -> float | None:
        if self.struck or self.visible is None or self.not_before is None:
            return None
        return self.not_before - self.visible.t

    @property
    def early(self) -> bool:
        """Did it start because somebody wanted it to?"""
        return self.started is not None and self.approved is not None

    def way(self, machine: str, client: Client | None) -> MachineCourse:
        found = self.ways.get(machine)
        if found is None:
            asks = client.asks if client else 0
            found = self.ways[machine] = MachineCourse(machine, machine in self.machines, asks)
        return found

    def begin(self, at: Stamp, clients: dict[str, Client]) -> None:
        if self.started is not None:
            return
        self.started = at
        for way in self.ways.values():
            way.asks_started = _asks(way, clients)
        tried = [(w.attempted, w.machine) for w in self.ways.values() if w.attempted is not None]
        early = self.not_before is not None and at.t < self.not_before and not self.struck
        if early and self.approved is None and tried:
            self.approved, self.approved_by = min(tried)

    def end(self, at: Stamp, ending: str, clients: dict[str, Client]) -> None:
        if self.over is not None:
            return
        self.over, self.ending = at, ending
        for way in self.ways.values():
            way.asks_over = _asks(way, clients)

    def approve(self, by: str, at: float) -> None:
        if self.approved is None and self.over is None and self.started is None:
            self.approved, self.approved_by = at, by

    def course(self, way: MachineCourse, client: Client | None) -> Course | None:
        if self.visible is None:
            return None
        asks = way.asks_over if way.asks_over is not None else client.asks if client else 0
        return Course(
            machine=way.machine,
            group=self.group,
            event=self.id,
            type=self.type,
            source=self.source,
            concerned=way.concerned,
            visible=self.visible.t,
            not_before=self.not_before,
            notice=_length(self.visible.t, None if self.struck else self.not_before),
            seen=way.seen.t if way.seen else None,
            seen_after=_length(self.visible.t, way.seen.t if way.seen else None),
            statuses=tuple(way.statuses),
            polls=max(0, asks - way.asks_visible),
            prepared=way.prepared,
            approved=self.approved,
            approved_by=self.approved_by,
            margin=_length(self.approved, self.not_before),
            started=self.started.t if self.started else None,
            started_by=self._started_by(),
            impact=self.impact,
            over=self.over.t if self.over else None,
            ending=self.ending,
            in_time=self._in_time(way),
        )

    def _started_by(self) -> str:
        if self.started is None:
            return ""
        if self.struck:
            return "failure"
        return "approval" if self.approved is not None else "not-before"

    def _in_time(self, way: MachineCourse) -> bool | None:
        if self.struck or not way.concerned:
            return None
        if way.statuses:
            return way.statuses[0] == SCHEDULED
        return False if self.started is not None else None


def after(it: Exchange, moment: Stamp | None) -> bool:
    """Is it certain that the request was sent after that?"""
    if moment is None:
        return False
    if moment.real is None or it.asked.real is None:
        return moment.t < it.asked.t
    return moment.real <= it.asked.real


def _asks(way: MachineCourse, clients: dict[str, Client]) -> int:
    client = clients.get(way.machine)
    return client.asks if client else 0


def _length(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else round(end - start, 6)
