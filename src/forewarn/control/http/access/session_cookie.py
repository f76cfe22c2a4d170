"""The cookie of a browser's session.

Over TLS, its name makes the browser insist on TLS, on this very host and on the path `/`. Without
TLS, which is possible on loopback only, it has another name. Either way no script can read it, and
requests that other sites cause do not have it.
"""

from __future__ import annotations

from typing import Any

from forewarn.core.time import SECOND, Duration

SECURE_NAME = "__Host-forewarn"
LOCAL_NAME = "forewarn"
MAX_COOKIE = 3_800  # bytes of a value that browsers keep


LOGIN = "-login"  # of the name of the cookie of a browser that is logging in elsewhere


def cookie_name(scope: Any, suffix: str = "") -> str:
    return (SECURE_NAME if scope.get("scheme") == "https" else LOCAL_NAME) + suffix


def cookie_in(scope: Any, values: list[bytes], suffix: str = "") -> str:
    """Return the value of the session's cookie in the Cookie headers; empty if there is none."""
    name = cookie_name(scope, suffix).encode()
    for value in values:
        for part in value.split(b";"):
            key, _, found = part.strip().partition(b"=")
            if key == name:
                return found.decode("latin-1")
    return ""


def without_session(scope: Any, values: list[bytes]) -> list[bytes]:
    """Return the Cookie headers without the session's cookie, which may contain a token."""
    name = cookie_name(scope).encode()
    return [
        b";".join(part for part in value.split(b";") if part.strip().partition(b"=")[0] != name)
        for value in values
    ]


def set_cookie(scope: Any, value: str, lasts: Duration, suffix: str = "") -> str:
    """Return a Set-Cookie header; a duration of 0 deletes the cookie. That of a login is also sent
    when the issuer leads the browser back, and no other one is."""
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    return (
        f"{cookie_name(scope, suffix)}={value}; Path=/; Max-Age={lasts // SECOND}; HttpOnly;"
        f" SameSite={'Lax' if suffix else 'Strict'}{secure}"
    )
