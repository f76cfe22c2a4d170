"""Metrics of what expires: the certificates of the service, and tokens.

Values are instants, in seconds since 1970, so that a rule subtracts the time when it is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator

from forewarn.core.time import SECOND, Time
from forewarn.service.telemetry.samples import Sample, gauge


def expiry_readings(certificate: Time | None, token: Time | None) -> Iterator[Sample]:
    """Yield a metric for each, without a sample if it does not expire. `token` is the one that
    expires next."""
    yield certificate_reading(certificate)
    yield gauge(
        "forewarn_token_expiry_timestamp_seconds",
        "When the next long-lived token expires",
        {} if token is None else {(): token / SECOND},
    )


def certificate_reading(expires: Time | None) -> Sample:
    return gauge(
        "forewarn_certificate_expiry_timestamp_seconds",
        "When the certificate of the control API, or that of connections to nodes, expires",
        {} if expires is None else {(): expires / SECOND},
    )
