"""The settings of `forewarn serve`: a TOML file, and flags that win over it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from forewarn.core.time import Rules
from forewarn.core.words import in_words, parse_duration
from forewarn.drivers.command import Program
from forewarn.drivers.program import ProgramUnusable, found
from forewarn.metadata.limits import Limits
from forewarn.node.config import Address, Config, Tls
from forewarn.node.sockets import confined, local
from forewarn.service import fleetfile
from forewarn.service.fleetfile import FleetError
from forewarn.service.history import HISTORY_LEAST
from forewarn.service.suggest import helped, instead_of

AT_LEAST_ONE = (
    "max_head",
    "max_head_lines",
    "max_body",
    "max_pipelined",
    "max_connections_per_machine",
    "max_connections",
)


DRIVERS = ("simulated", "command")
PATHS = ("fleet", "state", "record", "tls_certificate", "tls_key", "upstream")


class SettingsError(Exception):
    """A setting cannot be used; the message says which and what would be right."""


class CommandTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """[command]: an operator's program that carries events out."""

    program: list[str]  # and its first arguments
    timeout: str = "10m"  # that one call may take
    repeatable: bool = False  # may it be asked again when nobody knows whether it happened?
    max_at_once: int = 256  # programs that run at a time


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    fleet: str = ""  # the fleet file, applied at the start; empty: the inventory that is stored
    state: str = "forewarn.db"  # the SQLite file
    metadata: str = "169.254.169.254:80"  # where guests ask
    control: str = "127.0.0.1:8170"  # where operators ask
    control_names: list[str] | None = None  # names that it may be asked under, beside its address
    tls_certificate: str = ""  # of the control API, with the chain (PEM); empty: no TLS
    tls_key: str = ""  # its key (PEM)
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
    max_pipelined: int = 128  # requests sent ahead on one connection
    max_connections_per_machine: int = 32
    max_connections: int = 16_384  # of all machines together
    front: bool = True  # answer ordinary polls the short way
    enable_delay: str = "0s"  # that a group's first answer takes
    silence: str = "24h"  # without a poll, after which a group is disabled
    start_grace: str = "60s"  # after an outage, in which nothing starts by its NotBefore
    driver: str = "simulated"  # what carries events out: simulated, or command
    command: CommandTable | None = None
    workers: int = 0  # processes that answer guests, beside the one that decides; 0: all in one
    upstream: str = ""  # the socket between them; empty: beside the state file
    log: str = "auto"  # console, json, or auto: console on a terminal, else json
    log_level: str = "info"  # debug, info, warning or error
    traces: str = ""  # where OpenTelemetry traces go (OTLP over HTTP); empty: nowhere
    gates: dict[str, list[str]] | None = None  # commands that a rollout's gate may name


def read(path: Path) -> Settings:
    try:
        settings = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Settings)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error
    except msgspec.ValidationError as error:
        table = CommandTable if "`$.command`" in str(error) else Settings
        keys = [field.name for field in msgspec.structs.fields(table)]
        raise SettingsError(f"{path}: {helped(str(error), keys)}") from error
    for key in (
        "fleet",
        "state",
        "record",
        "tls_certificate",
        "tls_key",
        "upstream",
    ):  # as seen from the file, wherever one stands
        said = getattr(settings, key)
        if said:
            setattr(settings, key, str(path.parent / said))
    if settings.command and settings.command.program and "/" in settings.command.program[0]:
        first, *rest = settings.command.program
        settings.command.program = [str((path.parent / first).absolute()), *rest]
    for words in (settings.gates or {}).values():
        if words and "/" in words[0]:
            words[0] = str((path.parent / words[0]).absolute())
    return settings


def config(settings: Settings) -> Config:
    metadata = _address("metadata", settings.metadata)
    if not settings.allow_other_addresses and not confined(metadata.host):
        raise SettingsError(
            f"metadata = {metadata}: guests are known by their address alone, so the endpoint is"
            " bound to link-local or loopback; set allow_other_addresses = true if you mean it"
        )
    control = _address("control", settings.control)
    if not local(control.host):
        raise SettingsError(f"control = {control}: the control API is bound to loopback only")
    for key in AT_LEAST_ONE:
        if getattr(settings, key) < 1:
            raise SettingsError(f"{key} must be at least 1")
    if settings.throttle < 0:
        raise SettingsError("throttle must not be negative; 0 means no limit")
    try:
        fleet = fleetfile.load(Path(settings.fleet)) if settings.fleet else None
    except FleetError as error:
        raise SettingsError(str(error)) from error
    return Config(
        fleet=fleet,
        fleet_file=settings.fleet,
        insist=False,
        state=Path(settings.state),
        rules=Rules(
            silence=_duration("silence", settings.silence),
            start_grace=_duration("start_grace", settings.start_grace),
            enable_delay=_duration("enable_delay", settings.enable_delay),
        ),
        limits=Limits(
            max_head=settings.max_head,
            max_head_lines=settings.max_head_lines,
            head_timeout=_duration("head_timeout", settings.head_timeout) / 1e6,
            max_body=settings.max_body,
            body_timeout=_duration("body_timeout", settings.body_timeout) / 1e6,
            answer_timeout=_duration("answer_timeout", settings.answer_timeout) / 1e6,
            keep_alive=max(1, _duration("keep_alive", settings.keep_alive) // 1_000_000),
            max_pipelined=settings.max_pipelined,
            max_connections_per_machine=settings.max_connections_per_machine,
            max_connections=settings.max_connections,
            throttle=settings.throttle,
        ),
        history=_history(settings.history),
        front=settings.front,
        metadata=metadata,
        control=control,
        control_names=tuple(settings.control_names or ()),
        tls=_tls(settings),
        workers=settings.workers,
        upstream=Path(settings.upstream or f"{settings.state}.upstream"),
        record=Path(settings.record) if settings.record else None,
        program=_program(settings),
        gates=gates(settings.gates or {}),
    )


def _tls(settings: Settings) -> Tls | None:
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise SettingsError("tls_certificate and tls_key belong together; say both, or none")
    if not settings.tls_certificate:
        return None
    return Tls(Path(settings.tls_certificate), Path(settings.tls_key))


def gates(said: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The commands of gates by name, each a program that is there."""
    made = {}
    for name, words in said.items():
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,80}", name, re.ASCII):
            raise SettingsError(
                f"gate '{name[:80]}': a gate is named with letters, digits, '.', '_' and '-'"
            )
        try:
            made[name] = tuple(found(list(words)))
        except ProgramUnusable as error:
            raise SettingsError(f"gate '{name}': {error}") from error
    return made


def _program(settings: Settings) -> Program | None:
    table = settings.command
    if settings.driver not in DRIVERS:
        raise SettingsError(f"driver = '{settings.driver}': {instead_of(settings.driver, DRIVERS)}")
    if settings.driver != "command":
        if table is not None:
            raise SettingsError('[command] is only used with driver = "command"; say both, or none')
        return None
    if table is None:
        raise SettingsError(
            'driver = "command" needs to know the program:'
            ' [command] with program = ["/usr/local/lib/forewarn/carry"]'
        )
    timeout = _duration("command.timeout", table.timeout) / 1e6
    if timeout <= 0:
        raise SettingsError("command.timeout must be more than 0")
    if table.max_at_once < 1:
        raise SettingsError("command.max_at_once must be at least 1")
    try:
        words = found(table.program)
    except ProgramUnusable as error:
        raise SettingsError(f"command.program: {error}") from error
    return Program(
        words=words,
        timeout=timeout,
        repeatable=table.repeatable,
        max_at_once=table.max_at_once,
    )


def _history(text: str) -> int | None:
    if not text.strip():
        return None
    kept = _duration("history", text)
    if kept < HISTORY_LEAST:
        raise SettingsError(
            f"history = '{text}': it is kept for at least {in_words(HISTORY_LEAST)};"
            ' write for example 90d, or "" to keep all of it'
        )
    return kept


def _address(key: str, text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise SettingsError(f"{key}: {error}, for example 127.0.0.1:8169") from error


def _duration(key: str, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise SettingsError(f"{key}: {error}") from error
