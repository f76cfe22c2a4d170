"""Admission of requests: is the request addressed to this service (Host), was it sent by a browser
on behalf of another site (Origin, Sec-Fetch-Site), and who is the caller (Authorization)?

Every request passes here before it reaches a handler, also for unknown paths. What a caller may do
is decided in `authorization.py`; responses are sent by `responses.py`.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Collection
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from forewarn.control.http.access.authentication import Authentication, Refusal
from forewarn.control.http.access.authorization import TokenEnded
from forewarn.control.http.access.forwarded import apply_forwarded
from forewarn.control.http.access.session_cookie import cookie_in, without_session
from forewarn.control.http.context import LOCAL, Caller, Context
from forewarn.control.http.errors import ProblemError, not_leading
from forewarn.control.http.idempotency import IdempotencyKeys
from forewarn.control.http.problems import CALENDAR_PATH, DOCUMENT_PATH, PAGE
from forewarn.control.http.responses import ResponseWriter
from forewarn.control.schema import core as s
from forewarn.core.access import local
from forewarn.service.access import secret
from forewarn.service.access.issuer_keys import IssuerUnavailable
from forewarn.service.access.oidc import NoAccess, TokenRefused
from forewarn.store.port import NotLeading
from forewarn.support import guard
from forewarn.support.logs import logger

WRITE_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
STORE_PATIENCE = 15.0  # seconds that a change may wait for a database before its caller is refused
BODY_TYPES = frozenset(
    {
        "application/json",
        "application/yaml",
        "application/x-yaml",
        "text/yaml",
        "text/x-yaml",
    }
)
# Public paths: they need no token, and other sites may link to them.
SESSION_PATH = "/v1/session"
PORTAL = "/ui/"  # likewise all paths that begin with it
PAGES = frozenset({"/", "/ui", PAGE, DOCUMENT_PATH, "/healthz", "/readyz", "/leaderz"})
HEAD_PATHS = PAGES | {"/metrics"}  # paths that accept HEAD
BASIC = {"www_authenticate": 'Basic realm="forewarn", charset="UTF-8"'}  # of the calendar
CALENDAR_LOGIN = (
    "the calendar needs a token: send it as 'Authorization: Bearer fw_…', or as the password of"
    " HTTP Basic with any user name"
)
SAME_SITE = ("same-origin", "none")  # Sec-Fetch-Site of our own page, or of a typed address

Headers = dict[bytes, list[bytes]]

log = logger("forewarn.control")

_HOST = re.compile(r"(\[[^][/@?#]*\]|[^][:/@?#]*)(:[0-9]*)?")


class Admission:
    """ASGI middleware that passes a request on to the handlers, or refuses it."""

    def __init__(self, app: Any, context: Context) -> None:
        self._app = app
        self._context = context
        self._keys = IdempotencyKeys(context)
        self._authentication = Authentication(context)
        self._watchers = guard.Tasks()  # each ends with its request

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = ResponseWriter(scope, send, self._keys, self._context.store)
        try:
            await self._admit(scope)
        except Refusal as refusal:
            await response.refuse(refusal.status, refusal.detail, refusal.headers)
            return
        except NotLeading as error:
            await response.replace(not_leading(error))
            return
        except ProblemError as error:
            await response.replace(error)
            return
        if scope["method"] == "HEAD" and (scope["path"] in HEAD_PATHS or _is_page(scope)):
            scope = {**scope, "method": "GET"}  # the server leaves the body out
        scope["state"]["keys"] = self._keys
        watcher = None
        if self._context.store.leadership is not None and scope["method"] in WRITE_METHODS:
            watcher = self._watchers.start(self._watch_store(response), "watching the store")
        try:
            await self._app(scope, receive, response.send)
        except Exception as error:
            if (ended := _token_ended(error)) is None:
                raise
            # The server closes the connection.
            log.warning("a response was aborted", why=str(ended))
        finally:
            if watcher is not None:
                watcher.cancel()
            self._keys.release(scope)

    async def _watch_store(self, response: ResponseWriter) -> None:
        """Refuse a change whose commit hangs. It goes on, and so does the use of its key: whoever
        repeats it learns what became of it."""
        store, began = self._context.store, guard.monotonic()
        while (waited := min(store.waited(), guard.monotonic() - began)) < STORE_PATIENCE:
            await guard.pause(STORE_PATIENCE - waited)
        error = ProblemError(
            "unavailable",
            f"the database has not confirmed a commit for {STORE_PATIENCE:g} s, so it is not known"
            " whether the change happens; repeat the request with the same Idempotency-Key",
        )
        await response.replace(error)

    async def _admit(self, scope: Any) -> None:
        headers: Headers = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        apply_forwarded(scope, headers, self._context.proxies())
        _check_secrets(scope, headers)
        _check_path(scope)
        check_host(scope, headers, self._context.host_names())
        _check_origin(scope, headers)
        _check_content_type(scope, headers)
        caller = await self._caller(scope, headers)
        if caller is not None:
            scope["state"]["caller"] = caller
        changes = caller is not None and scope["method"] in WRITE_METHODS
        if changes or headers.get(_LEADER) == [_ONLY]:
            check_leading(self._context)

    async def _caller(self, scope: Any, headers: Headers) -> Caller | None:
        """Return the caller, or None if it is anonymous, which is enough for public pages. Tokens
        are not checked for those: a health check may send one that has expired."""
        address = str((scope.get("client") or ("", 0))[0])
        tokens = self._context.tokens
        if not tokens.needed:
            return LOCAL if local(address) else None
        values = headers.get(b"authorization")
        cookie = cookie_in(scope, headers.get(b"cookie", [])) if values is None else ""
        if cookie and _is_same_origin(scope, headers) and not _is_page(scope):
            return await self._with_session(cookie, scope["path"])
        if values is None and _is_calendar(scope):
            raise Refusal(401, CALENDAR_LOGIN, **BASIC)
        if values is None or _is_page(scope):
            return None
        value = values[0].decode("latin-1") if len(values) == 1 else ""
        text = _token_in(value, basic=_is_calendar(scope))
        try:
            return await self._authentication.caller(text, address)
        except Refusal as refusal:
            if refusal.status == 401 and _is_calendar(scope):
                raise Refusal(401, refusal.detail, **BASIC) from refusal
            raise

    async def _with_session(self, cookie: str, path: str) -> Caller | None:
        """Return the caller of a request from our own page, in a browser with a session."""
        if found := self._context.sessions.find(cookie):
            return self._authentication.with_token(*found)
        with contextlib.suppress(NoAccess, IssuerUnavailable, TokenRefused):
            if identity := await self._context.tokens.identity(cookie):
                return self._authentication.identified(identity)
        if path == SESSION_PATH:  # which says so itself
            return None
        raise Refusal(401, "the session has ended; log in again")


def _token_in(authorization: str, *, basic: bool) -> str:
    """Return the token in the value of an Authorization header; empty if there is none. With
    `basic`, it may be the password of HTTP Basic."""
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return text.strip()
    if not basic or scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(text.strip(), validate=True).decode("latin-1").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def _is_calendar(scope: Any) -> bool:
    return scope["method"] in ("GET", "HEAD") and scope["path"] == CALENDAR_PATH


def _token_ended(error: Exception) -> BaseException | None:
    """Return the `TokenEnded` behind an error that broke a response off, if there is one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup) and (ended := cause.subgroup(TokenEnded)):
            return ended.exceptions[0]
        cause = cause.__cause__
    return None


def _check_secrets(scope: Any, headers: Headers) -> None:
    """Refuse tokens in URLs and in other headers, because proxies and servers log those."""
    where = ""
    if secret.inside(scope.get("raw_path") or b"") or secret.inside(scope["path"].encode()):
        where = "in the path"
    elif secret.inside(unquote_to_bytes(scope.get("query_string") or b"")):
        where = "in the query"
    elif any(
        secret.inside(value)
        for name, values in headers.items()
        if name != b"authorization"
        for value in (without_session(scope, values) if name == b"cookie" else values)
    ):
        where = "in a header other than Authorization"
    if where:
        raise Refusal(
            400,
            f"the request has a token {where}, where proxies may have logged it; revoke that token,"
            " and send tokens only as 'Authorization: Bearer fw_…'",
        )


def _check_path(scope: Any) -> None:
    """Refuse `//`, so that a path has only one spelling for all layers."""
    if "//" in scope["path"]:
        raise Refusal(404, "no path of this API contains '//'; use a single '/'")


def _is_page(scope: Any) -> bool:
    path: str = scope["path"]
    return scope["method"] in ("GET", "HEAD") and (path in PAGES or path.startswith(PORTAL))


_LEADER, _ONLY = s.LEADER_HEADER.lower().encode(), s.LEADER_ONLY.encode()


def check_leading(context: Context) -> None:
    """Raise NotLeading or ProblemError unless this control node decides."""
    leadership = context.store.leadership
    if leadership is None or context.decides:
        return
    if context.health.taking_over():
        raise ProblemError(
            "not-leading",
            "this control node is taking over; try again in a moment",
            {"Retry-After": "1"},
        )
    leader = leadership.leader()
    raise NotLeading(leader if leader and leader.held else None)


def check_host(scope: Any, headers: Headers, names: Collection[str]) -> None:
    """Refuse unknown Host names: after DNS rebinding, a browser sends the attacker's name."""
    values = headers.get(b"host", [])
    if not values:
        return
    name = _host(values[0])
    here = str((scope.get("server") or ("", 0))[0])
    if len(values) == 1 and name and (local(name) or name == here or _is_configured(name, names)):
        return
    raise Refusal(
        421,
        "the Host header is not a name of this control API; use its address, or add the name to"
        " control_names in the settings",
    )


def _is_configured(name: str, names: Collection[str]) -> bool:
    return any(name == configured.lower().rstrip(".") for configured in names)


def _check_origin(scope: Any, headers: Headers) -> None:
    """Refuse requests that a browser sends on behalf of a page of another site."""
    private = not _is_page(scope)
    origin = headers.get(b"origin")
    site = headers.get(b"sec-fetch-site", [b"none"])[0].decode("latin-1")
    foreign = private and site not in SAME_SITE
    if origin is not None:
        foreign = foreign or origin != [_own_origin(scope, headers)]
    if foreign:
        raise Refusal(
            403,
            "the control API refuses requests from pages of other sites; send requests from a"
            " program, without an Origin header",
        )


def _own_origin(scope: Any, headers: Headers) -> bytes:
    host = headers.get(b"host", [b""])[0]
    return f"{scope.get('scheme', 'http')}://".encode() + host


def _is_same_origin(scope: Any, headers: Headers) -> bool:
    """Does a browser say that our own page has sent the request? Only then a cookie counts."""
    if b"sec-fetch-site" in headers:
        return headers[b"sec-fetch-site"] == [b"same-origin"]
    return headers.get(b"origin") == [_own_origin(scope, headers)]


def _check_content_type(scope: Any, headers: Headers) -> None:
    """Refuse bodies of media types that an HTML form can send without a CORS preflight."""
    if scope["method"] not in WRITE_METHODS:
        return
    types = headers.get(b"content-type")
    length = headers.get(b"content-length", [b"0"])[0]
    if types is None and length == b"0" and b"transfer-encoding" not in headers:
        return
    kind = (types or [b""])[0].decode("latin-1").partition(";")[0].strip().lower()
    if kind in BODY_TYPES or (
        kind.startswith("application/") and kind.endswith(("+json", "+yaml"))
    ):
        return
    raise Refusal(
        415,
        f"the media type '{kind[:40]}' is not supported; send JSON or YAML, with"
        " Content-Type: application/json or application/yaml",
    )


def _host(value: bytes) -> str:
    """Return the name or address in a Host header; empty if there is more than that and a port."""
    try:
        text = value.decode("ascii")
        parts = urlsplit(f"//{text}")
        name, _ = parts.hostname or "", parts.port  # ValueError if beyond 65535
    except ValueError:
        return ""
    return name.rstrip(".") if _HOST.fullmatch(text) else ""
