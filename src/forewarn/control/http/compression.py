"""Compression of responses with gzip, for callers that accept it: a list of 100,000 machines is a
tenth as long.

Only answers to GET are compressed, and only for callers that are known. Secrets are in answers to
POST alone, such as a new token, so the length of a compressed response never depends on one
(BREACH). A stream of events is not compressed, because it would be held back.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

MIN_COMPRESSED = 1_024  # bytes of a body; shorter ones fit into one packet in any case
IN_THREAD = 64 * 1024  # bytes from which on compressing takes long enough to delay guests
LEVEL = 4  # of zlib: nearly the best ratio for JSON, in half of the time
GZIP = 16 + zlib.MAX_WBITS  # a window size that means the gzip format
COMPRESSIBLE = (b"application/json", b"application/x-ndjson", b"text/html", b"text/plain")


class Compression:
    """ASGI middleware that compresses what the application sends."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and accepts_gzip(scope):
            send = _CompressedResponse(scope, send).send
        await self._app(scope, receive, send)


class _CompressedResponse:
    def __init__(self, scope: Any, send: Any) -> None:
        self._scope, self._send = scope, send
        self._start: Any = None  # held back until the length of the body is known
        self._compressor: Any = None

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start" and self._compressible(message):
            self._start = message
        elif message["type"] != "http.response.body":
            await self._send(message)
        elif self._start is not None:
            await self._send_first(message)
        elif self._compressor is not None:
            await self._send_part(message)
        else:
            await self._send(message)

    def _compressible(self, start: Any) -> bool:
        headers = {name.lower(): value for name, value in start["headers"]}
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        known = self._scope["state"].get("caller") is not None
        return known and kind in COMPRESSIBLE and b"content-encoding" not in headers

    async def _send_first(self, message: Any) -> None:
        start, self._start = self._start, None
        body, more = message.get("body", b""), message.get("more_body", False)
        if not more and len(body) < MIN_COMPRESSED:
            await self._send(_with_headers(start))
            await self._send(message)
            return
        self._compressor = zlib.compressobj(LEVEL, wbits=GZIP)
        if more:  # its length is not known, so it is sent in chunks
            await self._send(_with_headers(start, encoded=True))
            await self._send_part(message)
            return
        compressed = await self._compressed(body, last=True)
        await self._send(_with_headers(start, encoded=True, length=len(compressed)))
        await self._send({**message, "body": compressed})

    async def _send_part(self, message: Any) -> None:
        last = not message.get("more_body", False)
        part = await self._compressed(message.get("body", b""), last=last)
        await self._send({**message, "body": part})

    async def _compressed(self, body: bytes, *, last: bool) -> bytes:
        compressor = self._compressor

        def compress() -> bytes:
            part: bytes = compressor.compress(body)
            return part + compressor.flush() if last else part

        return await asyncio.to_thread(compress) if len(body) >= IN_THREAD else compress()


def _with_headers(start: Any, *, encoded: bool = False, length: int | None = None) -> Any:
    headers = [
        (name, value)
        for name, value in start["headers"]
        if not (encoded and name.lower() == b"content-length")
    ]
    headers.append((b"vary", b"Accept-Encoding"))
    if encoded:
        headers.append((b"content-encoding", b"gzip"))
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    return {**start, "headers": headers}


def accepts_gzip(scope: Any) -> bool:
    """Whether the caller accepts gzip. `*` is not read as that: who sends it may not know."""
    values = [value for name, value in scope["headers"] if name.lower() == b"accept-encoding"]
    for coding in b",".join(values).decode("latin-1").lower().split(","):
        name, _, quality = coding.partition(";")
        if name.strip() == "gzip":
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
