"""Programs are found by their mark, and ended with all that they have started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.support import process_mark
from forewarn.support.process_mark import VARIABLE, end_marked, mark

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


class FakeProc:
    """A /proc with one process, of which it does not show everything yet. It changes while
    `end_marked` pauses, and nowhere else."""

    def __init__(self, directory: Path, program: subprocess.Popen[str]) -> None:
        self._real = Path("/proc") / str(program.pid)
        self._shown = directory / self._real.name
        self._after = 0
        self.pauses = 0

    def show(self, environ: bytes, stat: bytes, pauses: int) -> None:
        """Show this, and after so many pauses the process as it is."""
        self._shown.mkdir()
        (self._shown / "environ").write_bytes(environ)
        (self._shown / "stat").write_bytes(stat)
        self._after = pauses

    def pause(self, _seconds: float) -> None:
        self.pauses += 1
        if self.pauses == self._after:
            shutil.rmtree(self._shown)
            self._shown.symlink_to(self._real)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProc]:
    with started(SERVICE) as program:
        fake = FakeProc(tmp_path, program)
        monkeypatch.setattr(process_mark, "PROC", tmp_path)
        monkeypatch.setattr(process_mark, "_pause", fake.pause)
        try:
            yield fake
        finally:
            os.killpg(program.pid, signal.SIGKILL)


def stat(flags: int) -> bytes:
    """Return that of a process whose name is not UTF-8, and which has no environment."""
    fields = ["R", *["0"] * 49]
    fields[process_mark.FLAGS] = str(flags)
    return b"1 (\xff\xfe) 1) " + " ".join(fields).encode()


def test_a_program_that_is_just_being_executed_is_ended(proc: FakeProc) -> None:
    """Until it is executed, it has no environment."""
    proc.show(b"", stat(flags=0x400000), pauses=3)
    assert end_marked(SERVICE) == 1


@pytest.mark.parametrize("flags", [process_mark.EXITING, process_mark.KERNEL_THREAD])
def test_a_process_that_will_never_have_an_environment_is_not_waited_for(
    proc: FakeProc, flags: int
) -> None:
    proc.show(b"", stat(flags), pauses=1_000)
    assert (end_marked(SERVICE), proc.pauses) == (0, 0)


def test_programs_are_gone_when_they_were_ended_however_long_that_takes(proc: FakeProc) -> None:
    proc.show(f"{VARIABLE}={SERVICE}".encode(), b"", pauses=300)
    assert end_marked(SERVICE) == 1
    assert proc.pauses >= 300


def test_a_program_that_cannot_be_ended_is_not_waited_for_for_ever(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_mark, "END_WITHIN", 0.05)
    proc.show(f"{VARIABLE}={SERVICE}".encode(), b"", pauses=10**9)
    assert end_marked(SERVICE) == 1


def test_programs_with_names_and_variables_that_are_not_utf_8_are_ended(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff) ("
    shutil.copy(shutil.which("sleep") or "", os.fsdecode(name))
    environment = {b"\xfe": b"\xff", **{k.encode(): v.encode() for k, v in mark(SERVICE).items()}}
    with subprocess.Popen([name, "600"], env=environment, start_new_session=True) as program:
        assert end_marked(SERVICE) == 1
        assert program.wait(60) == -signal.SIGKILL
