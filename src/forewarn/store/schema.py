"""The tables. The current state stands beside the commits that led to it, so that starting
does not mean replaying; a test checks that replaying would give the same."""

from __future__ import annotations

import sqlalchemy as sa

SCHEMA_VERSION = "0002"  # the newest file of migrations/versions

metadata = sa.MetaData()

commits = sa.Table(
    "commits",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

groups = sa.Table(
    "groups",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

machines = sa.Table(
    "machines",
    metadata,
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("group_name", sa.Text, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

# Active events and those that are over; `ordinal` is the order in which they were raised.
events = sa.Table(
    "events",
    metadata,
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("group_name", sa.Text, nullable=False),
    sa.Column("over", sa.Boolean, nullable=False),
    sa.Column("cause", sa.Text, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Index("events_by_group", "group_name", "over", "ordinal"),
    sa.Index("events_by_cause", "cause", "ordinal"),
)

# What stands beside the groups.
hosts = sa.Table(
    "hosts",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

rollouts = sa.Table(
    "rollouts",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

# Lossy: when each group was last seen, and until when the endpoint served.
sightings = sa.Table(
    "sightings",
    metadata,
    sa.Column("group_name", sa.Text, primary_key=True),
    sa.Column("seen", sa.BigInteger, nullable=False),
)

service = sa.Table(
    "service",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)
