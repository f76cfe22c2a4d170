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

from forewarn.node.processes.child import CONTROL, FOR_GOOD, Child
from forewarn.node.processes.reload_all import ReloadAll
from forewarn.support import guard

STOP_WITHIN = 20.0  # seconds that a process is given to end before it is killed
HUNG = 60.0  # seconds without a sign of life, after which a process is killed and replaced
STARTING = 120.0  # the same for one that is not ready yet
AWAY_MOST = 300.0  # seconds without a control process that is ready; then the service is dead
LOOK_EVERY = 5.0  # seconds between two looks for one that hangs
FORWARDED = (signal.SIGHUP,)


class Supervisor:
    """`tell` is the log; `ready` is called once, with what control says when all are there;
    `alive` again and again, as long as the service is not beyond help; `reloading` when all are
    told to read their settings anew, and `reloaded` when they have; `installed` says which version
    a process that is started now would be, if it is not ours."""

    def __init__(
        self,
        children: Sequence[Child],
        listeners: Sequence[int],
        tell: Callable[..., None],
        ready: Callable[[dict[str, Any]], None],
        alive: Callable[[], None] = lambda: None,
        reloading: Callable[[], None] = lambda: None,
        reloaded: Callable[[], None] = lambda: None,
        installed: Callable[[], str] = lambda: "",
        outlived: bool = False,
        look_every: float = LOOK_EVERY,
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        self._children = children
        self._listeners = listeners
        self._tell = tell
        self._ready = ready
        self._alive = alive
        self._installed = installed
        self._outlived = outlived  # are the sockets somebody else's, who goes on with them?
        self._look_every = look_every
        self._stopping = stopping
        self._looked = guard.monotonic()
        self._up = False  # were all of them ever there?
        self._dead = False  # was it said that it is beyond help?
        self._control = next(child for child in children if child.name == CONTROL)
        workers = [child for child in children if child is not self._control]
        self._rereading = ReloadAll(self._control, workers, reloading, reloaded)
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
                if self._up and (version := self._installed()):
                    self._make_room(child, version)
                    return
                child.start()
                self._selector.register(child.pidfd, selectors.EVENT_READ, child)
                self._selector.register(child.saying, selectors.EVENT_READ, child)

    def _until_next(self) -> float:
        if self._stop:
            return 0.0
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
        if not self._up and all(child.ready is not None for child in self._children):
            self._up = True
            self._ready(self._control.ready or {})
        if self._up and not self._stop:
            self._rereading.look(guard.monotonic())

    def _settle(self, settings: dict[str, Any]) -> None:
        """Whoever is started from now on goes by these."""
        for child in self._children:
            child.spec["settings"] = settings

    def _look_after(self) -> None:
        now = guard.monotonic()
        late = now - self._looked - self._look_every
        if late < 0:
            return
        self._looked = now
        if late > self._look_every:  # it was we who stood still, and perhaps everybody with us
            for child in self._children:
                child.heard, child.began = child.heard + late, child.began + late
                child.served += late
        self._speak_for_all(now)
        for child in self._children:
            if child.running and self._hangs(child, now):
                why = child.unwell or f"silent for {now - child.heard:.0f} s"
                self._tell(
                    "a process gives no sign of life and is killed", process=child.name, why=why
                )
                child.send(signal.SIGKILL)

    def _hangs(self, child: Child, now: float) -> bool:
        if child.ready is not None:
            return now - child.heard > HUNG
        # The first start may take as long as it likes, if there is a sign of life: it may have
        # much to bring up to date. Workers wait for control.
        too_long = self._up and child is self._control and now - child.began > AWAY_MOST
        return too_long or now - child.heard > STARTING

    def _speak_for_all(self, now: float) -> None:
        """Control that is being replaced is no reason to replace everything, and take the polls
        from guests; but if it cannot come back that is all that is left to try."""
        if not self._up:
            return  # nobody expects any, and too many could crowd out that we are ready
        away = now - self._control.served
        if away <= AWAY_MOST:
            self._dead = False
            self._alive()
        elif not self._dead:
            self._dead = True
            self._tell(
                "watchdog messages to the service manager are suspended",
                why=f"control has been away for {away:.0f} s",
            )

    def _make_room(self, child: Child, version: str) -> None:
        """Processes of two versions do not talk to each other, and whoever starts us anew starts
        the new one as a whole."""
        self._tell(
            "another version is installed, with which a process cannot be replaced: the service"
            " ends, to be started anew",
            process=child.name,
            installed=version,
        )
        self._stop = self._failed = True

    def _heard(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop = True
        elif number in FORWARDED:
            self._rereading.ask()

    def _ended(self, child: Child) -> None:
        for fd in (child.pidfd, child.saying):
            with contextlib.suppress(KeyError):
                self._selector.unregister(fd)
        how = child.reap()
        self._rereading.ended(child)
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
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)  # what came while we were starting
    try:
        yield heard
    finally:
        signal.set_wakeup_fd(before)
        os.close(heard)
        os.close(wake)
