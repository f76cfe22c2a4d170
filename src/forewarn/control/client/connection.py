"""Connections of the client to a service, with or without TLS, and with a token on every request.

The message of an error is a single line that never contains a token.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from forewarn.control.schema.core import Problem

_TOKEN = re.compile(r"[!-~]{1,16384}", re.ASCII)  # one of an OIDC issuer may be long
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII | re.IGNORECASE)
_SEPARATOR = re.compile(r"[, ]+")  # between the URLs of several control nodes
KEEP_ALIVE_AFTER = 60  # seconds of silence after which the other side is asked
DEFAULT_PORTS = {"http": 80, "https": 443}


class ControlError(Exception):
    """The service refused a request, or could not be reached; the message is a single line.

    If the service refused the request, `problem` is its response.
    """

    def __init__(self, message: str, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.problem = problem


class Unreachable(ControlError):
    """The service could not be reached, or did not answer."""

    sent = False  # a request may have arrived there


def service_url(text: str) -> str:
    """Return the URL of a service in full: `127.0.0.1:8170` becomes `http://127.0.0.1:8170`.

    Raises ValueError if it cannot be the URL of a service.
    """
    scheme = _SCHEME.match(text)
    url = text if scheme else f"http://{text.removeprefix('//')}"
    shown = f"'{text}'"
    if "@" in text:  # what stands before it may be a password
        problem, shown = "it contains a user name; pass a token with --token-file", "this"
    elif scheme and scheme[1].lower() not in DEFAULT_PORTS:
        problem = "it must begin with http:// or https://"
    elif not scheme and text.lower().startswith(("http:", "https:")):
        problem = "two slashes are missing after the colon"
    elif not text.isprintable() or " " in text:
        problem = "it contains spaces or control characters"
    else:
        problem = _url_problem(url)
    if problem:
        raise ValueError(
            f"{shown} is not the URL of a service: {problem}; write for example"
            " http://127.0.0.1:8170"
        )
    return url.rstrip("/")


def service_urls(text: str) -> str:
    """Return the URLs of the control nodes of a service in full, separated by commas.

    Raises ValueError if one of them cannot be the URL of a service.
    """
    urls = [service_url(url) for url in _SEPARATOR.split(text) if url]
    if not urls:
        raise ValueError("it is empty; write for example http://127.0.0.1:8170")
    return ",".join(dict.fromkeys(urls))


def _url_problem(url: str) -> str:
    """Return what is wrong with the host, the port or the end of a URL; empty: nothing."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return "the address in brackets is not an IPv6 address"
    try:
        usable = parts.port is None or parts.port > 0
    except ValueError:
        usable = False
    if not usable:
        return "the port must be a number from 1 to 65535"
    if not host:
        return "it has no host"
    return "it must end with the path" if parts.query or parts.fragment else ""


def error_text(error: Exception) -> str:
    """Return the message of an error of the system, without its number."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason
    return getattr(error, "strerror", None) or str(error)


def unreachable(url: str, error: Exception) -> Unreachable:
    """Return the error for a connection or an exchange that failed."""
    parts = urlsplit(url)
    port = "" if parts.port else f" (port {_port(parts)})"
    return Unreachable(f"no service answers at {url}{port}: {error_text(error)}")


class ServiceAddress(msgspec.Struct, frozen=True):
    """URL of a service, and the credentials to use with it."""

    url: str  # of each of its control nodes, separated by commas or spaces
    token: str = ""
    ca: str = ""  # CA bundle (PEM) that verifies the service's certificate; empty: the system's

    def __repr__(self) -> str:
        return f"ServiceAddress(url={self.url!r})"

    def each(self) -> list[ServiceAddress]:
        """Return the address of every control node."""
        try:
            urls = service_urls(self.url).split(",")
        except ValueError as error:
            raise ControlError(str(error)) from error
        return [msgspec.structs.replace(self, url=url) for url in urls]

    def full_url(self) -> str:
        """Return the URL with its scheme, and without slashes at its end."""
        try:
            return service_url(self.url)
        except ValueError as error:
            raise ControlError(str(error)) from error

    def connection(self, timeout: float | None) -> http.client.HTTPConnection:
        if self.token and not _TOKEN.fullmatch(self.token):
            raise ControlError(
                "the token contains characters that are not valid in a token; copy it again"
            )
        parts = urlsplit(self.full_url())
        host, port = parts.hostname or "", _port(parts)
        if parts.scheme == "https":
            context = self._context()
            return _TlsConnection(host, port, self, timeout=timeout, context=context)
        return _PlainConnection(host, port, self, timeout=timeout)

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except FileNotFoundError as error:
            raise ControlError(f"{self.ca}: the file does not exist") from error
        except OSError as error:
            raise ControlError(f"{self.ca} is not a certificate (PEM): {error.strerror}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def tls_error(self, error: ssl.SSLError) -> ControlError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return ControlError(
                f"the certificate of {self.url} is not trusted: {error.verify_message.rstrip('.')};"
                " pass the certificate of its CA with --ca or FOREWARN_CA, and use a host name that"
                " the certificate contains"
            )
        if "WRONG_VERSION_NUMBER" in str(error):
            return ControlError(f"{self.url} does not use TLS; use http:// instead")
        return unreachable(self.url, error)


def _port(parts: SplitResult) -> int:
    return parts.port or DEFAULT_PORTS[parts.scheme]


def _keep_alive(connection: socket.socket) -> None:
    """Let the system find out that the other side is gone, also while a response is waited for
    without a time limit."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # not on every system
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_AFTER)


class _PlainConnection(http.client.HTTPConnection):
    def __init__(self, host: str, port: int, address: ServiceAddress, **options: Any) -> None:
        super().__init__(host, port, **options)
        self._address = address

    def connect(self) -> None:
        super().connect()
        _keep_alive(self.sock)

    def putrequest(self, *arguments: Any, **options: Any) -> None:
        super().putrequest(*arguments, **options)
        if self._address.token:
            self.putheader("Authorization", f"Bearer {self._address.token}")


class _TlsConnection(http.client.HTTPSConnection):
    def __init__(self, host: str, port: int, address: ServiceAddress, **options: Any) -> None:
        super().__init__(host, port, **options)
        self._address = address

    def connect(self) -> None:
        try:
            super().connect()
        except ssl.SSLError as error:
            raise self._address.tls_error(error) from error
        _keep_alive(self.sock)

    def putrequest(self, *arguments: Any, **options: Any) -> None:
        super().putrequest(*arguments, **options)
        if self._address.token:
            self.putheader("Authorization", f"Bearer {self._address.token}")
