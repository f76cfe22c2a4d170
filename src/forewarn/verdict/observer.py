"""`Observer`: reads the lines of a trace one by one, and keeps what a verdict needs of them.

Memory is bounded, and a poll without news is only counted. Lines that cannot be read are skipped.
`request_rules.py` checks single requests; `conduct_rules.py` what only the whole trace shows.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from forewarn.traces import lines
from forewarn.traces.courses import FINISHED, id_of
from forewarn.traces.exchanges import Exchange, Stamp, exchange, passed, stamp
from forewarn.verdict import conduct_rules
from forewarn.verdict.clients import Client, Unresponsive
from forewarn.verdict.complaints import Complaints, in_order
from forewarn.verdict.documents import Documents, ShownDocument
from forewarn.verdict.event_courses import (
    STARTED,
    EventCourse,
    MachineCourse,
)
from forewarn.verdict.missed_events import MissedEvents, missed_events
from forewarn.verdict.observed import Observed
from forewarn.verdict.request_rules import RequestRules
from forewarn.verdict.values import Course, Unannounced
from forewarn.verdict.verdict import Verdict
from forewarn.wire import extensions, requests
from forewarn.wire.headers import ANY, parse_tags
from forewarn.wire.versions import NEWEST

MAX_REASON = 500  # characters of what a machine was busy with
MAX_FAILED_SCENARIOS = 20  # that are named in a verdict


class Observer:
    """Collects lines and makes verdicts, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._observed = Observed()
        self._documents = Documents()
        self._complaints = Complaints()
        self._request_rules = RequestRules(self._observed, self._complaints)
        self._now: Stamp | None = None
        self._unreadable = 0
        self._failed: list[str] = []  # scenarios

    def add(self, line: Mapping[str, Any]) -> None:
        """Add the next line of a trace."""
        with self._lock:
            try:
                self._add(line)
            except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
                self._unreadable += 1

    def verdict(self) -> Verdict:
        """Return the verdict on all lines added so far."""
        with self._lock:
            observed = self._observed
            missed = missed_events(observed)
            complaints = self._complaints.all()
            if self._now is not None:
                complaints += conduct_rules.complaints(observed, missed, self._now)
            courses = [
                value
                for event in observed.events.values()
                for course in event.machine_courses.values()
                if (value := self._course(event, course, missed)) is not None
            ]
            return Verdict(
                at=self._now.t if self._now else None,
                courses=tuple(sorted(courses, key=lambda course: course.visible)),
                unannounced=tuple(observed.unannounced.values()),
                conducts=tuple(client.conduct() for _, client in sorted(observed.clients.items())),
                complaints=in_order(complaints),
                remarks=tuple(self._remarks()),
            )

    def _course(
        self, event: EventCourse, course: MachineCourse, missed: MissedEvents
    ) -> Course | None:
        reason = missed.get((course.machine, event.id))
        client = self._observed.clients.get(course.machine)
        return event.to_course(course, client, reason.excuse if reason else "")

    def forget(self) -> None:
        """Drop all complaints and counts, but keep the fleet and the events that are active."""
        with self._lock:
            self._observed.forget()
            self._complaints = Complaints()
            self._request_rules = RequestRules(self._observed, self._complaints)
            self._unreadable = 0
            self._failed = []

    def _remarks(self) -> list[str]:
        remarks = list(self._observed.remarks())
        for scenario in self._failed:
            remarks.append(
                f"scenario {scenario} failed, whatever this verdict says; its timeline lists the"
                " expectations that are not met"
            )
        if self._complaints.left_out:
            remarks.append(f"{self._complaints.left_out} more complaints were dropped")
        if self._unreadable:
            remarks.append(f"{self._unreadable} lines could not be read")
        return remarks

    def _add(self, line: Mapping[str, Any]) -> None:
        now = stamp(line)
        if now is None:
            return
        kind = line.get("kind")
        real = now.real if now.real is not None or self._now is None else self._now.real
        self._now = Stamp(max(now.t, self._now.t) if self._now else now.t, real)
        match kind:
            case "exchange":
                self._exchange(exchange(line, now))
            case "event":
                self._event(line, now)
            case "fleet":
                self._observed.fleet(line)
            case "approval":
                event = self._event_of(line)
                if event is not None:
                    event.approve(lines.name(line.get("by")) or "an operator", now.t)
            case "impact":
                event = self._event_of(line)
                if event is not None and event.impact is None:
                    event.impact = now.t
                self._unannounced_step(line, impact=now.t)
            case "activity":
                self._activity(line)
            case "unannounced":
                self._unannounced(line, now)
            case "over":
                self._unannounced_step(line, over=now.t)
            case "unresponsive":
                self._unresponsive(line, now)
            case "responsive":
                client = self._observed.clients.get(lines.name(line.get("machine")))
                if client is not None:
                    client.responds(lines.name(line.get("client")))
            case "disconnected":
                self._observed.set_disconnected(lines.names(line.get("machines")))
            case "joined":
                self._observed.set_joined(lines.names(line.get("machines")))
            case "disabled":
                for event in self._observed.active.get(lines.name(line.get("group")), {}).values():
                    event.hidden = True
            case "scenario":
                if line.get("ok") is not True and len(self._failed) < MAX_FAILED_SCENARIOS:
                    self._failed.append(lines.name(line.get("scenario")))
            case "up" | "down" | "step":
                self._observed.interrupt(self._now)

    def _event_of(self, line: Mapping[str, Any]) -> EventCourse | None:
        return self._observed.events.get(id_of(line))

    def _unresponsive(self, line: Mapping[str, Any], now: Stamp) -> None:
        machine = lines.name(line.get("machine"))
        client = self._observed.clients.get(machine)
        if client is None or client.requested is None:
            return
        seconds = lines.number(line.get("seconds")) or 0.0
        unusable = client.trouble or client.faulty
        if unusable and passed(client.requested, now) < seconds / 2:
            return  # it does poll, and its answers are errors, or were changed by faults
        disturbed = any(
            event.started is not None and machine in event.machines
            for event in self._observed.active.get(client.group, {}).values()
        ) or any(
            event.over is None and machine in event.machines
            for event in self._observed.unannounced.values()
        )
        silence = Unresponsive(
            at=now,
            seconds=seconds,
            last=client.requested.t,
            by_itself=line.get("by_itself") is True,
            excused=disturbed,
            unanswered=line.get("unanswered") is True,
            trouble=client.trouble,
            fault=lines.name(line.get("fault")),
        )
        client.stopped_responding(lines.name(line.get("client")), silence)

    def _activity(self, line: Mapping[str, Any]) -> None:
        event, machine = self._event_of(line), lines.name(line.get("machine"))
        if event is None or line.get("busy") is not True or machine not in event.machines:
            return
        course = self._observed.machine_course(event, machine)
        if course is not None and not course.busy:
            reason = lines.printable(lines.text(line.get("reason"), MAX_REASON), MAX_REASON)
            course.busy = reason or "the reason is not recorded"

    def _unannounced(self, line: Mapping[str, Any], now: Stamp) -> None:
        id = id_of(line)
        if id:
            self._observed.carried_out_unannounced(
                Unannounced(
                    event=id,
                    group=lines.name(line.get("group")),
                    type=lines.name(line.get("type")),
                    source=lines.name(line.get("source")),
                    machines=lines.names(line.get("machines")),
                    at=now.t,
                )
            )

    def _unannounced_step(self, line: Mapping[str, Any], **times: float) -> None:
        """Keep the first time of each step, since lines may be written again after a restart."""
        event = self._observed.unannounced.get(id_of(line))
        if event is None:
            return
        new = {name: t for name, t in times.items() if getattr(event, name) is None}
        type = event.type or lines.name(line.get("type"))
        after = msgspec.structs.replace(event, type=type, **new)
        self._observed.unannounced[event.event] = after
        self._observed.carried_out_unannounced(after)

    def _event(self, line: Mapping[str, Any], now: Stamp) -> None:
        id = id_of(line)
        if not id:
            return
        event = self._observed.event_course(id, lines.name(line.get("group")))
        event.describe(line)
        for machine in event.machines:
            self._observed.machine_course(event, machine)
        event.move(line, now)
        if event.visible is now:
            for course in event.machine_courses.values():
                client = self._observed.clients.get(course.machine)
                if client is None:
                    course.polls_visible = 0
                    continue
                course.polls_visible, course.heard = client.polls, client.done
                course.idle = client.idle
                course.backing_off = bool(client.trouble or client.away)
        if event.over is now:
            self._observed.end_event(event)

    def _exchange(self, request: Exchange) -> None:
        client = self._observed.client(request.machine, request.source)
        if client is None:
            return
        client.add(request)
        match request.ask:
            case requests.GetDocument() | extensions.Wait():
                client.polled(request, waited=isinstance(request.ask, extensions.Wait))
                client.correct = True
                self._polled(client, request)
            case requests.PostApproval():
                client.approved(request)
                self._request_rules.approval(client, request)
            case extensions.PutReadiness(event=id):
                self._request_rules.readiness(client, request, id)
            case _:
                if request.method == "GET" and "scheduledevents" in request.path.lower():
                    client.polled(request, waited=False)
                    self._polled(client, request)
                self._request_rules.request(client, request)

    def _polled(self, client: Client, request: Exchange) -> None:
        self._observed.nobody_polled = False
        document = None
        if request.status == 200:
            answer = request.answer()
            document = (
                self._documents.of(request.version, answer, request.tag)
                if answer is not None
                else None
            )
        elif request.status == 304 and ANY in parse_tags(request.headers.get("if-none-match", "")):
            self._mark_unread(client, request)
        elif request.status == 304:
            document = self._documents.unchanged(request.version, request.tag)
        usable = request.status == 304 or document is not None
        self._request_rules.poll(client, request, usable=usable)
        if document is None:
            return
        before = client.documents.get(request.version)
        client.idle = before is document
        if before is not document:
            self._record_sightings(client, request, document)
            if not request.fault:
                self._record_disappearances(client, request, before, document)
                client.documents[request.version] = document
        self._mark_hidden_types(client, document)

    def _record_sightings(self, client: Client, request: Exchange, document: ShownDocument) -> None:
        observed = self._observed
        for listed in document.events.values():
            event = observed.events.get(listed.id)
            if event is None:
                if request.fault:
                    continue  # the fault may have invented it
                event = observed.event_course(listed.id, client.group)
                event.fill_in(listed)
                event.visible = request.done
                event.sudden = listed.status == STARTED
                for machine in listed.resources:
                    observed.machine_course(event, machine)
            if event.visible is None:
                event.visible = request.done
            if not event.recorded:
                event.not_before = event.not_before or listed.not_before
                if listed.status == STARTED:
                    event.begin(request.done)
            unaffected = client.machine not in event.machine_courses
            course = observed.machine_course(event, client.machine)
            if course is not None:
                course.polls_visible -= unaffected  # this poll counts, too
                course.record_sighting(listed.status, request.done)

    def _record_disappearances(
        self,
        client: Client,
        request: Exchange,
        before: ShownDocument | None,
        document: ShownDocument,
    ) -> None:
        for id in before.events if before else ():
            event = self._observed.events.get(id)
            if event is None or id in document.events:
                continue
            course = event.machine_courses.get(client.machine)
            if course is not None and course.delisted is None:
                course.delisted = request.done
            if not event.recorded:
                event.end(request.done, FINISHED if event.started else "")
                self._observed.end_event(event)

    def _mark_unread(self, client: Client, request: Exchange) -> None:
        """Mark active events that a poll with `If-None-Match: *` never shows. A long-poll with it
        waits for the next document."""
        if not isinstance(request.ask, requests.GetDocument):
            return
        for event in self._observed.active.get(client.group, {}).values():
            course = event.machine_courses.get(client.machine)
            if course is not None and event.visible is not None and course.seen is None:
                course.unread = True

    def _mark_hidden_types(self, client: Client, document: ShownDocument) -> None:
        """Mark active events that the version in use never shows."""
        if document.types is None or len(document.types) == len(NEWEST.types):
            return
        for event in self._observed.active.get(client.group, {}).values():
            if event.visible is not None and not document.shows(event.type):
                course = event.machine_courses.get(client.machine)
                if course is not None and course.seen is None:
                    course.hiding_version = document.version
