"""Certificates for tests: an authority of our own, and whatever it is to vouch for."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from forewarn.node.config import Tls

LONG_AGO, NEVER = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)


class Authority:
    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = self._builder(self._name, self._key, LONG_AGO, NEVER).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(
            **{f"{use}": use in ("key_cert_sign", "crl_sign") for use in _USES}  # all of them
        )
        own = own.add_extension(usage, critical=True)
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(_pem(own.sign(self._key, hashes.SHA256())))

    def issue(
        self,
        *names: str,
        into: Tls | None = None,
        until: datetime = NEVER,
        common_name: str = "",
    ) -> Tls:
        """A certificate for these names or addresses, written over another or to files of its
        own."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name or names[0])])
        made = self._builder(subject, key, LONG_AGO, until).add_extension(
            x509.SubjectAlternativeName([_named(name) for name in names]), critical=False
        )
        made = made.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
            critical=False,
        )
        pair = into or Tls(
            self._directory / f"{names[0]}-{until.year}.pem",
            self._directory / f"{names[0]}-{until.year}.key",
        )
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        pair.certificate.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        return pair

    def trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.path))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end + timedelta(0))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        )


_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


def _named(name: str) -> x509.GeneralName:
    if name.startswith("forewarn:"):
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
