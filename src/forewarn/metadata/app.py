"""The endpoint: a raw ASGI application that puts seats, boards and the wire together.

Checks in the one order that clients may rely on: caller, rate, then what `wire.requests` says.
Decides nothing and renders nothing itself.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import msgspec
import structlog

from forewarn import __version__
from forewarn.metadata import present
from forewarn.metadata.boards import Boards
from forewarn.metadata.limits import Limits, Rates
from forewarn.metadata.seats import Seat, Seats
from forewarn.metadata.upstream import GroupNews, NotTaken, Sighting, Upstream
from forewarn.wire import errors, requests
from forewarn.wire.errors import JSON, Problem
from forewarn.wire.instance import Found, NeedsText, NoSuchElement, answer, versions_body

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SERVER = f"IMDS/{__version__}"

log = structlog.get_logger("forewarn")


class Reply(msgspec.Struct, frozen=True):
    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class MetadataApp:
    def __init__(self, upstream: Upstream, seats: Seats, limits: Limits) -> None:
        self._upstream = upstream
        self._seats = seats
        self._boards = Boards()
        self._limits = limits
        self._rates = Rates(limits.throttle)
        upstream.attach(self._told)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await self._reply(scope, receive)
        except _Gone:
            return
        except NotTaken as failure:
            log.error("a request could not be carried out", why=str(failure))
            reply = _refused(errors.NOT_TAKEN)
        except asyncio.CancelledError:  # the service stops, and this one was still waiting
            reply = _refused(errors.STOPPING)
        head = [*reply.headers, *standing_headers(present.date(self._upstream.now().at))]
        if reply.status != 304:
            head += [("Content-Type", reply.content_type), ("Content-Length", str(len(reply.body)))]
        headers = [(name.encode(), value.encode()) for name, value in head]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    def _told(self, news: GroupNews) -> None:
        self._seats.told(news)
        self._boards.told(news)

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        seat = self._seats.who(
            (scope.get("client") or ("", 0))[0], (scope.get("server") or ("", 0))[0]
        )
        if seat is None:
            return _refused(errors.NOT_FOUND)
        ask = requests.read(scope["method"], scope["path"], scope["query_string"], scope["headers"])
        if not self._rates.admit(seat.name):
            if isinstance(ask, requests.GetDocument) and self._boards.of(seat.group).view.enabled:
                self._upstream.alive(seat.group)
            return _refused(errors.THROTTLED)
        match ask:
            case Problem():
                return _refused(ask)
            case requests.GetDocument():
                return await self._document(seat, ask)
            case requests.PostApproval():
                return await self._approval(seat, scope, receive)
            case requests.GetVersions():
                return Reply(200, versions_body())
            case requests.GetInstance(version=version, path=path, format=format):
                facts = present.facts(seat.machine, seat.group, seat.place)
                match answer(facts, version, path, format):
                    case Found(body=body, content_type=content_type):
                        return Reply(200, body, content_type)
                    case NeedsText():
                        return _refused(errors.LEAF_WITHOUT_TEXT)
                    case NoSuchElement():
                        return _refused(errors.NOT_FOUND)

    async def _document(self, seat: Seat, ask: requests.GetDocument) -> Reply:
        board = self._boards.of(seat.group)
        while not board.view.enabled:
            await self._upstream.enable(seat.group)
            board = self._boards.of(seat.group)
        page = board.page(ask.version)
        self._upstream.witness(
            Sighting(seat.name, seat.group, ask.version.name, board.view.incarnation, page.events)
        )
        tag = (("ETag", page.etag),)
        if ask.if_none_match and requests.tag_matches(ask.if_none_match, page.etag):
            return Reply(304, headers=tag)
        return Reply(200, page.body, headers=tag)

    async def _approval(self, seat: Seat, scope: Scope, receive: Receive) -> Reply:
        body = await self._body(scope, receive)
        if isinstance(body, Problem):
            return _refused(body)
        ids = requests.read_approval(body)
        if isinstance(ids, Problem):
            return _refused(ids)
        if not await self._upstream.approve(seat.name, seat.group, ids):
            return _refused(errors.UNKNOWN_EVENT)
        return Reply(200)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | Problem:
        """The whole body, or why it is not taken. Never more of it than is allowed."""
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self._limits.max_body:
                return errors.TOO_LARGE
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    body += message.get("body", b"")
                    if len(body) > self._limits.max_body:
                        return errors.TOO_LARGE
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            return errors.TOO_SLOW


class _Gone(Exception):
    """The caller hung up; nobody is there to be answered."""


def standing_headers(date: str) -> list[tuple[str, str]]:
    """On every answer, also on one to a request that could not be read."""
    return [("Date", date), ("Server", SERVER), ("x-ms-request-id", str(uuid.uuid4()))]


def _refused(problem: Problem) -> Reply:
    headers = []
    if problem.allow:
        headers.append(("Allow", problem.allow))
    if problem.close:
        headers.append(("Connection", "close"))
    return Reply(problem.status, problem.body, headers=tuple(headers))
