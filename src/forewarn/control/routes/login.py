"""Logging in to the portal at an OpenID Connect issuer: browsers are sent there, and come back with
a code, for which they get a session. Both addresses are pages for browsers, not operations."""

from __future__ import annotations

import html
import re
from typing import Any

from litestar import Request, Response, get
from litestar.datastructures import Cookie

from forewarn.control.http.access.authentication import Authentication
from forewarn.control.http.access.session_cookie import (
    LOGIN,
    MAX_COOKIE,
    cookie_in,
    cookie_name,
    set_cookie,
)
from forewarn.control.http.context import context
from forewarn.control.http.errors import RefusedError
from forewarn.control.http.operation import PUBLIC
from forewarn.core.refusal import unknown
from forewarn.core.time import MINUTE, SECOND
from forewarn.service.access import oidc_login
from forewarn.service.access.issuer_keys import IssuerUnavailable, Keys
from forewarn.service.access.oidc import NoAccess, Oidc, TokenRefused
from forewarn.service.access.oidc_login import LoginFailed
from forewarn.support import guard

LOGIN_PATH = "/ui/login"
RETURN_PATH = "/ui/login/done"
PATIENCE = 10 * MINUTE  # for people to log in at the issuer
NOT_OFFERED = "logging in at an OpenID Connect issuer is not configured: set oidc.client_id"

_PAGE = re.compile(r"/ui/[!#-;=?-\[\]-~]{0,1000}")  # what may be in a Location


def offered() -> str:
    """Return the path at which a browser can begin to log in; empty if there is none."""
    oidc = context().tokens.oidc
    return LOGIN_PATH if context().portal and oidc is not None and oidc.client_id else ""


@get(LOGIN_PATH, opt=PUBLIC)
async def login(request: Request[Any, Any, Any]) -> Response[Any]:
    """Send the browser to the issuer."""
    to = request.query_params.get("to", "")
    attempt = oidc_login.begin(_page(to))
    try:
        config, keys = await _issuer()
        address = oidc_login.address(config, keys, attempt, _redirect_uri(request))
    except (IssuerUnavailable, LoginFailed) as error:
        return _problem(503, f"The issuer cannot be asked: {error}.")
    cookie = set_cookie(request.scope, attempt.text, PATIENCE, LOGIN)
    return _redirect(address, cookie)


@get(RETURN_PATH, opt=PUBLIC)
async def login_done(request: Request[Any, Any, Any]) -> Response[Any]:
    """Begin a session, if the issuer says who has logged in."""
    query, scope = request.query_params, request.scope
    cookies = [value for name, value in scope["headers"] if name.lower() == b"cookie"]
    attempt = oidc_login.parse(cookie_in(scope, cookies, LOGIN))
    if attempt is None or not oidc_login.same(query.get("state", ""), attempt.state):
        return _problem(400, "This login was not begun in this browser, or too long ago.")
    if "code" not in query:
        return _problem(403, "The issuer has not let you log in.", scope)
    address = str((scope.get("client") or ("", 0))[0])
    if context().attempts.wait(address):
        return _problem(429, f"Too many logins from {address} have failed; wait a minute.", scope)
    try:
        config, keys = await _issuer()
        code, redirect_uri = query["code"], _redirect_uri(request)
        token = await oidc_login.token(config, keys, attempt, code, redirect_uri)
        identity = await context().tokens.identity(token)
        if identity is None:
            raise TokenRefused("it cannot be read")
        oidc_login.check_nonce(attempt, token)
        Authentication(context()).identified(identity)
        if len(token) > MAX_COOKIE:
            raise NoAccess("its token is too long for a cookie; ask the issuer for fewer claims")
    except IssuerUnavailable as error:
        return _problem(503, f"The token cannot be verified: {error}.", scope)
    except NoAccess as error:
        return _problem(403, f"You have logged in, but have no access: {error}.", scope)
    except (LoginFailed, TokenRefused) as error:
        context().attempts.failed(address, "")
        return _problem(401, f"You could not be logged in: {error}.", scope)
    lasts = round((identity.expires_at - guard.wall_us() / SECOND) * SECOND)
    return _redirect(_page(attempt.to), set_cookie(scope, token, max(lasts, 0)), ended=scope)


async def _issuer() -> tuple[Oidc, Keys]:
    found = await context().tokens.issuer() if context().portal else None
    if found is None:
        raise RefusedError(unknown(NOT_OFFERED))
    return found


def _page(to: str) -> str:
    """Return a page of the portal: `to`, which a link or a cookie names, if it is one."""
    return to if _PAGE.fullmatch(to) else "/ui/"


def _redirect_uri(request: Request[Any, Any, Any]) -> str:
    """Return the address of this service that the browser uses, at which it comes back."""
    host = request.headers.get("host", "")
    return f"{request.scope.get('scheme', 'http')}://{host}{RETURN_PATH}"


def _redirect(address: str, cookie: str, ended: Any = None) -> Response[Any]:
    headers = {"Location": address, "Set-Cookie": cookie, "Cache-Control": "no-store"}
    return Response("", status_code=303, headers=headers, cookies=_forget(ended))


def _problem(status: int, text: str, ended: Any = None) -> Response[Any]:
    page = (
        "<!doctype html><html lang=en><meta charset=utf-8><title>forewarn</title>"
        f"<p>{html.escape(text)}</p><p><a href=/ui/>To the portal</a></p>"
    )
    headers = {"Cache-Control": "no-store"}
    cookies = _forget(ended)
    return Response(
        page, status_code=status, media_type="text/html", headers=headers, cookies=cookies
    )


def _forget(scope: Any) -> list[Cookie]:
    """Return what deletes the cookie of a login that is over."""
    if scope is None:
        return []
    secure = scope.get("scheme") == "https"
    name = cookie_name(scope, LOGIN)
    return [Cookie(key=name, value="", max_age=0, httponly=True, secure=secure, samesite="lax")]
