"""Commands that take a state instead of a service, with a state in PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.service.access import offline
from forewarn.store.port import Member
from forewarn.store.postgres import examine
from forewarn.store.postgres.engine import PostgresStore
from forewarn.support import guard
from helpers import postgres
from helpers.waiting import LIMIT

PASSWORD = "s3cret/of@all"
WRITTEN = "s3cret%2Fof%40all"  # as it is written in a URL


@pytest.fixture
def url() -> str:
    postgres.needed()
    return f"{postgres.shared_server().new_state()}&connect_timeout={LIMIT:.0f}"


def run(*words: object, **env: str) -> Result:
    clean = {name: None for name in os.environ if name.startswith("FOREWARN_")}
    return CliRunner().invoke(app, [str(word) for word in words], env={**clean, **env})


def done(*words: object) -> str:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def refused(*words: object, code: int = 1) -> str:
    result = run(*words)
    assert result.exit_code == code, result.output
    (line,) = result.stderr.splitlines()
    return str(line)


def rows(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement).fetchall()


@contextlib.asynccontextmanager
async def leading(url: str) -> AsyncIterator[PostgresStore]:
    member = Member(name="c1", machine="m1", address="https://c1.example:8170")
    store = PostgresStore(url, member)
    await store.open()
    await store.leadership.take()
    try:
        yield store
    finally:
        await store.close()


def while_c1_decides(url: str, *words: object) -> Result:
    async def body() -> Result:
        async with leading(url):
            return await asyncio.to_thread(run, *words)

    return asyncio.run(body())


def test_tokens_are_created_listed_and_revoked_and_the_lease_is_given_back(url: str) -> None:
    secret = done("token", "create", "alice", "--role", "admin", "--state", url).strip()
    assert secret.startswith("fw_")
    done("token", "create", "bob", "--role", "viewer", "--state", url)
    (alice, bob) = json.loads(done("token", "list", "--json", "--state", url))
    assert (alice["name"], alice["id"], bob["name"]) == ("alice", secret[3:11], "bob")
    assert "is revoked" in done("token", "revoke", "bob", "--state", url)
    assert rows(url, "SELECT seq FROM commits ORDER BY seq") == [(1,), (2,), (3,)]
    assert rows(url, "SELECT term, until = 'epoch' FROM leader") == [(3, True)]


def test_a_database_that_a_control_node_decides_with_is_refused_with_its_address(url: str) -> None:
    result = while_c1_decides(url, "token", "create", "alice", "--role", "admin", "--state", url)
    assert result.exit_code == 1
    assert "'c1'" in result.stderr
    assert "--url https://c1.example:8170" in result.stderr
    assert rows(url, "SELECT count(*) FROM commits") == [(0,)]


def test_a_command_waits_for_an_abandoned_lease_whatever_the_databases_clock_shows(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "NOTE_AFTER", 0.01)  # sooner than the database says who it is
    noted = threading.Event()
    lead, now, first_look = offline._lead, guard.boottime, guard.boottime()

    async def lead_and_note(leadership: Any, notes: offline.Notes) -> None:
        def note(lines: Sequence[str]) -> None:
            notes(lines)
            noted.set()

        await lead(leadership, note)

    monkeypatch.setattr(offline, "_lead", lead_and_note)

    def boottime() -> float:
        """The lease lasts until it is noted that it is waited for."""
        return now() if noted.is_set() or now() > first_look + LIMIT else first_look

    monkeypatch.setattr(guard, "boottime", boottime)
    done("token", "create", "alice", "--role", "admin", "--state", url)
    abandoned = (
        "UPDATE leader SET until = clock_timestamp() + interval '1 h', length = 0.5, name = 'c1',"
        " machine = 'm1' RETURNING 1"
    )
    rows(url, abandoned)
    result = run("token", "create", "bob", "--role", "admin", "--state", url)
    assert result.exit_code == 0, result.output
    assert "'c1'" in result.stderr
    assert "waiting" in result.stderr
    rows(url, abandoned)
    assert run("restored", "--state", url, "--yes").exit_code == 0


def test_tokens_are_listed_while_a_control_node_decides(url: str) -> None:
    result = while_c1_decides(url, "token", "list", "--state", url)
    assert result.exit_code == 0
    assert "no tokens" in result.output


def test_the_clock_is_accepted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done("token", "create", "alice", "--role", "admin", "--state", url)
    rows(url, "UPDATE commits SET at = at + 10000000000 RETURNING 1")
    assert "now" in done("clock", "accept", "--state", url)
    ahead = guard.wall_us
    monkeypatch.setattr(guard, "wall_us", lambda: ahead() + 60_000_000)
    assert "60.0 s ahead" in refused("clock", "accept", "--state", url)


def test_the_schema_of_a_database_is_checked(url: str) -> None:
    assert "no state yet" in refused("upgrade", "--state", url)
    done("token", "create", "alice", "--role", "admin", "--state", url)
    assert "which is current" in done("upgrade", "--state", url)
    rows(url, "UPDATE alembic_version SET version_num = '9999' RETURNING 1")
    assert "newer version" in refused("upgrade", "--state", url)
    assert "newer version" in refused("token", "create", "bob", "--role", "viewer", "--state", url)


def test_a_database_is_neither_copied_nor_restored(url: str, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    assert "not copied" in refused("backup", backup, "--state", url)
    assert "not restored" in refused("restore", backup, "--state", url)
    assert list(tmp_path.iterdir()) == []


def test_another_engine_is_refused(url: str) -> None:
    line = refused("token", "list", "--state", "mysql://u:secret@h/d", code=2)
    assert "'mysql'" in line
    assert "secret" not in line
    assert "pass a file" in refused("dev", "--state", url, code=2)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://forewarn:{written}@/nowhere?host={server}",
        "postgresql://forewarn@/nowhere?host={server}&password={written}",
        "postgresql://forewarn:{password}@{server}/nowhere",  # / and @ are not escaped
        "postgresql://forewarn:s3cret%of@h/d",
        "postgresql://forewarn:s3cret@h/d?no-such-option=1",
        "postgresql://forewarn:s3cret@[h/d",
    ],
)
def test_no_command_shows_the_password_of_a_database(url: str, tmp_path: Path) -> None:
    postgres.needed()
    server = str(postgres.shared_server().directory)
    url = url.format(written=WRITTEN, password=PASSWORD, server=server.replace("/", "%2F"))
    settings = tmp_path / "forewarn.toml"
    settings.write_text(
        f'state = "{url}"\nmetadata = "127.0.0.1:0"\ncontrol = "0.0.0.0:0"\n'
        "allow_plain_control = true\n"
    )
    for words in (
        ("token", "create", "alice", "--role", "admin", "--state", url),
        ("token", "list", "--state", url),
        ("clock", "accept", "--state", url),
        ("upgrade", "--state", url),
        ("upgrade", "--config", settings),
        ("backup", tmp_path / "backup", "--state", url),
        ("config", "check", "--config", settings),
        ("config", "show", "--config", settings),
        ("serve", "--config", settings),
    ):
        result = run(*words)
        shows = words[:2] == ("config", "show")
        assert (result.exit_code == 0) is shows, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        for secret in ("s3cret", "of@all", "of%40all"):
            assert secret not in result.output, words
        assert not shows or "***" in result.output


def test_the_command_that_is_suggested_has_no_password(tmp_path: Path, url: str) -> None:
    url = url.replace("forewarn@", "forewarn:s3cret@")
    settings = tmp_path / "forewarn.toml"
    settings.write_text(
        f'state = "{url}"\nmetadata = "127.0.0.1:0"\ncontrol = "0.0.0.0:0"\n'
        "allow_plain_control = true\n"
    )
    result = run("config", "check", "--config", settings)
    assert "--role admin --state postgresql://forewarn:***@" in result.output
    assert "s3cret" not in result.output


def checked(url: str, tmp_path: Path, *more: str) -> str:
    settings = tmp_path / "forewarn.toml"
    lines = (f'state = "{url}"', 'metadata = "127.0.0.1:0"', 'control = "127.0.0.1:0"', *more)
    settings.write_text("\n".join(lines))
    result = run("config", "check", "--config", settings)
    assert result.exit_code == 0, result.output
    return str(result.stderr)


def test_the_check_warns_of_approvals_that_a_fail_over_could_lose(url: str, tmp_path: Path) -> None:
    assert "fail-over may lose" in checked(url, tmp_path)
    assert checked(url, tmp_path, 'replicated = "managed"') == ""


def test_the_check_compares_the_clocks(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = guard.wall_us
    monkeypatch.setattr(guard, "wall_us", lambda: now() + 60_000_000)
    assert "60.0 s ahead" in checked(url, tmp_path)


def test_the_check_notices_a_standby_that_is_missing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examine, "_NAMES", "SELECT 's1'")  # as on a server that has one
    assert "no synchronous standby" in checked(url, tmp_path)
