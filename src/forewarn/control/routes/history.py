"""The history over HTTP: a page at a time, or all that matches as JSON lines."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from litestar import Request, get
from litestar.params import QueryParameter
from litestar.response import Stream

from forewarn.control.http import authorization
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import RefusedError, allowed, named, when
from forewarn.control.http.operation import Operation
from forewarn.control.http.paging import linked
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
from forewarn.control.schema import core as s
from forewarn.control.schema.feed import HistoryPage, HistoryRecord
from forewarn.core.history import Record, What
from forewarn.core.refusal import invalid
from forewarn.store.port import HistoryQuery, Mark

MAX_HISTORY_PAGE = 1_000  # records in one answer
EXPORT_CHUNK = 64 * 1024  # bytes of an export that are sent at a time, or a little more
MAX_SEQ = 10**18 - 1
JSON_LINES = "application/x-ndjson"


_MARK = re.compile(r"^([0-9]{1,18})-([0-9]{1,18})$")
_encode = msgspec.json.Encoder().encode


def wanted(what: str | None, since: str | None, until: str | None, **rest: Any) -> HistoryQuery:
    now = context().platform.writer.now().at
    return HistoryQuery(
        what=tuple(named(What, "kind of record", said) for said in _listed(what)),
        since=when("since", since, now),
        until=when("until", until, now),
        **rest,
    )


async def narrowed(
    call: CallContext, machine: str | None, group: str | None, host: str | None, event: str | None
) -> dict[str, Any]:
    """Whoever is limited asks for what it sees, and is told of that only."""
    if group is not None:
        authorization.group(call, group)
    if machine is not None:
        authorization.machines(call, machine)
    if host is not None:
        authorization.host(call, host, whole=False)
    if event is not None:
        event = await authorization.event(call, event)
    asked = {"machine": machine, "group": group, "host": host, "event": event}
    return {**asked, "groups": authorization.groups(call)}


@get(
    "/v1/history",
    **Operation(
        id="getHistory",
        tag="history",
        summary="List history records",
        respects_limits=True,
        paged=True,
        refuses=(404, 409),
        commands=("history",),
        command_example="history --machine web_2",
    ).options,
)
async def get_history(
    request: Request[Any, Any, Any],
    call: Call,
    machine: ByMachine = None,
    group: ByGroup = None,
    host: ByHost = None,
    event: ByEvent = None,
    what: ByWhat = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_HISTORY_PAGE)] = 100,
    oldest_first: Annotated[bool, query("The oldest first.")] = False,
    before: Annotated[
        str | None, query("What the page before called `next`.", pattern=_MARK.pattern)
    ] = None,
    after: Annotated[
        str | None,
        query(
            "What the page before called `next`, where the oldest come first.",
            pattern=_MARK.pattern,
        ),
    ] = None,
    after_seq: Annotated[
        int | None,
        QueryParameter(
            ge=0, le=MAX_SEQ, description="Only records with a higher number, in order of numbers."
        ),
    ] = None,
) -> HistoryPage:
    """The newest first, unless the oldest are wanted first, or those after a number."""
    if after_seq is not None and (before or after or oldest_first):
        raise RefusedError(
            invalid("after_seq goes by number; leave before, after and oldest_first out")
        )
    page = allowed(
        await context().history.page(
            wanted(
                what,
                since,
                until,
                **await narrowed(call, machine, group, host, event),
                before=_mark("before", before),
                after=_mark("after", after),
                after_seq=after_seq,
                newest_first=not oldest_first,
                limit=limit,
            )
        )
    )
    ends = ""
    if page.next is not None:
        at, seq = page.next
        ends = f"{at}-{seq}" if after_seq is None else str(seq)
        key = "after" if oldest_first else "before" if after_seq is None else "after_seq"
        linked(call.headers, request.url.path, request.scope["query_string"], (ends,), key)
    return HistoryPage(records=[_shape(record) for record in page.records], next=ends)


@get(
    "/v1/history/export",
    media_type=JSON_LINES,
    **Operation(
        id="exportHistory",
        tag="history",
        summary="Export history records as JSON lines",
        respects_limits=True,
        refuses=(404, 409),
        commands=("history",),
        command_example="history --export",
    ).options,
)
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
    """All that matches, the oldest first, one JSON object a line."""
    meant = await narrowed(call, machine, group, host, event)
    asked = wanted(what, since, until, **meant)
    records = allowed(await context().history.export(asked))
    return Stream(_lines(call, records), media_type=JSON_LINES)


async def _lines(call: CallContext, records: AsyncIterator[Record]) -> AsyncIterator[bytes]:
    """For as long as the caller may be told: what breaks off is not taken for all there was."""
    chunk = bytearray()
    async for record in records:
        chunk += _encode(_shape(record)) + b"\n"
        if len(chunk) >= EXPORT_CHUNK:
            authorization.still_or_ended(call)
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def _shape(record: Record) -> HistoryRecord:
    return HistoryRecord(
        seq=record.seq,
        at=s.time_of(record.at),
        what=record.what.value,
        by=record.by,
        group=record.group,
        event=record.event,
        type=record.type,
        machines=list(record.machines),
        host=record.host,
        cause=record.cause,
        note=record.note,
    )


def _listed(what: str | None) -> list[str]:
    return [said.strip() for said in what.split(",") if said.strip()] if what else []


def _mark(key: str, said: str | None) -> Mark | None:
    if said is None:
        return None
    found = _MARK.fullmatch(said)
    if found is None:
        raise RefusedError(invalid(f"{key}: say what the page before called 'next'"))
    return int(found[1]), int(found[2])
