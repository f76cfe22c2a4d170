"""Runs the command under test: once for each machine, until the end of the scenario.

Its environment variables name the endpoint. In a network namespace of its own, 169.254.169.254 is
the endpoint as well. Its clock can follow the service's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import IO, Any
from urllib.parse import urlsplit

from forewarn.service.engine.clock import VirtualClock
from forewarn.support import extras, guard
from forewarn.support.system import ON_LINUX, linux_problem
from forewarn.testing.enclosure.fake_time import FakeTime, NoFakeTime
from forewarn.testing.scenarios.result import CommandExit
from forewarn.testing.session import Session

MAX_COMMANDS = 50  # that run at the same time
GRACE = 5.0  # real seconds between SIGTERM and SIGKILL
PROCESS_GROUPS = hasattr(os, "killpg")  # not on Windows
LAST_OUTPUT_WITHIN = 1.0  # real seconds in which the output of an ended command is still read

WITHOUT_NAMESPACE = "without it, the program finds the endpoint's URL in FOREWARN_METADATA"

Show = Callable[[str, str], None]


class CannotRun(Exception):
    """The command could not be started; the message says why, and what to do."""


class _Running:
    def __init__(self, machine: str, process: subprocess.Popen[Any]) -> None:
        self.machine = machine
        self.process = process

    def terminate(self) -> None:
        """Ask it, and everything it has started, to end."""
        if PROCESS_GROUPS:
            self._signal(signal.SIGTERM)
        else:
            self.process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))

    def kill(self) -> None:
        """Kill it and everything it has started; on Windows, it alone."""
        if PROCESS_GROUPS:
            self._signal(signal.SIGKILL)
        else:
            self.process.kill()

    def _signal(self, signal_number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal_number)


# If we are killed, our end of the pipe is closed, and this kills the process groups written to it.
_WATCHDOG_SCRIPT = """\
while read -r group; do groups="$groups -$group"; done
[ -z "$groups" ] || kill -KILL $groups
"""


class _Watchdog:
    """Kills the commands, and everything they have started, if we are killed before them."""

    def __init__(self) -> None:
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG_SCRIPT],
            stdin=subprocess.PIPE,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
        )

    def add(self, process: subprocess.Popen[Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"%d\n" % process.pid)
        self._process.stdin.flush()

    def stop(self) -> None:
        self._process.kill()  # before its input ends
        self._process.communicate()


class ProgramRunner:
    """Starts and stops the command on each machine.

    `show` is called with the machine's name and each line of output. Without it, commands inherit
    our output; with `aside`, they write to standard error only. `note` is called with remarks about
    the enclosure.
    """

    def __init__(
        self,
        argv: Sequence[str],
        machines: Sequence[str],
        *,
        netns: bool = False,
        fake_time: bool = False,
        keep_going: bool = False,
        aside: bool = False,
        show: Show | None = None,
        note: Callable[[str], None] = lambda _: None,
        grace: float = GRACE,
    ) -> None:
        if len(machines) > MAX_COMMANDS:
            raise CannotRun(f"at most {MAX_COMMANDS} commands run at once, not {len(machines)}")
        self._argv = list(argv)
        self._machines = machines
        self._netns = netns
        self._fake_time = fake_time
        self._keep_going = keep_going
        self._aside = aside
        self._show = show
        self._note = note
        self._grace = grace
        self._resources = ExitStack()
        self._watchdog: _Watchdog | None = None
        self._running: list[_Running] = []
        self._readers: list[threading.Thread] = []

    def start(self, session: Session) -> None:
        """Start the commands.

        In a thread, so that no Ctrl-C comes between the start of a process and recording it.
        """
        with ThreadPoolExecutor(1) as thread:
            thread.submit(self._start, session).result()

    def _start(self, session: Session) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "FOREWARN_URL"}
        if extras.installed("server"):
            environment["FOREWARN_URL"] = session.control_url
        self._watchdog = _Watchdog() if PROCESS_GROUPS else None
        for machine in self._machines:
            url = session.url(machine)
            env = {
                **environment,
                "FOREWARN_METADATA": url,
                "FOREWARN_MACHINE": machine,
            }
            try:
                process = self._popen(session, url, env)
            except NoFakeTime as error:
                raise CannotRun(str(error)) from error
            except OSError as error:
                raise CannotRun(f"{self._argv[0]}: {error.strerror or error}") from error
            self._running.append(_Running(machine, process))
            if self._watchdog is not None:
                self._watchdog.add(process)
            self._read_output(machine, process)

    def _popen(self, session: Session, url: str, env: dict[str, str]) -> subprocess.Popen[Any]:
        if self._fake_time:
            env = self._fake_clock(session).environment(env)
        pipe = subprocess.PIPE if self._show is not None else None
        out = 2 if self._aside and pipe is None else pipe
        details: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": out,
            "stderr": pipe,
            # Ctrl-C is handled by us, and we stop it. Each system ignores the other's way.
            "start_new_session": True,
            "creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        }
        if self._netns:
            return self._enclosed(url, env, details)
        if ON_LINUX:
            from forewarn.testing.enclosure import start

            return start.start(self._argv, [], env=env, **details)
        found = shutil.which(self._argv[0], path=env.get("PATH")) or self._argv[0]
        return subprocess.Popen([found, *self._argv[1:]], env=env, **details)

    def _enclosed(
        self, url: str, env: dict[str, str], details: dict[str, Any]
    ) -> subprocess.Popen[Any]:
        if problem := linux_problem("--netns", WITHOUT_NAMESPACE):
            raise CannotRun(problem)
        from forewarn.testing.enclosure import CannotEnclose, Enclosure

        parts = urlsplit(url)
        target = parts.hostname or "", parts.port or 80
        try:
            enclosure = self._resources.enter_context(Enclosure(target))
        except CannotEnclose as error:
            raise CannotRun(str(error)) from error
        for note in enclosure.notes:
            self._note(note)
        return enclosure.popen(self._argv, env=env, **details)

    def _fake_clock(self, session: Session) -> FakeTime:
        clock = session.node.clock
        if not isinstance(clock, VirtualClock):
            raise CannotRun(
                "a program's clock can only follow a virtual clock; use --clock virtual"
            )
        fake = self._resources.enter_context(FakeTime(clock.at))
        for note in fake.notes:
            self._note(note)
        session.call(clock.on_move, lambda: fake.set(clock.at))
        return fake

    def _read_output(self, machine: str, process: subprocess.Popen[Any]) -> None:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                thread = threading.Thread(
                    target=self._show_lines, args=(machine, stream), daemon=True
                )
                thread.start()
                self._readers.append(thread)

    def _show_lines(self, machine: str, stream: IO[bytes]) -> None:
        assert self._show is not None
        with stream:
            for line in stream:
                self._show(machine, line.decode("utf-8", "replace").rstrip("\r\n"))

    def problem(self) -> str:
        if self._keep_going:
            return ""
        for running in self._running:
            if running.process.poll():
                return self.exit_of(running.machine)
        return ""

    def exit_of(self, machine: str) -> str:
        """Describe how the command has ended on this machine; empty while it runs."""
        for running in self._running:
            if running.machine == machine and (code := running.process.poll()) is not None:
                ending = f"with {code}" if code >= 0 else f"of {_signal_name(-code)}"
                return f"the command on {machine} ended {ending}"
        return ""

    def end(self) -> tuple[CommandExit, ...]:
        """Stop the commands, and kill those that do not stop in time, or all if interrupted."""
        try:
            return self._stop()
        except BaseException:
            for running in self._running:
                running.kill()
                running.process.wait()
            raise
        finally:
            self._resources.close()
            if self._watchdog is not None:
                self._watchdog.stop()

    def _stop(self) -> tuple[CommandExit, ...]:
        codes = {running.machine: running.process.poll() for running in self._running}
        for running in self._running:
            if codes[running.machine] is None:
                running.terminate()
        end = guard.monotonic() + self._grace
        ended = []
        for running in self._running:
            code = codes[running.machine]
            still_running = code is None
            if still_running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = running.process.wait(max(0.0, end - guard.monotonic()))
            running.kill()  # whatever is left of its process group
            running.process.wait()
            ended.append(CommandExit(machine=running.machine, code=code, terminated=still_running))
        for thread in self._readers:
            thread.join(LAST_OUTPUT_WITHIN)
        return tuple(ended)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
