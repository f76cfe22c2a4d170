"""`forewarn upgrade`: an older state brought up to date, and nothing else done to it or to anybody.

What becomes of every row is tested with the migrations; here it is the command, and what is so
when a service takes the state up afterwards.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.core.time import HOUR
from forewarn.store.sqlite import upgrade
from forewarn.store.sqlite.lock import locked
from forewarn.store.sqlite.schema import SCHEMA_VERSION
from forewarn.testing import Service
from helpers.clean_root import needed
from helpers.paths import STORED_SCHEMAS

STORED = STORED_SCHEMAS
OLDER = [f"{n:04}" for n in range(1, int(SCHEMA_VERSION))]
DUE = "00000000-0000-4000-8000-000000000007"  # in schema 0001: 15 min after the last commit


def typed(*argv: object, env: dict[str, str] | None = None) -> Any:
    clean = {name: None for name in os.environ if name.startswith("FOREWARN_")}
    words = ["upgrade", *map(str, argv)]
    return CliRunner().invoke(app, words, env={**clean, **(env or {})})


def unpacked(schema: str, path: Path) -> Path:
    path.write_bytes(gzip.decompress((STORED / f"{schema}.db.gz").read_bytes()))
    path.chmod(0o600)
    return path


def rows(path: Path, query: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def told(path: Path) -> list[Any]:
    """All that a state says of who decided what, and until when somebody served."""
    commits = rows(path, "SELECT seq, at, body FROM commits ORDER BY seq")
    return [commits, sorted(rows(path, "SELECT * FROM service"))]


@pytest.mark.parametrize("schema", OLDER)
def test_it_is_brought_up_to_date_and_kept_as_it_was(tmp_path: Path, schema: str) -> None:
    state = unpacked(schema, tmp_path / "state.db")
    before, said_before = state.read_bytes(), told(state)
    done = typed("--state", state)
    assert done.exit_code == 0, done.output
    kept = tmp_path / f"state.db.schema-{schema}"
    assert done.stdout.startswith(
        f"{state} was upgraded from schema {schema} to {SCHEMA_VERSION}\nthe old file is kept as"
    )
    assert str(kept) in done.stdout
    assert rows(state, "SELECT version_num FROM alembic_version") == [(SCHEMA_VERSION,)]
    assert rows(kept, "SELECT version_num FROM alembic_version") == [(schema,)]
    # Nobody has served, and nothing was decided; nor is a log left, or what a driver would write.
    assert told(state) == said_before
    assert {file.name for file in tmp_path.iterdir()} <= {"state.db", kept.name, "state.db.lock"}
    assert state.read_bytes() != before
    assert state.stat().st_mode & 0o777 == 0o600


def test_a_second_time_there_is_nothing_to_do(tmp_path: Path) -> None:
    state = unpacked("0001", tmp_path / "state.db")
    first = json.loads(typed("--state", state, "--json").stdout)
    kept = f"{state}.schema-0001"
    assert first == {"file": str(state), "from": "0001", "to": SCHEMA_VERSION, "kept": kept}
    after = state.read_bytes()
    second = typed("--state", state, "--json")
    assert second.exit_code == 0
    assert json.loads(second.stdout)["kept"] is None
    assert "which is current" in typed("--state", state).stdout
    assert state.read_bytes() == after


def test_time_until_somebody_serves_is_an_outage(tmp_path: Path) -> None:
    """An event that came due meanwhile waits until guests have had their minute to ask."""
    state = unpacked("0001", tmp_path / "state.db")
    fleet = json.loads(gzip.decompress((STORED / "0001.json.gz").read_bytes()))["fleet"]
    (last,) = rows(state, "SELECT value FROM service WHERE key = 'served_until'")
    assert typed("--state", state).exit_code == 0
    with Service(fleet, state=state, start=last[0] + 2 * HOUR) as service:

        def status() -> str:
            events = service.document("sql-1")["Events"]
            return str({event["EventId"]: event["EventStatus"] for event in events}[DUE.upper()])

        assert status() == "Scheduled"
        service.clock.advance("59s")
        assert status() == "Scheduled"
        service.clock.advance("1s")
        assert status() == "Started"


def test_the_settings_say_which_state(tmp_path: Path) -> None:
    unpacked("0001", tmp_path / "its.db")
    settings = tmp_path / "forewarn.toml"
    settings.write_text('state = "its.db"\n')
    done = typed("--config", settings, "--json")
    assert json.loads(done.stdout)["file"] == str(tmp_path / "its.db")
    named = typed("--json", env={"FOREWARN_STATE": str(tmp_path / "its.db")})
    assert json.loads(named.stdout)["file"] == str(tmp_path / "its.db")
    refused = typed()
    assert refused.exit_code == 1
    assert "--state FILE" in refused.stderr
    settings.write_text("stat = 1\n")
    refused = typed("--config", settings)
    assert refused.exit_code == 1
    assert f"{settings}:1: stat: unknown key; did you mean 'state'?" in refused.stderr


# What is refused, and left as it is.


def test_a_state_that_somebody_has_is_left_alone(tmp_path: Path) -> None:
    state = unpacked("0001", tmp_path / "state.db")
    before = state.read_bytes()
    with contextlib.closing(locked(state)):
        refused = typed("--state", state)
    assert refused.exit_code == 1
    assert f"{state} is in use by process {os.getpid()}" in refused.stderr
    assert state.read_bytes() == before
    assert not (tmp_path / "state.db.schema-0001").exists()


def test_what_is_no_state_is_left_alone(tmp_path: Path) -> None:
    gone = typed("--state", tmp_path / "gone.db")
    assert (gone.exit_code, gone.stderr) == (
        1,
        f"forewarn: {tmp_path}/gone.db is not there; name a state file\n",
    )
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "text.db").write_text("something else")
    other = typed("--state", tmp_path / "text.db")
    assert other.exit_code == 1
    assert "it is no SQLite database" in other.stderr
    newer = unpacked("0001", tmp_path / "newer.db")
    with contextlib.closing(sqlite3.connect(newer)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = newer.read_bytes()
    refused = typed("--state", newer)
    assert refused.exit_code == 1
    assert "which this version does not know" in refused.stderr
    assert newer.read_bytes() == before


def test_a_state_that_the_service_could_not_read_is_told_with_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = unpacked("0001", tmp_path / "state.db")

    def broken(_state: Path) -> None:
        raise msgspec.ValidationError("no such event")

    monkeypatch.setattr(upgrade, "_read_all", broken)
    refused = typed("--state", state)
    assert refused.exit_code == 1
    assert "cannot be used as state: no such event" in refused.stderr
    assert f"it is kept as it was as {state}.schema-0001" in refused.stderr


def test_what_root_makes_belongs_to_whom_the_state_belongs_to(tmp_path: Path) -> None:
    needed()  # root, who can give files away
    state = unpacked("0001", tmp_path / "state.db")
    os.chown(state, 10_001, 10_002)
    assert typed("--state", state).exit_code == 0
    for file in tmp_path.iterdir():
        found = file.stat()
        assert (found.st_uid, found.st_gid) == (10_001, 10_002), file
