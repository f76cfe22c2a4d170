"""A command under test: started once for each machine that it is to be, and ended at the end.

It finds in its environment where to ask; in a network of its own 169.254.169.254 will do as well,
and its clock may be the service's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import IO, Any
from urllib.parse import urlsplit

from forewarn.service.engine.clock import VirtualClock
from forewarn.support import guard
from forewarn.testing.enclosure import CannotEnclose, Enclosure, FakeTime, NoFakeTime, start
from forewarn.testing.kit.service import Service
from forewarn.testing.scenarios.engine.check_expectations import Ended

MAX_COMMANDS = 50  # that are run at once
GRACE = 5.0  # real seconds between being told to end and being killed
LAST_WORDS = 1.0  # real seconds in which what an ended command has written is still shown

Show = Callable[[str, str], None]


class CannotRun(Exception):
    """The command could not be started; the message says why, and what to do."""


class _Running:
    def __init__(self, machine: str, process: subprocess.Popen[Any]) -> None:
        self.machine = machine
        self.process = process

    def signal(self, what: signal.Signals) -> None:
        """To it and to whatever it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, what)


# Killed, we could not end them: then a pipe of which we held the other end is at its end.
_WATCHING = """\
while read -r group; do groups="$groups -$group"; done
[ -z "$groups" ] || kill -KILL $groups
"""


class _Watch:
    """Ends what was started, with all that it has started, if we are killed before we have."""

    def __init__(self) -> None:
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHING],
            stdin=subprocess.PIPE,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
        )

    def over(self, process: subprocess.Popen[Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"%d\n" % process.pid)
        self._process.stdin.flush()

    def dismiss(self) -> None:
        self._process.kill()  # before its input ends
        self._process.communicate()


class ProgramRunner:
    """`show` is given every line that a command writes, with the machine's name; without it they
    write where we do, or, if `aside`, all to standard error."""

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
        self._around = ExitStack()
        self._watch: _Watch | None = None
        self._running: list[_Running] = []
        self._reading: list[threading.Thread] = []

    def start(self, service: Service) -> None:
        """In a thread, where no Ctrl-C comes between starting a command and knowing of it."""
        with ThreadPoolExecutor(1) as thread:
            thread.submit(self._start, service).result()

    def _start(self, service: Service) -> None:
        control = service.control_url
        self._watch = _Watch()
        for machine in self._machines:
            where = service.url(machine)
            env = {
                **os.environ,
                "FOREWARN_METADATA": where,
                "FOREWARN_URL": control,
                "FOREWARN_MACHINE": machine,
            }
            try:
                process = self._started(service, where, env)
            except (CannotEnclose, NoFakeTime) as error:
                raise CannotRun(str(error)) from error
            except OSError as error:
                raise CannotRun(f"{self._argv[0]}: {error.strerror or error}") from error
            self._running.append(_Running(machine, process))
            self._watch.over(process)
            self._read(machine, process)

    def _started(self, service: Service, where: str, env: dict[str, str]) -> subprocess.Popen[Any]:
        if self._fake_time:
            env = self._faked(service).environment(env)
        pipe = subprocess.PIPE if self._show is not None else None
        out = 2 if self._aside and pipe is None else pipe
        details: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": out,
            "stderr": pipe,
            "start_new_session": True,  # a Ctrl-C is for us, who end it
        }
        if not self._netns:
            return start.start(self._argv, [], env=env, **details)
        parts = urlsplit(where)
        target = parts.hostname or "", parts.port or 80
        inside = self._around.enter_context(Enclosure(target))
        for note in inside.notes:
            self._note(note)
        return inside.popen(self._argv, env=env, **details)

    def _faked(self, service: Service) -> FakeTime:
        clock = service.node.clock
        if not isinstance(clock, VirtualClock):
            raise CannotRun("a program's clock follows one that is virtual; use --clock virtual")
        fake = self._around.enter_context(FakeTime(clock.at))
        for note in fake.notes:
            self._note(note)
        service.call(clock.on_move, lambda: fake.set(clock.at))
        return fake

    def _read(self, machine: str, process: subprocess.Popen[Any]) -> None:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                thread = threading.Thread(target=self._pass_on, args=(machine, stream), daemon=True)
                thread.start()
                self._reading.append(thread)

    def _pass_on(self, machine: str, stream: IO[bytes]) -> None:
        assert self._show is not None
        with stream:
            for line in stream:
                self._show(machine, line.decode("utf-8", "replace").rstrip("\r\n"))

    def trouble(self) -> str:
        if self._keep_going:
            return ""
        for one in self._running:
            if one.process.poll():
                return self.left(one.machine)
        return ""

    def left(self, machine: str) -> str:
        """How it has ended on this machine; empty while it runs."""
        for one in self._running:
            if one.machine == machine and (code := one.process.poll()) is not None:
                how = f"with {code}" if code >= 0 else f"of {_name(-code)}"
                return f"the command on {machine} ended {how}"
        return ""

    def end(self) -> tuple[Ended, ...]:
        """Told to end, and killed if they do not, or if somebody cannot wait for it."""
        try:
            return self._ended()
        except BaseException:
            for one in self._running:
                one.signal(signal.SIGKILL)
                one.process.wait()
            raise
        finally:
            self._around.close()
            if self._watch is not None:
                self._watch.dismiss()

    def _ended(self) -> tuple[Ended, ...]:
        over = {one.machine: one.process.poll() for one in self._running}
        for one in self._running:
            if over[one.machine] is None:
                one.signal(signal.SIGTERM)
        end = guard.monotonic() + self._grace
        ended = []
        for one in self._running:
            code = over[one.machine]
            told = code is None
            if told:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = one.process.wait(max(0.0, end - guard.monotonic()))
            one.signal(signal.SIGKILL)  # whatever is left of it, or of what it started
            one.process.wait()
            ended.append(Ended(machine=one.machine, code=code, told_to=told))
        for thread in self._reading:
            thread.join(LAST_WORDS)
        return tuple(ended)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those in real time
        return f"signal {number}"
