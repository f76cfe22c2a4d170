"""Connections of the client to a service: plain or TLS, with a token on every request.

Errors are one clear line, which never contains a token.
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
    """The service refused, or is not there; the message is one clear line.

    If it refused, `problem` is what it answered.
    """

    def __init__(self, message: str, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.problem = problem


class Unreachable(ControlError):
    """The service is not there, or not now."""


class ServiceAddress(msgspec.Struct, frozen=True):
    """URL of a service, and the credentials to use with it."""

    url: str
    token: str = ""
    ca: str = ""  # a file with the certificate that vouches for the service's; empty: the system's

    def __repr__(self) -> str:
        return f"ServiceAddress(url={self.url!r})"

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        if self.token and not _TOKEN.fullmatch(self.token):
            raise ControlError("the token has characters in it that no token has; copy it anew")
        parts = urlsplit(self.url)
        try:
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise ControlError(f"{self.url} is no address of a service: {error}") from error
        if parts.scheme == "https":
            context = self._context()
            return _Secured(host, port or 443, self, timeout=timeout, context=context)
        return _Plain(host, port or 80, self, timeout=timeout)

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except FileNotFoundError as error:
            raise ControlError(f"{self.ca}: there is no such file") from error
        except OSError as error:
            raise ControlError(f"{self.ca} is no certificate (PEM): {error.strerror}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def tls_error(self, error: ssl.SSLError) -> ControlError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return ControlError(
                f"the certificate of {self.url} is not trusted: {error.verify_message.rstrip('.')};"
                " name who vouches for it with --ca or FOREWARN_CA, and ask under a name that is"
                " in it"
            )
        if "WRONG_VERSION_NUMBER" in str(error):
            return ControlError(f"{self.url} does not speak TLS; ask with http://")
        return Unreachable(f"no service answers at {self.url}: {error.reason or error}")


class _Plain(http.client.HTTPConnection):
    def __init__(self, host: str, port: int, address: ServiceAddress, **options: Any) -> None:
        super().__init__(host, port, **options)
        self._address = address

    def putrequest(self, *arguments: Any, **options: Any) -> None:
        super().putrequest(*arguments, **options)
        if self._address.token:
            self.putheader("Authorization", f"Bearer {self._address.token}")


class _Secured(http.client.HTTPSConnection):
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
