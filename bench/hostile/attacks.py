"""Other machines' polls, and the memory of the server, beside attacks by some machines.

Every measurement has a server of its own, so that the memory of one attack is not counted for the
next. The victims are connected before the attack begins, poll once a second each, and are measured
while it goes on. Peak memory is what the kernel noted from the beginning of the attack on; memory
afterwards is read when the attackers have been gone for a while.
"""

from __future__ import annotations

import contextlib
import math
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.hostile.servers import SERVERS
from bench.hostile.shapes import shapes
from bench.poll.fleet import Fleet
from bench.poll.loads import Found, generator
from bench.poll.processes import (
    LOAD_CORE,
    Failed,
    pause,
    peak_memory,
    pipe,
    reset_peak_memory,
    running,
)
from bench.poll.servers import Server, serving

ATTACKS: Mapping[str, str] = {  # the bytes are in bench/poll/go/load/attack.go
    "chunks": "30 connections, approvals in 2,700 chunks of one byte; 4 MB/s in all",
    "bodies": "32 connections, 128 approvals of 64 KB sent ahead on each; 200 MB/s in all",
    "polls": "16 connections, 100 polls sent ahead on each; 4 MB/s in all",
    "churn": "8 connections, a new one for every malformed request; 2,000 a second in all",
    "fresh": "32 connections, a new one for every poll, as fast as they are answered",
    "unread": "30 connections, polls whose answers are never read; 4 MB/s in all",
    "oversized": "30 connections, chunked bodies of 1 MB; 50 MB/s in all",
    "eager": "32 connections, a poll on each as soon as the last one is answered",
    "unique": "the same, and no poll is like another",
    "h2c": "30 connections, polls with Upgrade: h2c; 1 MB/s in all",
}
SEED = 1  # of the requests that are made up
SHAPED = shapes(SEED)
VICTIMS = 500  # machines that poll once a second
SETTLED = 2.0  # seconds after which memory is read again when the attackers have gone
WARM = 2.0  # seconds from the victims' first polls to the measurement; the attack begins halfway
DRAIN = 1.0  # seconds after the measurement in which an answer still counts
LONGEST = 30.0  # seconds after the measurement at which an attack ends by itself


class Attack(msgspec.Struct, frozen=True):
    """What the attackers report at the end."""

    seconds: float
    bytes: int
    opened: int  # connections
    cut: int  # connections that the server ended
    answers: dict[str, int]  # by status, as far as they were seen

    @property
    def rate(self) -> float:
        """Megabytes a second that the server took."""
        return self.bytes / self.seconds / 1e6


@dataclass(frozen=True)
class Beside:
    """One server beside one attack, or beside none."""

    server: str
    attack: str  # "" for none
    machines: int
    victims: int
    polls: Found
    busy: float  # share of a core
    waited: float  # share of the time in which somebody else had the core
    peak: int  # resident bytes
    after: int
    attackers: Attack | None = None

    @property
    def answered(self) -> float:
        """Share of the polls that were due."""
        return min(1.0, self.polls.requests / (self.victims * self.polls.seconds))

    @property
    def p50(self) -> float:
        return self._percentile(0.50, self.polls.latency.p50)

    @property
    def p90(self) -> float:
        return self._percentile(0.90, self.polls.latency.p90)

    @property
    def p99(self) -> float:
        return self._percentile(0.99, self.polls.latency.p99)

    def _percentile(self, share: float, measured: float) -> float:
        """Milliseconds; infinite if fewer than that share of the polls were answered."""
        return measured if self.answered >= share else math.inf


def measured(name: str, attack: str, machines: int, seconds: float, scratch: Path) -> Beside:
    fleet = Fleet(VICTIMS + machines + 1)
    addresses = fleet.addresses()[1:]
    victims, hostile = scratch / "victims", scratch / "attackers"
    victims.write_text("\n".join(addresses[:VICTIMS]) + "\n")
    hostile.write_text("\n".join(addresses[VICTIMS:]) + "\n")
    drain = min(DRAIN, seconds)
    with serving(name, fleet, scratch, prepare=SERVERS[name]) as server:
        reset_peak_memory(server.process.pid)
        with contextlib.ExitStack() as stack:
            attackers = stack.enter_context(_attacking(server, attack, hostile, seconds))
            load = stack.enter_context(
                generator(
                    server,
                    victims,
                    mode="paced",
                    pollers=VICTIMS,
                    seconds=seconds,
                    warm=WARM,
                    drain=drain,
                )
            )
            polls, round = load.found(lenient=True)
            report = attackers.stop() if attackers else None
        pause(min(SETTLED, seconds))
        peak, after = peak_memory(server.process.pid), server.memory()
    lasted = seconds + drain
    shares = round.cpu / lasted, round.waited / lasted
    return Beside(name, attack, machines, VICTIMS, polls, *shares, peak, after, report)


class _Attackers:
    """The process that attacks."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def stop(self) -> Attack:
        """Have all attackers hang up, and read what they report."""
        pipe(self._process.stdin).close()
        line = pipe(self._process.stdout).readline()
        if not line:
            raise Failed(f"the attackers stopped: {self._log.read_text()[-500:]}")
        return msgspec.json.decode(line, type=Attack)


@contextlib.contextmanager
def _attacking(
    server: Server, attack: str, sources: Path, seconds: float
) -> Iterator[_Attackers | None]:
    if not attack:
        yield None
        return
    kind = attack
    if attack in SHAPED:
        request = sources.parent / "request"
        request.write_bytes(SHAPED[attack][1])
        kind = f"@{request}"
    argv = [str(sources.parent / "load"), "-mode", "attack", "-attack", kind]
    argv += ["-target", server.target, "-sources", str(sources), "-warm", str(WARM / 2)]
    argv += ["-seconds", str(WARM + seconds + LONGEST)]
    log = sources.parent / "attack.log"
    with running(argv, core=LOAD_CORE, log=log, env={"GOMAXPROCS": "1"}, pipes=True) as process:
        yield _Attackers(process, log)
