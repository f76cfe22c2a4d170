"""The life of every event in a recording: when it appeared, started and ended.

Taken from the service's own `event` lines if there are any, and else from the documents that
machines got. Faults in responses are in `answer_faults.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from forewarn.support.convert import convert
from forewarn.testing.recording.documents import RecordedDocument, recorded_document
from forewarn.traces.documents import ListedEvent
from forewarn.traces.exchanges import Exchange, Stamp, exchange
from forewarn.traces.lines import time_of

REFORMATTED = "reformatted"  # marks a document whose form has been altered
_ENDINGS = ("finish", "withdraw")


class EventLife(msgspec.Struct, kw_only=True):
    """One event. Times are seconds on the service's clock; None: not in the recording."""

    id: str
    type: str
    machines: tuple[str, ...]
    appeared: float
    not_before: float | None = None
    started: float | None = None
    over: float | None = None
    last_scheduled: float | None = None  # when it was last known not to have started
    withdrawn: bool = False
    description: str = ""
    source: str = "Platform"
    duration: int = -1

    @property
    def sudden(self) -> bool:
        """Whether it was never seen as Scheduled."""
        return self.last_scheduled is None

    @property
    def early(self) -> bool:
        """Whether it started before its NotBefore, and so was approved."""
        return (
            not self.sudden
            and self.started is not None
            and (self.not_before is None or self.started < self.not_before)
        )

    @property
    def late(self) -> bool:
        """Whether it was still Scheduled after its NotBefore."""
        return (
            self.started is not None
            and self.not_before is not None
            and self.last_scheduled is not None
            and self.last_scheduled > self.not_before
        )


class EventLives(msgspec.Struct, frozen=True, kw_only=True):
    """The lives of all events in a recording, and the machines in it."""

    lives: tuple[EventLife, ...]
    begins: float
    ends: float
    polls: Mapping[str, int]  # by machine
    groups: Mapping[str, str]  # name -> kind, from the recording
    machines: Mapping[str, Mapping[str, Any]]  # name -> properties, from the recording


def event_lives(lines: Iterable[Mapping[str, Any]]) -> EventLives:
    """Follow the events through trace lines, which are in the order of time."""
    builder = _Builder()
    for line in lines:
        builder.add(line)
    return builder.finish()


def document_of(poll: Exchange) -> RecordedDocument | None:
    """Return the document in the response to a poll; None if there is none."""
    if poll.status != 200 or poll.fault not in ("", REFORMATTED):
        return None
    if poll.method != "GET" or not poll.about_events:
        return None
    return recorded_document(poll.answer() or b"")


class _Builder:
    def __init__(self) -> None:
        self._by_documents: dict[str, EventLife] = {}
        self._by_moves: dict[str, EventLife] = {}
        self._live: dict[str, dict[str, EventLife]] = {}  # events of the last document, by machine
        self._listed: dict[str, ListedEvent] = {}  # last entry of each event
        self._polls: dict[str, int] = {}
        self._groups: dict[str, str] = {}
        self._machines: dict[str, Mapping[str, Any]] = {}
        self._first: float | None = None
        self._last = 0.0

    def add(self, line: Mapping[str, Any]) -> None:
        t = time_of(line)
        if t is None:
            return
        self._last = t
        if line.get("kind") in ("exchange", "event") and self._first is None:
            self._first = t
        match line.get("kind"):
            case "exchange":
                self._exchange(exchange(line, Stamp(t)), t)
            case "event":
                self._update_from_step(line, t)
            case "fleet":
                self._fleet(line)

    def _fleet(self, line: Mapping[str, Any]) -> None:
        groups, machines = line.get("groups"), line.get("machines")
        if isinstance(groups, Mapping) and isinstance(machines, Mapping):
            for name, group in groups.items():
                if isinstance(group, Mapping) and isinstance(group.get("kind"), str):
                    self._groups[str(name)] = group["kind"]
            for name, machine in machines.items():
                if isinstance(machine, Mapping) and isinstance(machine.get("group"), str):
                    self._machines[str(name)] = machine

    # From documents.

    def _exchange(self, poll: Exchange, t: float) -> None:
        machine = poll.machine
        if machine and poll.method == "GET" and poll.about_events:
            self._polls[machine] = self._polls.get(machine, 0) + 1
        document = document_of(poll)
        if document is None:
            return
        before = self._live.setdefault(machine, {})
        now: dict[str, EventLife] = {}
        for event in document.events:
            self._listed[event.id] = event
            now[event.id] = self._update_from_document(event, t)
        types = poll.known_version.types
        for id, life in before.items():
            if id in now:
                continue
            if life.type not in types:
                now[id] = life  # not shown by this older version
            elif life.over is None:
                _end_unlisted(life, t)
        self._live[machine] = now

    def _update_from_document(self, event: ListedEvent, t: float) -> EventLife:
        life = self._by_documents.get(event.id)
        if life is None:
            life = self._by_documents[event.id] = EventLife(
                id=event.id, type=event.type, machines=event.resources, appeared=t
            )
        if event.status == "Scheduled":
            life.last_scheduled = t
            if event.not_before is not None:
                life.not_before = event.not_before
        elif life.started is None:
            life.started = t
        return life

    # From the service's own lines.

    def _update_from_step(self, line: Mapping[str, Any], t: float) -> None:
        try:
            step = convert(line, _Move)
        except msgspec.ValidationError:
            return
        life = self._by_moves.get(step.event)
        if life is None:
            if not step.listed or step.move in _ENDINGS:
                return
            life = self._by_moves[step.event] = EventLife(
                id=step.event,
                type=step.type,
                machines=step.machines,
                appeared=t,
                source=step.source,
                duration=step.seconds,
            )
        if step.status == "Scheduled":
            life.last_scheduled, life.not_before = t, step.not_before
        elif step.move in _ENDINGS:
            life.over, life.withdrawn = t, step.move == "withdraw"
        elif life.started is None:
            life.started = t
            if life.last_scheduled is not None:
                life.last_scheduled = t

    def finish(self) -> EventLives:
        lives = self._by_moves or self._by_documents
        for life in lives.values():
            listed = self._listed.get(life.id)
            if listed is None:
                continue
            life.description = listed.description or ""
            if not self._by_moves:
                life.source = "User" if listed.source == "User" else "Platform"
                life.duration = -1 if listed.seconds is None else int(listed.seconds)
        return EventLives(
            lives=tuple(sorted(lives.values(), key=lambda life: life.appeared)),
            begins=self._last if self._first is None else self._first,
            ends=self._last,
            polls=self._polls,
            groups=self._groups,
            machines=self._machines,
        )


class _Move(msgspec.Struct):
    event: str
    move: str
    status: str
    type: str
    source: str
    machines: tuple[str, ...]
    not_before: float
    seconds: int
    listed: bool


def _end_unlisted(life: EventLife, t: float) -> None:
    """End the life of an event that is not listed any more.

    If it was never seen as Started it was withdrawn, unless it was due in between: then it started
    and ended between two polls.
    """
    life.over = t
    if life.started is not None:
        return
    if life.not_before is not None and life.not_before <= t:
        life.started = max(life.not_before, life.last_scheduled or life.not_before)
    else:
        life.withdrawn = True
