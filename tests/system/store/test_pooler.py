"""A state behind PgBouncer: refused at the start if the pooler shares sessions, which control nodes
need for themselves, and used with a warning otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import quote

import psycopg
import pytest

from forewarn.store.port import StoreUnusable
from forewarn.store.postgres import database
from forewarn.store.postgres.stored import PostgresState
from helpers import postgres
from helpers.leadership import node, opened, put, run, take
from helpers.netns import require
from helpers.waiting import until

PORT = 6432  # only a part of the name of its socket

Pooler = Callable[[str], str]


@pytest.fixture
def pooler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pooler]:
    """Start PgBouncer with these settings; returns the URL of a state behind it."""
    postgres.needed()
    require(shutil.which("pgbouncer"), "pgbouncer: tools/test-packages as root")
    with postgres.new_server() as server, ExitStack() as stack:
        server.create()
        server.start()
        user = postgres.USER if os.geteuid() == 0 else None

        def start(settings: str) -> str:
            file = server.directory / "pgbouncer.ini"
            file.write_text(
                f"[databases]\npostgres = host={server.directory} user=forewarn\n"
                f"[pgbouncer]\n{settings}\nunix_socket_dir = {server.directory}\n"
                f"listen_port = {PORT}\n"
                "auth_type = any\nlisten_addr =\nignore_startup_parameters = extra_float_digits\n"
            )
            process = stack.enter_context(
                subprocess.Popen(["pgbouncer", "-q", str(file)], user=user, cwd=server.directory)
            )
            stack.callback(process.kill)
            host = quote(str(server.directory), safe="")
            url = f"postgresql://forewarn@{host}:{PORT}/postgres"
            until(lambda: answers(url))
            return url

        yield start


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize(
    "settings",
    [
        "pool_mode = transaction",
        "pool_mode = transaction\nserver_round_robin = 1\nmin_pool_size = 3",
        "pool_mode = statement",
    ],
    ids=["transaction", "round robin", "statement"],
)
def test_a_pooler_that_shares_sessions_is_refused(pooler: Pooler, settings: str) -> None:
    url = pooler(settings)
    for opened_by in (database.check, database.prepare):
        with pytest.raises(StoreUnusable):
            opened_by(url)


def test_a_pooler_that_gives_each_client_a_session_gets_a_warning(pooler: Pooler) -> None:
    url = pooler("pool_mode = session")

    async def body() -> None:
        store = node(url, "c1")
        async with opened(store):
            await take(store)
            await put(store, "h1")

    run(body())
    [warning] = PostgresState(url).warnings(managed=True)
    assert "pooler" in warning
