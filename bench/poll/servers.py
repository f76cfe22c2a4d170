"""A server while it runs: started on its core, asked until it answers, and held to its answer."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.poll.fleet import PATH, POLL, QUIET, Fleet
from bench.poll.peers import PEERS, Place, Prepare
from bench.poll.processes import SERVER_CORE, Failed, cpu, memory, pause, running, stopwatch, waited

PATIENCE = 180.0  # seconds until a server must have answered; a large fleet takes a while


@dataclass(frozen=True)
class Server:
    name: str
    port: int
    control: int
    process: subprocess.Popen[str]
    log: Path
    start_up: float  # seconds from exec to the first answer

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.target}{POLL}"

    def cpu(self) -> float:
        return cpu(self.process.pid)

    def waited(self) -> float:
        return waited(self.process.pid)

    def memory(self) -> int:
        return memory(self.process.pid)

    def check(self, source: str = "127.0.0.1", *, quiet: bool = True) -> None:
        """A measurement of wrong answers is worth nothing: they are looked at before each."""
        self._expect(200, POLL, {"Metadata": "true"}, QUIET if quiet else None, source)

    def check_refusals(self) -> None:
        self._expect(400, POLL, {}, None)
        self._expect(400, f"{PATH}?api-version=2016-01-01", {"Metadata": "true"}, None)

    def _expect(
        self,
        status: int,
        path: str,
        headers: dict[str, str],
        body: str | None,
        source: str = "127.0.0.1",
    ) -> None:
        answer, text = _ask(self.port, path, headers, source)
        if answer.status != status or (body is not None and text.decode() != body):
            raise Failed(
                f"{self.name} answered {path} with {answer.status} {text[:200]!r},"
                f" not {status}{'' if body is None else ' ' + body}"
            )
        present = {name.lower() for name in answer.headers}
        if status == 200 and not {"etag", "x-ms-request-id", "server", "date"} <= present:
            raise Failed(f"{self.name} leaves out headers: {sorted(present)}")


@contextlib.contextmanager
def serving(
    name: str,
    fleet: Fleet,
    scratch: Path,
    *,
    acquainted: bool = True,
    prepare: Prepare | None = None,
) -> Iterator[Server]:
    """Acquainted: every set has asked once, as in a service that has run for more than a moment.

    The first poll of a set is special: it enables the set, which has to be on disk.
    """
    directory = Path(tempfile.mkdtemp(dir=scratch))
    place = Place(directory, scratch, free_port(), free_port())
    command = (prepare or PEERS[name])(place, fleet)
    log = directory / "log"
    began = stopwatch()
    with running(command.argv, core=SERVER_CORE, log=log, env=command.env) as process:

        def until(done: Callable[[], bool]) -> float:
            while not done():
                if process.poll() is not None or stopwatch() - began > PATIENCE:
                    raise Failed(f"{name} does not answer:\n{log.read_text()[-2000:]}")
                pause(0.002)
            return stopwatch() - began

        start_up = until(lambda: _answers(place.metadata))
        until(lambda: command.ready in log.read_text())
        server = Server(name, place.metadata, place.control, process, log, start_up)
        server.check()
        server.check_refusals()
        for address in fleet.spokesmen() if acquainted else ():
            server.check(address)
        yield server


def _answers(port: int) -> bool:
    try:
        return _ask(port, POLL, {"Metadata": "true"})[0].status == 200
    except (OSError, http.client.HTTPException):
        return False


def _ask(
    port: int, path: str, headers: dict[str, str], source: str = "127.0.0.1"
) -> tuple[http.client.HTTPResponse, bytes]:
    origin = (source, 0)
    connection = http.client.HTTPConnection("127.0.0.1", port, 10, source_address=origin)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()


def free_port() -> int:
    """Below those that the kernel gives away: asking there before anybody listens could
    otherwise reach ourselves.
    """
    for port in _ports:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise Failed("no port is free")


_ports = iter(range(17_000, 32_000))
