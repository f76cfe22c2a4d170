"""The endpoint: a raw ASGI application that puts seats, boards and the wire together.

Checks in the one order that clients may rely on: caller, rate, then what `wire.requests` says.
Decides nothing and renders nothing itself. A poll whose answer is at hand can also be had at
once, without ASGI; `Front` does.
"""

from __future__ import annotations

import asyncio

from forewarn.metadata.endpoint.callers import Caller, Callers
from forewarn.metadata.endpoint.documents import CLOSE, UNCHANGED, GroupDocuments, RenderedDocument
from forewarn.metadata.endpoint.extensions import Extensions
from forewarn.metadata.endpoint.fair_queue import FairQueue
from forewarn.metadata.endpoint.limits import BufferLimits, ConnectionLimits, Limits, RateLimits
from forewarn.metadata.endpoint.metrics import ROWS, EndpointCounts
from forewarn.metadata.endpoint.reply import (
    CUT,
    HANG_UP,
    Gone,
    Receive,
    Reply,
    Scope,
    Send,
    refused,
)
from forewarn.metadata.endpoint.response_headers import ResponseHeaders
from forewarn.metadata.upstream import GroupNews, NotDurable, OutcomeNotKnown, Upstream
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger
from forewarn.wire import errors, extensions, requests
from forewarn.wire.errors import Problem
from forewarn.wire.headers import parse_tags, tag_matches
from forewarn.wire.instance import Found, NeedsText, NoSuchElement, answer, versions_body
from forewarn.wire.versions import Version

READ_SIZE = 16 * 1024  # bytes that are read from a connection at a time, on the long way

log = logger("forewarn")


class KnownPoll:
    """What a poll asks for, as `answer_poll` needs it."""

    __slots__ = ("close", "name", "row", "tags", "version", "which")

    def __init__(self, version: Version, if_none_match: str, close: bool) -> None:
        self.version = version
        self.name = version.name
        self.tags = parse_tags(if_none_match)
        self.close = close  # the caller wants no other answer on this connection
        self.which = CLOSE if close else 0  # the answer with the document, if it has changed
        self.row = ROWS[version.name]  # where it is counted


class MetadataApp:
    """Also the one owner of what the parts before it share: seats, limits and counts."""

    def __init__(self, upstream: Upstream, seats: Callers, limits: Limits) -> None:
        self._upstream = upstream
        self.seats = seats
        self.limits = limits
        self.standing = ResponseHeaders()
        self.counts = EndpointCounts()
        self.crowd = ConnectionLimits(limits)
        self.buffered = BufferLimits(limits)
        self.queue = FairQueue()
        self.read_buffer = memoryview(bytearray(READ_SIZE))
        self.now = upstream.now
        self._now = upstream.now()  # as of the last `refresh`
        self._witness = upstream.witness
        self._boards = GroupDocuments()
        self._rates = RateLimits(limits.throttle)
        self._throttled = limits.throttle > 0
        self._seat_at = seats.at
        self._polls = self.counts.polls
        self.detours: set[str] = set()  # machines whose every request takes the long way
        self.beside = Extensions(upstream, seats, self._show)
        self._not_taken = LogThrottle()
        upstream.attach(self._told)

    def allow(self, limits: Limits) -> None:
        """Other limits from now on; what is under way is measured by them too."""
        self.limits = self.crowd.limits = self.buffered.limits = limits
        if limits.throttle != self._rates.per_second:
            self._rates = RateLimits(limits.throttle)
            self._throttled = limits.throttle > 0

    def refresh(self) -> None:
        """Read the time that `answer_poll` uses until the next call of this method."""
        self._now = self.now()
        self.standing.look(self._now.at)

    def answer_poll(self, plan: KnownPoll, address: str) -> bytes | None:
        """The whole answer to a poll, or None if it has to take the long way.

        What `_reply`, `_document` and `_show` say to the same request, in one piece: with
        calls between them our own share of a poll's cost is half as much again.
        """
        seat = self._seat_at(address)
        if seat is None:
            return None
        name, board = seat.name, seat.board
        if not board.enabled or name in self.detours:
            return None
        if self._throttled and not self._rates.admit(name):
            return None
        page = board.pages.get(plan.name)
        if page is None:
            page = board.page(plan.version)
        unchanged = 0
        if plan.tags and tag_matches(plan.tags, page.etag):
            unchanged = UNCHANGED
        self._witness(name, seat.group, plan.name, board.incarnation, page.events, self._now)
        self._polls[plan.row + unchanged] += 1
        answer = page.answers[plan.which + unchanged]
        if answer is None:
            answer = page.answer(plan.which + unchanged)
        standing = self.standing
        last_digits = next(standing.last_digits, b"") or standing.start_over()
        if answer.lines is not standing.lines:
            answer.lines, answer.opening = standing.lines, answer.before + standing.lines
        return answer.opening + last_digits + answer.after

    def refusal(self, problem: Problem) -> bytes:
        return self.standing.refusal(problem, self.now().at)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await self._reply(scope, receive)
        except Gone:
            return
        except NotDurable as failure:
            if times := self._not_taken.record():
                log.error("a request could not be carried out", why=str(failure), times=times)
            if isinstance(failure, OutcomeNotKnown) and scope["method"] != "GET":
                scope[CUT](False)  # a 500 would say that nothing has happened
                return
            reply = refused(errors.NOT_TAKEN)
        except asyncio.CancelledError:  # the service stops, and this one was still waiting
            reply = refused(errors.STOPPING)
        if reply.status >= 400:
            self.counts.refused[reply.status] += 1
        headers = self.head(reply)
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    def head(self, reply: Reply) -> list[tuple[bytes, bytes]]:
        head = [*reply.headers, *self.standing.headers(self.now().at)]
        if reply.status != 304:
            head += [("Content-Type", reply.content_type), ("Content-Length", str(len(reply.body)))]
        return [(name.encode(), value.encode()) for name, value in head]

    async def unseen(self, seat: Caller, version: Version) -> bytes:
        """The document, for one who will not get to see it as it is: a sign of life, no more."""
        while not seat.board.enabled:
            await self._upstream.enable(seat.group)
        self.alive(seat)
        return seat.board.page(version).body

    def alive(self, seat: Caller) -> None:
        self._upstream.alive(seat.group)

    def _told(self, news: GroupNews) -> None:
        board = self._boards.told(news)
        self.seats.told(news, board)
        self.beside.told(news, board)

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        seat = self.seats.who(
            (scope.get("client") or ("", 0))[0], (scope.get("server") or ("", 0))[0]
        )
        if seat is None:
            return refused(errors.NOT_FOUND)
        ask = requests.read_request(
            scope["method"], scope["path"], scope["query_string"], scope["headers"]
        )
        if not self._rates.admit(seat.name):
            self.counts.hit("throttle", seat.name)
            if isinstance(ask, requests.GetDocument | extensions.Wait) and seat.board.enabled:
                self._upstream.alive(seat.group)
            return refused(errors.THROTTLED)
        match ask:
            case Problem():
                return refused(ask)
            case requests.GetDocument():
                return await self._document(seat, ask)
            case requests.PostApproval():
                return await self._approval(seat, scope, receive)
            case requests.GetVersions():
                return Reply(200, versions_body())
            case requests.GetInstance(version=version, path=path, format=format):
                facts = seat.facts()
                match answer(facts, version, path, format):
                    case Found(body=body, content_type=content_type):
                        return Reply(200, body, content_type)
                    case NeedsText():
                        return refused(errors.LEAF_WITHOUT_TEXT)
                    case NoSuchElement():
                        return refused(errors.NOT_FOUND)
            case extensions.GetReadiness():
                return await self.beside.readiness(seat, ask)
            case extensions.Wait() | extensions.PutReadiness():
                said = await self._body(seat, scope, receive)
                if isinstance(said, Problem):
                    return refused(said)
                if isinstance(ask, extensions.PutReadiness):
                    return await self.beside.prepare(seat, ask, said)
                return await self.beside.wait(seat, ask, scope, receive)

    async def _document(self, seat: Caller, ask: requests.GetDocument) -> Reply:
        headers: tuple[tuple[str, str], ...] = ()
        while not seat.board.enabled:
            await self._upstream.enable(seat.group)
            headers = HANG_UP  # the next poll of this machine meets Front again
        tags = parse_tags(ask.if_none_match)
        page, unchanged = self._show(seat, ask.version, tags)
        headers = (("ETag", page.etag), *headers)
        return Reply(304, headers=headers) if unchanged else Reply(200, page.body, headers=headers)

    def _show(
        self, seat: Caller, version: Version, tags: frozenset[str]
    ) -> tuple[RenderedDocument, bool]:
        """The page for this machine, noted as seen by it; and whether it has it already."""
        board = seat.board
        page = board.page(version)
        unchanged = tag_matches(tags, page.etag)
        self._witness(
            seat.name, seat.group, version.name, board.incarnation, page.events, self.now()
        )
        self.counts.polls[ROWS[version.name] + unchanged] += 1
        return page, unchanged

    async def _approval(self, seat: Caller, scope: Scope, receive: Receive) -> Reply:
        body = await self._body(seat, scope, receive)
        if isinstance(body, Problem):
            return refused(body)
        ids = requests.read_approval(body)
        if isinstance(ids, Problem):
            return refused(ids)
        if not await self._upstream.approve(seat.name, seat.group, ids):
            return refused(errors.UNKNOWN_EVENT)
        return Reply(200)

    async def _body(self, seat: Caller, scope: Scope, receive: Receive) -> bytes | Problem:
        """The whole body, or why it is not taken. Never more of it than is allowed.

        Whoever keeps us waiting too long is noticed by the sweep, which sends an empty message.
        """
        too_late = guard.monotonic() + self.limits.body_timeout
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self.limits.max_body:
                self.counts.hit("max_body", seat.name)
                return errors.TOO_LARGE
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            body += message.get("body", b"")
            if len(body) > self.limits.max_body:
                self.counts.hit("max_body", seat.name)
                return errors.TOO_LARGE
            if not message.get("more_body", False):
                return bytes(body)
            if guard.monotonic() > too_late:
                self.counts.hit("body_timeout", seat.name)
                return errors.TOO_SLOW
