"""Removal of old records of the history and of old commits, a limited number at a time.

An event is removed as a whole, once it ended before the cutoff; a record about no event is removed
by its own time. Nothing here knows why an event may have to be kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import sqlalchemy as sa

from forewarn.core import Event, Time
from forewarn.core.history import RecordKind
from forewarn.store.port import Mark
from forewarn.store.sql import schema as s
from forewarn.store.sql.statements import Statements

_ENDS = frozenset(what.value for what in RecordKind if what.ends)
_event = msgspec.json.Decoder(Event)


def prune_history(
    connection: sa.Connection,
    cutoff: Time,
    after: Mark,
    keeps: Callable[[Event], bool],
    slice: int,
) -> tuple[int, Mark | None]:
    """Return how many records were removed, and where to continue; None after the last slice."""
    h, e = s.history.c, s.events.c
    records = connection.execute(
        sa.select(h.seq, h.at, h.what, h.event, e.body)
        .join_from(s.history, s.events, e.id == h.event, isouter=True)
        .where(h.at < cutoff, sa.tuple_(h.at, h.seq) > sa.tuple_(*after))
        .order_by(h.at, h.seq)
        .limit(slice)
    ).all()
    about_no_event: list[tuple[Any, ...]] = []
    over: dict[str, Event | None] = {}
    for row in records:
        if row.event is None:
            about_no_event.append((row.seq,))
        elif row.what in _ENDS:
            event = None if row.body is None else _event.decode(row.body)
            if event is None or (event.status.over and not keeps(event)):
                over[row.event] = event
    ids = [(id,) for id in over]
    machines = [(name, id) for id, event in over.items() if event for name in event.resources]
    statements = Statements(connection)
    removed = statements.execute_many("DELETE FROM history WHERE seq = ?", about_no_event)
    removed += statements.execute_many("DELETE FROM history WHERE event = ?", ids)
    statements.execute_many("DELETE FROM event_machines WHERE machine = ? AND event = ?", machines)
    statements.execute_many("DELETE FROM events WHERE id = ?", ids)
    return removed, (records[-1].at, records[-1].seq) if len(records) == slice else None


def prune_commits(connection: sa.Connection, cutoff: Time, newest: int, slice: int) -> bool:
    """Remove the oldest commits and their keys, without a gap. Returns False if none is left."""
    c = s.commits.c
    oldest = connection.execute(sa.select(c.seq, c.at).order_by(c.seq).limit(slice)).all()
    last = 0
    for row in oldest:
        if row.at >= cutoff or row.seq >= newest:
            break
        last = row.seq
    if not last:
        return False
    connection.execute(s.commits.delete().where(c.seq <= last))
    connection.execute(s.keys.delete().where(s.keys.c.seq <= last))
    return bool(last == oldest[-1].seq)
