"""Workers that are not connected, but may still be answering guests with what is no longer so.

For a while they are waited for. One whose process is seen to be gone answers nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable

from forewarn.service import guard


class Away:
    def __init__(self, workers: Iterable[int], patience: float, stir: Callable[[], None]) -> None:
        """At first all are, as far as we know: an earlier life of ours may have told them."""
        self._patience = patience
        self._stir = stir  # called when it may no longer be necessary to wait
        self._since = dict.fromkeys(workers, guard.monotonic())
        self._processes: dict[int, int] = {}  # by worker, a descriptor

    def left(self) -> float:
        """For how many seconds more somebody has to be waited for; not at all if it is negative."""
        return max(self._since.values(), default=float("-inf")) + self._patience - guard.monotonic()

    def back(self, worker: int, pid: int | None) -> None:
        self._forget(worker)
        self._since.pop(worker, None)
        if pid is not None:
            with contextlib.suppress(OSError):
                self._processes[worker] = os.pidfd_open(pid)

    def lost(self, worker: int) -> None:
        self._since[worker] = guard.monotonic()
        process = self._processes.get(worker)
        if process is not None:
            asyncio.get_running_loop().add_reader(process, self._ended, worker)

    def close(self) -> None:
        for worker in list(self._processes):
            self._forget(worker)

    def _ended(self, worker: int) -> None:
        self._forget(worker)
        self._since.pop(worker, None)
        self._stir()

    def _forget(self, worker: int) -> None:
        process = self._processes.pop(worker, None)
        if process is not None:
            asyncio.get_running_loop().remove_reader(process)
            os.close(process)
