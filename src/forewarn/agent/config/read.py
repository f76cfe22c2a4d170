"""Reads a configuration from a TOML file. All problems are reported at once, a line each, with
their place and what would be right; nothing of the file takes effect then.

Looks at the file alone. Whether programs exist and directories are writable is for `agent check` to
find out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forewarn.agent.config import read_hooks
from forewarn.agent.config.address import InvalidListen, parse_listen
from forewarn.agent.config.model import (
    APPROVALS,
    AT_ONCE,
    DEFAULT_LISTEN,
    DEFAULT_STATE,
    MACHINES,
    Config,
    Rule,
)
from forewarn.agent.config.reader import Reader
from forewarn.agent.config.rules import covers
from forewarn.client.discovery.endpoint import parse_endpoint
from forewarn.client.errors import InvalidEndpointError
from forewarn.support.suggest import instead_of
from forewarn.support.text import listing, not_utf8
from forewarn.wire.versions import TYPE_NAMES

MAX_CONFIG_BYTES = 1024 * 1024
SOURCES = ("Platform", "User")

_TABLES: dict[str, Any] = {"agent": dict[str, Any], "rule": list[Any], "hook": dict[str, Any]}
_AGENT: dict[str, Any] = {
    "state": str,
    "endpoint": str,
    "listen": str,
    "listen_anywhere": bool,
    "approve": str,
    "shared": str,
}
_RULE: dict[str, Any] = {
    "name": str,
    "type": str | list[str],
    "source": str | list[str],
    "min_duration": str | int | float,
    "max_duration": str | int | float,
    "machine": str,
    "labels": dict[str, str],
    "hooks": list[str],
    "when": str,
    "approve": str,
}


class ConfigError(Exception):
    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def read(path: Path) -> Config:
    """Raises ConfigError."""
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ConfigError(f"{path}: the file is larger than {MAX_CONFIG_BYTES:,} bytes")
        raw = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {not_utf8(error)}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return convert(raw, path)


def convert(raw: Mapping[str, Any], path: Path) -> Config:
    """Convert the content of a file. Raises ConfigError."""
    reader = Reader(path)
    config = _config(reader, raw)
    if reader.problems:
        raise ConfigError(*(f"{path}: {problem}" for problem in reader.problems))
    return config


def _config(reader: Reader, raw: Mapping[str, Any]) -> Config:
    if isinstance(raw.get("rule"), dict):
        reader.add_problem("rule", "write [[rule]], with two brackets; there may be several rules")
        raw = {key: value for key, value in raw.items() if key != "rule"}
    tables = reader.table("", raw, _TABLES)
    agent = _agent(reader, tables.get("agent", {}))
    hook_tables = tables.get("hook", {})
    hooks = [read_hooks.hook(reader, name, table) for name, table in hook_tables.items()]
    rules = [
        _rule(reader, index, rule, list(hook_tables), agent.get("approve", "never"))
        for index, rule in enumerate(tables.get("rule", []))
    ]
    _check_rules(reader, rules, list(hook_tables))
    return Config(
        state=reader.absolute(agent.get("state") or DEFAULT_STATE),
        endpoint=agent.get("endpoint") or None,
        listen=agent.get("listen", DEFAULT_LISTEN),
        listen_anywhere=agent.get("listen_anywhere", False),
        shared=reader.absolute(agent["shared"]) if agent.get("shared") else None,
        rules=tuple(rules),
        hooks={hook.name: hook for hook in hooks if hook is not None},
        warnings=tuple(f"{reader.path}: {warning}" for warning in reader.warnings),
    )


def _agent(reader: Reader, raw: Any) -> dict[str, Any]:
    agent = reader.table("agent", raw, _AGENT)
    if "approve" in agent:
        agent["approve"] = reader.choice("agent.approve", agent["approve"], APPROVALS)
    if agent.get("endpoint"):
        try:
            parse_endpoint(agent["endpoint"])
        except InvalidEndpointError as error:
            reader.add_problem("agent.endpoint", str(error))
    if agent.get("listen"):
        try:
            parse_listen(agent["listen"], anywhere=agent.get("listen_anywhere", False))
        except InvalidListen as error:
            reader.add_problem("agent.listen", f'{error}; or "" not to listen')
    return agent


def _rule(reader: Reader, index: int, raw: Any, hooks: list[str], approve: str) -> Rule:
    place = f"rule[{index}]"
    table = reader.table(place, raw, _RULE)
    for key, known in (("type", TYPE_NAMES), ("source", SOURCES)):
        for value in _as_tuple(table.get(key, ())):
            if value not in known:
                warning = f"there is no event {key} '{value}'; {instead_of(value, known)}"
                reader.add_warning(f"{place}.{key}", warning)
    _check_hook_names(reader, f"{place}.hooks", table.get("hooks", []), hooks)
    shortest = reader.duration(f"{place}.min_duration", table.get("min_duration"))
    longest = reader.duration(f"{place}.max_duration", table.get("max_duration"))
    if shortest is not None and longest is not None and shortest > longest:
        reader.add_problem(place, "min_duration is longer than max_duration, so nothing matches")
    lead = None
    if (when := table.get("when", AT_ONCE)) != AT_ONCE:
        lead = reader.duration(f"{place}.when", when, f"; or '{AT_ONCE}'")
    return Rule(
        name=table.get("name") or f"rule {index + 1}",
        type=_as_tuple(table.get("type", ())),
        source=_as_tuple(table.get("source", ())),
        min_duration=shortest,
        max_duration=longest,
        machine=reader.choice(f"{place}.machine", table.get("machine", MACHINES[0]), MACHINES),
        labels=table.get("labels", {}),
        hooks=tuple(table.get("hooks", ())),
        lead=lead,
        approve=reader.choice(f"{place}.approve", table.get("approve", approve), APPROVALS),
    )


def _check_hook_names(reader: Reader, place: str, names: list[str], hooks: list[str]) -> None:
    for name in names:
        if name not in hooks:
            help = instead_of(name, hooks) if hooks else f"add a [hook.{name}]"
            reader.add_problem(place, f"there is no hook '{name}'; {help}")
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        reader.add_problem(place, f"listed twice: {listing(duplicates)}")


def _check_rules(reader: Reader, rules: Sequence[Rule], hooks: Sequence[str]) -> None:
    names = [rule.name for rule in rules]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problem = f"two rules have the name '{name}'; the log could not distinguish them"
        reader.add_problem("rule", problem)
    used = {hook for rule in rules for hook in rule.hooks}
    for name in hooks:
        if name not in used:
            reader.add_warning(f"hook.{name}", "no rule uses it, so it never runs")
    for index, rule in enumerate(rules):
        earlier = next((other for other in rules[:index] if covers(other, rule)), None)
        if earlier is not None:
            reader.add_warning(
                f"rule[{index}]",
                f"never applies: '{earlier.name}' before it matches everything that '{rule.name}'"
                " matches, and the first match wins",
            )
    if not rules:
        reader.add_warning("rule", "there is no [[rule]], so the agent does nothing about events")


def _as_tuple(value: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
