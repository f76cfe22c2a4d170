"""The options of the driver: the table [incus] in the settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from forewarn.core.time import Duration
from forewarn.drivers.port import DriverOptions
from forewarn.support.text import parse_duration

_TIMES = ("freeze", "shutdown")
_EXAMPLES = "unix:///var/lib/incus/unix.socket or https://10.0.0.1:8443"


class IncusOptions(DriverOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # A server, or any member of a cluster, which answers for all of them. LXD's socket is
    # unix:///var/lib/lxd/unix.socket.
    url: str = "unix:///var/lib/incus/unix.socket"
    project: str = "default"
    certificate: str = ""  # with an https URL: by which the server knows this client
    key: str = ""
    ca: str = ""  # of the server's certificate, or that certificate itself
    freeze: str = "5s"  # for how long an instance is frozen if the event does not say
    shutdown: str = "30s"  # for how long an instance may shut down before it is stopped
    keep: bool = False  # instances that are evicted or deleted, which are then only stopped

    paths: ClassVar[tuple[str, ...]] = ("certificate", "key", "ca")

    def problems(self) -> Iterator[tuple[str, str]]:
        url = urlsplit(self.url)
        if not ((url.scheme == "unix" and url.path) or (url.scheme == "https" and url.hostname)):
            yield "url", f"'{self.url}' is not the URL of a server; write for example {_EXAMPLES}"
        if url.scheme == "https" and not (self.certificate and self.key and self.ca):
            yield "url", "an https URL needs certificate, key and ca"
        for key in _TIMES:
            try:
                parse_duration(getattr(self, key))
            except ValueError as error:
                yield key, str(error)

    def open_files(self) -> int:
        return 100  # connections, as many as httpx keeps

    def duration(self, key: Literal["freeze", "shutdown"]) -> Duration:
        return parse_duration(getattr(self, key))
