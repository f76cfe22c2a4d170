"""The settings of `forewarn serve`: a TOML file, and flags that win over it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from forewarn.core.time import Rules
from forewarn.core.words import parse_duration
from forewarn.metadata.limits import Limits
from forewarn.node.config import Address, Config
from forewarn.node.sockets import confined, local
from forewarn.service import fleetfile
from forewarn.service.fleetfile import FleetError
from forewarn.service.suggest import helped

AT_LEAST_ONE = (
    "max_head",
    "max_head_lines",
    "max_body",
    "max_pipelined",
    "max_connections_per_machine",
    "max_connections",
)


class SettingsError(Exception):
    """A setting cannot be used; the message says which and what would be right."""


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    fleet: str = ""  # the fleet file
    state: str = "forewarn.db"  # the SQLite file
    metadata: str = "169.254.169.254:80"  # where guests ask
    control: str = "127.0.0.1:8170"  # where operators ask
    allow_other_addresses: bool = False  # may `metadata` be neither link-local nor loopback?
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


def read(path: Path) -> Settings:
    try:
        settings = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Settings)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error
    except msgspec.ValidationError as error:
        keys = [field.name for field in msgspec.structs.fields(Settings)]
        raise SettingsError(f"{path}: {helped(str(error), keys)}") from error
    for key in ("fleet", "state", "record"):  # as seen from the file, wherever one stands
        said = getattr(settings, key)
        if said:
            setattr(settings, key, str(path.parent / said))
    return settings


def config(settings: Settings) -> Config:
    if not settings.fleet:
        raise SettingsError('say which fleet: fleet = "fleet.yaml" in the file, or --fleet FILE')
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
        fleet = fleetfile.load(Path(settings.fleet))
    except FleetError as error:
        raise SettingsError(str(error)) from error
    return Config(
        fleet=fleet,
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
        front=settings.front,
        metadata=metadata,
        control=control,
        record=Path(settings.record) if settings.record else None,
    )


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
