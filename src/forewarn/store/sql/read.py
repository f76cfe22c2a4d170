"""From rows to values: the state as it was last committed, and records of the history.

A history query is one statement that is served by indexes. Records are ordered by time and then by
number, because the record of which machine saw an event first is written some seconds later. A
reader that follows the history uses the number alone, which is the order of writing. A page starts
after the last record of the page before, so that nothing has to be counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec
import sqlalchemy as sa

from forewarn.core import Event, Group, Machine, Time
from forewarn.core.access import Token
from forewarn.core.fleet import Host
from forewarn.core.halts import Halt
from forewarn.core.history import Record, RecordKind
from forewarn.core.registry import Registry
from forewarn.core.rollouts.model import Rollout
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.store.port import HistoryQuery
from forewarn.store.sql import schema as s

_group = msgspec.json.Decoder(Group)
_machine = msgspec.json.Decoder(Machine)
_event = msgspec.json.Decoder(Event)
_host = msgspec.json.Decoder(Host)
_rollout = msgspec.json.Decoder(Rollout)
_halt = msgspec.json.Decoder(Halt)
_token = msgspec.json.Decoder(Token)
_configuration = msgspec.json.Decoder(MaintenanceConfiguration)
_times = msgspec.json.Decoder(dict[str, Time])  # the column `answer` of SEEN

_SEEN, _STARTED = RecordKind.SEEN.value, RecordKind.STARTED.value


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
    halts = map(_halt.decode, connection.scalars(sa.select(s.halts.c.body)))
    tokens = map(_token.decode, connection.scalars(sa.select(s.tokens.c.body)))
    configurations = map(
        _configuration.decode, connection.scalars(sa.select(s.configurations.c.body))
    )
    return Registry(
        {host.name: host for host in hosts},
        {rollout.id: rollout for rollout in rollouts},
        {token.id: token for token in tokens},
        {halt.id: halt for halt in halts},
        {configuration.name: configuration for configuration in configurations},
    )


def last_commit(connection: sa.Connection) -> int:
    """Return the number of the last commit; 0 if there is none."""
    return connection.scalar(sa.select(sa.func.max(s.commits.c.seq))) or 0


def history_statement(query: HistoryQuery, dialect: str) -> sa.Select[Any]:
    """Return the statement for a query, in the SQL of `dialect`."""
    h, em = s.history.c, s.event_machines.c
    seen = s.history.alias("seen")  # the record of who was shown the event that has started
    statement = (
        sa.select(
            s.history,
            s.events.c.body.label("event_body"),
            seen.c.seq.label("seen_seq"),
            seen.c.answer.label("seen_answer"),
        )
        .join_from(s.history, s.events, s.events.c.id == h.event, isouter=True)
        .join(
            seen,
            sa.and_(h.what == _STARTED, seen.c.event == h.event, seen.c.what == sa.text("'seen'")),
            isouter=True,
        )
    )
    if query.machine is not None:
        events = sa.select(em.event).where(em.machine == query.machine)
        statement = statement.where(sa.or_(h.machine == query.machine, h.event.in_(events)))
    for column, value in (
        (h.group_name, query.group),
        (h.host, query.host),
        (h.event, query.event),
    ):
        if value is not None:
            statement = statement.where(column == value)
    if query.groups is not None:
        statement = statement.where(is_one_of(h.group_name, query.groups, dialect))
    if query.what:
        statement = statement.where(h.what.in_([what.value for what in query.what]))
    if query.since is not None:
        statement = statement.where(h.at >= query.since)
    if query.until is not None:
        statement = statement.where(h.at < query.until)
    mark = sa.tuple_(h.at, h.seq)
    if query.after is not None:
        statement = statement.where(mark > sa.tuple_(*query.after))
    if query.before is not None:
        statement = statement.where(mark < sa.tuple_(*query.before))
    if query.after_seq is not None:
        return statement.where(h.seq > query.after_seq).order_by(h.seq).limit(query.limit)
    order = (h.at.desc(), h.seq.desc()) if query.newest_first else (h.at, h.seq)
    return statement.order_by(*order).limit(query.limit)


def is_one_of(
    column: sa.ColumnElement[Any], values: Collection[str], dialect: str
) -> sa.ColumnElement[bool]:
    """Return whether a column has one of these values, which are sent as a single one: a statement
    may have a limited number, and each takes time."""
    sent = list(values)
    if dialect == "postgresql":
        return column == sa.func.any(sa.cast(sent, sa.ARRAY(sa.Text)))
    rows = sa.func.json_each(msgspec.json.encode(sent).decode()).table_valued("value")
    return column.in_(sa.select(rows.c.value))


def history_records(rows: Iterable[Any]) -> Iterator[Record]:
    events: dict[str, Event] = {}
    for row in rows:
        about_machine = row.what.startswith("machine-")
        record = Record(
            seq=row.seq,
            at=row.at,
            what=RecordKind(row.what),
            by=row.who,
            group=row.group_name or "",
            event=row.event or "",
            machine=row.machine or "",
            type=row.type or "",
            machines=(row.machine,) if about_machine else (),
            host=row.host or "",
            cause=row.cause or "",
            note=row.note,
            output=row.output or "",
            answer="" if row.what == _SEEN else row.answer or "",
            shown=_shown(row),
        )
        if row.event_body is None:
            yield record
            continue
        if row.event not in events:
            events[row.event] = _event.decode(row.event_body)
        yield record.with_event(events[row.event])


def _shown(row: Any) -> dict[str, Time] | None:
    """Return since when machines have been shown the event, in records that say so."""
    if row.what == _STARTED:
        if row.seen_seq is None:
            return {}  # nobody was
        return _times.decode(row.seen_answer) if row.seen_answer else None
    return _times.decode(row.answer) if row.what == _SEEN and row.answer else None


def shown(connection: sa.Connection) -> dict[str, dict[str, Time]]:
    """Return since when the machines of active events have been shown them."""
    h, e = s.history.c, s.events.c
    statement = sa.select(h.event, h.answer).join_from(s.events, s.history, h.event == e.id)
    rows = connection.execute(
        statement.where(~e.over, h.what == sa.text("'seen'"), h.answer.is_not(None))
    )
    return {row.event: _times.decode(row.answer) for row in rows}
