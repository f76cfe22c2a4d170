"""The supervisor: holds the sockets, and keeps one control process and its workers running.

It answers no requests, has no state and imports as little as possible, so that there are few
reasons for it to fail. The sockets stay open while the service runs: while a process is being
replaced, new connections wait in the kernel's queue.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from forewarn.node.processes.child import CONTROL, STOP_FINALLY, Child
from forewarn.node.processes.reload_all import ReloadAll
from forewarn.support import guard
from forewarn.support.process_mark import end_marked

STOP_WITHIN = 20.0  # seconds that a process is given to end before it is killed
HUNG_AFTER = 60.0  # seconds without a sign of life after which a process is killed and replaced
HUNG_AFTER_STARTING = 120.0  # the same for one that is not ready yet
CONTROL_AWAY_AT_MOST = 300.0  # seconds without a ready control process; then systemd may restart us
LEASE_GRACE = 0.5  # seconds after the end of a lease in which the process may end by itself
KILLED_WITHIN = 1.0  # seconds that are waited for the end of a process that was killed
CHECK_EVERY = 5.0  # seconds between two checks for processes that hang
FORWARDED = (signal.SIGHUP,)


class Supervisor:
    """Runs the processes until it is stopped by a signal.

    `on_ready` is called once, with the URLs of the control process, when all processes are ready;
    `on_alive` regularly, while the service can serve or recover; `on_reloading` and `on_reloaded`
    around a reload. `other_version` returns the version that a new process would have, if it is
    not the version of this one.
    """

    def __init__(
        self,
        children: Sequence[Child],
        listeners: Sequence[int],
        log_error: Callable[..., None],
        on_ready: Callable[[dict[str, Any]], None],
        on_alive: Callable[[], None] = lambda: None,
        on_reloading: Callable[[], None] = lambda: None,
        on_reloaded: Callable[[], None] = lambda: None,
        on_stopping: Callable[[], None] = lambda: None,
        other_version: Callable[[], str] = lambda: "",
        outlived: bool = False,
        check_every: float = CHECK_EVERY,
    ) -> None:
        self._children = children
        self._listeners = listeners
        self._log_error = log_error
        self._on_ready = on_ready
        self._on_alive = on_alive
        self._on_stopping = on_stopping
        self._other_version = other_version
        self._outlived = outlived  # the sockets are systemd's, and stay open after this process
        self._check_every = check_every
        self._checked_at = guard.monotonic()
        self._up = False  # all processes have been ready once
        self._suspended = False  # signs of life are no longer sent to the service manager
        self._control = next(child for child in children if child.name == CONTROL)
        workers = [child for child in children if child is not self._control]
        self._reload = ReloadAll(self._control, workers, on_reloading, on_reloaded)
        self._selector = selectors.DefaultSelector()
        self._stop = False
        self._failed = False

    def run(self) -> int:
        """Run until stopped by a signal, and return the exit status."""
        with _signals() as signals_fd:
            self._selector.register(signals_fd, selectors.EVENT_READ, None)
            while not self._stop:
                self._start_due()
                self._wait(self._until_next())
                self._check()
            self._on_stopping()
            self._end()
        return 1 if self._failed else 0

    def _start_due(self) -> None:
        now = guard.monotonic()
        for child in self._children:
            if child.due is not None and child.due <= now:
                if self._up and (version := self._other_version()):
                    self._stop_for_version(child, version)
                    return
                child.start()
                self._selector.register(child.pidfd, selectors.EVENT_READ, child)
                self._selector.register(child.stdout_fd, selectors.EVENT_READ, child)

    def _until_next(self) -> float:
        if self._stop:
            return 0.0
        due = [child.due for child in self._children if child.due is not None]
        return max(0.0, min([*due, self._checked_at + self._check_every]) - guard.monotonic())

    def _wait(self, timeout: float) -> None:
        """Wait for signals, messages and ends of processes, and handle them."""
        if self._control.lease is not None:
            left = self._control.lease + LEASE_GRACE - guard.boottime()
            timeout = max(0.0, min(timeout, left))
        for key, _ in self._selector.select(timeout):
            child: Child | None = key.data
            if child is None:
                for number in os.read(key.fd, 64):
                    self._signalled(number)
            elif not child.running:
                continue  # reaped in this iteration
            elif key.fd == child.pidfd:
                self._ended(child)
            elif not child.read_messages():
                self._selector.unregister(child.stdout_fd)
            elif child.settings is not None:
                self._use_settings(child.settings)
                child.settings = None
        self._end_lease()
        if not self._up and all(child.ready is not None for child in self._children):
            self._up = True
            self._on_ready(self._control.ready or {})
        if self._up and not self._stop:
            self._reload.advance(guard.monotonic())

    def _end_lease(self) -> None:
        """End what acts for a lease that has run out: the control process, if it has not ended by
        itself, and the programs of its driver. Another control node goes on with what they do."""
        control = self._control
        if control.lease is None or guard.boottime() < control.lease + LEASE_GRACE:
            return
        if control.running and control.pid == control.lease_pid:
            self._log_error(
                "the control process has not ended with its lease, and is killed",
                process=control.name,
            )
            control.send(signal.SIGKILL)
            select.select([control.pidfd], [], [], KILLED_WITHIN)
        self._end_programs()

    def _end_programs(self) -> None:
        self._control.lease = None
        if ended := end_marked(os.getpid()):
            self._log_error(
                "programs of the driver have outlived a lease, and were killed", programs=ended
            )

    def _use_settings(self, settings: dict[str, Any]) -> None:
        """Use these settings for processes that are started from now on."""
        for child in self._children:
            child.spec["settings"] = settings

    def _check(self) -> None:
        """Send a sign of life, and kill processes that hang."""
        now = guard.monotonic()
        late = now - self._checked_at - self._check_every
        if late < 0:
            return
        self._checked_at = now
        if late > self._check_every:  # this process was stopped, and perhaps all others too
            for child in self._children:
                child.alive_at += late
                child.started_at += late
                child.served_at += late
        self._send_sign_of_life(now)
        for child in self._children:
            if child.running and self._hangs(child, now):
                why = child.problem or f"silent for {now - child.alive_at:.0f} s"
                self._log_error(
                    "a process gives no sign of life and is killed", process=child.name, why=why
                )
                child.send(signal.SIGKILL)

    def _hangs(self, child: Child, now: float) -> bool:
        if child.ready is not None:
            return now - child.alive_at > HUNG_AFTER
        # The first start may take any time while there are signs of life: it may have to upgrade
        # a large state file. Workers wait for the control process.
        away = now - child.started_at
        too_long = self._up and child is self._control and away > CONTROL_AWAY_AT_MOST
        return too_long or now - child.alive_at > HUNG_AFTER_STARTING

    def _send_sign_of_life(self, now: float) -> None:
        """Send a sign of life to the service manager, unless the control process has been away for
        too long. A restart of the whole service would leave guests without answers, so it is the
        last resort."""
        if not self._up:
            return  # not expected yet, and too many could fill the socket before READY=1 is sent
        away = now - self._control.served_at
        if away <= CONTROL_AWAY_AT_MOST:
            self._suspended = False
            self._on_alive()
        elif not self._suspended:
            self._suspended = True
            self._log_error(
                "watchdog messages to the service manager are suspended",
                why=f"the control process has been unavailable for {away:.0f} s",
            )

    def _stop_for_version(self, child: Child, version: str) -> None:
        """Stop, so that the service manager starts the new version as a whole: processes of two
        versions do not work together."""
        self._log_error(
            "another version was installed, so a single process cannot be replaced: the service"
            " stops and has to be started again",
            process=child.name,
            installed=version,
        )
        self._stop = self._failed = True

    def _signalled(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop = True
        elif number in FORWARDED:
            self._reload.request()

    def _ended(self, child: Child) -> None:
        child.read_messages()  # its last ones
        for fd in (child.pidfd, child.stdout_fd):
            with contextlib.suppress(KeyError):
                self._selector.unregister(fd)
        why = child.reap()
        self._reload.ended(child)
        if self._stop:
            return
        if not self._up:  # the process has printed why
            self._stop = self._failed = True
            return
        self._log_error(
            "a process has ended and is started again",
            process=child.name,
            why=why,
            seconds=round(child.back_off, 1),
        )

    def _end(self) -> None:
        """Stop the control process, then the workers, so that guests are answered to the end.

        Once the sockets are closed here, only the workers have them (unless they are systemd's),
        so connections that still wait must be answered by the workers."""
        for fd in self._listeners:
            os.close(fd)
        for is_control in (True, False):
            ending = [c for c in self._children if (c.name == CONTROL) is is_control]
            for child in ending:
                child.send(signal.SIGTERM if is_control or self._outlived else STOP_FINALLY)
            end = guard.monotonic() + STOP_WITHIN
            while any(child.running for child in ending):
                left = end - guard.monotonic()
                if left <= 0:
                    for child in ending:
                        child.send(signal.SIGKILL)
                self._wait(max(0.1, left))
        if self._control.lease is not None:
            self._end_programs()  # it was killed


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """Yield a descriptor from which the numbers of received signals can be read."""
    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, *FORWARDED):
        signal.signal(number, lambda *_: None)
    # Blocked before this program was executed.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(previous)
        os.close(reader)
        os.close(writer)
