"""What the supervisor does about a lease that has run out, with processes that stand for ours."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The supervisor, with a control process that starts a program and reports a lease that is over.
SUPERVISOR = """
import os, signal, sys
from forewarn.node.processes import child
from forewarn.node.processes.child import CONTROL, Child
from forewarn.node.processes.supervisor import Supervisor

def log_error(message, **fields):
    print(message, fields, flush=True)
    if message.startswith("programs of the driver"):
        sys.exit(0)

child.RESTART_FIRST = child.RESTART_MOST = 600.0
control = Child(CONTROL, {}, program=["-c", sys.argv[1]])
Supervisor([control], [], log_error, on_ready=lambda _: os.kill(control.pid, signal.SIGUSR1)).run()
"""
CONTROL = """
import json, os, signal, subprocess, sys
from forewarn.support import guard
from forewarn.support.process_mark import mark

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
parent = json.loads(sys.stdin.read())["parent"]
environment = os.environ | mark(parent)
# What the test reads from standard error has an end when the program has one.
subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True, stdout=2)
print("ready {}", flush=True)
print("lease", guard.boottime(), flush=True)
signal.sigwait({signal.SIGUSR1})
"""


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ("os.kill(os.getpid(), signal.SIGSTOP)", "has not ended with its lease, and is killed"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "a process has ended and is started again"),
    ],
)
def test_with_a_lease_everything_ends_that_acts_for_it(ends: str, expected: str) -> None:
    """Also programs that have outlived the process that started them."""
    later = "\nsignal.pause()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", SUPERVISOR, CONTROL + ends + later],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
    assert "'programs': 1" in done.stdout
