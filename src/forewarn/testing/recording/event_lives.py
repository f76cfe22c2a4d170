"""What became of every event in a recording: when it appeared, started and was gone.

Read off the documents that somebody was shown, or, more exactly, off a service's own `event` lines
where there are some. What went wrong with answers is `answer_faults.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from forewarn.testing.recording.documents import RecordedDocument, RecordedEvent, sheet
from forewarn.wire.versions import BY_NAME, NEWEST

PATH = "/metadata/scheduledevents"
PASTED = (
    "pasted"  # marks a document that somebody has shortened, and that proves nothing by its form
)
_OVER = ("finish", "withdraw")


class EventLife(msgspec.Struct, kw_only=True):
    """One event. Times are seconds on the service's clock; None: not in the recording."""

    id: str
    type: str
    machines: tuple[str, ...]
    appeared: float
    group: str = ""
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
        """Was it never known as Scheduled?"""
        return self.last_scheduled is None

    @property
    def early(self) -> bool:
        """Had somebody approved it?"""
        return (
            not self.sudden
            and self.started is not None
            and (self.not_before is None or self.started < self.not_before)
        )

    @property
    def late(self) -> bool:
        """Was it Scheduled still when its NotBefore had passed?"""
        return (
            self.started is not None
            and self.not_before is not None
            and self.last_scheduled is not None
            and self.last_scheduled > self.not_before
        )


class EventLives(msgspec.Struct, frozen=True, kw_only=True):
    """All lives of a recording, and who took part."""

    lives: tuple[EventLife, ...]
    begins: float
    ends: float
    asked: Mapping[str, int]  # polls, by machine
    shown: Mapping[str, frozenset[str]]  # the events that each machine was shown
    groups: Mapping[str, str]  # kinds, as the recording names them
    seats: Mapping[str, Mapping[str, Any]]  # machines, the same


def told(lines: Iterable[Mapping[str, Any]]) -> EventLives:
    """`lines` in the order of time."""
    telling = _Telling()
    for line in lines:
        telling.hear(line)
    return telling.told()


def moment(line: Mapping[str, Any]) -> float | None:
    t = line.get("t")
    ordinary = isinstance(t, int | float) and not isinstance(t, bool) and abs(t) < 1e11
    return float(t) if ordinary else None  # type: ignore[arg-type]


def document_of(line: Mapping[str, Any]) -> RecordedDocument | None:
    """The document that a poll was answered with; None if there is none in it."""
    if line.get("kind") != "exchange" or line.get("status") != 200:
        return None
    if line.get("fault") not in (None, PASTED):
        return None
    if line.get("method") != "GET" or not about_events(line):
        return None
    answer = line.get("answer")
    return sheet(answer) if isinstance(answer, str) else None


def about_events(line: Mapping[str, Any]) -> bool:
    target = line.get("target")
    return isinstance(target, str) and target.partition("?")[0].lower().rstrip("/") == PATH


class _Telling:
    def __init__(self) -> None:
        self._by_documents: dict[str, EventLife] = {}
        self._by_moves: dict[str, EventLife] = {}
        self._live: dict[str, dict[str, EventLife]] = {}  # by who asked: what stood in the last one
        self._words: dict[str, RecordedEvent] = {}
        self._asked: dict[str, int] = {}
        self._shown: dict[str, set[str]] = {}
        self._groups: dict[str, str] = {}
        self._seats: dict[str, Mapping[str, Any]] = {}
        self._first: float | None = None
        self._last = 0.0

    def hear(self, line: Mapping[str, Any]) -> None:
        t = moment(line)
        if t is None:
            return
        self._last = t
        if line.get("kind") in ("exchange", "event") and self._first is None:
            self._first = t
        match line.get("kind"):
            case "exchange":
                self._exchange(line, t)
            case "event":
                self._move(line, t)
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
                    self._seats[str(name)] = machine

    # What documents show.

    def _exchange(self, line: Mapping[str, Any], t: float) -> None:
        machine = line.get("machine")
        who = machine if isinstance(machine, str) else ""
        if who and line.get("method") == "GET" and about_events(line):
            self._asked[who] = self._asked.get(who, 0) + 1
        document = document_of(line)
        if document is None:
            return
        before = self._live.setdefault(who, {})
        now: dict[str, EventLife] = {}
        for event in document.events:
            self._words[event.id] = event
            if who:
                self._shown.setdefault(who, set()).add(event.id)
            now[event.id] = self._seen(event, t)
        types = _types(line)
        for id, life in before.items():
            if id in now:
                continue
            if life.type not in types:
                now[id] = life  # an older version, which does not show it
            elif life.over is None:
                _gone(life, t)
        self._live[who] = now

    def _seen(self, event: RecordedEvent, t: float) -> EventLife:
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

    # What a service tells of itself.

    def _move(self, line: Mapping[str, Any], t: float) -> None:
        try:
            move = msgspec.convert(line, _Move)
        except msgspec.ValidationError:
            return
        life = self._by_moves.get(move.event)
        if life is None:
            if not move.listed or move.move in _OVER:
                return
            life = self._by_moves[move.event] = EventLife(
                id=move.event,
                type=move.type,
                machines=move.machines,
                appeared=t,
                group=move.group,
                source=move.source,
                duration=move.seconds,
            )
        if move.status == "Scheduled":
            life.last_scheduled, life.not_before = t, move.not_before
        elif move.move in _OVER:
            life.over, life.withdrawn = t, move.move == "withdraw"
        elif life.started is None:
            life.started = t
            if life.last_scheduled is not None:  # and so it was until now
                life.last_scheduled = t

    def told(self) -> EventLives:
        lives = self._by_moves or self._by_documents
        for life in lives.values():
            words = self._words.get(life.id)
            if words is None:
                continue
            life.description = words.description or ""
            if not self._by_moves:
                life.source = words.source or "Platform"
                life.duration = -1 if words.duration is None else words.duration
        return EventLives(
            lives=tuple(sorted(lives.values(), key=lambda life: life.appeared)),
            begins=self._last if self._first is None else self._first,
            ends=self._last,
            asked=self._asked,
            shown={who: frozenset(ids) for who, ids in self._shown.items()},
            groups=self._groups,
            seats=self._seats,
        )


class _Move(msgspec.Struct):
    event: str
    move: str
    status: str
    group: str
    type: str
    source: str
    machines: tuple[str, ...]
    not_before: float
    seconds: int
    listed: bool


def _types(line: Mapping[str, Any]) -> tuple[str, ...]:
    """Which types of events this exchange could have shown."""
    query = str(line.get("target", "")).partition("?")[2]
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name == "api-version" and value in BY_NAME:
            return BY_NAME[value].types
    return NEWEST.types


def _gone(life: EventLife, t: float) -> None:
    """It stands there no more. One that was never seen to start has been withdrawn, unless it was
    due meanwhile: then it was over too soon to be seen."""
    life.over = t
    if life.started is not None:
        return
    if life.not_before is not None and life.not_before <= t:
        life.started = max(life.not_before, life.last_scheduled or life.not_before)
    else:
        life.withdrawn = True
