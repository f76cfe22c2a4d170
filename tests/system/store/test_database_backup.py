"""The database is backed up and restored with the commands of the documentation, as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from forewarn.core.renumbering import COMMITS_LEAST
from helpers import postgres
from helpers.control_nodes import ControlProcess, ask, control_process
from helpers.forked_cli import FOREWARN, run
from helpers.paths import ROOT
from helpers.serve_process import FLEET, environment
from helpers.waiting import LIMIT, until

PAGE = (ROOT / "docs/operate/postgresql.md").read_text()
MOMENT = "2026-11-17 09:30:00+00"
NEWEST_COMMIT = "SELECT max(seq) FROM commits"


def block(kind: str) -> str:
    """Return the block of the page with these words after its fence."""
    (found,) = re.findall(rf"^```{re.escape(kind)}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


class Database(postgres.Server):
    """A server with the settings of the page, whose directories are elsewhere."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.moment = MOMENT

    def adapted(self, text: str) -> str:
        places = {"lib/postgresql/forewarn": "data", "lib/postgresql/archive": "archive"}
        for shown, here in (*places.items(), ("backups/forewarn", "backup")):
            text = text.replace(f"/var/{shown}", str(self.directory / here))
        return text.replace(MOMENT, self.moment)

    def create(self) -> None:
        super().create()
        for name in ("archive", "backup"):
            self.run_shell(f"mkdir {self.directory}/{name}")
        with (self.data / "postgresql.conf").open("a") as settings:
            settings.write(f"listen_addresses = ''\nunix_socket_directories = '{self.directory}'\n")
            settings.write(self.adapted(block("ini file=postgresql.conf")))

    def type(self, kind: str) -> str:
        """Run the commands of a block."""
        return self.run_shell(self.adapted(block("sh variables") + block(f"sh {kind}")))

    def run_shell(self, commands: str) -> str:
        assert self.programs is not None
        done = subprocess.run(
            ["sh", "-e", "-c", commands],
            user=postgres.USER if os.geteuid() == 0 else None,
            cwd=self.directory,
            env={
                "PATH": f"{self.programs}:{os.environ['PATH']}",
                "PGHOST": str(self.directory),
                "PGUSER": "forewarn",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def now(self) -> str:
        return str(self.asked("SELECT clock_timestamp()"))

    def asked(self, query: str) -> Any:
        with psycopg.connect(self.state) as connection:
            row = connection.execute(query).fetchone()
        return row[0] if row else None

    @property
    def state(self) -> str:
        return f"postgresql://forewarn@{quote(str(self.directory), safe='')}/forewarn"


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    postgres.needed()
    with tempfile.TemporaryDirectory(prefix="forewarn-postgres-") as directory:
        database = Database(Path(directory))
        database.create()
        database.start()
        database.run_shell("createdb forewarn")
        try:
            yield database
        finally:
            database.stop()


def raise_event(node: ControlProcess) -> str:
    raised = ask(node.control, "POST", "/v1/events", {"type": "Reboot", "machines": ["web-0"]})
    assert raised.status == 201, raised.body
    return str(raised.json()["id"])


def events(node: ControlProcess) -> set[str]:
    return {event["id"] for event in ask(node.control, "GET", "/v1/events").json()}


def restored(database: Database, directory: Path) -> str:
    """Say that the database is to be used, once the lease has run out that was copied with it."""
    command = [*FOREWARN, "restored", "--state", database.state, "--yes"]
    while True:
        done = run(command, env=environment(directory), capture_output=True, text=True)
        if done.returncode == 0:
            return str(done.stdout)
        assert "decides with" in done.stderr


def test_a_database_is_restored_to_a_moment(database: Database, tmp_path: Path) -> None:
    with (
        control_process(tmp_path / "c1", "c1", database.state) as node,
        control_process(tmp_path / "c2", "c2", database.state) as other,
    ):
        until(node.leads)
        put = ask(node.control, "PUT", "/v1/fleet", FLEET.encode())
        assert put.status == 200, put.body
        database.type("base-backup")
        kept = raise_event(node)
        database.moment = database.now()
        raise_event(node)
        until(lambda: int(ask(other.control, "GET", "/v1/events").headers["forewarn-commit"]) == 3)
        database.type("recover")
        until(lambda: database.asked("SELECT pg_is_in_recovery()") is False)
        # A control node that is not stopped notices it.
        assert other.running.wait() == 74
        assert "lost commits 3 to 3" in "".join(other.running.stderr)
    with control_process(tmp_path / "c1", "c1", database.state) as node:
        until(lambda: b"has lost commits 3 to 3" in ask(node.control, "GET", "/readyz").body)
        assert "from commit 2" in restored(database, tmp_path)
        until(node.leads)
        assert events(node) == {kept}
        raise_event(node)
        assert database.asked(NEWEST_COMMIT) > COMMITS_LEAST


def test_a_database_is_restored_from_a_dump(database: Database, tmp_path: Path) -> None:
    with control_process(tmp_path / "c1", "c1", database.state) as node:
        until(node.leads)
        before = events(node)
        database.type("dump")
        raise_event(node)
    last = database.asked(NEWEST_COMMIT)
    database.type("restore-dump")
    restored(database, tmp_path)
    with control_process(tmp_path / "c1", "c1", database.state) as node:
        until(node.leads)
        assert events(node) == before
        raise_event(node)
    assert database.asked(NEWEST_COMMIT) > last + COMMITS_LEAST / 2
