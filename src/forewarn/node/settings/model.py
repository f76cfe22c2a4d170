"""The settings of `forewarn serve`: which there are, what each is if nobody says, and where a
value came from. Where they are read is `gather.py`; what they mean to a node is
`validate.py`.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from forewarn.drivers.registry import SIMULATED

LOGS = ("auto", "console", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
PATHS = ("fleet", "state", "record", "tls_certificate", "tls_key", "upstream")

PREFIX = "FOREWARN_"  # of a variable of the environment that says a setting
SEPARATOR = "__"  # in its name: a key of a table, as in FOREWARN_COMMAND__TIMEOUT
OTHER_VARIABLES = (  # that are read elsewhere, and are no settings
    "FOREWARN_CA",
    "FOREWARN_CONFIG",
    "FOREWARN_TOKEN",
    "FOREWARN_TOKEN_FILE",
    "FOREWARN_URL",
)


class SettingsError(Exception):
    """Settings that cannot be used. Each problem is one line: which, and what would be right."""

    def __init__(self, *problems: str, usable: LoadedSettings | None = None) -> None:
        super().__init__(*problems)
        self.problems = problems
        self.usable = usable  # what could be read all the same

    def __str__(self) -> str:
        return "; ".join(self.problems)


class Source(enum.Enum):
    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(msgspec.Struct, frozen=True):
    """Where a value comes from."""

    source: Source
    name: str = ""  # the file, the variable or the flag
    line: int = 0  # in the file; 0: it is not known

    def __str__(self) -> str:
        match self.source:
            case Source.DEFAULT:
                return "default"
            case Source.FILE:
                return f"{self.name}:{self.line}" if self.line else self.name
        return f"{self.source.value} {self.name}"

    def before(self, says: str) -> str:
        """A complaint, with the place that it is about."""
        if self.source is Source.DEFAULT:
            return says
        place = str(self) if self.source is Source.FILE else self.name
        return f"{place}: {says}"


DEFAULT = Origin(Source.DEFAULT)


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    fleet: str = ""  # the fleet file, applied at the start; empty: the inventory that is stored
    state: str = "forewarn.db"  # the SQLite file
    metadata: str | list[str] = "169.254.169.254:80"  # where guests ask: one address, or a list
    control: str = "127.0.0.1:8170"  # where operators ask
    control_names: list[str] | None = None  # names that it may be asked under, beside its address
    tls_certificate: str = ""  # of the control API, with the chain (PEM); empty: no TLS
    tls_key: str = ""  # its key (PEM)
    allow_plain_control: bool = False  # may `control` be asked from elsewhere without TLS?
    allow_other_addresses: bool = False  # may `metadata` be neither link-local nor loopback?
    history: str = "90d"  # how long it is kept; empty: for ever
    record: str = ""  # a file for everything that is asked and answered; empty: none
    throttle: int = 0  # requests per machine and second; 0: as many as one likes
    max_head: int = 16 * 1024  # bytes of a request before its body
    max_head_lines: int = 64  # header lines of a request
    head_timeout: str = "10s"  # to send it
    max_body: int = 64 * 1024  # bytes of an approval
    body_timeout: str = "10s"  # to send it
    answer_timeout: str = "10s"  # to take an answer that did not fit at once
    keep_alive: str = "120s"  # that an idle connection is kept
    max_chunks: int = 128  # chunks of an approval
    max_connections_per_machine: int = 32
    max_connections: int = 16_384  # of all machines together
    max_buffered_per_machine: int = 512 * 1024  # bytes of unfinished requests and unsent answers
    max_buffered: int = 32 * 1024 * 1024  # of all machines together
    faults: bool = False  # may things be made to go wrong on purpose? For tests
    observe: bool = False  # keep account of what guests do, for the verdict
    front: bool = True  # answer ordinary polls the short way
    enable_delay: str = "0s"  # that a group's first answer takes
    silence: str = "24h"  # without a poll, after which a group is disabled
    start_grace: str = "60s"  # after an outage, in which nothing starts by its NotBefore
    max_clock_step: str = "5m"  # how far the wall clock may jump, or be behind at the start
    max_downtime: str = "30d"  # how far the wall clock may be ahead at the start
    driver: str = SIMULATED  # what carries events out: simulated, command, or an installed one
    driver_options: dict[str, dict[str, Any]] = {}  # by driver: the keys of the table of its name
    workers: int = 0  # processes that answer guests, beside the one that decides; 0: all in one
    upstream: str = ""  # the socket between them; empty: beside the state file
    log: str = "auto"  # console, json, or auto: console on a terminal, else json
    log_level: str = "info"  # debug, info, warning or error
    traces: str = ""  # where OpenTelemetry traces go (OTLP over HTTP); empty: nowhere
    gates: dict[str, list[str]] | None = None  # commands that a rollout's gate may name


class LoadedSettings(msgspec.Struct, frozen=True):
    """All settings, and where those come from that are not defaults. Keys of tables are written as
    `command.timeout` and `gates.healthy`."""

    settings: Settings
    origins: dict[str, Origin] = {}

    def origin(self, key: str) -> Origin:
        return self.origins.get(key, DEFAULT)
