"""The certificate of a node: when control is asked for a new one, and which one is not taken."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from forewarn.core.time import DAY
from forewarn.metadata.publishing.messages import Renewed
from forewarn.node.config import Tls
from forewarn.node.host_node import name_problem
from forewarn.node.listening.renewal import RENEW_AGAIN, CertificateRenewal
from forewarn.node.listening.tls import Certificates
from forewarn.service.access.authority import (
    Authority,
    create_authority,
    new_request,
    requested_key,
)
from forewarn.support import guard

WEEK = 7 * DAY


class Host:
    """The files of a host that was enrolled."""

    def __init__(self, directory: Path) -> None:
        self.authority: Authority = create_authority(directory / "authority")
        self.tls = Tls(directory / "node.pem", directory / "node.key")
        key, self.request = new_request("h1")
        self.tls.key.touch(mode=0o600)
        self.tls.key.write_bytes(key)
        self.tls.certificate.write_text(self.issued())
        trusted = directory / "trusted.pem"
        trusted.write_text(self.authority.trusted)
        self.certificates = Certificates(self.tls, trusted, of_client=True)
        self.renewal = CertificateRenewal(
            self.tls, trusted, self.certificates, partial(name_problem, "h1")
        )

    def issued(self, host: str = "h1") -> str:
        return self.authority.issue_for_host(requested_key(self.request), host, WEEK)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_control_is_asked_when_half_of_the_life_is_over_and_again_after_a_while(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not host.renewal.wanted()
    now, started = guard.wall_us(), guard.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(guard, "wall_us", lambda: now - 4 * DAY)
        old = Renewed(host.issued(), host.authority.trusted)
    host.renewal.take(old)
    assert host.renewal.wanted()
    assert not host.renewal.wanted()
    monkeypatch.setattr(guard, "monotonic", lambda: started + 2 * RENEW_AGAIN)
    assert host.renewal.wanted()
    host.renewal.take(Renewed(host.issued(), host.authority.trusted))
    assert not host.renewal.wanted()
    monkeypatch.setattr(guard, "wall_us", lambda: now + 4 * DAY)
    assert host.renewal.wanted()  # at once: it is another certificate


def test_a_certificate_that_renews_itself_is_reported_only_if_that_is_late(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, expires = guard.wall_us(), host.certificates.expires
    assert host.certificates.expires_unless_renewed is None
    monkeypatch.setattr(guard, "wall_us", lambda: now + 6 * DAY)
    assert host.certificates.expires_unless_renewed == expires


def test_what_cannot_be_used_does_not_replace_what_can(host: Host, tmp_path: Path) -> None:
    before, other = host.tls.certificate.read_text(), create_authority(tmp_path / "other")
    stranger = other.issue_for_host(requested_key(host.request), "h1", WEEK)
    foreign_key = host.authority.issue_for_host(requested_key(new_request("h1")[1]), "h1", WEEK)
    trusted = host.authority.trusted
    for certificate, authority in (
        ("garbage", trusted),
        (stranger, trusted),
        (foreign_key, trusted),
        (host.issued("h2"), trusted),
        (host.issued(), "garbage"),
        (host.issued(), other.trusted),
    ):
        host.renewal.take(Renewed(certificate, authority))
        assert host.tls.certificate.read_text() == before
        assert (tmp_path / "trusted.pem").read_text() == trusted
    # A second authority comes with the certificate, before it issues any.
    host.renewal.take(Renewed(host.issued(), trusted + other.trusted))
    assert host.tls.certificate.read_text() != before
    assert (tmp_path / "trusted.pem").read_text() == trusted + other.trusted
    assert host.certificates.problem == ""
