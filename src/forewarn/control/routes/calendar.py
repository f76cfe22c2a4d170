"""The calendar in the control API: planned events, for calendar programs that subscribe to it."""

from __future__ import annotations

import asyncio

from litestar import Response, get

from forewarn.control.http import filters
from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import parse_selector
from forewarn.control.http.filters import EventFilter
from forewarn.control.http.operation import Operation
from forewarn.control.http.parameters import ByGroup, ByHost, ByLabel, ByMachine
from forewarn.control.http.preconditions import bytes_tag
from forewarn.control.http.problems import CALENDAR_PATH
from forewarn.control.routes.events import require_known, require_visible
from forewarn.control.views.calendar import calendar

MEDIA_TYPE = "text/calendar"


@get(
    CALENDAR_PATH,
    media_type=MEDIA_TYPE,
    **Operation(
        id="getCalendar",
        tag="events",
        summary="Get planned events as a calendar (iCalendar)",
        respects_limits=True,
        tagged=True,
        refuses=(404,),
    ).options,
)
async def get_calendar(
    call: Call,
    group: ByGroup = None,
    machine: ByMachine = None,
    host: ByHost = None,
    label: ByLabel = None,
) -> Response[bytes]:
    """The events that are Scheduled or Started, for calendar programs to subscribe to. A program
    that cannot send a Bearer token sends the token as the password of HTTP Basic, with any user
    name; only this path accepts that. `label` selects events that affect a machine with these
    labels."""
    require_visible(call, group, machine, host)
    require_known(group, machine, host)
    selector = parse_selector(label) or ()
    criteria = EventFilter(group=group, machine=machine, host=host, sees=call.sees)
    events = [
        event
        async for event in filters.events(context().platform, criteria, None)
        if not event.unannounced and filters.labelled(event, selector, context().store.groups)
    ]
    content = await asyncio.to_thread(calendar, events)
    call.headers["ETag"] = bytes_tag(content)
    call.headers["Cache-Control"] = "private, no-cache"  # stored, and revalidated by its ETag
    return Response(content, media_type=MEDIA_TYPE)
