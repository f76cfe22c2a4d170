"""As much of the Kubernetes API as the hook `kubernetes` needs: one connection, JSON, patience.

Every request names the access that it needs (`Access`), so that errors, `agent check` and the
ClusterRole speak of the same rules. What is asked for is up to the callers.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple, Self, TypeVar
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
MERGE = "application/merge-patch+json"
_BUSY = (429, 500, 502, 503, 504)

Object = dict[str, Any]
T = TypeVar("T")


class Access(NamedTuple):
    """What RBAC has to allow."""

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f" ({self.group})" if self.group else "")


GET_NODE = Access("get", "nodes")
LIST_NODES = Access("list", "nodes")
PATCH_NODE = Access("patch", "nodes")
PATCH_STATUS = Access("patch", "nodes/status")
LIST_PODS = Access("list", "pods")
EVICT = Access("create", "pods/eviction")
RECORD = Access("create", "events")
REVIEW = Access("create", "selfsubjectaccessreviews", "authorization.k8s.io")  # everybody may


class TimeUp(Failure):
    """There is no time for another request."""


class Refused(Failure):
    """The API server has answered, and not with what was asked for."""

    def __init__(self, status: int, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after


class _Page(msgspec.Struct):
    items: msgspec.Raw
    metadata: dict[str, Any] = {}


class Api:
    """The API server, until `end` in guard time."""

    def __init__(self, options: Kubernetes, end: float) -> None:
        self.end = end
        self._token_file = options.token
        self.url = options.server or _server_of_pod()
        url = urlsplit(self.url)
        try:
            context = ssl.create_default_context(cafile=options.ca)
        except OSError as error:
            raise Failure(f"ca {options.ca} cannot be read: {error.strerror or error}") from None
        self._connection = http.client.HTTPSConnection(
            url.hostname or "", url.port, context=context
        )
        self._path = url.path.rstrip("/")
        self._version: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def version(self) -> tuple[int, int]:
        if self._version is None:
            info = msgspec.json.decode(self.request("GET", "/version", Access("get", "/version")))
            parts = [re.match(r"\d+", str(info.get(key, ""))) for key in ("major", "minor")]
            major, minor = (int(part[0]) if part else 0 for part in parts)
            self._version = major, minor
        return self._version

    def get(self, path: str, access: Access) -> Object | None:
        """Return an object; None if there is none."""
        try:
            found: Object = msgspec.json.decode(self.request("GET", path, access))
        except Refused as refused:
            if refused.status == 404:
                return None
            raise
        return found

    def objects(self, path: str, access: Access, kind: type[T], **query: str) -> list[T]:
        """Return all objects, page by page; from the beginning if the pages have expired (410)."""
        while True:
            try:
                return [item for page in self._pages(path, access, kind, query) for item in page]
            except Refused as refused:
                if refused.status != 410:
                    raise
            self._pause(PAUSE, "the pages of a list keep expiring")

    def _pages(
        self, path: str, access: Access, kind: type[T], query: dict[str, str]
    ) -> Iterator[list[T]]:
        more: dict[str, str] = {}
        while True:
            text = urlencode({**query, "limit": str(PAGE), **more})
            page = msgspec.json.decode(self.request("GET", f"{path}?{text}", access), type=_Page)
            yield msgspec.json.decode(page.items, type=list[kind])  # type: ignore[valid-type]
            if not (token := page.metadata.get("continue")):
                return
            more = {"continue": token}

    def patch(self, path: str, access: Access, body: Object) -> Object:
        path = f"{path}?fieldManager={MANAGER}"
        patched: Object = msgspec.json.decode(self.request("PATCH", path, access, body))
        return patched

    def create(self, path: str, access: Access, body: Object, *, patient: bool = True) -> Object:
        answer = self.request("POST", path, access, body, patient=patient)
        created: Object = msgspec.json.decode(answer)
        return created

    def request(
        self, method: str, path: str, access: Access, body: Any = None, *, patient: bool = True
    ) -> bytes:
        """Return the body of a success. A server that is away is waited for while there is time; if
        `patient`, also one that is busy."""
        pause = PAUSE
        while True:
            try:
                return self._exchange(method, path, access, body)
            except Refused as refused:
                if refused.status not in _BUSY or not patient:
                    raise
                reason, rest = str(refused), max(pause, refused.retry_after or 0.0)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, ssl.SSLCertVerificationError):
                    text = f"{self.url} is not trusted: {error.verify_message}"
                    raise Failure(f"{text}; ca has to be the cluster's") from None
                reason, rest = f"{self.url} does not answer: {_reason(error)}", pause
            self._pause(rest, reason)
            pause = min(MAX_PAUSE, pause * 2)

    def _pause(self, seconds: float, reason: str) -> None:
        if guard.monotonic() + seconds >= self.end:
            raise TimeUp(f"the time is up: {reason}")
        wait(seconds)

    def _exchange(self, method: str, path: str, access: Access, body: Any) -> bytes:
        left = self.end - guard.monotonic()
        if left <= 0:
            raise TimeUp(f"the time was up before the API server was asked to {access}")
        self._connection.timeout = timeout = min(ANSWER, left)
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        headers = {
            "Authorization": f"Bearer {self._token()}",
            "Accept": "application/json",
            "Content-Type": MERGE if method == "PATCH" else "application/json",
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
        raise self._refusal(response, content, access)

    def _refusal(
        self, response: http.client.HTTPResponse, content: bytes, access: Access
    ) -> Refused:
        try:
            message = str(msgspec.json.decode(content)["message"])
        except (msgspec.DecodeError, KeyError, TypeError):
            message = response.reason
        status, after = response.status, response.getheader("Retry-After", "")
        if status == 401:
            text = f"the API server refuses the token in {self._token_file} (401): it has expired"
            text += ", or it is not of this cluster"
        elif status == 403:
            text = f"the API server forbids to {access} (403): {message}; a ClusterRole has to"
            text += " allow it"
        else:
            text = f"{access}: {status} {message}"
        return Refused(status, text, float(after) if after.isdecimal() else None)

    def _token(self) -> str:
        """Return the token as it is now: it is replaced long before it expires."""
        token = read_secret(self._token_file, "token").decode("ascii", "replace").strip()
        if not token or not token.isprintable():
            raise Failure(f"token {self._token_file} does not contain a token")
        return token


def _server_of_pod() -> str:
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if not host:
        raise Failure(
            "there is no API server: KUBERNETES_SERVICE_HOST is not set, as it is in a pod;"
            ' outside of one, set server = "https://…"'
        )
    host = f"[{host}]" if ":" in host else host
    return f"https://{host}:{os.environ.get('KUBERNETES_SERVICE_PORT') or 443}"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return (error.strerror if isinstance(error, OSError) else "") or type(error).__name__
