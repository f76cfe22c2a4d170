"""Runs the command under test: once for each machine, until the end of the scenario, and does to
it what happens to its machine, if that is wanted.

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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import IO, Any
from urllib.parse import urlsplit

from forewarn.core import EventType
from forewarn.service.engine.clock import VirtualClock
from forewarn.support import extras, guard
from forewarn.support.system import ON_LINUX, linux_problem
from forewarn.testing.enclosure.fake_time import FakeTime, NoFakeTime
from forewarn.testing.impacts import ENDS, Impact
from forewarn.testing.scenarios.result import CommandExit
from forewarn.testing.session import Session

MAX_COMMANDS = 50  # that run at the same time
GRACE = 5.0  # real seconds between SIGTERM and SIGKILL
PROCESS_GROUPS = hasattr(os, "killpg")  # not on Windows
BUSY_CHECK_WITHIN = 10.0  # real seconds in which the busy check has to end
FROZEN_AT_LEAST = 1.0  # real seconds, on a virtual clock as well, unless the Freeze is shorter
LAST_OUTPUT_WITHIN = 1.0  # real seconds in which the output of an ended command is still read

WITHOUT_NAMESPACE = "without it, the program finds the endpoint's URL in FOREWARN_METADATA"

Show = Callable[[str, str], None]


class CannotRun(Exception):
    """The command could not be started; the message says why, and what to do."""


class _Running:
    """The command on one machine, across restarts. `launch` starts it."""

    def __init__(
        self, machine: str, launch: Callable[[], subprocess.Popen[Any]], env: Mapping[str, str]
    ) -> None:
        self.machine = machine
        self.launch = launch
        self.env = env
        self.process = launch()
        self.starts = 1
        self.killed_by = ""  # the type of the event by which its machine is away
        self.frozen_at: float | None = None  # in real time; None: it is not stopped

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.process.poll()

    def terminate(self) -> None:
        """Ask it, and everything it has started, to end."""
        if PROCESS_GROUPS:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # it may be frozen
        else:
            self.process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))

    def kill(self) -> None:
        """Kill it and everything it has started; on Windows, it alone."""
        if PROCESS_GROUPS:
            self._signal(signal.SIGKILL)
        else:
            self.process.kill()

    def freeze(self) -> None:
        """Stop it and everything it has started, until `unfreeze`."""
        self.frozen_at = guard.monotonic()
        self._signal(signal.SIGSTOP)

    def unfreeze(self) -> None:
        self.frozen_at = None
        self._signal(signal.SIGCONT)

    def _signal(self, signal_number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal_number)

    def start_again(self) -> None:
        self.process = self.launch()
        self.starts += 1
        self.killed_by = ""


# If we are killed, our end of the pipe is closed, and this kills the process groups that were
# written to it and not taken back.
_WATCHDOG_SCRIPT = """\
while read -r sign group; do
  others=
  for other in $groups; do [ "$other" = "-$group" ] || others="$others $other"; done
  groups=$others
  [ "$sign" = - ] || groups="$groups -$group"
done
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
        self._write(b"+ %d\n" % process.pid)

    def remove(self, process: subprocess.Popen[Any]) -> None:
        """Forget a process group that has ended, since its number may be used again."""
        self._write(b"- %d\n" % process.pid)

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def stop(self) -> None:
        self._process.kill()  # before its input ends
        self._process.communicate()


class ProgramRunner:
    """Starts and stops the command on each machine.

    `show` is called with the machine's name and each line of output. Without it, commands inherit
    our output; with `aside`, they write to standard error only. `note` is called with remarks about
    the enclosure and about impacts.

    With `impact`, what happens to a machine happens to its command: it is stopped for a Freeze,
    killed and started again for a Reboot or Redeploy, and killed for a Preempt or Terminate.
    `busy_check` is a command that is run when an event is about to be carried out on a machine; if
    it fails, the machine is still busy.
    """

    def __init__(
        self,
        argv: Sequence[str],
        machines: Sequence[str],
        *,
        netns: bool = False,
        fake_time: bool = False,
        keep_going: bool = False,
        impact: bool = False,
        busy_check: Sequence[str] = (),
        aside: bool = False,
        show: Show | None = None,
        note: Callable[[str], None] = lambda _: None,
        grace: float = GRACE,
    ) -> None:
        if impact and not PROCESS_GROUPS:
            raise CannotRun("--impact needs a system with process groups, which Windows is not")
        if len(machines) > MAX_COMMANDS:
            raise CannotRun(f"at most {MAX_COMMANDS} commands run at once, not {len(machines)}")
        self._argv = list(argv)
        self._machines = machines
        self._netns = netns
        self._fake_time = fake_time
        self._keep_going = keep_going
        self._impact = impact
        self._busy_check = list(busy_check)
        self._aside = aside
        self._show = show
        self._note = note
        self._grace = grace
        self._resources = ExitStack()
        self._watchdog: _Watchdog | None = None
        self._running: dict[str, _Running] = {}
        self._crashed: list[CommandExit] = []  # before they were started again
        self._problems: list[str] = []
        self._readers: list[threading.Thread] = []
        self._lock = threading.Lock()  # held while commands are stopped, started or signalled
        self._ending = False

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
                running = _Running(machine, self._launcher(session, url, env), env)
            except NoFakeTime as error:
                raise CannotRun(str(error)) from error
            except OSError as error:
                raise CannotRun(f"{self._argv[0]}: {error.strerror or error}") from error
            self._running[machine] = running
            if self._watchdog is not None:
                self._watchdog.add(running.process)
            self._read_output(machine, running.process)
        if self._impact or self._busy_check:
            undo = session.call(session.impacts.add, self._on_impact, takes_away=self._impact)
            self._resources.callback(session.call, undo)

    def _launcher(
        self, session: Session, url: str, env: dict[str, str]
    ) -> Callable[[], subprocess.Popen[Any]]:
        """Prepare the network and the clock of a command; return how to start it in them."""
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

            return lambda: start.start(self._argv, [], env=env, **details)
        found = shutil.which(self._argv[0], path=env.get("PATH")) or self._argv[0]
        return lambda: subprocess.Popen([found, *self._argv[1:]], env=env, **details)

    def _enclosed(
        self, url: str, env: dict[str, str], details: dict[str, Any]
    ) -> Callable[[], subprocess.Popen[Any]]:
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
        return lambda: enclosure.popen(self._argv, env=env, **details)

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

    def _on_impact(self, impact: Impact) -> str | None:
        """Do to the command what happens to its machine; return what it was still busy with."""
        running = self._running.get(impact.machine)
        if running is None:
            return None
        if impact.phase == ENDS:
            if self._impact:
                self._bring_back(running, impact)
            return None
        activity = self._activity(running, impact) if self._busy_check else None
        if self._impact:
            self._take_away(running, impact)
        return activity

    def _activity(self, running: _Running, impact: Impact) -> str | None:
        """Run the check; return why it failed, or an empty text."""
        env = {
            **running.env,
            "FOREWARN_EVENT": impact.event,
            "FOREWARN_EVENT_TYPE": impact.type,
            "FOREWARN_PID": str(running.process.pid),
        }
        try:
            check = subprocess.run(
                self._busy_check,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=BUSY_CHECK_WITHIN,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self._problems.append(
                f"the busy check of {impact.machine} did not end within {BUSY_CHECK_WITHIN:g} s"
            )
            return None
        except OSError as error:
            reason = error.strerror or str(error)
            self._problems.append(f"the busy check cannot be run: {self._busy_check[0]}: {reason}")
            return None
        if check.returncode == 0:
            return ""
        output = (check.stdout + check.stderr).decode("utf-8", "replace")
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        return "; ".join(lines) or f"the busy check exited with {check.returncode}"

    def _take_away(self, running: _Running, impact: Impact) -> None:
        with self._lock:
            if self._ending:
                return
            if EventType(impact.type).traits.keeps_memory:
                running.freeze()
                self._note(f"{impact.machine}: the command is stopped by the {impact.type}")
                return
            code = running.code
            if code:  # by itself, and nobody has noticed yet
                self._crashed.append(
                    CommandExit(machine=impact.machine, code=code, terminated=False)
                )
            running.killed_by = impact.type if code is None else ""
            running.kill()
            running.process.wait()
            self._forget(running.process)
            if code is None:
                self._note(f"{impact.machine}: the command is killed by the {impact.type}")

    def _bring_back(self, running: _Running, impact: Impact) -> None:
        if running.frozen_at is not None:
            self._stay_frozen(running.frozen_at, impact)
        with self._lock:
            if self._ending:
                return
            if running.frozen_at is not None:
                running.unfreeze()
                self._note(f"{impact.machine}: the command continues")
                return
            try:
                running.start_again()
            except OSError as error:
                self._problems.append(
                    f"the command on {impact.machine} cannot be started again:"
                    f" {error.strerror or error}"
                )
                return
            if self._watchdog is not None:
                self._watchdog.add(running.process)
            self._read_output(running.machine, running.process)
            self._note(f"{impact.machine}: the command is started again after the {impact.type}")

    def _stay_frozen(self, since: float, impact: Impact) -> None:
        """Wait, on a virtual clock, until the command could notice that it was stopped."""
        wanted = FROZEN_AT_LEAST if impact.seconds is None else min(FROZEN_AT_LEAST, impact.seconds)
        remaining = since + wanted - guard.monotonic()
        if remaining > 0:
            threading.Event().wait(remaining)

    def _forget(self, process: subprocess.Popen[Any]) -> None:
        if self._watchdog is not None:
            self._watchdog.remove(process)

    def problem(self) -> str:
        if self._problems:
            return self._problems[0]
        if self._keep_going:
            return ""
        for crashed in self._crashed:
            return f"the command on {crashed.machine} ended {_ending(crashed.code or 0)}"
        for running in self._running.values():
            if running.code and not running.killed_by:
                return self.exit_of(running.machine)
        return ""

    def exit_of(self, machine: str) -> str:
        """Describe how the command has ended on this machine; empty while it runs."""
        running = self._running.get(machine)
        if running is None or (code := running.code) is None:
            return ""
        if running.killed_by:
            return f"the command on {machine} was killed by the {running.killed_by} of its machine"
        return f"the command on {machine} ended {_ending(code)}"

    def end(self) -> tuple[CommandExit, ...]:
        """Stop the commands, and kill those that do not stop in time, or all if interrupted."""
        try:
            with self._lock:
                self._ending = True
            return (*self._crashed, *self._stop())
        except BaseException:
            for running in self._running.values():
                running.kill()
                running.process.wait()
            raise
        finally:
            self._resources.close()
            if self._watchdog is not None:
                self._watchdog.stop()

    def _stop(self) -> tuple[CommandExit, ...]:
        codes = {running.machine: running.code for running in self._running.values()}
        for running in self._running.values():
            if codes[running.machine] is None:
                running.terminate()
        end = guard.monotonic() + self._grace
        ended = []
        for running in self._running.values():
            code = codes[running.machine]
            still_running = code is None
            if still_running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = running.process.wait(max(0.0, end - guard.monotonic()))
            running.kill()  # whatever is left of its process group
            running.process.wait()
            ended.append(
                CommandExit(
                    machine=running.machine,
                    code=code,
                    terminated=still_running,
                    killed_by=running.killed_by,
                    starts=running.starts,
                )
            )
        for thread in self._readers:
            thread.join(LAST_OUTPUT_WITHIN)
        return tuple(ended)


def _ending(code: int) -> str:
    return f"with {code}" if code >= 0 else f"of {_signal_name(-code)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
