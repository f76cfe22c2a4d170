"""The control API's certificate: loaded, looked at for changes, and changed for new connections.

A pair that cannot be used, or would not be believed, leaves the one before in place. Connections
under way keep theirs.
"""

from __future__ import annotations

import contextlib
import ssl
import stat
from pathlib import Path

from forewarn.node.config import Tls
from forewarn.node.listening.certificates import EXPIRES_SOON, Pair, examine
from forewarn.node.listening.sockets import CannotListen
from forewarn.support import guard
from forewarn.support.logs import logger

CERTIFICATE_WARNED = 86_400.0  # seconds of guard time between two warnings of its end
CERTIFICATE_EVERY = 2.0  # seconds of guard time between two looks at the files

log = logger("forewarn")


class CertificateUnusable(CannotListen):
    """A certificate or its key cannot be used; the message says which and why."""


class Certificates:
    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._stamp = _stamp(tls)
        self.context = _loaded(tls)  # what a new connection is served with
        self._ends = 0.0  # seconds since 1970
        self._warned: float | None = None  # of its end, in guard time
        pair = examine(tls.certificate, tls.key)
        if pair.problem:
            log.error("the certificate will not be believed by those who ask", why=pair.problem)
        self._take(tls, self.context, pair)

    def reload(self, tls: Tls | None = None) -> str:
        """Take the files as they are now, or others: what is wrong with them, if anything is.
        Then the pair before stays."""
        wanted = tls or self._tls
        self._stamp = _stamp(wanted)
        try:
            loaded = _loaded(wanted)
            pair = examine(wanted.certificate, wanted.key)
            if pair.problem:
                raise CertificateUnusable(pair.problem)
        except CertificateUnusable as error:
            log.error("the new certificate is not used, the one before stays", why=str(error))
            return str(error)
        self._take(wanted, loaded, pair)
        log.info("the certificate was read anew", certificate=str(wanted.certificate))
        return ""

    def look(self) -> None:
        """Read the files anew if they have changed since. The end of a certificate is warned of
        once a day."""
        if _stamp(self._tls) != self._stamp:
            self.reload()
        left = self._ends - guard.wall_us() / 1e6
        now = guard.monotonic()
        again = self._warned is None or now - self._warned >= CERTIFICATE_WARNED
        if self._ends > 0 and left < EXPIRES_SOON and again:
            self._warned = now
            log.warning(
                "the certificate has expired" if left <= 0 else "the certificate expires soon",
                certificate=str(self._tls.certificate),
                days=max(0, int(left // 86_400)),
            )

    def _take(self, tls: Tls, loaded: ssl.SSLContext, pair: Pair) -> None:
        self._tls, self.context, self._ends = tls, loaded, pair.ends
        self._warned = None
        _warn(tls.key)

    async def watch(self) -> None:
        while True:
            await guard.pause(CERTIFICATE_EVERY)
            self.look()


def _loaded(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    for path in (tls.certificate, tls.key):
        try:
            path.read_bytes()
        except OSError as error:
            raise CertificateUnusable(f"{path}: {error.strerror}") from error
    try:
        # A key that wants a password has nobody to ask: that must not wait at a terminal.
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    except ssl.SSLError as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            raise CertificateUnusable(f"{tls.key} is not the key of {tls.certificate}") from error
        says = error.reason or error
        raise CertificateUnusable(
            f"{tls.certificate} and {tls.key} cannot be used ({says}); they are PEM files, the key"
            " without a password"
        ) from error
    except (OSError, ValueError) as error:
        raise CertificateUnusable(
            f"{tls.certificate} and {tls.key} cannot be used: {error}"
        ) from error
    return context


def _stamp(tls: Tls) -> tuple[tuple[int, int, int] | None, ...]:
    """What changes when the files do."""
    found: list[tuple[int, int, int] | None] = []
    for path in (tls.certificate, tls.key):
        try:
            there = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((there.st_ino, there.st_size, there.st_mtime_ns))
    return tuple(found)


def _warn(key: Path) -> None:
    with contextlib.suppress(OSError):
        if stat.S_IMODE(key.stat().st_mode) & 0o007:
            log.warning("the key can be read by everybody", key=str(key), run=f"chmod o= {key}")
