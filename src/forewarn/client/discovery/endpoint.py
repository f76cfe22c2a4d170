"""The endpoint's address: the configured one, that of the environment, or the well-known one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from forewarn.client.errors import InvalidEndpointError
from forewarn.client.steps import Location
from forewarn.support import text

VARIABLE = "FOREWARN_METADATA"
WELL_KNOWN = Location("169.254.169.254")
MAX_QUOTED = 80  # characters of an invalid address that are quoted

_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,255}", re.ASCII)


def parse_endpoint(url: str) -> Location:
    """Parse `http://host:port` or `host:port`. Raises InvalidEndpointError."""
    quoted = text.visible(re.sub(r"[^/]*@", "…@", url)[:MAX_QUOTED])  # without a password
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        host, port = parts.hostname or "", 80 if parts.port is None else parts.port
    except ValueError as error:
        raise InvalidEndpointError(
            f"'{quoted}' is not the address of an endpoint: {error}"
        ) from error
    if parts.scheme.lower() != "http":
        raise InvalidEndpointError(f"'{quoted}': the endpoint uses plain HTTP; write http://…")
    more = parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None
    if more or not port or not _HOST.fullmatch(host):
        raise InvalidEndpointError(
            f"'{quoted}' is not the address of an endpoint; write only host and port, as in"
            f" {WELL_KNOWN}"
        )
    return Location(host, port)


def configured_endpoint(
    explicit: str | None, environ: Mapping[str, str] = os.environ
) -> Location | None:
    """Return the endpoint that was given, or else the environment's; None if it has to be
    looked for. Raises InvalidEndpointError."""
    if explicit or not environ.get(VARIABLE):
        return parse_endpoint(explicit) if explicit else None
    try:
        return parse_endpoint(environ[VARIABLE])
    except InvalidEndpointError as error:
        raise InvalidEndpointError(f"{VARIABLE}: {error}") from error
