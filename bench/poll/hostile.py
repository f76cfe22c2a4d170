"""Other machines' polls, and the memory of the server, beside attacks by some machines.

Every measurement has a server of its own, so that the memory of one attack is not counted for the
next. The victims are connected before the attack begins, poll once a second each, and are measured
while it goes on. Peak memory is what the kernel noted from the beginning of the attack on; memory
afterwards is read when the attackers have been gone for a while.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.poll.fleet import Fleet
from bench.poll.loads import Found, generator
from bench.poll.peers import NGINX_NAME
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
from bench.poll.shapes import shapes

ATTACKS: Mapping[str, str] = {  # the bytes are in go/load/attack.go
    "chunks": "30 connections, approvals in 2,700 chunks of one byte; 4 MB/s in all",
    "bodies": "32 connections, 128 approvals of 64 KB sent ahead on each; 200 MB/s in all",
    "polls": "16 connections, 100 polls sent ahead on each; 4 MB/s in all",
    "churn": "8 connections, a new one for every malformed request; 2,000 a second in all",
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
    def p99(self) -> float:
        return self._percentile(0.99, self.polls.latency.p99)

    def _percentile(self, share: float, measured: float) -> float:
        """Milliseconds; infinite if fewer than that share of the polls were answered."""
        return measured if self.answered >= share else math.inf


@dataclass
class Hostile:
    machines: Sequence[int]
    load: float  # average of the machine before the first measurement
    measured: list[Beside] = field(default_factory=list)

    def nginx(self, like: Beside) -> Beside | None:
        """nginx beside the same attack."""
        same = (NGINX_NAME, like.attack, like.machines)
        return next((m for m in self.measured if (m.server, m.attack, m.machines) == same), None)

    def worst(self, server: str) -> Iterator[Beside]:
        """Every attack on that server by as many machines as were tried."""
        most = max(self.machines)
        return (m for m in self.measured if m.server == server and m.machines == most)


def hostile(
    scratch: Path, servers: Sequence[str], machines: Sequence[int], seconds: float
) -> Hostile:
    result = Hostile(machines, os.getloadavg()[0])
    for attack, count in [("", 0), *((name, n) for name in (*ATTACKS, *SHAPED) for n in machines)]:
        for server in servers:
            result.measured.append(_measure(server, attack, count, seconds, scratch))
        sys.stderr.write(f"  {attack or 'no attack'} by {count}\n")
    return result


def _measure(name: str, attack: str, machines: int, seconds: float, scratch: Path) -> Beside:
    fleet = Fleet(VICTIMS + machines + 1)
    addresses = fleet.addresses()[1:]
    victims, hostile = scratch / "victims", scratch / "attackers"
    victims.write_text("\n".join(addresses[:VICTIMS]) + "\n")
    hostile.write_text("\n".join(addresses[VICTIMS:]) + "\n")
    drain = min(DRAIN, seconds)
    with serving(name, fleet, scratch) as server:
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
    busy = round.cpu / (seconds + drain)
    return Beside(name, attack, machines, VICTIMS, polls, busy, peak, after, report)


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
