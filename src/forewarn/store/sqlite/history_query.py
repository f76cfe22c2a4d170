"""The history asked for: from what is wanted to one statement that indexes can serve, and back.

Records come in the order of their time and then of their number: a first sight is written down
some seconds after it happened. Who follows the history asks by number instead, which is the order
of writing. A page goes on where the last one ended, so nothing is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import sqlalchemy as sa

from forewarn.core import Event
from forewarn.core.history import Record, What
from forewarn.store.port import HistoryQuery
from forewarn.store.sqlite import schema as s

_event = msgspec.json.Decoder(Event)


def statement(wanted: HistoryQuery) -> sa.Select[Any]:
    h, em = s.history.c, s.event_machines.c
    query = sa.select(s.history, s.events.c.body.label("event_body")).join_from(
        s.history, s.events, s.events.c.id == h.event, isouter=True
    )
    if wanted.machine is not None:
        events = sa.select(em.event).where(em.machine == wanted.machine)
        query = query.where(sa.or_(h.machine == wanted.machine, h.event.in_(events)))
    for column, value in (
        (h.group_name, wanted.group),
        (h.host, wanted.host),
        (h.event, wanted.event),
    ):
        if value is not None:
            query = query.where(column == value)
    if wanted.groups is not None:  # as one value: there may be more than a statement has room for
        some = sa.func.json_each(msgspec.json.encode(wanted.groups).decode()).table_valued("value")
        query = query.where(h.group_name.in_(sa.select(some.c.value)))
    if wanted.what:
        query = query.where(h.what.in_([what.value for what in wanted.what]))
    if wanted.since is not None:
        query = query.where(h.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(h.at < wanted.until)
    mark = sa.tuple_(h.at, h.seq)
    if wanted.after is not None:
        query = query.where(mark > sa.tuple_(*wanted.after))
    if wanted.before is not None:
        query = query.where(mark < sa.tuple_(*wanted.before))
    if wanted.after_seq is not None:
        return query.where(h.seq > wanted.after_seq).order_by(h.seq).limit(wanted.limit)
    order = (h.at.desc(), h.seq.desc()) if wanted.newest_first else (h.at, h.seq)
    return query.order_by(*order).limit(wanted.limit)


def records(rows: Iterable[Any]) -> Iterator[Record]:
    events: dict[str, Event] = {}
    for row in rows:
        alone = row.what.startswith("machine-")
        record = Record(
            seq=row.seq,
            at=row.at,
            what=What(row.what),
            by=row.who,
            group=row.group_name or "",
            event=row.event or "",
            machine=row.machine or "",
            type=row.type or "",
            machines=(row.machine,) if alone else (),
            host=row.host or "",
            cause=row.cause or "",
            note=row.note,
        )
        if row.event_body is None:
            yield record
            continue
        if row.event not in events:
            events[row.event] = _event.decode(row.event_body)
        yield record.of(events[row.event])
