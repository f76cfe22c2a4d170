"""Workers that do not answer: is the endpoint up, and may one of them still show old documents?

With several workers the endpoint is up while all of them answer. A worker that is away for a moment
is replaced, and its callers wait in the kernel: that is a stall like any other. If it lasts longer,
the time counts as not served, for all groups, since nobody can tell from here which machines the
worker would have answered.

A worker that is not connected may still be answering guests with old documents. It is waited for
for a while. One whose process has ended answers nobody; one whose process is on this machine and
does not come back is killed, because it might be suspended and continue at any time. One on another
machine can only be waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterable

from forewarn.support import guard

KILL_TIMEOUT = 1.0  # seconds in which a killed process is gone; it answers nobody in any case


class Availability:
    """Accounts for the time in which not all workers answer. Pure; the time is passed in."""

    def __init__(self, expected: int, patience: float, now: float) -> None:
        self._expected = expected
        self._patience = patience  # seconds that workers may be away before it is an outage
        self._since: float | None = now  # since when workers are away; None: all answer
        self._outage = False
        self._accounted = now  # all time until then is accounted for

    def update(self, serving: int, now: float, since: float | None = None) -> float:
        """Return for how many seconds, not returned before, the endpoint has been away, if
        `serving` workers answer now and the others have not since `since`. During an outage every
        call returns some, so that no grace period begins before its end."""
        if serving >= self._expected:
            lost = now - self._since if self._outage and self._since is not None else 0.0
            self._since, self._outage, self._accounted = None, False, now
            return lost
        if self._since is None:
            self._since = now if since is None else max(min(since, now), self._accounted)
        if not self._outage and now - self._since < self._patience:
            return 0.0
        lost, self._since, self._outage = now - self._since, now, True
        return lost


class Fencing:
    """Keeps workers that are not connected from showing old documents."""

    def __init__(
        self, workers: Iterable[int], patience: float, changed: Callable[[], None]
    ) -> None:
        # At first any of them may be serving: an earlier control process may have started them.
        self._patience = patience
        self._changed = changed  # called when it may no longer be necessary to wait
        self._until = dict.fromkeys(workers, guard.monotonic() + patience)
        self._processes: dict[int, int] = {}  # by worker, a descriptor
        self._killed: set[int] = set()

    def left(self) -> float:
        """Return for how many seconds more some worker has to be waited for; negative if none has.
        Kills workers whose time is over."""
        now = guard.monotonic()
        for worker in [worker for worker, until in self._until.items() if until <= now]:
            self.end(worker)
        return max(self._until.values(), default=float("-inf")) - now

    def set_process(self, worker: int, pid: int | None) -> None:
        """Remember the process of a worker, unless it is a thread of ours, as in tests."""
        self._close_process(worker)
        if pid is not None and pid != os.getpid():
            with contextlib.suppress(OSError):
                self._processes[worker] = os.pidfd_open(pid)

    def back(self, worker: int, pid: int | None) -> None:
        self.set_process(worker, pid)
        self._until.pop(worker, None)

    def lost(self, worker: int) -> None:
        self._until[worker] = guard.monotonic() + self._patience
        self.watch(worker)

    def watch(self, worker: int) -> None:
        """Watch for the end of its process, if that is known."""
        process = self._processes.get(worker)
        if process is not None:
            asyncio.get_running_loop().add_reader(process, self._ended, worker)

    def end(self, worker: int) -> None:
        """Kill its process, if that is known, so that it answers nobody any more."""
        process = self._processes.get(worker)
        if process is None or worker in self._killed:
            return
        self._killed.add(worker)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        self._until[worker] = guard.monotonic() + KILL_TIMEOUT
        self.watch(worker)

    def close(self) -> None:
        for worker in list(self._processes):
            self._close_process(worker)

    def _ended(self, worker: int) -> None:
        self._close_process(worker)
        self._until.pop(worker, None)
        self._changed()

    def _close_process(self, worker: int) -> None:
        self._killed.discard(worker)
        process = self._processes.pop(worker, None)
        if process is not None:
            asyncio.get_running_loop().remove_reader(process)
            os.close(process)
