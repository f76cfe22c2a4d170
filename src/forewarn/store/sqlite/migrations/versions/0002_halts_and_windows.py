"""Halts, maintenance configurations, the output of drivers, what is known about clients, and how
far notifications have been delivered.

Builds between the two schemas wrote files of schema 0001 that have some of this already, so only
what is missing is added.
"""

from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import op

from forewarn.store.sqlite.verify import replay

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    existing = sa.inspect(op.get_bind())
    tables = existing.get_table_names()

    def create(name: str, *columns: sa.Column[Any], **options: Any) -> None:
        if name not in tables:
            op.create_table(name, *columns, **options)

    for table, key in (("halts", "id"), ("configurations", "name"), ("notify_positions", "name")):
        create(
            table,
            sa.Column(key, sa.Text, primary_key=True),
            sa.Column("body", sa.LargeBinary, nullable=False),
        )
    create(
        "machine_sightings",
        sa.Column("machine", sa.Text, primary_key=True),
        sa.Column("polled", sa.BigInteger, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("polls", sa.Integer, nullable=False),
        sa.Column("ignored", sa.Integer, nullable=False),
        sa.Column("answered", sa.BigInteger),
        sqlite_with_rowid=False,
    )
    columns = [column["name"] for column in existing.get_columns("history")]
    for name in ("output", "answer"):
        if name not in columns:
            op.add_column("history", sa.Column(name, sa.Text))
    _add_shown_numbers(op.get_bind())


def _add_shown_numbers(connection: sa.Connection) -> None:
    """Add to each group the highest incarnation of its earlier documents, which 0001 did not store,
    as its commits lead to it. If some were pruned, the numbers are unknown and stay as they are."""
    driver_connection: Any = connection.connection.driver_connection
    replayed = replay(driver_connection, Path(connection.engine.url.database or ""))
    if replayed is None:
        return
    for name, group in replayed[0].items():
        query = sa.text("SELECT body FROM groups WHERE name = :name")
        body = connection.scalar(query, {"name": name})
        if body is not None and (group.shown or group.renewed):
            fields = msgspec.json.decode(body) | {"shown": group.shown, "renewed": group.renewed}
            update = sa.text("UPDATE groups SET body = :body WHERE name = :name")
            connection.execute(update, {"name": name, "body": msgspec.json.encode(fields)})
