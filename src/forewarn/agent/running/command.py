"""The arguments, environment and standard input of a command.

The same for a user's own command and for a built-in hook. `runner.py` adds how much time is left
when the command begins.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import RunOrder
from forewarn.client.events import Event

MAX_VARIABLE = 30_000  # characters; a system takes some 128 KiB, and UTF-8 up to four bytes each
BUILT_IN = "forewarn.agent.hooks"


def build_order(
    case: Case, hook: Hook, stage: Stage, attempt: int, directory: Path, until: float | None
) -> RunOrder:
    """Return the order for a runner. `directory` is the hook's own; `until` limits the time in
    addition to the hook's timeout, on the machine's monotonic clock."""
    environment = {
        "FOREWARN_HOOK": hook.name,
        "FOREWARN_STAGE": stage,
        "FOREWARN_ATTEMPT": str(attempt),
        "FOREWARN_RULE": case.rule.name,
        "FOREWARN_MACHINE": case.machine,
        "FOREWARN_MINE": "true" if case.mine else "false",
        "FOREWARN_STATE": str(directory),
        **_event_variables(case.event),
    }
    if hook.kind:
        environment["FOREWARN_OPTIONS"] = msgspec.json.encode(hook.options).decode()
    return RunOrder(
        argv=command_line(hook, stage),
        environment={name: _fit(value) for name, value in environment.items()},
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
        directory=str(directory),
        timeout=hook.timeout,
        until=until,
    )


def command_line(hook: Hook, stage: Stage) -> tuple[str, ...]:
    """Return the program and its arguments. A built-in hook is a program of ours, run by the same
    Python as the agent."""
    if hook.kind:
        return (sys.executable, "-I", "-m", BUILT_IN, hook.kind)
    return hook.commands[stage]


def _fit(value: str) -> str:
    """Return as much as an environment variable can hold; standard input has all of it."""
    value = value.replace("\0", "")
    if len(value) <= MAX_VARIABLE:
        return value
    return value[:MAX_VARIABLE].rpartition(" ")[0]


def _event_variables(event: Event) -> dict[str, str]:
    return {
        "FOREWARN_EVENT_ID": event.id,
        "FOREWARN_EVENT_TYPE": event.type,
        "FOREWARN_EVENT_STATUS": event.status,
        "FOREWARN_EVENT_SOURCE": event.source,
        "FOREWARN_EVENT_RESOURCES": " ".join(event.resources),
        "FOREWARN_EVENT_NOT_BEFORE": msgspec.to_builtins(event.not_before) or "",
        "FOREWARN_EVENT_DESCRIPTION": event.description,
        "FOREWARN_EVENT_DURATION": "" if event.duration is None else str(event.duration),
    }
