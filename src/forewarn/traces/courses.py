"""The course of one event in a trace: what the service's own `event` lines say of it or, where
there are none, the documents that machines got."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from forewarn.traces import lines
from forewarn.traces.documents import ListedEvent

WITHDRAWN, FINISHED = "withdrawn", "finished"
ENDINGS = {"finish": FINISHED, "withdraw": WITHDRAWN}  # by move
STARTS = ("start", "strike")  # moves; a strike starts an event that was never Scheduled

T = TypeVar("T")  # how times are kept: as seconds, or with the real time beside them


class Course(Generic[T]):
    """The course of one event. `recorded`: from `event` lines, so that it is complete."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.type = self.source = self.group = ""
        self.machines: tuple[str, ...] = ()
        self.seconds: float | None = None  # the duration that is announced
        self.not_before: float | None = None
        self.visible: T | None = None  # when it was first listed
        self.sudden = False  # it was never Scheduled
        self.started: T | None = None
        self.over: T | None = None
        self.ending = ""  # finished or withdrawn; empty while it is active
        self.recorded = False

    def describe(self, line: Mapping[str, Any]) -> None:
        """Take over what a line says the event is; what it does not say stays."""
        self.recorded = True
        self.type = lines.name(line.get("type")) or self.type
        self.source = lines.name(line.get("source")) or self.source
        self.group = lines.name(line.get("group")) or self.group
        self.machines = lines.names(line.get("machines")) or self.machines

    def fill_in(self, listed: ListedEvent) -> None:
        """Take over what is not known yet from an entry of a document."""
        self.type = self.type or listed.type
        self.source = self.source or listed.source
        self.machines = self.machines or listed.resources
        if self.not_before is None:
            self.not_before = listed.not_before
        if self.seconds is None:
            self.seconds = listed.seconds

    def move(self, line: Mapping[str, Any], at: T) -> str:
        """Take an `event` line, at its time; return what it says has happened."""
        move = lines.name(line.get("move"))
        self.describe(line)
        if (not_before := lines.instant(line.get("not_before"))) is not None:
            self.not_before = not_before
        if (seconds := lines.number(line.get("seconds"))) is not None:
            self.seconds = seconds
        listed = line.get("listed") is True or move == "list"
        if self.visible is None and listed and move not in ENDINGS:
            self.visible = at
        self.sudden = self.sudden or move == "strike"
        if move in STARTS:
            self.begin(at)
        elif move in ENDINGS:
            self.end(at, ENDINGS[move])
        return move

    def begin(self, at: T) -> None:
        self.started = at if self.started is None else self.started

    def end(self, at: T, ending: str) -> None:
        if self.over is None:
            self.over, self.ending = at, ending


def id_of(line: Mapping[str, Any]) -> str:
    """Return the id of the event that a line is about; empty if it is about none."""
    return lines.name(line.get("event")).upper()
