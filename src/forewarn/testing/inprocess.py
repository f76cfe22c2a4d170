"""A request to the endpoint without a socket: straight to its ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


async def exchange(
    app: Any, asked: str, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
) -> Answer:
    """One exchange; `asked` is the address that the request goes to."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()],
        "client": ("127.0.0.1", 0),
        "server": (asked, 80),
    }
    start: dict[str, Any] = {}
    said = bytearray()
    to_say = [body]

    async def receive() -> dict[str, Any]:
        if not to_say:  # and it does not hang up either
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": to_say.pop(), "more_body": False}

    async def send(message: Any) -> None:
        start.update(message if message["type"] == "http.response.start" else {})
        said.extend(message.get("body", b""))

    await app(scope, receive, send)
    found = {name.decode().lower(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], found, bytes(said))
