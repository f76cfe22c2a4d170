"""A request as a machine: straight to the endpoint's ASGI application, or over a socket.

`exchange` is for code in the service's own loop; `Asgi` is the endpoint as one machine sees it, for
clients in any other loop.
"""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from forewarn.metadata.endpoint.reply import CUT, FAULT, IN_PROCESS, UNWOUND
from forewarn.testing.kit.faults import broken_off, never_wound

if TYPE_CHECKING:
    from forewarn.testing.kit.service import Service


PATIENCE = 30.0  # seconds for an answer over a socket


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Raw(msgspec.Struct, frozen=True):
    """An answer as it was said, header by header."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


async def exchange(
    app: Any, asked: str, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
) -> Answer:
    """One exchange; `asked` is the address that the request goes to."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path),  # as a server does
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": query.encode(),
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()],
    }
    raw = await _said(app, asked, scope, body)
    found = {name.decode().lower(): value.decode("latin-1") for name, value in raw.headers}
    return Answer(raw.status, found, raw.body)


async def _said(app: Any, asked: str, scope: Mapping[str, Any], body: bytes) -> Raw:
    start: dict[str, Any] = {}
    said = bytearray()
    to_say = [body]
    cut: list[bool] = []

    async def receive() -> dict[str, Any]:
        if not to_say:  # and it does not hang up either
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": to_say.pop(), "more_body": False}

    async def send(message: Any) -> None:
        start.update(message if message["type"] == "http.response.start" else {})
        said.extend(message.get("body", b""))

    own = {**scope, "client": ("127.0.0.1", 0), "server": (asked, 80)}
    own |= {IN_PROCESS: True, CUT: cut.append}
    await app(own, receive, send)
    if UNWOUND in own:
        raise never_wound()
    if cut:
        raise broken_off(start, bytes(said), stalled=own.get(FAULT) == "stalled")
    return Raw(start["status"], list(start["headers"]), bytes(said))


def over_socket(
    address: str, port: int, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> Answer:
    """The same request on a connection of its own."""
    connection = http.client.HTTPConnection(address, port, timeout=PATIENCE)
    try:
        connection.request(method, target, body or None, dict(headers))
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())
    finally:
        connection.close()


class Asgi:
    """One machine's endpoint as an ASGI application: whoever asks it asks as that machine."""

    def __init__(self, service: Service, machine: str) -> None:
        self._service = service
        self._machine = machine

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"the endpoint speaks HTTP, not {scope['type']}")
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return  # it has hung up before it had said all
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        asked = self._service[self._machine].address
        plain = {key: scope[key] for key in ("type", "method", "path", "query_string")}
        plain["raw_path"] = scope.get("raw_path")
        plain["headers"] = [(name.lower(), value) for name, value in scope["headers"]]
        work = _said(self._service.node.app, asked, plain, bytes(body))
        answer = await asyncio.wrap_future(self._service.submit(work))
        head = {"status": answer.status, "headers": answer.headers}
        await send({"type": "http.response.start", **head})
        await send({"type": "http.response.body", "body": answer.body})


async def _live(receive: Any, send: Any) -> None:
    """A server or a test client says when it starts and stops; there is nothing to do."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
