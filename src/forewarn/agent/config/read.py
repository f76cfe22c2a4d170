"""From a file (TOML) to a configuration. All that is wrong is told at once, a line each, with its
place and what would have been right; nothing of it takes effect then.

Looks at the file alone. Whether the programs are there and the directory can be written is
`agent check`'s to find out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forewarn.agent.config import read_hooks
from forewarn.agent.config.address import BadListen, listens
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
from forewarn.agent.planning.match import covers
from forewarn.client.discovery.endpoint import said as endpoint_said
from forewarn.client.errors import BadEndpoint
from forewarn.support.suggest import instead_of
from forewarn.support.text import listing
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
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ConfigError(f"{path}: a configuration has at most {MAX_CONFIG_BYTES:,} bytes")
        raw = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return made(raw, path)


def made(raw: Mapping[str, Any], path: Path) -> Config:
    reader = Reader(path)
    config = _config(reader, raw)
    if reader.problems:
        raise ConfigError(*(f"{path}: {problem}" for problem in reader.problems))
    return config


def _config(reader: Reader, raw: Mapping[str, Any]) -> Config:
    if isinstance(raw.get("rule"), dict):
        reader.wrong("rule", "write [[rule]], in two brackets; there may be several")
        raw = {key: value for key, value in raw.items() if key != "rule"}
    tables = reader.typed("", raw, _TABLES)
    agent = _agent(reader, tables.get("agent", {}))
    said = tables.get("hook", {})
    hooks = [read_hooks.hook(reader, name, one) for name, one in said.items()]
    rules = [
        _rule(reader, index, rule, list(said), agent.get("approve", "never"))
        for index, rule in enumerate(tables.get("rule", []))
    ]
    _together(reader, rules, list(said))
    return Config(
        state=reader.placed(agent.get("state") or DEFAULT_STATE),
        endpoint=agent.get("endpoint") or None,
        listen=agent.get("listen", DEFAULT_LISTEN),
        listen_anywhere=agent.get("listen_anywhere", False),
        shared=reader.placed(agent["shared"]) if agent.get("shared") else None,
        rules=tuple(rules),
        hooks={hook.name: hook for hook in hooks if hook is not None},
        warnings=tuple(f"{reader.path}: {warning}" for warning in reader.warnings),
    )


def _agent(reader: Reader, raw: Any) -> dict[str, Any]:
    agent = reader.typed("agent", raw, _AGENT)
    if "approve" in agent:
        agent["approve"] = reader.choice("agent.approve", agent["approve"], APPROVALS)
    if agent.get("endpoint"):
        try:
            endpoint_said(agent["endpoint"])
        except BadEndpoint as error:
            reader.wrong("agent.endpoint", str(error))
    if agent.get("listen"):
        try:
            listens(agent["listen"], anywhere=agent.get("listen_anywhere", False))
        except BadListen as error:
            reader.wrong("agent.listen", f"{error}; or nothing for none")
    return agent


def _rule(reader: Reader, index: int, raw: Any, hooks: list[str], approve: str) -> Rule:
    place = f"rule[{index}]"
    said = reader.typed(place, raw, _RULE)
    for key, known in (("type", TYPE_NAMES), ("source", SOURCES)):
        for one in _several(said.get(key, ())):
            if one not in known:
                never = f"no event has ever had the {key} '{one}'; {instead_of(one, known)}"
                reader.note(f"{place}.{key}", never)
    _named(reader, f"{place}.hooks", said.get("hooks", []), hooks)
    least = reader.duration(f"{place}.min_duration", said.get("min_duration"))
    most = reader.duration(f"{place}.max_duration", said.get("max_duration"))
    if least is not None and most is not None and least > most:
        reader.wrong(place, "min_duration is longer than max_duration, so nothing matches")
    lead = None
    if (when := said.get("when", AT_ONCE)) != AT_ONCE:
        lead = reader.duration(f"{place}.when", when, f"; or '{AT_ONCE}'")
    return Rule(
        name=said.get("name") or f"rule {index + 1}",
        type=_several(said.get("type", ())),
        source=_several(said.get("source", ())),
        min_duration=least,
        max_duration=most,
        machine=reader.choice(f"{place}.machine", said.get("machine", MACHINES[0]), MACHINES),
        labels=said.get("labels", {}),
        hooks=tuple(said.get("hooks", ())),
        lead=lead,
        approve=reader.choice(f"{place}.approve", said.get("approve", approve), APPROVALS),
    )


def _named(reader: Reader, place: str, named: list[str], hooks: list[str]) -> None:
    for hook in named:
        if hook not in hooks:
            meant = instead_of(hook, hooks) if hooks else f"write a [hook.{hook}]"
            reader.wrong(place, f"there is no hook '{hook}'; {meant}")
    if twice := sorted({hook for hook in named if named.count(hook) > 1}):
        reader.wrong(place, f"named twice: {listing(twice)}")


def _together(reader: Reader, rules: Sequence[Rule], hooks: Sequence[str]) -> None:
    names = [rule.name for rule in rules]
    for name in sorted({name for name in names if names.count(name) > 1}):
        reader.wrong("rule", f"two have the name '{name}'; a log could not tell them apart")
    used = {hook for rule in rules for hook in rule.hooks}
    for name in hooks:
        if name not in used:
            reader.note(f"hook.{name}", "no rule names it, so it never runs")
    for index, rule in enumerate(rules):
        before = next((one for one in rules[:index] if covers(one, rule)), None)
        if before is not None:
            reader.note(
                f"rule[{index}]",
                f"never reached: '{before.name}' before it matches whatever '{rule.name}' does,"
                " and the first match wins",
            )
    if not rules:
        reader.note("rule", "there is no [[rule]], so nothing is done about any event")


def _several(said: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) else tuple(said)
