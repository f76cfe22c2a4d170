"""What is around an answer: the request's id, headers that handlers have said apart from it, 304
for whoever has it already, and for a request with a key the answer itself, kept before it is sent.
"""

from __future__ import annotations

import uuid
from collections.abc import MutableMapping
from typing import Any

import msgspec

from forewarn.control.http import problems
from forewarn.control.http.idempotency import IdempotencyKeys
from forewarn.control.http.preconditions import Expectation, matching

REQUEST_ID = b"x-request-id"
ENDLESS = "endless"  # in a request's state: its answer is a stream without an end


class RequestIds:
    """An ASGI application before all others: every request has an id, and every answer tells it."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = str(uuid.uuid4())
        scope.setdefault("state", {})["request_id"] = id

        async def told(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], (REQUEST_ID, id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        mark = problems.request_id.set(id)
        try:
            await self._app(scope, receive, told)
        finally:
            problems.request_id.reset(mark)


class ResponseHeaders:
    """An ASGI application before the one that answers."""

    def __init__(self, app: Any, keys: IdempotencyKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["state"]["keys"] = self._keys
        try:
            await self._app(scope, receive, _Answer(scope, send, self._keys).send)
        finally:
            self._keys.release(scope)


def heads_of(scope: Any) -> MutableMapping[str, str]:
    """The headers that the answer to this request is to have."""
    heads: MutableMapping[str, str] = scope["state"].setdefault("heads", {})
    return heads


class _Answer:
    def __init__(self, scope: Any, send: Any, keys: IdempotencyKeys) -> None:
        self._scope, self._send, self._keys = scope, send, keys
        self._start: Any = None  # held back until the answer is whole and kept
        self._body = bytearray()
        self._over = False  # something else has been said instead

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._over:
            return
        elif self._start is not None and message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._kept()
        else:
            await self._send(message)

    async def _begin(self, start: Any) -> None:
        status, state = start["status"], self._scope["state"]
        good = 200 <= status < 300
        if good and (refusal := _unmet(state.get("expects"))):
            await self._instead(refusal.status, msgspec.json.encode(refusal))
            return
        heads = {k.lower().encode(): v.encode() for k, v in heads_of(self._scope).items()}
        if self._scope["method"] == "OPTIONS" and good:
            heads[b"allow"] = _methods(self._scope).encode()
        kept = [(k, v) for k, v in start["headers"] if k.lower() not in heads]
        start = {**start, "headers": [*kept, *heads.items()]}
        if good and self._scope["method"] == "GET" and self._known(heads.get(b"etag")):
            self._over = True
            there = [(k, v) for k, v in start["headers"] if not k.lower().startswith(b"content-")]
            await self._send({**start, "status": 304, "headers": there})
            await self._send({"type": "http.response.body", "body": b""})
        elif good and self._keys.holds(self._scope):
            self._start = start
        else:
            await self._send(start)

    def _known(self, tag: bytes | None) -> bool:
        said = [v for k, v in self._scope["headers"] if k.lower() == b"if-none-match"]
        if tag is None or not said:
            return False
        return matching(b",".join(said).decode("latin-1"), tag.decode(), weakly=True)

    async def _kept(self) -> None:
        start, body = self._start, bytes(self._body)
        await self._keys.keep(self._scope, start["status"], body)
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})

    async def _instead(self, status: int, body: bytes) -> None:
        self._over = True
        headers = [
            (b"content-type", problems.MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _methods(scope: Any) -> str:
    """All that the path can be asked with."""
    path = scope["path_template"]
    found = {
        method
        for route in scope["litestar_app"].routes
        if route.path_format == path
        for method in route.methods
    }
    return ", ".join(sorted(found))


def _unmet(expects: Expectation | None) -> Any:
    """What was expected has been looked at in the transaction. A call that had nothing to commit
    has had none: it is looked at now."""
    if expects is None or expects.looked:
        return None
    refused = expects.now()
    return problems.described(problems.BY_NAME["stale"], refused.says) if refused else None
