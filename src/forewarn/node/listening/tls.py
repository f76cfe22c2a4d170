"""The certificate of the control API, or of a connection between control and a node: loads it,
watches its files, and replaces it for new connections when they change.

If a new pair cannot be used, the previous one stays. Existing connections keep their certificate.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from forewarn.core.time import SECOND, Time
from forewarn.node.config import Tls
from forewarn.node.listening.certificates import EXPIRES_SOON, Pair, examine, readable_by_all
from forewarn.node.listening.sockets import CannotListen
from forewarn.support import guard
from forewarn.support.logs import logger

CERTIFICATE_WARN_EVERY = 86_400.0  # seconds of guard time between two warnings that it expires
CERTIFICATE_CHECK_EVERY = 2.0  # seconds of guard time between two checks of the files

_Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]

log = logger("forewarn")


class CertificateUnusable(CannotListen):
    """A certificate or its key cannot be used; the message says which and why."""


class ResumingContext(ssl.SSLContext):
    """A client's context that goes on with the last session with a server, as long as the server's
    certificate has not expired. The session ends with the server's process, or its certificate."""

    def __init__(self, protocol: int) -> None:
        del protocol  # which `__new__` has used
        self._last: dict[str | bytes | None, ssl.SSLObject] = {}  # by the name of the server

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        session = session or self._resumable(server_hostname)
        self._last[server_hostname] = super().wrap_bio(
            incoming, outgoing, server_side, server_hostname, session
        )
        return self._last[server_hostname]

    def _resumable(self, server: str | bytes | None) -> ssl.SSLSession | None:
        last = self._last.get(server)
        try:
            return None if last is None or has_expired(last.getpeercert() or {}) else last.session
        except ValueError:  # its handshake has failed
            return None


def has_expired(certificate: Mapping[str, Any]) -> bool:
    """Return whether a certificate of the other side has expired. Who resumes a session does not
    send it again, and OpenSSL looks at it only then."""
    until = certificate.get("notAfter")
    return until is not None and ssl.cert_time_to_seconds(until) <= guard.wall_us() / 1e6


class Certificates:
    def __init__(
        self,
        tls: Tls,
        authority: Path | None = None,
        *,
        of_client: bool = False,
        enrolls: bool = False,
    ) -> None:
        """With an authority, both sides need a certificate from it; a server that `enrolls` hosts
        also accepts clients without any. Raises CertificateUnusable."""
        self._tls = tls
        self._enrolls = enrolls
        self._authority = authority
        self._of_client = of_client
        self._stamp = self._stamp_of(tls)
        self.context = self._load(tls)  # for new connections
        self._pair = Pair()
        self._warned: float | None = None  # guard time of the last warning that it expires
        self._was_expired = False  # when it was looked at last
        self._problem = ""  # as found when it was loaded
        pair = self._examine(tls)
        if not pair.usable:
            raise CertificateUnusable(pair.problem)
        if pair.problem:
            others = "control" if of_client else "clients"
            log.error(f"{others} will not accept the certificate", why=pair.problem)
        self._use(tls, self.context, pair)

    @property
    def expires(self) -> Time:
        """When the certificate expires; 0 if clients do not accept it already."""
        return round(self._pair.expires * SECOND)

    @property
    def expires_unless_renewed(self) -> Time | None:
        """The same; None if it is short-lived, so that it is renewed by itself, and not late."""
        left = self._pair.expires - guard.wall_us() / 1e6
        return None if self._soon < min(EXPIRES_SOON, left) else self.expires

    @property
    def _soon(self) -> float:
        """How many seconds before its end it is reported; on connections to nodes, it may be
        renewed."""
        return self._pair.soon if self._of_client or self._enrolls else EXPIRES_SOON

    @property
    def half_over(self) -> bool:
        """Whether half of the certificate's life is over."""
        return guard.wall_us() / 1e6 >= (self._pair.begins + self._pair.expires) / 2

    @property
    def expired(self) -> bool:
        return self._pair.expires <= guard.wall_us() / 1e6

    @property
    def problem(self) -> str:
        """Why others do not accept the certificate, as far as it is known here."""
        expired = f"{self._tls.certificate} has expired" if self.expired else ""
        return self._problem or expired

    def reload(self, tls: Tls | None = None, authority: Path | None = None) -> str:
        """Read the files again, or other files. Return a problem, in which case the previous
        certificate stays, or ""."""
        tls, before = tls or self._tls, self._authority
        self._authority = authority or before
        self._stamp = self._stamp_of(tls)
        try:
            context = self._load(tls)
            pair = self._examine(tls)
            if pair.problem:
                raise CertificateUnusable(pair.problem)
        except CertificateUnusable as error:
            self._authority = before
            log.error("the new certificate is not used, the previous one stays", why=str(error))
            return str(error)
        self._use(tls, context, pair)
        log.info("the certificate was reloaded", certificate=str(tls.certificate))
        return ""

    def refresh(self) -> None:
        """Reload the files if they have changed, and warn once a day if the certificate expires
        soon."""
        if self._stamp_of(self._tls) != self._stamp:
            self.reload()
        left = self._pair.expires - guard.wall_us() / 1e6
        now = guard.monotonic()
        due = self._warned is None or now - self._warned >= CERTIFICATE_WARN_EVERY
        due |= self.expired and not self._was_expired  # at once
        self._was_expired = self.expired
        if self._pair.expires > 0 and left < self._soon and due:
            self._warned = now
            log.warning(
                "the certificate has expired" if left <= 0 else "the certificate expires soon",
                certificate=str(self._tls.certificate),
                days=max(0, int(left // 86_400)),
            )

    def _use(self, tls: Tls, context: ssl.SSLContext, pair: Pair) -> None:
        self._tls, self.context, self._pair = tls, context, pair
        self._warned, self._problem = None, pair.problem
        _warn_if_readable(tls.key)

    async def watch(self) -> None:
        while True:
            await guard.pause(CERTIFICATE_CHECK_EVERY)
            self.refresh()

    def _examine(self, tls: Tls) -> Pair:
        return examine(tls.certificate, tls.key, self._authority, of_client=self._of_client)

    def _stamp_of(self, tls: Tls) -> _Stamp:
        """Return a value that changes when one of the files does."""
        authority = [self._authority] if self._authority else []
        return tuple(_file_stamp(path) for path in (tls.certificate, tls.key, *authority))

    def _load(self, tls: Tls) -> ssl.SSLContext:
        if self._authority is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.set_alpn_protocols(["http/1.1"])
        else:
            if self._of_client:
                context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
            else:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.num_tickets = 1  # with which a node resumes its session; one takes 0.2 ms
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_OPTIONAL if self._enrolls else ssl.CERT_REQUIRED
            # Whoever asks for a certificate chooses its common name, the authority the others.
            context.hostname_checks_common_name = False
            _load_authority(context, self._authority)
        _load_pair(context, tls)
        return context


def _load_authority(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        raise CertificateUnusable(f"{authority} contains no certificate (PEM)") from error
    except OSError as error:
        raise CertificateUnusable(f"{authority}: {error.strerror}") from error


def _load_pair(context: ssl.SSLContext, tls: Tls) -> None:
    for path in (tls.certificate, tls.key):
        try:
            path.read_bytes()
        except OSError as error:
            raise CertificateUnusable(f"{path}: {error.strerror}") from error
    try:
        # With a password function, OpenSSL does not prompt at the terminal for an encrypted key.
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    except ssl.SSLError as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            raise CertificateUnusable(f"{tls.key} is not the key of {tls.certificate}") from error
        raise CertificateUnusable(
            f"{tls.certificate} and {tls.key} cannot be used ({error.reason or error}); they must"
            " be PEM files, the key without a password"
        ) from error
    except (OSError, ValueError) as error:
        raise CertificateUnusable(
            f"{tls.certificate} and {tls.key} cannot be used: {error}"
        ) from error


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _warn_if_readable(key: Path) -> None:
    with contextlib.suppress(OSError):
        if readable_by_all(key):
            log.warning("the key can be read by all users", key=str(key), run=f"chmod o= {key}")
