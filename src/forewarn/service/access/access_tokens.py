"""Access tokens: short-lived JWTs that stand for a token, for clients that only send those.

They are signed with a key that is derived from the token's secret, which only its owner knows: in
the state is the public key alone, so whoever reads the state can make none. Nothing else is stored,
and every control node can verify them, also after a restart. They end with their token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from importlib import import_module
from typing import Any

import msgspec

from forewarn.core import Refused
from forewarn.core.access import Token
from forewarn.core.refusal import unknown
from forewarn.core.registry import TokenPut
from forewarn.core.time import SECOND
from forewarn.service.engine.writer import CommitPlan, Writer
from forewarn.store.port import States, Store
from forewarn.support import guard

ACCESS_LIFE = 3_600  # seconds; clients ask for another one some minutes before that
LEEWAY = 60  # seconds by which the clocks of control nodes may differ
ALGORITHM = "EdDSA"
CHANGED = "public-key"  # in a commit: what has changed about a token
CLAIM = "appid"  # the id of the token that it stands for

_DERIVED = b"forewarn access token"


class AccessTokenExpired(Exception):
    """An access token of ours has expired; its owner can have another one."""


class AccessTokens:
    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer

    async def issue(self, token: Token, text: str, claims: dict[str, Any]) -> str | Refused:
        """Return an access token for a valid token with this text, with more claims."""
        key = _private_key(text)
        public = key.public_key().public_bytes_raw().hex()
        if token.public_key != public:
            refused = await self._publish(token.id, public)
            if refused is not None:
                return refused
        return _signed({**claims, CLAIM: token.id}, key, ALGORITHM)

    async def _publish(self, token_id: str, public: str) -> Refused | None:
        """Store the public key of a token."""

        def plan(states: States) -> CommitPlan | Refused:
            token, now = states.registry.tokens.get(token_id), self._writer.now().at
            if token is None or not token.valid(now):
                return unknown("the token has ended")
            changed = msgspec.structs.replace(token, public_key=public)
            return CommitPlan(puts=[TokenPut(changed, CHANGED, token.name)])

        outcome = await self._writer.commit(plan)
        return outcome if isinstance(outcome, Refused) else None

    def find(self, text: str) -> Token | None:
        """Return the valid token that an access token stands for; None if it is not one of ours, or
        the token has ended. Raises AccessTokenExpired."""
        jwt: Any = import_module("jwt")
        try:
            claimed = jwt.decode(text, options={"verify_signature": False}).get(CLAIM)
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None
        token = self._store.registry.tokens.get(claimed) if isinstance(claimed, str) else None
        if token is None or not isinstance(token.public_key, str):
            return None
        try:
            jwt.decode(
                text,
                _public_key(token.public_key),
                [ALGORITHM],
                leeway=LEEWAY,
                options={"require": ["exp", "iat"], "verify_aud": False},
            )
        except jwt.ExpiredSignatureError as error:
            raise AccessTokenExpired("the access token has expired") from error
        except (jwt.PyJWTError, ValueError, OverflowError, TypeError):
            return None
        return token if token.valid(self._writer.now().at) else None


def unverified(claims: dict[str, Any]) -> str:
    """Return an access token for local programs, while no tokens are needed: nobody verifies it."""
    return _signed({**claims, CLAIM: "local"}, secrets.token_bytes(32), "HS256")


def _signed(claims: dict[str, Any], key: Any, algorithm: str) -> str:
    now = guard.wall_us() // SECOND
    times = {"iat": now, "nbf": now - LEEWAY, "exp": now + ACCESS_LIFE}
    signed: str = import_module("jwt").encode({**claims, **times}, key, algorithm)
    return signed


def _private_key(text: str) -> Any:
    ed25519 = import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    seed = hmac.digest(text.encode(), _DERIVED, hashlib.sha256)
    return ed25519.Ed25519PrivateKey.from_private_bytes(seed)


def _public_key(digits: str) -> Any:
    ed25519 = import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    return ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(digits))
