"""All clients by their names: the good ones, and the buggy twins."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

PLAIN, PARALLEL, ASYNCIO, SHELL = "plain", "parallel", "asyncio", "shell"
CLIENT, LONG_POLL = "client", "long-poll"
GOOD = (PLAIN, PARALLEL, ASYNCIO, CLIENT, LONG_POLL, SHELL)
FOLDER = Path(__file__).parent
EVERY = 0.02  # seconds between two polls: one second of a client in production


def paired(trials: Iterable[str], always: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of a good client and a trial: for every trial those that are always tried, and
    one of the others by turns."""
    others = [name for name in GOOD if name not in always]
    return [
        (client, trial)
        for place, trial in enumerate(trials)
        for client in (*always, others[place % len(others)])
    ]


class Client(Protocol):
    def run(self, stop: threading.Event) -> None: ...


def make(name: str, endpoint: str, log: Callable[[str], None], every: float) -> Client:
    """Return a client that runs in this process: a good one, or a twin by its mistake."""
    if name in (CLIENT, LONG_POLL):
        from helpers.twins.client_worker import ClientWorker

        return ClientWorker(endpoint, log, every, long_poll=name == LONG_POLL)
    if name == ASYNCIO:
        from helpers.twins.async_worker import AsyncWorker

        return AsyncWorker(endpoint, log, every)
    if name == PARALLEL:
        from helpers.twins.parallel_worker import ParallelWorker

        return ParallelWorker(endpoint, log, every)
    if name == PLAIN:
        from helpers.twins.worker import Worker

        return Worker(endpoint, log, every)
    from helpers.twins.mistakes import MISTAKES

    return MISTAKES[name](endpoint, log, every)


def command(name: str, log: Path | None = None, every: float = EVERY) -> list[str]:
    """Return the command that runs a client as a program of its own, with its log in this
    directory or on standard output."""
    words = [str(every), *([str(log)] if log else [])]
    if name == SHELL:
        return ["/bin/sh", str(FOLDER / "worker.sh"), *words]
    quick = [] if name in (CLIENT, LONG_POLL) else ["-S"]  # only the library needs site-packages
    return [sys.executable, *quick, str(FOLDER / "program.py"), name, *words]


def busy_check(log: Path) -> list[str]:
    """Return the command that tells whether a client with its log in this directory is busy."""
    return ["/bin/sh", str(FOLDER / "busy.sh"), str(log)]
