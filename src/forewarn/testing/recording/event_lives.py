"""The life of every event in a recording: when it appeared, started and ended.

Taken from the service's own `event` lines if there are any, and else from the documents that
machines got. Faults in responses are in `answer_faults.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from forewarn.testing.recording.documents import RecordedDocument, recorded_document
from forewarn.traces.courses import ENDINGS, FINISHED, WITHDRAWN, Course, id_of
from forewarn.traces.documents import ListedEvent
from forewarn.traces.exchanges import Exchange, Stamp, exchange
from forewarn.traces.lines import time_of

REFORMATTED = "reformatted"  # marks a document whose form has been altered


class EventLife(Course[float]):
    """One event. Times are seconds on the service's clock; None: not in the recording."""

    def __init__(self, id: str, appeared: float) -> None:
        super().__init__(id)
        self.visible = appeared
        self.last_scheduled: float | None = None  # when it was last known not to have started
        self.description = ""

    @property
    def appeared(self) -> float:
        assert self.visible is not None
        return self.visible

    @property
    def withdrawn(self) -> bool:
        return self.ending == WITHDRAWN

    @property
    def duration(self) -> int:
        return -1 if self.seconds is None else int(self.seconds)

    @property
    def never_scheduled(self) -> bool:
        """Whether it was never seen as Scheduled."""
        return self.last_scheduled is None

    @property
    def early(self) -> bool:
        """Whether it started before its NotBefore, and so was approved."""
        return (
            not self.never_scheduled
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
            life = self._by_documents[event.id] = EventLife(event.id, t)
            life.fill_in(event)
        if event.status == "Scheduled":
            life.last_scheduled = t
            if event.not_before is not None:
                life.not_before = event.not_before
        else:
            life.begin(t)
        return life

    # From the service's own lines.

    def _update_from_step(self, line: Mapping[str, Any], t: float) -> None:
        id = id_of(line)
        life = self._by_moves.get(id)
        if life is None:
            if not id or line.get("listed") is not True or line.get("move") in ENDINGS:
                return
            life = self._by_moves[id] = EventLife(id, t)
        begun = life.started is not None
        life.move(line, t)
        if line.get("status") == "Scheduled" or (
            life.started == t and not begun and life.last_scheduled is not None
        ):
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
        return EventLives(
            lives=tuple(sorted(lives.values(), key=lambda life: life.appeared)),
            begins=self._last if self._first is None else self._first,
            ends=self._last,
            polls=self._polls,
            groups=self._groups,
            machines=self._machines,
        )


def _end_unlisted(life: EventLife, t: float) -> None:
    """End the life of an event that is not listed any more.

    If it was never seen as Started it was withdrawn, unless it was due in between: then it started
    and ended between two polls.
    """
    due = life.not_before is not None and life.not_before <= t
    if life.started is None and life.not_before is not None and due:
        life.started = max(life.not_before, life.last_scheduled or life.not_before)
    life.end(t, WITHDRAWN if life.started is None else FINISHED)
