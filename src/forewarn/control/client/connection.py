"""Connections of the client to a service, with or without TLS, and with a token on every request.

The message of an error is a single line that never contains a token.
"""

from __future__ import annotations

import http.client
import re
import ssl
from typing import Any
from urllib.parse import urlsplit

import msgspec

from forewarn.control.schema.core import Problem

_TOKEN = re.compile(r"[!-~]{1,200}", re.ASCII)


class ControlError(Exception):
    """The service refused a request, or could not be reached; the message is a single line.

    If the service refused the request, `problem` is its response.
    """

    def __init__(self, message: str, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.problem = problem


class Unreachable(ControlError):
    """The service could not be reached, or did not answer."""


class ServiceAddress(msgspec.Struct, frozen=True):
    """URL of a service, and the credentials to use with it."""

    url: str
    token: str = ""
    ca: str = ""  # CA bundle (PEM) that verifies the service's certificate; empty: the system's

    def __repr__(self) -> str:
        return f"ServiceAddress(url={self.url!r})"

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        if self.token and not _TOKEN.fullmatch(self.token):
            raise ControlError(
                "the token contains characters that are not valid in a token; copy it again"
            )
        parts = urlsplit(self.url)
        try:
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise ControlError(f"{self.url} is not the address of a service: {error}") from error
        if parts.scheme == "https":
            context = self._context()
            return _TlsConnection(host, port or 443, self, timeout=timeout, context=context)
        return _PlainConnection(host, port or 80, self, timeout=timeout)

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
        return Unreachable(f"no service answers at {self.url}: {error.reason or error}")


class _PlainConnection(http.client.HTTPConnection):
    def __init__(self, host: str, port: int, address: ServiceAddress, **options: Any) -> None:
        super().__init__(host, port, **options)
        self._address = address

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

    def putrequest(self, *arguments: Any, **options: Any) -> None:
        super().putrequest(*arguments, **options)
        if self._address.token:
            self.putheader("Authorization", f"Bearer {self._address.token}")
