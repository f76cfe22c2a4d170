"""A primary with a synchronous standby, which takes over while commits are under way: nothing that
was acknowledged is lost, nothing is there twice, and the leader goes on.

Patroni, several control nodes and links that are cut are in test_patroni.py."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.core.fleet import Host
from forewarn.core.registry import HostPut
from forewarn.store import Batch
from forewarn.store.port import Member
from forewarn.store.postgres import database
from forewarn.store.postgres.engine import PostgresStore
from forewarn.support import guard
from helpers import postgres
from helpers.postgres import Server
from helpers.waiting import LIMIT, until_async

WRITERS = 5
NOT_CONNECTED = "no synchronous standby"
SYNCHRONOUS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def primary() -> Iterator[Server]:
    postgres.needed()
    with postgres.new_server() as server:
        server.create()
        server.start()
        yield server


@pytest.fixture
def standby(primary: Server) -> Iterator[Server]:
    with postgres.new_server() as server:
        server.create_standby(primary)
        yield server


def test_a_standby_that_takes_over_has_all_that_was_acknowledged(
    primary: Server, standby: Server, tmp_path: Path
) -> None:
    hosts = ",".join(quote(str(server.directory), safe="") for server in (primary, standby))
    url = f"postgresql://forewarn@{hosts}/postgres"
    database.prepare(url)
    assert "no standby is synchronous" in warnings(url, tmp_path)
    execute(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
    execute(primary, "SELECT pg_reload_conf()")
    asyncio.run(until_async(lambda: NOT_CONNECTED in warnings(url, tmp_path)))

    async def body() -> dict[int, str]:
        store = PostgresStore(url, Member(name="c1", machine="m1", address=""), lease=LIMIT)
        await store.open()
        leadership = store.leadership
        leadership.follow()
        taking = guard.Tasks().start(leadership.take(), "taking")
        # The claim waits for a standby, too.
        await until_async(
            lambda: leadership.warnings().get("replication", "").startswith(NOT_CONNECTED)
        )
        await asyncio.to_thread(standby.start)
        await taking
        await until_async(lambda: not any(leadership.warnings().values()))
        assert execute(primary, SYNCHRONOUS) == 1
        assert await asyncio.to_thread(warnings, url, tmp_path) == ""
        acknowledged: dict[int, str] = {}
        writers = asyncio.TaskGroup()
        stopped = asyncio.Event()

        async def write(writer: int) -> None:
            number = 0
            while not stopped.is_set():
                number += 1
                host = f"h{writer}-{number}"
                commit = await store.transact(
                    lambda _, host=host: Batch(1, 0, puts=(HostPut(Host(name=host)),))  # type: ignore[misc]
                )
                assert commit is not None
                assert commit.seq not in acknowledged
                acknowledged[commit.seq] = host

        async with writers:
            for writer in range(WRITERS):
                writers.create_task(write(writer))
            await until_async(lambda: len(acknowledged) > 50)
            standby.signal(signal.SIGSTOP)  # so that a COMMIT is under way for certain
            try:
                await until_async(lambda: execute(primary, WAITING) > 0)
                before = len(acknowledged)
                primary.kill()
            finally:
                standby.signal(signal.SIGCONT)
            await asyncio.to_thread(standby.promote)
            await until_async(lambda: len(acknowledged) > before + 50)
            stopped.set()
        assert leadership.term > 1  # it has found out what became of the last one
        await store.close()
        return acknowledged

    acknowledged = asyncio.run(body())
    with psycopg.connect(standby.url()) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM hosts")]
        numbers = [row[0] for row in connection.execute("SELECT seq FROM commits ORDER BY seq")]
    assert sorted(acknowledged) == numbers == list(range(1, len(numbers) + 1))
    assert sorted(acknowledged.values()) == sorted(names)


def warnings(url: str, directory: Path) -> str:
    settings = directory / "forewarn.toml"
    settings.write_text(
        f'state = "{url}"\nmetadata = "127.0.0.1:0"\ncontrol = "127.0.0.1:0"\n',
    )
    result = CliRunner().invoke(app, ["config", "check", "--config", str(settings)])
    assert result.exit_code == 0, result.output
    return str(result.stderr)


def execute(server: Server, statement: str) -> int:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
        return int(row[0]) if row else 0
