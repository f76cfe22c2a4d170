"""Checks whether a certificate and its key can be used, and until when.

This is done with a TLS handshake in memory, between a server with this certificate and a client
that trusts it; or, for the certificate of a client, the other way round. Nothing is sent over the
network.
"""

from __future__ import annotations

import ssl
import stat
from pathlib import Path
from typing import Any

import msgspec

EXPIRES_SOON = 14 * 86_400  # seconds before the end of a certificate from which on it is reported
_EXPIRED, _NOT_YET = 10, 9  # X509_V_ERR_CERT_HAS_EXPIRED, X509_V_ERR_CERT_NOT_YET_VALID
_FROM_ANOTHER = (18, 20, 21)  # its issuer is not among those that are trusted


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, as examined. If there is a problem, nothing else is known."""

    problem: str = ""
    usable: bool = True  # False: a server cannot use the pair; otherwise, clients will refuse it
    begins: float = 0.0  # seconds since 1970
    expires: float = 0.0
    names: tuple[str, ...] = ()  # the certificate's subject alternative names

    @property
    def soon(self) -> float:
        """How many seconds before its end the certificate of a node is reported: one that is not
        valid for long is renewed by itself."""
        return min(EXPIRES_SOON, (self.expires - self.begins) / 4)


def examine(
    certificate: Path, key: Path, authority: Path | None = None, *, of_client: bool = False
) -> Pair:
    """Examine a pair: of a server, or of a client. With an authority, the certificate must be from
    it; otherwise it does not matter who issued it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    try:
        text = certificate.read_text("ascii", "replace")
        key.read_bytes()
        trusted = authority.read_text("ascii", "replace") if authority else _first(text)
    except OSError as error:
        return Pair(f"{error.filename}: {error.strerror}", usable=False)
    try:
        for context in (server, client):
            context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            return Pair(f"{key} is not the key of {certificate}", usable=False)
        reason = error.reason or error
        return Pair(f"{certificate} and {key} cannot be used: {reason}", usable=False)
    except (OSError, ValueError) as error:
        return Pair(f"{certificate} and {key} cannot be used: {error}", usable=False)
    verifying, other = (server, client) if of_client else (client, server)
    other.verify_mode, verifying.verify_mode = ssl.CERT_NONE, ssl.CERT_REQUIRED
    if authority is None:
        verifying.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trusted without its issuer
    try:
        verifying.load_verify_locations(cadata=trusted)
    except (ssl.SSLError, ValueError):
        if authority is not None:
            return Pair(f"{authority} contains no certificate (PEM)", usable=False)
        raise
    try:
        return _pair(_handshake(server, client, of_client=of_client))
    except ssl.SSLCertVerificationError as error:
        if authority is not None and error.verify_code in _FROM_ANOTHER:
            return Pair(f"{certificate} was not issued by {authority}", usable=False)
        problems = {_EXPIRED: "has expired", _NOT_YET: "is not valid yet"}
        return Pair(f"{certificate} {problems.get(error.verify_code, error.verify_message)}")
    except (ssl.SSLError, ValueError) as error:
        return Pair(f"{certificate} and {key} cannot be used: {error}")


def readable_by_all(key: Path) -> bool:
    """Whether every user can read a key. Its group may: it can be the service's."""
    return bool(stat.S_IMODE(key.stat().st_mode) & 0o007)


def _first(text: str) -> str:
    """Return the first certificate of a PEM file, without the rest of the chain."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return begin + text.partition(begin)[2].partition(end)[0] + end


def _handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, *, of_client: bool
) -> dict[str, Any]:
    """Connect the two in memory, and return the certificate of one as the other sees it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    client_side = client.wrap_bio(to_client, to_server)
    unfinished = [client_side, server_side]
    while unfinished:
        for side in list(unfinished):
            try:
                side.do_handshake()
                unfinished.remove(side)
            except ssl.SSLWantReadError:
                continue
    return (server_side if of_client else client_side).getpeercert() or {}


def _pair(certificate: dict[str, Any]) -> Pair:
    names = tuple(name for _, name in certificate.get("subjectAltName", ()))
    begins, expires = (
        ssl.cert_time_to_seconds(certificate[key]) for key in ("notBefore", "notAfter")
    )
    return Pair(begins=begins, expires=expires, names=names)
