"""The rules that one request can break, checked when it is added.

A client is blamed only if the service refused the request, and not if the response was a fault:
what a more lenient endpoint accepts is not wrong there.
"""

from __future__ import annotations

from forewarn.traces.courses import WITHDRAWN
from forewarn.traces.exchanges import Exchange, passed, seconds_between
from forewarn.traces.lines import printable
from forewarn.verdict.clients import Client
from forewarn.verdict.complaints import Complaints
from forewarn.verdict.event_courses import (
    STARTED,
    EventCourse,
    MachineCourse,
    after,
)
from forewarn.verdict.observed import Observed
from forewarn.verdict.rules import MAX_APPROVALS, MAX_THROTTLED, SHORT_FREEZE, THROTTLED_SECONDS
from forewarn.wire import errors, requests
from forewarn.wire.errors import Problem
from forewarn.wire.versions import BY_NAME, FREEZE, NEWEST

EVENTS_PATH = "/metadata/scheduledevents"
TOO_MANY_REQUESTS = 429
OK = 200
MAX_APPROVED = 1_000  # events of one approval that are checked

_WRONG_BODY = {
    errors.NOT_JSON.body: "is not valid JSON",
    errors.NO_START_REQUESTS.body: "has no StartRequests with at least one event in it",
    errors.NO_EVENT_ID.body: "has an entry without an EventId",
}
_FORM = 'send {"StartRequests":[{"EventId":"…"}]}'


class RequestRules:
    def __init__(self, observed: Observed, complaints: Complaints) -> None:
        self._observed = observed
        self._complaints = complaints

    def request(self, client: Client, request: Exchange) -> None:
        """Check a request that is neither a poll nor an approval, as far as it is about events."""
        if not isinstance(request.ask, Problem) or request.fault or not _refused(request):
            return
        request_line = f"{printable(request.method, 20)} {printable(request.path)}"
        match request.ask:
            case errors.NOT_FOUND:
                if "scheduled" in request.path.lower():
                    self._complain(
                        client,
                        request,
                        "wrong-path",
                        f"{request_line} does not exist; use {EVENTS_PATH}",
                    )
            case errors.FORWARDED:
                message = (
                    f"{request_line} carried X-Forwarded-For and was refused; send requests"
                    " directly, not through"
                )
                self._complain(
                    client, request, "forwarded", f"{message} a proxy (NO_PROXY=169.254.169.254)"
                )
            case errors.NO_METADATA_HEADER:
                sent = request.headers.get("metadata")
                header = (
                    "no Metadata header" if sent is None else f"Metadata: {printable(sent, 20)}"
                )
                message = f"{request_line} came with {header} and was refused; send Metadata: true"
                self._complain(client, request, "missing-header", message)
            case errors.DUPLICATE_PARAMETER:
                message = f"{request_line} gave a parameter twice and was refused; give each once"
                self._complain(client, request, "wrong-query", message)
            case Problem(status=405):
                message = f"{request_line} was refused; read with GET, approve with POST"
                self._complain(client, request, "wrong-verb", message)
            case _ if "scheduled" in request.path.lower():
                version = (
                    f"api-version={printable(request.version, 40)}"
                    if request.version
                    else "no api-version"
                )
                message = f"{request_line} came with {version} and was refused; use {NEWEST.name}"
                self._complain(client, request, "wrong-version", message)

    def poll(self, client: Client, request: Exchange, *, usable: bool) -> None:
        """Check a poll; `usable` means that the response was a document, or 304."""
        version = BY_NAME.get(request.version)
        if usable and version is not None and version.preview:
            message = f"uses {version.name}, a preview; use {NEWEST.name}"
            self._complain(client, request, "preview-version", message)
        if usable:
            client.trouble = ""
        elif (
            request.fault
            or request.status is None
            or request.status >= 500
            or request.status in (408, 410, TOO_MANY_REQUESTS)
        ):
            answered = "no answer" if request.status is None else f"a {request.status}"
            client.trouble = (
                f"fault '{printable(request.fault)}' ({answered})" if request.fault else answered
            )
        if request.status != TOO_MANY_REQUESTS:
            client.refused, client.refused_since = 0, None
            return
        client.refused += 1
        client.refused_since = client.refused_since or request.asked
        if client.refused == MAX_THROTTLED:
            lasted = passed(client.refused_since, request.asked)
            if lasted < THROTTLED_SECONDS:
                message = (
                    f"got 429 {MAX_THROTTLED} times in a row within {lasted:.1f} s and went on"
                    " polling; wait a little longer after each"
                )
                self._complain(client, request, "ignored-throttling", message)
            client.refused, client.refused_since = 0, None

    def approval(self, client: Client, request: Exchange) -> None:
        body = request.body()
        ids = requests.read_approval(body) if body is not None else errors.TOO_LARGE
        if isinstance(ids, Problem):
            if _refused(request) and not request.fault:
                problem = _WRONG_BODY.get(ids.body, "is too large")
                message = f"the body of an approval {problem}; {_FORM}"
                self._complain(client, request, "malformed-approval", message)
            return
        approved_ids = list(dict.fromkeys(id[:64] for id in ids))[:MAX_APPROVED]
        if request.status == OK:
            for id in approved_ids:
                self._approved(client, request, self._observed.events.get(id))
        elif request.status == 400 and not request.fault:
            self._check_unknown(client, request, approved_ids)
        elif request.status is None or request.fault:
            self._record_attempts(client, request, approved_ids)

    def readiness(self, client: Client, request: Exchange, id: str) -> None:
        event = self._observed.events.get(id)
        if event is None or request.status != OK or request.fault:
            return
        course = self._observed.machine_course(event, client.machine)
        if course is None:
            return
        if self._knew_withdrawal(event, course, request):
            self._complain_ignored(client, request, event, "reported that it is ready for")
        body = request.body() or b""
        compact = body.replace(b" ", b"").lower()
        if b'"ready":false' in compact:
            course.prepared = None
            return
        if course.concerned and not course.was_ready and after(request, course.approved):
            message = (
                f"reported that it is ready for {_event_name(event)} after it had approved it;"
                " approve when the machine is ready"
            )
            self._complain(client, request, "approved-too-early", message, event.id)
        course.was_ready = True
        if course.prepared is None:
            course.prepared = request.done.t

    def _approved(self, client: Client, request: Exchange, event: EventCourse | None) -> None:
        if event is None:
            return
        counts = (event.started is None and event.over is None) or _started_by_this(event, request)
        course = self._observed.machine_course(event, client.machine)
        if course is None:  # too many are remembered already
            if counts or not event.recorded:
                _count_approval(event, client.machine, request)
            return
        course.approvals += 1
        if event.machines and not course.concerned:
            self._check_own(client, request, event)
        if self._knew_withdrawal(event, course, request):
            self._complain_ignored(client, request, event, "approved")
        elif _knew_end(course, request):
            state = "gone" if course.delisted else "Started"
            message = (
                f"approved {_event_name(event)} after it had seen it as {state}; this has no effect"
            )
            self._complain(client, request, "late-approval", message, event.id)
        elif not counts and _started_without_approval(event, request):
            message = f"approved {_event_name(event)} after it had started; this has no effect"
            self._complain(client, request, "late-approval", message, event.id)
        elif event.type == FREEZE and counts and course.prepared is None:
            self._check_freeze(client, request, event)
        if course.approvals == MAX_APPROVALS:
            message = (
                f"approved {_event_name(event)} {MAX_APPROVALS} times; once is enough, it is"
                " remembered"
            )
            self._complain(client, request, "repeated-approval", message, event.id)
        if counts or not event.recorded:
            _count_approval(event, client.machine, request)
            course.approved = course.approved or request.done

    def _check_own(self, client: Client, request: Exchange, event: EventCourse) -> None:
        message = (
            f"approved {_event_name(event)} of {printable(', '.join(event.machines))}, which is not"
            " its own; approve events only if Resources names this machine, unless the machines of"
            " the group have agreed on it"
        )
        self._complain(client, request, "approved-for-others", message, event.id)

    def _check_freeze(self, client: Client, request: Exchange, event: EventCourse) -> None:
        seconds = event.seconds
        if seconds is not None and seconds > SHORT_FREEZE:
            return
        duration = (
            f"of {seconds:g} s" if seconds is not None and seconds >= 0 else "of a few seconds"
        )
        message = (
            f"approved {_event_name(event)}, a pause {duration} that memory and connections"
            " survive; approving it made it happen sooner, and it could have been ignored"
        )
        self._complain(client, request, "approved-freeze", message, event.id)

    def _check_unknown(self, client: Client, request: Exchange, approved_ids: list[str]) -> None:
        events = self._observed.events
        for id in approved_ids:
            event = events.get(id)
            if event is None or (client.group and event.group != client.group):
                text = printable(id, 40) or "an empty id"
                message = (
                    f"approved {text}, which was never in a document of its group,"
                    " and was refused; approve events of the document only"
                )
                self._complain(client, request, "unknown-approval", message, printable(id, 40))

    def _record_attempts(self, client: Client, request: Exchange, approved_ids: list[str]) -> None:
        for id in approved_ids:
            event = self._observed.events.get(id)
            course = (
                self._observed.machine_course(event, client.machine) if event is not None else None
            )
            if event is not None and course is not None and course.uncertain_approval is None:
                course.uncertain_approval = request.done.t
                if (
                    event.recorded
                    and event.started is not None
                    and _started_by_this(event, request)
                ):
                    _count_approval(event, client.machine, request)

    def _complain_ignored(
        self, client: Client, request: Exchange, event: EventCourse, did: str
    ) -> None:
        message = (
            f"{did} {_event_name(event)} after it had been withdrawn and had left the document;"
            " undo the preparations instead"
        )
        self._complain(client, request, "ignored-withdrawal", message, event.id)

    def _knew_withdrawal(
        self, event: EventCourse, course: MachineCourse, request: Exchange
    ) -> bool:
        return event.ending == WITHDRAWN and after(request, course.delisted)

    def _complain(
        self,
        client: Client,
        request: Exchange,
        rule: str,
        message: str,
        event: str = "",
    ) -> None:
        client.mistaken |= isinstance(request.ask, Problem)
        self._complaints.add(
            rule,
            message,
            at=request.asked.t,
            machine=client.machine,
            group=client.group,
            event=event,
        )


def _refused(request: Exchange) -> bool:
    return (
        request.status is not None
        and 400 <= request.status < 500
        and request.status != TOO_MANY_REQUESTS
    )


def _knew_end(course: MachineCourse, request: Exchange) -> bool:
    """Return whether the machine had already seen that the event has started or ended."""
    if course.delisted is not None:
        return after(request, course.delisted)
    return course.statuses[-1:] == [STARTED] and after(request, course.last_shown)


def _started_by_this(event: EventCourse, request: Exchange) -> bool:
    """Return whether an event may have started by this approval, before it was answered."""
    started = event.started
    return (
        started is not None
        and event.approved is None
        and not event.sudden
        and (event.not_before is None or started.t < event.not_before)
        and seconds_between(request.asked, started) >= 0
    )


def _started_without_approval(event: EventCourse, request: Exchange) -> bool:
    """Return whether an event had started, since nobody approved it, before this request."""
    return (
        event.recorded
        and not event.sudden
        and event.approved is None
        and after(request, event.started)
    )


def _count_approval(event: EventCourse, machine: str, request: Exchange) -> None:
    if event.approved is None:
        at = request.done.t
        if event.started is not None and _started_by_this(event, request):
            at = min(at, event.started.t)  # it took effect before it was answered
        event.approved, event.approved_by = at, machine


def _event_name(event: EventCourse) -> str:
    return f"{event.type} {event.id[:8]}"
