"""Workers that are not connected, but may still be answering guests with what is no longer so.

For a while they are waited for. One whose process is seen to be gone answers nobody; one whose
process is on this machine, and does not come back, is ended: it might only stand still, and go on
from where it was. One at a distance is only waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterable

from forewarn.support import guard

ENDED_WITHIN = 1.0  # seconds in which a killed process is gone; it answers nobody in any case


class Fencing:
    def __init__(self, workers: Iterable[int], patience: float, stir: Callable[[], None]) -> None:
        """At first all are, as far as we know: an earlier life of ours may have told them."""
        self._patience = patience
        self._stir = stir  # called when it may no longer be necessary to wait
        self._until = dict.fromkeys(workers, guard.monotonic() + patience)
        self._processes: dict[int, int] = {}  # by worker, a descriptor
        self._killed: set[int] = set()

    def left(self) -> float:
        """For how many seconds more somebody has to be waited for; not at all if it is negative.
        Whoever was waited for in vain is ended first."""
        now = guard.monotonic()
        for worker in [worker for worker, until in self._until.items() if until <= now]:
            self.end(worker)
        return max(self._until.values(), default=float("-inf")) - now

    def known(self, worker: int, pid: int | None) -> None:
        """That is its process. One of our own threads is nothing that could be ended."""
        self._forget(worker)
        if pid is not None and pid != os.getpid():
            with contextlib.suppress(OSError):
                self._processes[worker] = os.pidfd_open(pid)

    def back(self, worker: int, pid: int | None) -> None:
        self.known(worker, pid)
        self._until.pop(worker, None)

    def lost(self, worker: int) -> None:
        self._until[worker] = guard.monotonic() + self._patience
        self.watch(worker)

    def watch(self, worker: int) -> None:
        """Notice when its process, if we know it, is gone."""
        process = self._processes.get(worker)
        if process is not None:
            asyncio.get_running_loop().add_reader(process, self._ended, worker)

    def end(self, worker: int) -> None:
        """Whatever it is doing, it shall not answer anybody any more."""
        process = self._processes.get(worker)
        if process is None or worker in self._killed:
            return
        self._killed.add(worker)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        self._until[worker] = guard.monotonic() + ENDED_WITHIN
        self.watch(worker)

    def close(self) -> None:
        for worker in list(self._processes):
            self._forget(worker)

    def _ended(self, worker: int) -> None:
        self._forget(worker)
        self._until.pop(worker, None)
        self._stir()

    def _forget(self, worker: int) -> None:
        self._killed.discard(worker)
        process = self._processes.pop(worker, None)
        if process is not None:
            asyncio.get_running_loop().remove_reader(process)
            os.close(process)
