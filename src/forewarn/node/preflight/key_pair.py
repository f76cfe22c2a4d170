"""Checks a certificate and its key: whether they can be used, who can read the key, and whether the
certificate expires soon."""

from __future__ import annotations

from collections.abc import Iterator

from forewarn.node.config import Tls
from forewarn.node.listening.certificates import EXPIRES_SOON, Pair, readable_by_all
from forewarn.node.preflight.finding import fatal, warning
from forewarn.node.settings import LoadedSettings
from forewarn.support import guard
from forewarn.support.finding import Finding


def pair_findings(
    loaded: LoadedSettings, prefix: str, tls: Tls, pair: Pair, peers: str
) -> Iterator[Finding]:
    """Yield what is wrong with a certificate and its key, of the settings with this prefix."""
    if not pair.usable:
        yield fatal(loaded, f"{prefix}certificate", pair.problem)
        return
    if readable_by_all(tls.key):
        problem = f"{tls.key} can be read by all users: chmod o= {tls.key}"
        yield warning(loaded, f"{prefix}key", problem)
    if pair.problem:  # it is started nevertheless: guests need it
        yield warning(loaded, f"{prefix}certificate", f"{pair.problem}, so {peers} refuse it")
        return
    left = pair.expires - guard.wall_us() / 1e6
    if left < (EXPIRES_SOON if prefix else pair.soon):  # without a prefix, it is that of a node
        days = max(0, int(left // 86_400))
        yield warning(loaded, f"{prefix}certificate", f"{tls.certificate} expires in {days} days")
