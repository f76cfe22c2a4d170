"""The course of each event in a trace, as a whole and on each machine.

Taken from the service's `event` lines; in a recording made by a client, from the documents.
"""

from __future__ import annotations

from forewarn.traces import courses
from forewarn.traces.exchanges import Exchange, Stamp
from forewarn.verdict.clients import Client
from forewarn.verdict.values import Course

SCHEDULED, STARTED = "Scheduled", "Started"
MAX_STATUSES = 4  # of one event that are remembered of one machine


class MachineCourse:
    """The course of one event on one machine. `polls_…` is how often it had polled by then;
    `polled_…` whether it has sent a poll between the announcement and then."""

    __slots__ = (
        "approvals",
        "approved",
        "backing_off",
        "busy",
        "concerned",
        "delisted",
        "disconnected",
        "heard",
        "hiding_version",
        "idle",
        "last_shown",
        "machine",
        "polled_over",
        "polled_started",
        "polls_over",
        "polls_visible",
        "prepared",
        "seen",
        "statuses",
        "uncertain_approval",
        "unread",
        "was_ready",
    )

    def __init__(self, machine: str, concerned: bool, polls: int) -> None:
        self.machine, self.concerned = machine, concerned
        self.polls_visible = polls
        self.polls_over: int | None = None
        self.polled_started = self.polled_over = False
        self.seen: Stamp | None = None
        self.statuses: list[str] = []
        self.last_shown: Stamp | None = None  # when it got the last status
        self.delisted: Stamp | None = None  # when it first got a document without the event
        self.prepared: float | None = None
        self.was_ready = False  # it has reported that it is ready, at any time
        self.approvals = 0
        self.approved: Stamp | None = None  # when its first approval that counted was answered
        self.busy = ""  # what it was still doing when the event was carried out
        self.disconnected = False  # its node could not be reached of the event at once
        # When the event became visible: the time of the last answer to a poll of the machine,
        # whether that had shown nothing new, and whether it was of no use.
        self.heard: Stamp | None = None
        self.idle = False
        self.backing_off = False
        self.uncertain_approval: float | None = (
            None  # time of an approval that may not have counted
        )
        self.hiding_version = ""  # the api-version of its polls, if that does not show the event
        self.unread = False  # it polled with If-None-Match: *, which never shows it a document

    def record_sighting(self, status: str, at: Stamp) -> None:
        self.seen = self.seen or at
        if self.statuses[-1:] != [status] and len(self.statuses) < MAX_STATUSES:
            self.statuses.append(status)
            self.last_shown = at
        self.delisted = None


class EventCourse(courses.Course[Stamp]):
    """The course of one event, and on each machine, whose client may be among `clients`."""

    def __init__(self, id: str, group: str, clients: dict[str, Client]) -> None:
        super().__init__(id)
        self.group = group
        self._clients = clients
        self.hidden = False  # its group was disabled for a while
        self.interrupted = False  # while it was Scheduled, the service was down
        self.approved: float | None = None
        self.approved_by = ""
        self.impact: float | None = None
        self.machine_courses: dict[str, MachineCourse] = {}

    @property
    def notice(self) -> float | None:
        if self.sudden or self.visible is None or self.not_before is None:
            return None
        return self.not_before - self.visible.t

    @property
    def started_by_approval(self) -> bool:
        """Whether it started because it was approved."""
        return self.started is not None and self.approved is not None

    def machine_course(self, machine: str) -> MachineCourse:
        course = self.machine_courses.get(machine)
        if course is None:
            course = self.machine_courses[machine] = MachineCourse(
                machine, machine in self.machines, self._polls(machine)
            )
        return course

    def begin(self, at: Stamp) -> None:
        if self.started is not None:
            return
        self.started = at
        for course in self.machine_courses.values():
            course.polled_started = self._polled_since(course)
        attempts = [
            (course.uncertain_approval, course.machine)
            for course in self.machine_courses.values()
            if course.uncertain_approval is not None
        ]
        early = self.not_before is not None and at.t < self.not_before and not self.sudden
        if early and self.approved is None and attempts:
            self.approved, self.approved_by = min(attempts)
        for machine in self.machines:
            if machine in self._clients:  # it is being disturbed: paused until it polls again
                self._clients[machine].paused = True

    def end(self, at: Stamp, ending: str) -> None:
        if self.over is not None:
            return
        super().end(at, ending)
        for course in self.machine_courses.values():
            course.polls_over = self._polls(course.machine)
            course.polled_over = self._polled_since(course)

    def approve(self, by: str, at: float) -> None:
        if self.approved is None and self.over is None and self.started is None:
            self.approved, self.approved_by = at, by

    def _polls(self, machine: str) -> int:
        client = self._clients.get(machine)
        return client.polls if client else 0

    def _polled_since(self, course: MachineCourse) -> bool:
        """Return whether the machine sent a poll after the event became visible, and got an
        answer, whatever it was."""
        client = self._clients.get(course.machine)
        if client is None or client.asked is None or client.polls == course.polls_visible:
            return False
        return self.visible is None or _not_before(client.asked, self.visible)

    def to_course(self, course: MachineCourse, client: Client | None, excuse: str) -> Course | None:
        if self.visible is None:
            return None
        polls = (
            course.polls_over if course.polls_over is not None else client.polls if client else 0
        )
        return Course(
            machine=course.machine,
            group=self.group,
            event=self.id,
            type=self.type,
            source=self.source,
            concerned=course.concerned,
            visible=self.visible.t,
            not_before=self.not_before,
            notice=_length(self.visible.t, None if self.sudden else self.not_before),
            seen=course.seen.t if course.seen else None,
            seen_after=_length(self.visible.t, course.seen.t if course.seen else None),
            statuses=tuple(course.statuses),
            polls=max(0, polls - course.polls_visible),
            prepared=course.prepared,
            approved=self.approved,
            approved_by=self.approved_by,
            margin=_length(self.approved, self.not_before),
            started=self.started.t if self.started else None,
            started_by=self._started_by(),
            impact=self.impact,
            over=self.over.t if self.over else None,
            ending=self.ending,
            in_time=self._in_time(course),
            excuse=excuse,
        )

    def _started_by(self) -> str:
        if self.started is None:
            return ""
        if self.sudden:
            return "failure"
        return "approval" if self.approved is not None else "not-before"

    def _in_time(self, course: MachineCourse) -> bool | None:
        if self.sudden or not course.concerned:
            return None
        if course.statuses:
            return course.statuses[0] == SCHEDULED
        return False if self.started is not None else None


def after(request: Exchange, moment: Stamp | None) -> bool:
    """Return whether the request was certainly sent after that moment."""
    if moment is None:
        return False
    if moment.real is None or request.asked.real is None:
        return moment.t < request.asked.t
    return _not_before(request.asked, moment)


def _not_before(stamp: Stamp, moment: Stamp) -> bool:
    if moment.real is None or stamp.real is None:
        return moment.t <= stamp.t
    return moment.real <= stamp.real


def _length(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else round(end - start, 6)
