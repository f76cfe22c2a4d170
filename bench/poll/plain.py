"""The peer on plain uvicorn: the least that a raw ASGI application can do for the same answer.

plain.py QUERIES DOCUMENTS PORT
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn

Send = Callable[[dict[str, Any]], Awaitable[None]]
Head = list[tuple[bytes, bytes]]


def main(queries: str, documents: str, port: str) -> None:
    known = frozenset(Path(queries).read_bytes().splitlines())
    answers: dict[str, tuple[bytes, Head]] = {}
    for line in Path(documents).read_bytes().splitlines():
        source, tag, body = line.split(b"\t", 2)
        answers[source.decode()] = (body, _head(tag, body))

    async def app(scope: dict[str, Any], receive: object, send: Send) -> None:  # noqa: ARG001
        status, body, head = 200, b"", list[tuple[bytes, bytes]]()
        found = answers.get(scope["client"][0])
        if found is None or scope["path"] != "/metadata/scheduledevents":
            status = 404
        elif _metadata(scope["headers"]) != b"true" or scope["query_string"] not in known:
            status = 400
        else:
            body, head = found
            head = [*head, (b"x-ms-request-id", str(uuid.uuid4()).encode())]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": body})

    uvicorn.run(
        app,
        port=int(port),
        http="httptools",
        loop="uvloop",
        lifespan="off",
        log_level="error",
        access_log=False,
        timeout_keep_alive=120,
    )


def _head(tag: bytes, body: bytes) -> Head:
    kind, length = b"application/json; charset=utf-8", str(len(body)).encode()
    return [(b"content-type", kind), (b"content-length", length), (b"etag", tag)]


def _metadata(headers: Head) -> bytes:
    return next((value.lower() for name, value in headers if name == b"metadata"), b"")


if __name__ == "__main__":
    main(*sys.argv[1:])
