"""The calendar in the control API: planned events, for calendar programs that subscribe to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from litestar import Response

from forewarn.control.http import filters
from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import parse_selector
from forewarn.control.http.filters import EventFilter
from forewarn.control.http.operation import route
from forewarn.control.http.parameters import Parameters
from forewarn.control.http.preconditions import bytes_tag
from forewarn.control.operations import events as operations
from forewarn.control.routes.events import labelled_by, require_known, require_visible
from forewarn.control.schema import queries as q
from forewarn.control.views.calendar import calendar
from forewarn.core import Status
from forewarn.core.labels import Selector, labels_of, matches
from forewarn.core.rollouts.forecast import Planned
from forewarn.core.rollouts.model import Rollout
from forewarn.core.rollouts.outlook import outlook
from forewarn.core.time import DAY

MEDIA_TYPE = "text/calendar"
# How long a withdrawn event stays in the calendar after it was announced, so that programs that
# synchronise rarely show it as cancelled instead of losing it without a word.
CANCELLED_SHOWN = 7 * DAY


@route(operations.GET_CALENDAR, media_type=MEDIA_TYPE)
async def get_calendar(call: Call, given: Parameters[q.EventsOf]) -> Response[bytes]:
    """The events that are Scheduled or Started, for calendar programs to subscribe to. Those that
    were announced in the last 7 days and have been withdrawn are shown as cancelled. What rollouts
    are still to announce is shown as one entry for each wave, and each window of it. A program that
    cannot send a Bearer token sends the token as the password of HTTP Basic, with any user name;
    only this path accepts that. `label` selects events that affect a machine with these labels."""
    group, machine, host = given.group, given.machine, given.host
    require_visible(call, group, machine, host)
    require_known(group, machine, host)
    selector = parse_selector(given.label) or ()
    platform = context().platform
    criteria = EventFilter(
        group=group, machine=machine, host=host, sees=call.sees, labelled=labelled_by(given.label)
    )
    since = platform.writer.now().at - CANCELLED_SHOWN
    recent = msgspec.structs.replace(criteria, past=True, raised_since=since)
    withdrawn = [
        event
        async for event in filters.events(platform, recent, None)
        if event.status is Status.WITHDRAWN
    ]
    events = [
        event
        for event in (*filter(criteria, platform.active()), *withdrawn)
        if not event.unannounced
    ]
    planned = [
        steps
        for rollout, remaining in await upcoming(call, host)
        for steps in outlook(rollout, remaining, _selected(group, machine, selector))
    ]
    content = await asyncio.to_thread(calendar, events, planned)
    call.headers["ETag"] = bytes_tag(content)
    call.headers["Cache-Control"] = "private, no-cache"  # stored, and revalidated by its ETag
    return Response(content, media_type=MEDIA_TYPE)


async def upcoming(call: CallContext, host: str | None) -> list[tuple[Rollout, list[Planned]]]:
    """Return what rollouts that the caller sees are still to announce, on one host or on all."""
    return [
        (rollout, [item for item in remaining if host in (None, item.step.host)])
        for rollout, remaining in await context().rollouts.upcoming()
        if authorization.rollout_visible(call, rollout)
    ]


def _selected(group: str | None, machine: str | None, selector: Selector) -> Callable[[str], bool]:
    """Return whether a machine is one of those that were asked for."""
    index = context().platform.machine_index

    def selected(name: str) -> bool:
        known = index.machine(name)
        return (
            known is not None
            and group in (None, known[0].name)
            and machine in (None, name)
            and matches(selector, labels_of(*known))
        )

    return selected
