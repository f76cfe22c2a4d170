"""The load: wrk, and our own generator for what wrk cannot do. Both on the core beside.

Any answer but a 200 and any connection that is lost ends the benchmark: what is left would be
the measurement of something else.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.poll.processes import LOAD_CORE, Failed, pipe, running
from bench.poll.servers import Server

WRK_CONNECTIONS = 16  # all from one address, and a machine may have only so many
UNIQUE = Path(__file__).parent / "unique.lua"


class Spread(msgspec.Struct, frozen=True):
    """Milliseconds."""

    p50: float
    p90: float
    p99: float
    max: float


class Found(msgspec.Struct, frozen=True):
    """What our generator tells at the end."""

    requests: int
    seconds: float
    errors: int
    first_error: str
    skipped: int  # polls that could not even be sent, because the answer before took seconds
    latency: Spread  # from when a poll was due
    sent_latency: Spread  # from when it was sent
    late: Spread  # how late the generator was itself
    slow_open: int
    slow_cut: int
    slow_answered: int


@dataclass(frozen=True)
class Round:
    """One measurement of one server."""

    requests: int
    seconds: float
    cpu: float  # seconds, of the server
    waited: float  # seconds in which somebody else had the server's core
    p50: float  # milliseconds
    p99: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def cost(self) -> float:
        """Microseconds of CPU for one poll."""
        return self.cpu / self.requests * 1e6


class Meter:
    """The CPU that a server uses from now on, and how long it has to wait for it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._cpu, self._waited = server.cpu(), server.waited()

    def read(self) -> tuple[float, float]:
        return self._server.cpu() - self._cpu, self._server.waited() - self._waited


def wrk(server: Server, seconds: int, *, close: bool = False, unique: bool = False) -> Round:
    headers = ["-H", "Metadata: true", *(["-H", "Connection: close"] if close else [])]
    script = ["-s", str(UNIQUE)] if unique else []
    argv = ["taskset", "-c", str(LOAD_CORE), "wrk", "-t1", f"-c{WRK_CONNECTIONS}"]
    argv += [f"-d{seconds}s", "--latency", *headers, *script, server.url]
    meter = Meter(server)
    output = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 30).stdout
    used, waited = meter.read()
    done = re.search(r"(\d+) requests in ([\d.]+)s", output)
    if done is None or "Non-2xx" in output or "Socket errors" in output or int(done[1]) == 0:
        raise Failed(f"{server.name} fails under wrk:\n{output}")
    p50, p99 = (_milliseconds(output, share) for share in ("50", "99"))
    return Round(int(done[1]), float(done[2]), used, waited, p50, p99)


def _milliseconds(output: str, share: str) -> float:
    found = re.search(rf"^\s+{share}%\s+([\d.]+)(us|ms|s|m)$", output, re.MULTILINE)
    if found is None:
        raise Failed(f"wrk does not tell its {share}th percentile:\n{output}")
    return float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}[found[2]]


class Generator:
    """Our generator after it has warmed up: measuring, or done and still connected."""

    def __init__(self, server: Server, process: subprocess.Popen[str], log: Path) -> None:
        self._server = server
        self._process = process
        self._log = log
        self._line("begin")
        self._meter = Meter(server)

    def found(self, *, lenient: bool = False) -> tuple[Found, Round]:
        """Lenient: polls that went wrong are part of the result."""
        found = msgspec.json.decode(self._line("done"), type=Found)
        used, waited = self._meter.read()
        if not lenient and (found.errors or not found.requests):
            raise Failed(
                f"{self._server.name}: {found.errors} polls went wrong ({found.first_error}),"
                f" {found.requests} were answered"
            )
        spread = found.latency
        round = Round(found.requests, found.seconds, used, waited, spread.p50, spread.p99)
        return found, round

    def _line(self, phase: str) -> str:
        line = pipe(self._process.stdout).readline()
        if f'"phase":"{phase}"' not in line:
            last_lines = self._log.read_text()[-500:]
            raise Failed(f"the load generator stopped against {self._server.name}: {last_lines}")
        return line


@contextmanager
def generator(
    server: Server,
    sources: Path,
    *,
    mode: str,
    pollers: int,
    seconds: float,
    slow: int = 0,
    warm: float = 1.0,
    drain: float = 0.0,
) -> Iterator[Generator]:
    argv: Sequence[str] = [
        *(str(sources.parent / "load"), "-mode", mode, "-target", server.target),
        *("-sources", str(sources), "-pollers", str(pollers), "-slow", str(slow)),
        *("-seconds", str(seconds), "-warm", str(warm), "-drain", str(drain)),
    ]
    log = sources.parent / "load.log"
    env = {"GOMAXPROCS": "1"}
    with running(argv, core=LOAD_CORE, log=log, env=env, pipes=True) as process:
        yield Generator(server, process, log)


def generate(server: Server, sources: Path, *, mode: str, pollers: int, seconds: float) -> Round:
    with generator(server, sources, mode=mode, pollers=pollers, seconds=seconds, warm=0.3) as load:
        return load.found()[1]
