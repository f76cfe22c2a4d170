"""Tokens of an OpenID Connect issuer: the settings `[oidc]`, and whom a token stands for.

A token is verified with a public key of the issuer; where the keys come from is `issuer_keys.py`.
The groups that a token names are mapped to a role and to limits by `[[oidc.access]]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from forewarn.core.access import Limit, Role, local
from forewarn.core.labels import parse
from forewarn.core.time import HOUR, SECOND
from forewarn.support.text import counted, listing, parse_duration

# Public-key signatures only: with a shared secret, whoever can verify a token can also make one.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
MAX_TOKEN = 16 * 1024  # characters of a token
MAX_NAME = 128  # characters of a subject's name
MAX_LEEWAY = HOUR // SECOND  # seconds
VERIFIED = (True, "true")  # some issuers write it as a text
SHOWN_GROUPS = 5  # of those that a token names and that give no access

_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*", re.ASCII)


class AccessRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the members of one group of the issuer may do: a table [[oidc.access]]."""

    member_of: str  # a value of the groups claim
    role: Role
    groups: tuple[str, ...] = ()  # that they are limited to
    label: str = ""  # selector of groups that they are limited to

    @property
    def limit(self) -> Limit:
        return Limit(groups=self.groups, labels=parse(self.label))


class Oidc(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings `[oidc]`."""

    issuer: str  # its URL, exactly as in the claim `iss`
    audience: str | tuple[str, ...]  # for whom tokens must be issued: the claim `aud`
    name_claim: str = "sub"  # the name in the history
    groups_claim: str = "groups"
    algorithms: tuple[str, ...] = ("RS256", "PS256", "ES256", "EdDSA")
    leeway: str = "30s"  # by which the issuer's clock may differ
    ca: str = ""  # CA bundle (PEM) that verifies the issuer's certificate; empty: the system's
    access: tuple[AccessRule, ...] = ()
    # With which browsers are sent to the issuer to log in; empty: they are not.
    client_id: str = ""
    client_secret_file: str = ""  # if the issuer wants one from this client
    scope: str = "openid"  # what is asked for, so that the claims above are in the token

    @property
    def audiences(self) -> list[str]:
        return [self.audience] if isinstance(self.audience, str) else list(self.audience)

    @property
    def leeway_seconds(self) -> float:
        return parse_duration(self.leeway) / SECOND

    @property
    def has_admins(self) -> bool:
        return any(rule.role is Role.ADMIN for rule in self.access)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the key and a message for each value that cannot be used."""
        if find_spec("jwt") is None:
            yield "issuer", "PyJWT is not installed: pip install 'forewarn[server]'"
        if problem := url_problem(self.issuer):
            yield "issuer", problem
        if not self.audiences or not all(text.strip() for text in self.audiences):
            yield "audience", "must not be empty, or tokens for any other service would be accepted"
        for key in ("name_claim", "groups_claim"):
            if not getattr(self, key).strip():
                yield key, "must be the name of a claim"
        unknown = [name for name in self.algorithms if name not in ALGORITHMS]
        if unknown or not self.algorithms:
            names = f"{listing(unknown)} cannot be used; " if unknown else ""
            yield "algorithms", f"{names}choose from {', '.join(ALGORITHMS)}"
        try:
            if self.leeway_seconds > MAX_LEEWAY:
                yield "leeway", "must be at most 1h"
        except ValueError as error:
            yield "leeway", str(error)
        if self.ca and not Path(self.ca).is_file():
            yield "ca", f"there is no file {self.ca}"
        if self.client_id and self.client_id not in self.audiences:
            yield "client_id", "must be in audience, or the tokens that it gets are refused"
        if self.client_secret_file and not Path(self.client_secret_file).is_file():
            yield "client_secret_file", f"there is no file {self.client_secret_file}"
        if "openid" not in self.scope.split():
            yield "scope", "must contain openid, or the issuer sends no ID token"
        if not self.access:
            yield "access", "is missing: add a table [[oidc.access]], or nobody has access"
        for number, rule in enumerate(self.access):
            for key, problem in rule_problems(rule):
                yield f"access[{number}]{key}", problem


def rule_problems(rule: AccessRule) -> Iterator[tuple[str, str]]:
    if not rule.member_of.strip():
        yield ".member_of", "must be the name of a group of the issuer"
    try:
        limited = not rule.limit.none
    except ValueError as error:
        yield ".label", str(error)
        return
    if rule.role is Role.TENANT and not limited:
        yield "", "a tenant must be limited: add groups or label"
    if rule.role is Role.ADMIN and limited:
        yield "", "an admin cannot be limited; leave groups and label out, or choose another role"


def url_problem(url: str) -> str:
    """Return why keys must not be fetched from a URL, or ""."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return f"'{url}' is not a URL"
    if parts.scheme not in ("https", "http") or not host or parts.query or parts.fragment:
        return f"'{url}' must be a URL such as https://login.example.net, without a query"
    if parts.scheme == "http" and not local(host):
        return f"'{url}' must begin with https://, or anybody on the way could issue tokens"
    return ""


class PublicKey(msgspec.Struct, frozen=True):
    key: Any  # of the library `cryptography`
    algorithm: str | None = None  # the only one that it is for, if the issuer says so


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a token stands for, and what they may do."""

    subject: str  # unique among those of all issuers
    name: str
    role: Role
    limit: Limit
    expires_at: float  # seconds of the wall clock
    config: Oidc  # by which it was accepted


class TokenRefused(Exception):
    """The token is not valid here."""


class NoAccess(Exception):
    """The token is valid, but gives no access here."""


def is_token(text: str) -> bool:
    """Does a text have the form of a signed token (JWS)?"""
    return len(text) <= MAX_TOKEN and _FORM.fullmatch(text) is not None


def key_id(config: Oidc, text: str) -> str | None:
    """Return the id of the key that a token claims to be signed with; None if it names none.
    Raises TokenRefused if no key could be right."""
    import jwt

    try:
        header = jwt.get_unverified_header(text)
    except jwt.PyJWTError as error:
        raise TokenRefused("it cannot be read") from error
    if header.get("alg") not in config.algorithms:
        raise TokenRefused(f"it must be signed with {' or '.join(config.algorithms)}")
    kid = header.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise TokenRefused("it cannot be read")
    return kid


def identify(config: Oidc, text: str, key: PublicKey) -> Identity:
    """Verify a token with a public key. Raises TokenRefused and NoAccess."""
    import jwt

    algorithms = [name for name in config.algorithms if key.algorithm in (None, name)]
    try:
        claims: dict[str, Any] = jwt.decode(
            text,
            key.key,
            algorithms=algorithms,
            audience=config.audiences,
            issuer=config.issuer,
            leeway=config.leeway_seconds,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        expires = float(claims["exp"]) + config.leeway_seconds
    except jwt.ExpiredSignatureError as error:
        raise TokenRefused("it has expired; sign in again") from error
    except jwt.InvalidAudienceError as error:
        raise TokenRefused(f"it is not for {' or '.join(config.audiences)} (claim aud)") from error
    except jwt.InvalidIssuerError as error:
        raise TokenRefused(f"it is not from {config.issuer} (claim iss)") from error
    except jwt.ImmatureSignatureError as error:
        raise TokenRefused("it is not valid yet (claims nbf and iat)") from error
    except jwt.MissingRequiredClaimError as error:
        raise TokenRefused(f"it has no claim {error.claim}") from error
    except (jwt.PyJWTError, TypeError, ValueError, OverflowError) as error:
        raise TokenRefused("its signature or its claims cannot be verified") from error
    name = _name(config, claims)
    rules = _matching(config, claims, name)
    role = max((rule.role for rule in rules), key=list(Role).index)
    limit = _united(rule.limit for rule in rules if rule.role is role)
    subject = f"oidc {config.issuer} {claims['sub']}"
    return Identity(
        subject=subject, name=name, role=role, limit=limit, expires_at=expires, config=config
    )


def _name(config: Oidc, claims: Mapping[str, Any]) -> str:
    name = _claim(claims, config.name_claim)
    if not isinstance(name, str) or not 1 <= len(name.strip()) <= MAX_NAME:
        raise NoAccess(
            f"the token has no name for the history: the claim {config.name_claim} must be a string"
            f" of 1 to {MAX_NAME} characters"
        )
    if not name.isprintable() or name != name.strip():
        raise NoAccess(f"the name in the claim {config.name_claim} cannot be shown in the history")
    if config.name_claim == "email" and claims.get("email_verified", True) not in VERIFIED:
        raise NoAccess(f"the issuer has not verified the e-mail address '{name}'")
    return name


def _matching(config: Oidc, claims: Mapping[str, Any], name: str) -> list[AccessRule]:
    claim = _claim(claims, config.groups_claim)
    groups = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
    members = {group for group in groups if isinstance(group, str)}
    rules = [rule for rule in config.access if rule.member_of in members]
    if rules:
        return rules
    if not members:
        raise NoAccess(
            f"the token of '{name}' names no groups: the claim {config.groups_claim} is missing or"
            " empty"
        )
    shown = [group for group in sorted(members) if group.isprintable()][:SHOWN_GROUPS]
    raise NoAccess(
        f"none of the {counted(len(members), 'group')} of '{name}' gives access to this service"
        f" ({listing(shown)}); an admin can add one to [[oidc.access]] in the settings"
    )


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim; a dot in its name leads into an object, as in realm_access.roles."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _united(limits: Iterable[Limit]) -> Limit:
    """Return the limit that allows what any of these allows."""
    all_limits = list(limits)
    if any(limit.none for limit in all_limits):
        return Limit()
    selectors = dict.fromkeys(limit.labels for limit in all_limits if limit.labels)
    first, *others = selectors or [()]
    return Limit(
        groups=tuple(dict.fromkeys(name for limit in all_limits for name in limit.groups)),
        labels=first,
        other_labels=tuple(others),
    )
