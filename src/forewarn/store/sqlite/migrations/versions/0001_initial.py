"""The tables of the first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "commits",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "groups",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "machines",
        sa.Column("ordinal", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("ordinal", sa.Integer, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("over", sa.Boolean, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("events_by_group", "events", ["group_name", "over", "ordinal"])
    op.create_index("events_by_cause", "events", ["cause", "ordinal"])
    for table, key in (("hosts", "name"), ("rollouts", "id"), ("tokens", "id")):
        op.create_table(
            table,
            sa.Column(key, sa.Text, primary_key=True),
            sa.Column("body", sa.LargeBinary, nullable=False),
        )
    op.create_table(
        "keys",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("answer", sa.LargeBinary),
    )
    op.create_index("keys_by_commit", "keys", ["seq"])
    op.create_table(
        "history",
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("group_name", sa.Text),
        sa.Column("event", sa.Text),
        sa.Column("machine", sa.Text),
        sa.Column("host", sa.Text),
        sa.Column("type", sa.Text),
        sa.Column("cause", sa.Text),
        sa.Column("note", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("history_by_time", "history", ["at"])
    for name, column in (
        ("event", "event"),
        ("group", "group_name"),
        ("host", "host"),
        ("machine", "machine"),
    ):
        where = sa.column(column).is_not(None)
        op.create_index(f"history_by_{name}", "history", [column, "at"], sqlite_where=where)
    seen = sa.text("what = 'seen'")
    op.create_index("history_seen_once", "history", ["event"], unique=True, sqlite_where=seen)
    op.create_table(
        "event_machines",
        sa.Column("machine", sa.Text, primary_key=True),
        sa.Column("event", sa.Text, primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "sightings",
        sa.Column("group_name", sa.Text, primary_key=True),
        sa.Column("seen", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "token_uses",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("used", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "service",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
