"""The agent's configuration: rules, hooks, and where its state is stored. Values only.

`read.py` reads and validates a file; `rules.py` finds the rule that applies to an event.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from forewarn.agent.hooks.options import STAGES as STAGES
from forewarn.agent.hooks.options import Stage as Stage

MACHINES = ("mine", "peer", "any")
APPROVALS = ("never", "when-done", "user-at-once", "coordinated")
ON_FAILURE = ("go on", "stop")
AT_ONCE = "at once"

DEFAULT_STATE = "/var/lib/forewarn-agent"
DEFAULT_LISTEN = "127.0.0.1:9169"
DEFAULT_TIMEOUT = 60.0  # seconds for one command


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """Commands for some stages, or a built-in hook with its options."""

    name: str
    commands: dict[Stage, tuple[str, ...]] = {}
    kind: str = ""  # of a built-in hook
    options: dict[str, Any] = {}
    stages: tuple[Stage, ...] = ()
    timeout: float = DEFAULT_TIMEOUT
    retries: int = 0
    if_it_fails: str = "go on"

    def has(self, stage: Stage) -> bool:
        return stage in self.stages


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Which events it matches, and what to do about them. An empty condition matches everything."""

    name: str
    type: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    min_duration: float | None = None
    max_duration: float | None = None
    machine: str = "mine"
    labels: dict[str, str] = {}
    hooks: tuple[str, ...] = ()
    lead: float | None = None  # seconds before NotBefore; None: at once
    approve: str = "never"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    state: Path = Path(DEFAULT_STATE)
    endpoint: str | None = None  # None: where it always is
    listen: str = DEFAULT_LISTEN  # empty: does not listen
    listen_anywhere: bool = False  # also where other machines can reach it
    shared: Path | None = None
    rules: tuple[Rule, ...] = ()
    hooks: dict[str, Hook] = {}
    warnings: tuple[str, ...] = ()  # about settings that are valid, but probably not intended
