"""One request as a machine: straight to the endpoint's ASGI application, or over a socket.

`exchange` is for code in the service's own loop; `Asgi` is the endpoint as one machine sees it, for
clients in any other loop. In process no connection can break, so faults that would break one are
raised as the exceptions that Python's own HTTP client would raise.
"""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from forewarn.metadata.endpoint.reply import CLOCK_STOPPED, CUT, FAULT, IN_PROCESS
from forewarn.metadata.faults.delay import MAX_STOPPED_WAIT
from forewarn.testing.session import Session, need_asyncio

SOCKET_TIMEOUT = 30.0  # seconds for a response over a socket


class Response(msgspec.Struct, frozen=True):
    """The response to a request of a machine."""

    status: int
    """The status code."""
    headers: Mapping[str, str]
    """The headers, with names in lower case."""
    body: bytes
    """The body."""

    def json(self) -> Any:
        """Return the body, parsed as JSON."""
        return msgspec.json.decode(self.body)


class RawResponse(msgspec.Struct, frozen=True):
    """A response with its header lines as they were sent."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


async def exchange(
    app: Any, address: str, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
) -> Response:
    """Send one request to this address and return the response."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path),  # as a server does
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": query.encode(),
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()],
    }
    raw = await _call(app, address, scope, body)
    by_name = {name.decode().lower(): value.decode("latin-1") for name, value in raw.headers}
    return Response(raw.status, by_name, raw.body)


async def _call(app: Any, address: str, scope: Mapping[str, Any], body: bytes) -> RawResponse:
    start: dict[str, Any] = {}
    received = bytearray()
    unsent = [body]
    cut: list[bool] = []

    async def receive() -> dict[str, Any]:
        if not unsent:  # the client never disconnects
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": unsent.pop(), "more_body": False}

    async def send(message: Any) -> None:
        start.update(message if message["type"] == "http.response.start" else {})
        received.extend(message.get("body", b""))

    own = {**scope, "client": ("127.0.0.1", 0), "server": (address, 80)}
    own |= {IN_PROCESS: True, CUT: cut.append}
    await app(own, receive, send)
    if CLOCK_STOPPED in own:
        raise _not_advanced()
    if cut:
        raise _broken_off(start, bytes(received), stalled=own.get(FAULT) == "stalled")
    return RawResponse(start["status"], list(start["headers"]), bytes(received))


def _broken_off(start: Mapping[str, Any], received: bytes, *, stalled: bool) -> Exception:
    """Make the exception that `http.client` raises for a connection that breaks at this point."""
    if stalled:
        return TimeoutError("the response began and stalled; in process, it would never go on")
    if not start:
        return ConnectionResetError("the service closed the connection without a response")
    headers = {name.lower(): value for name, value in start["headers"]}
    return http.client.IncompleteRead(received, int(headers[b"content-length"]) - len(received))


def _not_advanced() -> Exception:
    return TimeoutError(
        f"a fault delays the response, and the clock was not advanced within {MAX_STOPPED_WAIT:g}"
        " s; send the request in a thread or task, and advance the clock meanwhile"
    )


def over_socket(
    url: str, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> Response:
    """Send one request, on a connection of its own to this URL."""
    address = url.removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=SOCKET_TIMEOUT)
    try:
        connection.request(method, target, body or None, dict(headers))
        response = connection.getresponse()
        by_name = {name.lower(): value for name, value in response.getheaders()}
        return Response(response.status, by_name, response.read())
    finally:
        connection.close()


class Asgi:
    """One machine's endpoint as an ASGI application: every request comes from that machine."""

    def __init__(self, session: Any, machine: str) -> None:  # Any: what it is, is not for users
        self._session: Session = session
        self._machine = machine

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, as ASGI defines it."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        need_asyncio()
        if scope["type"] != "http":
            raise ValueError(f"the endpoint accepts HTTP, not {scope['type']}")
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return  # disconnected before the whole body had arrived
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        address = self._session.address(self._machine)
        plain = {key: scope[key] for key in ("type", "method", "path", "query_string")}
        plain["raw_path"] = scope.get("raw_path")
        plain["headers"] = [(name.lower(), value) for name, value in scope["headers"]]
        work = _call(self._session.node.app, address, plain, bytes(body))
        response = await asyncio.wrap_future(self._session.submit(work))
        head = {"status": response.status, "headers": response.headers}
        await send({"type": "http.response.start", **head})
        await send({"type": "http.response.body", "body": response.body})


async def _lifespan(receive: Any, send: Any) -> None:
    """Acknowledge startup and shutdown; there is nothing to do."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
