"""What an agent is told to do: rules, hooks, and where it keeps its state. Values only.

How they are read off a file, and what is wrong with one, is `read.py`; which rule is meant
`agent/planning/match.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

Stage = Literal["prepare", "undo", "started", "finished", "withdrawn"]
STAGES: tuple[Stage, ...] = ("prepare", "undo", "started", "finished", "withdrawn")

MACHINES = ("mine", "peer", "any")
APPROVALS = ("never", "when-done", "user-at-once", "coordinated")
ON_FAILURE = ("go on", "stop")
AT_ONCE = "at once"

DEFAULT_STATE = "/var/lib/forewarn-agent"
DEFAULT_LISTEN = "127.0.0.1:9169"
DEFAULT_TIMEOUT = 60.0  # seconds for one command


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """Commands for some stages; or one that is ready-made, with its options."""

    name: str
    commands: dict[Stage, tuple[str, ...]] = {}
    kind: str = ""  # of a ready-made one
    options: dict[str, Any] = {}
    stages: tuple[Stage, ...] = ()
    timeout: float = DEFAULT_TIMEOUT
    retries: int = 0
    if_it_fails: str = "go on"

    def has(self, stage: Stage) -> bool:
        return stage in self.stages


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Which events, and what to do about them. What is empty matches everything."""

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
    endpoint: str | None = None  # None: found by itself
    listen: str = DEFAULT_LISTEN  # empty: none
    listen_anywhere: bool = False  # also beyond this machine
    shared: Path | None = None
    rules: tuple[Rule, ...] = ()
    hooks: dict[str, Hook] = {}
    warnings: tuple[str, ...] = ()  # what can be done as it says, but is hardly meant
