"""The authority that control keeps: it issues the certificates of nodes, and of control for nodes.

It is a directory with a certificate and its key, which all control nodes have. It is not part of
the state, so that no backup and no dump contains the key.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.core.time import DAY, SECOND, Duration, Time
from forewarn.support import guard
from forewarn.support.instants import to_datetime

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

CERTIFICATE, KEY = "authority.pem", "authority.key"  # files of its directory
NODE_URI = "forewarn:node:"  # and the host's name, in the certificate of its node
AUTHORITY_LIFE: Duration = 3_650 * DAY
BACKDATED = 10  # a certificate is valid since a tenth of its life: clocks of hosts may be behind
MAX_REQUEST = 4_096  # characters of a request for a certificate; one for a P-256 key has 300
_COMMON_NAME = 64  # characters that a common name may have

_FIRST = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class AuthorityUnusable(Exception):
    """The authority cannot be used, or not be created; the message says why."""


class RequestInvalid(Exception):
    """A request for a certificate cannot be fulfilled; the message says why."""


class Authority:
    def __init__(self, directory: Path) -> None:
        """Load the authority in a directory. Raises AuthorityUnusable."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec, rsa
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            self.trusted = (directory / CERTIFICATE).read_text("ascii", "replace")
            pem = (directory / KEY).read_bytes()
        except OSError as error:
            raise AuthorityUnusable(f"{error.filename}: {error.strerror}") from error
        try:
            self._certificate = x509.load_pem_x509_certificate(self.trusted.encode())
        except ValueError as error:
            problem = f"{directory / CERTIFICATE} contains no certificate (PEM)"
            raise AuthorityUnusable(problem) from error
        try:
            key = load_pem_private_key(pem, None)
        except (ValueError, TypeError) as error:
            problem = f"{directory / KEY} must be a key (PEM) without a password"
            raise AuthorityUnusable(problem) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise AuthorityUnusable(f"{directory / KEY} must be a key for ECDSA or RSA")
        if key.public_key() != self._certificate.public_key():
            raise AuthorityUnusable(f"{directory / KEY} is not the key of {CERTIFICATE} beside it")
        if not _may_issue(self._certificate):
            problem = f"{directory / CERTIFICATE} may not issue certificates (CA:TRUE)"
            raise AuthorityUnusable(problem)
        self._key = key

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the authority's certificate, in hexadecimal digits."""
        from cryptography.hazmat.primitives import hashes

        return self._certificate.fingerprint(hashes.SHA256()).hex()

    @property
    def pem(self) -> str:
        """The authority's own certificate, without others that are in its file."""
        found = _FIRST.search(self.trusted)
        assert found is not None
        return found[0] + "\n"

    @property
    def expires(self) -> Time:
        return round(self._certificate.not_valid_after_utc.timestamp() * SECOND)

    def issue_for_host(
        self, key: EllipticCurvePublicKey, host: str, life: Duration, prefix: str = NODE_URI
    ) -> str:
        """Return a certificate (PEM) for the node of a host, or for whom else the prefix means."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        name = x509.UniformResourceIdentifier(f"{prefix}{host}")
        return self._issue(key, host, [name], ExtendedKeyUsageOID.CLIENT_AUTH, life)

    def issue_for_control(self, names: Iterable[str], life: Duration) -> tuple[str, bytes]:
        """Return a certificate for these names and addresses, and its key (both PEM)."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH
        certificate = self._issue(
            key.public_key(), "forewarn control", general_names(names), usage, life
        )
        return certificate, key_pem(key)

    def has_issued(self, certificate: bytes) -> bool:
        """Return whether a certificate (DER), which TLS has accepted, is from this authority."""
        from cryptography import x509

        try:
            x509.load_der_x509_certificate(certificate).verify_directly_issued_by(self._certificate)
        except Exception:  # what it raises depends on what differs
            return False
        return True

    def _issue(
        self,
        key: EllipticCurvePublicKey,
        subject: str,
        names: Iterable[x509.GeneralName],
        usage: x509.ObjectIdentifier,
        life: Duration,
    ) -> str:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        now, end = guard.wall_us(), self.expires
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(subject[:_COMMON_NAME]))
            .issuer_name(self._certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(to_datetime(now - life // BACKDATED))
            .not_valid_after(to_datetime(min(now + life, end)))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM).decode()


def create_authority(directory: Path) -> Authority:
    """Create an authority in a directory, which is made if it does not exist; files that are there
    are left alone. Only the owner can read the key. Raises AuthorityUnusable."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject, now = _name("forewarn nodes"), guard.wall_us()
    usage = dict.fromkeys(USES, False) | {"key_cert_sign": True, "crl_sign": True}
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(to_datetime(now - DAY))
        .not_valid_after(to_datetime(now + AUTHORITY_LIFE))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        for name in (CERTIFICATE, KEY):
            if (directory / name).exists():
                raise AuthorityUnusable(f"{directory / name} exists already; nothing is changed")
        write_new(directory / KEY, key_pem(key), 0o600)
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        write_new(directory / CERTIFICATE, pem, 0o644)
    except OSError as error:
        raise AuthorityUnusable(f"{error.filename}: {error.strerror}") from error
    return Authority(directory)


def requested_key(request: str) -> EllipticCurvePublicKey:
    """Return the key of a request for a certificate (PEM), whose sender has it. Nothing else of the
    request counts. Raises RequestInvalid."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        if len(request) > MAX_REQUEST:
            raise RequestInvalid(f"the request has more than {MAX_REQUEST} characters")
        signed = x509.load_pem_x509_csr(request.encode())
        key, valid = signed.public_key(), signed.is_signature_valid
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
        raise RequestInvalid("the request is no certificate signing request (PEM)") from error
    if not valid:
        raise RequestInvalid("the request is not signed with its key")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise RequestInvalid("the key of the request must be of the curve P-256")
    return key


def key_of(certificate: bytes) -> EllipticCurvePublicKey | None:
    """Return the key of a certificate (DER); None if it is of another kind than ours are."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = x509.load_der_x509_certificate(certificate).public_key()
    return key if isinstance(key, ec.EllipticCurvePublicKey) else None


def key_digest(key: EllipticCurvePublicKey) -> str:
    from cryptography.hazmat.primitives import serialization

    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(encoding, form)).hexdigest()


def new_request(host: str) -> tuple[bytes, str]:
    """Return a new key, and a request for a certificate for it (both PEM)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(host[:_COMMON_NAME]))
    request = builder.sign(key, hashes.SHA256())
    return key_pem(key), request.public_bytes(serialization.Encoding.PEM).decode()


def general_names(names: Iterable[str]) -> list[x509.GeneralName]:
    """Return names and addresses as a certificate has them."""
    from cryptography import x509

    general: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            general.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            general.append(x509.DNSName(name))
    return general


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that does not exist yet, so that nobody reads it who must not."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


def _may_issue(certificate: x509.Certificate) -> bool:
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _name(text: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def key_pem(key: object) -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    assert isinstance(key, ec.EllipticCurvePrivateKey)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
