"""The renewal of a certificate that control has issued, to a node or to a driver process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from forewarn.core.time import Time
from forewarn.node.config import Tls
from forewarn.node.listening.certificates import Pair, examine
from forewarn.node.listening.tls import Certificates
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.system import sync

RENEW_AGAIN = 60.0  # seconds after which control is asked again for a certificate

log = logger("forewarn")


class NewCertificate(Protocol):
    """What control has sent."""

    @property
    def certificate(self) -> str: ...

    @property
    def trusted(self) -> str: ...


class CertificateRenewal:
    """Asks control for a new certificate when half of the life of the present one is over. Control
    answers only if it has issued that one."""

    def __init__(
        self,
        tls: Tls,
        authority: Path,
        certificates: Certificates,
        problem: Callable[[Tls, Pair], str],
    ) -> None:
        """`problem` returns why a certificate is that of somebody else, or ""."""
        self._tls, self._authority = tls, authority
        self._certificates = certificates
        self._problem = problem
        self._asked: tuple[Time, float] = (0, 0.0)  # the end of which certificate, and when

    def wanted(self) -> bool:
        certificates, (end, at) = self._certificates, self._asked
        again = end == certificates.expires and guard.monotonic() - at < RENEW_AGAIN
        if again or not certificates.half_over:
            return False
        self._asked = certificates.expires, guard.monotonic()
        return True

    def take(self, renewed: NewCertificate) -> None:
        """Replace the files of the certificate and the authority, if the new ones can be used."""
        certificate, authority = self._tls.certificate, self._authority
        try:
            new = Tls(_written_beside(certificate, renewed.certificate), self._tls.key)
            trusted = _written_beside(authority, renewed.trusted)
            pair = examine(new.certificate, new.key, trusted, of_client=True)
            problem = pair.problem or self._problem(new, pair)
            if problem:
                log.error("the certificate from control cannot be used", why=problem)
                return
            trusted.replace(authority)
            new.certificate.replace(certificate)
            sync(certificate.parent)
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
            log.error("the certificate from control cannot be stored", why=why)
            return
        self._certificates.refresh()


def _written_beside(path: Path, content: str) -> Path:
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(content)
    sync(beside)  # or a power cut could leave an empty file in the place of a certificate
    return beside
