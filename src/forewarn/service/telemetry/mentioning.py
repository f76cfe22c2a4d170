"""How the log mentions an event: the fields of every line about one. The lines themselves are
`log.py`'s, and those of whoever has something to say."""

from __future__ import annotations

from typing import Any

from forewarn.core import Event


def about(event: Event) -> dict[str, Any]:
    return {
        "event_id": event.id,
        "type": event.type.value,
        "group": event.group,
        "machines": list(event.resources),
    }
