"""The history in the control API: in pages, or exported as JSON lines."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from litestar.params import QueryParameter
from litestar.response import Stream

from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import RefusedError, parse_enum, parse_time_or_age, unwrap
from forewarn.control.http.operation import route
from forewarn.control.http.parameters import (
    ByEvent,
    ByGroup,
    ByHost,
    ByMachine,
    ByWhat,
    Since,
    Until,
    query,
)
from forewarn.control.operations import history as operations
from forewarn.control.schema.feed import HistoryPage
from forewarn.control.views.feed import history_record
from forewarn.core.history import Record, RecordKind
from forewarn.core.refusal import invalid
from forewarn.store.port import HistoryQuery, Mark

MAX_HISTORY_PAGE = 1_000  # records in one response
EXPORT_CHUNK = 64 * 1024  # bytes of an export that are sent at a time, at least
MAX_SEQ = 10**18 - 1
JSON_LINES = "application/x-ndjson"

_MARK = re.compile(r"^([0-9]{1,18})-([0-9]{1,18})$")
_encode = msgspec.json.Encoder().encode


def history_query(
    what: str | None, since: str | None, until: str | None, **others: Any
) -> HistoryQuery:
    now = context().platform.writer.now().at
    return HistoryQuery(
        what=tuple(parse_enum(RecordKind, "kind of record", text) for text in _split(what)),
        since=parse_time_or_age("since", since, now),
        until=parse_time_or_age("until", until, now),
        **others,
    )


async def restrict(
    call: CallContext, machine: str | None, group: str | None, host: str | None, event: str | None
) -> dict[str, Any]:
    """Return the filters of a query, restricted to what the caller may see."""
    if group is not None:
        authorization.require_group(call, group)
    if machine is not None:
        authorization.require_machines(call, machine)
    if host is not None:
        authorization.require_host(call, host, whole=False)
    if event is not None:
        event = await authorization.require_event(call, event)
    filters = {"machine": machine, "group": group, "host": host, "event": event}
    return {**filters, "groups": authorization.visible_groups(call)}


@route(operations.GET_HISTORY)
async def get_history(
    call: Call,
    machine: ByMachine = None,
    group: ByGroup = None,
    host: ByHost = None,
    event: ByEvent = None,
    what: ByWhat = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[
        int,
        QueryParameter(
            ge=1, le=MAX_HISTORY_PAGE, description="Maximum number of records on a page."
        ),
    ] = 100,
    oldest_first: Annotated[bool, query("Whether to list the oldest records first.")] = False,
    before: Annotated[
        str | None, query("`next` of the previous page.", pattern=_MARK.pattern)
    ] = None,
    after: Annotated[
        str | None,
        query(
            "`next` of the previous page, with `oldest_first`.",
            pattern=_MARK.pattern,
        ),
    ] = None,
    after_seq: Annotated[
        int | None,
        QueryParameter(
            ge=0, le=MAX_SEQ, description="Only records with a higher number, ordered by number."
        ),
    ] = None,
) -> HistoryPage:
    """Lists the newest records first, unless `oldest_first` or `after_seq` is given."""
    if after_seq is not None and (before or after or oldest_first):
        raise RefusedError(
            invalid("after_seq cannot be combined with before, after or oldest_first")
        )
    page = unwrap(
        await context().history.page(
            history_query(
                what,
                since,
                until,
                **await restrict(call, machine, group, host, event),
                before=_parse_mark("before", before),
                after=_parse_mark("after", after),
                after_seq=after_seq,
                newest_first=not oldest_first,
                limit=limit,
            )
        )
    )
    cursor = ""
    if page.next is not None:
        at, seq = page.next
        cursor = f"{at}-{seq}" if after_seq is None else str(seq)
        key = "after" if oldest_first else "before" if after_seq is None else "after_seq"
        call.add_next_link((cursor,), key)
    records = [history_record(record, limited=call.limited) for record in page.records]
    return HistoryPage(records=records, next=cursor)


@route(operations.EXPORT_HISTORY, media_type=JSON_LINES)
async def export_history(
    call: Call,
    machine: ByMachine = None,
    group: ByGroup = None,
    host: ByHost = None,
    event: ByEvent = None,
    what: ByWhat = None,
    since: Since = None,
    until: Until = None,
) -> Stream:
    """Returns all matching records, the oldest first, one JSON object on each line."""
    filters = await restrict(call, machine, group, host, event)
    records = unwrap(await context().history.export(history_query(what, since, until, **filters)))
    return Stream(_lines(call, records), media_type=JSON_LINES)


async def _lines(call: CallContext, records: AsyncIterator[Record]) -> AsyncIterator[bytes]:
    """Yield the lines of an export; if the token ends, raise, so that the response breaks off."""
    chunk = bytearray()
    async for record in records:
        chunk += _encode(history_record(record, limited=call.limited)) + b"\n"
        if len(chunk) >= EXPORT_CHUNK:
            authorization.require_valid_token(call)
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def _split(what: str | None) -> list[str]:
    return [item.strip() for item in what.split(",") if item.strip()] if what else []


def _parse_mark(key: str, text: str | None) -> Mark | None:
    if text is None:
        return None
    match = _MARK.fullmatch(text)
    if match is None:
        raise RefusedError(invalid(f"{key}: pass the value of 'next' of the previous page"))
    return int(match[1]), int(match[2])
