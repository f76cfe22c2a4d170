"""The options of the built-in hooks, and whether their values are valid. Whether a hook can work on
this machine is the `check` of its kind."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, get_args

import msgspec

from forewarn.support.text import SECOND, parse_duration

Span: TypeAlias = str | int | float  # "30s", or seconds
Stage: TypeAlias = Literal["announced", "prepare", "undo", "started", "finished", "withdrawn"]
STAGES: tuple[Stage, ...] = get_args(Stage)

_UNIT = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OUR_HEADERS = {"content-length", "host", "idempotency-key", "x-forewarn-signature"}
_UNIT_KINDS = (
    *("service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer"),
    *("slice", "scope"),
)


def seconds(span: Span) -> float:
    """Return a duration in seconds. Raises ValueError."""
    if isinstance(span, str):
        return parse_duration(span) / SECOND
    if not 0 <= span < 1e9:
        raise ValueError(f"{span} is not a valid number of seconds")
    return float(span)


class Systemd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    units: list[str]  # started in this order, stopped in the reverse
    scope: Literal["system", "user"] = "system"
    timeout: Span | None = None  # for all units together, within the timeout of the hook

    def __post_init__(self) -> None:
        if not self.units:
            raise ValueError('units is empty; write for example units = ["app.service"]')
        for unit in self.units:
            if not _UNIT.fullmatch(unit):
                raise ValueError(
                    f"{unit!r} is not the name of a unit; expected for example app.service"
                )
        if len(set(self.names())) < len(self.units):
            raise ValueError("units contains a unit twice")
        if self.timeout is not None:
            seconds(self.timeout)

    def names(self) -> list[str]:
        """Return the full names of the units, completed as systemd does it."""
        suffixes = tuple(f".{kind}" for kind in _UNIT_KINDS)
        return [unit if unit.endswith(suffixes) else f"{unit}.service" for unit in self.units]


class Haproxy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: str | list[str]  # backend/server; {machine} and {resource} are replaced by names
    socket: str = "/run/haproxy/admin.sock"  # or 127.0.0.1:9999
    drain: Span = "30s"  # how long to wait for open sessions
    then: Literal["maint", "drain"] = "maint"

    def __post_init__(self) -> None:
        if not self.socket.startswith("/"):
            address(self.socket, "socket")
        if not self.servers():
            raise ValueError('server is empty; write for example server = "web/web1"')
        for server in self.servers():
            backend, slash, name = server.partition("/")
            if not (backend and slash and name) or re.search(r"[\s;/]", backend + name):
                raise ValueError(f"{server!r} is not a server; expected backend/server")
            rest = server.replace("{machine}", "").replace("{resource}", "")
            if "{" in rest or "}" in rest:
                raise ValueError(f"{server!r}: only {{machine}} and {{resource}} can be replaced")
        seconds(self.drain)

    def servers(self) -> list[str]:
        return [self.server] if isinstance(self.server, str) else self.server


_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_TAINT_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
_TAINT = re.compile(
    rf"([a-z0-9.-]+/)?{_TAINT_NAME}(=({_TAINT_NAME})?)?:(NoSchedule|PreferNoSchedule|NoExecute)"
)


class Kubernetes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    drain: bool = True  # false: the node is only cordoned
    pods: str = ""  # label selector of the pods to evict; empty: all
    force: bool = False  # also evict pods that no controller would start elsewhere
    delete_empty_dir_data: bool = True  # else a pod with an emptyDir keeps the node from draining
    taint: str = ""  # key[=value]:Effect
    conditions: Literal["auto", "standard", "prefixed", "off"] = "auto"
    keep_cordoned: bool = True  # also if the drain has failed
    wait_ready: Span = "5m"  # how long undo waits for kubelet
    server: str = ""  # https://…; empty: as in a pod
    token: str = f"{_ACCOUNT}/token"
    ca: str = f"{_ACCOUNT}/ca.crt"

    def __post_init__(self) -> None:
        if self.taint and not _TAINT.fullmatch(self.taint):
            raise ValueError(
                f"{self.taint!r} is not a taint; expected for example"
                " forewarn/maintenance:NoExecute"
            )
        if self.server and not re.fullmatch(r"https://[^/?#\s@]+(/[^?#\s]*)?", self.server):
            raise ValueError(
                f"{self.server!r} is not a server; expected for example https://10.0.0.1:6443"
            )
        seconds(self.wait_ready)


class Log(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Literal["auto", "journal", "syslog"] = "auto"
    identifier: str = "forewarn-agent"
    facility: Literal[
        "user", "daemon", "auth", "cron", "authpriv",
        "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
    ] = "daemon"  # fmt: skip
    priority: Literal["err", "warning", "notice", "info", "debug"] = "notice"
    address: str = "/dev/log"  # of syslog: a socket, or an address for UDP (192.0.2.1:514)
    stages: list[Stage] = []

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,48}", self.identifier):
            raise ValueError(
                "identifier must have 1 to 48 letters, digits, dots, dashes or underscores"
            )
        if not self.address.startswith("/"):
            address(self.address, "address")
            if self.to != "syslog":
                raise ValueError('an address on the network needs to = "syslog"')


class Webhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str
    headers: dict[str, str] = {}
    secret_file: str = ""  # file with the key that signs the body
    ca: str = ""  # CA bundle (PEM) to use instead of the system's
    timeout: Span = "10s"  # for one attempt
    stages: list[Stage] = []

    def __post_init__(self) -> None:
        # No message may repeat the value: any part of a URL or a header may be a secret.
        if not re.match(r"https?://[^/?#\s]", self.url) or not _is_printable(self.url):
            raise ValueError(
                "url is not a valid URL; expected for example https://example.org/hook"
            )
        for name, value in self.headers.items():
            if not _HEADER.fullmatch(name) or not _is_printable(value.replace(" ", "")):
                raise ValueError("headers contains a name or a value that is not valid")
            if name.lower() in _OUR_HEADERS:
                raise ValueError(f"headers contains {name}, which the hook sets itself")
        if self.ca and not self.url.startswith("https:"):
            raise ValueError("ca needs a url with https")
        if seconds(self.timeout) == 0:
            raise ValueError("timeout must be more than 0")


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    urls: list[str] = []  # in the syntax of Apprise
    urls_file: str = ""  # one on each line
    title: str = ""  # instead of the default, which names the event
    stages: list[Stage] = []

    def __post_init__(self) -> None:
        if bool(self.urls) == bool(self.urls_file):
            raise ValueError("set either urls or urls_file")


def _is_printable(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def address(text: str, where: str) -> tuple[str, int]:
    """Parse `127.0.0.1:9999` or `[::1]:9999` into host and port. Raises ValueError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65_536:
        raise ValueError(f"{where} must be an absolute path, or an address such as 127.0.0.1:9999")
    return host, int(port)
