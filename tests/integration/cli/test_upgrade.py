"""`forewarn upgrade` of the next version: it upgrades an older state file and does nothing else.

What becomes of the rows is tested with the store; here it is the command, and a service that is
started with the state afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.core.time import HOUR
from forewarn.store.sqlite import state_file
from forewarn.store.sqlite.lock import take_lock
from forewarn.support.instants import to_datetime
from forewarn.testing import Service
from helpers.clean_root import needed
from helpers.next_version import NEXT, OLDER, THIS, expected_contents, write_state

pytestmark = pytest.mark.usefixtures("next_version")


def run(*argv: object, env: dict[str, str] | None = None) -> Any:
    clean = {name: None for name in os.environ if name.startswith("FOREWARN_")}
    words = ["upgrade", *map(str, argv)]
    return CliRunner().invoke(app, words, env={**clean, **(env or {})})


def rows(path: Path, query: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def decisions(path: Path) -> list[Any]:
    """The commits of a state, and until when it was served."""
    commits = rows(path, "SELECT seq, at, body FROM commits ORDER BY seq")
    return [commits, sorted(rows(path, "SELECT * FROM service"))]


@pytest.mark.parametrize("schema", OLDER)
def test_a_state_is_upgraded_and_the_old_file_is_kept(tmp_path: Path, schema: str) -> None:
    state = write_state(schema, tmp_path / "state.db")
    before, decided = state.read_bytes(), decisions(state)
    done = run("--state", state)
    assert done.exit_code == 0, done.output
    kept = tmp_path / f"state.db.schema-{schema}"
    first, second = done.stdout.splitlines()[:2]
    assert re.match(f"{re.escape(str(state))} .* {schema} .* {NEXT}", first)
    assert str(kept) in second
    assert rows(state, "SELECT version_num FROM alembic_version") == [(NEXT,)]
    assert rows(kept, "SELECT version_num FROM alembic_version") == [(schema,)]
    # It was not served, and nothing was decided; no log is left, nor any file of a driver.
    assert decisions(state) == decided
    assert {file.name for file in tmp_path.iterdir()} <= {"state.db", kept.name, "state.db.lock"}
    assert state.read_bytes() != before
    assert state.stat().st_mode & 0o777 == 0o600


def test_a_second_upgrade_changes_nothing(tmp_path: Path) -> None:
    state = write_state(THIS, tmp_path / "state.db")
    first = json.loads(run("--state", state, "--json").stdout)
    kept = f"{state}.schema-{THIS}"
    assert first == {"file": str(state), "from": THIS, "to": NEXT, "kept": kept}
    after = state.read_bytes()
    second = run("--state", state, "--json")
    assert second.exit_code == 0
    assert json.loads(second.stdout)["kept"] is None
    assert "which is current" in run("--state", state).stdout
    assert state.read_bytes() == after


def test_the_time_until_a_service_starts_is_an_outage(tmp_path: Path) -> None:
    """An event that came due meanwhile waits until guests have had their minute to ask."""
    state = write_state(THIS, tmp_path / "state.db")
    stored = json.loads(expected_contents(THIS))
    (due,) = [
        event["id"]
        for event in stored["groups"]["sql"]["events"]
        if event["resources"] == ["sql-1"] and event["not_before"] - event["raised_at"] < HOUR
    ]
    (last,) = rows(state, "SELECT value FROM service WHERE key = 'served_until'")
    assert run("--state", state).exit_code == 0
    with Service(stored["fleet"], state=state, start=to_datetime(last[0] + 2 * HOUR)) as service:

        def status() -> str:
            events = service.document("sql-1")["Events"]
            return str({event["EventId"]: event["EventStatus"] for event in events}[due])

        assert status() == "Scheduled"
        service.clock.advance("59s")
        assert status() == "Scheduled"
        service.clock.advance("1s")
        assert status() == "Started"


def test_the_state_is_taken_from_the_settings(tmp_path: Path) -> None:
    write_state(THIS, tmp_path / "its.db")
    settings = tmp_path / "forewarn.toml"
    settings.write_text('state = "its.db"\n')
    done = run("--config", settings, "--json")
    assert json.loads(done.stdout)["file"] == str(tmp_path / "its.db")
    named = run("--json", env={"FOREWARN_STATE": str(tmp_path / "its.db")})
    assert json.loads(named.stdout)["file"] == str(tmp_path / "its.db")
    refused = run()
    assert refused.exit_code == 1
    assert "--state FILE" in refused.stderr
    settings.write_text("stat = 1\n")
    refused = run("--config", settings)
    assert refused.exit_code == 1
    assert f"{settings}:1: stat: " in refused.stderr


# What is refused, and left as it is.


def test_a_state_in_use_is_left_alone(tmp_path: Path) -> None:
    state = write_state(THIS, tmp_path / "state.db")
    before = state.read_bytes()
    with contextlib.closing(take_lock(state)):
        refused = run("--state", state)
    assert refused.exit_code == 1
    assert str(state) in refused.stderr
    assert f"process {os.getpid()}" in refused.stderr
    assert state.read_bytes() == before
    assert not (tmp_path / f"state.db.schema-{THIS}").exists()


def test_a_missing_foreign_or_newer_file_is_left_alone(tmp_path: Path) -> None:
    gone = run("--state", tmp_path / "gone.db")
    assert gone.exit_code == 1
    assert f"{tmp_path}/gone.db does not" in gone.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "text.db").write_text("something else")
    other = run("--state", tmp_path / "text.db")
    assert other.exit_code == 1
    assert "SQLite" in other.stderr
    newer = write_state(THIS, tmp_path / "newer.db")
    with contextlib.closing(sqlite3.connect(newer)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = newer.read_bytes()
    refused = run("--state", newer)
    assert refused.exit_code == 1
    assert "9999" in refused.stderr
    assert newer.read_bytes() == before


def test_an_upgraded_state_that_cannot_be_read_is_refused_and_the_old_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = write_state(THIS, tmp_path / "state.db")

    def broken(_state: Path) -> None:
        raise msgspec.ValidationError("no such event")

    monkeypatch.setattr(state_file, "_read_all", broken)
    refused = run("--state", state)
    assert refused.exit_code == 1
    assert "no such event" in refused.stderr
    assert f"{state}.schema-{THIS}" in refused.stderr


def test_files_that_root_creates_belong_to_the_owner_of_the_state(tmp_path: Path) -> None:
    needed()  # root, who can give files away
    state = write_state(THIS, tmp_path / "state.db")
    os.chown(state, 10_001, 10_002)
    assert run("--state", state).exit_code == 0
    for file in tmp_path.iterdir():
        found = file.stat()
        assert (found.st_uid, found.st_gid) == (10_001, 10_002), file
