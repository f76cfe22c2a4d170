"""What a client knows about its endpoint: where it is, which version it accepts, whether it offers
long-polls, what its clock says. Shared by all calls of one client, which poll through it.

Generators of steps, like `rules.py`. Versions come from our own table alone, newest first: the
versions that an error lists are those of the whole metadata service.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from math import inf

import msgspec

from forewarn.client import pace
from forewarn.client.document import NotADocument, parse_document
from forewarn.client.events import Document, EndpointStatus, from_timestamp
from forewarn.client.steps import FAILURES, Location, Request, Response, Steps
from forewarn.support import guard
from forewarn.wire import extensions
from forewarn.wire.requests import EVENTS_PATH
from forewarn.wire.server_clock import ServerClock
from forewarn.wire.versions import NEWEST, VERSIONS

NEWEST_FIRST = tuple(reversed(VERSIONS))
MAX_ETAG = 256  # characters of an ETag that is sent back
MAYBE_MOVED = ("refused", "unreachable", "late", "answered 404")  # the endpoint may have moved
NONE_FOUND = "none-found"  # the kind of failure where no endpoint is known
NO_LONG_POLL = (400, 403, 404, 405, 501)  # statuses of servers without long-polls
FAILURE_KINDS = (*FAILURES, "4xx", "5xx", "not-a-document", NONE_FOUND)  # rarer: 1xx, 2xx, 3xx


class HeldDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document, and the request by which it was received."""

    document: Document
    location: Location
    version: int  # index into `NEWEST_FIRST`
    etag: str = ""

    @property
    def hidden_types(self) -> frozenset[str]:
        """The types of event that its version does not list."""
        return frozenset(NEWEST.types) - frozenset(NEWEST_FIRST[self.version].types)


class EndpointState:
    """What is known about the endpoint, and the requests by which it becomes known."""

    def __init__(
        self, location: Location | None, *, long_poll: bool, clock: Callable[[], float]
    ) -> None:
        self.location = location
        self.version: int = 0  # index into `NEWEST_FIRST`
        self.document_timeout: float = pace.FIRST_ANSWER  # seconds for the next document
        self.verified: Location | None = None  # where documents have come from
        self._movable = location is None
        self._clock = clock
        self._server_clock = ServerClock(guard.wall_us() / 1e6 - clock())
        self._try_newest_at = 0.0
        self._refusals = 0  # of the version, in a row
        self._long_poll_at = 0.0 if long_poll else inf  # when to try long-polls
        self._long_poll = False  # whether they are offered
        self._lost_long_polls = 0
        self._failing_since: float | None = None
        self._problem = "no request has been sent yet"
        self._problem_kind = ""
        self._since = self.now()
        self._responses = self._failures = 0
        self._failures_by_kind: dict[str, int] = {}

    def now(self) -> datetime:
        """Return the time by the service's clock."""
        return from_timestamp(self._clock() + self._server_clock.offset)

    @property
    def status(self) -> EndpointStatus:
        return EndpointStatus(
            endpoint=None if self.location is None else str(self.location),
            version=NEWEST_FIRST[self.version].name,
            long_poll=self._long_poll,
            problem=self._problem,
            problem_kind=self._problem_kind,
            since=self._since,
            responses=self._responses,
            failures=self._failures,
            failures_by_kind=dict(self._failures_by_kind),
        )

    # Requests

    def send(
        self,
        location: Location,
        target: str,
        timeout: float,
        *,
        method: str = "GET",
        body: bytes | None = None,
        etag: str = "",
        long_poll: bool = False,
    ) -> Steps[Response]:
        """Send a request, and learn from its response what the service's clock says."""
        response: Response = yield Request(
            location=location,
            target=target,
            method=method,
            body=body,
            etag=etag,
            connect_timeout=pace.CONNECT,
            timeout=timeout,
        )
        self._responses += response.status is not None
        answered_after = response.sent_at
        if long_poll:  # its answer is written at the end of the time that it takes
            answered_after = max(answered_after, response.received_at - pace.TRANSIT)
        self._server_clock.learn(response.header("date"), answered_after, response.received_at)
        return response

    def poll(
        self, location: Location, held: HeldDocument | None, timeout: float
    ) -> Steps[HeldDocument | Response]:
        """Get the document, in the newest version that is accepted there. Returns the response if
        that is not a document."""
        refused: Response | None = None
        versions = self._versions(location)
        for version in versions:
            same = held is not None and (held.location, held.version) == (location, version)
            etag = held.etag if held is not None and same else ""
            response = yield from self.send(location, events_target(version), timeout, etag=etag)
            if response.status != 400:
                result = _read(response, location, version, held if etag else None)
                if isinstance(result, HeldDocument):
                    self._accept(location, version, newest_tried=versions.start == 0)
                return result
            refused = refused or response
        self._refusals += 1
        assert refused is not None
        return refused

    def long_poll(self, held: HeldDocument, seconds: float) -> Steps[HeldDocument | Response]:
        """Get the document when it has changed, or the same one when the time is up."""
        version = NEWEST_FIRST[held.version].name
        target = f"{extensions.WAIT}?timeout={seconds:.3f}&api-version={version}"
        timeout = seconds + pace.WAIT_LATE
        response = yield from self.send(
            held.location, target, timeout, etag=held.etag, long_poll=True
        )
        result = _read(response, held.location, held.version, held)
        if isinstance(result, HeldDocument):
            self._long_poll, self._lost_long_polls = True, 0
        return result

    def _versions(self, location: Location) -> range:
        """Return the versions to try in this order. Older versions show fewer events, so they
        are only tried after several refusals, and the newest is tried again after a while."""
        if location != self.verified:
            return range(len(NEWEST_FIRST))
        again = self._clock() >= self._try_newest_at
        doubted = self._refusals >= pace.DOUBT
        first = 0 if again else self.version
        return range(first, len(NEWEST_FIRST) if doubted else self.version + 1)

    def _accept(self, location: Location, version: int, *, newest_tried: bool) -> None:
        if version and newest_tried:
            self._try_newest_at = self._clock() + pace.NEWEST_AGAIN
        self.verified, self.version, self._refusals = location, version, 0

    # Long-polls

    def can_long_poll(self, held: HeldDocument | None, max_wait: float) -> bool:
        """Return whether the next request may be a long-poll."""
        current = self.location, self.version
        if held is None or not held.etag or (held.location, held.version) != current:
            return False
        if self.version and self._clock() >= self._try_newest_at:
            return False
        return max_wait >= pace.WAIT_LEAST and self._clock() >= self._long_poll_at

    def long_poll_failed(self, response: Response) -> None:
        """Give up long-polls for a while: at once if they are not offered, and after a few that
        were lost while polls succeed."""
        self._lost_long_polls += 1
        if response.status in NO_LONG_POLL or self._lost_long_polls >= pace.WAIT_TRIES:
            self._long_poll, self._lost_long_polls = False, 0
            self._long_poll_at = self._clock() + pace.WAIT_AGAIN

    # Outcomes

    def succeeded(self, location: Location) -> None:
        """Record that the endpoint returned a document."""
        self.location, self.document_timeout, self._failing_since = location, pace.ANSWER, None
        if self._problem:
            self._problem, self._problem_kind, self._since = "", "", self.now()

    def record_problem(self, problem: str, kind: str = NONE_FOUND, *, late: bool = False) -> None:
        """Record what is wrong. After an answer that came too late, the next may take longer."""
        if self._failing_since is None:
            self._failing_since, self._since = self._clock(), self.now()
        self._failures += 1
        self._failures_by_kind[kind] = self._failures_by_kind.get(kind, 0) + 1
        self._problem, self._problem_kind = problem, kind
        if late:  # perhaps it is starting, and would have answered a little later
            self.document_timeout = min(self.document_timeout * 2, pace.FIRST_ANSWER)

    def failed(self, location: Location, response: Response) -> None:
        """Record that the endpoint did not return a document. One that was discovered and is gone
        may be elsewhere by now."""
        failure = describe(response)
        kind = failure_kind(response)
        late = response.failure == "late"
        self.record_problem(FAILURES.get(failure, failure), kind, late=late)
        since = self._failing_since
        lost = since is not None and self._clock() - since >= pace.LOST
        if self._movable and lost and failure in MAYBE_MOVED and self.location == location:
            self.location = self.verified = None
            self.version, self.document_timeout = 0, pace.FIRST_ANSWER


def events_target(version: int) -> str:
    """Return the target of a request for the document, by the index of its version."""
    return f"{EVENTS_PATH}?api-version={NEWEST_FIRST[version].name}"


def describe(response: Response) -> str:
    """Describe what came instead of a document in a few words; or return a key of `FAILURES`."""
    if response.status is None:
        return response.failure
    if response.status != 200:
        return f"answered {response.status}"
    try:
        parse_document(response.body)
    except NotADocument as error:
        return f"answered {error}"
    return "answered"


def failure_kind(response: Response) -> str:
    """Return one of a few words for what came instead of a document, for metrics."""
    if response.status is None:
        return response.failure
    return "not-a-document" if response.status == 200 else f"{response.status // 100}xx"


def _read(
    response: Response, location: Location, version: int, held: HeldDocument | None
) -> HeldDocument | Response:
    if response.status == 304 and held is not None:
        return held
    if response.status != 200:
        return response
    try:
        document = parse_document(response.body)
    except NotADocument:
        return response
    etag = response.header("etag")
    etag = etag if len(etag) <= MAX_ETAG else ""
    return HeldDocument(document=document, location=location, version=version, etag=etag)
