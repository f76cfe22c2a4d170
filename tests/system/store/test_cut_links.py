"""A machine that is cut off from the database leaves no sessions there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from pyroute2 import IPRoute  # type: ignore[import-untyped]

from forewarn.store.postgres import session
from helpers import postgres
from helpers.netns import Lab, needs_root
from helpers.postgres import Server
from helpers.waiting import until

CONTROL = "10.77.0.21"


@pytest.fixture
def lab() -> Iterator[Lab]:
    needs_root()
    postgres.needed()
    with Lab([CONTROL]) as lab:
        yield lab


@pytest.fixture
def server(lab: Lab) -> Iterator[Server]:
    with postgres.new_server() as server:
        server.settings = (f"listen_addresses={lab.gateway}",)
        server.create()
        with (server.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {lab.network} trust\n")
        lab.host.call(server.start)
        yield server


def test_a_server_ends_the_sessions_of_a_machine_that_is_cut_off(
    lab: Lab, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default it would keep them for two hours, and have none left after some cuts."""
    guest = lab.guests[CONTROL]
    for name, value in session.SERVER_SETTINGS.items():
        if name.startswith("tcp_") and value.endswith("s"):
            monkeypatch.setitem(session.SERVER_SETTINGS, name, "1s")
    url = f"postgresql://forewarn@{lab.gateway}/postgres"

    def open_session() -> psycopg.Connection[Any]:
        return session.connect(url, "test")

    idle, answered = guest.call(open_session), guest.call(open_session)
    with ThreadPoolExecutor(1) as asking, psycopg.connect(server.url(), autocommit=True) as look:
        look.execute("SELECT pg_advisory_lock(1)")
        answer = asking.submit(answered.execute, "SELECT pg_advisory_lock(1)")
        until(lambda: _count(look, "AND wait_event = 'advisory'") == 1)
        lab.host.call(_cut, lab.ports[CONTROL])
        look.execute("SELECT pg_advisory_unlock(1)")  # and the answer reaches nobody
        until(lambda: not _count(look))
        assert isinstance(answer.exception(), psycopg.OperationalError)
    idle.close()


def _count(connection: psycopg.Connection[Any], more: str = "") -> int:
    query = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'forewarn test' {more}"
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _cut(port: str) -> None:
    with IPRoute() as ip:
        ip.link("set", index=ip.link_lookup(ifname=port)[0], state="down")
