"""What one request does wrong, told as soon as it is heard.

A request is held against a client only if the service refused it, and not if the answer was
spoiled on purpose: what a laxer endpoint accepts is not wrong there.
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
    def __init__(self, register: Known, docket: Complaints) -> None:
        self._register = register
        self._docket = docket

    def request(self, client: Client, it: Exchange) -> None:
        """One that asks for nothing there is, as far as it wants events."""
        if not isinstance(it.ask, Problem) or it.fault or not _refused(it):
            return
        asks = f"{printable(it.method, 20)} {printable(it.path)}"
        match it.ask:
            case errors.NOT_FOUND:
                if "scheduled" in it.path.lower():
                    self._say(client, it, "wrong-path", f"{asks} is not there; ask {PLACE}")
            case errors.FORWARDED:
                says = f"{asks} carried X-Forwarded-For and was refused; ask directly, not through"
                self._say(client, it, "forwarded", f"{says} a proxy (NO_PROXY=169.254.169.254)")
            case errors.NO_METADATA_HEADER:
                sent = it.headers.get("metadata")
                how = "no Metadata header" if sent is None else f"Metadata: {printable(sent, 20)}"
                says = f"{asks} came with {how} and was refused; send Metadata: true"
                self._say(client, it, "missing-header", says)
            case errors.DUPLICATE_PARAMETER:
                says = f"{asks} gave a parameter twice and was refused; give each once"
                self._say(client, it, "wrong-query", says)
            case Problem(status=405):
                says = f"{asks} was refused; read with GET, approve with POST"
                self._say(client, it, "wrong-verb", says)
            case _ if "scheduled" in it.path.lower():
                named = (
                    f"api-version={printable(it.version, 40)}" if it.version else "no api-version"
                )
                says = f"{asks} came with {named} and was refused; ask with {NEWEST.name}"
                self._say(client, it, "wrong-version", says)

    def poll(self, client: Client, it: Exchange, *, usable: bool) -> None:
        """`usable`: the answer was a document, or that it still stands."""
        known = BY_NAME.get(it.version)
        if usable and known is not None and known.preview:
            says = f"reads {known.name}, a preview; ask with {NEWEST.name}"
            self._say(client, it, "preview-version", says)
        if usable:
            client.trouble = ""
        elif it.fault or it.status is None or it.status >= 500 or it.status in (408, 410, TOO_MANY):
            answered = "no answer" if it.status is None else f"a {it.status}"
            client.trouble = f"fault '{printable(it.fault)}' ({answered})" if it.fault else answered
        if it.status != TOO_MANY:
            client.refused, client.refused_since = 0, None
            return
        client.refused += 1
        client.refused_since = client.refused_since or it.asked
        if client.refused == THROTTLED:
            lasted = passed(client.refused_since, it.asked)
            if lasted < THROTTLED_WITHIN:
                says = (
                    f"was told 429 {THROTTLED} times in a row within {lasted:.1f} s and went on"
                    " asking; wait a little longer after each"
                )
                self._say(client, it, "ignored-throttling", says)
            client.refused, client.refused_since = 0, None

    def approval(self, client: Client, it: Exchange) -> None:
        body = it.body()
        ids = requests.read_approval(body) if body is not None else errors.TOO_LARGE
        if isinstance(ids, Problem):
            if _refused(it) and not it.fault:
                why = _WRONG_BODY.get(ids.body, "is too large")
                says = f"the body of an approval {why}; {_FORM}"
                self._say(client, it, "malformed-approval", says)
            return
        named = list(dict.fromkeys(id[:64] for id in ids))[:MAX_APPROVED]
        if it.status == TAKEN:
            for id in named:
                self._approved(client, it, self._register.happenings.get(id))
        elif it.status == 400 and not it.fault:
            self._unknown(client, it, named)
        elif it.status is None or it.fault:
            self._attempted(client, it, named)

    def readiness(self, client: Client, it: Exchange, id: str) -> None:
        known = self._register.happenings.get(id)
        if known is None or it.status != TAKEN or it.fault:
            return
        way = self._register.way(known, client.machine)
        if way is None:
            return
        if self._withdrawn(known, way, it):
            self._ignored(client, it, known, "said that it is ready for")
        body = it.body() or b""
        said = body.replace(b" ", b"").lower()
        if b'"ready":false' in said:
            way.prepared = None
        elif way.prepared is None:
            way.prepared = it.done.t

    def _approved(self, client: Client, it: Exchange, known: EventCourse | None) -> None:
        if known is None:
            return
        counts = (known.started is None and known.over is None) or _started_by_this(known, it)
        way = self._register.way(known, client.machine)
        if way is None:  # there is no room to say more of it
            if counts or not known.told:
                _count_approval(known, client.machine, it)
            return
        way.approvals += 1
        if self._withdrawn(known, way, it):
            self._ignored(client, it, known, "approved")
        elif _knew(way, it):
            how = "gone" if way.gone else "Started"
            says = f"approved {_named(known)} after it was shown to it as {how}; it means nothing"
            self._say(client, it, "late-approval", says, known.id)
        elif known.type == FREEZE and counts and way.prepared is None:
            self._freeze(client, it, known)
        if way.approvals == REPEATED:
            says = f"approved {_named(known)} {REPEATED} times; once is enough, it is remembered"
            self._say(client, it, "repeated-approval", says, known.id)
        if counts or not known.told:
            _count_approval(known, client.machine, it)

    def _freeze(self, client: Client, it: Exchange, known: EventCourse) -> None:
        seconds = known.seconds
        if seconds is not None and seconds > SHORT_FREEZE:
            return
        lasts = f"of {seconds:g} s" if seconds is not None and seconds >= 0 else "of a few seconds"
        says = (
            f"approved {_named(known)}, a pause {lasts} that memory and connections survive, and"
            " so brought it on; it could have been sat out instead"
        )
        self._say(client, it, "approved-freeze", says, known.id)

    def _unknown(self, client: Client, it: Exchange, named: list[str]) -> None:
        happenings = self._register.happenings
        for id in named:
            known = happenings.get(id)
            if known is None or (client.group and known.group != client.group):
                shown = printable(id, 40) or "an empty id"
                says = (
                    f"approved {shown}, which its group was never shown,"
                    " and was refused; approve what stands in the document"
                )
                self._say(client, it, "unknown-approval", says, printable(id, 40))

    def _attempted(self, client: Client, it: Exchange, named: list[str]) -> None:
        for id in named:
            known = self._register.happenings.get(id)
            way = self._register.way(known, client.machine) if known is not None else None
            if known is not None and way is not None and way.attempted is None:
                way.attempted = it.done.t
                if known.told and known.started is not None and _started_by_this(known, it):
                    _count_approval(known, client.machine, it)

    def _ignored(self, client: Client, it: Exchange, known: EventCourse, did: str) -> None:
        says = (
            f"{did} {_named(known)} after it had been withdrawn and a document without it had been"
            " shown; take back what was prepared, and leave it"
        )
        self._say(client, it, "ignored-withdrawal", says, known.id)

    def _withdrawn(self, known: EventCourse, way: MachineCourse, it: Exchange) -> bool:
        return known.ending == WITHDRAWN and after(it, way.gone)

    def _say(
        self,
        client: Client,
        it: Exchange,
        rule: str,
        says: str,
        event: str = "",
    ) -> None:
        self._docket.add(
            rule,
            says,
            at=it.asked.t,
            machine=client.machine,
            group=client.group,
            event=event,
        )


def _refused(it: Exchange) -> bool:
    return it.status is not None and 400 <= it.status < 500 and it.status != TOO_MANY


def _knew(way: MachineCourse, it: Exchange) -> bool:
    """Had it been shown before that there was nothing left to approve?"""
    if way.gone is not None:
        return after(it, way.gone)
    return way.statuses[-1:] == [STARTED] and after(it, way.told)


def _started_by_this(known: EventCourse, it: Exchange) -> bool:
    """It may have started before its approval was answered, and so before we heard of that."""
    started = known.started
    return (
        started is not None
        and known.approved is None
        and not known.struck
        and (known.not_before is None or started.t < known.not_before)
        and apart(it.asked, started) >= 0
    )


def _count_approval(known: EventCourse, machine: str, it: Exchange) -> None:
    if known.approved is None:
        at = it.done.t
        if known.started is not None and _started_by_this(known, it):
            at = min(at, known.started.t)  # it counted before it was answered
        known.approved, known.approved_by = at, machine


def _named(known: EventCourse) -> str:
    return f"{known.type} {known.id[:8]}"
