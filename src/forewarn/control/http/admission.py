"""Admission of requests: is this one for us (Host), is it from a browser that was sent here by
another site's page (Origin, Sec-Fetch-Site), and who is the caller (Authorization)?

It comes before the handlers, for unknown paths too. What a caller may do is `authorization.py`;
what happens to the response is `responses.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from forewarn.control.http.authorization import TokenEnded
from forewarn.control.http.context import LOCAL, Caller, Context
from forewarn.control.http.idempotency import IdempotencyKeys
from forewarn.control.http.problems import DOCUMENT_PATH, PAGE
from forewarn.control.http.responses import ResponseWriter
from forewarn.control.http.token_attempts import TokenAttempts
from forewarn.core.access import local
from forewarn.service.access import secret
from forewarn.support.logs import logger

CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
BODIES = frozenset(
    {
        "application/json",
        "application/yaml",
        "application/x-yaml",
        "text/yaml",
        "text/x-yaml",
    }
)
# Public, with or without a token, and may be linked to: the same for every caller.
PAGES = frozenset({"/", PAGE, DOCUMENT_PATH, "/healthz", "/readyz"})
HEADED = PAGES | {"/metrics"}  # which accept HEAD
OURS = ("same-origin", "none")  # of Sec-Fetch-Site: a page of ours, or somebody typed the address

Headers = dict[bytes, list[bytes]]

log = logger("forewarn.control")


class Refusal(Exception):
    """A request that is not passed on, with the status and detail of its problem."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Admission:
    """ASGI middleware: passes a request on to the handlers, or refuses it."""

    def __init__(self, app: Any, context: Context) -> None:
        self._app = app
        self._context = context
        self._keys = IdempotencyKeys(context)
        self._attempts = TokenAttempts()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = ResponseWriter(scope, send, self._keys)
        try:
            self._admit(scope)
        except Refusal as refusal:
            await response.refuse(refusal.status, refusal.detail, refusal.headers)
            return
        if scope["method"] == "HEAD" and scope["path"] in HEADED:
            scope = {**scope, "method": "GET"}  # the server leaves the body out
        scope["state"]["keys"] = self._keys
        try:
            await self._app(scope, receive, response.send)
        except Exception as error:
            if (ended := _token_ended(error)) is None:
                raise
            log.warning("an answer was cut off", why=str(ended))  # the server hangs up, then
        finally:
            self._keys.release(scope)

    def _admit(self, scope: Any) -> None:
        headers: Headers = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        _check_secrets(scope, headers)
        _check_path(scope)
        _check_host(scope, headers, self._context.host_names())
        _check_origin(scope, headers)
        _check_content_type(scope, headers)
        caller = self._caller(scope, headers)
        if caller is not None:
            scope["state"]["caller"] = caller

    def _caller(self, scope: Any, headers: Headers) -> Caller | None:
        """Return the caller, or None for an anonymous one, which may read public pages. Tokens are
        not looked at for those: a health check may well send one that has expired."""
        address = str((scope.get("client") or ("", 0))[0])
        tokens = self._context.tokens
        if not tokens.needed:
            return LOCAL if local(address) else None
        values = headers.get(b"authorization")
        if values is None or _is_page(scope):
            return None
        scheme, _, text = values[0].decode("latin-1").partition(" ")
        text = text.strip() if len(values) == 1 and scheme.lower() == "bearer" else ""
        token = tokens.of(text)
        if token is None:
            if wait := self._attempts.wait(address):
                raise Refusal(
                    429,
                    f"too many attempts with wrong tokens from {address}; wait {wait:.0f} s",
                    retry_after=str(int(wait) + 1),
                )
            self._attempts.failed(address, secret.id_of(text))
            raise Refusal(401, _token_problem(text))
        tokens.used(token)
        return Caller(name=token.name, role=token.role, limit=token.limit, token=token.id)


def _token_ended(error: Exception) -> BaseException | None:
    """Return the `TokenEnded` behind an error that broke a response off, if there is one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup) and (ended := cause.subgroup(TokenEnded)):
            return ended.exceptions[0]
        cause = cause.__cause__
    return None


def _token_problem(text: str) -> str:
    if not text:
        return "the Authorization header is not 'Bearer fw_…', a token of this service"
    return (
        "this token is unknown, wrong, expired or revoked; an admin can make another"
        " (forewarn token create)"
    )


def _check_secrets(scope: Any, headers: Headers) -> None:
    """Refuse tokens in URLs and odd headers: proxies and servers log those."""
    where = ""
    if secret.inside(scope.get("raw_path") or b"") or secret.inside(scope["path"].encode()):
        where = "in the path"
    elif secret.inside(unquote_to_bytes(scope.get("query_string") or b"")):
        where = "in the query"
    elif any(
        secret.inside(value)
        for name, values in headers.items()
        if name != b"authorization"
        for value in values
    ):
        where = "in a header other than Authorization"
    if where:
        raise Refusal(
            400,
            f"there is a token {where}, where it may have been written down on the way; revoke it,"
            " and send tokens as 'Authorization: Bearer fw_…' only",
        )


def _check_path(scope: Any) -> None:
    """Refuse `//`: a path has one spelling, so that every layer sees the same one."""
    if "//" in scope["path"]:
        raise Refusal(404, "there is nothing at a path with '//' in it; write '/' once")


def _is_page(scope: Any) -> bool:
    return scope["method"] in ("GET", "HEAD") and scope["path"] in PAGES


def _check_host(scope: Any, headers: Headers, names: Collection[str]) -> None:
    """Refuse foreign Host names: after DNS rebinding, a browser names the attacker's."""
    values = headers.get(b"host", [])
    if not values:
        return
    name = _host(values[0])
    here = str((scope.get("server") or ("", 0))[0])
    if len(values) == 1 and name and (local(name) or name == here or _among(name, names)):
        return
    raise Refusal(
        421,
        "the control API is not asked under that name; ask its address, or add the name to"
        " control_names in the settings",
    )


def _among(name: str, names: Collection[str]) -> bool:
    return any(name == known.lower().rstrip(".") for known in names)


def _check_origin(scope: Any, headers: Headers) -> None:
    """Refuse requests that a page of another site makes a browser send."""
    private = not _is_page(scope)
    origin = headers.get(b"origin")
    site = headers.get(b"sec-fetch-site", [b"none"])[0].decode("latin-1")
    foreign = private and site not in OURS
    if origin is not None:
        host = headers.get(b"host", [b""])[0]
        ours = f"{scope.get('scheme', 'http')}://".encode() + host
        foreign = foreign or origin != [ours]
    if foreign:
        raise Refusal(
            403,
            "the control API does nothing for pages of other sites; ask from a program, without"
            " an Origin header",
        )


def _check_content_type(scope: Any, headers: Headers) -> None:
    """Refuse changes in a media type that an HTML form can send without a preflight."""
    if scope["method"] not in CHANGES:
        return
    types = headers.get(b"content-type")
    length = headers.get(b"content-length", [b"0"])[0]
    if types is None and length == b"0" and b"transfer-encoding" not in headers:
        return
    kind = (types or [b""])[0].decode("latin-1").partition(";")[0].strip().lower()
    if kind in BODIES or (kind.startswith("application/") and kind.endswith(("+json", "+yaml"))):
        return
    raise Refusal(
        415,
        f"the body of a request is JSON or YAML and says so, which '{kind[:40]}' does not; send"
        " Content-Type: application/json",
    )


def _host(value: bytes) -> str:
    try:
        return (urlsplit(f"//{value.decode('ascii')}").hostname or "").rstrip(".")
    except ValueError:
        return ""
