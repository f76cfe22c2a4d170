"""What every request passes on its way in: is it for us, is it from a browser that was sent here by
somebody else's page, and who asks?

It stands before everything, unknown paths too, and adds to every answer what keeps browsers from
doing more with it than showing it. What a caller may is `authorization.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from forewarn.control.http.authorization import TokenEnded
from forewarn.control.http.context import LOCAL, Caller, Context
from forewarn.control.http.errors import problem
from forewarn.control.http.problems import PAGE
from forewarn.control.http.token_attempts import TokenAttempts
from forewarn.control.openapi.document import PATH
from forewarn.core.access import local
from forewarn.service.access import secret
from forewarn.support.logs import logger

MAX_HIDDEN_ANSWER = 1024 * 1024  # bytes of an error that are looked through for secrets

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
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"cache-control": b"no-store",
    b"referrer-policy": b"no-referrer",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"x-frame-options": b"DENY",
    b"cross-origin-resource-policy": b"same-origin",
}
# What is open to everybody, token or not, and may be linked to: the same for all who ask.
PAGES = frozenset({"/", PAGE, PATH, "/healthz", "/readyz"})
HEADED = PAGES | {"/metrics"}  # of which the head alone may be asked for
OURS = ("same-origin", "none")  # of Sec-Fetch-Site: a page of ours, or somebody typed the address

Headers = dict[bytes, list[bytes]]

log = logger("forewarn.control")


class Refusal(Exception):
    """What whoever asked is told instead."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class Admission:
    """An ASGI application before another."""

    def __init__(self, app: Any, desk: Context) -> None:
        self._app = app
        self._desk = desk
        self._attempts = TokenAttempts()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        try:
            self._admit(scope)
        except Refusal as refusal:
            await answer.refuse(refusal)
            return
        if scope["method"] == "HEAD" and scope["path"] in HEADED:
            scope = {**scope, "method": "GET"}  # the server leaves the body out
        try:
            await self._app(scope, receive, answer.send)
        except Exception as error:
            if (ended := _ended(error)) is None:
                raise
            log.warning("an answer was cut off", why=str(ended))  # the server hangs up, then

    def _admit(self, scope: Any) -> None:
        headers: Headers = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        _no_secrets(scope, headers)
        _one_way(scope)
        _our_name(scope, headers, self._desk.names())
        _our_page(scope, headers)
        _readable(scope, headers)
        caller = self._caller(scope, headers)
        if caller is not None:
            scope.setdefault("state", {})["caller"] = caller

    def _caller(self, scope: Any, headers: Headers) -> Caller | None:
        """Who asks; None: nobody, which will do for what is open to all. There no token is looked
        at: whoever looks after the service may send one that is over."""
        address = str((scope.get("client") or ("", 0))[0])
        tokens = self._desk.tokens
        if not tokens.needed:
            return LOCAL if local(address) else None
        said = headers.get(b"authorization")
        if said is None or _is_page(scope):
            return None
        scheme, _, text = said[0].decode("latin-1").partition(" ")
        text = text.strip() if len(said) == 1 and scheme.lower() == "bearer" else ""
        token = tokens.of(text)
        if token is None:
            if wait := self._attempts.wait(address):
                raise Refusal(
                    429,
                    f"too many attempts with wrong tokens from {address}; wait {wait:.0f} s",
                    retry_after=str(int(wait) + 1),
                )
            self._attempts.failed(address, secret.id_of(text))
            raise Refusal(401, _why(text))
        tokens.used(token)
        return Caller(name=token.name, role=token.role, limit=token.limit, token=token.id)


def _ended(error: Exception) -> BaseException | None:
    """What it was, if an answer was broken off because its token is over."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup) and (found := cause.subgroup(TokenEnded)):
            return found.exceptions[0]
        cause = cause.__cause__
    return None


def _why(text: str) -> str:
    if not text:
        return "the Authorization header is not 'Bearer fw_…', a token of this service"
    return (
        "this token is unknown, wrong, expired or revoked; an admin can make another"
        " (forewarn token create)"
    )


class _Answer:
    """What goes out: with the headers that every answer has, and errors without secrets."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self._held: Any = None  # the start of an error, until it is whole
        self._body = bytearray()

    async def refuse(self, refusal: Refusal) -> None:
        made = problem(refusal.status, secret.hidden(refusal.detail))
        body = msgspec.json.encode(made.content)
        headers = [
            (b"content-type", b"application/problem+json"),
            (b"content-length", str(len(body)).encode()),
        ]
        for name, value in refusal.headers.items():
            headers.append((name.replace("_", "-").encode(), value.encode()))
        start = {"type": "http.response.start", "status": refusal.status, "headers": headers}
        await self._send(_dressed(start))
        await self._send({"type": "http.response.body", "body": body})

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            if message["status"] >= 400:
                self._held = message
                return
            message = _dressed(message)
        elif message["type"] == "http.response.body" and self._held is not None:
            self._body += message.get("body", b"")
            if message.get("more_body") and len(self._body) < MAX_HIDDEN_ANSWER:
                return
            await self._release(message)
            return
        await self._send(message)

    async def _release(self, message: Any) -> None:
        start, self._held = self._held, None
        body = secret.hidden_bytes(bytes(self._body))
        if body != self._body:
            kept = [(n, v) for n, v in start["headers"] if n.lower() != b"content-length"]
            start = {**start, "headers": [*kept, (b"content-length", str(len(body)).encode())]}
        await self._send(_dressed(start))
        await self._send({**message, "body": body})


def _dressed(start: Any) -> Any:
    there = [(n, v) for n, v in start["headers"] if not n.lower().startswith(b"access-control-")]
    known = {name.lower() for name, _ in there}
    there += [(name, value) for name, value in HEADERS.items() if name not in known]
    if start["status"] == 401 and b"www-authenticate" not in known:
        there.append((b"www-authenticate", b'Bearer realm="forewarn"'))
    return {**start, "headers": there}


def _no_secrets(scope: Any, headers: Headers) -> None:
    """Addresses are written down by whoever passes them on."""
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


def _one_way(scope: Any) -> None:
    """A path is written in one way, so that all who look at it see the same."""
    if "//" in scope["path"]:
        raise Refusal(404, "there is nothing at a path with '//' in it; write '/' once")


def _is_page(scope: Any) -> bool:
    return scope["method"] in ("GET", "HEAD") and scope["path"] in PAGES


def _our_name(scope: Any, headers: Headers, names: Collection[str]) -> None:
    """A page whose name was made to lead here names the host it came from."""
    said = headers.get(b"host", [])
    if not said:
        return
    name = _host(said[0])
    here = str((scope.get("server") or ("", 0))[0])
    if len(said) == 1 and name and (local(name) or name == here or _among(name, names)):
        return
    raise Refusal(
        421,
        "the control API is not asked under that name; ask its address, or add the name to"
        " control_names in the settings",
    )


def _among(name: str, names: Collection[str]) -> bool:
    return any(name == known.lower().rstrip(".") for known in names)


def _our_page(scope: Any, headers: Headers) -> None:
    """No page of anybody else's makes a browser do something here."""
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


def _readable(scope: Any, headers: Headers) -> None:
    """What a form can send without asking is not taken for a request to change something."""
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


def _host(said: bytes) -> str:
    try:
        return (urlsplit(f"//{said.decode('ascii')}").hostname or "").rstrip(".")
    except ValueError:
        return ""
