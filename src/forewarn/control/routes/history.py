"""The history in the control API: in pages, or exported as JSON lines."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from litestar.response import Stream

from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.enumerations import PATTERNS
from forewarn.control.http.errors import RefusedError, parse_enum, parse_time_or_age, unwrap
from forewarn.control.http.operation import route
from forewarn.control.http.parameters import Parameters
from forewarn.control.operations import history as operations
from forewarn.control.routes.events import require_visible
from forewarn.control.schema import queries as q
from forewarn.control.schema.feed import HistoryPage
from forewarn.control.views.feed import history_record
from forewarn.core.history import Record, RecordKind
from forewarn.core.refusal import invalid
from forewarn.store.port import HistoryQuery, Mark

EXPORT_CHUNK = 64 * 1024  # bytes of an export that are sent at a time, at least
JSON_LINES = "application/x-ndjson"

_MARK = re.compile(PATTERNS["Mark"])
_encode = msgspec.json.Encoder().encode


async def history_query(call: CallContext, given: q.RecordsOf, **others: Any) -> HistoryQuery:
    """Return a query, restricted to what the caller may see."""
    require_visible(call, given.group, given.machine, given.host)
    event = given.event and await authorization.require_event(call, given.event)
    now = context().platform.writer.now().at
    return HistoryQuery(
        machine=given.machine,
        group=given.group,
        host=given.host,
        event=event,
        groups=authorization.visible_groups(call),
        what=tuple(parse_enum(RecordKind, "kind of record", text) for text in _split(given.what)),
        since=parse_time_or_age("since", given.since, now),
        until=parse_time_or_age("until", given.until, now),
        **others,
    )


@route(operations.GET_HISTORY)
async def get_history(call: Call, given: Parameters[q.HistoryQuery]) -> HistoryPage:
    """Lists the newest records first, unless `oldest_first` or `after_seq` is given."""
    after_seq, oldest_first = given.after_seq, given.oldest_first
    if after_seq is not None and (given.before or given.after or oldest_first):
        raise RefusedError(
            invalid("after_seq cannot be combined with before, after or oldest_first")
        )
    wanted = await history_query(
        call,
        given,
        before=_parse_mark("before", given.before),
        after=_parse_mark("after", given.after),
        after_seq=after_seq,
        newest_first=not oldest_first,
        limit=given.limit,
    )
    page = unwrap(await context().history.page(wanted))
    cursor = ""
    if page.next is not None:
        at, seq = page.next
        cursor = f"{at}-{seq}" if after_seq is None else str(seq)
        key = "after" if oldest_first else "before" if after_seq is None else "after_seq"
        call.add_next_link((cursor,), key)
    records = [history_record(record, limited=call.limited) for record in page.records]
    return HistoryPage(records=records, next=cursor)


@route(operations.EXPORT_HISTORY, media_type=JSON_LINES)
async def export_history(call: Call, given: Parameters[q.RecordsOf]) -> Stream:
    """Returns all matching records, the oldest first, one JSON object on each line."""
    records = unwrap(await context().history.export(await history_query(call, given)))
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
