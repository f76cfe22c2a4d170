"""The endpoint: an ASGI application that puts callers, documents and the wire together.

Requests are checked in the order that clients may rely on: caller, rate, then what `wire.requests`
checks. Decides nothing and renders nothing itself. `answer_poll` answers an ordinary poll without
ASGI, for `Front`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from forewarn.metadata.endpoint.callers import Caller, Callers
from forewarn.metadata.endpoint.documents import CLOSE, UNCHANGED, GroupDocuments, RenderedDocument
from forewarn.metadata.endpoint.extensions import Extensions
from forewarn.metadata.endpoint.fair_queue import FairQueue
from forewarn.metadata.endpoint.limits import (
    BufferLimits,
    ConnectionLimits,
    HeldRequests,
    Limits,
    RateLimits,
)
from forewarn.metadata.endpoint.metrics import ROWS, EndpointCounts
from forewarn.metadata.endpoint.reply import (
    BODY,
    CONNECTION_CLOSE,
    CUT,
    GONE,
    Gone,
    Receive,
    Reply,
    Scope,
    Send,
    refused,
)
from forewarn.metadata.endpoint.response_headers import ResponseHeaders
from forewarn.metadata.upstream import GroupNews, NotDurable, OutcomeUnknown, Upstream
from forewarn.service.access.access_tokens import ACCESS_LIFE
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger
from forewarn.support.text import GUID
from forewarn.wire import errors, extensions, requests
from forewarn.wire.errors import Problem
from forewarn.wire.headers import parse_tags, tag_matches
from forewarn.wire.instance import InstanceBody, NeedsText, NoSuchElement, answer, versions_body
from forewarn.wire.versions import Version

READ_SIZE = 16 * 1024  # bytes that are read from a connection at a time, on the slow path
NO_STORE = (("Cache-Control", "no-store"),)
LEASE_CHECK = 0.05  # seconds between two checks whether a lease that has run out was renewed

Decided: TypeAlias = (
    requests.PostApproval
    | requests.GetToken
    | extensions.GetReadiness
    | extensions.PutReadiness
    | extensions.PutPostponement
)

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
    """The application, and the owner of what connections share: callers, limits and counts."""

    def __init__(
        self,
        upstream: Upstream,
        callers: Callers,
        limits: Limits,
        held: Callable[[], bool] | None = None,
        find: Callable[[str], Awaitable[object]] | None = None,
        decisions_per_second: int = 0,
    ) -> None:
        """`held` returns whether this service has the lease on its state, without which it must not
        answer; None: there is no such lease. `find` is called with an address that is not known
        here, and returns when it is, or will not be; it raises NotDurable if that is uncertain.
        `decisions_per_second` are the requests of a machine, other than polls, that are passed on;
        0: they are not limited."""
        self._upstream = upstream
        self.held = held
        self._find = find
        if held is not None:
            self.answer_poll = self._answer_poll_if_held  # type: ignore[method-assign]
        self.callers = callers
        self.limits = limits
        self.headers = ResponseHeaders()
        self.counts = EndpointCounts()
        self.connections = ConnectionLimits(limits)
        self.buffered = BufferLimits(limits)
        self.queue = FairQueue()
        self.read_buffer = memoryview(bytearray(READ_SIZE))
        self.now = upstream.now
        self._now = upstream.now()  # as of the last `refresh`
        self._record_poll = upstream.record_poll
        self._documents = GroupDocuments()
        self._rates = RateLimits(limits.throttle)
        self._throttled = limits.throttle > 0
        self._held_requests = HeldRequests(limits, decisions_per_second)
        self._caller_at = callers.at
        self._polls = self.counts.polls
        self.detours: set[str] = set()  # machines whose every request takes the slow path
        self.extensions = Extensions(upstream, callers, self._show)
        self._failures = LogThrottle()
        upstream.attach(self._on_news)

    def set_limits(self, limits: Limits) -> None:
        """Replace the limits, also for requests that are under way."""
        self.limits = self.connections.limits = self.buffered.limits = limits
        self._held_requests.limits = limits
        if limits.throttle != self._rates.per_second:
            self._rates = RateLimits(limits.throttle)
            self._throttled = limits.throttle > 0

    def refresh(self) -> None:
        """Read the time that `answer_poll` uses until the next call of this method."""
        self._now = self.now()
        self.headers.refresh(self._now.at)

    def answer_poll(self, known_poll: KnownPoll, address: str) -> bytes | None:
        """Return the whole answer to a poll as bytes, or None if it has to take the slow path.

        The answer is that of `_reply`, `_document` and `_show` to the same request. It is made in
        one piece because calls between them would add half to our share of a poll's cost.
        """
        caller = self._caller_at(address)
        if caller is None:
            return None
        name, document = caller.name, caller.document
        if not document.enabled or name in self.detours:
            return None
        if self._throttled and not self._rates.admit(name):
            return None
        rendered = document.rendered.get(known_poll.name)
        if rendered is None:
            rendered = document.render(known_poll.version)
        unchanged = 0
        if known_poll.tags and tag_matches(known_poll.tags, rendered.etag):
            unchanged = UNCHANGED
        self._record_poll(
            name, caller.group, known_poll.name, document.incarnation, rendered.events, self._now
        )
        self._polls[known_poll.row + unchanged] += 1
        answer = rendered.answers[known_poll.which + unchanged]
        if answer is None:
            answer = rendered.answer(known_poll.which + unchanged)
        headers = self.headers
        last_digits = next(headers.last_digits, b"") or headers.renew()
        if answer.lines is not headers.lines:
            answer.lines, answer.opening = headers.lines, answer.before + headers.lines
        return answer.opening + last_digits + answer.after

    def _answer_poll_if_held(self, known_poll: KnownPoll, address: str) -> bytes | None:
        assert self.held is not None
        return MetadataApp.answer_poll(self, known_poll, address) if self.held() else None

    def refusal(self, problem: Problem) -> bytes:
        return self.headers.refusal(problem, self.now().at)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._checked_reply(scope, receive)
        if reply is None:
            return
        if reply.status >= 400:
            self.counts.refused[reply.status] += 1
        headers = self.head(reply)
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    async def _checked_reply(self, scope: Scope, receive: Receive) -> Reply | None:
        """Return the answer, or None if there must be none. Without the lease, requests wait until
        it is there again; what was to be shown before is then outdated."""
        held = self.held
        try:
            if held is None:
                return await self._reply_or_refusal(scope, receive)
            while True:
                await _wait_for_lease(held, scope)
                reply = await self._reply_or_refusal(scope, receive)
                if reply is None or held():
                    return reply
                if scope["method"] != "GET":
                    await _wait_for_lease(held, scope)
                    return reply
        except Gone:
            return None
        except asyncio.CancelledError:  # the service stops while the request waits
            if held is None or held():
                return refused(errors.STOPPING)
            scope[CUT](False)
            return None

    async def _reply_or_refusal(self, scope: Scope, receive: Receive) -> Reply | None:
        try:
            return await self._reply(scope, receive)
        except NotDurable as failure:
            if times := self._failures.record():
                log.error("a request could not be carried out", why=str(failure), times=times)
            if isinstance(failure, OutcomeUnknown) and scope["method"] != "GET":
                scope[CUT](False)  # a 500 would mean that nothing has happened
                return None
            return refused(errors.NOT_CARRIED_OUT)

    def head(self, reply: Reply) -> list[tuple[bytes, bytes]]:
        head = [*reply.headers, *self.headers.headers(self.now().at)]
        if reply.status != 304:
            head += [("Content-Type", reply.content_type), ("Content-Length", str(len(reply.body)))]
        return [(name.encode(), value.encode()) for name, value in head]

    async def document_body(self, caller: Caller, version: Version) -> bytes:
        """Return the document for an answer that will be corrupted, which is recorded as a sign of
        life only."""
        while not caller.document.enabled:
            await self._upstream.enable(caller.group)
        self.sign_of_life(caller)
        return caller.document.render(version).body

    def sign_of_life(self, caller: Caller) -> None:
        self._upstream.sign_of_life(caller.group)

    def _on_news(self, news: GroupNews) -> None:
        document = self._documents.update(news)
        self.callers.update(news, document)
        self.extensions.update(news, document)

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        address = self.callers.address(
            (scope.get("client") or ("", 0))[0], (scope.get("server") or ("", 0))[0]
        )
        caller = self.callers.at(address)
        if caller is None and self._find is not None:
            await self._find(address)
            caller = self.callers.at(address)
        if caller is None:
            self.counts.unknown_callers += 1
            self._upstream.unknown_caller(address)
            return refused(errors.NOT_FOUND)
        ask = requests.read_request(
            scope["method"], scope["path"], scope["query_string"], scope["headers"]
        )
        if not self._rates.admit(caller.name):
            self.counts.hit("throttle", caller.name)
            if isinstance(ask, requests.GetDocument | extensions.Wait) and caller.document.enabled:
                self._upstream.sign_of_life(caller.group)
            return refused(errors.THROTTLED)
        match ask:
            case Problem():
                return refused(ask)
            case requests.GetDocument():
                return await self._document(caller, ask)
            case requests.GetVersions():
                return Reply(200, versions_body())
            case requests.GetInstance(version=version, path=path, format=format):
                facts = caller.facts()
                match answer(facts, version, path, format):
                    case InstanceBody(body=body, content_type=content_type):
                        return Reply(200, body, content_type)
                    case NeedsText():
                        return refused(errors.LEAF_WITHOUT_TEXT)
                    case NoSuchElement():
                        return refused(errors.NOT_FOUND)
            case requests.GetToken() if not self._upstream.issues_tokens:
                return refused(errors.NO_IDENTITY)
            case requests.GetToken(problem=Problem() as problem):
                return refused(problem)
            case extensions.Wait():
                content = await self._body(caller, scope, receive)
                if isinstance(content, Problem):
                    return refused(content)
                return await self.extensions.wait(caller, ask, scope, receive)
            case _:
                return await self._decision(caller, ask, scope, receive)

    async def _document(self, caller: Caller, ask: requests.GetDocument) -> Reply:
        headers: tuple[tuple[str, str], ...] = ()
        while not caller.document.enabled:
            await self._upstream.enable(caller.group)
            headers = (
                CONNECTION_CLOSE  # so that the next poll of this machine can take the fast path
            )
        tags = parse_tags(ask.if_none_match)
        rendered, unchanged = self._show(caller, ask.version, tags)
        headers = (("ETag", rendered.etag), *headers)
        return (
            Reply(304, headers=headers) if unchanged else Reply(200, rendered.body, headers=headers)
        )

    def _show(
        self, caller: Caller, version: Version, tags: frozenset[str]
    ) -> tuple[RenderedDocument, bool]:
        """Return the document, recorded as seen by this caller, and whether the caller has it."""
        document = caller.document
        rendered = document.render(version)
        unchanged = tag_matches(tags, rendered.etag)
        self._record_poll(
            caller.name,
            caller.group,
            version.name,
            document.incarnation,
            rendered.events,
            self.now(),
        )
        self.counts.polls[ROWS[version.name] + unchanged] += 1
        return rendered, unchanged

    async def _decision(
        self, caller: Caller, ask: Decided, scope: Scope, receive: Receive
    ) -> Reply:
        """Answer what has to be asked for where decisions are made, which may be away."""
        body = b""
        if not isinstance(ask, extensions.GetReadiness | requests.GetToken):
            content = await self._body(caller, scope, receive)
            if isinstance(content, Problem):
                return refused(content)
            body = content
        if self._held_requests.full(caller.name):
            self.counts.hit("max_connections_per_machine", caller.name)
            return refused(errors.TOO_MANY_CONNECTIONS)
        async with self._held_requests.hold(caller.name):
            match ask:
                case requests.PostApproval():
                    return await self._approval(caller, body)
                case requests.GetToken(resource=resource):
                    return await self._token(caller, resource)
                case extensions.GetReadiness():
                    return await self.extensions.readiness(caller, ask)
                case extensions.PutReadiness():
                    return await self.extensions.prepare(caller, ask, body)
                case extensions.PutPostponement():
                    return await self.extensions.postpone(caller, ask, body)

    async def _approval(self, caller: Caller, body: bytes) -> Reply:
        ids = requests.read_approval(body)
        if isinstance(ids, Problem):
            return refused(ids)
        ids = tuple(dict.fromkeys(ids))
        listed = {event.id for event in caller.document.view.events}
        if len(ids) - len(listed.intersection(ids)) > errors.MAX_PAST_EVENTS:
            return refused(errors.TOO_MANY_EVENTS)
        if not all(map(GUID.fullmatch, ids)):  # no event ever had such an id
            return refused(errors.UNKNOWN_EVENT)
        if not await self._upstream.approve(caller.name, caller.group, ids):
            return refused(errors.UNKNOWN_EVENT)
        return Reply(200)

    async def _token(self, caller: Caller, resource: str) -> Reply:
        token = await self._upstream.token(caller.name, caller.group, resource)
        if token is None:
            return refused(errors.NO_IDENTITY)
        times = token.not_before, token.expires_on, ACCESS_LIFE
        body = requests.write_token(token.text, resource, token.client_id, *times)
        return Reply(200, body, headers=NO_STORE)

    async def _body(self, caller: Caller, scope: Scope, receive: Receive) -> bytes | Problem:
        """Read the whole body, never more than is allowed, or return why it is refused.

        The sweep wakes `receive` with an empty message when the caller is too slow.
        """
        if BODY in scope:
            known: bytes = scope[BODY]
            return known
        too_late = guard.monotonic() + self.limits.body_timeout
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self.limits.max_body:
                self.counts.hit("max_body", caller.name)
                return errors.TOO_LARGE
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            body += message.get("body", b"")
            if len(body) > self.limits.max_body:
                self.counts.hit("max_body", caller.name)
                return errors.TOO_LARGE
            if not message.get("more_body", False):
                scope[BODY] = bytes(body)
                return bytes(body)
            if guard.monotonic() > too_late:
                self.counts.hit("body_timeout", caller.name)
                return errors.TOO_SLOW


async def _wait_for_lease(held: Callable[[], bool], scope: Scope) -> None:
    """Wait until the service has its lease. Raises Gone if the caller does not wait that long."""
    while not held():
        await guard.pause(LEASE_CHECK)
        if GONE in scope:
            raise Gone
