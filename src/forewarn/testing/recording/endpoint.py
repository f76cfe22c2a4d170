"""Asking a Scheduled Events endpoint once, and bringing home whatever comes back.

No proxy, no redirect, no second try, one connection for one question. What is wrong with an answer
is no exception but part of what is brought home. Nothing is ever approved here. How it is asked is
the client's line.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from forewarn.client.connection import Connection
from forewarn.client.discovery.endpoint import parse_endpoint
from forewarn.client.errors import BadEndpoint
from forewarn.client.exchange import MAX_ANSWER, headers_of
from forewarn.client.steps import Request
from forewarn.client.steps import Response as Answered

__all__ = ["DEFAULT_URL", "MAX_ANSWER", "Answered", "BadUrl", "Endpoint"]

DEFAULT_URL = "http://169.254.169.254"
CONNECT = 5.0  # real seconds for a connection, unless less is left


class BadUrl(ValueError):
    """Not an endpoint's address; the message says what would be one."""


class Endpoint:
    """Where to ask: a host and a port, and nothing else of the address."""

    def __init__(self, url: str = DEFAULT_URL) -> None:
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            if parts.fragment:
                raise BadUrl(f"'{url[:80]}' is no address; write one like {DEFAULT_URL}")
            self._place = parse_endpoint(f"{parts.scheme}://{parts.netloc}")
        except BadEndpoint as error:
            raise BadUrl(str(error)) from error
        except ValueError as error:
            raise BadUrl(f"'{url[:80]}' is no address: {error}") from error

    def __str__(self) -> str:
        return str(self._place)

    def headers(self) -> list[tuple[str, str]]:
        return headers_of(self._ask("/", 0.0))

    def get(self, target: str, timeout: float) -> Answered:
        """All of it within so many seconds, however slowly it trickles."""
        line = Connection()
        try:
            return line.send(self._ask(target, timeout))
        finally:
            line.close()

    def _ask(self, target: str, timeout: float) -> Request:
        return Request(
            location=self._place,
            target=target,
            connect_timeout=min(CONNECT, timeout),
            timeout=timeout,
            purpose="record",
            close=True,
        )
