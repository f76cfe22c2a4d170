"""The domain model: fleet, events, lifecycle and rules, as values and pure functions.

`decide` and `apply` change a group, `due` computes when time alone changes it next, `view` returns
what guests see of it, and `why` what an event waits for. No I/O, no clock, no asyncio, no HTTP, no
SQL in here.

Names are imported when they are used: a command that prints events decides nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.core.changes import Change, Changes, apply
    from forewarn.core.commands import Command
    from forewarn.core.deciding.decide import decide
    from forewarn.core.deciding.due import due
    from forewarn.core.deciding.holds import Hold
    from forewarn.core.deciding.start import why
    from forewarn.core.events import Event, EventType, Source, Status
    from forewarn.core.fleet import GroupKind, Machine, Policy
    from forewarn.core.group import EventView, Group, GroupView, view
    from forewarn.core.refusal import Reason, Refused
    from forewarn.core.time import Duration, Durations, Time
    from forewarn.core.world import World

__all__ = [
    "Change",
    "Changes",
    "Command",
    "Duration",
    "Durations",
    "Event",
    "EventType",
    "EventView",
    "Group",
    "GroupKind",
    "GroupView",
    "Hold",
    "Machine",
    "Policy",
    "Reason",
    "Refused",
    "Source",
    "Status",
    "Time",
    "World",
    "apply",
    "decide",
    "due",
    "view",
    "why",
]

_EXPORTS = {
    "Change": "changes",
    "Changes": "changes",
    "Command": "commands",
    "Duration": "time",
    "Durations": "time",
    "Event": "events",
    "EventType": "events",
    "EventView": "group",
    "Group": "group",
    "GroupKind": "fleet",
    "GroupView": "group",
    "Hold": "deciding.holds",
    "Machine": "fleet",
    "World": "world",
    "Policy": "fleet",
    "Reason": "refusal",
    "Refused": "refusal",
    "Source": "events",
    "Status": "events",
    "Time": "time",
    "apply": "changes",
    "decide": "deciding.decide",
    "due": "deciding.due",
    "view": "group",
    "why": "deciding.start",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    return value
