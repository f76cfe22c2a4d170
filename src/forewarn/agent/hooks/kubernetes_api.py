"""As much of the Kubernetes API as the hook `kubernetes` needs: one connection, JSON, patience.

What is asked for is up to the callers.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

import forewarn
from forewarn.agent.hooks.contract import Failure, read_secret, wait
from forewarn.agent.hooks.options import Kubernetes
from forewarn.support import guard

ANSWER = 10.0  # seconds within which the API server answers one request
PAUSE = 0.5  # seconds before a request is repeated, doubled every time
MAX_PAUSE = 5.0
PAGE = 500  # objects in one answer
MANAGER = "forewarn-agent"  # by this name, managedFields say what is ours
_BUSY = (429, 500, 502, 503, 504)

Object = dict[str, Any]
T = TypeVar("T")


class TimeUp(Failure):
    """There is no time for another request."""


class Refused(Failure):
    """The API server has answered, and not with what was asked for."""

    def __init__(self, status: int, text: str, retry_after: float) -> None:
        super().__init__(text)
        self.status, self.retry_after = status, retry_after


class _Page(msgspec.Struct, Generic[T]):
    items: list[T]
    metadata: dict[str, Any] = {}


class Api:
    """The API server, until `end` in guard time."""

    def __init__(self, options: Kubernetes, end: float) -> None:
        self.end, self._token_file = end, options.token
        self.url = options.server or _server_of_pod()
        url = urlsplit(self.url)
        try:
            context = ssl.create_default_context(cafile=options.ca)
        except OSError as error:
            raise Failure(f"ca {options.ca} cannot be read: {error.strerror or error}") from None
        host, self._path = url.hostname or "", url.path.rstrip("/")
        self._connection = http.client.HTTPSConnection(host, url.port, context=context)

    def close(self) -> None:
        self._connection.close()

    def version(self) -> tuple[int, int]:
        info = self.ask("GET", "/version")
        parts = [re.match(r"\d+", str(info.get(key, ""))) for key in ("major", "minor")]
        major, minor = (int(part[0]) if part else 0 for part in parts)
        return major, minor

    def get(self, path: str) -> Object | None:
        """Return an object; None if there is none."""
        try:
            return self.ask("GET", path)
        except Refused as refused:
            if refused.status != 404:
                raise
        return None

    def objects(self, path: str, kind: type[T], **query: str) -> list[T]:
        """Return all objects, page by page; from the beginning if the pages have expired (410)."""
        found: list[T] = []
        more: dict[str, str] = {}
        while True:
            text = urlencode({**query, "limit": str(PAGE), **more})
            try:
                answer = self.request("GET", f"{path}?{text}")
            except Refused as refused:
                if refused.status != 410:
                    raise
                self._pause(PAUSE, "the pages of a list keep expiring")
                found, more = [], {}
                continue
            page = msgspec.json.decode(answer, type=_Page[kind])  # type: ignore[valid-type]
            found += page.items
            if not (token := page.metadata.get("continue")):
                return found
            more = {"continue": token}

    def patch(self, path: str, body: Object) -> Object:
        return self.ask("PATCH", f"{path}?fieldManager={MANAGER}", body)

    def ask(self, method: str, path: str, body: Object | None = None) -> Object:
        answer: Object = msgspec.json.decode(self.request(method, path, body))
        return answer

    def request(
        self, method: str, path: str, body: Object | None = None, *, patient: bool = True
    ) -> bytes:
        """Return the body of a success. A server that is away is waited for while there is time; if
        `patient`, also one that is busy."""
        pause = PAUSE
        while True:
            try:
                return self._exchange(method, path, body)
            except Refused as refused:
                if refused.status not in _BUSY or not patient:
                    raise
                reason, rest = str(refused), max(pause, refused.retry_after)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, ssl.SSLCertVerificationError):
                    text = f"{self.url} is not trusted: {error.verify_message}"
                    raise Failure(f"{text}; ca has to be the cluster's") from None
                why = getattr(error, "strerror", "") or str(error) or type(error).__name__
                reason, rest = f"{self.url} does not answer: {why}", pause
            self._pause(rest, reason)
            pause = min(MAX_PAUSE, pause * 2)

    def _pause(self, seconds: float, reason: str) -> None:
        if guard.monotonic() + seconds >= self.end:
            raise TimeUp(f"the time is up: {reason}")
        wait(seconds)

    def _exchange(self, method: str, path: str, body: Object | None) -> bytes:
        left = self.end - guard.monotonic()
        if left <= 0:
            raise TimeUp(f"the time was up before {method} {path}")
        self._connection.timeout = timeout = min(ANSWER, left)
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        # The token as it is now: it is replaced long before it expires.
        token = read_secret(self._token_file, "token").decode("ascii", "replace").strip()
        if not token or not token.isprintable():
            raise Failure(f"token {self._token_file} does not contain a token")
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json",
            "Content-Type": f"application/{'merge-patch+json' if method == 'PATCH' else 'json'}",
            "User-Agent": f"{MANAGER}/{forewarn.__version__}",
        }
        text = None if body is None else msgspec.json.encode(body)
        try:
            self._connection.request(method, self._path + path, text, headers)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        if 200 <= response.status < 300:
            return content
        after = response.getheader("Retry-After", "")
        message = self._message(response, content, f"{method} {path.partition('?')[0]}")
        raise Refused(response.status, message, float(after) if after.isdecimal() else 0.0)

    def _message(self, response: http.client.HTTPResponse, content: bytes, request: str) -> str:
        if response.status == 401:
            refused = f"the API server refuses the token in {self._token_file} (401)"
            return f"{refused}: it has expired, or it is not of this cluster"
        try:
            message = str(msgspec.json.decode(content)["message"])
        except (msgspec.DecodeError, KeyError, TypeError):
            message = response.reason
        if response.status == 403:  # the message names the verb and the resource
            return f"{request}: 403 {message}; a ClusterRole has to allow it"
        return f"{request}: {response.status} {message}"


def _server_of_pod() -> str:
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if not host:
        raise Failure(
            "there is no API server: KUBERNETES_SERVICE_HOST is not set, as it is in a pod;"
            ' outside of one, set server = "https://…"'
        )
    host = f"[{host}]" if ":" in host else host
    return f"https://{host}:{os.environ.get('KUBERNETES_SERVICE_PORT') or 443}"
