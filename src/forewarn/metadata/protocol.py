"""uvicorn's HTTP protocol with our own answer to what is not HTTP."""

from __future__ import annotations

from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from forewarn.metadata.app import standing_headers
from forewarn.wire.errors import JSON, MALFORMED


def protocol(date: Callable[[], str]) -> type[HttpToolsProtocol]:
    """A protocol class whose 400 looks like every other answer; `date` is service time."""

    class MetadataProtocol(HttpToolsProtocol):
        def send_400_response(self, msg: str) -> None:
            del msg
            head = [
                *standing_headers(date()),
                ("Content-Type", JSON),
                ("Content-Length", str(len(MALFORMED.body))),
                ("Connection", "close"),
            ]
            lines = "".join(f"{name.lower()}: {value}\r\n" for name, value in head)
            self.transport.write(
                f"HTTP/1.1 400 Bad Request\r\n{lines}\r\n".encode() + MALFORMED.body
            )
            self.transport.close()

    return MetadataProtocol
