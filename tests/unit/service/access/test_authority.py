"""The authority that control keeps: what it issues, for whom, and when it cannot be used."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from forewarn.core.time import DAY, SECOND
from forewarn.node.listening.certificates import examine
from forewarn.service.access.authority import (
    AUTHORITY_LIFE,
    CERTIFICATE,
    KEY,
    Authority,
    AuthorityUnusable,
    RequestInvalid,
    create_authority,
    key_digest,
    key_of,
    new_request,
    requested_key,
)
from forewarn.support import guard
from helpers.certificates import Authority as OtherAuthority

WEEK = 7 * DAY


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return create_authority(tmp_path / "authority")


def test_certificate_of_a_node_is_good_for_its_host_and_nothing_else(
    authority: Authority, tmp_path: Path
) -> None:
    key, request = new_request("h1")
    pem = authority.issue_for_host(requested_key(request), "h1", WEEK)
    (tmp_path / "node.pem").write_text(pem)
    (tmp_path / "node.key").write_bytes(key)
    (tmp_path / "trusted.pem").write_text(authority.trusted)
    files = tmp_path / "node.pem", tmp_path / "node.key", tmp_path / "trusted.pem"
    pair = examine(*files, of_client=True)
    assert (pair.problem, pair.names) == ("", ("forewarn:node:h1",))
    assert examine(*files).problem  # it is not that of a server
    assert pair.begins < guard.wall_us() / 1e6 < pair.expires
    assert pair.soon < WEEK / SECOND / 2  # it is renewed before it is reported
    der = ssl.PEM_cert_to_DER_cert(pem)
    assert authority.has_issued(der)
    found = key_of(der)
    assert found is not None
    assert key_digest(found) == key_digest(requested_key(request))


def test_names_in_a_signing_request_are_ignored(authority: Authority) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    other = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("forewarn:node:h2")])
    request = builder.add_extension(other, critical=False).sign(key, hashes.SHA256())
    pem = request.public_bytes(serialization.Encoding.PEM).decode()
    issued = authority.issue_for_host(requested_key(pem), "h1", WEEK)
    names = x509.load_pem_x509_certificate(issued.encode()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
    assert uris == ["forewarn:node:h1"]


def test_no_certificate_outlasts_its_authority(authority: Authority) -> None:
    _, request = new_request("h1")
    pem = authority.issue_for_host(requested_key(request), "h1", 2 * AUTHORITY_LIFE)
    end = x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
    assert round(end.timestamp()) * SECOND == authority.expires


def test_certificate_of_control_has_all_its_names(authority: Authority) -> None:
    pem, _ = authority.issue_for_control(["192.0.2.1", "c1.example.net", "::1"], WEEK)
    names = x509.load_pem_x509_certificate(pem.encode()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert [str(name.value) for name in names.value] == ["192.0.2.1", "c1.example.net", "::1"]


def test_certificates_of_another_authority_are_refused(
    authority: Authority, tmp_path: Path
) -> None:
    pair = OtherAuthority(tmp_path).issue("forewarn:node:h1")
    assert not authority.has_issued(ssl.PEM_cert_to_DER_cert(pair.certificate.read_text()))


def _request_with_rsa() -> str:
    key = rsa.generate_private_key(65_537, 2_048)
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    "request_text",
    [
        "",
        "garbage",
        "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----",
        "A" * 5_000,
        _request_with_rsa(),
    ],
    ids=["nothing", "garbage", "broken", "long", "RSA"],
)
def test_an_invalid_signing_request_is_refused(request_text: str) -> None:
    with pytest.raises(RequestInvalid):
        requested_key(request_text)


def test_a_request_that_was_not_signed_with_its_key_is_refused() -> None:
    ours, other = (x509.load_pem_x509_csr(new_request("h1")[1].encode()) for _ in range(2))
    point = serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    keys = [request.public_key() for request in (ours, other)]
    ours_key, other_key = (
        key.public_bytes(*point) for key in keys if isinstance(key, ec.EllipticCurvePublicKey)
    )
    der = ours.public_bytes(serialization.Encoding.DER).replace(ours_key, other_key)
    forged = x509.load_der_x509_csr(der).public_bytes(serialization.Encoding.PEM).decode()
    with pytest.raises(RequestInvalid):
        requested_key(forged)


def test_only_the_owner_can_read_the_key_and_nothing_is_overwritten(tmp_path: Path) -> None:
    directory = tmp_path / "authority"
    create_authority(directory)
    assert (directory / KEY).stat().st_mode & 0o777 == 0o600
    before = (directory / KEY).read_bytes()
    with pytest.raises(AuthorityUnusable):
        create_authority(directory)
    assert (directory / KEY).read_bytes() == before


def test_an_authority_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    directory, other = tmp_path / "authority", tmp_path / "other"
    create_authority(directory)
    create_authority(other)
    (tmp_path / "empty").mkdir()
    problems = []

    def use(path: Path) -> None:
        with pytest.raises(AuthorityUnusable) as error:
            Authority(path)
        problems.append(str(error.value))

    use(tmp_path / "empty")
    (directory / KEY).write_bytes((other / KEY).read_bytes())
    use(directory)
    (directory / KEY).write_text("garbage")
    use(directory)
    (directory / CERTIFICATE).write_text("garbage")
    use(directory)
    leaf, key = Authority(other).issue_for_control(["127.0.0.1"], WEEK)
    (directory / CERTIFICATE).write_text(leaf)
    (directory / KEY).write_bytes(key)
    use(directory)
    assert len(set(problems)) == len(problems)
