"""The settings of `forewarn driver`, from its file: who it is, where control is, and the driver,
which has the same name and the same table as in the settings of a service."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from forewarn.drivers.hosts.messages import MAX_HOSTS
from forewarn.drivers.registry import HOSTS
from forewarn.node.config import Address, DriverProcessConfig, Tls
from forewarn.node.settings import values
from forewarn.node.settings.driver_tables import driver_config, is_driver_table
from forewarn.node.settings.model import (
    DEFAULT,
    LOG_LEVELS,
    LOGS,
    LoadedSettings,
    Origin,
    SettingsError,
)
from forewarn.node.settings.sources import assemble, file_layer, typed
from forewarn.support.suggest import instead_of

DRIVER_PATHS = ("certificate", "key", "authority", "directory")
MAX_AT_ONCE = 256


class DriverSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    host: str = ""  # on which it acts, as in the inventory; empty: the name of the machine
    hosts: list[str] = []  # instead of host: several hosts, on which it acts from here
    control: str | list[str] = ""  # where control accepts nodes: an address, or a list
    certificate: str = ""  # of this process, with its chain (PEM); it names the hosts
    key: str = ""  # key of certificate (PEM)
    authority: str = ""  # authority that issues the certificates of both sides (PEM)
    directory: str = "/var/lib/forewarn-driver"  # for fence numbers, and the driver's own files
    driver: str = ""  # that acts on the machines: the name of an installed driver, or command
    at_once: int = 16  # calls of the driver at a time
    log: str = "auto"  # console, json, or auto: console on a terminal, otherwise json
    log_level: str = "info"  # debug, info, warning or error


_TYPES: dict[str, Any] = {f.name: f.type for f in msgspec.structs.fields(DriverSettings)}
_OF_SERVICE = ("driver", "log", "log_level")  # that a service has as well


class LoadedDriverSettings(msgspec.Struct, frozen=True):
    """All settings, where each comes from that is not a default, and what they mean."""

    settings: DriverSettings
    service: LoadedSettings  # what a service has as well, and where everything comes from
    config: DriverProcessConfig


def load_driver(path: Path | None) -> LoadedDriverSettings:
    """Read and check the settings. Raises SettingsError with all problems."""
    problems: list[str] = []
    layer = file_layer(path, problems, DRIVER_PATHS)
    tables = {key: item for key, item in layer.items() if _of_driver(key.partition(".")[0])}
    given, origins = typed({k: v for k, v in layer.items() if k not in tables}, _TYPES, problems)
    settings = DriverSettings(**given)
    of_service = {key: layer[key] for key in _OF_SERVICE if key in given}
    service = assemble(tables | of_service, problems)
    service = LoadedSettings(service.settings, service.origins | origins)
    config = None
    try:
        config = _config(settings, service, wrong=bool(problems))
    except SettingsError as error:
        problems += error.problems
    if config is None or problems:
        raise SettingsError(*problems)
    return LoadedDriverSettings(settings, service, config)


def _of_driver(table: str) -> bool:
    return table not in _TYPES and is_driver_table(table)


def _config(
    settings: DriverSettings, loaded: LoadedSettings, *, wrong: bool
) -> DriverProcessConfig:
    problems: list[str] = []

    def problem(key: str, message: str, origin: Origin | None = None) -> None:
        problems.append((origin or loaded.origins.get(key, DEFAULT)).prefix(message))

    hosts: tuple[str, ...] = ()
    try:
        hosts = _hosts(settings)
    except SettingsError as error:
        problem("hosts" if settings.hosts else "host", str(error))
    control: list[Address] = []
    try:
        places = values.control_nodes(settings.control)
        control = [place for place in places if isinstance(place, Address)]
    except SettingsError as error:
        problem("control", str(error))
    for key in ("certificate", "key", "authority"):
        if not getattr(settings, key):
            problem(key, f"{key} must be set: this process and control know each other by it")
    if not 1 <= settings.at_once <= MAX_AT_ONCE:
        problem("at_once", f"at_once must be 1 to {MAX_AT_ONCE}, not {settings.at_once}")
    for key, allowed in {"log": LOGS, "log_level": LOG_LEVELS}.items():
        if (value := getattr(settings, key)) not in allowed:
            problem(key, f"{key} = '{value}': {instead_of(value, allowed)}")
    driver = None
    if not settings.driver:
        problem("driver", 'driver must be set: the driver that acts here, for example "command"')
    elif settings.driver == HOSTS:
        problem("driver", f'driver = "{HOSTS}" is for control: it passes tasks to this process')
    elif not wrong:  # of which the driver's table may be
        driver = driver_config(loaded, problem)
    if problems or driver is None:
        raise SettingsError(*problems)
    return DriverProcessConfig(
        hosts=hosts,
        control=tuple(control),
        tls=Tls(Path(settings.certificate), Path(settings.key)),
        authority=Path(settings.authority),
        directory=Path(settings.directory),
        driver=driver,
        at_once=settings.at_once,
    )


def _hosts(settings: DriverSettings) -> tuple[str, ...]:
    if settings.host and settings.hosts:
        raise SettingsError("host and hosts cannot be combined; remove one of them")
    names: Iterable[str] = settings.hosts or [settings.host]
    hosts = tuple(dict.fromkeys(values.host_name("hosts", name) for name in names))
    if len(hosts) > MAX_HOSTS:
        raise SettingsError(f"hosts: one process acts on at most {MAX_HOSTS} hosts")
    return hosts
