"""Checks every row of a state: can it be decoded, and do the commits lead to the stored state?
Used for copies, where it may take its time; a service that starts checks only what it loads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from forewarn.core import Event, Group, Machine, apply
from forewarn.core.access import Token
from forewarn.core.fleet import Host
from forewarn.core.registry import Registry, StateRestored
from forewarn.core.rollouts.model import Rollout
from forewarn.store.port import Commit, Contents, StoreUnusable
from forewarn.store.sqlite import check
from forewarn.store.sqlite import schema as s
from forewarn.store.sqlite.write import COPIED

BODIES: dict[str, Any] = {
    "groups": Group,
    "machines": Machine,
    "events": Event,
    "hosts": Host,
    "rollouts": Rollout,
    "tokens": Token,
}


def contents(connection: sqlite3.Connection, path: Path) -> Contents:
    schema = check.schema_of(connection, path)
    check.check_schema(path, schema, migrate=True)
    marks = dict(connection.execute("SELECT key, value FROM service"))
    newest = connection.execute("SELECT max(seq), max(at) FROM commits").fetchone()
    until = [at for at in (newest[1], marks.get("served_until")) if at is not None]
    counted = connection.execute(
        "SELECT (SELECT count(DISTINCT group_name) FROM machines), (SELECT count(*) FROM machines),"
        " (SELECT count(*) FROM events WHERE NOT over), (SELECT count(*) FROM tokens)"
    ).fetchone()
    return Contents(
        schema=schema,
        commit=newest[0] or 0,
        at=max(until, default=None),
        copied_at=marks.get(COPIED),
        groups=counted[0],
        machines=counted[1],
        active_events=counted[2],
        tokens=counted[3],
    )


def verify(connection: sqlite3.Connection, path: Path) -> Contents:
    """Return a summary of a file that is intact. Raises StoreUnusable."""
    try:
        check_pages(connection, path)
        found = contents(connection, path)
        check.check_parts(connection, path)
        if found.schema == s.SCHEMA_VERSION and (lacks := check.missing_columns(connection)):
            raise StoreUnusable(
                f"{path} says it is of schema {found.schema}, but has no {lacks[0]}"
            )
        there = _decoded(connection, path)
        _check_replay(connection, path, there)
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(f"{path} is damaged ({error})") from error
    return found


def check_pages(connection: sqlite3.Connection, path: Path) -> None:
    said = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
    if said != ["ok"]:
        raise StoreUnusable(f"{path} is damaged ({'; '.join(map(_line, said))})")


def _decoded(connection: sqlite3.Connection, path: Path) -> dict[str, list[Any]]:
    """Return all stored values, by table."""
    found: dict[str, list[Any]] = {name: [] for name in BODIES}
    for name, type in BODIES.items():
        decoder = msgspec.json.Decoder(type)
        order = " ORDER BY ordinal" if name in ("machines", "events") else ""
        columns = "group_name, body" if order else "NULL, body"
        for group, body in connection.execute(f"SELECT {columns} FROM {name}{order}"):
            try:
                found[name].append((group, decoder.decode(body)))
            except (msgspec.MsgspecError, TypeError) as error:
                raise StoreUnusable(f"{path} is damaged (a row of {name}: {error})") from error
    return found


def _commits(connection: sqlite3.Connection, path: Path) -> Iterator[Commit]:
    decoder = msgspec.json.Decoder(Commit)
    last = None
    for seq, body in connection.execute("SELECT seq, body FROM commits ORDER BY seq"):
        try:
            commit = decoder.decode(body)
        except (msgspec.MsgspecError, TypeError) as error:
            raise StoreUnusable(f"{path} is damaged (commit {seq}: {error})") from error
        if commit.seq != seq or (last is not None and seq <= last):
            raise StoreUnusable(f"{path} is damaged (commit {seq} says it is {commit.seq})")
        last = seq
        yield commit


def _check_replay(connection: sqlite3.Connection, path: Path, there: dict[str, list[Any]]) -> None:
    """Compare the stored state with what the commits lead to, unless some were pruned."""
    groups: dict[str, Group] = {}
    registry = Registry({}, {}, {})
    whole, last = True, 0
    for commit in _commits(connection, path):
        whole = whole and (commit.seq == last + 1 or _skips(commit, last))
        last = commit.seq
        if not whole:
            continue  # it is still to be decoded
        for entry in commit.entries:
            before = groups.get(entry.group) or Group(name=entry.group)
            groups[entry.group] = apply(before, entry.items)
        for put in commit.puts:
            registry.put(put)
    if not whole:
        return
    groups = {name: _in_order(group) for name, group in groups.items()}
    wrong = [name for name, group in _groups(there).items() if groups.pop(name, None) != group]
    wrong += groups
    for name, replayed in (
        ("hosts", registry.hosts),
        ("rollouts", registry.rollouts),
        ("tokens", registry.tokens),
    ):
        stored = [value for _, value in there[name]]
        if {_key(value): value for value in stored} != dict(replayed):
            wrong.append(name)
    if wrong:
        raise StoreUnusable(
            f"{path} is damaged (its commits lead to something else than stands beside them:"
            f" {', '.join(sorted(wrong)[:3])})"
        )


def _skips(commit: Commit, last: int) -> bool:
    """Return whether numbers before this commit were skipped, so that none is missing."""
    return any(isinstance(put, StateRestored) and put.commit == last for put in commit.puts)


def _groups(there: dict[str, list[Any]]) -> dict[str, Group]:
    machines: dict[str, list[Machine]] = {}
    for group, machine in there["machines"]:
        machines.setdefault(group, []).append(machine)
    events: dict[str, list[Event]] = {}
    for group, event in there["events"]:
        if not event.status.over:
            events.setdefault(group, []).append(event)
    return {
        group.name: _in_order(
            msgspec.structs.replace(
                group,
                machines=tuple(machines.get(group.name, ())),
                events=tuple(events.get(group.name, ())),
            )
        )
        for _, group in there["groups"]
    }


def _in_order(group: Group) -> Group:
    """Sort the machines: one that has moved between groups keeps its row, and so its place."""
    machines = sorted(group.machines, key=lambda machine: machine.name)
    return msgspec.structs.replace(group, machines=tuple(machines))


def _key(value: Any) -> str:
    return str(value.name if isinstance(value, Host) else value.id)


def _line(said: object) -> str:
    return " ".join(str(said).split())
