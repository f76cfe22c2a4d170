"""The programs of a service end with its lease, whatever becomes of the service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from forewarn.support import guard, guardian
from forewarn.support.guardian import Guardian
from forewarn.support.process_mark import end_marked, mark
from helpers.waiting import LIMIT

SERVICE = 1_100_000_000 + os.getpid()  # no process has this number


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    environment = {"PATH": os.environ["PATH"], **mark(SERVICE)}
    with subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True) as program:
        yield program
        end_marked(SERVICE)


def test_programs_are_ended_when_the_lease_is_not_renewed(program: subprocess.Popen[bytes]) -> None:
    guarding = Guardian(SERVICE)
    guarding.renew(guard.boottime() + LIMIT)
    guarding.start()
    assert program.poll() is None
    guarding.renew(guard.boottime())
    assert program.wait(LIMIT) == -signal.SIGKILL
    guarding.close()


def test_a_guardian_that_has_ended_is_started_again(program: subprocess.Popen[bytes]) -> None:
    guarding = Guardian(SERVICE)
    guarding.renew(guard.boottime() + LIMIT)
    guarding.start()
    assert guarding._process is not None
    guarding._process.kill()
    guarding._process.wait()
    guarding.renew(guard.boottime())
    guarding.start()
    assert program.wait(LIMIT) == -signal.SIGKILL
    guarding.close()


def test_a_guardian_ends_the_programs_of_a_service_that_is_gone_when_its_lease_is_over(
    program: subprocess.Popen[bytes],
) -> None:
    until = guard.boottime() + 2 * guardian.LOOK_EVERY
    words = [sys.executable, "-I", "-m", guardian.__name__, str(SERVICE), repr(until)]
    subprocess.run(words, stdin=subprocess.DEVNULL, check=True, timeout=LIMIT)
    assert guard.boottime() >= until
    assert program.wait(LIMIT) == -signal.SIGKILL
