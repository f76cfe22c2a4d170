"""A server that is busy reads nothing for a while: a large commit waits, and is not given up."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from forewarn.core.fleet import Host
from forewarn.core.registry import HostPut
from forewarn.store import Batch
from forewarn.store.postgres import engine, session
from forewarn.support import guard
from helpers import postgres
from helpers.free_ports import free_port
from helpers.leadership import execute, node, opened, run, take
from helpers.postgres import Server
from helpers.waiting import LIMIT

MUCH = "x" * 32 * 1024 * 1024  # more than the buffers of both sides hold
PATIENCE = 300  # milliseconds


@pytest.fixture
def server() -> Iterator[Server]:
    postgres.needed()
    with postgres.new_server() as server:
        server.settings = ("listen_addresses=127.0.0.1", f"port={free_port()}")
        server.create()
        server.start()
        yield server


def test_a_large_commit_goes_on_after_a_server_that_was_busy(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(session.DEFAULTS, "tcp_user_timeout", PATIENCE)
    monkeypatch.setattr(engine, "WRITE_LIMIT", LIMIT)
    _, port = server.settings[1].split("=")
    url = f"postgresql://forewarn@127.0.0.1:{port}/postgres"

    async def body() -> None:
        store = node(url, "c1", length=LIMIT)
        async with opened(store):
            await take(store)
            await put(store, "h1")
            with session.connect(url, "impatient") as impatient:
                stopped = backends(url)
                assert len(stopped) == 2
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
                try:
                    committing = guard.Tasks().start(put(store, MUCH), "committing")
                    with pytest.raises(psycopg.OperationalError):  # this is how long it takes
                        await asyncio.to_thread(impatient.execute, "SELECT length(%s)", (MUCH,))
                finally:
                    for pid in stopped:
                        os.kill(pid, signal.SIGCONT)
                await committing
            assert store.leadership.term == 1
            assert execute(url, "SELECT count(*) FROM hosts") == [(2,)]

    run(body())


async def put(store: Any, name: str) -> None:
    host = Host(name=name[:10], labels={"note": name})
    await store.transact(lambda _: Batch(1, 0, puts=(HostPut(host),)))


def backends(url: str) -> list[int]:
    """Return the server's processes of the session that writes, and of the impatient one."""
    sessions = "SELECT pid FROM pg_stat_activity WHERE application_name"
    return [row[0] for row in execute(url, f"{sessions} ~ '^forewarn (writer|impatient)'")]
