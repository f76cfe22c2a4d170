"""A Scheduled Events endpoint that is polled for a recording, over the client's connection.

No proxies, no redirects, no retries, and a new connection for each request. A failure is not an
exception but part of the response. Nothing is ever approved here.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from forewarn.client.connection import Connection
from forewarn.client.discovery.endpoint import parse_endpoint
from forewarn.client.errors import InvalidEndpointError
from forewarn.client.exchange import MAX_ANSWER, headers_of
from forewarn.client.steps import Request, Response

__all__ = ["DEFAULT_URL", "MAX_ANSWER", "BadUrl", "Endpoint", "Response"]

DEFAULT_URL = "http://169.254.169.254"
CONNECT_TIMEOUT = 5.0  # real seconds


class BadUrl(ValueError):
    """Not the address of an endpoint; the message says what would be one."""


class Endpoint:
    """The host and port of an endpoint; the path of a given address is ignored."""

    def __init__(self, url: str = DEFAULT_URL) -> None:
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            if parts.fragment:
                raise BadUrl(f"'{url[:80]}' is not an address; expected one like {DEFAULT_URL}")
            self._location = parse_endpoint(f"{parts.scheme}://{parts.netloc}")
        except InvalidEndpointError as error:
            raise BadUrl(str(error)) from error
        except ValueError as error:
            raise BadUrl(f"'{url[:80]}' is not an address: {error}") from error

    def __str__(self) -> str:
        return str(self._location)

    def headers(self) -> list[tuple[str, str]]:
        return headers_of(self._request("/", 0.0))

    def get(self, target: str, timeout: float) -> Response:
        """Send a GET request. The whole response has to arrive within `timeout` seconds."""
        connection = Connection()
        try:
            return connection.send(self._request(target, timeout))
        finally:
            connection.close()

    def _request(self, target: str, timeout: float) -> Request:
        return Request(
            location=self._location,
            target=target,
            connect_timeout=min(CONNECT_TIMEOUT, timeout),
            timeout=timeout,
            purpose="record",
            close=True,
        )
