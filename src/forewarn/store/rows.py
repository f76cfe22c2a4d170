"""From states to rows: what a commit changed, written beside it.

A group's machines and events have rows of their own, so that a change costs what it changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from forewarn.core import Event, Group
from forewarn.core.changes import EventMoved
from forewarn.core.registry import HostPut, HostRemoved, RolloutPut, RolloutRemoved
from forewarn.store import schema as s
from forewarn.store.port import Commit

_encode = msgspec.json.Encoder().encode


def write_groups(
    connection: sa.Connection, before: Mapping[str, Group], after: Mapping[str, Group]
) -> None:
    """A group's own row holds neither its machines nor its events: those have rows of their own."""

    def row(group: Group) -> bytes:
        return _encode(msgspec.structs.replace(group, machines=(), events=()))

    rows = [
        {"name": name, "body": row(group)}
        for name, group in after.items()
        if name not in before or row(group) != row(before[name])
    ]
    upsert(connection, s.groups, "name", rows)


def write_machines(
    connection: sa.Connection, before: Mapping[str, Group], after: Mapping[str, Group]
) -> None:
    rows, removed = [], []
    for name, group in after.items():
        known = {m.name: m for m in before[name].machines} if name in before else {}
        for machine in group.machines:
            if known.pop(machine.name, None) is not machine:
                rows.append({"name": machine.name, "group_name": name, "body": _encode(machine)})
        removed += list(known)
    if removed:
        connection.execute(s.machines.delete().where(s.machines.c.name.in_(removed)))
    upsert(connection, s.machines, "name", rows)


def write_registry(connection: sa.Connection, commits: Sequence[Commit]) -> None:
    latest: dict[tuple[sa.Table, str], bytes | None] = {}
    for commit in commits:
        for put in commit.puts:
            match put:
                case HostPut(host=host):
                    latest[s.hosts, host.name] = _encode(host)
                case HostRemoved(name=name):
                    latest[s.hosts, name] = None
                case RolloutPut(rollout=rollout):
                    latest[s.rollouts, rollout.id] = _encode(rollout)
                case RolloutRemoved(id=id):
                    latest[s.rollouts, id] = None
    for table, key in ((s.hosts, "name"), (s.rollouts, "id")):
        mine = {name: body for (of, name), body in latest.items() if of is table}
        gone = [name for name, body in mine.items() if body is None]
        if gone:
            connection.execute(
                table.delete().where(table.c[key] == sa.bindparam("gone")),
                [{"gone": name} for name in gone],
            )
        rows = [{key: name, "body": body} for name, body in mine.items() if body is not None]
        upsert(connection, table, key, rows)


def write_events(connection: sa.Connection, commits: Sequence[Commit]) -> None:
    latest: dict[str, Event] = {}
    for commit in commits:
        for entry in commit.entries:
            for item in entry.items:
                if isinstance(item, EventMoved):
                    latest[item.event.id] = item.event
    rows = [
        {
            "id": event.id,
            "group_name": event.group,
            "over": event.status.over,
            "cause": event.cause,
            "body": _encode(event),
        }
        for event in latest.values()
    ]
    upsert(connection, s.events, "id", rows)


def upsert(
    connection: sa.Connection, table: sa.Table, key: str, rows: Sequence[Mapping[str, object]]
) -> None:
    if not rows:
        return
    statement = insert(table)
    values = {
        column.name: statement.excluded[column.name]
        for column in table.columns
        if column.name in rows[0] and column.name != key
    }
    connection.execute(statement.on_conflict_do_update(index_elements=[key], set_=values), rows)
