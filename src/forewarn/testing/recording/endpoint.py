"""Asking a Scheduled Events endpoint once, and bringing home whatever comes back.

Plain sockets: no proxy, no redirect, no second try, one connection for one question. What is wrong
with an answer is no exception but part of what is brought home. Nothing is ever approved here.
"""

from __future__ import annotations

import http.client
import io
import socket
from typing import Any
from urllib.parse import urlsplit

import msgspec

from forewarn import __version__, guard

DEFAULT_URL = "http://169.254.169.254"
MAX_ANSWER = 4 * 1024 * 1024  # bytes of an answer that are read
CONNECT = 5.0  # real seconds for a connection, unless less is left

_AGENT = f"forewarn/{__version__} (record)"


class BadUrl(ValueError):
    """Not an endpoint's address; the message says what would be one."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """`status` is None unless the whole answer came. `trouble` says what went wrong: `refused`,
    `unreachable`, `reset`, `late` (nothing came in time), `stalled` or `cut` (only a part did),
    `not-http`, `too-long`."""

    status: int | None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    trouble: str = ""
    source: str = ""  # our own address
    asked: float  # seconds on a clock that nobody steps
    answered: float


class Endpoint:
    """Where to ask: a scheme, a host and a port, and nothing else of the address."""

    def __init__(self, url: str = DEFAULT_URL) -> None:
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            self.port = parts.port or 80
        except ValueError as error:
            raise BadUrl(f"'{url[:80]}' is no address: {error}") from error
        if parts.scheme.lower() != "http":
            raise BadUrl(f"the endpoint speaks plain HTTP: http://…, not '{parts.scheme[:20]}'")
        if not parts.hostname or parts.username is not None or parts.fragment:
            raise BadUrl(f"'{url[:80]}' is no address; write one like {DEFAULT_URL}")
        self.host = parts.hostname
        name = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = name if self.port == 80 else f"{name}:{self.port}"

    def __str__(self) -> str:
        return f"http://{self.authority}"

    def headers(self) -> list[tuple[str, str]]:
        return [
            ("Host", self.authority),
            ("Metadata", "true"),
            ("User-Agent", _AGENT),
            ("Accept", "application/json"),
            ("Connection", "close"),
        ]

    def get(self, target: str, timeout: float) -> Answered:
        """All of it within so many seconds, however slowly it trickles."""
        asked = guard.monotonic()
        head = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers())]
        request = "\r\n".join([*head, "", ""]).encode("latin-1")
        source, came = self._exchanged(request, asked + timeout)
        return Answered(
            status=came.status,
            headers=came.headers,
            body=came.body,
            trouble=came.trouble,
            source=source,
            asked=asked,
            answered=guard.monotonic(),
        )

    def _exchanged(self, request: bytes, deadline: float) -> tuple[str, _Came]:
        """From which address of ours, and what came."""
        try:
            within = max(0.001, min(CONNECT, deadline - guard.monotonic()))
            connection = socket.create_connection((self.host, self.port), timeout=within)
        except ConnectionRefusedError:
            return "", _Came(trouble="refused")
        except (OSError, UnicodeError):  # nobody there, no way there, no such name
            return "", _Came(trouble="unreachable")
        with connection:
            source = str(connection.getsockname()[0])
            try:
                connection.settimeout(max(0.001, deadline - guard.monotonic()))
                connection.sendall(request)
            except OSError:
                return source, _Came(trouble="reset")
            return source, _answer(connection, deadline)


class _Came(msgspec.Struct, frozen=True, kw_only=True):
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    trouble: str = ""


def _answer(connection: socket.socket, deadline: float) -> _Came:
    within: Any = _Within(connection, deadline)
    response = http.client.HTTPResponse(within, method="GET")
    try:
        try:
            response.begin()
        except TimeoutError:
            return _Came(trouble="late")
        except http.client.RemoteDisconnected:
            return _Came(trouble="reset")
        except (http.client.HTTPException, ValueError):
            return _Came(trouble="not-http")
        except OSError:
            return _Came(trouble="reset")
        body, trouble = _body(response)
        return _Came(
            status=None if trouble else response.status,
            headers=tuple(response.getheaders()),
            body=body,
            trouble=trouble,
        )
    finally:
        response.close()


def _body(response: http.client.HTTPResponse) -> tuple[bytes, str]:
    said = bytearray()
    try:
        while piece := response.read1(65536):
            said += piece
            if len(said) > MAX_ANSWER:
                return bytes(said[:MAX_ANSWER]), "too-long"
    except TimeoutError:
        return bytes(said), "stalled"
    except (http.client.HTTPException, OSError, ValueError):
        return bytes(said), "cut"
    return bytes(said), "cut" if response.length else ""


class _Within:
    """A socket for http.client, every read of which keeps to one deadline for all."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        del mode
        return io.BufferedReader(_Reading(self._connection, self._deadline))


class _Reading(io.RawIOBase):
    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - guard.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)
