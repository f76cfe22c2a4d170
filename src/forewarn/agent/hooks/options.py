"""The options of the built-in hooks, kind by kind. Values, and whether they are valid; whether they
fit this machine is the kind's own `check`."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

from forewarn.support.text import SECOND, parse_duration

Span: TypeAlias = str | int | float  # "30s", or seconds
Stage: TypeAlias = Literal["prepare", "undo", "started", "finished", "withdrawn"]
STAGES: tuple[Stage, ...] = ("prepare", "undo", "started", "finished", "withdrawn")

_UNIT = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OUR_HEADERS = {"content-length", "host", "idempotency-key", "x-forewarn-signature"}
_UNIT_KINDS = (
    *("service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer"),
    *("slice", "scope"),
)


def seconds(span: Span) -> float:
    """Raises ValueError, which says how it is written."""
    if isinstance(span, str):
        return parse_duration(span) / SECOND
    if not 0 <= span < 1e9:
        raise ValueError(f"{span} is not a number of seconds that can be waited for")
    return float(span)


class Systemd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    units: list[str]  # started in this order, stopped in the reverse
    scope: Literal["system", "user"] = "system"
    timeout: Span | None = None  # for all of them; never past the command's own

    def __post_init__(self) -> None:
        if not self.units:
            raise ValueError('units names no unit; write for example units = ["app.service"]')
        for unit in self.units:
            if not _UNIT.fullmatch(unit):
                raise ValueError(f"{unit!r} is not the name of a unit; it is like app.service")
        if len(set(self.names())) < len(self.units):
            raise ValueError("units names a unit twice")
        if self.timeout is not None:
            seconds(self.timeout)

    def names(self) -> list[str]:
        """In full, as systemd would complete them."""
        known = tuple(f".{kind}" for kind in _UNIT_KINDS)
        return [unit if unit.endswith(known) else f"{unit}.service" for unit in self.units]


class Haproxy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: str | list[str]  # backend/server; {machine} and {resource} stand for names
    socket: str = "/run/haproxy/admin.sock"  # or 127.0.0.1:9999
    drain: Span = "30s"  # how long open sessions are waited for
    then: Literal["maint", "drain"] = "maint"

    def __post_init__(self) -> None:
        if not self.socket.startswith("/"):
            address(self.socket, "socket")
        if not self.servers():
            raise ValueError('server names no server; write for example server = "web/web1"')
        for server in self.servers():
            backend, slash, name = server.partition("/")
            if not (backend and slash and name) or re.search(r"[\s;/]", backend + name):
                raise ValueError(f"{server!r} is not a server; it is written backend/server")
            left = server.replace("{machine}", "").replace("{resource}", "")
            if "{" in left or "}" in left:
                raise ValueError(f"{server!r}: only {{machine}} and {{resource}} can stand there")
        seconds(self.drain)

    def servers(self) -> list[str]:
        return [self.server] if isinstance(self.server, str) else self.server


class Log(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Literal["auto", "journal", "syslog"] = "auto"
    identifier: str = "forewarn-agent"
    facility: Literal[
        "user", "daemon", "auth", "cron", "authpriv",
        "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
    ] = "daemon"  # fmt: skip
    priority: Literal["err", "warning", "notice", "info", "debug"] = "notice"
    address: str = "/dev/log"  # of syslog; or 192.0.2.1:514, over UDP
    stages: list[Stage] = []

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,48}", self.identifier):
            raise ValueError("identifier is up to 48 letters, digits, dots, dashes, underscores")
        if not self.address.startswith("/"):
            address(self.address, "address")
            if self.to != "syslog":
                raise ValueError('an address on the network is of syslog: write to = "syslog"')


class Webhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str
    headers: dict[str, str] = {}
    secret_file: str = ""  # what is in it signs the body
    ca: str = ""  # whom to trust instead of whom the system trusts
    timeout: Span = "10s"  # for one attempt
    stages: list[Stage] = []

    def __post_init__(self) -> None:
        # None of these may say what was written: a URL may have a secret anywhere.
        if not re.match(r"https?://[^/?#\s]", self.url) or not _printed(self.url):
            raise ValueError("url is not one; it is like https://example.org/hook")
        for name, value in self.headers.items():
            if not _HEADER.fullmatch(name) or not _printed(value.replace(" ", "")):
                raise ValueError("headers has a name or a value that no header can have")
            if name.lower() in _OUR_HEADERS:
                raise ValueError(f"headers has {name}, which the hook writes itself")
        if self.ca and not self.url.startswith("https:"):
            raise ValueError("ca is for https")
        if seconds(self.timeout) == 0:
            raise ValueError("timeout is more than nothing")


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    urls: list[str] = []  # as Apprise writes them
    urls_file: str = ""  # one on each line
    title: str = ""  # instead of the one that says what happens
    stages: list[Stage] = []

    def __post_init__(self) -> None:
        if bool(self.urls) == bool(self.urls_file):
            raise ValueError("either urls or urls_file says whom to notify")


def _printed(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def address(text: str, where: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:9999` or `[::1]:9999`."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65_536:
        raise ValueError(f"{where} is a path that begins with /, or like 127.0.0.1:9999")
    return host, int(port)
