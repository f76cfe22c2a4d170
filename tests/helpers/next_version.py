"""The next version of forewarn, to test upgrades with: it has two more schemas than this one.

To that version, state files of this version's schema are of an older one. The first of its two
revisions derives rows from the commits, as revisions of that kind do; the second adds a column.
`COMMAND` is its command line.
"""

from __future__ import annotations

import contextlib
import gzip
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import sqlalchemy as sa

from forewarn.store.port import Commit
from forewarn.store.sql import schema as s
from forewarn.store.sqlite import connect
from helpers.paths import STORED_SCHEMAS, TESTS

THIS = s.SCHEMA_VERSION
BETWEEN, NEXT = (f"{int(THIS) + more:04}" for more in (1, 2))
RELEASED = tuple(f"{number:04}" for number in range(1, int(THIS) + 1))
OLDER = (*RELEASED, BETWEEN)  # schemas that the next version upgrades

BETWEEN_REVISION = f'''
import msgspec
import sqlalchemy as sa
from alembic import op

from forewarn.store.port import Commit

revision, down_revision = "{BETWEEN}", "{THIS}"


def upgrade():
    op.create_table(
        "changed_groups",
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("group_name", sa.Text, primary_key=True),
    )
    connection = op.get_bind()
    for body in connection.scalars(sa.text("SELECT body FROM commits ORDER BY seq")).all():
        commit = msgspec.json.decode(body, type=Commit)
        for entry in commit.entries:
            connection.execute(
                sa.text("INSERT INTO changed_groups VALUES (:seq, :name)"),
                {{"seq": commit.seq, "name": entry.group}},
            )
    op.create_index("changed_groups_by_name", "changed_groups", ["group_name"])
'''

NEXT_REVISION = f'''
import sqlalchemy as sa
from alembic import op

revision, down_revision = "{NEXT}", "{BETWEEN}"


def upgrade():
    op.create_table("operators", sa.Column("name", sa.Text, primary_key=True))
    op.add_column("groups", sa.Column("operator", sa.Text))
    op.create_index("groups_by_operator", "groups", ["operator"])
'''

# Runs the command line of the next version, for `subprocess`.
COMMAND = (
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {str(TESTS)!r}); from helpers import next_version;"
    " next_version.main()",
)


def install(replace: Callable[[object, str, object], None], directory: Path) -> None:
    """Make this process one of the next version, by replacing attributes as `setattr` does. Its
    migrations are written to `directory`."""
    shutil.copytree(connect.MIGRATIONS / "versions", directory / "versions")
    for revision, text in ((BETWEEN, BETWEEN_REVISION), (NEXT, NEXT_REVISION)):
        (directory / "versions" / f"{revision}_test.py").write_text(text)
    replace(connect, "MIGRATIONS", directory)
    replace(s, "SCHEMA_VERSION", NEXT)
    replace(s, "metadata", _next_metadata())


def write_state(schema: str, path: Path) -> Path:
    """Write a stored state file of a schema to `path`. The next version has to be installed, if it
    is one of that version's schemas."""
    stored = schema if schema in RELEASED else THIS
    path.write_bytes(gzip.decompress((STORED_SCHEMAS / f"{stored}.db.gz").read_bytes()))
    path.chmod(0o600)
    if schema != stored:
        migrate(path, schema)
    return path


def migrate(path: Path, schema: str) -> None:
    """Upgrade a state file to a schema of the next version, which has to be installed."""
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        connect.migrate_to(connection, schema)
    engine.dispose()


def expected_contents(schema: str) -> bytes:
    """Return what the code of that time read from the stored state file, as JSON."""
    stored = schema if schema in RELEASED else THIS
    return gzip.decompress((STORED_SCHEMAS / f"{stored}.json.gz").read_bytes())


def changed_groups(path: Path) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Return the rows that the first revision has derived, and those that it should have."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT seq, group_name FROM changed_groups").fetchall()
        bodies = connection.execute("SELECT body FROM commits").fetchall()
    commits = [msgspec.json.decode(body, type=Commit) for (body,) in bodies]
    expected = [(commit.seq, entry.group) for commit in commits for entry in commit.entries]
    return sorted(rows), sorted(expected)


def main() -> None:
    from forewarn.cli import main as run_command

    with tempfile.TemporaryDirectory() as directory:
        install(setattr, Path(directory))
        run_command()


def _next_metadata() -> sa.MetaData:
    metadata = sa.MetaData()
    for table in s.metadata.sorted_tables:
        table.to_metadata(metadata)
    sa.Table(
        "changed_groups",
        metadata,
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("group_name", sa.Text, primary_key=True),
        sa.Index("changed_groups_by_name", "group_name"),
    )
    sa.Table("operators", metadata, sa.Column("name", sa.Text, primary_key=True))
    groups = metadata.tables["groups"]
    groups.append_column(sa.Column("operator", sa.Text))
    sa.Index("groups_by_operator", groups.c.operator)
    return metadata
