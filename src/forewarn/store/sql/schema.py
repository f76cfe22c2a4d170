"""The tables. The current state is stored as well as the commits that led to it, so that a start
does not replay them; a test checks that replaying gives the same."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

SCHEMA_VERSION = "0002"  # the newest revision in migrations/versions

metadata = sa.MetaData()

# 64 bits everywhere; SQLite numbers the rows of a table only if the type is called INTEGER.
Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# PostgreSQL compares texts by the rules of a language unless it is told not to.
Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


# What partial indexes are limited to. PostgreSQL is told by those who use it: to tell SQLAlchemy
# means to import what it knows about PostgreSQL.
partial_indexes: list[tuple[sa.Index, Any]] = []


def _partial_index(name: str, *columns: str, where: Any, unique: bool = False) -> sa.Index:
    index = sa.Index(name, *columns, unique=unique, sqlite_where=where)
    partial_indexes.append((index, where))
    return index


commits = sa.Table(
    "commits",
    metadata,
    sa.Column("seq", Number, primary_key=True, autoincrement=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

groups = sa.Table(
    "groups",
    metadata,
    sa.Column("name", Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

machines = sa.Table(
    "machines",
    metadata,
    sa.Column("ordinal", Number, primary_key=True),
    sa.Column("name", Text, nullable=False, unique=True),
    sa.Column("group_name", Text, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

# Active events and those that are over; `ordinal` is the order in which they were raised.
events = sa.Table(
    "events",
    metadata,
    sa.Column("ordinal", Number, primary_key=True),
    sa.Column("id", Text, nullable=False, unique=True),
    sa.Column("group_name", Text, nullable=False),
    sa.Column("over", sa.Boolean, nullable=False),
    sa.Column("cause", Text, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Index("events_by_group", "group_name", "over", "ordinal"),
    sa.Index("events_by_cause", "cause", "ordinal"),
)

# The registry.
hosts = sa.Table(
    "hosts",
    metadata,
    sa.Column("name", Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

rollouts = sa.Table(
    "rollouts",
    metadata,
    sa.Column("id", Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

halts = sa.Table(
    "halts",
    metadata,
    sa.Column("id", Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

configurations = sa.Table(
    "configurations",
    metadata,
    sa.Column("name", Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

# Requests with an idempotency key, and the commits that carried them out.
keys = sa.Table(
    "keys",
    metadata,
    sa.Column("owner", Text, primary_key=True),
    sa.Column("name", Text, primary_key=True),
    sa.Column("digest", Text, nullable=False),
    sa.Column("seq", Number, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("status", Number),
    sa.Column("answer", sa.LargeBinary),
    sa.Index("keys_by_commit", "seq"),
)

# The history; `seq` is never used twice. What never changes about an event (type, machines, cause)
# is looked up in its row. Columns that do not apply are NULL, and partial indexes leave them out.
history = sa.Table(
    "history",
    metadata,
    sa.Column("seq", Number, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("what", Text, nullable=False),
    sa.Column("who", Text, nullable=False),
    sa.Column("group_name", Text),
    sa.Column("event", Text),
    sa.Column("machine", Text),
    sa.Column("host", Text),
    sa.Column("type", Text),
    sa.Column("cause", Text),
    sa.Column("note", Text, nullable=False),
    sa.Column("output", Text),
    sa.Column("answer", Text),
    sa.Index("history_by_time", "at"),
    *(
        _partial_index(f"history_by_{name}", column, "at", where=sa.column(column).is_not(None))
        for name, column in (
            ("event", "event"),
            ("group", "group_name"),
            ("host", "host"),
            ("machine", "machine"),
        )
    ),
    _partial_index("history_seen_once", "event", where=sa.text("what = 'seen'"), unique=True),
    sqlite_autoincrement=True,
)

# The events that a machine is in, so that the history needs no row for each machine of an event.
event_machines = sa.Table(
    "event_machines",
    metadata,
    sa.Column("machine", Text, primary_key=True),
    sa.Column("event", Text, primary_key=True),
    sqlite_with_rowid=False,
)

# When each group was last seen. Saved now and then, like the next three tables.
sightings = sa.Table(
    "sightings",
    metadata,
    sa.Column("group_name", Text, primary_key=True),
    sa.Column("seen", sa.BigInteger, nullable=False),
)

# The clients on machines, as far as they are known. Machines that are gone have no row.
machine_sightings = sa.Table(
    "machine_sightings",
    metadata,
    sa.Column("machine", Text, primary_key=True),
    sa.Column("polled", sa.BigInteger, nullable=False),
    sa.Column("version", Text, nullable=False),
    sa.Column("polls", Number, nullable=False),
    sa.Column("ignored", Number, nullable=False),
    sa.Column("answered", sa.BigInteger),
    sqlite_with_rowid=False,
)

# When each token was last used.
token_uses = sa.Table(
    "token_uses",
    metadata,
    sa.Column("id", Text, primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
)

# How far the notifications of each table [[notify]] have been delivered.
notify_positions = sa.Table(
    "notify_positions",
    metadata,
    sa.Column("name", Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

# Single values by name, for example until when the endpoint was serving.
service = sa.Table(
    "service",
    metadata,
    sa.Column("key", Text, primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)
