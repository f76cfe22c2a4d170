"""From rows to values: the state as it was last committed, and records of the history.

A history query is one statement that indexes can serve. Records come in the order of their time and
then of their number: who was first shown an event is written some seconds after it happened. A
reader that follows the history asks by number instead, which is the order of writing. A page
continues where the last one ended, so nothing is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import sqlalchemy as sa

from forewarn.core import Event, Group, Machine
from forewarn.core.access import Token
from forewarn.core.fleet import Host
from forewarn.core.history import Record, What
from forewarn.core.registry import Registry
from forewarn.core.rollouts.model import Rollout
from forewarn.store.port import HistoryQuery
from forewarn.store.sqlite import schema as s

_group = msgspec.json.Decoder(Group)
_machine = msgspec.json.Decoder(Machine)
_event = msgspec.json.Decoder(Event)
_host = msgspec.json.Decoder(Host)
_rollout = msgspec.json.Decoder(Rollout)
_token = msgspec.json.Decoder(Token)


def groups(connection: sa.Connection) -> dict[str, Group]:
    """Return every group with its machines and its active events."""
    machines: dict[str, list[Machine]] = {}
    for row in connection.execute(sa.select(s.machines).order_by(s.machines.c.ordinal)):
        machines.setdefault(row.group_name, []).append(_machine.decode(row.body))
    events: dict[str, list[Event]] = {}
    active = sa.select(s.events).where(~s.events.c.over).order_by(s.events.c.ordinal)
    for row in connection.execute(active):
        events.setdefault(row.group_name, []).append(_event.decode(row.body))
    return {
        row.name: msgspec.structs.replace(
            _group.decode(row.body),
            machines=tuple(machines.get(row.name, ())),
            events=tuple(events.get(row.name, ())),
        )
        for row in connection.execute(sa.select(s.groups))
    }


def registry(connection: sa.Connection) -> Registry:
    hosts = map(_host.decode, connection.scalars(sa.select(s.hosts.c.body)))
    rollouts = map(_rollout.decode, connection.scalars(sa.select(s.rollouts.c.body)))
    tokens = map(_token.decode, connection.scalars(sa.select(s.tokens.c.body)))
    return Registry(
        {host.name: host for host in hosts},
        {rollout.id: rollout for rollout in rollouts},
        {token.id: token for token in tokens},
    )


def last_commit(connection: sa.Connection) -> int:
    """Return the number of the last commit; 0 if there is none."""
    return connection.scalar(sa.select(sa.func.max(s.commits.c.seq))) or 0


def history_statement(wanted: HistoryQuery) -> sa.Select[Any]:
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


def history_records(rows: Iterable[Any]) -> Iterator[Record]:
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
