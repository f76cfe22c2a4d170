"""The settings of `forewarn node`, from file, environment and flags, as those of `forewarn serve`.

What both have is declared and checked there: addresses for guests, their limits, recording and log.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from forewarn.node.config import Address, HostNodeConfig, Tls
from forewarn.node.settings import values
from forewarn.node.settings.model import (
    DEFAULT,
    NODE_PREFIX,
    LoadedSettings,
    Origin,
    Settings,
    SettingsError,
    Source,
)
from forewarn.node.settings.sources import file_layer, flag_layer, parse, typed
from forewarn.node.settings.validate import config as make_config
from forewarn.support.suggest import instead_of

NODE_PATHS = ("certificate", "key", "authority", "journal", "record")
OTHER_NODE_VARIABLES = ("FOREWARN_NODE_CONFIG",)  # not a setting: read by the command line


class NodeSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    host: str = ""  # name of the host, as in the inventory; empty: the name of the machine
    control: str | list[str] = ""  # where control accepts nodes: an address, a path, or a list
    certificate: str = ""  # of this node, with its chain (PEM); it names the host
    key: str = ""  # key of certificate (PEM)
    authority: str = ""  # authority that issues the certificates of both sides (PEM)
    journal: str = "/var/lib/forewarn-node"  # directory for what control has told
    status: str = "127.0.0.1:8172"  # address for health and metrics; empty: none
    metadata: str | list[str] = "169.254.169.254:80"  # one address for guests, or a list
    allow_other_addresses: bool = False  # allow `metadata` beyond link-local and loopback
    record: str = ""  # file for a trace of all requests and answers; empty: none
    throttle: int = 0  # requests per machine and second; 0: no limit
    max_connections_per_machine: int = 32
    max_connections: int = 16_384  # of all machines together
    front: bool = True  # answer ordinary polls in Front
    log: str = "auto"  # console, json, or auto: console on a terminal, otherwise json
    log_level: str = "info"  # debug, info, warning or error


_TYPES: dict[str, Any] = {f.name: f.type for f in msgspec.structs.fields(NodeSettings)}
SHARED = tuple(
    f.name
    for f in msgspec.structs.fields(Settings)
    if f.name in _TYPES.keys() - {"control", "authority"}
)


class LoadedNodeSettings(msgspec.Struct, frozen=True):
    """All settings, where each comes from that is not a default, and what they mean."""

    settings: NodeSettings
    endpoint: LoadedSettings  # what `forewarn serve` has as well
    config: HostNodeConfig


def load_node(
    path: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any] | None = None
) -> LoadedNodeSettings:
    """Collect and check the settings. Raises SettingsError with all problems."""
    problems: list[str] = []
    layer = file_layer(path, problems, NODE_PATHS)
    layer |= _environment(environment, problems) | flag_layer(flags or {})
    given, origins = typed(layer, _TYPES, problems)
    settings = NodeSettings(**given)
    shared = Settings(**{key: getattr(settings, key) for key in SHARED}, control="127.0.0.1:0")
    endpoint = LoadedSettings(shared, origins)
    config = None
    try:
        config = _config(settings, endpoint)
    except SettingsError as error:
        problems += error.problems
    if config is None or problems:
        raise SettingsError(*problems)
    return LoadedNodeSettings(settings, endpoint, config)


def _environment(environment: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    layer: dict[str, Any] = {}
    variables = [f"{NODE_PREFIX}{key.upper()}" for key in _TYPES]
    for name in sorted(environment):
        if not name.startswith(NODE_PREFIX) or name in OTHER_NODE_VARIABLES:
            continue
        if name not in variables:
            problems.append(f"{name}: no such setting; {instead_of(name, variables)}")
            continue
        key, origin = name.removeprefix(NODE_PREFIX).lower(), Origin(Source.ENVIRONMENT, name)
        try:
            layer[key] = parse(_TYPES[key], environment[name], key), origin
        except ValueError as error:
            problems.append(origin.prefix(str(error)))
    return layer


def _config(settings: NodeSettings, endpoint: LoadedSettings) -> HostNodeConfig:
    problems: list[str] = []

    def problem(key: str, message: str) -> None:
        problems.append(endpoint.origins.get(key, DEFAULT).prefix(message))

    served = None
    try:
        served = make_config(endpoint, with_fleet=False)
    except SettingsError as error:
        problems += error.problems
    host = ""
    try:
        host = values.host_name("host", settings.host)
    except SettingsError as error:
        problem("host", str(error))
    control: list[Address | Path] = []
    try:
        control = values.control_nodes(settings.control, ", or the path of its socket on this host")
    except SettingsError as error:
        problem("control", str(error))
    on_this_host = bool(control) and all(isinstance(place, Path) for place in control)
    for key in ("certificate", "key", "authority"):
        if on_this_host and getattr(settings, key):
            problem(key, values.not_used(key, "an address in control"))
        elif not on_this_host and not getattr(settings, key):
            problem(key, f"{key} must be set: nodes and control know each other by certificates")
    status = None
    try:
        status = values.address("status", settings.status) if settings.status else None
    except SettingsError as error:
        problem("status", str(error))
    for metadata in served.guest_addresses if served and status else ():
        if status and values.collide(metadata, status):
            problem(
                "status",
                f"status = {status}: this is an address for guests (metadata = {metadata}); choose"
                " another port",
            )
    if problems or served is None:
        raise SettingsError(*problems)
    return HostNodeConfig(
        host=host,
        control=tuple(control),
        tls=None if on_this_host else Tls(Path(settings.certificate), Path(settings.key)),
        authority=None if on_this_host else Path(settings.authority),
        journal=Path(settings.journal),
        status=status,
        endpoint=served,
    )
