"""`fetch`: one HTTP request to a URL of an operator's settings, on a connection of its own.

Without a proxy, without following redirects, and without reading more than is wanted. How long it
may take is the caller's business: cancelling it closes the connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import h11
import msgspec

READ_AT_ONCE = 64 * 1024  # bytes
MAX_HEAD = 64 * 1024  # bytes of the status line and the headers


class FetchFailed(Exception):
    """There is no answer. The message says why, without any text from the other side."""


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes


async def fetch(
    url: str,
    *,
    max_body: int,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    ca: str = "",
) -> Answer:
    """Send a request. With `max_body = 0` the body is not read. Raises FetchFailed."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields = {
        "host": parts.netloc.rpartition("@")[2],
        "user-agent": "forewarn",
        "accept": "*/*",
        "connection": "close",
        **({"content-length": str(len(body))} if body else {}),
        **(headers or {}),
    }
    try:
        request = h11.Request(method=method, target=path, headers=list(fields.items()))
        tls = ssl.create_default_context(cafile=ca or None) if parts.scheme == "https" else None
        reader, writer = await asyncio.open_connection(
            parts.hostname, parts.port or (443 if tls else 80), ssl=tls
        )
        try:
            http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
            content = h11.Data(data=body)
            for event in (request, *([content] if body else []), h11.EndOfMessage()):
                writer.write(http.send(event) or b"")
            await writer.drain()
            return await _read(http, reader, max_body)
        finally:
            writer.transport.abort()
    except (OSError, ValueError, h11.ProtocolError) as error:
        raise FetchFailed(connection_problem(error)) from error


async def _read(http: h11.Connection, reader: asyncio.StreamReader, max_body: int) -> Answer:
    status, body = 0, bytearray()
    while True:
        match http.next_event():
            case h11.NEED_DATA:
                data = await reader.read(READ_AT_ONCE)
                if not data and http.their_state is h11.SEND_RESPONSE and not http.trailing_data[0]:
                    raise FetchFailed("closed without an answer")
                http.receive_data(data)
            case h11.Response(status_code=status) if not max_body:
                return Answer(status, b"")
            case h11.Response(status_code=status):
                pass
            case h11.Data(data=data):
                body += data
                if len(body) > max_body:
                    raise FetchFailed(f"the answer is longer than {max_body:,} bytes")
            case h11.EndOfMessage():
                return Answer(status, bytes(body))


def connection_problem(error: Exception) -> str:
    """Describe the failure of a connection. An error's own text may come from the other side."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate cannot be verified: {error.verify_message}"
        case ssl.SSLError():
            return "the TLS handshake failed"
        case socket.gaierror():
            return "its host name cannot be resolved"
        case OSError(errno=int(number)):
            return os.strerror(number)
        case OSError():
            return "no connection could be made"
    return "not HTTP"
