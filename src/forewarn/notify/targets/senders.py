"""Which sender belongs to which target."""

from __future__ import annotations

from forewarn.notify.config import Apprise, EventGrid, Http, Notify
from forewarn.notify.targets.port import Sender


def sender_for(table: Notify) -> Sender:
    match table.target:
        case EventGrid() as event_grid:
            from forewarn.notify.targets.event_grid import EventGridSender

            return EventGridSender(event_grid, table.name)
        case Http() as http:
            from forewarn.notify.targets.http import HttpSender

            return HttpSender(http, table.zone)
        case Apprise() as apprise:
            from forewarn.notify.targets.apprise import AppriseSender

            return AppriseSender(apprise, table.zone)
    raise AssertionError(f"unknown target {table.target_kind}")
