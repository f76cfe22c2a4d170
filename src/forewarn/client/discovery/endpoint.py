"""Where the endpoint may be: as said, as the environment says, at the well-known address, or where
this machine's DHCP lease says (option 245). Which of them it is a GET shows; that is `rules.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from forewarn.client.errors import BadEndpoint
from forewarn.client.steps import Location
from forewarn.support import text

VARIABLE = "FOREWARN_METADATA"
WELL_KNOWN = Location("169.254.169.254")
PORTS = 80, 8080  # of an address from a lease
MAX_QUOTED = 80  # characters of what was said instead

_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,255}", re.ASCII)


def place(url: str) -> Location:
    """Of `http://host:port`, or of `host:port`."""
    quoted = text.visible(re.sub(r"[^/]*@", "…@", url)[:MAX_QUOTED])  # no password of anybody's
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        host, port = parts.hostname or "", 80 if parts.port is None else parts.port
    except ValueError as error:
        raise BadEndpoint(f"'{quoted}' is no address of an endpoint: {error}") from error
    if parts.scheme.lower() != "http":
        raise BadEndpoint(f"'{quoted}': the endpoint speaks plain HTTP; write http://…")
    more = parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None
    if more or not port or not _HOST.fullmatch(host):
        raise BadEndpoint(
            f"'{quoted}' is no address of an endpoint; write only where it is, like {WELL_KNOWN}"
        )
    return Location(host, port)


def said(explicit: str | None, environ: Mapping[str, str] = os.environ) -> Location | None:
    """The one that is named. There is no other, then."""
    if explicit or not environ.get(VARIABLE):
        return place(explicit) if explicit else None
    try:
        return place(environ[VARIABLE])
    except BadEndpoint as error:
        raise BadEndpoint(f"{VARIABLE}: {error}") from error


def candidates() -> Iterator[Location]:
    """Where it may be, in the order in which it is looked for. Leases are read when it comes to
    them: the address may have changed since."""
    yield WELL_KNOWN
    from forewarn.client.discovery import leases  # few ever come so far

    for address in leases.offered():
        for port in PORTS:
            yield Location(address, port)
