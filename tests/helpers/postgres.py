"""A PostgreSQL server of the tests' own: started once per process, with a schema for each test.

It listens on a Unix socket in a directory of its own and nowhere else. Its programs come with the
Debian package `postgresql`.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from helpers.examples import in_check
from helpers.waiting import LIMIT

USER = "nobody"  # which runs the server if the tests run as root: it refuses to be root itself

_numbers = itertools.count(1)


def programs() -> Path | None:
    """Return the directory of PostgreSQL's programs, of the newest version that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_version)
    if found:
        return found[-1].parent
    path = shutil.which("postgres")
    return Path(path).parent if path else None


def _version(program: Path) -> int:
    name = program.parent.parent.name
    return int(name) if name.isdecimal() else 0


class Server:
    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "log"
        self.settings = settings
        self.programs = programs()

    def own(self) -> None:
        """Give the directory to the user that runs the server."""
        if os.geteuid() == 0:
            shutil.chown(self.directory, USER)

    def create(self) -> None:
        self.own()
        self.run(
            *("initdb", "-N", "-D", str(self.data), "-A", "trust", "-U", "forewarn"),
            *("--locale=C.UTF-8", "-E", "UTF8"),
        )

    def start(self) -> None:
        options = [
            "listen_addresses=",
            f"unix_socket_directories={self.directory}",
            "shared_buffers=16MB",
            *self.settings,
        ]
        joined = " ".join(f"-c {option!r}" for option in options)
        self.run("pg_ctl", "-D", self.data, "-w", "-l", self.log, "-o", joined, "start")

    def stop(self, mode: str = "immediate") -> None:
        self.run("pg_ctl", "-D", self.data, "-m", mode, "stop")

    def create_standby(self, primary: Server) -> None:
        """Copy a server that is running, and follow it from the first start on."""
        self.own()
        source = f"host={primary.directory} user=forewarn"
        self.run("pg_basebackup", "-R", "-N", "-c", "fast", "-D", self.data, "-d", source)

    def promote(self) -> None:
        self.run("pg_ctl", "-D", self.data, "-w", "promote")

    @contextmanager
    def without_standby(self) -> Iterator[None]:
        """Soon after the block has begun, every COMMIT waits for a standby that is away; soon after
        it has ended, none does."""
        self._configure("SET synchronous_standby_names = 'nobody'")
        try:
            yield
        finally:
            self._configure("RESET synchronous_standby_names")

    def _configure(self, change: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM {change}")
            connection.execute("SELECT pg_reload_conf()")

    def run(self, program: str, *arguments: str | Path) -> None:
        assert self.programs is not None
        user = USER if os.geteuid() == 0 else None
        subprocess.run(
            [self.programs / program, *arguments],
            check=True,
            user=user,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            timeout=LIMIT,
        )

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and to all its processes."""
        pids = [self.pid]
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.pid)], capture_output=True, text=True
        )
        for pid in pids + [int(line) for line in children.stdout.split()]:
            with suppress(ProcessLookupError):  # a session may have ended since
                os.kill(pid, number)

    def kill(self) -> None:
        """End the server as a power failure would."""
        self.signal(signal.SIGKILL)
        for left in (self.data / "postmaster.pid", *self.directory.glob(".s.PGSQL.*.lock")):
            left.unlink()

    def url(self, schema: str = "public") -> str:
        host = quote(str(self.directory), safe="")
        return f"postgresql://forewarn@{host}/postgres?options=-csearch_path%3D{schema}"

    def new_state(self) -> str:
        """Return the URL of a state that does not exist yet, apart from all others."""
        schema = f"state_{next(_numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        return self.url(schema)


@contextmanager
def new_server() -> Iterator[Server]:
    """A server that does not exist yet, in a directory of its own. It ends with the block."""
    server = Server(Path(tempfile.mkdtemp(prefix="forewarn-postgres-")))
    try:
        yield server
    finally:
        if (server.data / "postmaster.pid").exists():
            server.stop()
        shutil.rmtree(server.directory, ignore_errors=True)


@cache
def shared_server() -> Server:
    """Return the server of this process, which runs until the process ends."""
    stack = ExitStack()
    server = stack.enter_context(new_server())
    server.create()
    server.start()
    atexit.register(stack.close)
    return server


def needed() -> None:
    """Skip a test on a machine without PostgreSQL; never where everything must be there. `make
    check` starts no servers."""
    if in_check():
        pytest.skip("needs PostgreSQL: run make test")
    if programs() is None:
        message = "PostgreSQL is not installed: apt-get install postgresql"
        assert not os.environ.get("CI"), message
        pytest.skip(message)
