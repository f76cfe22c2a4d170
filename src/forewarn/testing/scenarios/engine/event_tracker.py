"""Follows the progress of every event in the lines of a trace, as they are written.

Every line wakes the threads that wait for something. Nothing here knows of scenarios.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from forewarn.support import guard
from forewarn.testing.scenarios.model import Moment
from forewarn.traces.courses import FINISHED, WITHDRAWN, Course
from forewarn.traces.documents import read_document
from forewarn.traces.exchanges import Exchange, Stamp, exchange

MAX_LINES = 1_000_000  # of the trace that are kept; later ones are only counted


class TrackedEvent(Course[float]):
    """The course of one event. Times are seconds, as in the trace."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.raised: float | None = None
        self.seen: dict[str, float] = {}  # first time, by machine
        self.seen_scheduled: dict[str, float] = {}
        self.prepared: dict[str, float] = {}
        self.approved: dict[str, float] = {}  # by machine or operator
        self.busy: dict[str, str] = {}  # by machine: with what, when it was carried out; "": idle

    @property
    def withdrawn(self) -> bool:
        return self.ending == WITHDRAWN

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

    def can_reach(self, moment: Moment) -> bool:
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
        self.dropped = 0  # lines beyond MAX_LINES
        self.events: dict[str, TrackedEvent] = {}
        self.polls: dict[str, int] = {}  # successful ones, by machine
        self.last_request: dict[str, float] = {}  # real time of each machine's last request
        self.line_count = 0  # including dropped ones
        self.change_count = 0  # of events, and requests of machines that concern them
        self._documents: dict[str, bytes] = {}  # the last document of each machine
        self._uncertain_approvals: dict[
            str, tuple[str, float]
        ] = {}  # approvals whose answer was a fault, by event

    def add(self, line: dict[str, Any]) -> None:
        with self.changed:
            self.line_count += 1
            if len(self.lines) < MAX_LINES:
                self.lines.append(line)
            else:
                self.dropped += 1
            self._add(line)
            self.changed.notify_all()

    def active_machines(self, within: float) -> set[str]:
        """Return the machines that sent a request in the last so many real seconds."""
        since = guard.monotonic() - within
        with self.changed:
            return {machine for machine, at in self.last_request.items() if at >= since}

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
                self._record_approval(line["event"], line["by"], line["t"])
            case "unannounced":
                event = self._event(line["event"])
                event.describe(line)
                event.raised = event.started = line["t"]
            case "activity":
                reason = line.get("reason") or "no reason given"
                self._event(line["event"]).busy[line["machine"]] = reason if line["busy"] else ""
            case "over":
                self._event(line["event"]).end(line["t"], FINISHED)
            case "exchange" if line.get("machine"):
                self._exchange(exchange(line, Stamp(line["t"])))

    def _change(self, line: Mapping[str, Any]) -> None:
        event, at = self._event(line["event"]), line["t"]
        self.change_count += 1
        if event.raised is None:
            event.raised = at
        move = event.move(line, at)
        if move == "start" and (event.not_before is None or at < event.not_before):
            self._confirm_approval(event)

    def _confirm_approval(self, event: TrackedEvent) -> None:
        """Count an uncertain approval, since the event has started before its NotBefore."""
        if not event.approved and event.id in self._uncertain_approvals:
            by, at = self._uncertain_approvals[event.id]
            event.approved[by] = at

    def _exchange(self, traffic: Exchange) -> None:
        machine, at, status = traffic.machine, traffic.done.t, traffic.status
        self.last_request[machine] = guard.monotonic()
        if traffic.readiness_of and status in (200, 204):
            self._event(traffic.readiness_of).prepared.setdefault(machine, at)
            self.change_count += 1
        elif traffic.approves:
            self._record_approvals(traffic)
        elif traffic.polls and not traffic.fault and status in (200, 304):
            self.polls[machine] = self.polls.get(machine, 0) + 1
            if status == 200:
                self._read_document(machine, traffic.answer() or b"", at)

    def _record_approvals(self, traffic: Exchange) -> None:
        machine, at, ids = traffic.machine, traffic.done.t, traffic.approved_ids()
        if traffic.fault:
            for id in ids:
                self._uncertain_approvals[id] = machine, at
                event = self.events.get(id)
                if event is not None and event.started is not None:
                    self._confirm_approval(event)
        elif traffic.status == 200:
            for id in ids:
                self._record_approval(id, machine, at)

    def _record_approval(self, id: str, by: str, at: float) -> None:
        event = self._event(id)
        if event.over is None and (event.started is None or not event.approved):
            event.approved.setdefault(by, at)
            self.change_count += 1

    def _read_document(self, machine: str, body: bytes, at: float) -> None:
        if self._documents.get(machine) == body:
            return
        document = read_document(body)
        if document is None:
            return
        self._documents[machine] = body
        for listed in document.events:
            event = self._event(listed.id)
            if machine not in event.seen:
                event.seen[machine] = at
                self.change_count += 1
            if listed.status == "Scheduled":
                event.seen_scheduled.setdefault(machine, at)
