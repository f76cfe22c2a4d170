"""Sending a response: adds the headers of handlers and the security headers, answers 304 to a
caller that has the current version, and stores the body of a keyed request before it is sent.

An error is sent once it is complete, so that secrets which a caller put in the wrong place can be
removed from it.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import msgspec

from forewarn.control.http import problems
from forewarn.control.http.errors import ProblemError, problem_for_status, problem_response
from forewarn.control.http.idempotency import IdempotencyKeys
from forewarn.control.http.preconditions import Precondition, matching
from forewarn.control.schema import core as s
from forewarn.service.access import secret
from forewarn.store.port import Store

MAX_REDACTED_BODY = 1024 * 1024  # bytes of an error that are searched for secrets
COMMIT = s.COMMIT_HEADER.lower().encode()
ENDLESS = "endless"  # key in the state of a request: its response is a stream without an end

OF_CONTENT = (b"content-type", b"content-length", b"content-encoding")
SECURITY_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"cache-control": b"no-store",
    b"referrer-policy": b"no-referrer",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"x-frame-options": b"DENY",
    b"cross-origin-resource-policy": b"same-origin",
}


def response_headers(scope: Any) -> MutableMapping[str, str]:
    """Return the headers that handlers add to the response of this request."""
    headers: MutableMapping[str, str] = scope["state"].setdefault("response_headers", {})
    return headers


class ResponseWriter:
    """Sends the ASGI messages of one response."""

    def __init__(self, scope: Any, send: Any, keys: IdempotencyKeys, store: Store) -> None:
        self._scope, self._send, self._keys, self._store = scope, send, keys, store
        self._commit = store.seq
        self._start: Any = None  # held back until the body is complete
        self._body = bytearray()
        self._begun = False  # something was sent
        self._replaced = False  # another response was sent instead

    async def refuse(self, status: int, detail: str, headers: dict[str, str]) -> None:
        body = msgspec.json.encode(problem_for_status(status, secret.hidden(detail)).content)
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._send_problem(status, body, encoded)

    async def replace(self, error: ProblemError) -> None:
        """Send a problem in place of the response of a handler, unless that has begun."""
        if not self._begun and not self._replaced:
            self._replaced = True
            body = msgspec.json.encode(problem_response(error.kind, str(error)).content)
            headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
            await self._send_problem(error.kind.status, body, headers)

    async def send(self, message: Any) -> None:
        if self._replaced:
            return
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._start is not None and message["type"] == "http.response.body":
            await self._collect(message)
        else:
            await self._send(message)

    async def _begin(self, start: Any) -> None:
        if start["status"] >= 400:
            self._start = self._with_handlers_headers(start)
            return
        if start["status"] < 300:
            if refusal := _failed_precondition(self._scope["state"].get("precondition")):
                self._replaced = True
                body = msgspec.json.encode(refusal)
                await self._send_problem(refusal.status, secret.hidden_bytes(body))
                return
            start = self._with_handlers_headers(start)
            if self._is_cached(start):
                await self._send_not_modified(start)
            elif self._keys.has_key(self._scope):
                self._start = start
            else:
                await self._send_start(start)
            return
        await self._send_start(self._with_handlers_headers(start))

    async def _collect(self, message: Any) -> None:
        self._body += message.get("body", b"")
        failed = self._start["status"] >= 400
        if message.get("more_body") and not (failed and len(self._body) >= MAX_REDACTED_BODY):
            return
        start, self._start = self._start, None
        body = bytes(self._body)
        if failed:
            redacted = secret.hidden_bytes(body)
            if redacted != body:
                start, body = _with_length(start, len(redacted)), redacted
        else:
            await self._keys.store_response(self._scope, start["status"], body)
            if self._replaced:
                return
        await self._send_start(start)
        await self._send({**message, "body": body})

    async def _send_start(self, start: Any) -> None:
        self._begun = True
        # What is read may be older than a commit that was made meanwhile, and no older than this.
        commit = self._commit if self._scope["method"] == "GET" else self._store.seq
        headers = [*start["headers"], (COMMIT, str(commit).encode())]
        await self._send(_with_security_headers({**start, "headers": headers}))

    def _with_handlers_headers(self, start: Any) -> Any:
        added = {k.lower().encode(): v.encode() for k, v in response_headers(self._scope).items()}
        if self._scope["method"] == "OPTIONS" and start["status"] < 300:
            added[b"allow"] = _methods(self._scope).encode()
        others = [(k, v) for k, v in start["headers"] if k.lower() not in added]
        return {**start, "headers": [*others, *added.items()]}

    def _is_cached(self, start: Any) -> bool:
        tag = next((v for k, v in start["headers"] if k.lower() == b"etag"), None)
        values = [v for k, v in self._scope["headers"] if k.lower() == b"if-none-match"]
        if self._scope["method"] != "GET" or tag is None or not values:
            return False
        return matching(b",".join(values).decode("latin-1"), tag.decode(), weakly=True)

    async def _send_not_modified(self, start: Any) -> None:
        self._replaced = True
        # A browser takes over what it is told here for what it has, such as the policy of a page.
        headers = [(k, v) for k, v in start["headers"] if k.lower() not in OF_CONTENT]
        start = {**start, "status": 304, "headers": headers}
        await self._send_start(start)
        await self._send({"type": "http.response.body", "body": b""})

    async def _send_problem(
        self, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None
    ) -> None:
        all_headers = [
            (b"content-type", problems.MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            *(headers or []),
        ]
        start = {"type": "http.response.start", "status": status, "headers": all_headers}
        await self._send_start(start)
        await self._send({"type": "http.response.body", "body": body})


def _with_security_headers(start: Any) -> Any:
    headers = [(n, v) for n, v in start["headers"] if not n.lower().startswith(b"access-control-")]
    present = {name.lower() for name, _ in headers}
    headers += [(name, value) for name, value in SECURITY_HEADERS.items() if name not in present]
    if start["status"] == 401 and b"www-authenticate" not in present:
        headers.append((b"www-authenticate", b'Bearer realm="forewarn"'))
    return {**start, "headers": headers}


def _with_length(start: Any, length: int) -> Any:
    headers = [(n, v) for n, v in start["headers"] if n.lower() != b"content-length"]
    return {**start, "headers": [*headers, (b"content-length", str(length).encode())]}


def _methods(scope: Any) -> str:
    """Return the methods that the matched path supports, for `Allow`."""
    path = scope["path_template"]
    methods = {
        method
        for route in scope["litestar_app"].routes
        if route.path_format == path
        for method in route.methods
    }
    return ", ".join(sorted(methods))


def _failed_precondition(precondition: Precondition | None) -> Any:
    """Return the problem of a failed precondition if no transaction has checked it, which is so
    when nothing was committed."""
    if precondition is None or precondition.checked:
        return None
    refused = precondition.check_now()
    return problems.from_refusal(problems.BY_NAME["stale"], refused) if refused else None
