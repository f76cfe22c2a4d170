"""Checks of all rows of a state: that they can be decoded, and that the commits lead to the stored
state. Used for copies, where it may take its time; a service that starts checks only what it loads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from forewarn.core import Event, Group, Machine, apply
from forewarn.core.access import Token
from forewarn.core.fleet import Host
from forewarn.core.halts import Halt
from forewarn.core.registry import GroupForgotten, Registry, StateRestored
from forewarn.core.rollouts.model import Rollout
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.store.port import Commit, Contents, StoreUnusable
from forewarn.store.sql import schema as s
from forewarn.store.sql.write import COPIED
from forewarn.store.sqlite import check

Stored: TypeAlias = dict[str, list[tuple[str, Any]]]  # by table, with the group, if any

BODIES: dict[str, Any] = {
    "groups": Group,
    "machines": Machine,
    "events": Event,
    "hosts": Host,
    "rollouts": Rollout,
    "halts": Halt,
    "tokens": Token,
    "configurations": MaintenanceConfiguration,
}


def contents(connection: sqlite3.Connection, path: Path) -> Contents:
    schema = check.schema_of(connection, path)
    check.check_schema(path, schema, migrate=True)
    values = dict(connection.execute("SELECT key, value FROM service"))
    last = connection.execute("SELECT max(seq), max(at) FROM commits").fetchone()
    times = [at for at in (last[1], values.get("served_until")) if at is not None]
    counts = connection.execute(
        "SELECT (SELECT count(DISTINCT group_name) FROM machines), (SELECT count(*) FROM machines),"
        " (SELECT count(*) FROM events WHERE NOT over), (SELECT count(*) FROM tokens)"
    ).fetchone()
    return Contents(
        schema=schema,
        commit=last[0] or 0,
        at=max(times, default=None),
        copied_at=values.get(COPIED),
        groups=counts[0],
        machines=counts[1],
        active_events=counts[2],
        tokens=counts[3],
    )


def verify(connection: sqlite3.Connection, path: Path) -> Contents:
    """Return a summary of a file that is intact. Raises StoreUnusable."""
    try:
        check_pages(connection, path)
        summary = contents(connection, path)
        check.check_parts(connection, path)
        missing = check.missing_columns(connection)
        current = summary.schema == s.SCHEMA_VERSION
        if current and missing:
            raise StoreUnusable(
                f"{path} claims to have schema {summary.schema}, but has no column {missing[0]}"
            )
        stored = _decode_all(connection, path)
        replayed = replay(connection, path)
        if current and replayed is not None:  # an older version may replay differently
            _check_replay(path, stored, *replayed)
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(f"{path} is damaged ({error})") from error
    return summary


def check_pages(connection: sqlite3.Connection, path: Path) -> None:
    messages = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
    if messages != ["ok"]:
        raise StoreUnusable(f"{path} is damaged ({'; '.join(map(_one_line, messages))})")


def _decode_all(connection: sqlite3.Connection, path: Path) -> Stored:
    stored: Stored = {name: [] for name in BODIES}
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    for name, type in BODIES.items():
        if name not in tables:
            continue  # an older schema does not have all of them
        decoder = msgspec.json.Decoder(type)
        order = " ORDER BY ordinal" if name in ("machines", "events") else ""
        columns = "group_name, body" if order else "'', body"
        for group, body in connection.execute(f"SELECT {columns} FROM {name}{order}"):
            try:
                stored[name].append((group, decoder.decode(body)))
            except (msgspec.MsgspecError, TypeError) as error:
                raise StoreUnusable(f"{path} is damaged (a row of {name}: {error})") from error
    return stored


def _commits(connection: sqlite3.Connection, path: Path) -> Iterator[Commit]:
    decoder = msgspec.json.Decoder(Commit)
    last = None
    for seq, body in connection.execute("SELECT seq, body FROM commits ORDER BY seq"):
        try:
            commit = decoder.decode(body)
        except (msgspec.MsgspecError, TypeError) as error:
            raise StoreUnusable(f"{path} is damaged (commit {seq}: {error})") from error
        if commit.seq != seq or (last is not None and seq <= last):
            raise StoreUnusable(f"{path} is damaged (commit {seq} has the number {commit.seq})")
        last = seq
        yield commit


def replay(connection: sqlite3.Connection, path: Path) -> tuple[dict[str, Group], Registry] | None:
    """Decode all commits, and return what they lead to; None if some were pruned."""
    groups: dict[str, Group] = {}
    registry = Registry({}, {}, {}, {})
    complete, last = True, 0
    for commit in _commits(connection, path):
        complete = complete and (commit.seq == last + 1 or _numbers_skipped(commit, last))
        last = commit.seq
        if not complete:
            continue  # the rest is only decoded
        for entry in commit.entries:
            before = groups.get(entry.group) or Group(name=entry.group)
            groups[entry.group] = apply(before, entry.items)
        for put in commit.puts:
            registry.put(put)
            if isinstance(put, GroupForgotten):
                groups.pop(put.name, None)
    return (groups, registry) if complete else None


def _check_replay(path: Path, stored: Stored, groups: dict[str, Group], registry: Registry) -> None:
    """Compare the stored state with what the commits lead to."""
    groups = {name: _sorted(group) for name, group in groups.items()}
    stored_groups = _groups(stored)
    differing = [
        name
        for name in groups.keys() | stored_groups.keys()
        if groups.get(name) != stored_groups.get(name)
    ]
    for name, replayed in (
        ("hosts", registry.hosts),
        ("rollouts", registry.rollouts),
        ("halts", registry.halts),
        ("tokens", registry.tokens),
        ("configurations", registry.configurations),
    ):
        if {_key(value): value for _, value in stored[name]} != dict(replayed):
            differing.append(name)
    if differing:
        raise StoreUnusable(
            f"{path} is damaged (its commits do not lead to the stored state:"
            f" {', '.join(sorted(differing)[:3])})"
        )


def _numbers_skipped(commit: Commit, last: int) -> bool:
    """Return whether numbers before this commit were skipped, so that none is missing."""
    return any(isinstance(put, StateRestored) and put.commit == last for put in commit.puts)


def _groups(stored: Stored) -> dict[str, Group]:
    machines: dict[str, list[Machine]] = {}
    for group, machine in stored["machines"]:
        machines.setdefault(group, []).append(machine)
    events: dict[str, list[Event]] = {}
    for group, event in stored["events"]:
        if not event.status.over:
            events.setdefault(group, []).append(event)
    return {
        group.name: _sorted(
            msgspec.structs.replace(
                group,
                machines=tuple(machines.get(group.name, ())),
                events=tuple(events.get(group.name, ())),
            )
        )
        for _, group in stored["groups"]
    }


def _sorted(group: Group) -> Group:
    """Sort the machines: one that has moved between groups keeps its row, and so its place."""
    machines = sorted(group.machines, key=lambda machine: machine.name)
    return msgspec.structs.replace(group, machines=tuple(machines))


def _key(value: Any) -> str:
    named = isinstance(value, Host | MaintenanceConfiguration)
    return str(value.name if named else value.id)


def _one_line(message: object) -> str:
    return " ".join(str(message).split())
