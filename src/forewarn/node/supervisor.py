"""The supervisor: holds the sockets, and keeps one control process and its workers running.

It answers nobody and knows no state, so that there is little it could die of; it imports next to
nothing. Sockets that it holds are never closed while the service runs: whoever calls while a
process is being replaced waits with the kernel.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from forewarn.node.child import CONTROL, FOR_GOOD, Child
from forewarn.service import guard

STOP_WITHIN = 20.0  # seconds that a process is given to end before it is killed
HUNG = 60.0  # seconds without a sign of life, after which a process is killed and replaced
LOOK_EVERY = 5.0  # seconds between two looks for one that hangs
FORWARDED = (signal.SIGHUP,)


class Supervisor:
    """`tell` is the log; `ready` is called once, with what control says when all are there;
    `alive` again and again; `reloading` when all are told to read their settings anew."""

    def __init__(
        self,
        children: Sequence[Child],
        listeners: Sequence[int],
        tell: Callable[..., None],
        ready: Callable[[dict[str, Any]], None],
        alive: Callable[[], None] = lambda: None,
        reloading: Callable[[], None] = lambda: None,
        outlived: bool = False,
        look_every: float = LOOK_EVERY,
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        self._children = children
        self._listeners = listeners
        self._tell = tell
        self._ready = ready
        self._alive = alive
        self._reloading = reloading
        self._outlived = outlived  # are the sockets somebody else's, who goes on with them?
        self._look_every = look_every
        self._stopping = stopping
        self._looked = guard.monotonic()
        self._up = False  # were all of them ever there?
        self._owed: set[Child] = set()  # who has yet to be told to read its settings anew
        self._selector = selectors.DefaultSelector()
        self._stop = False
        self._failed = False

    def run(self) -> int:
        """Until told to stop. The exit status."""
        with _signals() as wake:
            self._selector.register(wake, selectors.EVENT_READ, None)
            while not self._stop:
                self._start_due()
                self._look(self._until_next())
                self._look_after()
            self._stopping()
            self._end()
        return 1 if self._failed else 0

    def _start_due(self) -> None:
        now = guard.monotonic()
        for child in self._children:
            if child.due is not None and child.due <= now:
                child.start()
                self._selector.register(child.pidfd, selectors.EVENT_READ, child)
                self._selector.register(child.saying, selectors.EVENT_READ, child)

    def _until_next(self) -> float:
        due = [child.due for child in self._children if child.due is not None]
        return max(0.0, min([*due, self._looked + self._look_every]) - guard.monotonic())

    def _look(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            child: Child | None = key.data
            if child is None:
                for number in os.read(key.fd, 64):
                    self._heard(number)
            elif not child.running:
                continue  # it has been reaped in this very round
            elif key.fd == child.pidfd:
                self._ended(child)
            elif not child.hear():
                self._selector.unregister(child.saying)
            elif child.settings is not None:
                self._settle(child.settings)
                child.settings = None
        for child in [child for child in self._owed if child.ready is not None]:
            self._owed.discard(child)  # one that is still starting could die of it
            child.send(signal.SIGHUP)
        if not self._up and all(child.ready is not None for child in self._children):
            self._up = True
            control = next(child for child in self._children if child.name == CONTROL)
            self._ready(control.ready or {})

    def _settle(self, settings: dict[str, Any]) -> None:
        """Whoever is started from now on goes by these."""
        for child in self._children:
            child.spec["settings"] = settings

    def _look_after(self) -> None:
        now = guard.monotonic()
        if now - self._looked < self._look_every:
            return
        self._looked = now
        self._alive()
        for child in self._children:
            if child.running and child.ready is not None and now - child.heard > HUNG:
                self._tell("a process gives no sign of life and is killed", process=child.name)
                child.send(signal.SIGKILL)

    def _heard(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop = True
        elif number in FORWARDED:
            self._reloading()
            self._owed = set(self._children)

    def _ended(self, child: Child) -> None:
        for fd in (child.pidfd, child.saying):
            with contextlib.suppress(KeyError):
                self._selector.unregister(fd)
        how = child.reap()
        if self._stop:
            return
        if not self._up:  # it has said why
            self._stop = self._failed = True
            return
        self._tell(
            "a process has died and is started again",
            process=child.name,
            why=how,
            seconds=round(child.pause, 1),
        )

    def _end(self) -> None:
        """Control first; guests are answered to the end. By then only the workers have the
        sockets, unless those outlive us all; so they are the ones to answer whoever is in line."""
        for fd in self._listeners:
            os.close(fd)
        for is_control in (True, False):
            ending = [c for c in self._children if (c.name == CONTROL) is is_control]
            for child in ending:
                child.send(signal.SIGTERM if is_control or self._outlived else FOR_GOOD)
            end = guard.monotonic() + STOP_WITHIN
            while any(child.running for child in ending):
                left = end - guard.monotonic()
                if left <= 0:
                    for child in ending:
                        child.send(signal.SIGKILL)
                self._look(max(0.1, left))


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """A descriptor from which the numbers of signals can be read."""
    heard, wake = os.pipe()
    for fd in (heard, wake):
        os.set_blocking(fd, False)
    before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, *FORWARDED):
        signal.signal(number, lambda *_: None)
    try:
        yield heard
    finally:
        signal.set_wakeup_fd(before)
        os.close(heard)
        os.close(wake)
