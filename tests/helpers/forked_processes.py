"""The supervisor of a service and its processes, forked from the command that becomes them (see
forked_cli.py): each has read everything by then, which takes seconds otherwise.

They are children of each other, and are killed and replaced, as in real life, and /proc says that
they were started as in real life. A test that is about their start starts `forewarn` by
`subprocess`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from forewarn.node.daemon import process_main, supervisor_main
from forewarn.node.processes import child
from forewarn.service.telemetry import log
from forewarn.service.telemetry.stderr import StderrWriter

SUPERVISOR = ["-m", "forewarn.node.daemon.supervisor_main"]
ARGUMENTS = slice(45, 47)  # in /proc/PID/stat, after the name: where they begin and end in memory

_execv = os.execv


def install(end_after: Callable[[Callable[[], None]], NoReturn]) -> None:
    """Let this process fork what it would start, and go on as what would replace it."""

    def execv(path: Any, words: Any) -> NoReturn:
        if words[-2:] != SUPERVISOR:
            _execv(path, words)
        _become(words, os.get_inheritable)
        _run(lambda: end_after(supervisor_main.main))

    class Process(subprocess.Popen[bytes]):
        def _execute_child(self, args: Sequence[str], *more: Any) -> None:
            pass_fds, pipes = more[3], more[9:15]
            sys.stdout.flush()
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            self.pid = os.fork()
            if not self.pid:
                os.setpgid(0, 0)
                os.dup2(pipes[0], 0)
                os.dup2(pipes[3], 1)
                _become(args, pass_fds.__contains__)
                gc.disable()  # as it does by itself, until it serves
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                _run(lambda: end_after(process_main.main))
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._child_created = True
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    os.execv = execv
    vars(child)["subprocess"] = SimpleNamespace(Popen=Process, PIPE=subprocess.PIPE)


def _become(words: Sequence[str], is_kept: Callable[[int], bool]) -> None:
    """Be as a Python that was started with these words, and with the files that are kept."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for fd in [int(file.name) for file in Path("/proc/self/fd").iterdir()]:
        with contextlib.suppress(OSError):  # the one with which they were listed
            if fd > 2 and not is_kept(fd):
                os.close(fd)
    log._stderr = StderrWriter(log._log_dropped)  # the other one's thread was not forked
    sys.argv = list(words[-1:])
    _show(words)


def _show(words: Sequence[str]) -> None:
    """Let /proc/PID/cmdline say these words; the path of the first takes up what room is left."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = map(int, fields[ARGUMENTS])
    shown = b"".join(word.encode() + b"\0" for word in words).rjust(end - start, b"/")
    assert len(shown) == end - start, words
    ctypes.memmove(start, shown, len(shown))


def _run(program: Callable[[], NoReturn]) -> NoReturn:
    try:
        program()
    except BaseException:
        traceback.print_exc()
    os._exit(1)
