"""Reloads the settings on SIGHUP. What can change while the service runs is changed; settings that
need a restart are reported. If the settings are wrong, nothing changes.

A node on a host only has limits, a log and a certificate (`run_host_node`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from forewarn.core import Refused
from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.node import CannotListen, Config, Node
from forewarn.node.settings import LoadedSettings, Settings, SettingsError
from forewarn.support.logs import logger

LIMITS = ("throttle", "max_connections_per_machine", "max_connections")
RULES = ("silence", "start_grace", "enable_delay")
LOGGING = ("log", "log_level")
TLS = ("tls_certificate", "tls_key")
NODES_TLS = ("nodes_certificate", "nodes_key", "nodes_authority")
INVENTORY = ("fleet", "max_removals", "placement", "unreported_moves")
LIVE = (
    *(*LIMITS, *RULES, *LOGGING, *TLS, *NODES_TLS, *INVENTORY),
    *("control_names", "control_proxies", "gates", "history", "notify", "oidc"),
)
OPENED = (
    "oidc: without the table [oidc], every local program could use the control API, because no"
    " token has ever been created. Create one first (forewarn token create NAME --role admin)"
)

RESTART = "some changed settings need a restart; their previous values stay in force"

log = logger("forewarn")


class Report(msgspec.Struct, frozen=True):
    reloaded: tuple[str, ...] = ()  # settings that have new values now
    restart: tuple[str, ...] = ()  # settings that were changed, but need a restart
    problems: tuple[str, ...] = ()  # changes that could not be applied, and why
    refused: bool = False  # the settings are wrong: nothing has changed

    @property
    def refusal(self) -> str:
        """Why nothing has changed, or ""."""
        return "; ".join(self.problems) if self.refused else ""


class Reloader:
    """The settings that are in force in a running process, and their reload.

    `load` reads them again from where they came from; `fit` adapts a configuration to the limits
    of the system."""

    def __init__(
        self,
        loaded: LoadedSettings,
        load: Callable[[], tuple[LoadedSettings, Config]],
        configure_log: Callable[[Settings], None] = lambda _: None,
        fit: Callable[[Config], Config] = lambda config: config,
    ) -> None:
        self.loaded = loaded
        self._load = load
        self._configure_log = configure_log
        self._fit = fit

    async def reload_node(self, node: Node) -> Report:
        """Reload all settings, in a process that runs a node."""
        try:
            # A fleet file may be large: in a thread, so that guests are answered meanwhile.
            new, config = await asyncio.to_thread(self._load)
            config = self._fit(config)
        except (SettingsError, CannotListen) as error:
            return self._refuse(error)
        if node.tokens.opened_by(config.oidc):
            return self._refuse(SettingsError(OPENED))
        changed = _Changed(self.loaded.settings, new.settings)
        _apply_limits(node.endpoint, config, changed)
        _apply_rules(node, config, changed)
        if changed.any("history"):
            node.history.keep(config.history)
        if changed.any("placement"):
            node.fleet_apply.placement = config.placement
        if changed.any("unreported_moves") and node.host_nodes is not None:
            node.host_nodes.strays.record = config.record_moves
        if changed.any("max_removals"):
            node.fleet_apply.removal_limit = config.removal_limit
        if changed.any("gates"):
            node.gates.allow(config.gates)
        await node.configure_notifications(config.notify)
        if changed.any("oidc"):
            node.accept_issuer(config.oidc)
        if changed.any("control_names", "control_proxies"):
            node.control_names = config.control_names
            node.control_proxies = config.control_proxies
        _apply_driver(node, config, changed)
        problems = [*_apply_certificate(node, config, changed)]
        problems += _apply_node_certificate(node, config, changed)
        if changed.any(*LOGGING):
            self._configure_log(new.settings)
        fleet_problems = await _apply_fleet(node, config)
        applied = config.fleet is not None and not fleet_problems
        return self._accept(new, changed, problems + fleet_problems, fleet=applied)

    def reload_endpoint(self, endpoint: MetadataApp) -> Report:
        """Reload the settings of a node on a host: its limits and its log."""
        try:
            new, config = self._load()
            config = self._fit(config)
        except (SettingsError, CannotListen) as error:
            return self._refuse(error)
        changed = _Changed(self.loaded.settings, new.settings, only=(*LIMITS, *LOGGING))
        _apply_limits(endpoint, config, changed)
        if changed.any(*LOGGING):
            self._configure_log(new.settings)
        return self._accept(new, changed, [])

    def _accept(
        self,
        new: LoadedSettings,
        changed: _Changed,
        problems: list[str],
        *,
        fleet: bool = False,
    ) -> Report:
        restart = changed.need_restart()
        reloaded = [key for key in changed.keys if key not in restart]
        if fleet and "fleet" not in reloaded:
            reloaded.append("fleet")
        in_force = _in_force(self.loaded.settings, new.settings, reloaded)
        self.loaded = LoadedSettings(in_force, new.origins)
        return self._finish(Report(tuple(reloaded), tuple(restart), tuple(problems)))

    def _refuse(self, error: SettingsError | CannotListen) -> Report:
        problems = error.problems if isinstance(error, SettingsError) else (str(error),)
        return self._finish(Report(problems=problems, refused=True))

    def _finish(self, report: Report) -> Report:
        _log_report(report)
        return report


def _log_report(report: Report) -> None:
    if report.refused:
        log.error(
            "the settings are wrong; the previous ones stay in force", problems=report.problems
        )
        return
    log.info("the settings were reloaded", reloaded=report.reloaded)
    if report.restart:
        log.warning(RESTART, keys=report.restart)
    for problem in report.problems:
        log.warning("a changed setting could not be applied", why=problem)


class _Changed:
    """The settings that differ from those in force, and whether each can be applied."""

    def __init__(self, old: Settings, new: Settings, only: tuple[str, ...] | None = None) -> None:
        before, after = _flat(old), _flat(new)
        self.keys = [
            key
            for key in after | before
            if before.get(key) != after.get(key) and (only is None or key in only)
        ]
        self._applied: set[str] = set()
        self._postponed: set[str] = set()

    def any(self, *keys: str) -> list[str]:
        return [key for key in self.keys if key in keys]

    def applied(self, *keys: str) -> None:
        """Mark options that the driver has applied, which not every driver can."""
        self._applied.update(keys)

    def postpone(self, *keys: str) -> None:
        """Mark settings that cannot be applied without a restart in this case."""
        self._postponed.update(keys)

    def need_restart(self) -> list[str]:
        live = {*LIVE, *self._applied} - self._postponed
        return [key for key in self.keys if key not in live]


def _flat(settings: Settings) -> dict[str, Any]:
    """Return the settings by key, with each option of a driver as a key. Gates are one key."""
    flat = msgspec.structs.asdict(settings)
    for driver, options in flat.pop("driver_options").items():
        flat |= {f"{driver}.{key}": value for key, value in options.items()}
    return flat


def _in_force(old: Settings, new: Settings, reloaded: list[str]) -> Settings:
    """Return the old settings with the new values of those that were reloaded."""
    values = {key: getattr(new, key) for key in reloaded if "." not in key}
    if any("." in key for key in reloaded):
        values["driver_options"] = new.driver_options
    return msgspec.structs.replace(old, **values)


def _apply_limits(endpoint: MetadataApp, config: Config, changed: _Changed) -> None:
    if changed.any(*LIMITS):
        endpoint.set_limits(config.limits)


def _apply_rules(node: Node, config: Config, changed: _Changed) -> None:
    if node.config.record is not None:
        changed.postpone(*changed.any("start_grace"))  # a trace has one value, at its beginning
    if not changed.any(*RULES):
        return
    rules = config.rules
    if node.config.record is not None:
        rules = msgspec.structs.replace(rules, start_grace=node.writer.rules.start_grace)
    node.writer.rules = rules
    node.scheduler.reread()


def _apply_driver(node: Node, config: Config, changed: _Changed) -> None:
    """Give the driver its new options. Another driver needs a restart."""
    keys = [key for key in changed.keys if key.startswith(f"{config.driver.name}.")]
    if keys and not changed.any("driver") and node.driver.reload(config.driver.options):
        changed.applied(*keys)


def _apply_certificate(node: Node, config: Config, changed: _Changed) -> list[str]:
    """Read the certificate again, even if its path has not changed. Turning TLS on or off needs a
    restart."""
    if node.certificates is None or config.tls is None:
        changed.postpone(*changed.any(*TLS))
        return []
    problem = node.certificates.reload(config.tls)
    if problem:
        changed.postpone(*changed.any(*TLS))
        return [f"tls_certificate: {problem}"]
    return []


def _apply_node_certificate(node: Node, config: Config, changed: _Changed) -> list[str]:
    """The same for the certificate for nodes."""
    if node.node_certificates is None or config.nodes is None or config.nodes.tls is None:
        changed.postpone(*changed.any(*NODES_TLS))
        return []
    problem = node.node_certificates.reload(config.nodes.tls, config.nodes.authority)
    if problem:
        changed.postpone(*changed.any(*NODES_TLS))
        return [f"nodes_certificate: {problem}"]
    return []


async def _apply_fleet(node: Node, config: Config) -> list[str]:
    """Apply the fleet file as at the start: a machine with an active event is never removed."""
    if config.fleet is None:
        return []
    outcome = await node.fleet_apply.fleet(config.fleet, by="reload")
    if isinstance(outcome, Refused):
        return [
            f"fleet: {config.fleet_file} is not applied, the inventory stays as it was: {outcome};"
            f" see forewarn apply {config.fleet_file} --plan"
        ]
    if removed := outcome.machines.removed + outcome.hosts.removed:
        log.warning(
            "machines or hosts that the fleet file no longer names were removed", removed=removed
        )
    return []
