"""The rules of a client: which requests to send, when to retry, and what an answer means.

One implementation for the blocking and the asynchronous client: every method is a generator of
steps (`steps.py`). Nothing here waits, opens a socket or reads any clock but guard time. What is
known about the endpoint, and which version is used, is in `endpoint_state.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import product
from math import inf
from urllib.parse import quote

import msgspec

from forewarn.client import identity as instance
from forewarn.client import pace
from forewarn.client.changes import ChangeTracker
from forewarn.client.endpoint_state import (
    EndpointState,
    HeldDocument,
    describe,
    events_target,
)
from forewarn.client.errors import (
    ApprovalRefusedError,
    EndpointNotFoundError,
    EndpointUnavailableError,
)
from forewarn.client.events import Document, EndpointStatus, Event, Snapshot, is_short_freeze
from forewarn.client.identity import Identity
from forewarn.client.pace import Retries, is_transient
from forewarn.client.steps import FAILURES, Call, Deliver, Location, Response, Sleep, Steps
from forewarn.support import guard, text
from forewarn.wire import extensions

NAMELESS = "answered without the name of this machine"
VALID_ANSWER = "a valid answer"  # what a call wants, for its error
IDENTITY = "the identity of this machine"
MAX_NOTE = 1_024  # characters of the note of a readiness report
MAX_QUOTED = 400  # characters of a refusal that are passed on
NOWHERE = Response(failure="unreachable", sent_at=0.0, received_at=0.0)
_readiness = msgspec.json.Decoder(extensions.Readiness)


class Readiness(msgspec.Struct, frozen=True):
    """The readiness for an event."""

    ready: tuple[str, ...]
    """The names of the machines of the group that have reported to be ready."""

    waiting: tuple[str, ...]
    """The names of the machines of the event that have not."""


class ClientProtocol:
    """The calls of a client as generators of steps, and what they share: the endpoint, and which
    events were approved."""

    def __init__(
        self,
        location: Location | None,
        well_known: Location,
        *,
        long_poll: bool = True,
        interval: float = pace.INTERVAL,
        clock: Callable[[], float] = guard.monotonic,
    ) -> None:
        """`well_known` is where an endpoint may be if no `location` is given."""
        self._well_known = well_known
        self._interval = interval
        self._clock = clock
        self._endpoint = EndpointState(location, long_poll=long_poll, clock=clock)
        self._trackers: set[ChangeTracker] = set()  # one for each watch

    def now(self) -> datetime:
        """Return the time by the service's clock."""
        return self._endpoint.now()

    @property
    def status(self) -> EndpointStatus:
        """The status of the endpoint."""
        return self._endpoint.status

    def snapshots(
        self,
        max_wait: Callable[[], float] | None = None,
        *,
        mine: bool = False,
        min_freeze: float = 0.0,
    ) -> Steps[None]:
        """Deliver every document with its changes, for ever: of all events, or with `mine` of those
        of this machine, but without those of a Freeze that is shorter than `min_freeze`."""
        max_wait = max_wait or (lambda: inf)
        identity: Identity | None = None
        unidentified: Retries | None = None  # since there are documents, but no identity
        tracker = ChangeTracker()
        self._trackers.add(tracker)
        retries = Retries(self._clock)
        held: HeldDocument | None = None
        try:
            while True:
                begun = self._clock()
                result, by_long_poll = yield from self._next_document(held, retries, max_wait())
                if not isinstance(result, HeldDocument):
                    retries.failed(result)
                    unidentified = None
                    yield Sleep(retries.rest() or pace.LEAST_REST)
                    continue
                retries.succeeded()
                if mine and identity is None:
                    unidentified = unidentified or Retries(self._clock, pace.TIMEOUT)
                    answer = yield from self._ask_identity(unidentified)
                    if isinstance(answer, Response):
                        yield self._retry(unidentified, answer, wanted=IDENTITY)
                        continue  # with a poll: a long-poll would delay the next attempt
                    identity = answer
                previous, held = held, result
                at, hidden = self.now(), held.hidden_types
                wanted = _wanted(held.document, identity, min_freeze)
                changes = tracker.update(wanted, at, hidden)
                yield Deliver(
                    Snapshot(document=held.document, changes=changes, at=at, hidden_types=hidden)
                )
                spent = self._clock() - begun
                # The next long-poll starts at once, unless the last one returned early in vain.
                changed = previous is None or previous.document.events != held.document.events
                useful = changed or spent >= self._interval
                at_once = useful if by_long_poll else self._endpoint.can_long_poll(held, max_wait())
                rest = 0.0 if at_once else pace.jittered(self._interval) - spent
                rest = max(min(rest, max_wait()), pace.LEAST_REST - spent)
                if rest > 0:
                    yield Sleep(rest)
        finally:
            self._trackers.discard(tracker)

    def events(self, timeout: float) -> Steps[tuple[Event, ...]]:
        """Get the events that are listed now."""
        held = yield from self._document(Retries(self._clock, timeout))
        return held.document.events

    def approve(self, events: Sequence[Event | str], timeout: float) -> Steps[None]:
        """Approve events. Those that have started, or are not listed any more, need no approval;
        of an ID it is not known whether it was ever listed."""
        retries = Retries(self._clock, timeout)
        waiting = [e for e in events if isinstance(e, str) or not e.started]
        while waiting:
            try:
                yield from self._approve(list(ids(waiting)), retries)
                return
            except ApprovalRefusedError as refusal:
                remaining = yield from self._still_scheduled(waiting, retries)
                if remaining == waiting:
                    raise refusal
                waiting = remaining

    def _still_scheduled(
        self, events: Sequence[Event | str], retries: Retries
    ) -> Steps[list[Event | str]]:
        """Return the events without those that have started or ended meanwhile."""
        if all(isinstance(event, str) for event in events):
            return list(events)
        document = (yield from self._document(retries)).document
        scheduled = {event.id.upper() for event in document.events if not event.started}
        return [e for e in events if isinstance(e, str) or e.id.upper() in scheduled]

    def _approve(self, ids: Sequence[str], retries: Retries) -> Steps[None]:
        if self._endpoint.verified is None:  # then its version is unknown
            yield from self._document(retries)
        body = msgspec.json.encode({"StartRequests": [{"EventId": id} for id in ids]})
        for tracker, id in product(list(self._trackers), ids):
            tracker.mark_approved(id)
        while True:
            target = events_target(self._endpoint.version)
            response = yield from self._send(target, retries, "POST", body)
            if response.status == 200:
                return
            if _is_refusal(response):
                for tracker, id in product(list(self._trackers), ids):
                    tracker.unmark_approved(id)
                refusal = response.body[:MAX_QUOTED].decode("utf-8", "replace")
                quoted = text.visible(f"{', '.join(ids)}: {refusal}")
                raise ApprovalRefusedError(
                    f"the service answered {response.status} to the approval of {quoted}"
                )
            yield self._retry(retries, response)

    def identity(self, timeout: float) -> Steps[Identity]:
        """Get the identity of this machine."""
        retries = Retries(self._clock, timeout)
        while True:
            answer = yield from self._ask_identity(retries)
            if isinstance(answer, Identity):
                return answer
            yield self._retry(retries, answer, wanted=IDENTITY)

    def _ask_identity(self, retries: Retries) -> Steps[Identity | Response]:
        """Ask once for the identity of this machine. Returns the response if it has none."""
        for version in instance.VERSIONS:
            response = yield from self._send(instance.target(version), retries)
            if response.status != 400:
                break
        identity = instance.parse_identity(response.body) if response.status == 200 else None
        return response if identity is None else identity

    def readiness(
        self, id: str, timeout: float, report: extensions.ReadinessReport | None = None
    ) -> Steps[Readiness | None]:
        """Get the readiness for an event, after sending a report if one is given. None where there
        is no `/ready`, or the event is not listed."""
        if report is not None and len(report.note) > MAX_NOTE:
            raise ValueError(
                f"a note may have at most {MAX_NOTE:,} characters, not {len(report.note):,}"
            )
        retries = Retries(self._clock, timeout)
        target = f"{extensions.READY}/{quote(id, safe='')}"
        body = None if report is None else msgspec.json.encode(report)
        while True:
            method = "GET" if body is None else "PUT"
            response = yield from self._send(target, retries, method, body)
            if response.status == 200:
                return _parse_readiness(response.body)
            if body is not None and response.status == 429 and response.body.startswith(b"{"):
                body = None  # too many reports: this one has no effect, so get the current state
            elif response.status is not None and not is_transient(response):
                return None
            else:
                yield self._retry(retries, response)

    # Requests

    def _next_document(
        self, held: HeldDocument | None, retries: Retries, max_wait: float
    ) -> Steps[tuple[HeldDocument | Response, bool]]:
        """Return a document, or the response that is not one; and whether it was a long-poll."""
        lost: Response | None = None
        can_long_poll = not retries.failures and self._endpoint.can_long_poll(held, max_wait)
        if held is not None and can_long_poll:
            result = yield from self._endpoint.long_poll(held, min(pace.WAIT, max_wait))
            if isinstance(result, HeldDocument):
                self._endpoint.succeeded(result.location)
                return result, True
            lost = result
        result = yield from self._poll(held, retries)
        if lost is not None and isinstance(result, HeldDocument):
            self._endpoint.long_poll_failed(lost)
        return result, False

    def _document(self, retries: Retries) -> Steps[HeldDocument]:
        """Poll until there is a document."""
        while True:
            result = yield from self._poll(None, retries)
            if isinstance(result, HeldDocument):
                return result
            yield self._retry(retries, result)

    def _poll(self, held: HeldDocument | None, retries: Retries) -> Steps[HeldDocument | Response]:
        """Poll once, wherever the endpoint is."""
        location = self._endpoint.location
        if location is None:
            return (yield from self._discover(retries))
        timeout = min(self._endpoint.document_timeout, max(pace.ANSWER_LEAST, retries.left))
        result = yield from self._endpoint.poll(location, held, timeout)
        if isinstance(result, HeldDocument):
            self._endpoint.succeeded(location)
            return result
        self._endpoint.failed(location, result)
        if self._endpoint.location is None:  # it had been discovered, and is gone
            return (yield from self._discover(retries))
        return result

    def _discover(self, retries: Retries) -> Steps[HeldDocument | Response]:
        """Poll the well-known address. Whatever else may answer there, the endpoint has documents,
        and may take its time for the first one."""
        location = self._well_known
        timeout = min(pace.FIRST_ANSWER, max(pace.ANSWER_LEAST, retries.left))
        result = yield from self._endpoint.poll(location, None, timeout)
        if isinstance(result, HeldDocument):
            self._endpoint.succeeded(location)
            return result
        tried = [(str(location), describe(result))]
        self._endpoint.record_problem((yield Call(lambda: _explain_unreachable(tried))))
        return result if is_transient(result) else NOWHERE

    def _send(
        self, target: str, retries: Retries, method: str = "GET", body: bytes | None = None
    ) -> Steps[Response]:
        """Send any request but a poll, once the location of the endpoint is known."""
        while (location := self._endpoint.location) is None:
            yield from self._document(retries)
        timeout = min(pace.ANSWER, max(pace.ANSWER_LEAST, retries.left))
        return (yield from self._endpoint.send(location, target, timeout, method=method, body=body))

    def _retry(self, retries: Retries, response: Response, wanted: str = VALID_ANSWER) -> Sleep:
        """Return the pause before the next attempt. Raises if there is no time left for one."""
        retries.failed(response)
        rest = retries.rest()
        if rest is not None:
            return Sleep(rest)
        status = self.status
        if status.endpoint is None:
            raise EndpointNotFoundError(status.problem)
        nameless = wanted == IDENTITY and response.status == 200
        problem = NAMELESS if nameless else describe(response)
        problem = FAILURES.get(problem, problem)
        raise EndpointUnavailableError(f"{status.endpoint} does not give {wanted}: {problem}")


def _explain_unreachable(tried: list[tuple[str, str]]) -> str:
    from forewarn.client.discovery.diagnose import explain_unreachable  # rarely needed

    return explain_unreachable(tried)


def _wanted(document: Document, identity: Identity | None, min_freeze: float) -> Document:
    """Return the document without the events that are not to be reported: those of other machines,
    if the identity of this one is given, and short freezes.

    What is left out of a document counts as over, so that an event that no longer lists this
    machine is reported as withdrawn or finished.
    """
    events = [
        event
        for event in document.events
        if (identity is None or event.affects(identity)) and not is_short_freeze(event, min_freeze)
    ]
    return Document(document.incarnation, tuple(events))


def _is_refusal(response: Response) -> bool:
    """Whether the service has understood the request and refused it. 404 comes from a service that
    does not know this machine."""
    status = response.status or 0
    return 400 <= status < 500 and status != 404 and not is_transient(response)


def _parse_readiness(body: bytes) -> Readiness | None:
    """Parse a readiness document; None for anything else, which means that there is no `/ready`."""
    try:
        readiness = _readiness.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return Readiness(tuple(report.machine for report in readiness.ready), readiness.waiting)


def ids(events: Iterable[Event | str]) -> Iterator[str]:
    """Return the IDs of events, some of which may be given by their ID."""
    for event in events:
        yield event if isinstance(event, str) else event.id
