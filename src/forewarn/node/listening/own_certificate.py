"""Control's certificate for nodes, if control keeps the authority that issues it.

It exists only while the process runs, in a directory that nobody else can read, and is renewed well
before it expires.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from forewarn.core.time import SECOND
from forewarn.node.config import NodeConnections, Tls
from forewarn.node.listening.tls import Certificates, CertificateUnusable
from forewarn.service.access.authority import Authority, AuthorityUnusable
from forewarn.service.platform.enrollment import NodeAuthority
from forewarn.support import guard
from forewarn.support.files.replace import replace

RENEWALS = 4  # in the life of a certificate


class OwnCertificate:
    def __init__(self, lines: NodeConnections) -> None:
        """Raises CertificateUnusable."""
        assert lines.keeps is not None
        self._directory = tempfile.TemporaryDirectory(prefix="forewarn-")
        path = Path(self._directory.name)
        self._tls = Tls(path / "nodes.pem", path / "nodes.key")
        addresses = lines.addresses or (lines.address,)
        self._names = [address.host for address in addresses]
        self._life = lines.certificate_life
        try:
            authority = Authority(lines.keeps)
            trusted = lines.authority.read_text("ascii", "replace")
            self.authority = NodeAuthority(
                authority, tuple(map(str, lines.addresses)), trusted, self._life
            )
            self._issue()
            self.certificates = Certificates(self._tls, lines.authority, enrolls=True)
        except (AuthorityUnusable, OSError) as error:
            self.close()
            message = error if isinstance(error, AuthorityUnusable) else _reason(error)
            raise CertificateUnusable(f"authority: {message}") from error

    async def keep_renewing(self) -> None:
        while True:
            await guard.pause(self._life / SECOND / RENEWALS)
            self._issue()
            self.certificates.refresh()

    def _issue(self) -> None:
        certificate, key = self.authority.authority.issue_for_control(self._names, self._life)
        for path, content in ((self._tls.key, key), (self._tls.certificate, certificate.encode())):
            replace(path, content)

    def close(self) -> None:
        self._directory.cleanup()


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}"
