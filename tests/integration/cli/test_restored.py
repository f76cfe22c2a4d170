"""`forewarn restored`: an operator says that the state of a database that went back is used."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.core.renumbering import COMMITS_LEAST
from forewarn.service.access.offline import opened
from forewarn.store.port import Member
from forewarn.store.postgres import mirror
from forewarn.store.postgres.engine import PostgresStore
from helpers import postgres
from helpers.state_files import state_with_groups


@pytest.fixture
def url() -> str:
    postgres.needed()
    url = postgres.shared_server().new_state()
    for name in ("alice", "bob"):
        created = run("token", "create", name, "--role", "admin", "--state", url)
        assert created.exit_code == 0
    return url


def run(*words: object) -> Result:
    clean = {name: None for name in os.environ if name.startswith("FOREWARN_")}
    return CliRunner().invoke(app, [str(word) for word in words], env=clean)


def rows(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement).fetchall()


def went_back(url: str, known: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        mirror.mark_went_back(connection, known)


def first_commit_after(url: str) -> int:
    """What a service commits first, beyond the numbers that were lost."""

    async def body() -> None:
        async with opened(url, print):
            pass

    asyncio.run(body())
    return int(rows(url, "SELECT max(seq) FROM commits")[0][0])


def test_a_database_that_lost_commits_is_used_after_a_confirmation(url: str) -> None:
    went_back(url, 5)
    refused = run("token", "create", "carol", "--role", "admin", "--state", url)
    assert "commits 3 to 5" in refused.stderr
    asked = run("restored", "--state", url)
    assert asked.exit_code == 2
    assert re.search("commit 2 of postgresql://.* up to 5; .* --yes", asked.stderr)
    done = run("restored", "--state", url, "--yes")
    assert done.exit_code == 0, done.output
    assert "tokens that were revoked" in done.stderr
    assert first_commit_after(url) > COMMITS_LEAST
    assert rows(url, "SELECT what FROM history ORDER BY seq DESC LIMIT 1") == [("state-restored",)]
    keys = {key for (key,) in rows(url, "SELECT key FROM service")}
    assert "restored" in keys
    assert not keys & {"copied", "known", "went-back"}


def test_commit_numbers_continue_beyond_all_that_were_known(url: str) -> None:
    went_back(url, 10**12)
    assert run("restored", "--state", url, "--yes").exit_code == 0
    assert first_commit_after(url) == 10**12 + 1


def test_a_database_that_was_restored_unnoticed_is_marked_too(url: str) -> None:
    term = rows(url, "SELECT term FROM leader")[0][0]
    assert run("restored", "--state", url, "--yes").exit_code == 0
    assert rows(url, "SELECT term FROM leader") == [(term + 1_000_000,)]
    assert first_commit_after(url) > COMMITS_LEAST


def test_a_file_is_marked_unless_a_service_uses_it(tmp_path: Path) -> None:
    file = state_with_groups(tmp_path / "state.db", "web")

    async def body() -> None:
        async with opened(file, print):
            refused = await asyncio.to_thread(run, "restored", "--state", file, "--yes")
            assert refused.exit_code == 1

    asyncio.run(body())
    assert run("restored", "--state", file, "--yes").exit_code == 0
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        copied = connection.execute("SELECT count(*) FROM service WHERE key = 'copied'")
        assert copied.fetchone() == (1,)
    assert run("restored", "--state", tmp_path / "none.db", "--yes").exit_code == 1


def test_an_empty_database_and_one_with_a_leader_are_refused(url: str) -> None:
    empty = postgres.shared_server().new_state()
    assert "no state yet" in run("restored", "--state", empty, "--yes").stderr

    async def body() -> Result:
        store = PostgresStore(url, Member(name="c1", machine="m1", address=""))
        await store.open()
        await store.leadership.take()
        try:
            return await asyncio.to_thread(run, "restored", "--state", url, "--yes")
        finally:
            await store.close()

    assert "control node 'c1'" in asyncio.run(body()).stderr
    assert rows(url, "SELECT count(*) FROM service WHERE key = 'copied'") == [(0,)]
