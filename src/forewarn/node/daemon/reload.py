"""SIGHUP: the settings are read anew. What can change while the service runs is changed; of the
rest it is said that it needs a restart. A file that is wrong changes nothing.

Works on what a process has: one that only answers guests has limits, and nothing to decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from forewarn.core import Refused
from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.metadata.endpoint.limits import Limits
from forewarn.metadata.http import front
from forewarn.node import CannotListen, Config, Node
from forewarn.node.settings import LoadedSettings, Settings, SettingsError
from forewarn.support.logs import logger
from forewarn.support.text import listing

LIMITS = tuple(field.name for field in msgspec.structs.fields(Limits))
RULES = ("silence", "start_grace", "enable_delay")
LOGGING = ("log", "log_level")
TLS = ("tls_certificate", "tls_key")
LIVE = (*LIMITS, *RULES, *LOGGING, *TLS, "control_names", "fleet", "gates", "history")

log = logger("forewarn")


class Report(msgspec.Struct, frozen=True):
    reloaded: tuple[str, ...] = ()  # settings that are others from now on
    restart: tuple[str, ...] = ()  # that were changed, and stay as they were until a restart
    problems: tuple[str, ...] = ()  # what could not be taken over, and why
    refused: bool = False  # all of it: nothing has changed


class Reloader:
    """The settings that a running process goes by. `load` gathers them from where they came
    from (a worker's without the fleet); `fit` makes a configuration what the machine allows;
    `after` hears what came of it, when `said` is what is in force."""

    def __init__(
        self,
        said: LoadedSettings,
        load: Callable[[], tuple[LoadedSettings, Config]],
        relog: Callable[[Settings], None] = lambda _: None,
        fit: Callable[[Config], Config] = lambda config: config,
        after: Callable[[Report], None] = lambda _: None,
    ) -> None:
        self.said = said
        self._load = load
        self._relog = relog
        self._fit = fit
        self.after = after

    async def node(self, node: Node) -> Report:
        """All of it, in the process that decides."""
        try:
            # A fleet file may be large: guests are answered while it is read.
            new, made = await asyncio.to_thread(self._load)
            made = self._fit(made)
        except (SettingsError, CannotListen) as error:
            return self._refused(error)
        changed = _Changed(self.said.settings, new.settings)
        problems = [*_apply_limits(node.endpoint, node.front is not None, made, changed)]
        _apply_rules(node, made, changed)
        if changed.any("history"):
            node.history.keep(made.history)
        if changed.any("gates"):
            node.gates.allow(made.gates)
        if changed.any("control_names"):
            node.control_names = made.control_names
        _apply_driver(node, made, changed)
        problems += _apply_certificate(node, made, changed)
        if changed.any(*LOGGING):
            self._relog(new.settings)
        refused = await _apply_fleet(node, made)
        applied = made.fleet is not None and not refused
        return self._taken_over(new, changed, problems + refused, fleet=applied)

    def worker(self, endpoint: MetadataApp, fronted: bool) -> Report:
        """What concerns a process that only answers guests."""
        try:
            new, made = self._load()
            made = self._fit(made)
        except (SettingsError, CannotListen) as error:
            return self._refused(error)
        changed = _Changed(self.said.settings, new.settings, only=(*LIMITS, *LOGGING))
        problems = [*_apply_limits(endpoint, fronted, made, changed)]
        if changed.any(*LOGGING):
            self._relog(new.settings)
        return self._taken_over(new, changed, problems)

    def _taken_over(
        self,
        new: LoadedSettings,
        changed: _Changed,
        problems: list[str],
        *,
        fleet: bool = False,
    ) -> Report:
        restart = changed.left()
        reloaded = [key for key in changed.keys if key not in restart]
        if fleet and "fleet" not in reloaded:
            reloaded.append("fleet")
        self.said = LoadedSettings(_mixed(self.said.settings, new.settings, reloaded), new.origins)
        return self._told(Report(tuple(reloaded), tuple(restart), tuple(problems)))

    def _refused(self, error: SettingsError | CannotListen) -> Report:
        problems = error.problems if isinstance(error, SettingsError) else (str(error),)
        return self._told(Report(problems=problems, refused=True))

    def _told(self, report: Report) -> Report:
        self._tell(report)
        self.after(report)
        return report

    def _tell(self, report: Report) -> None:
        if report.refused:
            log.error("the settings are wrong and stay as they were", problems=report.problems)
            return
        log.info("the settings were read anew", reloaded=report.reloaded)
        if report.restart:
            log.warning("these settings need a restart, and stay as they were", keys=report.restart)
        for problem in report.problems:
            log.warning("a setting could not be taken over", why=problem)


class _Changed:
    """Which settings are others than before, and which of them have been seen to."""

    def __init__(self, old: Settings, new: Settings, only: tuple[str, ...] | None = None) -> None:
        before, after = _flat(old), _flat(new)
        self.keys = [
            key
            for key in after | before
            if before.get(key) != after.get(key) and (only is None or key in only)
        ]
        self._applied: set[str] = set()
        self._later: set[str] = set()

    def any(self, *keys: str) -> list[str]:
        return [key for key in self.keys if key in keys]

    def applied(self, *keys: str) -> None:
        """These have been taken over, though not every driver does so."""
        self._applied.update(keys)

    def later(self, *keys: str) -> None:
        """These cannot be taken over as things are."""
        self._later.update(keys)

    def left(self) -> list[str]:
        live = {*LIVE, *self._applied} - self._later
        return [key for key in self.keys if key not in live]


def _flat(settings: Settings) -> dict[str, Any]:
    """Return the settings by key, with each option of a driver as a key. Gates are one key."""
    flat = msgspec.structs.asdict(settings)
    for driver, options in flat.pop("driver_options").items():
        flat |= {f"{driver}.{key}": value for key, value in options.items()}
    return flat


def _mixed(old: Settings, new: Settings, taken: list[str]) -> Settings:
    """What is in force: the new where it was taken over, else the old."""
    mixed = {key: getattr(new, key) for key in taken if "." not in key}
    if any("." in key for key in taken):
        mixed["driver_options"] = new.driver_options
    return msgspec.structs.replace(old, **mixed)


def _apply_limits(
    endpoint: MetadataApp, fronted: bool, made: Config, changed: _Changed
) -> Iterator[str]:
    if not changed.any(*LIMITS):
        return
    limits = made.limits
    if fronted and not front.possible(limits):
        # The short way would answer what is longer than may be.
        keys = changed.any("max_head", "max_head_lines")
        changed.later(*keys)
        kept = {key: getattr(endpoint.limits, key) for key in keys}
        limits = msgspec.structs.replace(limits, **kept)
        yield f"{listing(keys)}: so little is only possible without the short way for polls"
    endpoint.set_limits(limits)


def _apply_rules(node: Node, made: Config, changed: _Changed) -> None:
    if node.config.record is not None:
        changed.later(*changed.any("start_grace"))  # a trace says once what it is judged by
    if not changed.any(*RULES):
        return
    rules = made.rules
    if node.config.record is not None:
        rules = msgspec.structs.replace(rules, start_grace=node.writer.rules.start_grace)
    node.writer.rules = rules
    node.scheduler.reread()


def _apply_driver(node: Node, made: Config, changed: _Changed) -> None:
    """Give the driver its new options. Another driver takes a restart."""
    keys = [key for key in changed.keys if key.startswith(f"{made.driver.name}.")]
    if keys and not changed.any("driver") and node.driver.reload(made.driver.options):
        changed.applied(*keys)


def _apply_certificate(node: Node, made: Config, changed: _Changed) -> list[str]:
    """Read anew, changed or not. Whether there is TLS at all is decided at the start."""
    if node.certificates is None or made.tls is None:
        changed.later(*changed.any(*TLS))
        return []
    says = node.certificates.reload(made.tls)
    if says:
        changed.later(*changed.any(*TLS))
        return [f"tls_certificate: {says}"]
    return []


async def _apply_fleet(node: Node, made: Config) -> list[str]:
    """As at the start: what has an active event is never removed by it."""
    if made.fleet is None:
        return []
    done = await node.fleet_apply.fleet(made.fleet, by="reload")
    if isinstance(done, Refused):
        return [
            f"fleet: {made.fleet_file} is not applied, the inventory stays as it was: {done};"
            f" look at forewarn apply {made.fleet_file} --plan"
        ]
    if removed := done.machines.removed + done.hosts.removed:
        log.warning(
            "machines or hosts that the fleet file no longer names were removed", removed=removed
        )
    return []
