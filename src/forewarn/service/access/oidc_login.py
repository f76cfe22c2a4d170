"""Logging in at an OpenID Connect issuer with a browser: the authorization code flow with PKCE.

A browser that is sent to the issuer keeps an `Attempt` in a cookie meanwhile, so that nothing of it
is stored here, and any control node can go on with it. `state` shows that the answer belongs to the
attempt of this browser, `nonce` that the token does, and only who has the `verifier` gets a token
for the code.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode

import msgspec

from forewarn.service.access.issuer_keys import FETCH_TIMEOUT, MAX_DOCUMENT, Keys
from forewarn.service.access.oidc import Oidc, TokenRefused
from forewarn.support.fetch import FetchFailed, fetch

BYTES = 32  # of each secret
_ATTEMPT = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{64})\.([0-9a-f]{64})\.([A-Za-z0-9_-]{0,2000})")


class LoginFailed(Exception):
    """The issuer has not given a token; the message says why."""


class Attempt(msgspec.Struct, frozen=True):
    state: str
    nonce: str
    verifier: str
    to: str  # the page to which the browser returns

    @property
    def text(self) -> str:
        to = base64.urlsafe_b64encode(self.to.encode()).decode().rstrip("=")
        return f"{self.state}.{self.nonce}.{self.verifier}.{to}"


class _Answer(msgspec.Struct):
    id_token: str = ""
    error: str = ""


def begin(to: str) -> Attempt:
    state, nonce, verifier = (secrets.token_hex(BYTES) for _ in range(3))
    return Attempt(state, nonce, verifier, to)


def parse(text: str) -> Attempt | None:
    """Return the attempt that a cookie contains; None if it contains none."""
    match = _ATTEMPT.fullmatch(text)
    if match is None:
        return None
    try:
        to = base64.urlsafe_b64decode(match[4] + "=" * (-len(match[4]) % 4)).decode()
    except ValueError:
        return None
    return Attempt(match[1], match[2], match[3], to)


def address(config: Oidc, keys: Keys, attempt: Attempt, redirect_uri: str) -> str:
    """Return where a browser is sent to log in. Raises LoginFailed."""
    if not keys.authorization_endpoint or not keys.token_endpoint:
        raise LoginFailed("the issuer names no endpoints at which browsers can log in")
    digest = hashlib.sha256(attempt.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": config.client_id,
        "redirect_uri": redirect_uri,
        "scope": config.scope,
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
    }
    glue = "&" if "?" in keys.authorization_endpoint else "?"
    return f"{keys.authorization_endpoint}{glue}{urlencode(query)}"


async def token(config: Oidc, keys: Keys, attempt: Attempt, code: str, redirect_uri: str) -> str:
    """Exchange a code for an ID token, which has not been verified. Raises LoginFailed."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "client_id": config.client_id,
        "code_verifier": attempt.verifier,
    }
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    try:
        if config.client_secret_file:
            secret = await asyncio.to_thread(Path(config.client_secret_file).read_text, "utf-8")
            pair = f"{quote_plus(config.client_id)}:{quote_plus(secret.strip())}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        async with asyncio.timeout(FETCH_TIMEOUT):
            answer = await fetch(
                keys.token_endpoint,
                method="POST",
                headers=headers,
                body=urlencode(form).encode(),
                max_body=MAX_DOCUMENT,
                ca=config.ca,
            )
        found = msgspec.json.decode(answer.body, type=_Answer)
    except TimeoutError:
        raise LoginFailed(f"the issuer takes longer than {FETCH_TIMEOUT:g} s") from None
    except OSError as error:
        raise LoginFailed(f"oidc.client_secret_file: {error.strerror}") from error
    except (FetchFailed, ValueError) as error:
        raise LoginFailed(f"the issuer gave no token: {error}") from error
    if answer.status != 200 or not found.id_token:
        why = found.error if re.fullmatch("[a-z_]{1,40}", found.error) else "without a reason"
        raise LoginFailed(f"the issuer gave no token: {why}, with status {answer.status}")
    return found.id_token


def check_nonce(attempt: Attempt, verified: str) -> None:
    """Check that a token, which has been verified, is the answer to an attempt. Raises
    TokenRefused."""
    jwt: Any = import_module("jwt")
    nonce = jwt.decode(verified, options={"verify_signature": False}).get("nonce")
    if not isinstance(nonce, str) or not same(nonce, attempt.nonce):
        raise TokenRefused("it was issued for another login (claim nonce)")


def same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
