"""Hosts and rollouts beside the groups; the history, written from the commits there are."""

import msgspec
import sqlalchemy as sa
from alembic import op

from forewarn.core.changes import apply
from forewarn.core.group import Group
from forewarn.core.history import HistoryWriter
from forewarn.core.registry import Registry
from forewarn.store.port import Commit

revision = "0002"
down_revision = "0001"

PAGE = 256  # commits and events read at a time
INSERT = (
    "INSERT INTO history (at, what, who, group_name, event, machine, host, note)"
    " VALUES (:at, :what, :who, :group, :event, :machine, :host, :note)"
)


def upgrade() -> None:
    for table, key in (("hosts", "name"), ("rollouts", "id")):
        op.create_table(
            table,
            sa.Column(key, sa.Text, primary_key=True),
            sa.Column("body", sa.LargeBinary, nullable=False),
        )
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
    op.create_table(
        "event_machines",
        sa.Column("machine", sa.Text, primary_key=True),
        sa.Column("event", sa.Text, primary_key=True),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    _write_history(connection)
    _write_event_machines(connection)
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


def _write_history(connection: sa.Connection) -> None:
    """Replays the commits; what they say is read as it is now, as whenever they are read."""
    groups: dict[str, Group] = {}
    registry = Registry({}, {})
    scribe = HistoryWriter(groups, registry.hosts)
    after = 0
    while page := connection.execute(
        sa.text("SELECT seq, body FROM commits WHERE seq > :after ORDER BY seq LIMIT :page"),
        {"after": after, "page": PAGE},
    ).all():
        for seq, body in page:
            commit = _read(body)
            changed = [(entry.group, entry.items) for entry in commit.entries]
            rows = [
                {
                    "at": record.at,
                    "what": record.what.value,
                    "who": record.by,
                    "group": record.group or None,
                    "event": record.event or None,
                    "machine": record.machine or None,
                    "host": record.host or None,
                    "note": record.note,
                }
                for record in scribe.records(commit.at, changed, commit.puts)
            ]
            if rows:
                connection.execute(sa.text(INSERT), rows)
            for name, items in changed:
                groups[name] = apply(groups.get(name) or Group(name=name), items)
            after = seq


def _read(body: bytes) -> Commit:
    """Commits of that schema say only in words that an event was carried out."""
    stored = msgspec.json.decode(body)
    for entry in stored["entries"]:
        for item in entry["items"]:
            event = item.get("event")
            if event is not None and event.get("ending") == "carried out":
                event["carried_out"] = True
    return msgspec.convert(stored, Commit)


def _write_event_machines(connection: sa.Connection) -> None:
    after = 0
    while page := connection.execute(
        sa.text("SELECT ordinal, id, body FROM events WHERE ordinal > :after LIMIT :page"),
        {"after": after, "page": PAGE},
    ).all():
        rows = [
            {"machine": machine, "event": id}
            for _, id, body in page
            for machine in msgspec.json.decode(body)["resources"]
        ]
        if rows:
            connection.execute(
                sa.text("INSERT INTO event_machines VALUES (:machine, :event)"), rows
            )
        after = page[-1].ordinal
