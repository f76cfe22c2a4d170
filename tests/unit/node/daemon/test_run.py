"""How a process ends that may not go on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from forewarn.node.daemon.run import OUTCOME_UNKNOWN

# The program has this process's standard error, which therefore has an end when both have one.
STOPS = """
import os, subprocess, sys
from forewarn.node.daemon.run import _stop_at_once
from forewarn.store.port import Deposed, OutcomeUnknown
from forewarn.support.process_mark import mark

environment = os.environ | mark(os.getpid())
program = ["sh", "-c", sys.argv[2]]
subprocess.Popen(program, env=environment, start_new_session=True, stdin=subprocess.PIPE)
_stop_at_once({"Deposed": Deposed, "Unknown": OutcomeUnknown}[sys.argv[1]]("why"))
"""


@pytest.mark.parametrize(("kind", "goes_on"), [("Deposed", False), ("Unknown", True)])
def test_the_programs_of_a_deposed_control_node_are_ended(kind: str, goes_on: bool) -> None:
    """Those of a service that starts again are left to it: it waits for them."""
    # It goes on when nobody can write to its standard input any more, so when the service is gone.
    program = "cat; echo goes on"
    done = subprocess.run(
        [sys.executable, "-P", "-c", STOPS, kind, program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == OUTCOME_UNKNOWN, done.stderr
    assert done.stdout.endswith("goes on\n") is goes_on
