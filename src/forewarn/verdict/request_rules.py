"""The rules that one request can break, checked when it is added.

A request is held against a client only if the service refused it, and not if a fault spoiled the
response: what a laxer endpoint accepts is not wrong there.
"""

from __future__ import annotations

from forewarn.traces.exchanges import Exchange, apart, passed
from forewarn.traces.lines import printable
from forewarn.verdict.clients import Client
from forewarn.verdict.complaints import Complaints
from forewarn.verdict.event_courses import (
    FREEZE,
    STARTED,
    WITHDRAWN,
    EventCourse,
    MachineCourse,
    after,
)
from forewarn.verdict.known import Known
from forewarn.verdict.rules import REPEATED, SHORT_FREEZE, THROTTLED, THROTTLED_WITHIN
from forewarn.wire import errors, requests
from forewarn.wire.errors import Problem
from forewarn.wire.versions import BY_NAME, NEWEST

PLACE = "/metadata/scheduledevents"
TOO_MANY = 429
TAKEN = 200
MAX_APPROVED = 1_000  # events of one approval that are looked at

_WRONG_BODY = {
    errors.NOT_JSON.body: "is not valid JSON",
    errors.NO_START_REQUESTS.body: "has no StartRequests with at least one event in it",
    errors.NO_EVENT_ID.body: "has an entry without an EventId",
}
_FORM = 'send {"StartRequests":[{"EventId":"…"}]}'


class RequestRules:
    def __init__(self, known: Known, complaints: Complaints) -> None:
        self._known = known
        self._complaints = complaints

    def request(self, client: Client, request: Exchange) -> None:
        """Check a request that is neither a poll nor an approval, as far as it is about events."""
        if not isinstance(request.ask, Problem) or request.fault or not _refused(request):
            return
        asks = f"{printable(request.method, 20)} {printable(request.path)}"
        match request.ask:
            case errors.NOT_FOUND:
                if "scheduled" in request.path.lower():
                    self._complain(
                        client, request, "wrong-path", f"{asks} is not there; ask {PLACE}"
                    )
            case errors.FORWARDED:
                message = (
                    f"{asks} carried X-Forwarded-For and was refused; ask directly, not through"
                )
                self._complain(
                    client, request, "forwarded", f"{message} a proxy (NO_PROXY=169.254.169.254)"
                )
            case errors.NO_METADATA_HEADER:
                sent = request.headers.get("metadata")
                how = "no Metadata header" if sent is None else f"Metadata: {printable(sent, 20)}"
                message = f"{asks} came with {how} and was refused; send Metadata: true"
                self._complain(client, request, "missing-header", message)
            case errors.DUPLICATE_PARAMETER:
                message = f"{asks} gave a parameter twice and was refused; give each once"
                self._complain(client, request, "wrong-query", message)
            case Problem(status=405):
                message = f"{asks} was refused; read with GET, approve with POST"
                self._complain(client, request, "wrong-verb", message)
            case _ if "scheduled" in request.path.lower():
                named = (
                    f"api-version={printable(request.version, 40)}"
                    if request.version
                    else "no api-version"
                )
                message = f"{asks} came with {named} and was refused; ask with {NEWEST.name}"
                self._complain(client, request, "wrong-version", message)

    def poll(self, client: Client, request: Exchange, *, usable: bool) -> None:
        """Check a poll; `usable` means that the response was a document, or 304."""
        version = BY_NAME.get(request.version)
        if usable and version is not None and version.preview:
            message = f"reads {version.name}, a preview; ask with {NEWEST.name}"
            self._complain(client, request, "preview-version", message)
        if usable:
            client.trouble = ""
        elif (
            request.fault
            or request.status is None
            or request.status >= 500
            or request.status in (408, 410, TOO_MANY)
        ):
            answered = "no answer" if request.status is None else f"a {request.status}"
            client.trouble = (
                f"fault '{printable(request.fault)}' ({answered})" if request.fault else answered
            )
        if request.status != TOO_MANY:
            client.refused, client.refused_since = 0, None
            return
        client.refused += 1
        client.refused_since = client.refused_since or request.asked
        if client.refused == THROTTLED:
            lasted = passed(client.refused_since, request.asked)
            if lasted < THROTTLED_WITHIN:
                message = (
                    f"was told 429 {THROTTLED} times in a row within {lasted:.1f} s and went on"
                    " asking; wait a little longer after each"
                )
                self._complain(client, request, "ignored-throttling", message)
            client.refused, client.refused_since = 0, None

    def approval(self, client: Client, request: Exchange) -> None:
        body = request.body()
        ids = requests.read_approval(body) if body is not None else errors.TOO_LARGE
        if isinstance(ids, Problem):
            if _refused(request) and not request.fault:
                why = _WRONG_BODY.get(ids.body, "is too large")
                message = f"the body of an approval {why}; {_FORM}"
                self._complain(client, request, "malformed-approval", message)
            return
        named = list(dict.fromkeys(id[:64] for id in ids))[:MAX_APPROVED]
        if request.status == TAKEN:
            for id in named:
                self._approved(client, request, self._known.events.get(id))
        elif request.status == 400 and not request.fault:
            self._unknown(client, request, named)
        elif request.status is None or request.fault:
            self._attempted(client, request, named)

    def readiness(self, client: Client, request: Exchange, id: str) -> None:
        event = self._known.events.get(id)
        if event is None or request.status != TAKEN or request.fault:
            return
        course = self._known.machine_course(event, client.machine)
        if course is None:
            return
        if self._withdrawn(event, course, request):
            self._ignored(client, request, event, "said that it is ready for")
        body = request.body() or b""
        said = body.replace(b" ", b"").lower()
        if b'"ready":false' in said:
            course.prepared = None
        elif course.prepared is None:
            course.prepared = request.done.t

    def _approved(self, client: Client, request: Exchange, event: EventCourse | None) -> None:
        if event is None:
            return
        counts = (event.started is None and event.over is None) or _started_by_this(event, request)
        course = self._known.machine_course(event, client.machine)
        if course is None:  # there is no room for more
            if counts or not event.recorded:
                _count_approval(event, client.machine, request)
            return
        course.approvals += 1
        if self._withdrawn(event, course, request):
            self._ignored(client, request, event, "approved")
        elif _knew(course, request):
            how = "gone" if course.gone else "Started"
            message = (
                f"approved {_named(event)} after it was shown to it as {how}; it means nothing"
            )
            self._complain(client, request, "late-approval", message, event.id)
        elif event.type == FREEZE and counts and course.prepared is None:
            self._freeze(client, request, event)
        if course.approvals == REPEATED:
            message = f"approved {_named(event)} {REPEATED} times; once is enough, it is remembered"
            self._complain(client, request, "repeated-approval", message, event.id)
        if counts or not event.recorded:
            _count_approval(event, client.machine, request)

    def _freeze(self, client: Client, request: Exchange, event: EventCourse) -> None:
        seconds = event.seconds
        if seconds is not None and seconds > SHORT_FREEZE:
            return
        lasts = f"of {seconds:g} s" if seconds is not None and seconds >= 0 else "of a few seconds"
        message = (
            f"approved {_named(event)}, a pause {lasts} that memory and connections survive, and"
            " so brought it on; it could have been sat out instead"
        )
        self._complain(client, request, "approved-freeze", message, event.id)

    def _unknown(self, client: Client, request: Exchange, named: list[str]) -> None:
        events = self._known.events
        for id in named:
            event = events.get(id)
            if event is None or (client.group and event.group != client.group):
                shown = printable(id, 40) or "an empty id"
                message = (
                    f"approved {shown}, which its group was never shown,"
                    " and was refused; approve what stands in the document"
                )
                self._complain(client, request, "unknown-approval", message, printable(id, 40))

    def _attempted(self, client: Client, request: Exchange, named: list[str]) -> None:
        for id in named:
            event = self._known.events.get(id)
            course = (
                self._known.machine_course(event, client.machine) if event is not None else None
            )
            if event is not None and course is not None and course.attempted is None:
                course.attempted = request.done.t
                if (
                    event.recorded
                    and event.started is not None
                    and _started_by_this(event, request)
                ):
                    _count_approval(event, client.machine, request)

    def _ignored(self, client: Client, request: Exchange, event: EventCourse, did: str) -> None:
        message = (
            f"{did} {_named(event)} after it had been withdrawn and a document without it had been"
            " shown; take back what was prepared, and leave it"
        )
        self._complain(client, request, "ignored-withdrawal", message, event.id)

    def _withdrawn(self, event: EventCourse, course: MachineCourse, request: Exchange) -> bool:
        return event.ending == WITHDRAWN and after(request, course.gone)

    def _complain(
        self,
        client: Client,
        request: Exchange,
        rule: str,
        message: str,
        event: str = "",
    ) -> None:
        self._complaints.add(
            rule,
            message,
            at=request.asked.t,
            machine=client.machine,
            group=client.group,
            event=event,
        )


def _refused(request: Exchange) -> bool:
    return request.status is not None and 400 <= request.status < 500 and request.status != TOO_MANY


def _knew(course: MachineCourse, request: Exchange) -> bool:
    """Whether the machine had been shown before that there was nothing left to approve."""
    if course.gone is not None:
        return after(request, course.gone)
    return course.statuses[-1:] == [STARTED] and after(request, course.last_shown)


def _started_by_this(event: EventCourse, request: Exchange) -> bool:
    """Whether an event may have started by this approval, before it was answered."""
    started = event.started
    return (
        started is not None
        and event.approved is None
        and not event.struck
        and (event.not_before is None or started.t < event.not_before)
        and apart(request.asked, started) >= 0
    )


def _count_approval(event: EventCourse, machine: str, request: Exchange) -> None:
    if event.approved is None:
        at = request.done.t
        if event.started is not None and _started_by_this(event, request):
            at = min(at, event.started.t)  # it counted before it was answered
        event.approved, event.approved_by = at, machine


def _named(event: EventCourse) -> str:
    return f"{event.type} {event.id[:8]}"
