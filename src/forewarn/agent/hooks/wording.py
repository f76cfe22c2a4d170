"""Describes an event in plain words, for log lines and notifications."""

from __future__ import annotations

from datetime import datetime

from forewarn.agent.hooks.contract import Call
from forewarn.support import guard
from forewarn.support.text import SECOND, in_words, listing, visible

MAX_DESCRIPTION = 4_096  # characters


def headline(call: Call) -> str:
    """Return a line such as `web_0: Reboot in 14 min 58 s`."""
    event = call.event
    machines = listing(event.resources or [call.machine])
    return visible(f"{machines}: {event.type or 'an event'} {_what_happens(call)}")


def sentence(call: Call) -> str:
    """Return a line such as `web_0: Reboot in 14 min 58 s (Platform): Host server is undergoing
    maintenance.`"""
    event = call.event
    source = f" ({event.source})" if event.source else ""
    why = f": {description(call)}" if event.description else "."
    return f"{headline(call)}{source}{why}"


def description(call: Call) -> str:
    text = call.event.description
    return text if len(text) <= MAX_DESCRIPTION else text[: MAX_DESCRIPTION - 1] + "…"


def _what_happens(call: Call) -> str:
    match call.stage:
        case "started":
            return "has started"
        case "finished":
            return "is over"
        case "withdrawn":
            return "is withdrawn and will not happen"
        case "undo":
            return "is over, or will not happen"
    if call.event.status == "Started":
        return "has started"
    left = _until(call.event.not_before)
    return "soon" if left is None else f"in {left}" if left else "now"


def _until(not_before: str | None) -> str | None:
    """Return the time until then in words; empty if it has passed, None if it is unknown."""
    try:
        at = datetime.fromisoformat(not_before or "")
    except ValueError:
        return None
    left = round(at.timestamp() - guard.wall_us() / SECOND) if at.tzinfo else None
    return None if left is None else in_words(left * SECOND) if left > 0 else ""
