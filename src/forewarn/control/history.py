"""The history over HTTP: a page at a time, or all that matches as JSON lines."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.params import FromQuery, QueryParameter
from litestar.response import Stream

from forewarn.control import schema as s
from forewarn.control.answers import RefusedError, allowed, instant, named
from forewarn.control.desk import Desk
from forewarn.control.history_schema import HistoryPage, HistoryRecord
from forewarn.core import Time
from forewarn.core.history import Record, What
from forewarn.core.refusal import invalid
from forewarn.core.words import parse_duration
from forewarn.store.port import Mark, Wanted

MAX_HISTORY_PAGE = 1_000  # records in one answer
EXPORT_CHUNK = 64 * 1024  # bytes of an export that are sent at a time, or a little more
MAX_SEQ = 10**18 - 1
JSON_LINES = "application/x-ndjson"

Name = FromQuery[str | None]

_MARK = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)
_encode = msgspec.json.Encoder().encode


def handlers(desk: Desk) -> list[Any]:
    def wanted(what: str | None, since: str | None, until: str | None, **rest: Any) -> Wanted:
        now = desk.platform.writer.now().at
        return Wanted(
            what=tuple(named(What, "kind of record", said) for said in _listed(what)),
            since=_when("since", since, now),
            until=_when("until", until, now),
            **rest,
        )

    @get("/v1/history")
    async def history(
        machine: Name = None,
        group: Name = None,
        host: Name = None,
        event: Name = None,
        what: Name = None,
        since: Name = None,
        until: Name = None,
        limit: Annotated[int, QueryParameter(ge=1, le=MAX_HISTORY_PAGE)] = 100,
        oldest_first: FromQuery[bool] = False,
        before: Name = None,
        after: Name = None,
        after_seq: Annotated[int | None, QueryParameter(ge=0, le=MAX_SEQ)] = None,
    ) -> HistoryPage:
        """The newest first, unless the oldest are wanted first, or those after a number."""
        if after_seq is not None and (before or after or oldest_first):
            raise RefusedError(
                invalid("after_seq goes by number; leave before, after and oldest_first out")
            )
        page = allowed(
            await desk.history.page(
                wanted(
                    what,
                    since,
                    until,
                    machine=machine,
                    group=group,
                    host=host,
                    event=event,
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
        return HistoryPage(records=[_shape(record) for record in page.records], next=ends)

    @get("/v1/history/export")
    async def export(
        machine: Name = None,
        group: Name = None,
        host: Name = None,
        event: Name = None,
        what: Name = None,
        since: Name = None,
        until: Name = None,
    ) -> Stream:
        """All that matches, the oldest first, one JSON object a line."""
        asked = wanted(what, since, until, machine=machine, group=group, host=host, event=event)
        records = allowed(await desk.history.export(asked))
        return Stream(_lines(records), media_type=JSON_LINES)

    return [history, export]


async def _lines(records: AsyncIterator[Record]) -> AsyncIterator[bytes]:
    chunk = bytearray()
    async for record in records:
        chunk += _encode(_shape(record)) + b"\n"
        if len(chunk) >= EXPORT_CHUNK:
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


def _when(key: str, said: str | None, now: Time) -> Time | None:
    """An instant, or how long ago."""
    if said is None:
        return None
    try:
        return instant(datetime.fromisoformat(said))
    except ValueError:
        pass
    try:
        return now - parse_duration(said)  # which is never longer than any time there is
    except ValueError as error:
        raise RefusedError(
            invalid(
                f"{key}: '{said[:40]}' is neither a time nor how long ago;"
                " write for example 2027-01-15T08:00:00Z or 2h"
            )
        ) from error


def _mark(key: str, said: str | None) -> Mark | None:
    if said is None:
        return None
    found = _MARK.fullmatch(said)
    if found is None:
        raise RefusedError(invalid(f"{key}: say what the page before called 'next'"))
    return int(found[1]), int(found[2])
