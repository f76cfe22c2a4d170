from __future__ import annotations

import signal
import subprocess
import sys

from forewarn.support import child_signals

# Ignores and blocks all signals, calls a function, and starts or becomes a program that says which
# signals it ignores and blocks. If it started one, it then gets all that it ignored.
STARTS = """
import os, signal, subprocess, sys
from forewarn.support import child_signals
numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
for number in numbers:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
getattr(child_signals, sys.argv[1])()
words = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
if sys.argv[1] == "reset":
    os.execvp(words[0], words)
subprocess.run(words, check=True)
for number in numbers:
    os.kill(os.getpid(), number)
"""
HANDLES = """
import signal
from forewarn.support import child_signals
def handle(*_): pass
signal.signal(signal.SIGTERM, handle)
before = signal.getsignal(signal.SIGINT)
child_signals.catch_ignored()
assert signal.getsignal(signal.SIGTERM) is handle
assert signal.getsignal(signal.SIGINT) is before
"""
ON_A_TERMINAL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}


def inherited(how: str) -> list[set[int]]:
    """What the program blocks and ignores, of all that have a meaning outside of the C library."""
    argv = [sys.executable, "-c", STARTS, how]
    output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    masks = [int(line.split()[1], 16) for line in output.splitlines()]
    return [{n for n in signal.valid_signals() if mask >> (n - 1) & 1} for mask in masks]


def test_a_program_in_our_place_ignores_nothing_but_hang_ups() -> None:
    assert inherited("reset") == [set(), {signal.SIGHUP}]


def test_a_program_that_we_start_ignores_nothing_but_hang_ups_and_we_still_do() -> None:
    """What a terminal sends it may ignore, since it is started without one."""
    assert inherited("catch_ignored") == [set(), {signal.SIGHUP, *ON_A_TERMINAL}]


def test_what_we_handle_is_handled_as_before() -> None:
    subprocess.run([sys.executable, "-c", HANDLES], check=True)


def test_what_cannot_be_reset_is_not_tried() -> None:
    assert not {signal.SIGKILL, signal.SIGSTOP} & set(child_signals.to_reset())
