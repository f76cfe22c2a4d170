"""Whether a certificate and its key can be used, and until when: found out by shaking hands with
oneself in memory, which is what they are for. Nothing is sent anywhere.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import msgspec

EXPIRES_SOON = 14 * 86_400  # seconds; a certificate that ends earlier is warned of
_EXPIRED, _NOT_YET = 10, 9  # as OpenSSL numbers them


class Pair(msgspec.Struct, frozen=True):
    """What was found. With a problem, nothing else is known."""

    problem: str = ""
    ends: float = 0.0  # seconds since 1970
    names: tuple[str, ...] = ()  # for which it is good


def examine(certificate: Path, key: Path) -> Pair:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        text = certificate.read_text("ascii", "replace")
        key.read_bytes()
    except OSError as error:
        return Pair(f"{error.filename}: {error.strerror}")
    try:
        server.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            return Pair(f"{key} is not the key of {certificate}")
        return Pair(f"{certificate} and {key} cannot be used: {error.reason or error}")
    except (OSError, ValueError) as error:
        return Pair(f"{certificate} and {key} cannot be used: {error}")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it vouches for itself here
    try:
        client.load_verify_locations(cadata=_first(text))
        return _read(_shaken(server, client))
    except ssl.SSLCertVerificationError as error:
        says = {_EXPIRED: "has expired", _NOT_YET: "is not valid yet"}
        return Pair(f"{certificate} {says.get(error.verify_code, error.verify_message)}")
    except (ssl.SSLError, ValueError) as error:
        return Pair(f"{certificate} and {key} cannot be used: {error}")


def _first(text: str) -> str:
    """The certificate itself, without the rest of its chain."""
    end = "-----END CERTIFICATE-----"
    return text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)]


def _shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """The certificate as the other side sees it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = server.wrap_bio(to_server, to_client, server_side=True)
    here = client.wrap_bio(to_client, to_server)
    waiting = [here, there]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    return here.getpeercert() or {}


def _read(certificate: dict[str, Any]) -> Pair:
    names = tuple(name for _, name in certificate.get("subjectAltName", ()))
    return Pair(ends=ssl.cert_time_to_seconds(certificate["notAfter"]), names=names)
