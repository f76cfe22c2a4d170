"""The output of `forewarn watch`: a change as a line or as JSON, and events as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from forewarn.cli.output import print_table
from forewarn.client import Change, Event
from forewarn.support.text import SECOND, in_words, listing

COLUMNS = (
    *("", "TYPE", "STATUS", "STARTS", "NOT BEFORE", "SOURCE", "MACHINES", "EVENT", "DESCRIPTION"),
)


class ChangeLine(msgspec.Struct, frozen=True):
    """A change, whether it is about this machine, and the machine's name if that is known."""

    change: Change
    mine: bool
    machine: str = ""

    def as_json(self) -> str:
        fields = {
            "change": self.change.kind,
            "at": self.change.at.replace(microsecond=0),
            "mine": self.mine,
            "presumed": self.change.presumed,
            "event": self.change.event,
        }
        return msgspec.json.encode(fields).decode()

    def __str__(self) -> str:
        change, event = self.change, self.change.event
        parts = [f"{moment(change.at)}  {change.kind:9}  {_name(event, self.mine)}"]
        left = event.seconds_left(change.at)
        timed = change.kind in ("appeared", "rescheduled")
        if timed and event.not_before is not None and left is not None:
            parts.append(f"not before {moment(event.not_before)} ({starts(event, change.at)})")
        if change.earlier_not_before is not None:
            parts.append(f"instead of {moment(change.earlier_not_before)}")
        if change.kind == "appeared" and event.duration is not None:
            parts.append(f"for {event.duration} s")
        if change.presumed:
            parts.append("presumably: it was due or approved, and is no longer listed")
        if change.kind == "appeared":
            parts += filter(None, (event.source, event.description))
        return ", ".join(parts)


def _name(event: Event, mine: bool) -> str:
    name = f"{event.type} {event.id[:8]} of {listing(event.resources)}"
    return f"{name} (this machine)" if mine else name


def moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def starts(event: Event, now: datetime) -> str:
    """Return when an event starts, such as `in 14 min 59 s`, by the service's clock."""
    if event.started:
        return "has started"
    left = event.seconds_left(now)
    if left is None:
        return "unknown"
    return f"in {in_words(int(left) * SECOND)}" if left >= 1 else "any moment"


def row(event: Event, mine: bool, now: datetime) -> tuple[str, ...]:
    not_before = "" if event.not_before is None else moment(event.not_before)
    return (
        "*" if mine else "",
        event.type,
        event.status,
        starts(event, now),
        not_before,
        event.source,
        listing(event.resources),
        event.id[:8],
        event.description,
    )


def print_events(events: Sequence[Event], is_mine: Callable[[Event], bool], now: datetime) -> None:
    rows = [(*row(event, is_mine(event), now),) for event in events]
    print_table(COLUMNS, rows, minor=("DESCRIPTION", "SOURCE", "EVENT"), if_empty="no events")
