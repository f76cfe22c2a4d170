"""What has become of every event so far, heard off the lines of a trace as they come.

Whoever waits for something is woken by every line. Knows nothing of scenarios.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from forewarn.support import guard
from forewarn.testing.scenarios.model import Moment
from forewarn.wire.errors import Problem
from forewarn.wire.requests import read_approval

KEPT_LINES = 1_000_000  # of the trace; later ones are not kept, and that is said

_PATHS = ("/metadata/scheduledevents", "/forewarn/v1/wait")
_READY = "/forewarn/v1/ready/"


class _Listed(msgspec.Struct, frozen=True):
    id: str = msgspec.field(name="EventId")
    status: str = msgspec.field(name="EventStatus", default="")


class _Document(msgspec.Struct, frozen=True):
    events: list[_Listed] = msgspec.field(name="Events", default=[])


_decode = msgspec.json.Decoder(_Document).decode


class TrackedEvent:
    """What has become of one event. Times as in the trace."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.type = ""
        self.source = ""
        self.group = ""
        self.machines: tuple[str, ...] = ()
        self.not_before: float | None = None
        self.visible: float | None = None
        self.raised: float | None = None
        self.started: float | None = None
        self.over: float | None = None
        self.withdrawn = False
        self.seen: dict[str, float] = {}  # by machine: first
        self.seen_scheduled: dict[str, float] = {}
        self.prepared: dict[str, float] = {}
        self.approved: dict[str, float] = {}  # by machine, or whoever else

    def at(self, moment: Moment, by: str = "") -> float | None:
        """When it first came to that, by anybody or by one machine."""
        match moment:
            case Moment.SEEN | Moment.PREPARED | Moment.APPROVED:
                times: dict[str, float] = getattr(self, moment.value)
                return times.get(by) if by else min(times.values(), default=None)
            case Moment.FINISHED:
                return None if self.withdrawn else self.over
            case Moment.WITHDRAWN:
                return self.over if self.withdrawn else None
            case _:
                found: float | None = getattr(self, moment.value)
                return found

    def may_come(self, moment: Moment) -> bool:
        """Can it still come to that?"""
        if self.at(moment) is not None:
            return True
        if self.over is not None:
            return False
        if moment is Moment.WITHDRAWN or moment is Moment.APPROVED:
            return self.started is None
        return True

    def __str__(self) -> str:
        return f"{self.type or 'event'} of {', '.join(self.machines[:3]) or self.id}" + (
            f" and {len(self.machines) - 3} more" if len(self.machines) > 3 else ""
        )


class EventTracker:
    """`changed` is notified of every line; hold it to read."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.lines: list[dict[str, Any]] = []
        self.lost = 0  # lines that were not kept
        self.events: dict[str, TrackedEvent] = {}
        self.asked: dict[str, int] = {}  # good answers to GETs, by machine
        self.last: dict[str, float] = {}  # real time of each machine's last request
        self.heard = 0  # lines
        self.stages = 0  # changes of events, and answers to them
        self._shown: dict[str, tuple[str, frozenset[str]]] = {}  # what each machine last read
        self._doubtful: dict[str, tuple[str, float]] = {}  # approvals whose answer was spoiled

    def hear(self, line: dict[str, Any]) -> None:
        with self.changed:
            self.heard += 1
            if len(self.lines) < KEPT_LINES:
                self.lines.append(line)
            else:
                self.lost += 1
            self._hear(line)
            self.changed.notify_all()

    def asking(self, within: float) -> set[str]:
        """Machines that have asked in the last so many real seconds."""
        since = guard.monotonic() - within
        with self.changed:
            return {machine for machine, at in self.last.items() if at >= since}

    def active(self) -> Iterator[TrackedEvent]:
        return (told for told in self.events.values() if told.over is None)

    def _told(self, id: str) -> TrackedEvent:
        if id not in self.events:
            self.events[id] = TrackedEvent(id)
        return self.events[id]

    def _hear(self, line: Mapping[str, Any]) -> None:
        match line.get("kind"):
            case "event":
                self._stage(line)
            case "approval":
                self._approved(line["event"], line["by"], line["t"])
            case "unannounced":
                told = self._told(line["event"])
                told.type, told.source = line.get("type", ""), line.get("source", "")
                told.group, told.machines = line.get("group", ""), tuple(line.get("machines", ()))
                told.raised = told.started = line["t"]
            case "over":
                self._told(line["event"]).over = line["t"]
            case "exchange" if line.get("machine"):
                self._exchange(line)

    def _stage(self, line: Mapping[str, Any]) -> None:
        told, at = self._told(line["event"]), line["t"]
        told.type, told.source, told.group = line["type"], line["source"], line["group"]
        told.machines = tuple(line["machines"])
        self.stages += 1
        if told.raised is None:
            told.raised = at
        if line.get("listed") and told.visible is None:
            told.visible = at
        match line["move"]:
            case "raise":
                told.not_before = line["not_before"]
            case "strike":
                told.started = at
            case "start":
                told.started = at
                if told.not_before is None or at < told.not_before:
                    self._settle_doubt(told)
            case "finish" | "withdraw" as move:
                told.over, told.withdrawn = at, move == "withdraw"

    def _settle_doubt(self, told: TrackedEvent) -> None:
        """It has started early, so the approval whose answer was spoiled has counted."""
        if not told.approved and told.id in self._doubtful:
            by, at = self._doubtful[told.id]
            told.approved[by] = at

    def _exchange(self, line: Mapping[str, Any]) -> None:
        path = str(line.get("target", "")).partition("?")[0].lower()
        machine, at, status = str(line["machine"]), line["t"], line.get("status")
        self.last[machine] = guard.monotonic()
        if path.startswith(_READY) and line["method"] == "PUT" and status in (200, 204):
            id = path.removeprefix(_READY).strip("/").upper()
            self._told(id).prepared.setdefault(machine, at)
            self.stages += 1
        elif path.rstrip("/") not in _PATHS:
            return
        elif line["method"] == "POST":
            self._posted(line, machine, at)
        elif line["method"] == "GET" and not line.get("fault") and status in (200, 304):
            self.asked[machine] = self.asked.get(machine, 0) + 1
            if status == 200:
                self._read(machine, str(line.get("answer", "")), at)

    def _posted(self, line: Mapping[str, Any], machine: str, at: float) -> None:
        ids = _approved_in(str(line.get("body", "")))
        if line.get("fault"):
            for id in ids:
                self._doubtful[id] = machine, at
                told = self.events.get(id)
                if told is not None and told.started is not None:
                    self._settle_doubt(told)
        elif line.get("status") == 200:
            for id in ids:
                self._approved(id, machine, at)

    def _approved(self, id: str, by: str, at: float) -> None:
        told = self._told(id)
        if told.over is None and (told.started is None or not told.approved):
            told.approved.setdefault(by, at)
            self.stages += 1

    def _read(self, machine: str, body: str, at: float) -> None:
        before = self._shown.get(machine)
        if before is not None and before[0] == body:
            return
        try:
            document = _decode(body)
        except msgspec.MsgspecError:
            return
        self._shown[machine] = body, frozenset(one.id for one in document.events)
        for one in document.events:
            told = self._told(one.id)
            if machine not in told.seen:
                told.seen[machine] = at
                self.stages += 1
            if one.status == "Scheduled":
                told.seen_scheduled.setdefault(machine, at)


def _approved_in(body: str) -> list[str]:
    ids = read_approval(body.encode())
    return [] if isinstance(ids, Problem) else [id.upper() for id in ids]
