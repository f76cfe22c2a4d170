"""Programs are found by their mark, and ended with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess

from forewarn.support.process_mark import end_marked, mark

SERVICE = 1_000_000_000 + os.getpid()  # no process has this number
STARTS_ANOTHER = "sh -c 'echo begun; exec sleep 600' & wait"


def started(service: int) -> subprocess.Popen[str]:
    program = subprocess.Popen(
        ["sh", "-c", STARTS_ANOTHER],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], **mark(service)},
        start_new_session=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "begun\n"
    return program


def test_the_programs_of_one_service_are_ended() -> None:
    with started(SERVICE) as first, started(SERVICE + 1) as other:
        assert end_marked(SERVICE) == 2
        assert first.wait(60) == -signal.SIGKILL
        assert first.stdout is not None
        assert first.stdout.read() == ""  # nobody has it open any more
        assert other.poll() is None
        assert end_marked(SERVICE) == 0
        assert end_marked(SERVICE + 1) == 2
