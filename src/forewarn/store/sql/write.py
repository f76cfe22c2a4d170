"""From values to rows: the commits, and the state that they lead to.

A group's machines and events have rows of their own, so that the cost of a change depends on its
size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from forewarn.core import Change, Event, Group, Time
from forewarn.core.changes import EventMoved, MachinePut, MachineRemoved
from forewarn.core.fleet import Host
from forewarn.core.history import HistoryWriter, Record
from forewarn.core.lifecycle import Move
from forewarn.core.registry import (
    ClockAccepted,
    ConfigurationPut,
    ConfigurationRemoved,
    HaltPut,
    HaltReleased,
    HostPut,
    HostRemoved,
    RolloutPut,
    RolloutRemoved,
    StateRestored,
    TokenPut,
    TokenRemoved,
)
from forewarn.core.retiming import Correction
from forewarn.store.base import forgotten
from forewarn.store.port import Commit, NotifyPosition, PollSightings
from forewarn.store.sql.statements import Row, Statements

_encode = msgspec.json.Encoder().encode

# All of a group but what has rows of its own.
_group_fields = attrgetter(*(f for f in Group.__struct_fields__ if f not in ("machines", "events")))

_COMMIT = "INSERT INTO commits (seq, at, body) VALUES (?, ?, ?)"
_GROUP = (
    "INSERT INTO groups (name, body) VALUES (?, ?)"
    " ON CONFLICT (name) DO UPDATE SET body = excluded.body"
)
_FORGET_GROUP = "DELETE FROM groups WHERE name = ?"
_MACHINE = (
    "INSERT INTO machines (name, group_name, body) VALUES (?, ?, ?)"
    " ON CONFLICT (name) DO UPDATE SET group_name = excluded.group_name, body = excluded.body"
)
_DELETE_MACHINE = "DELETE FROM machines WHERE name = ?"
_EVENT = (
    "INSERT INTO events (id, group_name, over, cause, body) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET over = excluded.over, body = excluded.body"
)
_EVENT_MACHINE = "INSERT INTO event_machines (machine, event) VALUES (?, ?) ON CONFLICT DO NOTHING"
_RECORD = (
    "INSERT INTO history (at, what, who, group_name, event, machine, host, type, cause, note,"
    " output, answer) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
# Of an event that was shown before, the first record stays: only who has been shown it is new.
_SHOWN = _RECORD + " ON CONFLICT (event) WHERE what = 'seen' DO UPDATE SET answer = excluded.answer"
_REGISTRY = {
    (table, key): (
        f"INSERT INTO {table} ({key}, body) VALUES (?, ?)"
        f" ON CONFLICT ({key}) DO UPDATE SET body = excluded.body",
        f"DELETE FROM {table} WHERE {key} = ?",
    )
    for table, key in (
        ("hosts", "name"),
        ("rollouts", "id"),
        ("halts", "id"),
        ("tokens", "id"),
        ("configurations", "name"),
    )
}
_KEY = (
    "INSERT INTO keys (owner, name, digest, seq, at) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (owner, name) DO UPDATE SET digest = excluded.digest, seq = excluded.seq,"
    " at = excluded.at, status = NULL, answer = NULL"
)
_SIGHTING = (
    "INSERT INTO sightings (group_name, seen) VALUES (?, ?)"
    " ON CONFLICT (group_name) DO UPDATE SET seen = excluded.seen"
)
_MACHINE_SIGHTING = (
    "INSERT INTO machine_sightings (machine, polled, version, polls, ignored, answered)"
    " SELECT name, CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT),"
    " CAST(? AS BIGINT) FROM machines WHERE name = ?"  # it may have been removed
    " ON CONFLICT (machine) DO UPDATE SET polled = excluded.polled, version = excluded.version,"
    " polls = excluded.polls, ignored = excluded.ignored, answered = excluded.answered"
)
_DELETE_MACHINE_SIGHTING = "DELETE FROM machine_sightings WHERE machine = ?"
_SERVICE = (
    "INSERT INTO service (key, value) VALUES (?, ?)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)

_USE = (
    "INSERT INTO token_uses (id, used) VALUES (?, ?)"
    " ON CONFLICT (id) DO UPDATE SET used = excluded.used"
)
_NOTIFY_POSITION = (
    "INSERT INTO notify_positions (name, body) VALUES (?, ?)"
    " ON CONFLICT (name) DO UPDATE SET body = excluded.body"
)
_DELETE_USE = "DELETE FROM token_uses WHERE id = ?"

# Columns with the time at which something happened.
_TIMES = (
    ("history", "at"),
    ("commits", "at"),
    ("keys", "at"),
    ("token_uses", "used"),
    ("machine_sightings", "polled"),
    ("machine_sightings", "answered"),
)
_event = msgspec.json.Decoder(Event)
_times = msgspec.json.Decoder(dict[str, Time])  # the column `answer` of the records of who saw it

COPIED = "copied"  # in `service`: when this copy was made
KNOWN = "known"  # in `service`: the highest commit that was known, if this is a copy or lost some


def write(
    statements: Statements,
    commits: Sequence[Commit],
    before: Mapping[str, Group],
    after: Mapping[str, Group],
    hosts: Mapping[str, Host],
) -> None:
    """Write commits, the state that they lead to, and their records in the history."""
    _write_commits(statements, commits, before, hosts)
    _write_groups(statements, before, after)
    statements.execute_many(_FORGET_GROUP, [(name,) for name in forgotten(commits, after)])
    _write_machines(statements, before, after)
    _forget_sightings(statements, commits)
    _write_events(statements, commits)
    _write_registry(statements, commits)
    keys = {(c.key.owner, c.key.name): (c.key.digest, c.seq, c.at) for c in commits if c.key}
    statements.execute_many(_KEY, [(*key, *row) for key, row in keys.items()])
    _write_restored(statements, commits)


def write_sightings(statements: Statements, sightings: PollSightings) -> None:
    statements.execute_many(_SIGHTING, list(sightings.seen.items()))
    machines = [
        (m.polled, m.version, m.polls, m.ignored, m.answered, name)
        for name, m in sightings.machines.items()
    ]
    statements.execute_many(_MACHINE_SIGHTING, machines)
    statements.execute_many(_USE, list(sightings.used.items()))
    if sightings.served_until is not None:
        values = [
            ("lost", sightings.lost),
            ("served_until", sightings.served_until),
            ("steady_since", sightings.steady_since),
        ]
        statements.execute_many(_SERVICE, values)
    if sightings.known:
        statements.execute_many(_SERVICE, [(KNOWN, sightings.known)])
    statements.execute_many(_SHOWN, [_row(record) for record in sightings.firsts])


def write_notify_position(statements: Statements, position: NotifyPosition) -> None:
    statements.execute_many(_NOTIFY_POSITION, [(position.name, _encode(position))])


def _write_groups(
    statements: Statements, before: Mapping[str, Group], after: Mapping[str, Group]
) -> None:
    rows = [
        (name, _encode(msgspec.structs.replace(group, machines=(), events=())))
        for name, group in after.items()
        if name not in before or _group_fields(group) != _group_fields(before[name])
    ]
    statements.execute_many(_GROUP, rows)


def _write_machines(
    statements: Statements, before: Mapping[str, Group], after: Mapping[str, Group]
) -> None:
    """Write machines that have changed. Rows are numbered in the order of the machines, so one that
    has left and returned gets a new row."""
    rows: list[Row] = []
    removed: list[Row] = []
    for name, group in after.items():
        machines_before = before[name].machines if name in before else ()
        if group.machines is machines_before:
            continue
        rest = {machine.name: at for at, machine in enumerate(machines_before)}
        last = -1  # place of the machine before, among those that have a row
        for machine in group.machines:
            place = rest.pop(machine.name, None)
            if place is None or place < last:
                if place is not None:
                    removed.append((machine.name,))
                last = len(machines_before)  # after all rows
            elif machines_before[place] is machine:
                last = place
                continue
            else:
                last = place
            rows.append((machine.name, name, _encode(machine)))
        removed += [(machine_name,) for machine_name in rest]
    statements.execute_many(_DELETE_MACHINE, removed)
    statements.execute_many(_MACHINE, rows)


def _forget_sightings(statements: Statements, commits: Sequence[Commit]) -> None:
    """Forget the clients on machines that are gone, even if they have returned since."""
    gone: list[Row] = []
    for item in _items(commits):
        match item:
            case MachineRemoved(name=name):
                gone.append((name,))
            case MachinePut(machine=machine) if machine.gone:
                gone.append((machine.name,))
    statements.execute_many(_DELETE_MACHINE_SIGHTING, gone)


def _write_events(statements: Statements, commits: Sequence[Commit]) -> None:
    latest: dict[str, Event] = {}
    machines: list[Row] = []
    for item in _items(commits):
        if not isinstance(item, EventMoved):
            continue
        latest[item.event.id] = item.event
        if item.what in (Move.RAISE, Move.FAIL):
            machines += [(machine, item.event.id) for machine in item.event.resources]
    rows = [(e.id, e.group, e.status.over, e.cause, _encode(e)) for e in latest.values()]
    statements.execute_many(_EVENT, rows)
    statements.execute_many(_EVENT_MACHINE, machines)


def _items(commits: Sequence[Commit]) -> Iterable[Change]:
    return (item for commit in commits for entry in commit.entries for item in entry.items)


def _write_registry(statements: Statements, commits: Sequence[Commit]) -> None:
    latest: dict[tuple[str, str, str], bytes | None] = {}
    for commit in commits:
        for put in commit.puts:
            match put:
                case HostPut(host=host):
                    latest["hosts", "name", host.name] = _encode(host)
                case HostRemoved(name=name):
                    latest["hosts", "name", name] = None
                case RolloutPut(rollout=rollout):
                    latest["rollouts", "id", rollout.id] = _encode(rollout)
                case RolloutRemoved(id=id):
                    latest["rollouts", "id", id] = None
                case HaltPut(halt=halt):
                    latest["halts", "id", halt.id] = _encode(halt)
                case HaltReleased(id=id):
                    latest["halts", "id", id] = None
                case TokenPut(token=token):
                    latest["tokens", "id", token.id] = _encode(token)
                case TokenRemoved(id=id):
                    latest["tokens", "id", id] = None
                case ConfigurationPut(configuration=configuration):
                    latest["configurations", "name", configuration.name] = _encode(configuration)
                case ConfigurationRemoved(name=name):
                    latest["configurations", "name", name] = None
    for (table, key, name), body in latest.items():
        upsert, delete = _REGISTRY[table, key]
        if body is None:
            statements.execute_many(delete, [(name,)])
            if table == "tokens":
                statements.execute_many(_DELETE_USE, [(name,)])
        else:
            statements.execute_many(upsert, [(name, body)])


def _write_restored(statements: Statements, commits: Sequence[Commit]) -> None:
    """Remove the mark of a copy, and store when it was restored."""
    for commit in commits:
        if any(isinstance(put, StateRestored) for put in commit.puts):
            statements.execute_many(_SERVICE, [("restored", commit.at)])
            statements.execute_many("DELETE FROM service WHERE key = ?", [(COPIED,), (KNOWN,)])


def _write_commits(
    statements: Statements,
    commits: Sequence[Commit],
    before: Mapping[str, Group],
    hosts: Mapping[str, Host],
) -> None:
    """Write commits, and their records in the history."""
    history = HistoryWriter(before, hosts)
    bodies: list[Row] = []
    records: list[Row] = []
    for commit in commits:
        records += [_row(r) for r in history.records(commit.at, _changes(commit), commit.puts)]
        stored = msgspec.structs.replace(commit, replay_notes=history.replay_notes())
        bodies.append((commit.seq, commit.at, _encode(stored)))
        accepted = next((put for put in commit.puts if isinstance(put, ClockAccepted)), None)
        if accepted is not None:  # later commits have the right time already
            statements.execute_many(_COMMIT, bodies)
            statements.execute_many(_RECORD, records)
            bodies, records = [], []
            _accept_clock(statements, commit, accepted)
    statements.execute_many(_COMMIT, bodies)
    statements.execute_many(_RECORD, records)


def _accept_clock(statements: Statements, commit: Commit, accepted: ClockAccepted) -> None:
    """Set the time to that of this commit. Everything stored with a later time was dated by a clock
    that was ahead, and is moved back by the error."""
    statements.execute_many(_SERVICE, [("served_until", commit.at), ("lost", commit.lost)])
    now, error = commit.at, accepted.before - commit.at
    if error <= 0:
        return
    correction = Correction(now, error)
    rows = statements.select(
        "SELECT id, body FROM events WHERE over AND id IN"
        " (SELECT event FROM history WHERE at > ? AND event IS NOT NULL)",
        (now,),
    )
    corrected = [(_encode(correction.event(_event.decode(body))), id) for id, body in rows]
    statements.execute_many("UPDATE events SET body = ? WHERE id = ?", corrected)
    rows = statements.select(
        "SELECT seq, answer FROM history WHERE what = 'seen' AND answer IS NOT NULL AND event IN"
        " (SELECT event FROM history WHERE at > ? AND event IS NOT NULL)",
        (now,),
    )
    shown = [
        (_text({name: correction.past(at) for name, at in _times.decode(answer).items()}), seq)
        for seq, answer in rows
    ]
    statements.execute_many("UPDATE history SET answer = ? WHERE seq = ?", shown)
    for table, column in _TIMES:
        statements.execute_many(
            f"UPDATE {table} SET {column} = {column} - ? WHERE {column} > ?",
            [(error, now)],
        )
    statements.execute_many(
        "UPDATE service SET value = value - ? WHERE key = 'restored' AND value > ?",
        [(error, now)],
    )


def _changes(commit: Commit) -> list[tuple[str, Any]]:
    return [(entry.group, entry.items) for entry in commit.entries]


def _row(record: Record) -> Row:
    of_event = bool(record.event)  # then these two are in the row of the event
    return (
        record.at,
        record.what.value,
        record.by,
        record.group or None,
        record.event or None,
        record.machine or None,
        record.host or None,
        None if of_event else record.type or None,
        None if of_event else record.cause or None,
        record.note,
        record.output or None,
        (record.answer or None) if record.shown is None else _text(record.shown),
    )


def _text(value: object) -> str:
    return _encode(value).decode()
