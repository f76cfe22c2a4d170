"""What the measuring process asks the measured one: lines of JSON, one answer to each."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from bench.poll.processes import SERVER_CORE, Failed, pipe, running

T = TypeVar("T")


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Events from raise to finish, as fast as they go: answered with a `Round`."""

    callers: int
    seconds: float
    event: str = "Freeze"  # its type


class Peer(msgspec.Struct, frozen=True, tag="peer"):
    """The least durable work for batches of these sizes: answered with a `Least`."""

    sizes: list[int]
    seconds: float


class Syncs(msgspec.Struct, frozen=True, tag="syncs"):
    """How often the disk can be waited for in a second: answered with a number."""

    seconds: float


class Occupy(msgspec.Struct, frozen=True, tag="occupy"):
    """An event for every group that nobody approves: answered with the address of the service."""


class Background(msgspec.Struct, frozen=True, tag="background"):
    """Decisions at a pace, in the second half of the groups, until the end; 0 ends it and is
    answered with how many there were a second."""

    rate: float


class Raise(msgspec.Struct, frozen=True, tag="raise"):
    """One event, as an operator raises it: answered with a `Raised`."""

    machine: str


class Raised(msgspec.Struct, frozen=True):
    """When, on the clock that all processes share."""

    event: str
    submitted: float
    shown: float  # committed, and every document is the new one
    acknowledged: float


class Weigh(msgspec.Struct, frozen=True, tag="weigh"):
    """What is in memory, after the garbage is gone: answered with a `Weight`."""


class Weight(msgspec.Struct, frozen=True):
    resident: int
    traced: int = 0  # bytes that Python has handed out
    lines: dict[str, int] = {}  # of those, by the line that asked for them


Ask = Run | Peer | Syncs | Occupy | Background | Raise | Weigh


class Service:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def ask(self, ask: msgspec.Struct | int, kind: type[T]) -> T:
        into = pipe(self._process.stdin)
        into.write(msgspec.json.encode(ask).decode() + "\n")
        into.flush()
        return self.hear(kind)

    def hear(self, kind: type[T]) -> T:
        line = pipe(self._process.stdout).readline()
        if not line:
            raise Failed("the measured service is gone; its log says why")
        return msgspec.json.decode(line, type=kind)


@contextlib.contextmanager
def service(
    module: str, *arguments: object, log: Path, core: int = SERVER_CORE
) -> Iterator[Service]:
    """A measured process, alone on its core."""
    argv = [sys.executable, "-m", module, *map(str, arguments)]
    with running(argv, core=core, log=log, pipes=True) as process:
        yield Service(process)
