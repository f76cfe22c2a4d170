"""PostgreSQL servers on loopback, with the settings that it comes with, and a standby if wanted."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import psycopg

from bench.poll.processes import Failed
from helpers import postgres

STANDBY = "standby"
SEGMENTS = 5  # of the log, that a server which has run for a while uses again (min_wal_size)


class Server(postgres.Server):
    """A server that is reached as one on another machine is: over TCP."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.port = _free_port()
        listen = ("listen_addresses=127.0.0.1", f"port={self.port}", "shared_buffers=128MB")
        super().__init__(directory, *listen, *settings)

    def url(self, schema: str = "public") -> str:
        address = f"127.0.0.1:{self.port}"
        return f"postgresql://forewarn@{address}/postgres?options=-csearch_path%3D{schema}"


@contextlib.contextmanager
def server(directory: Path, *, standby: bool = False) -> Iterator[Server]:
    """A server; each commit waits for its standby too, if there is one, on the same disk."""
    if postgres.programs() is None:
        raise Failed("PostgreSQL is not installed: apt-get install postgresql")
    directory.mkdir(parents=True)
    (directory / "primary").mkdir()
    primary = Server(directory / "primary", *_waiting_for(STANDBY if standby else ""))
    primary.create()
    primary.start()
    with contextlib.ExitStack() as stack:
        stack.callback(primary.stop)
        if standby:
            stack.enter_context(_standby(primary, directory / STANDBY))
        _age(primary)
        yield primary


def _age(primary: Server) -> None:
    """Leave used segments of the log behind, as in a server that has run for a while: a new one is
    filled with zeros first, while commits wait."""
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        for _ in range(SEGMENTS):
            connection.execute("SELECT pg_logical_emit_message(false, 'bench', 'x')")
            connection.execute("SELECT pg_switch_wal()")
        connection.execute("CHECKPOINT")


def version() -> str:
    programs = postgres.programs()
    return programs.parent.name if programs else "unknown"


def _waiting_for(standby: str) -> tuple[str, ...]:
    return (f"synchronous_standby_names={standby}", "synchronous_commit=on") if standby else ()


@contextlib.contextmanager
def _standby(primary: Server, directory: Path) -> Iterator[None]:
    directory.mkdir()
    standby = Server(directory)
    standby.own()
    conninfo = f"host=127.0.0.1 port={primary.port} user=forewarn application_name={STANDBY}"
    standby.run(
        *("pg_basebackup", "-R", "-D", str(standby.data), "-d", conninfo, "-c", "fast"),
    )
    standby.start()
    try:
        _check_synchronous(primary)
        yield
    finally:
        standby.stop()


def _check_synchronous(primary: Server) -> None:
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        for _ in range(100):
            rows = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
            if rows == [("sync",)]:
                return
            connection.execute("SELECT pg_sleep(0.1)")
    raise Failed(f"the standby is not waited for: {rows}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
