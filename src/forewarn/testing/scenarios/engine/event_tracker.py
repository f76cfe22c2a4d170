"""What has become of every event so far, followed by the lines of a trace as they are written.

Threads that wait for something are woken by every line. Nothing here knows of scenarios.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from forewarn.support import guard
from forewarn.testing.scenarios.model import Moment
from forewarn.traces.documents import read_document
from forewarn.traces.exchanges import Exchange, Stamp, exchange

KEPT_LINES = 1_000_000  # of the trace; later ones are only counted


class TrackedEvent:
    """The course of one event. Times are seconds, as in the trace."""

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
        self.seen: dict[str, float] = {}  # the first time, by machine
        self.seen_scheduled: dict[str, float] = {}
        self.prepared: dict[str, float] = {}
        self.approved: dict[str, float] = {}  # by machine, or whoever else

    def at(self, moment: Moment, by: str = "") -> float | None:
        """Return when the moment was first reached: by this machine, or by any."""
        match moment:
            case Moment.SEEN | Moment.PREPARED | Moment.APPROVED:
                times: dict[str, float] = getattr(self, moment.value)
                return times.get(by) if by else min(times.values(), default=None)
            case Moment.FINISHED:
                return None if self.withdrawn else self.over
            case Moment.WITHDRAWN:
                return self.over if self.withdrawn else None
            case _:
                time: float | None = getattr(self, moment.value)
                return time

    def may_come(self, moment: Moment) -> bool:
        """Return whether the moment was reached or can still be."""
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
    """Follows the events. `changed` is notified of every line; hold it to read the attributes."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.lines: list[dict[str, Any]] = []
        self.lost = 0  # lines that were not kept
        self.events: dict[str, TrackedEvent] = {}
        self.polls: dict[str, int] = {}  # successful ones, by machine
        self.last: dict[str, float] = {}  # real time of each machine's last request
        self.count = 0  # of lines
        self.changes = 0  # of events, and of machines' reactions to them
        self._shown: dict[str, bytes] = {}  # the last document of each machine
        self._doubtful: dict[str, tuple[str, float]] = {}  # approvals that met a fault

    def add(self, line: dict[str, Any]) -> None:
        with self.changed:
            self.count += 1
            if len(self.lines) < KEPT_LINES:
                self.lines.append(line)
            else:
                self.lost += 1
            self._add(line)
            self.changed.notify_all()

    def active_machines(self, within: float) -> set[str]:
        """Return the machines that sent a request in the last so many real seconds."""
        since = guard.monotonic() - within
        with self.changed:
            return {machine for machine, at in self.last.items() if at >= since}

    def active(self) -> Iterator[TrackedEvent]:
        return (event for event in self.events.values() if event.over is None)

    def _event(self, id: str) -> TrackedEvent:
        if id not in self.events:
            self.events[id] = TrackedEvent(id)
        return self.events[id]

    def _add(self, line: Mapping[str, Any]) -> None:
        match line.get("kind"):
            case "event":
                self._change(line)
            case "approval":
                self._approved(line["event"], line["by"], line["t"])
            case "unannounced":
                event = self._event(line["event"])
                event.type, event.source = line.get("type", ""), line.get("source", "")
                event.group, event.machines = line.get("group", ""), tuple(line.get("machines", ()))
                event.raised = event.started = line["t"]
            case "over":
                self._event(line["event"]).over = line["t"]
            case "exchange" if line.get("machine"):
                self._exchange(exchange(line, Stamp(line["t"])))

    def _change(self, line: Mapping[str, Any]) -> None:
        event, at = self._event(line["event"]), line["t"]
        event.type, event.source, event.group = line["type"], line["source"], line["group"]
        event.machines = tuple(line["machines"])
        self.changes += 1
        if event.raised is None:
            event.raised = at
        if line.get("listed") and event.visible is None:
            event.visible = at
        match line["move"]:
            case "raise":
                event.not_before = line["not_before"]
            case "strike":
                event.started = at
            case "start":
                event.started = at
                if event.not_before is None or at < event.not_before:
                    self._settle_doubt(event)
            case "finish" | "withdraw" as move:
                event.over, event.withdrawn = at, move == "withdraw"

    def _settle_doubt(self, event: TrackedEvent) -> None:
        """Count a doubtful approval of an event that has started before its NotBefore."""
        if not event.approved and event.id in self._doubtful:
            by, at = self._doubtful[event.id]
            event.approved[by] = at

    def _exchange(self, read: Exchange) -> None:
        machine, at, status = read.machine, read.done.t, read.status
        self.last[machine] = guard.monotonic()
        if read.readiness_of and status in (200, 204):
            self._event(read.readiness_of).prepared.setdefault(machine, at)
            self.changes += 1
        elif read.approves:
            self._posted(read)
        elif read.polls and not read.fault and status in (200, 304):
            self.polls[machine] = self.polls.get(machine, 0) + 1
            if status == 200:
                self._read(machine, read.answer() or b"", at)

    def _posted(self, read: Exchange) -> None:
        machine, at, ids = read.machine, read.done.t, read.approved_ids()
        if read.fault:
            for id in ids:
                self._doubtful[id] = machine, at
                event = self.events.get(id)
                if event is not None and event.started is not None:
                    self._settle_doubt(event)
        elif read.status == 200:
            for id in ids:
                self._approved(id, machine, at)

    def _approved(self, id: str, by: str, at: float) -> None:
        event = self._event(id)
        if event.over is None and (event.started is None or not event.approved):
            event.approved.setdefault(by, at)
            self.changes += 1

    def _read(self, machine: str, body: bytes, at: float) -> None:
        if self._shown.get(machine) == body:
            return
        document = read_document(body)
        if document is None:
            return
        self._shown[machine] = body
        for listed in document.events:
            event = self._event(listed.id)
            if machine not in event.seen:
                event.seen[machine] = at
                self.changes += 1
            if listed.status == "Scheduled":
                event.seen_scheduled.setdefault(machine, at)
