"""The public keys of an OpenID Connect issuer: fetched from its discovery document, and kept.

Requests are answered with the keys that are known. Keys are fetched again, beside them, when they
are old, and when a token names one that is not known, but not too often: anybody can send such
tokens. An issuer that does not answer locks nobody out whose key is known.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

import msgspec

from forewarn.service.access.oidc import Oidc, PublicKey, url_problem
from forewarn.support import guard
from forewarn.support.fetch import FetchFailed, fetch
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

FETCH_TIMEOUT = 5.0  # seconds of guard time for a document, and for a request that waits
FETCH_PAUSE = 30.0  # seconds between two fetches
FRESH_FOR = 600.0  # seconds, then they are fetched again beside requests
STALE_AFTER = 3_600.0  # seconds, then a request waits for newer ones
MAX_DOCUMENT = 512 * 1024  # bytes
MAX_KEYS = 100
KEY_TYPES = ("RSA", "EC", "OKP")  # asymmetric ones
DISCOVERY = "/.well-known/openid-configuration"

log = logger("forewarn.control")


class IssuerUnavailable(Exception):
    """No keys can be fetched; the message says why."""


class Keys(msgspec.Struct, frozen=True):
    by_id: dict[str, PublicKey]
    unnamed: tuple[PublicKey, ...] = ()
    # Where browsers log in, and where a code is exchanged for a token; empty: the issuer has none.
    authorization_endpoint: str = ""
    token_endpoint: str = ""

    def find(self, id: str | None) -> PublicKey | None:
        """Return a key, or None. A token that names none can only be meant for a single one."""
        if id is not None:
            return self.by_id.get(id)
        all_keys = (*self.by_id.values(), *self.unnamed)
        return all_keys[0] if len(all_keys) == 1 else None


class _Document(msgspec.Struct):
    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


class IssuerKeys:
    def __init__(self, config: Oidc, tasks: guard.Tasks) -> None:
        self._config = config
        self._tasks = tasks
        self._keys: Keys | None = None
        self._fetched = 0.0  # guard time
        self._tried: float | None = None
        self._problem = "they have not been fetched yet"
        self._fetching: asyncio.Task[None] | None = None
        self._failures = LogThrottle()

    def fetch(self) -> None:
        """Fetch the keys beside everything else, unless that was done a moment ago."""
        now = guard.monotonic()
        if self._fetching is None and (self._tried is None or now - self._tried >= FETCH_PAUSE):
            self._tried = now
            self._fetching = self._tasks.start(self._fetch(), "keys of the OIDC issuer")

    async def current(self) -> Keys:
        """Return the keys that are known, once there are any. Raises IssuerUnavailable."""
        age = guard.monotonic() - self._fetched
        if self._keys is None or age >= STALE_AFTER:
            await self._newer()
        elif age >= FRESH_FOR:
            self.fetch()
        if self._keys is None:
            raise IssuerUnavailable(self._problem)
        return self._keys

    async def find(self, id: str | None) -> PublicKey | None:
        """Return the key with this id, or None if the issuer has no such key. Raises
        IssuerUnavailable, also if the issuer cannot be asked whether it has a new one."""
        key = (await self.current()).find(id)
        if key is None:
            await self._newer()
            key = (await self.current()).find(id)
        if key is None and (self._problem or self._fetching is not None):
            raise IssuerUnavailable(self._problem or "the issuer does not answer")
        return key

    async def _newer(self) -> None:
        self.fetch()
        if self._fetching is not None:
            await asyncio.wait([self._fetching], timeout=FETCH_TIMEOUT)

    async def _fetch(self) -> None:
        try:
            self._keys = await fetch_keys(self._config)
            self._fetched = guard.monotonic()
            self._problem = ""
        except IssuerUnavailable as error:
            self._problem = str(error)
            if times := self._failures.record():
                log.warning(
                    "the keys of the OIDC issuer cannot be fetched",
                    issuer=self._config.issuer,
                    why=self._problem,
                    keys="those known are used" if self._keys else "none is known",
                    times=times,
                )
        finally:
            self._fetching = None


async def fetch_keys(config: Oidc) -> Keys:
    """Fetch the keys of an issuer. Raises IssuerUnavailable."""
    await asyncio.to_thread(import_module, "jwt")  # which takes a while, and is needed next
    document = await _get(config, config.issuer.rstrip("/") + DISCOVERY, _Document)
    if document.issuer != config.issuer:
        raise IssuerUnavailable(
            f"the issuer calls itself '{document.issuer}'; oidc.issuer must be exactly that"
        )
    if problem := url_problem(document.jwks_uri):
        raise IssuerUnavailable(f"jwks_uri of the issuer: {problem}")
    keys = parse_keys((await _get(config, document.jwks_uri, _KeySet)).keys)
    if not keys.by_id and not keys.unnamed:
        raise IssuerUnavailable(f"{document.jwks_uri} has no key that can be used for signatures")
    for endpoint in filter(None, (document.authorization_endpoint, document.token_endpoint)):
        if problem := url_problem(endpoint.partition("?")[0]):
            raise IssuerUnavailable(f"an endpoint of the issuer: {problem}")
    return msgspec.structs.replace(
        keys,
        authorization_endpoint=document.authorization_endpoint,
        token_endpoint=document.token_endpoint,
    )


def parse_keys(raw: list[dict[str, Any]]) -> Keys:
    """Return the keys for signatures. Others, and those of unknown types, are left out."""
    import jwt

    by_id: dict[str, PublicKey] = {}
    unnamed: list[PublicKey] = []
    for item in raw[:MAX_KEYS]:
        if item.get("kty") not in KEY_TYPES or item.get("use", "sig") != "sig":
            continue
        try:
            key = PublicKey(jwt.PyJWK(item).key, item.get("alg"))
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        if isinstance(id := item.get("kid"), str):
            by_id[id] = key
        else:
            unnamed.append(key)
    return Keys(by_id, tuple(unnamed))


async def _get(config: Oidc, url: str, kind: Any) -> Any:
    """Fetch a JSON document, however slowly it comes, within the time that it may take."""
    try:
        async with asyncio.timeout(FETCH_TIMEOUT):
            answer = await fetch(url, max_body=MAX_DOCUMENT, ca=config.ca)
        if answer.status != 200:
            raise IssuerUnavailable(f"{url} answered {answer.status}")
        return msgspec.json.decode(answer.body, type=kind)
    except TimeoutError:
        raise IssuerUnavailable(f"{url} takes longer than {FETCH_TIMEOUT:g} s") from None
    except (FetchFailed, ValueError) as error:
        raise IssuerUnavailable(f"{url}: {error}") from error
