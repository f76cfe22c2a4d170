"""The settings of `forewarn serve`: their names, types and defaults, and where a value came from.

They are read in `sources.py`, and checked and turned into a node's configuration in `validate.py`.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from forewarn.core.fleet import Placement
from forewarn.drivers.registry import SIMULATED
from forewarn.notify.config import Notify
from forewarn.service.access.oidc import Oidc

LOGS = ("auto", "console", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
REPLICATED = ("", "managed")
UNREPORTED_MOVES = ("record", "hold")
INVENTORY = ("off", "report", "follow")
ON_CRASH = ("report", "restart")
PLACEMENTS = ("", *(placement.value for placement in Placement))
PATHS = (
    "fleet",
    "state",
    "local_directory",
    "record",
    "tls_certificate",
    "tls_key",
    "nodes_certificate",
    "nodes_key",
    "nodes_authority",
    "authority",
    "identities",
)

PREFIX = "FOREWARN_"  # of an environment variable that sets a setting
NODE_PREFIX = "FOREWARN_NODE_"  # likewise of `forewarn node`
SEPARATOR = "__"  # between a table and its key, as in FOREWARN_COMMAND__TIMEOUT
OTHER_VARIABLES = (  # not settings: read by the command line
    "FOREWARN_CA",
    "FOREWARN_CONFIG",
    "FOREWARN_DRIVER_CONFIG",
    "FOREWARN_TOKEN",
    "FOREWARN_TOKEN_FILE",
    "FOREWARN_URL",
)


class SettingsError(Exception):
    """Settings that cannot be used. Each problem is one line, which says what would be right."""

    def __init__(self, *problems: str, usable: LoadedSettings | None = None) -> None:
        super().__init__(*problems)
        self.problems = problems
        self.usable = usable  # the settings without those that are wrong

    def __str__(self) -> str:
        return "; ".join(self.problems)


class Source(enum.Enum):
    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(msgspec.Struct, frozen=True):
    """Where the value of a setting comes from."""

    source: Source
    name: str = ""  # of the file, the variable or the flag
    line: int = 0  # in the file; 0: unknown

    def __str__(self) -> str:
        match self.source:
            case Source.DEFAULT:
                return "default"
            case Source.FILE:
                return f"{self.name}:{self.line}" if self.line else self.name
        return f"{self.source.value} {self.name}"

    def prefix(self, message: str) -> str:
        """Return a message with the file and line, the variable or the flag in front of it."""
        if self.source is Source.DEFAULT:
            return message
        place = str(self) if self.source is Source.FILE else self.name
        return f"{place}: {message}"


DEFAULT = Origin(Source.DEFAULT)


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    fleet: str = ""  # fleet file, applied at the start; empty: keep the stored inventory
    state: str = "forewarn.db"  # the SQLite file, or postgresql://HOST/DATABASE
    name: str = ""  # of this control node, among several; empty: the name of the machine
    lease: str = "6s"  # with PostgreSQL: after this time without a leader, another node takes over
    replicated: str = ""  # with PostgreSQL: "managed" if its provider keeps every commit twice
    local_directory: str = "."  # with PostgreSQL: for files of this machine
    metadata: str | list[str] = "169.254.169.254:80"  # one address for guests, or a list
    control: str = "127.0.0.1:8170"  # address for operators
    control_names: list[str] | None = None  # host names of the control API, beside its address
    control_proxies: list[str] | None = None  # reverse proxies before it: addresses and networks
    tls_certificate: str = ""  # of the control API, with its chain (PEM); empty: no TLS
    tls_key: str = ""  # key of tls_certificate (PEM)
    allow_plain_control: bool = False  # allow `control` beyond loopback without TLS
    arm: str = ""  # address for az and Azure's SDKs, with the TLS of `control`; empty: none
    identities: str = ""  # file with the secret that signs tokens of machines; empty: none
    allow_other_addresses: bool = False  # allow `metadata` beyond link-local and loopback
    history: str = "90d"  # how long the history is kept; empty: forever
    record: str = ""  # file for a trace of all requests, answers and events; empty: none
    throttle: int = 0  # requests per machine and second; 0: no limit
    max_connections_per_machine: int = 32
    max_connections: int = 16_384  # of all machines together
    faults: bool = False  # allow fault injection, for tests
    ui: bool = True  # serve the portal with the control API
    observe: bool = False  # keep what guests do in memory, for the verdict
    front: bool = True  # answer ordinary polls in Front
    enable_delay: str = "0s"  # delay of a group's first answer
    max_removals: str = "20, 10%"  # machines that a fleet may remove without giving their number
    placement: str = (
        ""  # which source counts for hosts of machines: file, reported; empty: undecided
    )
    inventory: str = "off"  # what drivers see of machines: off, report, follow
    # To which machines may be added with inventory = "follow": a pattern with * and ?, or a list.
    inventory_groups: str | list[str] = "*"
    on_crash: str = "report"  # with inventory = "follow", of machines: report, restart
    unreported_moves: str = "record"  # of machines that poll on another host: record, hold
    silence: str = "24h"  # time without a poll after which a group is disabled
    start_grace: str = "60s"  # after an interruption: no event starts by its NotBefore
    max_clock_step: str = "5m"  # how far the wall clock may jump, or be behind at the start
    max_downtime: str = "30d"  # how far the wall clock may be ahead at the start
    driver: str = SIMULATED  # carries events out: simulated, command, hosts, or an installed driver
    driver_options: dict[str, dict[str, Any]] = {}  # by driver: the table of its name
    nodes: str | list[str] = ""  # for nodes: address, path or both; empty: guests are answered here
    nodes_host: str = ""  # host of the node that connects to the path; empty: name of the machine
    nodes_certificate: str = ""  # of this control node on its connections to nodes (PEM)
    nodes_key: str = ""  # key of nodes_certificate (PEM)
    nodes_authority: str = ""  # authority that issues the certificates of both sides (PEM)
    authority: str = ""  # directory of an authority that this service keeps; empty: none
    nodes_addresses: list[str] | None = None  # of all control nodes for nodes, with `authority`
    certificate_life: str = "7d"  # of the certificates that it issues, with `authority`
    log: str = "auto"  # console, json, or auto: console on a terminal, otherwise json
    log_level: str = "info"  # debug, info, warning or error
    traces: str = ""  # OTLP receiver (HTTP) for OpenTelemetry traces; empty: none
    gates: dict[str, list[str]] | None = None  # commands of rollouts' gates, by name
    notify: list[Notify] | None = None  # who is told what: the tables [[notify]]
    oidc: Oidc | None = None  # an issuer whose tokens the control API accepts: the table [oidc]


class LoadedSettings(msgspec.Struct, frozen=True):
    """All settings, and where each comes from that is not a default. Keys of tables are written as
    `command.timeout` and `gates.healthy`."""

    settings: Settings
    origins: dict[str, Origin] = {}

    def origin(self, key: str) -> Origin:
        return self.origins.get(key, DEFAULT)
