"""What a command is given: its words, its environment, and what it reads from standard input.

The same for a user's own command and for one that is ready-made. `runner.py` adds how much time
there is left when it begins.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.state.cases import Case
from forewarn.client.events import Event

MAX_VARIABLE = 30_000  # characters; a system takes some 128 KiB, and UTF-8 up to four bytes each
READY_MADE = "forewarn.agent.hooks"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    environment: dict[str, str]
    stdin: dict[str, Any]
    directory: str  # where it is run
    timeout: float
    until: float | None  # on the machine's monotonic clock


def ordered(
    case: Case, hook: Hook, stage: Stage, attempt: int, room: Path, until: float | None
) -> Order:
    environment = {
        "FOREWARN_HOOK": hook.name,
        "FOREWARN_STAGE": stage,
        "FOREWARN_ATTEMPT": str(attempt),
        "FOREWARN_RULE": case.rule.name,
        "FOREWARN_MACHINE": case.machine,
        "FOREWARN_MINE": "true" if case.mine else "false",
        "FOREWARN_STATE": str(room),
        **_event_in_words(case.event),
    }
    if hook.kind:
        environment["FOREWARN_OPTIONS"] = msgspec.json.encode(hook.options).decode()
    return Order(
        argv=command(hook, stage),
        environment={name: _fitting(value) for name, value in environment.items()},
        stdin={
            "hook": hook.name,
            "stage": stage,
            "attempt": attempt,
            "rule": case.rule.name,
            "machine": case.machine,
            "mine": case.mine,
            "seconds_left": None,
            "event": msgspec.to_builtins(case.event),
        },
        directory=str(room),
        timeout=hook.timeout,
        until=until,
    )


def command(hook: Hook, stage: Stage) -> tuple[str, ...]:
    """A ready-made one is a program of ours, with whatever Python runs the agent now."""
    if hook.kind:
        return (sys.executable, "-I", "-m", READY_MADE, hook.kind)
    return hook.commands[stage]


def _fitting(value: str) -> str:
    """What an environment can hold; the whole of it stands on standard input."""
    value = value.replace("\0", "")
    if len(value) <= MAX_VARIABLE:
        return value
    return value[:MAX_VARIABLE].rpartition(" ")[0]


def _event_in_words(event: Event) -> dict[str, str]:
    said = msgspec.to_builtins(event)
    return {
        "FOREWARN_EVENT_ID": event.id,
        "FOREWARN_EVENT_TYPE": event.type,
        "FOREWARN_EVENT_STATUS": event.status,
        "FOREWARN_EVENT_SOURCE": event.source,
        "FOREWARN_EVENT_RESOURCES": " ".join(event.resources),
        "FOREWARN_EVENT_NOT_BEFORE": said["not_before"] or "",
        "FOREWARN_EVENT_DESCRIPTION": event.description,
        "FOREWARN_EVENT_DURATION": "" if event.duration is None else str(event.duration),
    }
