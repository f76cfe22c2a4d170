"""Makes a certificate for a service on loopback, for clients that insist on TLS."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from forewarn.node.config import Tls
from forewarn.service.access.authority import USES, general_names, key_pem, write_new
from forewarn.support import guard
from forewarn.support.instants import to_datetime

LASTS = datetime.timedelta(days=30)


def make_certificate(directory: Path, names: Sequence[str]) -> Tls:
    """Write a certificate for these names and addresses, which is its own authority, and its key,
    which only the owner can read."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "forewarn dev")])
    now = to_datetime(guard.wall_us())
    usage = {use: use in ("digital_signature", "key_cert_sign", "crl_sign") for use in USES}
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(general_names(names)), critical=False)
        .sign(key, hashes.SHA256())
    )
    pair = Tls(directory / "arm-certificate.pem", directory / "arm-key.pem")
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pair.key.unlink(missing_ok=True)
    write_new(pair.key, key_pem(key), 0o600)
    return pair
